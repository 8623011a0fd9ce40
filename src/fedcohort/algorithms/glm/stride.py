"""Longer steps than Newton's for a logistic regression, from sums that the sites already returned.

If classes are far apart, Newton's steps are too short: the deviance falls by about the same factor
in each round, while coefficients grow. F is the deviance with its penalty, U = −½ ∂F and H = ½ ∂²F
at γ, δ = H⁻¹U Newton's step, and λ² = Uᵀδ its gain.

The first step, at the model without covariates, is R. A. Fisher's discriminant. With w records, a
share π of class 1, and d the difference of the classes' means,

    β = δ/(1 − R²),  b₀ += −½ (1 − 2π) dᵀβ,   R² = Uᵀδ/w,  d = U/(w π (1 − π))             (1)

R² is that of a linear regression. (1) is the solution for Gaussian covariates with one covariance.
Later steps are the longer of two. The first is

    δ/(1 − 3 λ²/(F/2)),  Newton's step for −1/F², which is closer to a quadratic than F.     (2)

(With a penalty F cannot vanish: λ² is reduced by 16 times the penalty's share of F, down to 0.) The
second is the root of a model of U through two points. With s from one to the other, d = τ s + r and
r ⟂ s by H, the model is the cubic along s with the U and H s of both, and across s the linear
change of H:

    U(γ + d) = U − τ H s + a τ² + b τ³ − (H + τ ΔH) r                                        (3)

Neither is longer than `LONGEST` times Newton's step. Both approach it as λ² vanishes. `scoring`
halves a step that is too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array

#: Largest lengths of eqs. (1), (2) and (3), in Newton's step.
LONGEST = (2.5, 2.0, 1.5)
#: Factor of the penalty's share of F in eq. (2).
HELD = 16
#: Largest number of Newton's steps on the model, eq. (3).
STEPS = 20


class Seen(NamedTuple):
    """A past point: γ (k,), U (k,), H (k, k), F, and the penalty's part of F."""

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
    difference = slope[1:] / (weight * share * (1 - share))
    step[0] = -0.5 * (1 - 2 * share) * float(difference @ step[1:])
    return step


def stride(seen: Sequence[Seen], newton: Array) -> Array:
    """Return the step (k,) from the last point `seen`, given Newton's step."""
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
    """Return the root d (k,) of eq. (3), or Newton's step if none is found."""
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
