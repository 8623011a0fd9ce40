"""How far virtual rows are from real ones: marginals, associations, nearest records.

A table is `Columns`: numbers, NaN if missing, and codes of levels, −1 if missing. With F the
distribution function of a column over real (r) and virtual (v) rows, where a missing value is
below all others, and p_l the share of level l, a missing one included,

    marginal error     sup_t |F_r(t) − F_v(t)|,   ½ Σ_l |p_l,r − p_l,v|                      (1)

which is Kolmogorov and Smirnov's distance, and the total variation distance. It is 0 for equal
marginals and at most 1. A yes/no column is a number; if no value is missing, both are equal. With r
the correlation of two features, of numbers by their ranks (Spearman) and of levels, except the
first, by 0 and 1, among the rows that know both,

    association error  mean over pairs of two columns' features of |r_r − r_v|               (2)

Two rows have the distance

    d² = Σ_numbers ((x − y)/s)² + #levels that differ                                        (3)

with s the standard deviation of the real numbers; a missing number is at the mean, and one more
unlike level. The nearest-record attack guesses that a row was trained on if a virtual row is near:
its score is −d to the nearest virtual row (Chen et al., "GAN-Leaks", CCS 2020). The calibrated
attack divides by the distance to the nearest row of a reference that the model has not seen, so
that an unusual row has no low score by itself: score log(d_reference/d_virtual).

Runs on rows of one place; nothing is revealed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array, ratio

#: Features with associations: at most so many, those that vary most.
FEATURES = 80
#: Rows of one block of distances.
BLOCK = 1024
#: Distances are at least this, so that logarithms are finite.
TINY = 1e-12


class Columns(NamedTuple):
    """A table.

    Attributes
    ----------
    numbers : (n, a), NaN if missing.
    codes : (n, b), −1 if missing; of so many `levels` by column (b,).
    """

    numbers: Array
    codes: Array
    levels: tuple[int, ...]


def marginal_errors(real: Columns, virtual: Columns, weights: Array) -> Array:
    """Return eq. (1) of each column, numbers first: (B, a + b).

    Parameters
    ----------
    weights : (B, n) of the real rows.
    """
    found = [
        _distance(r, v, weights) for r, v in zip(real.numbers.T, virtual.numbers.T, strict=True)
    ]
    total = np.maximum(weights.sum(axis=1), 1e-300)
    for r, v, k in zip(real.codes.T, virtual.codes.T, real.levels, strict=True):
        shares = np.stack([weights @ (r == code) for code in range(-1, k)], axis=1) / total[:, None]
        other = np.bincount(v.astype(int) + 1, minlength=k + 1)[: k + 1] / max(len(v), 1)
        found.append(np.abs(shares - other).sum(axis=1) / 2)
    return np.stack(found, axis=1) if found else np.zeros((len(weights), 0))


def _distance(real: Array, virtual: Array, weights: Array) -> Array:
    """Return Kolmogorov's distance of two columns (B,); a missing value is the lowest."""
    real, virtual = (np.where(np.isnan(x), -np.inf, x) for x in (real, virtual))
    at, place = np.unique(np.concatenate([real, virtual]), return_inverse=True)
    own = np.zeros((len(weights), len(at)))
    order = np.argsort(place[: len(real)], kind="stable")
    sorted_place = place[: len(real)][order]
    starts = np.flatnonzero(np.diff(sorted_place, prepend=-1))
    if len(starts):
        own[:, sorted_place[starts]] = np.add.reduceat(weights[:, order], starts, axis=1)
    other = np.bincount(place[len(real) :], minlength=len(at)) / max(len(virtual), 1)
    total = np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    return np.abs(np.cumsum(own / total - other, axis=1)).max(axis=1)


def features(table: Columns) -> tuple[Array, Array]:
    """Return ranks of numbers and 0/1 of levels (n, p), NaN if missing, and each one's column."""
    from scipy.stats import rankdata  # slow to load

    parts: list[Array] = []
    of: list[int] = []
    for j, x in enumerate(table.numbers.T):
        known = ~np.isnan(x)
        ranks = np.full(len(x), np.nan)
        ranks[known] = rankdata(x[known]) / max(int(known.sum()), 1)
        parts.append(ranks)
        of.append(j)
    a = table.numbers.shape[1]
    for j, (codes, k) in enumerate(zip(table.codes.T, table.levels, strict=True)):
        for level in range(1, k):
            parts.append(np.where(codes < 0, np.nan, (codes == level).astype(float)))
            of.append(a + j)
    x = np.stack(parts, axis=1) if parts else np.zeros((len(table.codes), 0))
    return x, np.array(of, int)


def correlations(x: Array, weights: Array | None = None) -> Array:
    """Return the correlation of features (n, p) among the rows that know both: (p, p), NaN if none.

    Parameters
    ----------
    weights : (n,) of the rows; None: all 1.
    """
    w = np.ones(len(x)) if weights is None else weights
    known = ~np.isnan(x)
    z = np.where(known, x - 0.5, 0.0)
    k = known.astype(float)
    weighted, weighted_k = z * w[:, None], k * w[:, None]
    n, sums = k.T @ weighted_k, z.T @ weighted_k
    products, squares = z.T @ weighted, (z * z).T @ weighted_k
    mean = ratio(sums, n)
    cov = ratio(products, n) - mean * mean.T
    var = ratio(squares, n) - mean**2
    scale = np.sqrt(np.maximum(var, 0.0) * np.maximum(var.T, 0.0))
    return np.where(
        scale > 1e-9, np.clip(ratio(cov, np.where(scale > 0, scale, 1.0)), -1, 1), np.nan
    )


