"""Fitted chained equations: draws of the coefficients of each column's regression."""

from __future__ import annotations

import math
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
    sweeps, drift, limit : of the chains: their sweeps, the drift of the last ones (program, eq. 4),
        and the largest drift of settled chains; NaN with fewer than 3 sweeps.
    still : columns whose missing entries the chains did not draw, since few records lack them.
    """

    features: tuple[str, ...]
    chain: Chain
    rows: int
    seed: int
    sweeps: int
    drift: float
    limit: float
    still: tuple[str, ...] = ()

    @property
    def drawing(self) -> Chain:
        """The distribution of missing entries, with all draws of its parameters."""
        return self.chain

    @property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng((self.seed, 0x6D696365))

    def cautions(self) -> tuple[str, ...]:
        """Return whether the chains had not settled, and how many sweeps to take."""
        if not self.drift > self.limit:
            return ()
        return (
            f"The chains had not settled after {self.sweeps} sweeps: the means of their "
            f"coefficients still moved (drift {self.drift:.1f}; at rest about 1, at most "
            f"{self.limit:.1f}). Set sweeps to {2 * self.sweeps}.",
        )

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
            "sweeps": self.sweeps, "limit": self.limit,
            "drift": None if math.isnan(self.drift) else self.drift,
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
            sweeps=int(meta["sweeps"]),
            drift=math.nan if meta["drift"] is None else float(meta["drift"]),
            limit=float(meta["limit"]),
            still=tuple(meta["still"]),
        )
