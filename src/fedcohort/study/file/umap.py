"""Whether a study asks for the map of its clusters by UMAP (`judge.shown.cluster_umap`)."""

from __future__ import annotations

import importlib.util

from fedcohort.protocol import registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.reader import Reader
from fedcohort.study.kinds import CLUSTERING, Kind

#: What to do where the map is asked for, and its package is missing.
UMAP_NEEDED = "this needs the package umap-learn: pip install 'fedcohort[umap]'."


def asked(reader: Reader, kind: Kind, arms: tuple[Arm, ...], network: bool) -> bool:
    """Return whether the study asks for the map.

    Parameters
    ----------
    network : whether sites read the study as well: they draw no map, and need no package for it.

    Raises
    ------
    StudyError : it asks, and there is nothing to draw, or no package to draw it by.
    """
    where = ("evaluate", "umap")
    if not reader.flag(where):
        return False
    if kind is not CLUSTERING:
        raise reader.doc.error(where, "this map is of clusters; the study's task is another one.")
    if not any("sample" in registry.find(arm.method).gives for arm in arms):
        able = [m for m in registry.names() if {"sample", "memberships"} <= registry.find(m).gives]
        raise reader.doc.error(
            where,
            "this map is of simulated patients, and no arm's method can draw any; "
            f"take {' or '.join(able)}.",
        )
    if not network and umap_is_missing():
        raise reader.doc.error(where, UMAP_NEEDED)
    return True


def umap_is_missing() -> bool:
    """Return whether the package is not installed; without importing it, which takes seconds."""
    return importlib.util.find_spec("umap") is None
