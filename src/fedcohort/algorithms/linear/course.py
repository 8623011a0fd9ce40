"""The coefficients along a path of penalties, and the error that each of them makes."""

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
    fitted : (L,) mean square of the residuals of the rows that were fitted.
    chosen : which of the penalties is the model's.
    error, spread : (L,) mean square of those of the rows held out, and its standard error over
        folds; empty where nothing was held out.
    rule : how it was chosen; "given" where the user did.
    folds : what a fold is, "centre" or "rows"; "" without.
    n_folds : how many.
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
        """The one that was chosen."""
        return float(self.penalties[self.chosen])

    @property
    def nonzero(self) -> Array:
        """How many coefficients (L,) are not 0."""
        return (self.coefficients != 0).sum(axis=1)

    def rows(self) -> list[Row]:
        """Return one row per penalty: its coefficients that are not 0, and its errors."""
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
