"""The result of a log-rank test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcohort.arrays import Array
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, eq=False)
class LogRankModel(Fitted):
    """A test of equal death rates in groups.

    Attributes
    ----------
    by, groups : the column, and its g levels that are compared.
    records, observed : (g,), each group's records and deaths; −1 if the records would show a small
        number of censored records, in this group or another.
    expected : (g,), expected deaths if rates were equal.
    chi2, df, p : the test; nan if nothing can be compared.
    """

    by: str
    groups: tuple[str, ...]
    records: Array
    observed: Array
    expected: Array
    chi2: float
    df: int
    p: float

    def summary(self) -> list[Row]:
        """Return a row for each group, and a last row of all with the test."""
        records = [n if n >= 0 else None for n in self.records.tolist()]
        counts = (self.observed, self.expected)
        values = zip(self.groups, records, *(c.tolist() for c in counts), strict=True)
        names = ("group", "records", "observed", "expected")
        rows: list[Row] = [
            {**dict(zip(names, row, strict=True)), "chi2": None, "df": None, "p": None}
            for row in values
        ]
        every = None if None in records else sum(n or 0 for n in records)
        total = ("all", every, *(c.sum().item() for c in counts))
        test = {"chi2": self.chi2, "df": self.df, "p": self.p}
        return [*rows, {**dict(zip(names, total, strict=True)), **test}]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        return {"records": self.records, "observed": self.observed, "expected": self.expected}

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        test = {k: v if math.isfinite(v) else None for k, v in (("chi2", self.chi2), ("p", self.p))}
        return {"by": self.by, "groups": list(self.groups), "df": self.df, **test}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> LogRankModel:
        """Build the model from saved arrays and values."""
        chi2, p = (math.nan if meta[k] is None else float(meta[k]) for k in ("chi2", "p"))
        return cls(
            by=str(meta["by"]), groups=tuple(meta["groups"]), df=int(meta["df"]), chi2=chi2, p=p,
            **{k: arrays[k] for k in ("records", "observed", "expected")},
        )  # fmt: skip
