"""A site's records, groups of its codes, and codes drawn from them.

A record is a row of x, 0 where missing or of a column that the site lacks, and the outcome: a
class as K − 1 indicators of the classes after the first, or the event (0 or 1) and ln(time/unit).

The codes of a group of records, those of one class or of events or censored times, are described
by the number, mean and covariance S of up to M parts (`parts_of`). With m = `min_cell`:

    groups    of fewer than m records nothing is told
    parts     k-means, each place in units of its spread; as many parts, up to M, as have m and
              d + 1 records or more each. A record is in one part: a weight between 0 and 1 could
              make a sum that of one record
    plane     of n codes of d places, n ≤ d, only the variances are told: their covariance would
              have them in a known plane
    two       of a place with two values, such as a shared flag, the records of a part with the
              higher are rounded to a multiple of m, by records drawn once: mean times number would
              count them
    lone      where one code makes up most of a part's spread in a place, by the limit of
              `privacy.disclosure.records`, it counts as the mean of the others there
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from fedcohort.algorithms.radialgan.messages import Groups
from fedcohort.algorithms.radialgan.settings import RadialPlan
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.numerics.centroids import kmeans, nearest
from fedcohort.privacy.disclosure.records import lone


class Records(NamedTuple):
    """Records r (n, P), places that the site has (P,) 0/1, group of each record (n,)."""

    r: Array
    own: Array
    group: Array


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
        time = np.maximum(np.asarray(data.time, float), SHORTEST)
        y = np.column_stack([group, np.log(time) - np.log(unit)]).astype(float)
    places = np.concatenate([own, np.ones(plan.outcomes)]).astype(float)
    return Records(np.column_stack([known, y]), places, group)


#: Least time, in the table's own unit: one in the study's unit would tell, as that changes, which
#: times are below it.
SHORTEST = 1e-6


def groups_of(
    z: Array, group: Array, count: int, least: int, *, components: int = 1, seed: int = 0
) -> Groups:
    """Return what is told of codes z (n, d) of `count` groups (n,).

    Parameters
    ----------
    components : M. seed : of parts and rounded counts, so that each call tells the same.
    """
    d, m = z.shape[1], max(least, 2)
    rows = np.zeros(count * components)
    means, covariances = np.zeros((len(rows), d)), np.zeros((len(rows), d, d))
    for k in range(count):
        of = z[group == k]
        if len(of) < m:
            continue
        part = parts_of(of, components, max(m, d + 1), seed)
        for c in range(int(part.max()) + 1):
            at = k * components + c
            told = veiled(of[part == c], least, np.random.default_rng((seed, at, TAG)))
            rows[at], means[at] = len(told), told.mean(axis=0)
            found = np.cov(told.T, ddof=1).reshape(d, d)
            covariances[at] = found if len(told) > d else np.diag(np.diag(found))
    return Groups(rows, means, covariances)


#: Marks the draws of rounded counts.
TAG = 0x72616469


def parts_of(z: Array, most: int, least: int, seed: int) -> Array:
    """Return the part (n,) of each code: as many, up to `most`, as have `least` codes each."""
    spread = z.std(axis=0)
    scaled = z / np.where(spread > 0, spread, 1.0)
    for k in range(min(most, len(z) // least), 1, -1):
        if len(np.unique(scaled, axis=0)) < k:
            continue
        centroids, _ = kmeans(scaled, k, starts=4, seed=seed)
        part = nearest(scaled, centroids)
        if np.bincount(part, minlength=k).min() >= least:
            return part
    return np.zeros(len(z), np.int64)


def veiled(z: Array, least: int, rng: np.random.Generator) -> Array:
    """Return codes z (n, d) of one part by the rules `two` and `lone` of the header."""
    if least < 2:
        return z
    out = z.copy()
    for j in range(z.shape[1]):
        values = np.unique(z[:, j])
        if len(values) == 2:
            high = z[:, j] == values[1]
            n, now = len(z), int(high.sum())
            wanted = round(now / least) * least
            wanted = n if wanted > n - least else wanted
            among = np.flatnonzero(high if wanted < now else ~high)
            out[rng.choice(among, abs(wanted - now), replace=False), j] = values[int(wanted > now)]
            continue
        d = out[:, j] - out[:, j].mean()
        if lone((d**2).sum(), (d**4).sum()):
            far = int(np.abs(d).argmax())
            out[far, j] = np.delete(out[:, j], far).mean()
    return out


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
