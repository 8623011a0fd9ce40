"""Lasso and elastic net over sites, exactly those of the pooled table, from cross-products alone.

D6.2, eq. 3.5, and Zou & Hastie, JRSS B 67(2), 2005, with the intercept unpenalised. They minimise

    (1/n) Σ (y − b₀ − xᵀβ)² + l1 ‖β‖₁ + l2/2 ‖β‖²                                          (1)

which is eq. (1) of `numerics.descent` with G = 2S/n and c = 2s/n, S and s of `moments`. Along the
path l1 = λρ and l2 = λ(1 − ρ), for λ from the smallest at which all β are 0, max|c|/ρ, in equal
steps of log λ. "auto" chooses λ by the error of held-out rows (`folds`), or by

    BIC(λ) = n log(Σ (y − ŷ)²/n) + log(n) df(λ)                                            (2)

(Zou, Hastie, Tibshirani, Ann. Stat. 35(5), 2007; df is the number of β_j ≠ 0, and less with l2),
which needs nothing more from the sites.

Revealed, only as sums over all sites: `Products` once; for held-out error, once more by fold. For
ADMM see `training.admm`, for private fits `private`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcohort.algorithms.linear import private
from fedcohort.algorithms.linear.admm import by_admm
from fedcohort.algorithms.linear.course import Course
from fedcohort.algorithms.linear.folds import Folded, fold
from fedcohort.algorithms.linear.model import LinearModel
from fedcohort.algorithms.linear.settings import PathSettings
from fedcohort.arrays import Array
from fedcohort.numerics.descent import TOL, descend
from fedcohort.protocol import Dp, Federation, NotConverged, Task
from fedcohort.training.linear.cross_products import Moments, collect

#: A mean square below this share of the outcome's is rounding error.
EXACT = 1e-10


def fit(fed: Federation, config: PathSettings, task: Task) -> LinearModel:
    """Fit a lasso or an elastic net on all sites that answer.

    Raises
    ------
    DataError : as `training.linear.cross_products.collect`, or folds would hold too few rows.
    NotConverged : coordinate descent did not end; the penalty is too small.
    """
    penalty, ratio = config.asked
    if penalty is not None and config.solver == "admm":
        return by_admm(fed, config, task, penalty * ratio, penalty * (1 - ratio))
    next(fed.rounds(1))
    if task.dp is not None:
        return _privately(fed, config, task, task.dp)
    pool = collect(fed, task)
    m = pool.moments
    grid = _grid(m, config, penalty, ratio)
    coefficients, sweeps = _path(m, grid, ratio)
    fitted = m.residual(coefficients) / m.rows
    course = Course(grid, m.intercept(coefficients), coefficients, fitted, len(grid) - 1)
    if config.holds_out:
        course = held_out(course, fold(pool, config, task), config.rule, ratio)
    elif penalty is None:
        course = by_bic(course, m, ratio)
    for row in course.rows():
        fed.record(**row)
    beta, l1, l2 = coefficients[course.chosen], course.penalty * ratio, course.penalty * (1 - ratio)
    residual = float(m.residual(beta))
    return LinearModel(
        features=task.features,
        intercept=float(m.intercept(beta)),
        coefficients=beta,
        rows=int(m.rows),
        objective=residual / m.rows + float(l1 * np.abs(beta).sum() + l2 / 2 * beta @ beta),
        iterations=int(sweeps[course.chosen]),
        total=m.yy,
        residual=residual,
        df=freedom(m, beta, l2),
        course=course,
    )


def _privately(fed: Federation, config: PathSettings, task: Task, dp: Dp) -> LinearModel:
    """Fit from noisy sums, with the penalty by eq. (2) of `private`; return coefficients alone."""
    m, dearer = private.collect(fed, config, task, dp)
    penalty, ratio = config.asked
    grid = _grid(m, config, penalty, ratio)
    coefficients, sweeps = _path(m, grid, ratio)
    fitted = m.residual(coefficients) / m.rows
    course = Course(grid, m.intercept(coefficients), coefficients, fitted, len(grid) - 1)
    if penalty is None:
        course = by_bic(course, m, ratio, 1.0 + dearer)
    for row in course.rows():
        fed.record(**row)
    beta, l1, l2 = coefficients[course.chosen], course.penalty * ratio, course.penalty * (1 - ratio)
    return LinearModel(
        features=task.features,
        intercept=float(m.intercept(beta)),
        coefficients=beta,
        rows=0,
        objective=float(fitted[course.chosen] + l1 * np.abs(beta).sum() + l2 / 2 * beta @ beta),
        iterations=int(sweeps[course.chosen]),
        course=course,
    )


def held_out(course: Course, folded: Folded, rule: str, ratio: float) -> Course:
    """Return the path with eq. (2) of `folds`, and the penalty by the rule."""
    rows = np.array([float(f.told.rows) for f in folded.folds])
    paths = [_path(f.others, course.penalties, ratio)[0] for f in folded.folds]
    squares = np.array([f.squares(b) for f, b in zip(folded.folds, paths, strict=True)])
    error = squares.sum(axis=0) / rows.sum()
    deviations = (squares / rows[:, None] - error) ** 2
    spread = np.sqrt(rows / rows.sum() @ deviations / (len(rows) - 1))
    best = int(np.argmin(error))
    if rule == "1se":
        best = int(np.argmax(error <= error[best] + spread[best]))
    return replace(
        course, error=error, spread=spread, chosen=best, rule=rule,
        folds=folded.kind, n_folds=len(rows),
    )  # fmt: skip


def by_bic(course: Course, m: Moments, ratio: float, price: float = 1.0) -> Course:
    """Return the path with the penalty by eq. (2), among those that leave a residual.

    Parameters
    ----------
    price : cost of a degree of freedom, over log(n).
    """
    df = np.array(
        [
            freedom(m, beta, penalty * (1 - ratio))
            for beta, penalty in zip(course.coefficients, course.penalties.tolist(), strict=True)
        ]
    )
    able = np.flatnonzero((df < m.rows - 1) & (course.fitted > EXACT * course.fitted[0]))
    score = m.rows * np.log(course.fitted[able]) + price * np.log(m.rows) * df[able]
    return replace(course, chosen=int(able[np.argmin(score)]), rule="bic")


def freedom(m: Moments, beta: Array, l2: float) -> float:
    """Return the degrees of freedom of β (p,): tr S_A (S_A + n l2/2 I)⁻¹, A where β_j ≠ 0."""
    held = np.flatnonzero(beta)
    if not l2:
        return float(len(held))
    values = np.maximum(np.linalg.eigvalsh(m.xx[np.ix_(held, held)]), 0.0)
    return float((values / (values + m.rows * l2 / 2)).sum())


def _grid(m: Moments, config: PathSettings, penalty: float | None, ratio: float) -> Array:
    """Return the penalties (L,) of the path, falling; a given one is the last."""
    top = float(np.abs(np.where(m.constant, 0.0, 2 * m.xy / m.rows)).max()) / (ratio or 1.0)
    if not top or not ratio:
        return np.array([penalty or 0.0])
    path = np.geomspace(top, top * config.path_ratio, config.path)
    return path if penalty is None else np.r_[path[path > penalty], penalty]


def _path(m: Moments, grid: Array, ratio: float) -> tuple[Array, Array]:
    """Return β (L, p) and sweeps (L,) at the penalties `grid` (L,).

    Raises
    ------
    NotConverged : coordinate descent did not end.
    """
    varies = ~m.constant
    gram, cross = 2 * m.xx * np.outer(varies, varies) / m.rows, 2 * m.xy * varies / m.rows
    found = descend(gram, cross, grid * ratio, grid * (1 - ratio))
    worst = int(np.argmax(found.breach))
    if found.breach[worst] > TOL:
        raise NotConverged(
            f"coordinate descent broke off at penalty {grid[worst]:.3g}, after "
            f"{found.sweeps[worst]} sweeps: covariates are (nearly) collinear, and the penalty is "
            f"too small to tell them apart. Raise it (or path_ratio), or drop covariates."
        )
    return found.coefficients, found.sweeps
