"""Feedback as shown: each site's anomalies, and the columns it would gain from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True)
class Remark:
    """One finding.

    Attributes
    ----------
    site, rule, column : site, name of the rule, and column; "" for rows.
    about : the other column, the level, the units, or the outcome; "" if none.
    size : size in the unit of the rule; see `rules.Finding`, and for an unrecorded column eq. (1)
        of `gains`.
    line : the finding in words.
    low, high : interval of the size of an unrecorded column; None for others.
    """

    site: str
    rule: str
    column: str
    about: str
    size: float
    line: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Feedback(Fitted):
    """Findings of all sites about themselves.

    Attributes
    ----------
    sites : the sites that were compared.
    few : those of them with too few rows.
    remarks : by site: anomalies, then unrecorded columns, the most useful first.
    """

    sites: tuple[str, ...]
    few: tuple[str, ...]
    remarks: tuple[Remark, ...]

    def of(self, site: str) -> tuple[Remark, ...]:
        """Return the remarks for one site."""
        return tuple(r for r in self.remarks if r.site == site)

    def summary(self) -> list[Row]:
        """Return a row per remark."""
        return [asdict(r) for r in self.remarks]

    def cautions(self) -> tuple[str, ...]:
        """Return the sites with too few rows."""
        if not self.few:
            return ()
        return (f"too few rows to be compared: {', '.join(self.few)}",)

    def arrays(self) -> dict[str, Array]:
        """Return the sizes (r,) of the remarks."""
        return {"size": np.array([r.size for r in self.remarks], float)}

    def meta(self) -> dict[str, Any]:
        """Return everything except the sizes."""
        rest = [{k: v for k, v in asdict(r).items() if k != "size"} for r in self.remarks]
        return {"sites": list(self.sites), "few": list(self.few), "remarks": rest}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Feedback:
        """Rebuild the feedback from what `arrays` and `meta` returned."""
        pairs = zip(meta["remarks"], arrays["size"].tolist(), strict=True)
        remarks = tuple(Remark(**rest, size=size) for rest, size in pairs)
        return cls(tuple(meta["sites"]), tuple(meta["few"]), remarks)
