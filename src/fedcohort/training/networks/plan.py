"""What the coordinator asks of a site's training: a plan, sent as text, the same in all rounds."""

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
    """One visit of the training to a site.

    Attributes
    ----------
    network : the spec of the network, see `models.network`.
    loss : its name in `models.losses.LOSSES`, or the spec of an objective, see
        `models.objectives.loss_of`.
    epochs : passes over the site's rows in one visit.
    batches : parts that the rows are dealt into in each pass; 1 trains on all at once.
    batch_size : most rows of a part; where it is above 0, `batches` counts for nothing.
    optimiser : its name in `training.networks.optimisers.OPTIMISERS`; it starts anew in each visit.
    l1, l2 : λ₁ ≥ 0 and λ₂ ≥ 0, added to the averaged loss as λ₁‖W‖₁ + ½λ₂‖W‖², where W are the
        weights of the first layer.
    mu : μ ≥ 0 of FedProx: ½μ‖θ − θ₀‖² is added, with θ₀ the vector that the visit began with.
    validation_fraction : part of the rows held out to decide when to stop; 0 for none.
    dtype, device : where and in which type torch computes.
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

    def parts(self, rows: float) -> int:
        """Return how many parts so many rows are dealt into: at least 1."""
        return max(1, math.ceil(rows / self.batch_size)) if self.batch_size else self.batches

    def sent(self, theta: Array) -> Array:
        """Return θ (P,) in the type in which torch computes: what sites would round it to.

        So a float32 network costs half the bytes, and no bit.
        """
        with np.errstate(over="ignore"):
            return theta.astype(self.dtype, copy=False)

    @cached_property
    def text(self) -> str:
        """The plan as JSON, for a step's argument."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(text: str) -> Plan:
        """Return the plan that a coordinator sent."""
        return Plan(**json.loads(text))


def holds_out(asked: Mapping[str, Any]) -> bool:
    """Return whether a step is asked by a plan that holds rows out (`protocol.totals`)."""
    return Plan.of(asked["plan"]).validation_fraction > 0
