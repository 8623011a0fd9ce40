"""Files of results: what a benchmark measured, for the pages that cite it.

`Book` holds finished configurations, one line of JSON each, so that a stopped run goes on.
`keep` writes the figures of one benchmark as JSON, and `--out FILE` asks for that.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def asks_out(parser: argparse.ArgumentParser) -> None:
    """Add `--out FILE` to a benchmark's command line."""
    parser.add_argument("--out", type=Path, help="also write the figures there, as JSON")


def keep(out: Path | None, figures: dict[str, Any], load: float | None = None) -> None:
    """Merge figures into a JSON file, each group with its command, commit, date, load and machine.

    figures : {group: {name: number}}; a group that is not named keeps what the file holds.
    load : average load before the measurement; now, if left out.
    """
    if out is None:
        return
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    given = ["FILE" if word.startswith("/") else word for word in sys.argv[1:]]
    where = given.index("--out")
    del given[where : where + 2]
    about = {
        "command": shlex.join(
            ["python", str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *given]
        ),
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "load": round(os.getloadavg()[0] if load is None else load, 1),
        "on": f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores",
    }
    known = json.loads(out.read_text()) if out.exists() else {}
    known |= {group: {"about": about, **found} for group, found in figures.items()}
    out.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")


class Book:
    """The lines of a file."""

    def __init__(self, path: Path):
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._known = {self._name(row["of"]): row for row in map(json.loads, lines)}

    @staticmethod
    def _name(of: dict[str, Any]) -> str:
        return json.dumps(of, sort_keys=True)

    def lacks(self, of: dict[str, Any]) -> bool:
        """Return whether it has not been run."""
        return self._name(of) not in self._known

    def write(self, of: dict[str, Any], found: dict[str, Any]) -> None:
        """Add a line."""
        row = {"of": of, **found}
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._known[self._name(of)] = row
        shown = " ".join(f"{k} {v:.4g}" for k, v in found.items() if isinstance(v, float))
        print(" ".join(map(str, of.values())), "|", shown, flush=True)

    def rows(self, **of: Any) -> list[dict[str, Any]]:
        """Return what was found in the configurations with these values, in their order."""
        return [
            {name: value for name, value in row.items() if name != "of"}
            for row in self._known.values()
            if of.items() <= row["of"].items()
        ]

    def of_seeds(
        self, of: dict[str, Any], seeds: int, measure: Callable[[int], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return what was found with the seeds from 0, and first measure what is missing."""
        for seed in range(seeds):
            if self.lacks(one := {**of, "seed": seed}):
                self.write(one, measure(seed))
        return [row for seed in range(seeds) for row in self.rows(**of, seed=seed)]
