"""A new checkout, `make setup` in it, and what that took: minutes, and gigabytes of disk.

    python benchmarks/scorecard/fresh_install.py

The working tree is copied without its environment, its runs and whatever else git ignores at the
top; then a newcomer's two commands are run there: `make setup`, whose time counts, and
`fedcohort methods`, which must answer. Packages come over the network (or from pip's own cache,
if this machine has one; the row says so), so this number is of one machine and one line. The size
is that of `.venv`, as it lies on the disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sheet import main

ROOT = Path(__file__).parents[2]

ITEM = "fresh install"
TARGET = "≤ 4 min, ≤ 2.1 GB"
MOST_SECONDS, MOST_GB = 240.0, 2.1
LEFT_OUT = shutil.ignore_patterns(
    ".venv", ".git", "runs", "build", "dist", "__pycache__", "*.egg-info", ".*_cache"
)


def size(folder: Path) -> int:
    """Return the bytes that a folder takes on the disk; a file with two names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            stat = (Path(place) / name).lstat()
            seen[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
    return sum(seen.values())


def cached() -> str:
    """Return whether pip may take packages from a cache of its own."""
    words = [sys.executable, "-m", "pip", "cache", "info"]
    said = subprocess.run(words, check=False, capture_output=True, text=True).stdout
    lines = [line for line in said.splitlines() if line.startswith("Number of HTTP files")]
    n = int(lines[0].split(":")[1]) if lines else 0
    return f"with {n} files in pip's cache" if n else "pip's cache empty"


def measure() -> tuple[str, bool]:
    """Install; say how long it took, and how large it is."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "fedcohort"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        cache = cached()
        began = time.perf_counter()
        subprocess.run(["make", "setup"], cwd=tree, check=True, stdout=sys.stderr)
        seconds = time.perf_counter() - began
        subprocess.run([tree / ".venv/bin/fedcohort", "methods"], check=True, stdout=sys.stderr)
        gigabytes = size(tree / ".venv") / 1e9
    text = f"make setup {seconds:.0f} s ({cache}), .venv {gigabytes:.2f} GB"
    return text, seconds <= MOST_SECONDS and gigabytes <= MOST_GB


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
