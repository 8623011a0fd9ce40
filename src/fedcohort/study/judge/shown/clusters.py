"""Published rows of clusters, beyond their metrics.

clusters           rows and share of each; of the training rows, as the next three cluster_sites
rows of each at each site cluster_features   each feature in the cluster against the rest
(`cluster_features`) cluster_map        positions (`cluster_map`); cluster_images are synthetic
patients cluster_umap       positions of simulated patients, if the study asks for it
(`cluster_umap`) cluster_curves     Kaplan–Meier of the blind rows by cluster, and cluster_log_rank
the test cluster_confusion  the blind rows' clusters against their classes

The coordinator knows sizes of clusters. So in tables of clusters by sites, or by classes, whole
rows and columns are hidden (`disclosure.groups`): no cell of 1 to m − 1 patients is published or
follows from the others, with m the `min_cell`. Curves and numbers at risk follow the rules of
`metrics.survival.kaplan_meier`. A cluster is the number that `predict` gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.outcome import levels_of
from fedcohort.metrics.clusters import contingency
from fedcohort.metrics.survival.kaplan_meier import group_leavers
from fedcohort.metrics.survival.log_rank import log_rank
from fedcohort.metrics.survival.published_curves import published_groups
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.groups import hidden_levels
from fedcohort.protocol import Row
from fedcohort.study.judge.pooled.clusters import Clusters, labels_of
from fedcohort.study.judge.shown import cluster_umap
from fedcohort.study.judge.shown.cluster_features import feature_rows
from fedcohort.study.judge.shown.cluster_map import image_rows, latent, map_rows
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Run
from fedcohort.study.sites.layout import Laid

KEYS = (
    "clusters", "cluster_sites", "cluster_features", "cluster_map", "cluster_umap",
    "cluster_images", "cluster_curves", "cluster_log_rank", "cluster_confusion",
)  # fmt: skip
#: Largest number of times with numbers at risk.
AT_RISK = 6


def cluster_rows(
    run: Run, judge: Clusters, laid: Laid, seed: int, *, umap: bool = False
) -> dict[str, list[Row]]:
    """Return lists of rows by key of results.json, without arm, scenario and repeat.

    Parameters
    ----------
    judge : of the blind rows, and of the training rows of all sites.
    seed : seed of synthetic patients.
    umap : whether to add the UMAP figure.

    Returns
    -------
    rows : every key of `KEYS`; empty if the data or the method do not give it.
    """
    m = judge.min_cell
    names = sorted(laid.problem.frames)
    site = np.repeat(np.array(names, object), [len(laid.problem.frames[s]) for s in names])
    x = run.design.matrix(judge.train)
    labels, blind = labels_of(run, x), labels_of(run, run.design.matrix(judge.test))
    k = int(max(labels.max(initial=0), blind.max(initial=0))) + 1
    sizes = np.bincount(labels, minlength=k)
    shown = ~hidden(sizes, m)
    cells = _shown_cells(labels, site, k, m, laid)
    found: dict[str, list[Row]] = {key: [] for key in KEYS}
    found["clusters"] = size_rows(sizes, shown)
    found["cluster_sites"] = [
        {"site": name, "cluster": c}
        | {"n": int(((labels == c) & (site == name)).sum()) if cells[c, j] else None}
        for j, name in enumerate(names)
        for c in range(k)
    ]
    told = shown & (sizes > 0)
    found["cluster_features"] = [
        plain(row) for row in feature_rows(run.design, judge.train, labels, told, m)
    ]
    found["cluster_map"] = map_rows(latent(run, x), labels, (site, names), told, cells, m)
    if umap:
        found["cluster_umap"] = cluster_umap.shown_rows(run.model, seed, told)
    fits = len(x) > 0 and bool((x >= 0).all() and (x <= 1).all())
    found["cluster_images"] = image_rows(run, fits, told, seed)
    if (seen := judge.survival) is not None:
        found["cluster_curves"] = _curves(blind, *seen, m)
        found["cluster_log_rank"] = _log_rank(blind, *seen)
    if (classes := judge.reference) is not None:
        levels = levels_of(judge.outcome, judge.dictionary)
        table = contingency(blind, classes)
        table = np.pad(table, ((0, k - len(table)), (0, len(levels) - table.shape[1])))
        found["cluster_confusion"] = confusion_rows(table, levels, m)
    return found


def size_rows(sizes: Array, shown: Array) -> list[Row]:
    """Return rows and share of each cluster (k,), None where not ``shown`` (k,)."""
    return [
        {"cluster": c, "n": int(n) if s else None}
        | {"share": float(n / sizes.sum()) if s else None, "label": f"cluster {c}"}
        for c, (n, s) in enumerate(zip(sizes, shown, strict=True))
    ]


def confusion_rows(table: Array, levels: Sequence[str], min_cell: int) -> list[Row]:
    """Return the number of blind rows of each cluster and class, from a table (k, levels)."""
    clusters, classes = hidden_levels(table, min_cell)
    return [
        {"cluster": c, "reference": name}
        | {"n": None if clusters[c] or classes[j] else int(table[c, j])}
        for c in range(len(table))
        for j, name in enumerate(levels)
    ]


def _shown_cells(labels: Array, site: Array, k: int, min_cell: int, laid: Laid) -> Array:
    """Return which counts of clusters by sites may be published: bool (k, sites).

    None is, if a natural site hides its number of rows.
    """
    names = sorted(laid.problem.frames)
    table = contingency(labels, np.searchsorted(names, site))
    table = np.pad(table, ((0, k - len(table)), (0, len(names) - table.shape[1])))
    whole = np.array(list(laid.problem.patients.values()), np.int64)
    if hidden(whole, min_cell).any():
        return np.zeros(table.shape, bool)
    levels, groups = hidden_levels(table, min_cell)
    return ~levels[:, None] & ~groups[None, :]


def _curves(labels: Array, time: Array, event: Array, min_cell: int) -> list[Row]:
    """Return each published cluster's curve, with numbers at risk at round times.

    A row has a point of the curve, the number at risk, or both; the other is None.
    """
    sizes = np.bincount(labels)
    names = np.flatnonzero(~hidden(sizes, min_cell) & (sizes > 0))
    some = np.isin(labels, names)
    labels, time, event = labels[some], time[some], event[some]
    if not len(names):
        return []
    group = np.searchsorted(names, labels)
    found = published_groups(group, time, event, min_cell, AT_RISK)
    rows: list[Row] = []
    for g, name in enumerate(names.tolist()):
        points: dict[float, dict[str, Any]] = {
            float(t): {"survival": float(s), "low": float(low), "high": float(high)}
            for t, s, low, high in zip(*found.curves[g], strict=True)
        }
        risk = {float(t): int(n) for t, n in zip(found.at, found.numbers[:, g], strict=True)}
        told = zip(found.times, found.about[:, g], strict=True)
        about = {float(t): round(n) for t, n in told if math.isfinite(n)}
        blank = {"survival": math.nan, "low": math.nan, "high": math.nan}
        rows += [
            plain({"cluster": name, "time": t, **points.get(t, blank)})
            | {"at_risk": risk.get(t), "about": about.get(t)}
            for t in sorted({*points, *risk, *about})
        ]
    return rows


def _log_rank(labels: Array, time: Array, event: Array) -> list[Row]:
    names, group = np.unique(labels, return_inverse=True)
    test = log_rank(group_leavers(group, len(names), time, event, np.unique(time)))
    return [plain({"chi2": test.chi2, "df": test.df, "p": test.p, "n": len(labels)})]
