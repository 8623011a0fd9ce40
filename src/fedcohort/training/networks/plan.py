"""Plan of a site's local training, sent as text, the same in all rounds."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fedcohort.arrays import Array


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training visit at a site.

    Attributes
    ----------
    network : the spec of the network, see `models.network`.
    loss : name of a loss (`models.losses.built`), or the spec of an objective, see
        `models.objectives.loss_of`.
    epochs : passes over the site's rows in one visit.
    batches : mini-batches in each pass; 1 trains on all rows at once.
    batch_size : most rows of a mini-batch; above 0 it replaces `batches`.
    optimiser : name in `training.networks.optimisers.OPTIMISERS`.
    optimiser_state : see `training.networks.moments`.
    compression, share : see `training.networks.compression`.
    l1, l2 : λ₁ ≥ 0 and λ₂ ≥ 0, added to the mean loss as λ₁‖W‖₁ + ½λ₂‖W‖² of the first layer's
        weights W.
    mu : μ ≥ 0 of FedProx: adds ½μ‖θ − θ₀‖², with θ₀ the vector at the start of the visit.
    validation_fraction : share of the rows held out for early stopping; 0 for none.
    dtype, device : of torch's computation.
    """

    network: str
    loss: str
    epochs: int = 5
    batches: int = 1
    optimiser: str = "adam"
    l1: float = 0.0
    l2: float = 0.0
    mu: float = 0.0
    validation_fraction: float = 0.0
    dtype: str = "float64"
    device: str = "cpu"
    batch_size: int = 0
    optimiser_state: str = "fresh"
    compression: str = "none"
    share: float = 1.0

    def parts(self, rows: float) -> int:
        """Return the number of mini-batches of so many rows, at least 1."""
        return max(1, math.ceil(rows / self.batch_size)) if self.batch_size else self.batches

    def sent(self, theta: Array) -> Array:
        """Return θ (P,) in the network's number type, to which sites would round it anyway."""
        with np.errstate(over="ignore"):
            return theta.astype(self.dtype, copy=False)

    @cached_property
    def text(self) -> str:
        """The plan as JSON, for a step's argument."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(text: str) -> Plan:
        """Return the plan from its JSON text."""
        return Plan(**json.loads(text))


def holds_out(asked: Mapping[str, Any]) -> bool:
    """Return whether a step's plan holds rows out (`protocol.totals`)."""
    return Plan.of(asked["plan"]).validation_fraction > 0
