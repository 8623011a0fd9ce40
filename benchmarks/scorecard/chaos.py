"""Faults in a network of three hospitals: every run ends, bit-equal to one nothing happened to.

    python benchmarks/scorecard/chaos.py [--every 1]

Runs `benchmarks/network/chaos.py`, whose header says what happens and what must hold; about ten
minutes for all faults. `--every 6` takes each sixth fault, which is a sample and meets no target.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sheet import main

NETWORK = Path(__file__).parents[1] / "network"

ITEM = "chaos: 24 kills, stops, cuts, disk full, clock skew over every phase"
TARGET = "all finish or abort cleanly; a resumed run is bit-equal to an uninterrupted one"
FAULTS = 24

_LINE = re.compile(r"^(?P<fault>\S+ \S+ \S+) +\S+ +(?P<sums>\S+) +[\d.]+  (?P<said>.*)$")
_END = re.compile(r"^(\d+) of (\d+) faults: every run ended bit-equal", re.MULTILINE)


def names() -> list[str]:
    """Return the names of all faults."""
    code = "import chaos; print(*(f.name for f in chaos.faults()), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=NETWORK, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


class Seen(NamedTuple):
    """What `benchmarks/network/chaos.py` printed: faults that ended well, of all, their lines."""

    good: int
    n: int
    said: list[str]
    masked: int


def read(printed: str) -> Seen:
    """Return what was printed; no good fault of one where it ended early."""
    lines = [m for line in printed.splitlines() if (m := _LINE.match(line))]
    end = _END.search(printed)
    good, n = (int(end[1]), int(end[2])) if end else (0, 1)
    return Seen(good, n, [m["said"] for m in lines], sum(m["sums"] == "masked" for m in lines))


def run(only: str) -> Seen:
    """Let the faults of a name happen; return what was seen."""
    words = [sys.executable, str(NETWORK / "chaos.py"), "--only", only]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    print(done.stdout + done.stderr, flush=True)
    return read(done.stdout)


def told(parts: Sequence[Seen], known: int) -> tuple[str, bool]:
    """Return the measured value in words, and whether all known faults ended as they must."""
    good, n = sum(p.good for p in parts), sum(p.n for p in parts)
    masked = sum(p.masked for p in parts)
    ends: Counter[str] = Counter()
    for said in (line for p in parts for line in p.said):
        ends["finished" if said.startswith("finished") else "aborted cleanly and resumed"] += (
            "bit-equal" in said
        )
    how = ", ".join(f"{n} {end}" for end, n in sorted(ends.items()))
    text = f"{good} of {n} faults (of {known}) ended bit-equal, {masked} with masked sums: {how}"
    return text, good == n >= FAULTS and n == known == ends.total()


def measure(every: int = 1) -> tuple[str, bool]:
    """Let the faults happen; say how the runs ended."""
    known = names()
    chosen = [""] if every == 1 else known[::every]
    return told([run(only) for only in chosen], len(known))


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure, every=1)
