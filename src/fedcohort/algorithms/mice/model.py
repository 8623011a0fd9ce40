"""Fitted chained equations: draws of the coefficients of each column's regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.imputing.chained import Chain
from fedcohort.data.prepare import heads_from, plain_heads
from fedcohort.protocol import Fitted


@dataclass(frozen=True, kw_only=True, eq=False)
class MiceModel(Fitted):
    """Regressions of all columns on one another.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    chain : the regressions, with their draws.
    rows : records at all sites.
    seed : of the draws of `impute`.
    still : columns whose missing entries the chains did not draw, since few records lack them.
    """

    features: tuple[str, ...]
    chain: Chain
    rows: int
    seed: int
    still: tuple[str, ...] = ()

    @property
    def drawing(self) -> Chain:
        """The distribution of missing entries, with all draws of its parameters."""
        return self.chain

    @property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng((self.seed, 0x6D696365))

    def impute(self, x: Array) -> Array:
        """Return x (n, p) with the mean of its missing entries given the others."""
        return self.chain.mean(np.asarray(x, float), self._rng)

    def imputed_sd(self, x: Array) -> Array:
        """Return the standard deviation of each missing entry given the others (n, p), else 0."""
        return self.chain.sd(np.asarray(x, float), self._rng)

    def impute_drawn(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with one draw of its missing entries given the others."""
        return self.chain.drawn(np.asarray(x, float), rng)

    def arrays(self) -> dict[str, Array]:
        """Return the draws."""
        numbered = enumerate(self.chain.coefficients)
        used = {f"uses {j}": u for j, u in enumerate(self.chain.uses)}
        return {"spread": self.chain.spread} | {f"column {j}": c for j, c in numbered} | used

    def meta(self) -> dict[str, Any]:
        """Return names, columns and rows."""
        return {
            "features": list(self.features), "heads": plain_heads(self.chain.heads),
            "rows": self.rows, "seed": self.seed, "still": list(self.still),
        }  # fmt: skip

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        heads = heads_from(meta["heads"])
        coefficients = tuple(arrays[f"column {j}"] for j in range(len(heads)))
        uses = tuple(arrays[f"uses {j}"] for j in range(len(heads)))
        return cls(
            features=tuple(meta["features"]),
            chain=Chain(heads, uses, coefficients, arrays["spread"]),
            rows=int(meta["rows"]),
            seed=int(meta["seed"]),
            still=tuple(meta["still"]),
        )
