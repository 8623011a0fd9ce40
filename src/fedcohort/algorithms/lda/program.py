"""Linear discriminant analysis of two classes over sites, exactly that of the pooled table.

Fisher, Annals of Eugenics 7(2), 1936; Hastie, Tibshirani, Friedman, "The Elements of Statistical
Learning", 2nd ed. 2009, section 4.3. With n rows, class shares π₀ and π₁, class means μ₀ and μ₁ and
the pooled within-class covariance Σ = Σᵢ (xᵢ − μ)(xᵢ − μ)ᵀ/n, each row about its class's mean,

    β = Σ⁻¹ (μ₁ − μ₀),   b₀ = ln(π₁/π₀) − ½ (μ₁ + μ₀)ᵀ β,   P(y = 1 | x) = 1/(1 + e^(−b₀−xᵀβ))  (1)

with (1 − s) Σ + s tr(Σ)/p I in place of Σ for a shrinkage s. As the outcome is 0 or 1, the
cross-products S, s_xy, t of `training.linear.cross_products` about the pooled means give all of
these:

    μ₁ − μ₀ = s_xy/t,   n Σ = S − s_xy s_xyᵀ/t                                              (2)

Revealed, only as sums over all sites: with several sites, see `data.exact`; `Products` once, or
twice if the mean is far from the public point.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from fedcohort.algorithms.lda.settings import LdaSettings
from fedcohort.arrays import Array
from fedcohort.data.exact import exact_sums
from fedcohort.protocol import Federation, NothingToLearn, SingularInformation, Task
from fedcohort.training.linear.cross_products import Moments, inverted, moments
from fedcohort.training.linear.linear_model import LinearFit

#: Least share of the outcome's variance that must be left.
LEFT = 1e-10
REMEDY = "set shrinkage above 0"


class LdaModel(LinearFit):
    """Linear discriminant with the probability of class 1 by eq. (1)."""

    LINK = "logit"

    def predict(self, x: Array) -> Array:
        """Return the probability of class 1 (n,) of each row of x (n, p)."""
        return expit(self.decision(x))


def fit(fed: Federation, config: LdaSettings, task: Task) -> LdaModel:
    """Fit a linear discriminant on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates, or an outcome of more than two classes.
    NothingToLearn : a column singles out records, or a class has few (`data.exact`); or without
        shrinkage the covariates determine the class.
    SingularInformation : without shrinkage, covariates are collinear or constant, or too many.
    SiteUnavailable : a site left during the fit.
    """
    next(fed.rounds(1))
    sites = exact_sums(fed, task, "class")
    pooled = moments(sites, task, "class")
    if not config.shrinkage:
        check(pooled, task.features, sites.least)
    beta, intercept = discriminant(pooled, config.shrinkage, task.features)
    fed.record(distance=float(pooled.xy @ beta / pooled.yy))
    return LdaModel(
        features=task.features,
        intercept=intercept,
        coefficients=beta,
        rows=int(pooled.rows),
        caution=sites.caution,
    )


def discriminant(m: Moments, shrinkage: float, names: tuple[str, ...]) -> tuple[Array, float]:
    """Return β (p,) and b₀ of eq. (1)."""
    difference = m.xy / m.yy
    covariance = (m.varying - np.outer(m.xy, difference) * ~m.constant) / m.rows
    ridge = shrinkage * np.trace(covariance) / len(names) * np.eye(len(names))
    beta = inverted((1 - shrinkage) * covariance + ridge, names, REMEDY) @ difference
    ones, zeros = m.middle, 1 - m.middle
    middle = m.mean + (zeros - ones) / 2 * difference
    return beta, math.log(ones / zeros) - float(middle @ beta)


def check(m: Moments, names: tuple[str, ...], least: int) -> None:
    """Refuse covariates that are too many, collinear, or determine the class."""
    if m.rows < (needed := len(names) + 1 + least):
        raise SingularInformation(
            f"{m.rows:.0f} records are too few for {len(names)} covariates; {needed} would do. Use "
            f"fewer covariates, or {REMEDY}."
        )
    if m.xy @ inverted(m.varying, names, REMEDY) @ m.xy > (1 - LEFT) * m.yy:
        raise NothingToLearn(
            "the covariates give the class of all records without error, so that no spread within "
            f"classes is left. Is one of them the outcome itself? Drop it, or {REMEDY}."
        )
