"""The site's own models by study (`user: all`), for the people at that site.

A folder per study, `state/models` of the node, named by the study's hash. They stay after the run.
"""

from __future__ import annotations

from pathlib import Path

from fedcohort.network.state.study_store import short

#: Folder in the node's state.
FOLDER = "models"


def folder_of(state: Path, run: str) -> Path:
    """Return the folder of a study's models."""
    return state / FOLDER / short(run)


def kept(state: Path, run: str) -> list[Path]:
    """Return the folders of a study's models, one an arm."""
    return sorted(path.parent for path in folder_of(state, run).glob("*/model.json"))
