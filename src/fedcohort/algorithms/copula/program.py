"""Gaussian copula of mixed columns over sites: a model of virtual patients from one sum.

Nelsen, "An Introduction to Copulas", 2006; for tables Patki, Wedge, Veeramachaneni, "The Synthetic
Data Vault", DSAA 2016; thresholds of binary values and levels as in Muthén, Psychometrika 49, 1984.
A row has latent normals (`layout`) with correlation R: a number is its quantile at Φ(z_j), a binary
value or a level is 1 where z_j > Φ⁻¹(1 − p_j). Numbers' quantiles and kept levels are those of the
preprocessing. With K 1 where a normal is seen, and s its score (0 or 1 for a binary value), sites
sum

    n = KᵀK,   s = (sK)ᵀK,   q = (s²K)ᵀK,   p = (sK)ᵀ(sK)                                    (1)

R follows pair by pair: Pearson's r of two scores, the biserial and the tetrachoric correlation
(`numerics.binormal`) with binary values, rounded to a quarter of 1/√n or more; then the nearest
correlation matrix. Missing entries are drawn by column, apart from all others.

A site adds nothing to a pair of which fewer than m of its rows (`min_cell`) have both, nor to a
number and a binary value that 1 … m − 1 of these rows have, or have not: p would sum their scores.
Of a pair of two binary values, and of one, the sums are counts, and determine their table: a site
rounds each to a multiple of m, so that no cell of the table has 1 … m − 1 rows. The sum of such
counts is off by about m √(sites/12); a site with few rows of a value rounds most of its tables to
none. So correlations of two binary values are multiplied by the share of their variance that is not
rounding (`_joint`).

Revealed: `Scores` once, as a sum over the sites; and what the preprocessing reveals. A private fit:
see `private`.
"""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.copula import private
from fedcohort.algorithms.copula.layout import Layout
from fedcohort.algorithms.copula.model import CopulaModel
from fedcohort.algorithms.copula.settings import CopulaSettings
from fedcohort.arrays import Array, ratio
from fedcohort.data.tables import FeatureTable
from fedcohort.numerics.binormal import biserial, nearest_correlation, shrunk, tetrachoric
from fedcohort.privacy.disclosure.rounding import rounded, step
from fedcohort.protocol import DataError, Federation, NothingToLearn, Site, Task, message, summed

#: Fewest rows, in `min_cell`.
ROWS = 4
#: Distance of a joint share from its bounds.
TINY = 1e-9


@message
class Scores:
    """Sums of eq. (1), each (d, d), over sites with enough rows of a pair.

    ``rows`` () : number of rows.
    """

    rows: Array
    n: Array
    s: Array
    q: Array
    p: Array


