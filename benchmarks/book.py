"""Finished configurations, a line of JSON each, so that a run goes on where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Book:
    """The lines of a file."""

    def __init__(self, path: Path):
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._known = {self._name(row["of"]) for row in map(json.loads, lines)}

    @staticmethod
    def _name(of: dict[str, Any]) -> str:
        return json.dumps(of, sort_keys=True)

    def lacks(self, of: dict[str, Any]) -> bool:
        """Return whether it has not been run."""
        return self._name(of) not in self._known

    def write(self, of: dict[str, Any], found: dict[str, Any]) -> None:
        """Add a line."""
        with self._path.open("a") as file:
            file.write(json.dumps({"of": of, **found}) + "\n")
        self._known.add(self._name(of))
        shown = " ".join(f"{k} {v:.4g}" for k, v in found.items() if isinstance(v, float))
        print(" ".join(map(str, of.values())), "|", shown, flush=True)
