"""Feedback's findings about a site's own table, for the people at that site.

One text per study, `state/feedback` of the node, named by the study's hash. It is written before
the node's reply leaves; the reply holds none of it. It stays after the run.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

from fedcohort.network.steward.study_store import short

#: The folder in the node's state, and how wide a text is.
FOLDER, WIDTH = "feedback", 96
HEAD = (
    "What is off in this site's table beside the other sites' of the study. A line is a question "
    "to whoever knows the data, not a verdict. Nobody outside this site has been told."
)


def path_of(state: Path, run: str) -> Path:
    """Return where the text of a study is, if there is one."""
    return state / FOLDER / f"{short(run)}.txt"


def write(state: Path, run: str, study: str, lines: Sequence[str]) -> Path:
    """Write what was found, so that it is there as a whole or not at all; return where.

    Parameters
    ----------
    state : the node's folder.
    run, study : the study's hash, and its name.
    """
    path = path_of(state, run)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    said = [textwrap.fill(line, WIDTH, initial_indent="- ", subsequent_indent="  ")
            for line in lines]  # fmt: skip
    text = "\n".join([f"Study {study}, {run}", "", textwrap.fill(HEAD, WIDTH), "", *said])
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(fresh, path)
    return path
