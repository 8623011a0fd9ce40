"""Topics of all sites: what a row is most of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.hdp.topics import shares
from fedcohort.arrays import Array
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, eq=False)
class TopicModel(Fitted):
    """A row is of the cluster of the topic with the largest share in it; the largest is 0.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    topics : φ (k, p), the probability of each column among a topic's ones.
    weights : π (k,), the topics' shares of rows.
    counts : (k,) rows of each cluster.
    blank : rows without a one, which are counted with the largest cluster.
    alpha : a of eq. (1) of `topics`.
    """

    features: tuple[str, ...]
    topics: Array
    weights: Array
    counts: Array
    blank: int
    alpha: float

    def predict(self, x: Array) -> Array:
        """Return the number of the cluster of each row of x (n, p): (n,), from 0."""
        return self.transform(x).argmax(axis=1)

    def transform(self, x: Array) -> Array:
        """Return the share of each topic in each row of x (n, p): (n, k)."""
        return shares(x, self.topics, self.weights, self.alpha)

    def summary(self) -> list[Row]:
        """Return a row per cluster: its number, rows, share of all rows, and its topic."""
        whole = self.counts.sum()
        return [
            {"cluster": j, "n": int(n), "share": float(n / whole)}
            | dict(zip(self.features, topic.tolist(), strict=True))
            for j, (n, topic) in enumerate(zip(self.counts, self.topics, strict=True))
        ]

    def arrays(self) -> dict[str, Array]:
        """Return topics, weights and counts."""
        return {"topics": self.topics, "weights": self.weights, "counts": self.counts}

    def meta(self) -> dict[str, Any]:
        """Return names, rows without a one, and a."""
        return {"features": list(self.features), "blank": self.blank, "alpha": self.alpha}

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
        )
