"""Fitted Gaussian copula: marginals, and the correlation of latent normals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import ndtr, ndtri

from fedcohort.algorithms.copula.layout import Layout
from fedcohort.arrays import Array
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, kw_only=True, eq=False)
class CopulaModel(Fitted):
    """Rows whose latent normals have one correlation matrix.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    place, first, number : see `Layout`.
    correlation : R (d, d).
    share : of rows with 1, among those where it is seen (d,); ½ for numbers.
    missing : share of rows without the value (d,).
    edges, below : of each number, points of x and the share of rows below (a, k + 1); points 0 and
        1 if x has shares already.
    unknown : number of pairs of normals whose correlation may not be shown, which is 0.
    """

    features: tuple[str, ...]
    place: Array
    first: Array
    number: Array
    correlation: Array
    share: Array
    missing: Array
    edges: Array
    below: Array
    unknown: int

    @property
    def layout(self) -> Layout:
        """Places of the latent normals."""
        return Layout(self.place, self.first, self.number.astype(bool))

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n rows (n, p); missing entries, drawn by column, are NaN."""
        layout = self.layout
        values, vectors = np.linalg.eigh(self.correlation)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        z = rng.standard_normal((n, len(values))) @ root.T
        x = np.zeros((n, len(self.features)))
        numbers = np.flatnonzero(layout.number)
        for edges, below, j in zip(self.edges, self.below, numbers.tolist(), strict=True):
            x[:, self.place[j]] = np.interp(ndtr(z[:, j]), below, edges)
        yes = z > -ndtri(np.clip(self.share, 1e-12, 1.0 - 1e-12))
        for j in np.flatnonzero(layout.binary).tolist():
            earlier = x[:, self.first[j] : self.place[j]].any(axis=1)
            x[:, self.place[j]] = yes[:, j] & ~earlier
        for j in np.flatnonzero(self.place == self.first).tolist():
            group = self.place[self.first == self.first[j]]
            gone = rng.random(n) < self.missing[j]
            x[np.ix_(gone, group)] = np.nan
        return x

    def summary(self) -> list[Row]:
        """Return a row for each column: the one it goes with most, by the latent correlation."""
        off = np.where(self.layout.same(), 0.0, self.correlation)
        names = [self.features[j] for j in self.place.tolist()]
        best = np.abs(off).argmax(axis=1)
        return [
            {"column": name, "goes_with": names[b], "correlation": float(row[b])}
            for name, b, row in zip(names, best.tolist(), off, strict=True)
            if abs(row[b]) > 0
        ]

    def cautions(self) -> tuple[str, ...]:
        """Return a caution about pairs of columns without a correlation."""
        if not self.unknown:
            return ()
        return (f"{self.unknown} pairs of columns count as unrelated, because few rows have both",)

    def arrays(self) -> dict[str, Array]:
        """Return correlation, marginals and layout."""
        names = ("correlation", "share", "missing", "edges", "below", "place", "first", "number")
        return {name: getattr(self, name) for name in names}

    def meta(self) -> dict[str, Any]:
        """Return names, and the number of unknown pairs."""
        return {"features": list(self.features), "unknown": self.unknown}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        given: dict[str, Any] = {**arrays, **meta}
        given["features"] = tuple(given["features"])
        return cls(**given)
