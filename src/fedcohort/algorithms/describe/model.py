"""A description as shown: Table 1, histograms, correlations, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.describe.bins import Bars
from fedcohort.data.describe.pairs import Correlation
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True)
class Description(Fitted):
    """Published description of the sites' tables.

    Attributes
    ----------
    by, groups : the column of the groups, and its levels; empty without groups.
    min_cell : counts from 1 to `min_cell` − 1 are hidden.
    table : Table 1, a line for each number or level, site and group; see `lines.lines`.
    histograms : of numbers over all sites.
    correlation : Pearson's r over all sites; None if not requested.
    suppressed : number of hidden counts.
    refusals : variable, site, group, what is hidden there, and the rule.
    noise : largest standard deviation of a count's noise before rounding; None for an exact
        description.
    epsilon, delta : privacy budget; None for an exact description.
    """

    by: str
    groups: tuple[str, ...]
    min_cell: int
    table: list[Row]
    histograms: tuple[Bars, ...]
    correlation: Correlation | None
    suppressed: int
    refusals: tuple[Row, ...]
    noise: float | None = None
    epsilon: float | None = None
    delta: float | None = None

    def summary(self) -> list[Row]:
        """Return Table 1."""
        return self.table

    def arrays(self) -> dict[str, Array]:
        """Return the correlations."""
        return {"correlation": np.zeros((0, 0)) if self.correlation is None else self.correlation.r}

    def meta(self) -> dict[str, Any]:
        """Return everything except the correlations."""
        found = self.correlation
        return {
            "by": self.by,
            "groups": list(self.groups),
            "min_cell": self.min_cell,
            "table": self.table,
            "histograms": [h.to_dict() for h in self.histograms],
            "correlated": None if found is None else list(found.names),
            "refused": [] if found is None else [[*k, why] for k, why in found.refused.items()],
            "suppressed": self.suppressed,
            "refusals": list(self.refusals),
            "noise": self.noise,
            "epsilon": self.epsilon,
            "delta": self.delta,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Description:
        """Rebuild the description from what `arrays` and `meta` returned."""
        names, found = meta["correlated"], None
        if names is not None:
            refused = {(a, b): why for a, b, why in meta["refused"]}
            found = Correlation(tuple(names), arrays["correlation"], refused)
        return cls(
            by=meta["by"],
            groups=tuple(meta["groups"]),
            min_cell=int(meta["min_cell"]),
            table=list(meta["table"]),
            histograms=tuple(Bars.from_dict(h) for h in meta["histograms"]),
            correlation=found,
            suppressed=int(meta["suppressed"]),
            refusals=tuple(meta["refusals"]),
            noise=meta.get("noise"),
            epsilon=meta.get("epsilon"),
            delta=meta.get("delta"),
        )
