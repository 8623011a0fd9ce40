"""What a study leaves at a site for the people there: feedback's findings, and the site's models.

In the node's `state`, by the study's hash: a text in `feedback`, and in `models` a folder for each
arm with `user: all`. They are written before the node's reply leaves, which holds none of them, and
stay after the run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from fedcohort.network.state import durable
from fedcohort.network.state.study_store import short

#: Folders in the node's state; width of a text.
FOLDER, MODELS, WIDTH = "feedback", "models", 96
HEAD = (
    "Differences between this site's table and the other sites' tables in this study. Each line is "
    "a question to those who know the data, not a verdict. Nobody outside this site has this text."
)


def path_of(state: Path, run: str) -> Path:
    """Return the path of a study's text."""
    return state / FOLDER / f"{short(run)}.txt"


def models_of(state: Path, run: str) -> Path:
    """Return the folder of a study's models."""
    return state / MODELS / short(run)


def kept_models(state: Path, run: str) -> list[Path]:
    """Return the folders of the models that a study left, one an arm."""
    return sorted(path.parent for path in models_of(state, run).glob("*/model.json"))


def write(state: Path, run: str, study: str, lines: Sequence[str]) -> Path:
    """Write the findings, whole or not at all; return the path.

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
    durable.write(path, f"{text}\n".encode())
    return path
