"""A fresh install, twice: minutes, and gigabytes of disk.

    python benchmarks/scorecard/fresh_install.py

The working tree is copied without its environment, its runs and whatever else git ignores at the
top. Then, each with an empty cache of pip's:

    the product      as docs/network-it.md tells a hospital: a new environment, torch, and fedcohort
                     with all that a node can use (its extra `all`), at the versions of
                     requirements.lock. It must meet both time and size.
    make setup       what developers run: the same, and Flower, the reference packages that tests
                     compare with, a type checker and a test runner. It must meet the time; its size
                     is told beside, and is no hospital's.

In each environment `fedcohort methods` must answer, and pip must find nothing amiss. Sizes are as
the files lie on the disk. Packages come from the index that this machine is set to, with the build
of torch that it gives; so the row is of one machine and one line. It says which build: those for
GPUs are some gigabytes larger.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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


def locked(lock: str) -> str:
    """Return the lines `name==version` of a lock, without its hashes: constraints for pip."""
    return "".join(f"{found}\n" for found in re.findall(r"(?m)^[\w.-]+==[^\s\\;]+", lock))


def product(tree: Path, to: Path, run: Callable[..., None]) -> None:
    """Install what a hospital needs, at the locked versions."""
    torch = re.search(r"(?m)^TORCH := (\S+)", (tree / "Makefile").read_text(encoding="utf-8"))
    if torch is None:
        raise ValueError("the Makefile names no version of torch.")
    versions = to.with_suffix(".txt")
    versions.write_text(locked((tree / "requirements.lock").read_text(encoding="utf-8")))
    run(sys.executable, "-m", "venv", to)
    pip = (to / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, f"torch=={torch[1]}")
    run(*pip, "--constraint", versions, f"{tree}[all]")


def development(tree: Path, _: Path, run: Callable[..., None]) -> None:
    """Run a newcomer's one command."""
    run("make", "setup")


def install(how: Callable[..., None], folder: Path) -> tuple[float, float, str]:
    """Install in a new copy of the tree; return seconds, gigabytes, and the build of torch."""
    tree = folder / "fedcohort"
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
    at = tree / ".venv"
    env = {**os.environ, "PIP_CACHE_DIR": str(folder / "cache")}

    def run(*words: object) -> None:
        said = [str(w) for w in words]
        subprocess.run(said, cwd=tree, env=env, check=True, stdout=sys.stderr)

    began = time.perf_counter()
    how(tree, at, run)
    seconds = time.perf_counter() - began
    run(at / "bin/fedcohort", "methods")
    run(at / "bin/python", "-m", "pip", "check")
    code = "import importlib.metadata as m; print(m.version('torch'))"
    build = subprocess.run(
        [at / "bin/python", "-c", code], check=True, capture_output=True, text=True
    )
    return seconds, size(at) / 1e9, build.stdout.strip()


def measure() -> tuple[str, bool]:
    """Install both; say how long it took, and how large they are."""
    found: list[tuple[float, float, str]] = []
    for how in (product, development):
        with tempfile.TemporaryDirectory() as folder:
            found.append(install(how, Path(folder)))
    (seconds, gigabytes, build), (setup, whole, _) = found
    small = "within" if whole <= MOST_GB else "which is above"
    text = (
        f"the product (fedcohort[all], torch {build}) {seconds:.0f} s, {gigabytes:.2f} GB; make "
        f"setup {setup:.0f} s, {whole:.2f} GB with what developers need, {small} the size that "
        f"the product is held to (pip's cache empty for each)"
    )
    return text, max(seconds, setup) <= MOST_SECONDS and gigabytes <= MOST_GB


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
