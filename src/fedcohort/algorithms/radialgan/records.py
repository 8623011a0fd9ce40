"""A site's records, groups of its codes, and codes drawn from them.

A record is a row of x, 0 where missing or of a column that the site lacks, and the outcome: a
class as K − 1 indicators of the classes after the first, or the event (0 or 1) and ln(time/unit).

The codes of a group of records, those of one class or of events or censored times, are described
by their number, mean and covariance S. Of a group of fewer than `min_cell` records nothing is told.
Of n codes of d dimensions, n ≤ d, only the variances are told: their covariance would have them in
a known plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from fedcohort.algorithms.radialgan.settings import RadialPlan
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.protocol import message


class Records(NamedTuple):
    """Records r (n, P), places that the site has (P,) 0/1, group of each record (n,)."""

    r: Array
    own: Array
    group: Array


@message
class Groups:
    """Codes by group: numbers (K,), means (K, d), covariances (K, d, d); 0 of an untold group."""

    rows: Array
    means: Array
    covariances: Array


def columns_of(x: Array, least: int) -> Array:
    """Return which columns a site has (p,): those with `least` known values."""
    return (~np.isnan(x)).sum(axis=0) >= max(least, 1)


def records_of(data: Any, plan: RadialPlan, unit: float, least: int) -> Records:
    """Return the records of a table."""
    x = np.asarray(data.x, float)
    own = columns_of(x, least)
    known = np.where(own & ~np.isnan(x), x, 0.0)
    if plan.classes:
        group = np.asarray(data.y, np.int64)
        y = (group[:, None] == np.arange(1, plan.classes)).astype(float)
    else:
        group = np.asarray(data.event, np.int64)
        time = np.maximum(np.asarray(data.time, float) / unit, SHORTEST)
        y = np.column_stack([group, np.log(time)]).astype(float)
    places = np.concatenate([own, np.ones(plan.outcomes)]).astype(float)
    return Records(np.column_stack([known, y]), places, group)


#: Least time, as a part of the unit.
SHORTEST = 1e-6


def groups_of(z: Array, group: Array, count: int, least: int) -> Groups:
    """Return what is told of codes z (n, d) of `count` groups (n,)."""
    d = z.shape[1]
    rows, means, covariances = np.zeros(count), np.zeros((count, d)), np.zeros((count, d, d))
    for k in range(count):
        of = z[group == k]
        if len(of) < max(least, 2):
            continue
        rows[k], means[k] = len(of), of.mean(axis=0)
        found = np.cov(of.T, ddof=1).reshape(d, d)
        covariances[k] = found if len(of) > d else np.diag(np.diag(found))
    return Groups(rows, means, covariances)


def drawn(
    groups: Groups, n: int, rng: np.random.Generator, binary: Sequence[Sequence[float]] = ()
) -> Array:
    """Return n codes (n, d) of a mixture of the groups, each by its number of rows.

    Parameters
    ----------
    binary : places with two values, and these: (place, low, high). A normal draw is high above the
        quantile that keeps the group's mean.
    """
    share = groups.rows / groups.rows.sum()
    which = rng.choice(len(share), size=n, p=share)
    z = rng.standard_normal((n, groups.means.shape[1]))
    for k in np.unique(which):
        values, vectors = np.linalg.eigh(groups.covariances[k])
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        here, mean = which == k, groups.means[k]
        z[here] = mean + z[here] @ root.T
        for place, low, high in binary:
            j = int(place)
            share = np.clip((mean[j] - low) / (high - low), 0.0, 1.0)
            limit = mean[j] + _sd(root[j]) * ndtri(1.0 - share)
            z[here, j] = np.where(z[here, j] > limit, high, low)
    return z


def _sd(root: Array) -> float:
    """Return a place's standard deviation, not 0."""
    return max(float(np.sqrt(root @ root)), 1e-9)


def stacked(parts: list[Groups]) -> Groups:
    """Return several sites' groups as one mixture."""
    return Groups(
        *(np.concatenate([getattr(g, f) for g in parts]) for f in Groups.__dataclass_fields__)
    )


def rounded(r: Array, plan: RadialPlan, rng: np.random.Generator) -> Array:
    """Return decoded records (n, P) whose binary places have one of their two values.

    1 with the probability that is decoded, cut to [0, 1]. Levels likewise.
    """
    made = r.copy()
    for kind, at, shift, scale, *_ in plan.all_heads():
        if kind == "bernoulli":
            p = np.clip(shift + scale * r[:, at[0]], 0.0, 1.0)
            made[:, at[0]] = ((rng.random(len(r)) < p) - shift) / scale
        elif kind in ("categorical", "ordinal"):
            p = np.maximum(r[:, at], 0.0)
            p = p / np.maximum(p.sum(axis=1, keepdims=True), 1.0)
            below = np.cumsum(p, axis=1)
            u = rng.random((len(r), 1))
            made[:, at] = (u < below) & (u >= below - p)
    return made


def table_of(r: Array, plan: RadialPlan, unit: float) -> LabelledTable | SurvivalTable:
    """Return the table of x and outcome of rounded records."""
    x, y = r[:, : plan.inputs], r[:, plan.inputs :]
    if plan.classes:
        return LabelledTable(x, y @ np.arange(1.0, plan.classes))
    return SurvivalTable(x, unit * np.exp(np.clip(y[:, 1], -13.0, 13.0)), y[:, 0] > 0.5)
