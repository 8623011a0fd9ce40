"""One column given all others: sums of a regression, its posterior, and draws of the column.

Van Buuren, "Flexible Imputation of Missing Data", 2nd ed. 2018, sections 3.2, 3.6 and 3.7. Of a
row, u is its scaled features (`scaled`), and z = (1, u_use) with the features that its regression
uses, none of the column's own. By kind of the column
(`data.prepare.Head`), with n rows that have it, S = Σ z zᵀ and a ridge P,

    number   y = u;  θ̂ = (S + P)⁻¹ Σ z y,  r = Σ (y − zᵀθ̂)²,  ν = n − tr S (S + P)⁻¹
             σ² ~ r/χ²_ν,  θ ~ N(θ̂, σ² (S + P)⁻¹),  a new y ~ N(zᵀθ, σ²)                   (1)
             P = (λ/α) I, the intercept's place 0:  γ = Σ α s_j/(λ + α s_j) with the eigenvalues
             s of S about the means;  λ ← γ/‖θ̂‖²,  α ← (n − 1 − γ)/r                        (2)
    levels   baseline-category logits (`numerics.classes`);  θ ~ N(θ̂, (I + P)⁻¹)           (3)
    count    log-linear, variance φ μ, φ = max(1, Pearson's χ²/(n − q));
             θ ~ N(θ̂, φ (I + P)⁻¹), a new count from the negative binomial of that variance  (4)

with Newton's steps for (3) and (4). Eq. (2) is MacKay's, Neural Computation 4(3), 1992; without a
ridge the chains leave the range of the data where few records have two columns. P is small in (4).
In (3) it is a normal prior with variance 1/`PRIOR`, because levels may be separated. The logarithm
of a lognormal column stands for it. Drawn values are cut to the dictionary's range, and whole where
the column is.

Nothing is revealed here: the caller decides what leaves a site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.prepare import Head
from fedcohort.numerics.classes import multinomial_terms, probabilities

#: Precision of the normal prior of log odds, per scaled unit of a predictor.
PRIOR = 0.1
#: Ridge of counts, as a share of the rows.
RIDGE = 1e-5
#: Largest number of updates of (2), and a number that stands for 0.
EVIDENCE, SMALL = 30, 1e-10
#: A Newton step changes no coefficient by more than this.
LONGEST = 3.0
#: Draws, and means, of a lognormal column or a count are at most so many standard deviations above
#: its mean: with few rows, an exponential of coefficients that are hardly known has no end.
FARTHEST, FARTHEST_MEAN = 8.0, 4.0
#: Largest linear predictor of a count.
STEEPEST = 40.0
_LEVELS, _COUNTS = ("bernoulli", "categorical", "ordinal"), ("poisson", "negbinomial")


class Terms(NamedTuple):
    """Sums over rows that have a column, at θ: ``rows`` (), score (k,), information (k, k), and
    ``extra`` (): Σ y² of a number at θ = 0, Pearson's χ² of a count, 0 of levels.
    """

    rows: float
    score: Array
    information: Array
    extra: float


def family(head: Head) -> str:
    """Return the regression of a column: number, levels or count."""
    return "levels" if head.kind in _LEVELS else "count" if head.kind in _COUNTS else "number"


def width(head: Head, use: Array) -> int:
    """Return the number k of coefficients of a column, by the features that it uses."""
    q = 1 + len(use)
    return q * len(head.at) if family(head) == "levels" else q


def _log_scale(head: Head) -> tuple[float, float]:
    """Return centre and scale of a lognormal column's logarithm, by its mean and sd."""
    if head.shift <= 0:
        return 0.0, 1.0
    spread = math.sqrt(math.log1p((head.scale / head.shift) ** 2))
    return math.log(head.shift) - spread**2 / 2, spread


def scaled(x: Array, heads: Sequence[Head]) -> Array:
    """Return u (n, p) of features x (n, p); NaN stays."""
    u = np.array(x, float)
    for head in heads:
        if head.kind == "lognormal":
            centre, spread = _log_scale(head)
            value = np.maximum(head.shift + head.scale * u[:, head.at[0]], head.low)
            u[:, head.at[0]] = (np.log(value) - centre) / spread
    return u


def unscaled(u: Array, heads: Sequence[Head]) -> Array:
    """Return the features x (n, p) of u (n, p)."""
    x = np.array(u, float)
    for head in heads:
        if head.kind == "lognormal":
            centre, spread = _log_scale(head)
            x[:, head.at[0]] = (
                np.exp(centre + spread * u[:, head.at[0]]) - head.shift
            ) / head.scale
    return x


def predictors(u: Array, use: Array) -> Array:
    """Return z (n, q): ones, and the features of u (n, p) that are used."""
    return np.column_stack([np.ones(len(u)), u[:, use]])


