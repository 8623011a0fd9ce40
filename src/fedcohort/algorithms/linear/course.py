"""Path of penalties: coefficients and errors of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Row


@dataclass(frozen=True, eq=False)
class Course:
    """A path of L penalties, in falling order.

    Attributes
    ----------
    penalties : (L,), l1 + l2.
    intercepts, coefficients : (L,) and (L, p).
    fitted : (L,) mean squared residual of the fitted rows.
    chosen : number of the model's penalty.
    error, spread : (L,) mean squared residual of the held-out rows, and its standard error over
        folds; empty without held-out rows.
    rule : rule of the choice; "given" if set by the user.
    folds : kind of fold, "centre" or "rows"; "" without folds.
    n_folds : number of folds.
    """

    penalties: Array
    intercepts: Array
    coefficients: Array
    fitted: Array
    chosen: int
    error: Array = field(default_factory=lambda: np.zeros(0))
    spread: Array = field(default_factory=lambda: np.zeros(0))
    rule: str = "given"
    folds: str = ""
    n_folds: int = 0

    @property
    def penalty(self) -> float:
        """The chosen penalty."""
        return float(self.penalties[self.chosen])

    @property
    def nonzero(self) -> Array:
        """Numbers (L,) of nonzero coefficients."""
        return (self.coefficients != 0).sum(axis=1)

    def rows(self) -> list[Row]:
        """Return one row per penalty: its number of nonzero coefficients, and its errors."""
        columns = {"penalty": self.penalties, "nonzero": self.nonzero, "fitted_error": self.fitted}
        if len(self.error):
            columns |= {"mean_squared_error": self.error, "standard_error": self.spread}
        lists = [column.tolist() for column in columns.values()]
        return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]

    def arrays(self) -> dict[str, Array]:
        """Return everything numeric, by name."""
        return {f"path_{name}": getattr(self, name) for name in NUMERIC}

    def meta(self) -> dict[str, Any]:
        """Return the rest."""
        return {name: getattr(self, name) for name in ("chosen", "rule", "folds", "n_folds")}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Course:
        """Rebuild the path from what `arrays` and `meta` returned."""
        return cls(**{name: np.asarray(arrays[f"path_{name}"]) for name in NUMERIC}, **meta)


NUMERIC = ("penalties", "intercepts", "coefficients", "fitted", "error", "spread")
