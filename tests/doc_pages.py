"""Follow a page of docs/ as its reader would: write its files, run its commands, compare.

    ```yaml study.yaml       a named block is the content of that file
    ```console               commands behind "$ ", each followed by what it prints
    …                        in what is printed, stands for anything

`python tests/doc_pages.py docs/PAGE.md` follows a page and writes what its commands print now.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import in_process

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, what stands behind that, and its text."""

    kind: str
    name: str
    body: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page that name a language."""
    return [Block(*found) for found in _BLOCK.findall(page)]


def steps(console: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with what it prints."""
    parts = re.split(r"^\$ ", console, flags=re.MULTILINE)
    return [(command, shown) for command, _, shown in (p.partition("\n") for p in parts[1:])]


def said(command: str) -> str:
    """Return what a command prints in the current folder; fedcohort and python run in-process."""
    words = shlex.split(command)
    if words[0] not in ("fedcohort", "python"):
        run = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        return run.stdout + run.stderr
    if words[0] == "fedcohort":  # in one process, and not in one for each core
        alone = ["--workers", "1"] if words[1] == "run" else []
        _, out, err = in_process.command(*words[1:], *alone)
        return err + out
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        runpy.run_path(words[1], run_name="__main__")
    return printed.getvalue()


def agree(shown: str, found: str) -> bool:
    """Return whether a command printed what the page shows."""
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), found, re.DOTALL) is not None


def follow(page: str, meet: Callable[[str, str, str], None]) -> None:
    """Write the files and run the commands of a page in the current folder, in order.

    meet : is told each command, what the page shows, and what was printed.
    """
    for kind, name, body in blocks(page):
        if kind == "console":
            for command, shown in steps(body):
                meet(command, shown, said(command))
        elif name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(body, encoding="utf-8")


def _renew(path: Path) -> None:
    """Put what the commands of a page print into it, where it differs from what is shown."""
    page = rest = path.read_text(encoding="utf-8")
    done = ""

    def meet(command: str, shown: str, found: str) -> None:
        nonlocal done, rest
        before, rest = rest.split(f"$ {command}\n{shown}", 1)
        print(f"$ {command}: {'as shown' if agree(shown, found) else 'renewed'}")
        done += f"{before}$ {command}\n{shown if agree(shown, found) else found}"

    os.environ["COLUMNS"] = "80"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        follow(page, meet)
    path.write_text(done + rest, encoding="utf-8")


if __name__ == "__main__":
    _renew(Path(sys.argv[1]).resolve())