def classes(u: Array, head: Head) -> Array:
    """Return the number of each row's level (n,), from 0."""
    own = u[:, head.at]
    if head.kind == "bernoulli":
        own = head.shift + head.scale * own
    return np.rint(own).astype(np.int64) @ np.arange(1, len(head.at) + 1)


def terms(u: Array, head: Head, use: Array, theta: Array) -> Terms:
    """Return the sums of rows u (n, p), all of which have the column, at θ (k,)."""
    z = predictors(u, use)
    kind = family(head)
    if kind == "levels":
        found = multinomial_terms(
            z, classes(u, head), np.ones(len(z)), theta.reshape(len(head.at), -1)
        )
        return Terms(len(z), found.score, found.information, 0.0)
    y = u[:, head.at[0]]
    if kind == "number":
        return Terms(len(z), z.T @ y, z.T @ z, float(y @ y))
    y = head.shift + head.scale * y
    mu = np.exp(np.minimum(z @ theta, STEEPEST))
    return Terms(
        len(z),
        z.T @ (y - mu),
        (z.T * mu) @ z,
        float(np.square(y - mu) @ (1 / np.maximum(mu, 1e-8))),
    )


def start(head: Head, use: Array) -> Array:
    """Return θ (k,) before the first step: of a count, its mean alone."""
    theta = np.zeros(width(head, use))
    if family(head) == "count":
        theta[0] = math.log(max(head.shift, 0.1))
    return theta


