"""State of the sites' optimisers between rounds: fresh, kept or averaged.

fresh     Each visit begins a new optimiser (McMahan et al. 2017).
kept      Each site's optimiser goes on from the state of its last visit. The state stays at the
          site, in `Moments`; it is restored with the site's other state, so a resumed fit gives the
          same numbers. With one site the rounds are one long run of the optimiser. A site that was
          absent goes on from its own last visit, of older parameters.
averaged  The state travels with the model, in the same message and the same sum, and each visit
          begins from the mean over sites, weighted by rows (local Adam with averaged moments: Yu,
          Jin, Yang, "On the linear speedup analysis of communication efficient momentum SGD",
          ICML 2019, of b; Chen, Li, Li, "Toward communication efficient adaptive gradient method",
          FODS 2020, of v). With θ (P,) a site of n_k rows adds n_k times

              momentum    (θ, b)                          2P numbers                        (1)
              adam, yogi  (θ, m, √v, 1 − β₂ᵗ)             3P + 1 numbers                    (2)

√v, not v: a sum of a model's parameters keeps multiples of 2⁻²⁸ (`secure.arithmetic.ring`). √v has
the size of a gradient, and ε = 1e-8 is beyond that resolution; v does not. 1 − β₂ᵗ is the weight of
the bias correction. It gives t where sites took different numbers of steps.

Bound. With C from `update_bounds`, |m| ≤ C √v after each step, whatever the gradients are. A mean
with weights w keeps it: |Σ w m_k| ≤ Σ w C √v_k = C (mean of √v). So a step moves a parameter by at
most η C, also when it begins from a mean.

Revealed: with ``averaged``, each round, the weighted sum of (1) or (2) instead of that of θ. m and
v are running means of gradients and of their squares. With ``kept`` nothing more than with
``fresh``.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import message
from fedcohort.training.networks.local import Memory, train_on
from fedcohort.training.networks.optimisers import OPTIMISERS, Adam
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import Rows

#: Choices of `optimiser_state`.
STATES = ("fresh", "kept", "averaged")

#: Tolerance of |m| ≤ C √v and √v ≥ 0, for sums in multiples of 2⁻²⁸ and for float32.
ROOM, ROUNDING = 1e-3, 1e-6
#: `Moments.ready` of a site that has nothing to send.
NOTHING = -1.0


@message
class Moments:
    """State that a site keeps between visits of a training.

    moments (s, P) and number of steps (); with compressed updates the residual (P,), and the
    number of training rows whose update is still to be sent () or `NOTHING`, else (0,) and
    `NOTHING`; a mark of the training ().
    """

    beside = True

    moments: Array
    taken: Array
    residual: Array
    ready: Array
    mark: Array

    @classmethod
    def empty(cls) -> Self:
        """Return the state before the first visit: no moments, and nothing to send."""
        return cls(np.zeros((0, 0)), np.array(0.0), np.zeros(0), np.array(NOTHING), np.array(0))

    def sent(self, residual: Array) -> Self:
        """Return the state after the update of a visit was sent, with what is left of it (P,)."""
        return replace(self, residual=residual, ready=np.array(NOTHING))


def go_on(
    held: Moments | None, theta: Array, rows: Rows, plan: Plan, rate: float,
    entropy: tuple[int, ...], under: str = "",
) -> tuple[Array, float, Moments]:  # fmt: skip
    """Train from θ (P,) with a site's kept optimiser; return θ (P,), the loss, and the new state.

    Parameters
    ----------
    held : the state of the last visit; it counts if it is of the same plan, and of the same `under`
        (layers below those of the plan). Its residual stays.
    """
    name = (plan.text + under).encode()
    mark = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> 1
    fresh = memory = Memory.empty(plan, len(theta))
    residual = np.zeros(len(theta) if plan.compression != "none" else 0)
    if held is not None and held.mark == mark:
        residual = held.residual
        memory = Memory(held.moments, float(held.taken))
    left, loss, after = train_on(theta, rows, plan, rate, entropy, memory)
    if plan.optimiser_state == "fresh":
        after = fresh
    state = Moments(
        after.moments, np.array(after.taken), residual, np.array(NOTHING), np.array(mark)
    )
    return left, loss, state


def order_of(plan: Plan) -> int:
    """Return the number of moments that travel with θ."""
    return OPTIMISERS[plan.optimiser].order if plan.optimiser_state == "averaged" else 0


def begun(plan: Plan, theta: Array) -> Array:
    """Return the moments, (1) or (2) without θ, before the first round of θ (P,)."""
    s = order_of(plan)
    return np.zeros(s * len(theta) + (s == 2))


def parted(sent: Array, plan: Plan) -> tuple[Array, Array]:
    """Return θ (P,) and what is sent with it: moments, (1) or (2), or the number of the round."""
    if plan.compression == "random_k":
        return sent[:-1], sent[-1:]
    s = order_of(plan)
    size = (len(sent) - (s == 2)) // (1 + s)
    return sent[:size], sent[size:]


def train_averaged(
    sent: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...]
) -> tuple[Array, float]:
    """Train from (1) or (2); return the same after the visit, and the loss."""
    theta, rest = parted(sent, plan)
    left, loss, after = train_on(theta, rows, plan, rate, entropy, _memory(rest, len(theta), plan))
    if not rows.informative:
        return sent.astype(np.float64), loss
    moments = after.moments.astype(np.float64)
    if order_of(plan) < 2:
        return np.concatenate([left, moments.ravel()]), loss
    weight = 1.0 - Adam.beta2**after.taken
    return np.concatenate([left, moments[0], np.sqrt(moments[1]), [weight]]), loss


def _memory(rest: Array, size: int, plan: Plan) -> Memory:
    """Return the optimiser's state of the moments that were sent."""
    if order_of(plan) < 2:
        return Memory(rest.reshape(-1, size).astype(plan.dtype), 0.0)
    m, root, weight = rest[:size], rest[size:-1], float(rest[-1])
    taken = math.log1p(-weight) / math.log(Adam.beta2) if weight < 1 else math.inf
    return Memory(np.stack([m, root**2]).astype(plan.dtype), taken)


def fault(rest: Array, plan: Plan, ratio: float) -> str:
    """Return what is wrong with a site's moments, or ""; see the header's bound.

    Parameters
    ----------
    ratio : C.
    """
    if order_of(plan) < 2:
        return ""
    size = len(rest) // 2
    m, root, weight = rest[:size], rest[size:-1], rest[-1]
    fine = -ROUNDING <= weight <= 1 + ROUNDING and (root >= -ROUNDING).all()
    far = np.abs(m) > (1 + ROOM) * ratio * np.maximum(root, 0) + ROUNDING
    return "" if fine and not far.any() else "moments that no gradients give."
