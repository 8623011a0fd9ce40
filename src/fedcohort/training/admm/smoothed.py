"""Start of ADMM for hinge loss: the optimum of a smoothed loss, with its duals and curvature.

Hinge loss is piecewise linear, and ADMM from 0 needs most rounds to find the rows on the margin. So
with F_τ(z) = Σ c_i τ log(1 + exp((1 − y_i f_i)/τ)) + h(z), whose curvature gives row i the weight
p_i(1 − p_i)/τ, p_i = 1/(1 + exp(−(1 − y_i f_i)/τ)), first

    z ← z − (∇²F_τ)⁻¹ ∇F_τ  for τ = 1 and then smaller, as long as many rows have weight    (1)
    w_j = −M_j⁻¹ ∇g_{j,τ}(z)/ρ,   M_j = (1 − θ) H_j + θ Σ ω_j H_j + ε I                          (2)

H_j is the curvature of site j's own smoothed loss. M_j is the metric ‖x − z + w_j‖²_M of its later
subproblems: it limits moves in directions in which rows change sides. If each site's loss were
quadratic, ADMM would halve every error in a round, for any number of sites. Metrics and duals do
not leave a site: Σ ω_j M_j follows from the known Σ ω_j H_j.

Smoothing by continuation as in Nesterov, "Smooth minimization of non-smooth functions", Math.
Program. 103, 2005; ADMM in the metric of a curvature as in Deng & Yin, J. Sci. Comput. 66, 2016.

Revealed, as sums over all sites, about ten times, 25 at most: `Smooth`, a loss with its gradient
(d,) and curvature (d, d), as in Newton's method for logistic regression, in which all rows have
weight. With a small τ rows far from the margin have little weight. So τ stops when the curvature
has about `EFFECTIVE` effective rows, (Σ a_i)²/Σ a_i² of their weights a_i; with fewer than `WORTH`
rows there is no smoothing. No point is used twice, and if a site misses a round, smoothing ends: so
the difference of two sums is never one site's at one point.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Federation
from fedcohort.training.admm.steps import Smooth

#: Effective rows of the last curvature, and fewest rows of a table with smoothing.
EFFECTIVE, WORTH = 20.0, 60
#: First τ, and its smallest factor.
WIDEST, LESS = 1.0, 0.3
#: Expected gain of a Newton step, relative to the error of smoothing, below which τ decreases, or
#: is the last.
CENTRED, LAST = 1.0, 0.1
#: τ is the last one if its next value is more than this part of it.
NEAR = 0.8
#: Most rounds, and the factor of a step that does not help.
STEPS, SHORTER = 25, 1 / 3
#: θ and ε of eq. (2), ε relative to the mean of the curvature's diagonal. ε is `WIDE` with at most
#: `HARDLY_MORE` rows per coordinate: most directions then have no curvature.
THETA, EPSILON, WIDE = 0.1, 3e-3, 0.1
HARDLY_MORE = 1.25


@dataclass(frozen=True, eq=False)
class Start:
    """Result of smoothing.

    Attributes
    ----------
    at, tau : the point (d,), and τ.
    slope : gradient of the smoothed loss at the point (d,), without penalty.
    part, rest : M_j is part · H_j + rest (d, d).
    metric : Σ ω_j M_j (d, d).
    """

    at: Array
    tau: float
    slope: Array
    part: float
    rest: Array
    metric: Array

    def first(self, l2: Array, rho: float) -> Array:
        """Return the first z (d,)."""
        return solved(self.metric, l2, rho, self.metric @ self.at - self.slope / rho)


def solved(metric: Array, l2: Array, rho: float, mean: Array) -> Array:
    """Return argmin h(z) + ρ/2 ‖z‖²_M − ρ zᵀm (d,), for the mean m = Σ ω_j M_j s_j (d,)."""
    return np.linalg.solve(rho * metric + np.diag(l2), rho * mean)


def smoothed_start(
    fed: Federation,
    ask: Callable[[Array, float], Smooth],
    rounds: Iterable[int],
    l2: Array,
    n_rows: int,
) -> Start | None:
    """Run rounds of eq. (1); return None if a site was absent, or without rounds.

    Parameters
    ----------
    ask : returns the sums at z (d,) with τ.
    rounds : rounds that are left.
    l2 : (d,) of the penalty.
    n_rows : rows at all sites.
    """
    epsilon = EPSILON if n_rows > HARDLY_MORE * len(l2) else WIDE
    z, step, tau = np.zeros(len(l2)), np.zeros(len(l2)), WIDEST
    base, value = z, math.inf
    last: Start | None = None
    for _ in itertools.islice(rounds, STEPS):
        sums = ask(z, tau)
        if len(fed.answered) < len(fed.sites):
            return None
        share = float(sums.share)
        curvature = sums.curvature / share
        here = float(sums.smoothed) / share + 0.5 * float(l2 @ z**2)
        slope = sums.slope / share + l2 * z
        objective = float(sums.loss) / share + 0.5 * float(l2 @ z**2)
        fed.record(objective=objective, dual=float(np.linalg.norm(slope)), tau=tau)
        if here > value:
            step = SHORTER * step
            z = base + step
            continue
        last = _start(z, tau, sums.slope / share, curvature, epsilon)
        ridge = 1e-8 * np.trace(curvature) / len(z)
        step = -np.linalg.solve(curvature + np.diag(l2 + ridge), slope)
        weight = float(sums.weight) / share
        promised = -float(slope @ step) / 2.0 / (tau * weight / 4.0)
        rows = weight**2 / (float(sums.squares) / share**2)
        smaller = tau * max(LESS, EFFECTIVE / rows)
        final = smaller > NEAR * tau
        if promised < (LAST if final else CENTRED):
            if final:
                break
            tau, value = smaller, math.inf
        else:
            value = here
        base, z = z, z + step
    return last


def _start(z: Array, tau: float, slope: Array, curvature: Array, epsilon: float) -> Start:
    spread = epsilon * np.trace(curvature) / len(z) * np.eye(len(z))
    return Start(
        at=z,
        tau=tau,
        slope=slope,
        part=1.0 - THETA,
        rest=THETA * curvature + spread,
        metric=curvature + spread,
    )
