"""Steps of a logistic regression beyond Newton's, from what the sites' sums have told already.

Where classes are far apart, Newton's steps are too short: the deviance falls by about the same
factor in each round, while coefficients grow. In what follows F is the deviance with its penalty,
U = −½ ∂F and H = ½ ∂²F at γ, and δ = H⁻¹U is Newton's step, of which λ² = Uᵀδ is the gain.

First, at the model without covariates, R. A. Fisher's discriminant. With w records, a share π of
class 1, and d the difference of the classes' means,

    β = δ/(1 − R²),  b₀ += −½ (1 − 2π) dᵀβ,   R² = Uᵀδ/w,  d = U/(w π (1 − π))             (1)

R² being the share of the outcome's variance that a linear regression explains: the answer, where
the covariates are Gaussian with one covariance. Then the longer of two steps:

    δ/(1 − 3 λ²/(F/2)),  Newton's step for −1/F², which is straighter than F,                (2)

(λ² is taken smaller by 16 times the penalty's share of F, down to 0: F cannot vanish then,) and the
root of a model of U that two points give. With s the way between them, d = τ s + r and
r ⟂ s by H: along s the cubic that has the U and H s of both, across it H as it changed between,

    U(γ + d) = U − τ H s + a τ² + b τ³ − (H + τ ΔH) r                                        (3)

Neither is longer than `LONGEST` of Newton's. As λ² vanishes, both become it. A step that goes too
far is halved by `scoring`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array

#: The longest steps, in Newton's: to the discriminant, by eq. (2), and by eq. (3).
LONGEST = (2.5, 2.0, 1.5)
#: From one part in so many of F, its penalty leaves eq. (2) no effect.
HELD = 16
#: Newton's steps on the model, eq. (3), each a few operations on p x p numbers.
STEPS = 20


class Seen(NamedTuple):
    """A point that was asked about: γ (k,), U (k,), H (k, k), F, and the penalty's part of F."""

    gamma: Array
    slope: Array
    curvature: Array
    value: float
    penalty: float


def discriminant(newton: Array, slope: Array, weight: float, share: float) -> Array:
    """Return the step (k,) of eq. (1), the intercept first.

    Parameters
    ----------
    newton, slope : δ and U (k,) at the model without covariates, about the covariates' means.
    weight, share : w and π.
    """
    explained = min(float(slope @ newton) / weight, 1 - 1 / LONGEST[0])
    step = newton / (1 - explained)
    apart = slope[1:] / (weight * share * (1 - share))
    step[0] = -0.5 * (1 - 2 * share) * float(apart @ step[1:])
    return step


def stride(seen: Sequence[Seen], newton: Array) -> Array:
    """Return the step (k,) from the last of the points `seen`, where Newton's is given."""
    here = seen[-1]
    free = max(0.0, 1 - HELD * here.penalty / here.value)
    rest = 1 - 6 * free * float(here.slope @ newton) / here.value
    step = newton / max(rest, 1 / LONGEST[1])
    if len(seen) < 2:
        return step
    bent = _root(seen[-2], here, newton)
    length = [float(v @ here.curvature @ v) for v in (newton, step, bent)]
    return bent if length[1] < length[2] < LONGEST[2] ** 2 * length[0] else step


def _root(before: Seen, here: Seen, newton: Array) -> Array:
    """Return d (k,) where eq. (3) is zero; Newton's step where none is found."""
    s = here.gamma - before.gamma
    h, change = here.curvature, here.curvature - before.curvature
    first, earlier = -h @ s, -before.curvature @ s
    a = 3 * (before.slope - here.slope) + earlier + 2 * first
    b = here.slope - first + a - before.slope
    along = h @ s / float(s @ h @ s)
    across = np.eye(len(s)) - np.outer(s, along)
    d = newton
    for _ in range(STEPS):
        tau, r = float(along @ d), across @ d
        left = here.slope + tau * first + tau**2 * a + tau**3 * b - (h + tau * change) @ r
        rise = first + 2 * tau * a + 3 * tau**2 * b - change @ r
        slope = np.outer(rise, along) - (h + tau * change) @ across
        if np.linalg.cond(slope) > 1e12:
            return newton
        move = np.linalg.solve(slope, left)
        d = d - move
        if np.abs(move).max() < 1e-12 * (1 + np.abs(d).max()):
            return d
    return newton