def _penalty(head: Head, rows: float, k: int) -> Array:
    """Return the diagonal of P (k,); intercepts are free."""
    levels = family(head) == "levels"
    diagonal = np.full(k, PRIOR if levels else max(PRIOR, RIDGE * rows))
    diagonal[:: k // len(head.at) if levels else k] = 1e-8
    return diagonal


class Ridge(NamedTuple):
    """Posterior of a number's coefficients, (1) and (2).

    Attributes
    ----------
    mean : θ̂ (q,).
    root : (q, q), with root rootᵀ the inverse of S + P.
    rest : r, squared residuals at θ̂.
    freedom : ν.
    """

    mean: Array
    root: Array
    rest: float
    freedom: float


def ridge(found: Terms) -> Ridge:
    """Return the posterior of a number, with the ridge λ/α of eq. (2) found from the sums."""
    n = max(found.rows, 1.0)
    middle, y_middle = found.information[0, 1:] / n, float(found.score[0]) / n
    s = found.information[1:, 1:] - n * np.outer(middle, middle)
    c = found.score[1:] - n * middle * y_middle
    total = max(found.extra - n * y_middle**2, SMALL * n)
    values, vectors = np.linalg.eigh(s)
    values = np.maximum(values, 0.0)
    c = vectors.T @ c
    alpha, prior = n / total, 1.0
    own, used, rest = np.zeros(len(c)), 0.0, total
    for _ in range(EVIDENCE):
        own = alpha * c / (prior + alpha * values)
        used = float((alpha * values / (prior + alpha * values)).sum())
        rest = max(float(total - own @ (2 * c - values * own)), SMALL * n)
        before = prior / alpha
        prior = max(used, SMALL) / max(float(own @ own), SMALL)
        alpha = max(n - 1 - used, 1.0) / rest
        if abs(prior / alpha - before) <= 0.01 * before:
            break
    slopes = vectors @ own
    root = np.zeros((len(c) + 1, len(c) + 1))
    root[1:, 1:] = vectors / np.sqrt(values + max(prior / alpha, SMALL))
    root[0, 0] = 1 / math.sqrt(n)
    root[0, 1:] = -middle @ root[1:, 1:]
    return Ridge(np.r_[y_middle - middle @ slopes, slopes], root, rest, max(n - 1 - used, 1.0))


def newton(head: Head, found: Terms, theta: Array) -> Array:
    """Return the step (k,) from θ of levels or counts."""
    penalty = _penalty(head, found.rows, len(theta))
    slope = found.score - penalty * theta
    step = np.linalg.solve(found.information + np.diag(penalty), slope)
    return step / max(1.0, float(np.abs(step).max()) / LONGEST)


def posterior(
    head: Head, found: Terms, theta: Array, rng: np.random.Generator
) -> tuple[Array, float]:
    """Return a draw of θ (k,) and of its spread: σ of a number, φ of a count, else 1.

    Parameters
    ----------
    found : sums at θ̂; of a number at any θ.
    theta : θ̂ (k,), not used for a number.
    """
    normal = rng.standard_normal(len(theta))
    if family(head) == "number":
        own = ridge(found)
        sigma = math.sqrt(own.rest / rng.chisquare(own.freedom))
        return own.mean + sigma * own.root @ normal, sigma
    spread = 1.0
    if family(head) == "count":
        spread = max(1.0, found.extra / max(found.rows - len(theta), 1.0))
    precision = found.information + np.diag(_penalty(head, found.rows, len(theta)))
    lower = np.linalg.cholesky(precision)
    return theta + math.sqrt(spread) * np.linalg.solve(lower.T, normal), spread


def into_range(head: Head, value: Array) -> Array:
    """Return values cut to the dictionary's range and `_most`, and whole where the column is."""
    value = np.clip(value, head.low, _most(head, FARTHEST))
    return np.clip(np.rint(value), head.low, head.high) if head.whole else value


def _most(head: Head, deviations: float) -> float:
    """Return the largest value of a column; of a skewed one at most so many deviations up."""
    if head.kind in ("lognormal", *_COUNTS) and head.shift > 0:
        return min(head.high, head.shift + deviations * head.scale)
    return head.high


def _own(head: Head, value: Array) -> Array:
    """Return u (n, 1) of a number's values (n,) in the column's unit."""
    x = (into_range(head, value) - head.shift) / head.scale
    if head.kind != "lognormal":
        return x[:, None]
    centre, spread = _log_scale(head)
    return (np.log(head.shift + head.scale * x[:, None]) - centre) / spread


def _value(head: Head, own: Array) -> Array:
    """Return a number's values (n,) in the column's unit, of u (n,)."""
    if head.kind == "lognormal":
        centre, spread = _log_scale(head)
        return np.exp(np.minimum(centre + spread * own, STEEPEST))
    return head.shift + head.scale * own


def drawn(
    u: Array, head: Head, use: Array, theta: Array, spread: float, rng: np.random.Generator
) -> Array:
    """Return a draw of the column's u (n, len(at)) in rows u (n, p), given their other features."""
    z = predictors(u, use)
    kind = family(head)
    if kind == "levels":
        return _levels(head, probabilities(z @ theta.reshape(len(head.at), -1).T), rng)
    eta = z @ theta
    if kind == "number":
        return _own(head, _value(head, eta + spread * rng.standard_normal(len(eta))))
    mu = np.exp(np.minimum(eta, math.log(max(min(_most(head, FARTHEST), 1e9), 1e-8))))
    if spread > 1 + 1e-9:
        mu = rng.gamma(np.maximum(mu / (spread - 1), 1e-12), spread - 1)
    return _own(head, rng.poisson(np.minimum(mu, 1e15)).astype(float))


def _levels(head: Head, p: Array, rng: np.random.Generator) -> Array:
    """Return the features (n, len(at)) of levels drawn with probabilities p (n, K)."""
    level = (rng.random((len(p), 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    hot = (level[:, None] == np.arange(1, len(head.at) + 1)) * 1.0
    return (hot - head.shift) / head.scale if head.kind == "bernoulli" else hot


def levels_drawn(head: Head, mean: Array, rng: np.random.Generator) -> Array:
    """Return the features (n, len(at)) of levels drawn by their features' means (n, len(at))."""
    p = head.shift + head.scale * mean if head.kind == "bernoulli" else mean
    p = np.clip(np.column_stack([1 - p.sum(axis=1), p]), 1e-6, None)
    return _levels(head, p / p.sum(axis=1, keepdims=True), rng)


def expected(u: Array, head: Head, use: Array, theta: Array, spread: float) -> Array:
    """Return the mean of the column's features x (n, len(at)) given the others of u (n, p)."""
    z = predictors(u, use)
    kind = family(head)
    if kind == "levels":
        p = probabilities(z @ theta.reshape(len(head.at), -1).T)[:, 1:]
        return (p - head.shift) / head.scale if head.kind == "bernoulli" else p
    eta = z @ theta
    if kind == "count":
        value = np.exp(np.minimum(eta, STEEPEST))
    elif head.kind == "lognormal":
        own = _log_scale(head)[1] * spread
        value = _value(head, eta) * math.exp(min(own**2 / 2, STEEPEST))
    else:
        value = _value(head, eta)
    value = np.clip(value, head.low, _most(head, FARTHEST_MEAN))
    return ((value - head.shift) / head.scale)[:, None]


def guess(u: Array, head: Head, rng: np.random.Generator) -> Array:
    """Return a first draw of the column's u (n, len(at)), from public numbers alone."""
    n = len(u)
    if family(head) == "levels":
        levels = len(head.at) + 1
        return _levels(head, np.full((n, levels), 1.0 / levels), rng)
    return _own(head, _value(head, rng.standard_normal(n)))


def middle(head: Head) -> Array:
    """Return a public point near the middle of the column, u (len(at),)."""
    if family(head) == "levels":
        return np.full(len(head.at), (0.5 - head.shift) / head.scale if head.kind == "bernoulli"
                       else 1.0 / (len(head.at) + 1))  # fmt: skip
    if head.kind == "lognormal" and head.shift <= 0:
        return _own(head, np.array([max(head.low, 1.0)]))[0]
    return np.zeros(1)
