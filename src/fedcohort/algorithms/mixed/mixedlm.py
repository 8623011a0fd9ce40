"""The linear model with a random intercept for each site, in sums over sites.

Laird & Ware, Biometrics 38, 1982. Row i of site j has y = b₀ + xᵀβ + u_j + ε, u_j ~ N(0, τ²),
ε ~ N(0, σ²). With θ = τ²/σ², Z_j = [1, x, y] (n_j, p + 2), s_j = Z_jᵀ1 and ν = N − p − 1:

    V_j = σ² (I + θ 11ᵀ),   V_j⁻¹ = (I − c_j 11ᵀ)/σ²,   c_j = θ/(1 + n_j θ)                 (1)
    M(θ) = Σ_j Z_jᵀ Z_j − B(θ),   B = Σ_j c_j s_j s_jᵀ,   D(θ) = Σ_j log(1 + n_j θ)          (2)

M holds A = σ² XᵀV⁻¹X, σ² XᵀV⁻¹y and σ² yᵀV⁻¹y, so that, with r = (−b₀, −β, 1),

    (b₀, β) = A⁻¹ (σ² XᵀV⁻¹y),   Q = rᵀ M r,   σ² = Q/ν                                      (3)
    −2 ℓ(θ) = ν (1 + log(2π Q/ν)) + D + log|A|                                               (4)

is the restricted likelihood (Patterson & Thompson, Biometrika 58, 1971; Harville, JASA 72, 1977).
Maximum likelihood has ν = N and no log|A|. Derivatives use dc/dθ = (1 + n_j θ)⁻²,
d²c/dθ² = −2 n_j (1 + n_j θ)⁻³, Q' = rᵀM'r and Q'' = rᵀM''r − 2 (M'r)_xᵀ A⁻¹ (M'r)_x.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array

#: Bounds of the share of variance between sites at the start of θ.
START = (1e-3, 0.95)
#: Ratio of residual to total variance that is rounding.
NOTHING = 1e-13


class NothingLeft(ArithmeticError):
    """Covariates (and sites, if θ > 0) explain the outcome without error."""


class Between(NamedTuple):
    """D and B at θ, of one site or summed over sites.

    Attributes
    ----------
    log_det : D with its two derivatives in θ, (3,).
    means : B with its two derivatives in θ, (3, p + 2, p + 2).
    """

    log_det: Array
    means: Array


def between(rows: int, sums: Array, theta: float) -> Between:
    """Return a site's part of D and B, eq. (2).

    Parameters
    ----------
    rows : n_j.
    sums : s_j (p + 2,).
    theta : θ ≥ 0.
    """
    d = 1.0 + rows * theta
    c = np.array([theta / d, 1.0 / d**2, -2.0 * rows / d**3])
    log_det = np.array([math.log(d), rows / d, -((rows / d) ** 2)])
    return Between(log_det, c[:, None, None] * np.outer(sums, sums))


class Profile(NamedTuple):
    """Eqs. (3) and (4) at θ.

    Attributes
    ----------
    theta : θ.
    coefficients : (b₀, β) (p + 1,).
    inverse : A⁻¹ (p + 1, p + 1); σ² A⁻¹ is the covariance of (b₀, β), given θ.
    sigma2 : σ².
    value, slope, bend : ℓ and its two derivatives in θ.
    quadratic : dQ/dθ / Q.
    freedom : ν.
    """

    theta: float
    coefficients: Array
    inverse: Array
    sigma2: float
    value: float
    slope: float
    bend: float
    quadratic: float
    freedom: int

    @property
    def log_slope(self) -> float:
        """The derivative of ℓ in log θ."""
        return self.theta * self.slope

    @property
    def log_bend(self) -> float:
        """The second derivative of ℓ in log θ."""
        return self.theta * (self.theta * self.bend + self.slope)

    @property
    def tau2(self) -> float:
        """τ² = θ σ²."""
        return self.theta * self.sigma2

    def log_tau2_error(self) -> float:
        """Return the standard error of log τ², from the curvature of ℓ in (log θ, log σ²); or nan.

        It is nan at θ = 0, or if ℓ is not concave.
        """
        if not self.theta:
            return math.nan
        half = 0.5 * self.freedom
        cross = half * self.theta * self.quadratic
        steep = -self.log_bend
        if steep <= 0:
            return math.nan
        # the information is [[steep + cross²/half, −cross], [−cross, half]]
        return math.sqrt((half + steep + cross**2 / half + 2.0 * cross) / (steep * half))


def profile(
    within: Array, at: Between, rows: int, theta: float, *, restricted: bool, log_units: float = 0.0
) -> Profile:
    """Return eqs. (3), (4) and the derivatives of ℓ.

    Parameters
    ----------
    within : Σ_j Z_jᵀ Z_j (p + 2, p + 2).
    at : D and B at θ, summed over all sites.
    rows : N.
    restricted : use the restricted likelihood.
    log_units : log|A| in the units of the result, less that in the units of `within`.

    Raises
    ------
    LinAlgError : A is singular.
    NothingLeft : Q is rounding.
    """
    m, m1, m2 = within - at.means[0], -at.means[1], -at.means[2]
    a, a1, a2 = (one[:-1, :-1] for one in (m, m1, m2))
    inverse = np.linalg.inv(a)
    coefficients = inverse @ m[:-1, -1]
    r = np.r_[-coefficients, 1.0]
    freedom = rows - len(a) if restricted else rows
    q, q1 = float(r @ m @ r), float(r @ m1 @ r)
    if q <= NOTHING * within[-1, -1]:
        raise NothingLeft
    turn = (m1 @ r)[:-1]
    q2 = float(r @ m2 @ r - 2.0 * turn @ inverse @ turn)
    d, d1, d2 = at.log_det.tolist()
    if restricted:
        once = inverse @ a1
        d += float(np.linalg.slogdet(a)[1]) + log_units
        d1 += float(np.trace(once))
        d2 += float(np.trace(inverse @ a2) - np.trace(once @ once))
    return Profile(
        theta=theta,
        coefficients=coefficients,
        inverse=inverse,
        sigma2=q / freedom,
        value=-0.5 * (freedom * (1.0 + math.log(2.0 * math.pi * q / freedom)) + d),
        slope=-0.5 * (freedom * q1 / q + d1),
        bend=-0.5 * (freedom * (q2 / q - (q1 / q) ** 2) + d2),
        quadratic=q1 / q,
        freedom=freedom,
    )


def start(none: Profile, sums: Array, rows: int, squared_rows: float) -> float:
    """Return θ by moments, within `START`.

    Residuals e at θ = 0 have approximately E[Σ_j (Σ_i e)²] = N σ² + τ² Σ n_j².

    Parameters
    ----------
    none : the profile at θ = 0.
    sums : Σ_j s_j s_jᵀ (p + 2, p + 2).
    rows, squared_rows : N and Σ_j n_j².
    """
    r = np.r_[-none.coefficients, 1.0]
    total = none.sigma2 * none.freedom
    share = (float(r @ sums @ r) - total) / (squared_rows - rows) / (total / rows)
    share = min(max(share, START[0]), START[1])
    return share / (1.0 - share)
