"""Rows of results.json about clusters, from sums over sites.

clusters, cluster_sites  rows of each cluster, and at each site: training rows cluster_features
differences between clusters: **blind rows**, counts and moments by sums cluster_map
positions: **blind rows**, means and covariances by sums and by site cluster_images
synthetic patients, from the model alone, like cluster_umap cluster_curves           life tables of
the blind rows, in intervals with `min_cell` deaths, and
                         cluster_log_rank in the same ones; no numbers at risk
cluster_confusion        blind rows by cluster and class

Features and positions are of blind rows, which no fit has summed. A fit's last sums are of clusters
that may differ from the model's by few training rows, and so would sums over these
(`training.clusters.lloyd`). They exist only where `Sums.are_of_many` blind rows, and are published
by the rules of one process; bounds from fourth powers ensure that no few values dominate a mean
(`metrics.sums.power_sums`).

Revealed: what `summed.clusters` does, and `Frame`, `LevelTable`, `Known`, `Powers`, `Spread`,
`Places`; of each site what `cluster_sites` says.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, levels_of
from fedcohort.data.prepare import NumberColumn
from fedcohort.metrics.sums import clusters as sums_of
from fedcohort.metrics.sums.power_sums import Moments
from fedcohort.metrics.survival.censoring import Leavers
from fedcohort.metrics.survival.log_rank import in_intervals
from fedcohort.metrics.survival.published_curves import published_counts
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.rounding import rounded, step
from fedcohort.protocol import Row
from fedcohort.study.at_site.cluster_sites import PLACE, tell_hidden, tell_places, tell_sizes
from fedcohort.study.at_site.own_judging import all_there
from fedcohort.study.judge.shown import cluster_umap
from fedcohort.study.judge.shown.cluster_features import (
    ODDS,
    Summary,
    adjusted,
    level_rows,
    mean_difference,
)
from fedcohort.study.judge.shown.cluster_map import explained, image_rows, main_axes, placed
from fedcohort.study.judge.shown.clusters import KEYS, confusion_rows, size_rows
from fedcohort.study.judge.summed.clusters import Sums, leavers_of
from fedcohort.study.judge.summed.time_scale import TimeScale
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Run


def shown_rows(
    sums: Sums, run: Run, outcome: Outcome | None, dictionary: Dictionary, times: TimeScale | None,
    seed: int, *, umap: bool = False,
) -> dict[str, list[Row]]:  # fmt: skip
    """Return lists of rows by key of results.json, without arm, scenario and repeat.

    Raises
    ------
    SiteUnavailable : a site left meanwhile.
    """
    m, train, blind = sums.min_cell, sums.train, sums.blind
    told = ~hidden(train, m) & (train > 0)
    found: dict[str, list[Row]] = {key: [] for key in KEYS}
    found["clusters"] = size_rows(train, told | (train == 0))
    found["cluster_sites"] = _sites(sums)
    told &= ~hidden(blind, m) & (blind > 0)
    fits = sums.has_many and not int(sums.at().sum(sums_of.sum_frame).outside)
    if sums.are_of_many("blind"):
        found["cluster_features"] = [plain(row) for row in _features(sums, run, told)]
        found["cluster_map"] = _map(sums, told)
    if umap:
        found["cluster_umap"] = cluster_umap.shown_rows(run.model, seed, told)
    found["cluster_images"] = image_rows(run, fits, told, seed)
    if times is not None and len(times.grid):
        counts = leavers_of(sums, times)
        found["cluster_curves"] = _curves(counts, times.grid, m)
        chi2, p, df = in_intervals(counts)
        found["cluster_log_rank"] = [plain({"chi2": chi2, "df": df, "p": p, "n": int(blind.sum())})]
    if levels := levels_of(outcome, dictionary):
        table = sums.at().sum(sums_of.count_classes).counts
        found["cluster_confusion"] = confusion_rows(table, levels, m)
    all_there(sums.fed)
    return found


def _open(sums: Sums, half: str) -> Array:
    """Return whether no site hides a cluster, in one half: bool (k,)."""
    told = sums.at(half).gather(tell_hidden, min_cell=sums.min_cell)
    return ~np.any([t.hidden for t in told.values()], axis=0)


def _sites(sums: Sums) -> list[Row]:
    """Return the training rows of each cluster at each site, for clusters that no site hides."""
    asked = _open(sums, "train")
    told = sums.at("train").gather(tell_sizes, min_cell=sums.min_cell, asked=asked)
    return [
        {"site": site, "cluster": c, "n": int(n) if n >= 0 else None}
        for site, t in sorted(told.items())
        for c, n in enumerate(t.counts)
    ]


def _features(sums: Sums, run: Run, told: Array) -> list[Row]:
    """Return a row for each cluster and feature."""
    m, asked = sums.min_cell, sums.at()
    table = asked.sum(sums_of.count_levels).counts
    numbers, coded = _named(run)
    rows: list[Row] = []
    at = 0
    for features in coded:
        part = table[:, at : at + len(features) + 1]
        at += part.shape[1]
        rows += level_rows(features, part, told, m)
    if numbers:
        fit = sums.numbers_of_many()
        first = asked.sum(sums_of.sum_powers, centre=np.zeros(len(numbers)), asked=fit)
        known = np.maximum(first.rows.sum(axis=0), 1.0)
        centre = first.powers[0].sum(axis=0) / known
        p = asked.sum(sums_of.sum_powers, centre=centre, asked=fit)
        for j, name in enumerate(numbers):
            for c in range(len(told)):
                inside, rest = (
                    Moments(p.rows[here, j].sum(), p.powers[:, here, j].sum(axis=1), centre[j])
                    for here in (np.arange(len(told)) == c, np.arange(len(told)) != c)
                )
                rows.append({"cluster": c, "feature": name, "kind": "mean"})
                fine = told[c] and inside.may_be_shown(m) and rest.may_be_shown(m)
                rows[-1] |= _difference(inside, rest) if fine else dict.fromkeys(ODDS)
    return adjusted(rows)


def _named(run: Run) -> tuple[list[str], list[tuple[str | None, ...]]]:
    """Return the names of numeric columns, and of each coded column's levels, as `columns` does."""
    numbers: list[str] = []
    coded: list[tuple[str | None, ...]] = []
    for column in run.design.columns:
        if not isinstance(column, NumberColumn):
            names = [f"{column.name}={level}" for level in column.kept]
            coded.append((None, names[1]) if len(names) == 2 else tuple(names))
        elif column.type == "binary":
            coded.append((None, column.name))
        else:
            numbers.append(column.name)
    return numbers, coded


