"""The option `evaluate.umap` of a study: a UMAP of its clusters (`judge.shown.cluster_umap`)."""

from __future__ import annotations

import importlib.util

from fedcohort.protocol import registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.reader import Reader
from fedcohort.study.kinds import CLUSTERING, Kind

#: Advice if the package is missing.
UMAP_NEEDED = "this needs the package umap-learn: pip install 'fedcohort[umap]'."


def asked(reader: Reader, kind: Kind, arms: tuple[Arm, ...], network: bool) -> bool:
    """Return whether the study asks for the UMAP.

    Parameters
    ----------
    network : whether a network reads the study: sites draw no UMAP, and need no package for it.

    Raises
    ------
    StudyError : it asks, but there is nothing to draw, or the package is missing.
    """
    where = ("evaluate", "umap")
    if not reader.flag(where):
        return False
    if kind is not CLUSTERING:
        raise reader.doc.error(where, "this map is of clusters. Use it with task: clustering.")
    if not any("sample" in registry.find(arm.method).gives for arm in arms):
        able = [m for m in registry.names() if {"sample", "memberships"} <= registry.find(m).gives]
        raise reader.doc.error(
            where,
            "this map is of simulated patients, and no arm's method can draw any; "
            f"use {' or '.join(able)}.",
        )
    if not network and umap_is_missing():
        raise reader.doc.error(where, UMAP_NEEDED)
    return True


def umap_is_missing() -> bool:
    """Return whether the package is not installed, without its slow import."""
    return importlib.util.find_spec("umap") is None