@summed
def sum_scores(site: Site[FeatureTable, None], *, layout: str, min_cell: int) -> Scores:
    """Sum scores of columns, and their products, over the rows with both values.

    layout : text of `Layout`.
    """
    places = Layout.read(layout)
    scores, m = places.scores(site.data.x), max(min_cell, 1)
    known = ~np.isnan(scores)
    z, k = np.where(known, scores, 0.0), known.astype(float)
    n = k.T @ k
    shown = n >= m
    if m > 1:
        ones = np.where(places.binary[:, None], z.T @ k, m)
        few = places.binary[:, None] & (_some(ones, m) | _some(n - ones, m))
        shown &= ~((few | few.T) & (places.number[:, None] | places.number[None, :]))
    sums = [np.where(shown, one, 0.0) for one in (n, z.T @ k, (z * z).T @ k, z.T @ z)]
    lacking = len(z) - n
    few = (lacking > 0) & (lacking < m)
    sums[0] = np.where(few & (sums[0] > 0), len(z) - m // 2, sums[0])
    if m > 1:
        counts = np.outer(places.binary, places.binary)
        own = counts & np.eye(len(n), dtype=bool)
        sums = [np.where(counts & ~own, np.rint(one / m) * m, one) for one in sums]
        ones = np.rint(np.diag(sums[1]) / m) * m
        ones = np.where(ones > np.diag(n) - m, np.diag(sums[0]), ones)
        sums[1:] = [np.where(own, ones, one) for one in sums[1:]]
    return Scores(np.array(len(z)), *sums)


def _some(counts: Array, m: int) -> Array:
    """Return where counts are from 1 to m − 1."""
    return (counts > 0.5) & (counts < m - 0.5)


def fit(fed: Federation, config: CopulaSettings, task: Task) -> CopulaModel:
    """Fit the copula on all sites that answer.

    Raises
    ------
    DataError : there are no columns.
    SettingError : a scale other than "quantile".
    NothingToLearn : fewer rows than 4 `min_cell`, or than `min_cell` with a value of a column.
    SiteUnavailable : fewer sites answered than the quorum.
    """
    if not task.features:
        raise DataError("there are no columns to learn from; name at least one.")
    next(fed.rounds(1))
    if task.dp is not None:
        return private.fit(fed, config, task)
    layout = Layout.of(task.heads, ranks=True)
    found = fed.sum(sum_scores, layout=layout.text, min_cell=task.min_cell)
    rows = int(found.rows)
    if rows < (needed := ROWS * max(task.min_cell, 1)):
        raise NothingToLearn(f"the sites have {rows} rows; a copula needs {needed}.")
    known = np.diag(found.n)[_first_of(layout)]
    if (few := known < max(task.min_cell, 1)).any():
        name = task.features[int(layout.place[few][0])]
        raise NothingToLearn(
            f"fewer than {max(task.min_cell, 1)} rows have a value of {name!r}. Leave it out."
        )
    r, unknown = correlations(found, layout, task.min_cell, len(fed.sites))
    fed.record(
        unknown_pairs=float(unknown), largest=float(np.abs(r - np.eye(len(r))).max(initial=0))
    )
    n = np.maximum(np.diag(found.n), 1.0)
    ones = np.diag(found.s) / n
    a = int(layout.number.sum())
    return CopulaModel(
        features=task.features,
        place=layout.place,
        first=layout.first,
        number=layout.number.astype(np.int64),
        correlation=r,
        share=np.where(layout.number, 0.5, ones),
        missing=np.clip(1.0 - known / rows, 0.0, 1.0),
        edges=np.tile([0.0, 1.0], (a, 1)),
        below=np.tile([0.0, 1.0], (a, 1)),
        unknown=unknown,
    )


def _first_of(layout: Layout) -> Array:
    """Return the position of the first normal of each normal's column (d,)."""
    where = {int(p): j for j, p in enumerate(layout.place.tolist())}
    return np.array([where[int(f)] for f in layout.first.tolist()], np.int64)


def correlations(found: Scores, layout: Layout, min_cell: int, sites: int) -> tuple[Array, int]:
    """Return R (d, d), and the number of pairs without a correlation.

    A pair of two binary values needs `min_cell` rows of either value. Its covariance is shrunk by
    the error of counts that `sites` sites rounded.
    """
    n = np.maximum(found.n, 1.0)
    mean, other = found.s / n, found.s.T / n
    spread, others = found.q / n - mean**2, found.q.T / n - other**2
    covariance = found.p / n - mean * other
    binary = layout.binary
    both, one = binary[:, None] & binary[None, :], binary[:, None] ^ binary[None, :]
    least = max(min_cell, 1)
    rare = (binary[:, None] & (np.minimum(found.s, found.n - found.s) < least)) | (
        binary[None, :] & (np.minimum(found.s.T, found.n - found.s.T) < least)
    )
    flat = (spread < 1e-9) | (others < 1e-9)
    apart = ~layout.same()
    shown = apart & ~rare & ~flat & (found.n >= max(min_cell, 2))
    r = np.clip(ratio(covariance, np.sqrt(np.maximum(spread * others, 1e-18))), -0.999, 0.999)
    share = np.where(binary[:, None], mean, other)
    sd = np.sqrt(np.maximum(np.where(binary[:, None], others, spread), 1e-18))
    at = one & shown
    r[at] = biserial(share[at], covariance[at] / sd[at])
    at = both & shown
    p, q = mean[at], other[at]
    joint = _joint(found.p / n, mean, other, at, (least > 1) * least * np.sqrt(sites / 12) / n)[at]
    joint = np.clip(joint, np.maximum(p + q - 1, 0) + TINY, np.minimum(p, q) - TINY)
    r[at] = tetrachoric(p, q, joint)
    published = [
        rounded(v, step(1.0, int(m), 0.0)) if fine else 0.0
        for v, m, fine in zip(r.ravel().tolist(), n.ravel().tolist(), shown.ravel(), strict=True)
    ]
    full = np.array(published).reshape(r.shape)
    full = np.clip((full + full.T) / 2, -0.999, 0.999)
    np.fill_diagonal(full, 1.0)
    return nearest_correlation(full), int((np.triu(apart & ~shown, 1)).sum())


def _joint(p: Array, mean: Array, other: Array, pairs: Array, error: Array) -> Array:
    """Return the shares of rows with both values (d, d), as far as rounding leaves them known.

    error : standard deviation of the share of a rounded count. The phi coefficient of a pair has
        that of its four counts, and is shrunk (`numerics.binormal.shrunk`).
    """
    sd = np.sqrt(np.maximum(mean * (1 - mean) * other * (1 - other), TINY))
    noise = error * np.sqrt((1 + mean**2) * (1 + other**2)) / sd
    return mean * other + sd * shrunk((p - mean * other) / sd, noise, pairs)
