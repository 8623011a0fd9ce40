"""Fitted topics of all sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.hdp.topics import shares
from fedcohort.arrays import Array
from fedcohort.numerics.centroids import dropped_note
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, eq=False)
class TopicModel(Fitted):
    """Clusters by the topic with the largest share in a row, numbered by size, from 0.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    topics : φ (k, p), the probability of each column among a topic's ones.
    weights : π (k,), the topics' shares of rows.
    counts : (k,) rows of each cluster.
    blank : rows without a one, which count in the largest cluster; 0 if they are few.
    alpha : a of eq. (1) of `topics`.
    asked : number of topics requested; those of few rows are missing. The number found if it was
        inferred.
    """

    features: tuple[str, ...]
    topics: Array
    weights: Array
    counts: Array
    blank: int
    alpha: float
    asked: int

    @property
    def dropped(self) -> int:
        """Number of requested topics that are missing."""
        return self.asked - len(self.counts)

    def predict(self, x: Array) -> Array:
        """Return the cluster number (n,), from 0, of each row of x (n, p)."""
        return self.transform(x).argmax(axis=1)

    def transform(self, x: Array) -> Array:
        """Return the share (n, k) of each topic in each row of x (n, p)."""
        return shares(x, self.topics, self.weights, self.alpha)

    def summary(self) -> list[Row]:
        """Return a row per cluster: its number, rows, share of all rows, and its topic."""
        total = self.counts.sum()
        return [
            {"cluster": j, "n": int(n), "share": float(n / total)}
            | dict(zip(self.features, topic.tolist(), strict=True))
            for j, (n, topic) in enumerate(zip(self.counts, self.topics, strict=True))
        ]

    def cautions(self) -> tuple[str, ...]:
        """Return the number of missing topics, if any."""
        return (dropped_note(len(self.counts), self.asked),) if self.dropped else ()

    def arrays(self) -> dict[str, Array]:
        """Return topics, weights and counts."""
        return {"topics": self.topics, "weights": self.weights, "counts": self.counts}

    def meta(self) -> dict[str, Any]:
        """Return names, rows without a one, a, and the number of topics requested."""
        names = ("blank", "alpha", "asked")
        return {"features": list(self.features), **{name: getattr(self, name) for name in names}}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> TopicModel:
        """Rebuild the model from what `arrays` and `meta` returned."""
        return cls(
            features=tuple(meta["features"]),
            topics=np.asarray(arrays["topics"]),
            weights=np.asarray(arrays["weights"]),
            counts=np.asarray(arrays["counts"]),
            blank=int(meta["blank"]),
            alpha=float(meta["alpha"]),
            asked=int(meta["asked"]),
        )
