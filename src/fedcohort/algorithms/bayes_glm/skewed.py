"""Correction of a logistic regression's posterior for its skewness, by one sum over sites.

Paquet, Winther, Opper, "Perturbation corrections in approximate inference", JMLR 10, 2009; Opper,
Paquet, Winther, "Perturbative corrections for approximate inference in Gaussian latent variable
models", JMLR 14, 2013. At the fixed point of expectation propagation (`numerics.propagation`) row i
has f_i = μ_i + v_i^½ x_i, x_i = w_iᵀu, w_i = Lᵀz_i/v_i^½ of length 1, with γ = m + L u, L Lᵀ = V.
Its tilted density is that of x_i ~ N(0, 1) times 1 + ε_i, and ε_i begins with the third Hermite
polynomial, c_i He₃(x_i)/6, c_i the tilted skewness. The posterior is that of u ~ N(0, I) times
Π (1 + ε_i). To the second order in c

    Cov u ≈ I + ½ Σ_{i≠j} c_i c_j (w_iᵀw_j)² w_i w_jᵀ (symmetric part) = I + ½ (T·T − D)       (1)
    κ₃(u) ≈ T,   T = Σ c_i w_i⊗w_i⊗w_i,   (T·T)_ab = Σ_cd T_acd T_bcd,   D = Σ c_i² w_i w_iᵀ    (2)

and the mean stays m: its first correction has the fourth cumulants. Quantiles of a coefficient, or
of a row's f, are those of Cornish and Fisher, with the skewness γ₁ and z the normal quantile,

    z + γ₁ (z² − 1)/6                                                                        (3)

Revealed, as a sum over all sites: `Cubes`, once: k (k + 1)(k + 2)/6 + k (k + 1)/2 + 2 different
numbers of k = p + 1. That is what some k/3 rounds of `project` tell. w_i has length 1, and |c_i| is
below 2, the skewness of an exponential density, at any posterior that a coordinator may choose; so
no row adds more than 2 to an entry of T.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from fedcohort.algorithms.bayes_glm.steps import Kept, standardised, wrong_posterior
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.propagation import NARROWEST, Factors, skewness
from fedcohort.protocol import Refused, Site, message, summed

#: Largest eigenvalue of ½ (T·T − D) at which the expansion is used. Beyond, it is none.
LARGEST = 0.5
#: What is said beyond.
TOO_SKEWED = (
    "the posterior is too skewed for the correction of standard deviations, which is left out"
)


@message
class Cubes:
    """T (k, k, k) and D (k, k); ``squares`` (2,): Σ |c| and Σ c² of what rows count."""

    third: Array
    own: Array
    squares: Array


@summed
def cubes(
    site: Site[LabelledTable, Kept | None],
    *,
    centre: Array,
    scale: Array,
    mean: Array,
    covariance: Array,
) -> Cubes:
    """Sum the skewness of the rows' parts of the posterior, once, at the end.

    Parameters
    ----------
    mean, covariance : m (k,) and V (k, k), of standardised covariates.

    Raises
    ------
    Refused : a posterior that no honest fit has, or none was fitted.
    """
    fine = np.isfinite(scale).all() and (scale > 0).all()
    why = wrong_posterior(scale, mean, covariance) if fine else "with a scale that is not above 0."
    y, kept = np.asarray(site.data.y, float), site.state
    if not why and (kept is None or len(kept.precision) != len(y)):
        why = "before a fit has asked for them."
    if why or kept is None:
        raise Refused("posterior", f"site {site.name!r} approximates no rows {why}")
    z = standardised(site.data.x, centre, scale)
    c = skewness(z, y, Factors(kept.precision, kept.shift), mean, covariance)
    w = z @ np.linalg.cholesky(covariance)
    w /= np.sqrt(np.maximum((w * w).sum(axis=1), NARROWEST))[:, None]
    k = len(mean)
    pairs = (w[:, :, None] * w[:, None, :]).reshape(len(w), k * k)
    third = ((c[:, None] * pairs).T @ w).reshape(k, k, k)
    own = (w * (c**2)[:, None]).T @ w
    return Cubes(third, own, np.array([np.abs(c).sum(), c @ c]))


def corrected(told: Cubes, covariance: Array) -> tuple[Array, Array] | None:
    """Return the covariance (k, k) by eq. (1), and third cumulants (k, k, k); None beyond
    `LARGEST`.

    Parameters
    ----------
    covariance : V (k, k), at which `told` was asked.
    """
    root = np.linalg.cholesky(covariance)
    more = (np.einsum("acd,bcd->ab", told.third, told.third) - told.own) / 2
    values = np.linalg.eigvalsh(more)
    if np.abs(values).max() > LARGEST:
        return None
    third = np.einsum("abc,ia,jb,kc->ijk", told.third, root, root, root, optimize=True)
    return covariance + root @ more @ root.T, third


def skewness_along(third: Array, z: Array, scale: Array) -> Array:
    """Return γ₁ (n,) of zᵀγ of rows z (n, k), with standard deviations `scale` (n,)."""
    each = np.einsum("ijk,ni,nj,nk->n", third, z, z, z, optimize=True)
    return each / np.maximum(scale, np.finfo(float).tiny) ** 3


def quantile(p: float, skew: Array) -> Array:
    """Return eq. (3) (n,) at the probability p."""
    z = float(ndtri(p))
    return z + skew * (z * z - 1.0) / 6.0


def above(z: Array, skew: Array) -> Array:
    """Return the probability (n,) of values above z (n,), by Edgeworth's expansion."""
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return np.clip(ndtr(-z) + skew * (z**2 - 1.0) * density / 6.0, 0.0, 1.0)


STEPS = (cubes,)
