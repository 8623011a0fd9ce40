"""What an honest site's trained model can be: its shape, and how far training can move it.

Adam (Kingma and Ba 2015) moves each parameter in its t-th step by η |m̂|/(√v̂ + ε), where m̂ and v̂
are means of the slopes g_i and of g_i², with weights w_i ∝ β₁^(t−i) and u_i ∝ β₂^(t−i), i = 1…t. By
Cauchy and Schwarz

    |m̂| = |Σ w_i g_i| ≤ √(Σ w_i²/u_i) √(Σ u_i g_i²) = c_t √v̂                                (1)

so that S steps from a fresh start move a model of P parameters, whatever the rows are, by at most

    ‖θ_k − θ‖ ≤ η √P Σ_{t ≤ S} c_t                                                          (2)

c_1 = 1 and c_5 = 1.01. Yogi (Zaheer et al. 2018) has other v: with β₂ ≥ ½, v_t ≥ β₂ v_{t−1} and
v_t ≥ (1−β₂) g_t², whichever sign is taken. So g_i² ≤ v_t β₂^(i−t)/(1−β₂), and with r = β₁/√β₂

    |m̂| ≤ (1−β₁)/(1−β₁ᵗ) · (1−rᵗ)/(1−r) · √((1−β₂ᵗ)/(1−β₂)) √v̂ = c_t √v̂                   (3)

c_1 = 1 and c_5 = 2.24. Plain gradient descent, and that with momentum, have no such bound.

S depends on the rows where a plan has a batch size: it is that of the rows that the site says it
has, which is held against nothing here.

Sites with other numbers of rows take other numbers of steps, and honest ones go differently far:
with slopes that agree in proportion to S, with slopes that cancel to √S. What the lengths of
updates are compared in is therefore S^¾, from which both are a factor of S^¼ away; with momentum
0.9, S is the number of plain steps that S of its steps are,

    Σ_{t ≤ S} (1 − 0.9ᵗ)/(1 − 0.9)                                                          (4)

A visit that comes near to the optimum of a site's own rows ends there, in however many steps: such
lengths do not grow with S, and by (4) alone a small site unlike the others would seem too far. So
lengths are compared both as they are and beside S^¾, and an update is too long that is so in both.

Near convergence updates cancel in their mean, Σ_k n_k (θ_k − θ) ≈ 0, so that a small site unlike
the others is as many times as far as it has fewer rows, without bound. Where models are averaged,
the n_k ‖θ_k − θ‖ are therefore compared as well, what a site can do to the mean; and an update is
too long that is so in all three. A site that says it has fewer rows counts for less there.

Nothing is revealed: these are checks of what a site replied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.training.networks.optimisers import Adam, Momentum, Yogi
from fedcohort.training.networks.plan import Plan

#: What is said of a reply that has an effect and no rows.
WEIGHTLESS = "a model that was trained on no rows. A site without rows leaves the model as it is."

#: Room for rounding in `leap`: a part of the bound, and of the model's own length.
ROOM, ROUNDING = 0.01, 1e-5

#: Exponent of steps that lengths are compared in.
BETWEEN = 0.75

#: Steps after which c_t is below its limit, and near it.
SETTLED = 20_000


def length(step: Array) -> float:
    """Return ‖step‖; infinite where it is beyond floating point."""
    step = step.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        return math.sqrt(step.dot(step))


def misfit(theta: Array, wanted: Array, rows: Array, loss: Array) -> str:
    """Return what is wrong with the shapes and types of a trained model; "" for nothing.

    Parameters
    ----------
    wanted : an array of the shape that the model must have; its type is float64, whatever that of
        the θ that was sent (`Plan.sent`).
    """
    if theta.shape != wanted.shape or theta.dtype != np.float64:
        return (
            f"a model of shape {theta.shape} and type {theta.dtype}; it was asked to train one of "
            f"shape {wanted.shape}, and to reply it as float64."
        )
    if rows.shape or loss.shape or loss.dtype != np.float64 or rows.dtype != np.float64:
        return "rows or a loss that are not one real number each."
    return ""


def leap(
    length_of: Callable[[], float], asked: Mapping[str, Any], rows: Array, visits: int = 1
) -> str:
    """Return "" where training can have moved a model so far, by eq. (2).

    Parameters
    ----------
    length_of : gives ‖θ_k − θ‖; asked only where there is a bound.
    asked : theta (P,), plan and rate of the call.
    rows : number () of rows that the site says it trained on.
    visits : how often the optimiser started afresh.
    """
    theta: Array = asked["theta"]
    most = visits * reach(Plan.of(asked["plan"]), asked["rate"], theta.size, float(rows))
    if math.isinf(most):
        return ""
    moved = length_of()
    most_rounded = (1 + ROOM) * most + ROUNDING
    if moved <= most_rounded or moved <= most_rounded + ROUNDING * length(theta):
        return ""
    return f"an update longer than its {visits} visit(s) of training can make it ({most:.3g})."


def pace(asked: Mapping[str, Any], rows: Array) -> float:
    """Return S^¾, in which lengths of updates are compared, of so many rows (): 1 or more.

    Parameters
    ----------
    asked : the plan of the call.
    rows : that the site says it trained on; believed here, as its weight in the mean is.
    """
    plan = Plan.of(asked["plan"])
    steps = float(plan.epochs * plan.parts(float(rows)))
    if plan.optimiser == "momentum":
        keep = Momentum.decay
        steps = (steps - keep * (1 - keep**steps) / (1 - keep)) / (1 - keep)
    return max(1.0, steps) ** BETWEEN


def paces(moved: float, asked: Mapping[str, Any], rows: Array) -> tuple[float, float]:
    """Return the length of an update, as it is and by `pace`: both are compared between sites."""
    return moved, moved / pace(asked, rows)


def reach(plan: Plan, rate: float, size: int, rows: float = 0.0) -> float:
    """Return the bound of eq. (2) on one visit; infinite where there is none.

    Parameters
    ----------
    rate : η > 0. size : P. rows : that are trained on.
    """
    stride = _STRIDES.get(plan.optimiser)
    if stride is None:
        return math.inf
    return rate * math.sqrt(size) * _strides(stride, plan.epochs * plan.parts(rows))


@lru_cache(maxsize=64)
def _strides(stride: Callable[[Array], Array], steps: int) -> float:
    """Return Σ_{t ≤ steps} c_t; from `SETTLED` steps on, c_t is taken as its limit."""
    exact = stride(np.arange(1, min(steps, SETTLED) + 1, dtype=float)).sum()
    return float(exact + max(0, steps - SETTLED) * stride(np.array([np.inf]))[0])


def _adam(t: Array) -> Array:
    """Return c_t of eq. (1)."""
    # With w_i²/u_i = ((1−β₁)/(1−β₁ᵗ))² (1−β₂ᵗ)/(1−β₂) qᵗ⁻ⁱ, q = β₁²/β₂, the sum is geometric.
    b1, b2 = Adam.beta1, Adam.beta2
    q = b1**2 / b2
    squares = ((1 - b1) / (1 - b1**t)) ** 2 * (1 - b2**t) / (1 - b2) * (1 - q**t) / (1 - q)
    return np.sqrt(squares)


def _yogi(t: Array) -> Array:
    """Return c_t of eq. (3)."""
    b1, b2 = Yogi.beta1, Yogi.beta2
    r = b1 / math.sqrt(b2)
    means = (1 - b1) / (1 - b1**t) * (1 - r**t) / (1 - r)
    return means * np.sqrt((1 - b2**t) / (1 - b2))


_STRIDES: Mapping[str, Callable[[Array], Array]] = {"adam": _adam, "yogi": _yogi}
