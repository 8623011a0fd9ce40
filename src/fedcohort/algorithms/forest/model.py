"""A fitted forest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.trees.nodes import BLOCK, Trees
from fedcohort.protocol import Fitted, NotSupported


@dataclass(frozen=True, kw_only=True, eq=False)
class ForestModel(Fitted):
    """The weighted mean of trees.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    levels : classes in the order of their numbers, of more than two; ().
    kind : "class", "number" or "event".
    strategy : "sums" or "union".
    trees : T trees; a leaf's value is the share of class 1, or of each of K > 2 classes, the mean,
        or the cumulative hazard at each of `times`.
    weights : (T,) of the trees, with sum 1.
    times : (m,) ends of intervals, in the unit of the outcome; (0,) but for survival.
    known : time up to which survival is estimated.
    """

    features: tuple[str, ...]
    levels: tuple[str, ...]
    kind: str
    strategy: str
    trees: Trees
    weights: Array
    times: Array
    known: float

    def mean(self, x: Array) -> Array:
        """Return the weighted mean of the leaves' values (n, v) for rows x (n, p)."""
        out = np.zeros((len(x), self.trees.value.shape[1]))
        for first in range(0, len(x), BLOCK):
            at = self.trees.leaves(x[first : first + BLOCK])
            for t, weight in enumerate(self.weights.tolist()):
                out[first : first + BLOCK] += weight * self.trees.value[at[:, t]]
        return out

    def predict(self, x: Array) -> Array:
        """Return the prediction for each row of x (n, p).

        The probability of class 1 (n,), of each of K > 2 classes (n, K), or the value (n,). For
        survival the sum of the cumulative hazard over `times` (n,): the expected deaths of such
        rows.
        """
        found = self.mean(np.asarray(x, float))
        if self.kind == "event":
            return found.sum(axis=1)
        return found if found.shape[1] > 1 else found[:, 0]

    def log_hazard(self, x: Array) -> Array:
        """Return the logarithm of the summed cumulative hazard (n,) of each row of x (n, p).

        With H(t | x) = H₀(t) e^f it is f and a constant. A sum of 0, of leaves without a death,
        counts as the smallest sum above 0 that the trees can give.
        """
        totals = np.where(self.trees.leaf, self.trees.value.sum(axis=1), 0.0)
        above = [
            weight * totals[part].min(where=totals[part] > 0, initial=np.inf)
            for weight, part in zip(self.weights.tolist(), self.trees.parts(), strict=True)
        ]
        least = min(above, default=np.inf)
        return np.log(np.maximum(self.predict(x), least if least < np.inf else 1.0))

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return exp(−H(t)) for each row of x (n, p) and each of `times` (m,): (n, m).

        H is the mean of the trees' cumulative hazards.
        """
        if self.kind != "event":
            raise NotSupported("predict_survival")
        hazard = np.c_[np.zeros(len(x)), self.mean(np.asarray(x, float))]
        return np.exp(-hazard[:, np.searchsorted(self.times, times, side="right")])

    def known_until(self, x: Array) -> Array:
        """Return the time (n,) up to which survival is estimated."""
        return np.full(len(x), self.known if self.kind == "event" else np.inf)

    def cautions(self) -> tuple[str, ...]:
        """Return a warning if no tree has a split."""
        if not self.trees.leaf.all():
            return ()
        return ("no split has enough rows on both sides, so all rows have one prediction",)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        own = {"weights": self.weights, "times": self.times}
        return own | {f"trees.{name}": a for name, a in self.trees.arrays().items()}

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        return {
            "features": list(self.features), "levels": list(self.levels), "kind": self.kind,
            "strategy": self.strategy, "known": self.known,
        }  # fmt: skip

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from saved arrays and values."""
        trees = {k.removeprefix("trees."): a for k, a in arrays.items() if k.startswith("trees.")}
        return cls(
            features=tuple(meta["features"]), levels=tuple(meta["levels"]), kind=meta["kind"],
            strategy=meta["strategy"], known=float(meta["known"]),
            trees=Trees.from_arrays(trees), weights=arrays["weights"], times=arrays["times"],
        )  # fmt: skip
