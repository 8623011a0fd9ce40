"""Server optimisers: the coordinator's update from the mean of the sites' vectors.

Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2. With D = mean − x, and the
mean over the K sites that took part, weighted by n_k/n with n their sum:

    m ← β₁m + (1−β₁)D                                                                     (1)
    FedAdagrad  v ← v + D²                                                                (2)
    FedAdam     v ← β₂v + (1−β₂)D²                                                        (3)
    FedYogi     v ← v − (1−β₂) D² sign(v − D²)                                            (4)
    x ← x + η m/(√v + τ)                                                                  (5)

m starts at 0 and v at τ². There is no bias correction. FedAvg is x ← mean. So it is, in every rule,
of parameters that no gradient step moves, the leaves of a forest: they belong to the network that
they were computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.arrays import Array


@dataclass(frozen=True)
class Server:
    """A server optimiser's state: x, m, v (P,), and its constants.

    Attributes
    ----------
    rate : η > 0. beta1, beta2 : in [0, 1). tau : τ > 0, in units of a parameter.
    plain : number of the last parameters that take the mean itself.
    """

    x: Array
    m: Array
    v: Array
    rate: float
    beta1: float
    beta2: float
    tau: float
    plain: int = 0

    @classmethod
    def at(cls, x: Array, *, rate: float, beta1: float, beta2: float, tau: float) -> Server:
        """Return the state before the first round, at x (P,)."""
        v = np.full_like(x, tau**2)
        return cls(x, np.zeros_like(x), v, rate, beta1, beta2, tau)


Rule = Callable[[Server, Array], Server]


def fedavg(state: Server, mean: Array) -> Server:
    """Take the mean as the new x."""
    return replace(state, x=mean)


def _adaptive(second: Callable[[Server, Array], Array]) -> Rule:
    """Return the rule with eqs. (1) and (5), and `second` for v."""

    def rule(state: Server, mean: Array) -> Server:
        step = mean - state.x
        m = state.beta1 * state.m + (1.0 - state.beta1) * step
        v = second(state, step**2)
        x = state.x + state.rate * m / (np.sqrt(v) + state.tau)
        x[len(x) - state.plain :] = mean[len(x) - state.plain :]
        return replace(state, x=x, m=m, v=v)

    return rule


fedadagrad = _adaptive(lambda s, square: s.v + square)
fedadam = _adaptive(lambda s, square: s.beta2 * s.v + (1.0 - s.beta2) * square)
fedyogi = _adaptive(lambda s, square: s.v - (1.0 - s.beta2) * square * np.sign(s.v - square))

#: Server rules by strategy; FedProx changes the sites' loss, not the server.
RULES: Mapping[str, Rule] = {
    "fedavg": fedavg,
    "fedprox": fedavg,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
}
