"""A fitted multivariate normal distribution of columns with missing entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.imputing.normal import Normals
from fedcohort.data.prepare import Head, heads_from, plain_heads
from fedcohort.numerics import gaussian
from fedcohort.protocol import Fitted, NotSupported


@dataclass(frozen=True, kw_only=True, eq=False)
class JointNormalModel(Fitted):
    """x ~ N(μ, Σ).

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    heads : of the columns.
    mean, covariance : μ (p,) and Σ (p, p) at the maximum of the likelihood.
    draws : draws of both from their posterior.
    rows : at all sites.
    rounds : of EM.
    """

    features: tuple[str, ...]
    heads: tuple[Head, ...]
    mean: Array
    covariance: Array
    draws: Normals
    rows: int
    rounds: int

    @property
    def drawing(self) -> Normals:
        """The distribution of missing entries, with all draws of its parameters."""
        return self.draws

    def impute(self, x: Array) -> Array:
        """Return x (n, p) with the mean of its missing entries given the others."""
        return gaussian.filled(np.asarray(x, float), self.mean, self.covariance)

    def imputed_sd(self, x: Array) -> Array:
        """Return the standard deviation of each missing entry given the others (n, p), else 0."""
        return gaussian.conditional_sd(np.asarray(x, float), self.covariance)

    def impute_drawn(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with one draw of its missing entries given the others.

        Raises
        ------
        NotSupported : the fit has no draws of μ and Σ.
        """
        if not self.draws.draws:
            raise NotSupported("this fit has no draws of its parameters; fit it with draws: 10.")
        return self.draws.drawn(np.asarray(x, float), rng)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n rows drawn from the distribution (n, p), levels by their probabilities."""
        whole = Normals(self.heads, self.mean[None], self.covariance[None])
        return whole.drawn(np.full((n, len(self.mean)), np.nan), rng)

    def arrays(self) -> dict[str, Array]:
        """Return means and covariances."""
        return {
            "mean": self.mean, "covariance": self.covariance, "drawn_mean": self.draws.mean,
            "drawn_covariance": self.draws.covariance,
        }  # fmt: skip

    def meta(self) -> dict[str, Any]:
        """Return names, columns, and the end of the fit."""
        return {
            "features": list(self.features), "heads": plain_heads(self.heads),
            "rows": self.rows, "rounds": self.rounds,
        }  # fmt: skip

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        heads = heads_from(meta["heads"])
        return cls(
            features=tuple(meta["features"]),
            heads=heads,
            mean=arrays["mean"],
            covariance=arrays["covariance"],
            draws=Normals(heads, arrays["drawn_mean"], arrays["drawn_covariance"]),
            rows=int(meta["rows"]),
            rounds=int(meta["rounds"]),
        )
