"""Checks of a site's trained model: its shape, and how far honest training can move it.

Adam (Kingma and Ba 2015) moves each parameter in its t-th step by η |m̂|/(√v̂ + ε), where m̂ and v̂
are means of the gradients g_i and of g_i², with weights w_i ∝ β₁^(t−i) and u_i ∝ β₂^(t−i), i = 1…t.
By Cauchy and Schwarz

    |m̂| = |Σ w_i g_i| ≤ √(Σ w_i²/u_i) √(Σ u_i g_i²) = c_t √v̂                                (1)

so that S steps from a fresh start move a model of P parameters, whatever the rows are, by at most

    ‖θ_k − θ‖ ≤ η √P Σ_{t ≤ S} c_t                                                          (2)

c_1 = 1 and c_5 = 1.01. Yogi (Zaheer et al. 2018) has another v: with β₂ ≥ ½, v_t ≥ β₂ v_{t−1} and
v_t ≥ (1−β₂) g_t², for either sign. So g_i² ≤ v_t β₂^(i−t)/(1−β₂), and with r = β₁/√β₂

    |m̂| ≤ (1−β₁)/(1−β₁ᵗ) · (1−rᵗ)/(1−r) · √((1−β₂ᵗ)/(1−β₂)) √v̂ = c_t √v̂                   (3)

c_1 = 1 and c_5 = 2.24. Where Yogi starts from m = v = s > 0, m has sβ₁ᵗ more, and v_t ≥ sβ₂ᵗ. So
c_t has √s rᵗ √(1−β₂ᵗ)/(1−β₁ᵗ) more, and c_∞ is the same. Plain gradient descent, with or without
momentum, has no such bound.

An optimiser that goes on, from its own state or from a mean of the sites' (`networks.moments`), may
be at any t. With C = c_∞, |m| ≤ C √v at every t, and √(1−β₂ᵗ)/(1−β₁ᵗ) ≤ 1 for t ≥ 1. So |m̂| ≤ C √v̂,
and each of the S steps counts C in (2). C is 7.27 for Adam and 31.8 for Yogi.

With a batch size S depends on the number of rows that the site states, which is not checked here.

Sites with different numbers of rows take different numbers of steps S. The length of an honest
update grows with S if gradients agree, and with √S if they cancel. So lengths are compared relative
to S^¾, which is within a factor of S^¼ of both. With momentum 0.9, S is the equivalent number of
plain steps,

    Σ_{t ≤ S} (1 − 0.9ᵗ)/(1 − 0.9)                                                          (4)

A visit that reaches the optimum of its rows stops there, so its length does not grow with S;
relative to S^¾ alone a small, different site would seem too far. So lengths are compared as they
are and relative to S^¾, and an update is too long only if it is so in both.

Near convergence updates cancel in their mean, Σ_k n_k (θ_k − θ) ≈ 0, so a small, different site
moves farther, in proportion to the others' rows. For a mean of models the effect on the mean,
n_k ‖θ_k − θ‖, is compared as well, and an update is too long only if it is so in all three.

The leaves of a forest (`models.forest`) follow the network, by no gradient step. (2) leaves them
out, so it does not bound them, and lengths are compared with them.

Revealed: nothing; these are checks of a site's reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.forest import leaf_count
from fedcohort.training.networks.moments import parted
from fedcohort.training.networks.optimisers import Adam, Momentum, Yogi, YogiStarted
from fedcohort.training.networks.plan import Plan

#: Fault of a trained model without rows.
WEIGHTLESS = "a model that was trained on no rows. A site without rows leaves the model as it is."

#: Tolerance of rounding in `leap`, relative to the bound and to the model's length.
ROOM, ROUNDING = 0.01, 1e-5

#: Exponent of S in `pace`.
BETWEEN = 0.75

#: Number of steps after which c_t is near its limit.
SETTLED = 20_000


def length(step: Array) -> float:
    """Return ‖step‖; infinite beyond floating point."""
    step = step.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        return math.sqrt(step.dot(step))


def misfit(theta: Array, wanted: Array, rows: Array, loss: Array) -> str:
    """Return the fault in the shapes and types of a trained model, or "".

    Parameters
    ----------
    wanted : array of the required shape; the required type is float64, whatever the type of the
        sent θ (`Plan.sent`).
    """
    if theta.shape != wanted.shape or theta.dtype != np.float64:
        return (
            f"a model of shape {theta.shape} and type {theta.dtype}, not of shape {wanted.shape} "
            f"and type float64."
        )
    if rows.shape or loss.shape or loss.dtype != np.float64 or rows.dtype != np.float64:
        return "rows or a loss that is not one real number."
    return ""


def leap(
    length_of: Callable[[], float], asked: Mapping[str, Any], rows: Array, visits: int = 1
) -> str:
    """Return "" if training can move a model so far, by eq. (2), else the fault.

    Parameters
    ----------
    length_of : returns ‖θ_k − θ‖ of what gradient steps move (`stepped`); called only if there is
        a bound.
    asked : theta (P,), plan and rate of the call.
    rows : number () of training rows that the site states.
    visits : number of fresh starts of the optimiser.
    """
    plan = Plan.of(asked["plan"])
    theta = parted(asked["theta"], plan)[0]
    size = theta.size - leaf_count(plan.network)
    most = visits * reach(plan, asked["rate"], size, float(rows))
    if math.isinf(most):
        return ""
    moved = length_of()
    most_rounded = (1 + ROOM) * most + ROUNDING
    if moved <= most_rounded or moved <= most_rounded + ROUNDING * length(theta):
        return ""
    return f"an update longer than its {visits} visit(s) of training can make it ({most:.3g})."


def stepped(moved: Array, plan: Plan) -> Array:
    """Return the entries of θ_k − θ (..., P) that gradient steps move."""
    return moved[..., : moved.shape[-1] - leaf_count(plan.network)]


def pace(asked: Mapping[str, Any], rows: Array) -> float:
    """Return S^¾, the scale of updates' lengths, for so many rows (); at least 1.

    Parameters
    ----------
    asked : the plan of the call.
    rows : number of training rows that the site states; used unchecked, like its weight in the
        mean.
    """
    plan = Plan.of(asked["plan"])
    steps = float(plan.epochs * plan.parts(float(rows)))
    if plan.optimiser == "momentum":
        keep = Momentum.decay
        fresh = plan.optimiser_state == "fresh"
        steps = (steps - fresh * keep * (1 - keep**steps) / (1 - keep)) / (1 - keep)
    return max(1.0, steps) ** BETWEEN


def paces(moved: float, asked: Mapping[str, Any], rows: Array) -> tuple[float, float]:
    """Return the length of an update, and that per `pace`; sites are compared in both."""
    return moved, moved / pace(asked, rows)


def reach(plan: Plan, rate: float, size: int, rows: float = 0.0) -> float:
    """Return the bound of eq. (2) for one visit; infinite if there is none.

    Parameters
    ----------
    rate : η > 0. size : P. rows : training rows.
    """
    stride = _STRIDES.get(plan.optimiser)
    if stride is None:
        return math.inf
    steps = plan.epochs * plan.parts(rows)
    if plan.optimiser_state != "fresh":
        return rate * math.sqrt(size) * steps * farthest(plan)
    return rate * math.sqrt(size) * _strides(stride, steps)


def farthest(plan: Plan) -> float:
    """Return C, the bound of |m|/√v after any number of steps; infinite if there is none."""
    stride = _STRIDES.get(plan.optimiser)
    return math.inf if stride is None else float(stride(np.array([np.inf]))[0])


@lru_cache(maxsize=64)
def _strides(stride: Callable[[Array], Array], steps: int) -> float:
    """Return Σ_{t ≤ steps} c_t, with c_t at its limit from `SETTLED` steps on."""
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


def _yogi_started(t: Array) -> Array:
    """Return c_t of Yogi from m = v = s."""
    b1, b2 = Yogi.beta1, Yogi.beta2
    more = (b1 / math.sqrt(b2)) ** t * np.sqrt(1 - b2**t) / (1 - b1**t)
    return _yogi(t) + math.sqrt(YogiStarted.start) * more


_STRIDES: Mapping[str, Callable[[Array], Array]] = {
    "adam": _adam, "yogi": _yogi, "yogi_started": _yogi_started,
}  # fmt: skip
