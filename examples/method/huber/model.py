"""A fitted robust regression.

`LinearFit` has the coefficients, and saves and reads them. A model of another shape subclasses
`fedcohort.protocol.Fitted`: `arrays`, `meta` and `restore`, and those of `predict`, `summary`,
`parameters`, … that it can give; what it does not override, it does not give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcohort.arrays import Array
from fedcohort.training.linear.linear_model import LinearFit


@dataclass(frozen=True, kw_only=True, eq=False)
class HuberModel(LinearFit):
    """The value of a row is b₀ + xᵀβ.

    Attributes
    ----------
    threshold : k · s, in units of the outcome.
    rounds : how many the fit took.
    """

    threshold: float
    rounds: int

    def meta(self) -> dict[str, Any]:
        """Return everything that is no array, as JSON-able values."""
        return {**super().meta(), "threshold": self.threshold, "rounds": self.rounds}

    @classmethod
    def _restored(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        own = {"threshold": float(meta["threshold"]), "rounds": int(meta["rounds"])}
        return super()._restored(arrays, meta) | own