class Associations(NamedTuple):
    """Correlations of the real and the virtual rows (p, p), and the pairs of two columns (p, p)."""

    real: Array
    virtual: Array
    pairs: Array
    kept: Array


def associations(real: Columns, virtual: Columns) -> Associations:
    """Return the correlations of eq. (2), of at most `FEATURES` features."""
    x, of = features(real)
    y, _ = features(virtual)
    kept = _kept(x)
    apart = of[kept][:, None] < of[kept][None, :]
    return Associations(correlations(x[:, kept]), correlations(y[:, kept]), apart, kept)


def _kept(x: Array) -> Array:
    """Return the positions of the features that vary most, in order."""
    if x.shape[1] <= FEATURES:
        return np.arange(x.shape[1])
    spread = np.array([c[~np.isnan(c)].var() if (~np.isnan(c)).any() else 0.0 for c in x.T])
    return np.sort(np.argsort(-spread, kind="stable")[:FEATURES])


def association_error(found: Associations, real: Array | None = None) -> float:
    """Return eq. (2); `real` replaces the correlations of the real rows. NaN without a pair.

    A correlation that only the virtual rows lack, as those of a constant column, counts as 0.
    """
    r = found.real if real is None else real
    asked = found.pairs & np.isfinite(r)
    if not asked.any():
        return float("nan")
    return float(np.abs(r - np.where(np.isfinite(found.virtual), found.virtual, 0.0))[asked].mean())


def points(table: Columns, scale: Columns) -> Array:
    """Return rows as points whose Euclidean distance is eq. (3): (n, d).

    Parameters
    ----------
    scale : real rows, whose means and standard deviations are used.
    """
    parts: list[Array] = []
    for x, like in zip(table.numbers.T, scale.numbers.T, strict=True):
        known = like[~np.isnan(like)]
        mean, sd = (known.mean(), known.std()) if len(known) else (0.0, 1.0)
        parts.append(np.where(np.isnan(x), 0.0, (x - mean) / (sd if sd > 0 else 1.0)))
        parts.append(np.isnan(x).astype(float))
    for codes, k in zip(table.codes.T, table.levels, strict=True):
        parts += [(codes == level) / np.sqrt(2.0) for level in range(-1, k)]
    return np.stack(parts, axis=1) if parts else np.zeros((len(table.codes), 0))


def nearest(rows: Array, among: Array) -> Array:
    """Return each row's distance (n,) to the nearest of others (m, d); rows (n, d)."""
    from scipy.spatial.distance import cdist  # slow to load

    found = [
        cdist(rows[start : start + BLOCK], among).min(axis=1)
        for start in range(0, len(rows), BLOCK)
    ]
    return np.concatenate(found) if found else np.zeros(0)


def copies(rows: Array, among: Array) -> Array:
    """Return which of rows (n, d) equal one of others (m, d) in every place."""
    known = {row.tobytes() for row in np.ascontiguousarray(among + 0.0)}
    return np.array([row.tobytes() in known for row in np.ascontiguousarray(rows + 0.0)], bool)


class Attack(NamedTuple):
    """Scores of training rows (m,) and of rows that the model has not seen (n,)."""

    members: Array
    others: Array


def nearest_record(train: Array, blind: Array, virtual: Array) -> Attack:
    """Return the scores of the nearest-record attack."""
    return Attack(-nearest(train, virtual), -nearest(blind, virtual))


def calibrated(train: Array, blind: Array, virtual: Array, rng: np.random.Generator) -> Attack:
    """Return the scores of the calibrated attack; a random half of the blind rows is the reference.

    The others of the blind rows are the rows that the model has not seen.
    """
    order = rng.permutation(len(blind))
    reference, rest = blind[order[: len(blind) // 2]], blind[order[len(blind) // 2 :]]

    def score(rows: Array) -> Array:
        near, far = nearest(rows, virtual), nearest(rows, reference)
        return np.log(np.maximum(far, TINY)) - np.log(np.maximum(near, TINY))

    return Attack(score(train), score(rest))


def smote(
    table: Array, n: int, rng: np.random.Generator, neighbours: int = 5
) -> tuple[Array, Array, Array]:
    """Return n interpolations: the two rows' numbers, and the share of the second, (n,) each.

    Chawla et al., "SMOTE", JAIR 16, 2002: a row, one of its `neighbours` nearest rows among the
    points (m, d) of eq. (3), and a uniform share between them.
    """
    from scipy.spatial.distance import cdist  # slow to load

    one = rng.integers(len(table), size=n)
    k = min(neighbours, len(table) - 1)
    other = one.copy()
    if k > 0:
        pick = rng.integers(k, size=n)
        chosen, back = np.unique(one, return_inverse=True)
        for start in range(0, len(chosen), BLOCK):
            at = chosen[start : start + BLOCK]
            d = cdist(table[at], table)
            d[np.arange(len(at)), at] = np.inf
            near = np.argpartition(d, k - 1, axis=1)[:, :k]
            some = (back >= start) & (back < start + len(at))
            other[some] = near[back[some] - start, pick[some]]
    return one, other, rng.random(n)