def _difference(inside: Moments, rest: Moments) -> Row:
    means = [_rounded(part) for part in (inside, rest)]
    parts = (Summary(int(part.n), part.mean, part.sd) for part in (inside, rest))
    return {"share": means[0], "rest": means[1], **mean_difference(*parts)}


def _rounded(part: Moments) -> float:
    return rounded(part.mean, step(part.sd, int(part.n), 0.0))


def _map(sums: Sums, told: Array) -> list[Row]:
    """Return the positions of clusters, and the publishable ones at each site."""
    m, asked = sums.min_cell, sums.at()
    first = asked.sum(sums_of.sum_spread, origin=np.zeros(0))
    centre = first.total / max(1.0, float(first.rows))
    s = asked.sum(sums_of.sum_spread, origin=centre)
    covariance = s.products / max(1.0, float(s.rows))
    axes = main_axes(covariance)
    share = explained(covariance, axes)
    large = sums.blind >= 2 * max(m, 1)  # `Moments` of fewer rows are never published
    p = asked.sum(sums_of.sum_places, centre=centre, axes=axes, asked=large)
    rows: dict[int, list[Row]] = {c: [] for c in range(len(told))}
    for c in np.flatnonzero(told).tolist():
        x, y = (Moments(p.rows[c, j], p.powers[:, c, j]) for j in (0, 1))
        flat = math.isclose(y.squares, 0.0, abs_tol=1e-12)
        if not x.may_be_shown(m) or not (flat or y.may_be_shown(m)):
            continue
        cross = float(p.cross[c]) - x.n * x.mean * y.mean
        covariance = np.array([[x.squares, cross], [cross, y.squares]]) / (x.n - 1)
        whole = placed([_rounded(x), _rounded(y)], covariance, None, c, int(x.n))
        rows[c].append(whole | {"explained": share})
    opened = _open(sums, "blind") & told
    places = asked.gather(tell_places, min_cell=m, asked=opened, centre=centre, axes=axes)
    for site, t in sorted(places.items()):
        for c in np.flatnonzero(t.told).tolist():
            if c in rows and told[c]:
                numbers = dict(zip(PLACE, t.places[c].tolist(), strict=True))
                head = {"space": "pca", "site": site, "cluster": c}
                rows[c].append({**head, **numbers, "n": int(numbers["n"])})
    return [row for c in rows for row in rows[c]]


def _curves(counts: Leavers, grid: Array, least: int) -> list[Row]:
    """Return the curve of each cluster with a published size."""
    size = (counts.deaths + counts.censored).sum(axis=1)
    rows: list[Row] = []
    for c in np.flatnonzero(~hidden(size, least) & (size > 0)).tolist():
        curve = published_counts(grid, Leavers(counts.deaths[c], counts.censored[c]), least)
        rows += [
            plain({"cluster": c, "time": float(t), "survival": float(s), "low": float(low)})
            | plain({"high": float(high), "at_risk": None})
            for t, s, low, high in zip(*curve, strict=True)
        ]
    return rows
