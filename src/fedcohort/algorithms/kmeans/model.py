"""Fitted clusters, by centroids or modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.centroids import dropped_note, nearest
from fedcohort.protocol import Fitted, Row
from fedcohort.training.clusters.points import Space


@dataclass(frozen=True, eq=False)
class Clusters(Fitted):
    """Clusters by the nearest centroid, numbered by size, from 0.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    centroids : μ (k, p), in the units of x; for modes, 1 for the level of each column, else 0.
    counts : (k,) rows of each cluster in the fit.
    variance : (k, p) of each feature within clusters.
    groups : (p,) the variable of which each column of x is a level; (0,) for `kmeans`.
    inertia : Σ of squared distances of rows to their centroids; for modes, Σ of mismatches.
    rounds, converged : of Lloyd's rounds.
    moving : rows nearer to another centroid that stay where they are, see `lloyd`, as a multiple of
        `min_cell`.
    dropped : number of requested clusters that are missing.
    numbers : criterion of the number of clusters, a row per number; empty if it was given.
    left : sites that left during the rounds, which ended there; they are in the clusters.
    order : (k,) place of each cluster in the fit's own order: in a tie, a row goes to the first of
        them, in the fit's counts and in `predict`; (0,) is the order of size.
    """

    features: tuple[str, ...]
    centroids: Array
    counts: Array
    variance: Array
    groups: Array
    inertia: float
    rounds: int
    converged: bool
    moving: int
    dropped: int
    numbers: tuple[Row, ...] = ()
    left: tuple[str, ...] = ()
    order: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def cluster_centers_(self) -> Array:
        """The centroids μ (k, p), under scikit-learn's name."""
        return self.centroids

    @property
    def inertia_(self) -> float:
        """The sum of squares within clusters, under scikit-learn's name."""
        return self.inertia

    @property
    def n_iter_(self) -> int:
        """The rounds, under scikit-learn's name."""
        return self.rounds

    def predict(self, x: Array) -> Array:
        """Return the cluster number (n,), from 0, of each row of x (n, p); see `order`."""
        space, at = Space(groups=self.groups), np.arange(len(self.centroids))
        if len(self.order):
            at = np.argsort(self.order)
        return at[nearest(space.points(np.asarray(x, float)), space.points(self.centroids[at]))]

    def transform(self, x: Array) -> Array:
        """Return the distance (n, k) of each row of x (n, p) to each centroid.

        For modes, the number of columns that differ.
        """
        space = Space(groups=self.groups)
        z, at = space.points(np.asarray(x, float)), space.points(self.centroids)
        squares = np.stack([((z - c) ** 2).sum(axis=1) for c in at], axis=1)
        return np.rint(squares) if len(self.groups) else np.sqrt(squares)

    def summary(self) -> list[Row]:
        """Return a row per cluster: its number, rows, share of all rows, and its centroid."""
        total = self.counts.sum()
        return [
            {"cluster": j, "n": int(n), "share": float(n / total)}
            | dict(zip(self.features, at.tolist(), strict=True))
            for j, (n, at) in enumerate(zip(self.counts, self.centroids, strict=True))
        ]

    def cautions(self) -> tuple[str, ...]:
        """Return the number of missing clusters, and the sites that left."""
        k, away = len(self.counts), ", ".join(self.left)
        notes = (dropped_note(k, k + self.dropped),) if self.dropped else ()
        note = f"{away} left during the rounds, which ended with the last complete round"
        return (*notes, note) if away else notes

    def arrays(self) -> dict[str, Array]:
        """Return centroids, counts, variances, groups and order."""
        return {
            "centroids": self.centroids,
            "counts": self.counts,
            "variance": self.variance,
            "groups": self.groups,
            "order": self.order,
        }

    def meta(self) -> dict[str, Any]:
        """Return names, the end of the fit, and the criterion of the number of clusters."""
        return {
            "features": list(self.features),
            "inertia": self.inertia,
            "rounds": self.rounds,
            "converged": self.converged,
            "moving": self.moving,
            "dropped": self.dropped,
            "numbers": list(self.numbers),
            "left": list(self.left),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Clusters:
        """Rebuild the model from what `arrays` and `meta` returned."""
        fields: dict[str, Any] = {**meta, **arrays}
        fields |= {k: tuple(meta[k]) for k in ("features", "numbers", "left")}
        return cls(**fields)
