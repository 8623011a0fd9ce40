"""The proximal operator of a sum of hinge losses, by active sets, else by an interior point method.

With rows b_i of B (n, d), margins t_i and weights c_i ≥ 0,

    x = argmin Σ c_i max(t_i − b_iᵀx, 0) + ρ/2 ‖x − v‖²
      = v + Bᵀα/ρ,   α = argmin_{0 ≤ α ≤ c} ‖Bᵀα‖²/(2ρ) − αᵀ(t − Bv)                       (1)

With multipliers s of α ≥ 0 and ξ of α ≤ c, the optimum has Bx − t = s − ξ, α s = 0 and
(c − α) ξ = 0. Newton's step for these, their products set to m and m', is (Mehrotra, SIAM J. Optim.
2(4), 1992; the matrix as Fine & Scheinberg, JMLR 2, 2001, who use that BBᵀ has rank d)

    (ρI + BᵀD⁻¹B) Δx = BᵀD⁻¹g,   Δα = D⁻¹(g − BΔx),   D = s/α + ξ/(c − α)
    g = m/α − s − m'/(c − α) + ξ − (Bx − t − s + ξ)                                        (2)

at O(n d²) per iteration. The start and every step keep the first condition: αᵀs + (c − α)ᵀξ is the
gap between both sides of (1), which is reduced to rounding.

A round of ADMM moves v little, so the rows on the margin are first guessed from the last x. With E
on it and U inside, x = v + (Σ_U c b + B_Eᵀα_E)/ρ with B_E x = t_E, and

    row i belongs to U, E or neither as  α_i + ρ (t_i − b_iᵀx)/‖b_i‖²  is above c_i, within, or < 0

(Hintermüller, Ito & Kunisch, SIAM J. Optim. 13(3), 2002). If that settles, x is the solution to
rounding, at O(n d) per iteration; otherwise the interior point method runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from fedcohort.arrays import Array

#: Guesses of the rows on the margin, and how far off it such a row may be.
GUESSES, NEAR = 12, 1e-9
#: Iterations of the interior point method; a dozen are usual.
STEPS = 60
#: The gap at the end, against the sum of the weights.
GAP = 1e-14
#: How far a step may go to where a multiplier or a bound is met.
SHORT = 0.995


@dataclass(frozen=True, eq=False)
class _Point:
    """Where the method is, or a step of it.

    Attributes
    ----------
    x : (d,); low, high : α and c − α (n,); below, above : s and ξ (n,).
    """

    x: Array
    low: Array
    high: Array
    below: Array
    above: Array

    @property
    def gap(self) -> float:
        """The duality gap."""
        return float(self.low @ self.below + self.high @ self.above)

    def moved(self, step: _Point, length: float) -> _Point:
        """Return the point after some part of a step."""
        return _Point(
            self.x + length * step.x,
            self.low + length * step.low,
            self.high + length * step.high,
            self.below + length * step.below,
            self.above + length * step.above,
        )

    def longest(self, step: _Point) -> float:
        """Return the longest part of a step, at most 1, that stays clear of every bound."""
        found = 1.0 / SHORT
        for name in ("low", "high", "below", "above"):
            value, change = getattr(self, name), getattr(step, name)
            if (down := change < 0).any():
                found = min(found, float((-value[down] / change[down]).min()))
        return min(1.0, SHORT * found)


def hinge_prox(b: Array, t: Array, c: Array, v: Array, rho: float, start: Array) -> Array:
    """Return x (d,) of eq. (1).

    Parameters
    ----------
    b : (n, d), rows times their labels.
    t : (n,), margin that each row is wanted to have.
    c : (n,), weights; a row of weight 0 is left out.
    v : (d,), the anchor.
    rho : ρ > 0.
    start : (d,), a first guess of x.
    """
    if not c.all():
        b, t, c = b[c > 0], t[c > 0], c[c > 0]
    if not len(t):
        return v
    guessed = _by_active_sets(b, t, c, v, rho, start)
    if guessed is not None:
        return guessed
    here = _start(b, t, c, v, rho)
    for _ in range(STEPS):
        gap = here.gap
        if gap <= GAP * c.sum():
            break
        d = here.below / here.low + here.above / here.high
        newton = _Newton(here, b, b @ here.x - t, d, _factor((b.T / d) @ b, rho))
        guess = newton.step(0.0, 0.0)
        after = here.moved(guess, here.longest(guess)).gap
        aim = gap / (2 * len(t)) * (max(after, 0.0) / gap) ** 3
        step = newton.step(aim - guess.low * guess.below, aim - guess.high * guess.above)
        here = here.moved(step, here.longest(step))
    return here.x


def _factor(matrix: Array, rho: float) -> tuple[Array, bool]:
    """Return the factor of matrix + ρI (d, d); ρ is lost in rounding where some d are all but 0."""
    eye = np.eye(len(matrix))
    try:
        return cho_factor(matrix + rho * eye)
    except np.linalg.LinAlgError:
        rounding = len(matrix) * np.finfo(float).eps * np.diag(matrix).max()
        return cho_factor(matrix + (rho + rounding) * eye)


def _by_active_sets(
    b: Array, t: Array, c: Array, v: Array, rho: float, start: Array
) -> Array | None:
    """Return x (d,) if the guesses settle, which proves it."""
    squares = np.einsum("ij,ij->i", b, b)
    if not squares.all():
        return None
    short = t - b @ start
    on, inside = np.abs(short) <= NEAR * (1.0 + np.abs(t)), short > 0
    for _ in range(GUESSES):
        alpha = np.where(inside & ~on, c, 0.0)
        x = v + b.T @ alpha / rho
        if on.any():
            rows = b[on]
            if len(rows) > len(v):
                return None
            gram = rows @ rows.T
            try:
                factor = cho_factor(gram)
            except np.linalg.LinAlgError:
                return None
            if np.diag(factor[0]).min() ** 2 <= NEAR * np.diag(gram).max():
                return None
            alpha[on] = cho_solve(factor, rho * (t[on] - rows @ x))
            x = x + rows.T @ alpha[on] / rho
        short = t - b @ x
        short[on] = 0.0
        place = alpha + rho * short / squares
        slack = 1e-12 * c
        now_on = np.where(on, (place >= -slack) & (place <= c + slack), (place > 0) & (place < c))
        now_inside = place >= c
        if (now_on == on).all() and (now_inside | on == inside | on).all():
            return x
        on, inside = now_on, now_inside
    return None


def _start(b: Array, t: Array, c: Array, v: Array, rho: float) -> _Point:
    """Return a point with α in the middle, and s − ξ = Bx − t."""
    x = v + b.T @ (0.5 * c) / rho
    far = b @ x - t
    size = 0.5 * (np.abs(far) + np.hypot(far, 0.1 + np.abs(far).mean()))
    below = np.where(far >= 0, size, size - np.abs(far))
    return _Point(x, 0.5 * c, 0.5 * c, below, below - far)


@dataclass(frozen=True, eq=False)
class _Newton:
    """Eq. (2) at a point: ``far`` Bx − t (n,), ``d`` D (n,), ``factor`` of ρI + BᵀD⁻¹B."""

    here: _Point
    b: Array
    far: Array
    d: Array
    factor: tuple[Array, bool]

    def step(self, aim_low: Array | float, aim_high: Array | float) -> _Point:
        """Return the step to products m and m', each (n,) or ()."""
        p = self.here
        to_low, to_high = aim_low / p.low - p.below, aim_high / p.high - p.above
        g = to_low - to_high - (self.far - p.below + p.above)
        x = cho_solve(self.factor, self.b.T @ (g / self.d), check_finite=False)
        low = (g - self.b @ x) / self.d
        below = to_low - p.below * low / p.low
        return _Point(x, low, -low, below, to_high + p.above * low / p.high)
