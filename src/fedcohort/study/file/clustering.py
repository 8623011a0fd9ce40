"""What a study of clusters may ask for: by which metrics, with which map, and what it cannot do.

Its outcome only judges. So metrics that look at it are there where the file names one, those of
reconstruction where a method reconstructs, and the agreement with pooled data where these are a
bound.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from fedcohort.data.outcome import Outcome
from fedcohort.protocol import registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.reader import Reader
from fedcohort.study.file.yamlfile import Document

#: All that clusters are judged by; the first leads the report.
METRICS = (
    "silhouette", "calinski_harabasz", "cycle_accuracy", "reconstruction", "smallest_share",
    "c_index", "log_rank_p", "accuracy", "ari", "nmi", "agreement",
)  # fmt: skip
#: Those that take an outcome, by its kind; a model that reconstructs; a pooled bound.
OF_OUTCOME: Mapping[str, tuple[str, ...]] = {
    "survival": ("c_index", "log_rank_p"), "classification": ("accuracy", "ari", "nmi"),
}  # fmt: skip
OF_MODELS, OF_BOUND = ("cycle_accuracy", "reconstruction"), ("agreement",)
#: What stands for a metric where rows stay at their sites; None for nothing. A silhouette compares
#: all pairs of rows, and pooled clusters take all rows.
OVER_NETWORK: Mapping[str, str | None] = {
    "silhouette": "simplified_silhouette", "agreement": None,
}  # fmt: skip
#: What to do where the map of `cluster_umap` is asked for, and its package is missing.
UMAP_NEEDED = "this needs the package umap-learn: pip install 'fedcohort[umap]'."


def check(doc: Document, tune: Mapping[str, Any]) -> None:
    """Refuse what a study of clusters cannot do.

    Raises
    ------
    StudyError : it would be tuned, by an outcome that no fit may see.
    """
    if tune:
        raise doc.error(
            ("tune",),
            "clusters have no outcome to tune by. Give the settings, such as n_clusters, or list "
            "several arms.",
        )


def asks_umap(reader: Reader, task: str, arms: tuple[Arm, ...], network: bool) -> bool:
    """Return whether the study asks for the map of `cluster_umap`.

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
    if task != "clustering":
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


def metrics_of(outcome: Outcome | None, arms: tuple[Arm, ...]) -> tuple[str, ...]:
    """Return the metrics that outcome, methods and bounds have an answer to."""
    gives = {what for arm in arms for what in registry.find(arm.method).gives}
    kind = "" if outcome is None else outcome.kind
    apart = {m for k, names in OF_OUTCOME.items() if k != kind for m in names}
    apart |= set() if "reconstruct" in gives else set(OF_MODELS)
    apart |= set() if any(arm.scope == "centralised" for arm in arms) else set(OF_BOUND)
    return tuple(m for m in METRICS if m not in apart)


def over_network(metrics: tuple[str, ...]) -> tuple[str, ...]:
    """Return the metrics of a study whose rows stay at their sites, in the place of these."""
    found = (OVER_NETWORK.get(m, m) for m in metrics)
    return tuple(m for m in found if m is not None)
