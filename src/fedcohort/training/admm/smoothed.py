"""Where ADMM of hinge loss starts: the optimum of a smoothed loss, with its prices and curvature.

Hinge loss is a polyhedron, and ADMM that starts at 0 spends most rounds on finding which rows lie
on the margin. So with F_τ(z) = Σ c_i τ log(1 + exp((1 − y_i f_i)/τ)) + h(z), whose curvature weighs
row i by p_i(1 − p_i)/τ, p_i = 1/(1 + exp(−(1 − y_i f_i)/τ)), first

    z ← z − (∇²F_τ)⁻¹ ∇F_τ  for τ = 1 and then smaller, as long as many rows weigh          (1)
    w_j = −M_j⁻¹ ∇g_{j,τ}(z)/ρ,   M_j = (1 − θ) H_j + θ Σ ω_j H_j + ε I                          (2)

H_j is the curvature of site j's own smoothed loss and M_j the metric in which it solves its
subproblems from then on, ‖x − z + w_j‖²_M: how far it may go in a direction before rows change
sides. Where the loss of each site were quadratic, ADMM would halve every error in a round, for any
number of sites. Metrics and prices never leave: Σ ω_j M_j follows from Σ ω_j H_j, which is known.

Smoothing by continuation as in Nesterov, "Smooth minimization of non-smooth functions", Math.
Program. 103, 2005; ADMM in the metric of a curvature as in Deng & Yin, J. Sci. Comput. 66, 2016.

Revealed, as sums over all sites, about ten times, 25 at most: `Smooth`, a loss with its slope (d,)
and curvature (d, d), as of Newton's method for logistic regression, in which all rows weigh. Rows
far from the margin weigh little where τ is small. So τ stops where the curvature weighs about
`EFFECTIVE` rows, (Σ a_i)²/Σ a_i² of their weights a_i; with fewer than `WORTH` rows nothing is
smoothed at all. No point is asked for twice, and where a site misses a round, smoothing ends: the
difference between two sums is never one site's at one point.
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

#: How many rows weigh in the last curvature, and how many a table has where it is worth the while.
EFFECTIVE, WORTH = 20.0, 60
#: τ of the first rounds, and by what it is lessened.
WIDEST, LESS = 1.0, 0.3
#: What a Newton step promises, against what smoothing adds: then τ is lessened, or is the last.
CENTRED, LAST = 1.0, 0.1
#: τ within this of what it would become is the last one.
NEAR = 0.8
#: Rounds at most, and by what a step is shortened that does not help.
STEPS, SHORTER = 25, 1 / 3
#: θ and ε of eq. (2), ε against the mean of the curvature's diagonal; where there are hardly more
#: rows than coordinates, most directions have no curvature and take a wider ε.
THETA, EPSILON, WIDE = 0.1, 3e-3, 0.1
HARDLY_MORE = 1.25


@dataclass(frozen=True, eq=False)
class Start:
    """Where smoothing ended.

    Attributes
    ----------
    at, tau : the point (d,), and τ.
    slope : of the smoothed loss there (d,), without penalty.
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
        """Return the first z (d,), which the coordinator knows before any site does."""
        return solved(self.metric, l2, rho, self.metric @ self.at - self.slope / rho)


def solved(metric: Array, l2: Array, rho: float, mean: Array) -> Array:
    """Return argmin h(z) + ρ/2 ‖z‖²_M − ρ zᵀm (d,), of the mean m = Σ ω_j M_j s_j (d,)."""
    return np.linalg.solve(rho * metric + np.diag(l2), rho * mean)


def smoothed_start(
    fed: Federation,
    ask: Callable[[Array, float], Smooth],
    rounds: Iterable[int],
    l2: Array,
    n_rows: int,
) -> Start | None:
    """Take rounds of eq. (1); None where a site was away, or there are no rounds.

    Parameters
    ----------
    ask : gives the sums at z (d,) with τ.
    rounds : those that may be taken.
    l2 : (d,) of the penalty.
    n_rows : at all sites.
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
