"""Ridge and ordinary least squares over sites, exactly those of the pooled table, in one round.

D6.2, eq. 3.4, with the intercept unpenalised. With S, s of `training.linear.cross_products` and n
rows,

    (1/n) Σ (y − b₀ − xᵀβ)² + λ/2 ‖β‖²    has    β = A⁻¹ s,   A = S + nλ/2 I                 (1)

and b₀ from the means. Without a penalty, Cov(β) = σ² S⁻¹, as for ordinary least squares. With a
penalty, the covariance is the penalised (Bayesian) σ² A⁻¹: that of β given the data with the prior
β ~ N(0, 2σ²/(nλ)). It does not include the bias from the penalty. The covariates have tr(S A⁻¹)
degrees of freedom (Hastie, Tibshirani, Friedman, "The Elements of Statistical Learning", 2nd ed.
2009, section 3.4).

Revealed: `Products`, once, as a sum over all sites. For ADMM see `training.admm`, for private fits
`private`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.algorithms.linear import private
from fedcohort.algorithms.linear.admm import by_admm
from fedcohort.algorithms.linear.model import LinearModel
from fedcohort.algorithms.linear.settings import RidgeSettings
from fedcohort.arrays import Array
from fedcohort.protocol import Dp, Federation, SingularInformation, Task
from fedcohort.training.linear.cross_products import Moments, collect, inverted, with_intercept


def fit(fed: Federation, config: RidgeSettings, task: Task) -> LinearModel:
    """Fit a ridge regression on all sites that answer.

    Raises
    ------
    DataError : as `training.linear.cross_products.collect`.
    SingularInformation : without a penalty, covariates are collinear or constant (the error names
        them), or there are too few records.
    """
    if config.solver == "admm":
        return by_admm(fed, config, task, 0.0, config.penalty)
    next(fed.rounds(1))
    if task.dp is not None:
        return _privately(fed, config, task, task.dp)
    pool = collect(fed, task)
    m = pool.moments
    if not config.penalty and m.rows < (needed := len(task.features) + 1 + pool.least):
        raise SingularInformation(
            f"{m.rows:.0f} records are too few for {len(task.features)} covariates; {needed} would "
            f"do. Use fewer covariates, or refit with a ridge penalty (penalty > 0)."
        )
    inverse = _inverse(m, config.penalty, task.features)
    beta = inverse @ m.xy
    residual = float(m.residual(beta))
    objective = residual / m.rows + config.penalty / 2 * float(beta @ beta)
    fed.record(objective=objective)
    return LinearModel(
        features=task.features,
        intercept=float(m.intercept(beta)),
        coefficients=beta,
        rows=int(m.rows),
        objective=objective,
        iterations=1,
        level=config.level,
        total=m.yy,
        residual=residual,
        df=float((m.xx * inverse).sum()) if config.penalty else float(len(beta)),
        spread=with_intercept(inverse, m),
    )


def _privately(fed: Federation, config: RidgeSettings, task: Task, dp: Dp) -> LinearModel:
    """Fit from noisy sums; return coefficients alone."""
    m, _ = private.collect(fed, config, task, dp)
    beta = _inverse(m, config.penalty, task.features) @ m.xy
    objective = float(m.residual(beta)) / m.rows + config.penalty / 2 * float(beta @ beta)
    fed.record(objective=objective)
    return LinearModel(
        features=task.features,
        intercept=float(m.intercept(beta)),
        coefficients=beta,
        rows=0,
        objective=objective,
        iterations=1,
        level=config.level,
    )


def _inverse(m: Moments, penalty: float, names: Sequence[str]) -> Array:
    """Return A⁻¹ of eq. (1), (p, p)."""
    ridge = m.rows * penalty / 2 * np.eye(len(names))
    return inverted(m.varying + ridge, names, "refit with a ridge penalty (penalty > 0)")
