"""The model of several imputed tables: one fitted model for each, read as one.

Coefficients are pooled by Rubin's rules (`rubin`). A prediction is the mean of the models'
predictions; of survival, the mean survival.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.imputing.rubin import Rubin
from fedcohort.protocol import Fitted, Row

#: Key of a saved model's values that says that it is pooled.
TABLES = "imputed_tables"


@dataclass(frozen=True, eq=False)
class Pooled(Fitted):
    """Models of M imputed tables, all of one class.

    Attributes
    ----------
    models : one for each table.
    imputer : name of the method that imputed.
    freedom : degrees of freedom of the residual without missing values; a saved model may not
        know them (`inference`).
    said : cautions of the imputer.
    """

    models: tuple[Fitted, ...]
    imputer: str
    freedom: float
    said: tuple[str, ...] = ()

    @classmethod
    def of(cls, models: Sequence[Fitted], imputer: str, said: Sequence[str] = ()) -> Self:
        """Return the model of the fits of M ≥ 2 tables."""
        freedom = min(model.inference().freedom for model in models)
        return cls(tuple(models), imputer, freedom, tuple(said))

    @cached_property
    def rubin(self) -> Rubin:
        """The pooled coefficients."""
        found = [model.inference() for model in self.models]
        return Rubin.of([one._replace(freedom=self.freedom) for one in found])

    @property
    def coef_(self) -> Array:
        """The pooled coefficients, without an intercept."""
        return self.rubin.values[[name != "intercept" for name in self.rubin.names]]

    def summary(self) -> list[Row]:
        """Return one row per covariate, with df and fmi, the fraction of missing information."""
        return [row for row in self.rubin.rows() if row["covariate"] != "intercept"]

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept by Rubin's rules, and the means of the models' other parameters."""
        tables = [
            {(r["name"], r.get("time")): r for r in model.parameters(times)}
            for model in self.models
        ]
        own = {row["covariate"]: row for row in self.rubin.rows()}
        rows: list[Row] = []
        for key, first in tables[0].items():
            if not all(key in table for table in tables):
                continue
            row = {k: first[k] for k in ("name", "time", "note") if k in first}
            row["value"] = float(np.mean([table[key]["value"] for table in tables]))
            if key[0] in own:
                kept = ("standard_error", "p", "low", "high")
                row |= {k: own[key[0]][k] for k in kept}
            rows.append(row)
        return rows

    def predict(self, x: Array) -> Array:
        """Return the mean of the models' predictions of each row of x (n, p)."""
        return np.mean([model.predict(x) for model in self.models], axis=0)

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return the mean of the models' P(T > t) for rows of x (n, p) at `times` (m,): (n, m)."""
        return np.mean([model.predict_survival(x, times) for model in self.models], axis=0)

    def log_hazard(self, x: Array) -> Array:
        """Return the mean of the models' log hazards of each row of x (n, p)."""
        return np.mean([model.log_hazard(x) for model in self.models], axis=0)

    def known_until(self, x: Array) -> Array:
        """Return the time (n,) up to which all models know the survival of rows of x (n, p)."""
        return np.min([model.known_until(x) for model in self.models], axis=0)

    def proportional_hazards(self) -> list[Row]:
        """Return nothing: the tests of single tables are not pooled."""
        return []

    def cautions(self) -> tuple[str, ...]:
        """Return the cautions of the imputer and of all models, each once."""
        own = (said for model in self.models for said in model.cautions())
        return tuple(dict.fromkeys((*self.said, *own)))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of all models; the times of the first as the model's own."""
        found = {
            f"table {m}/{name}": array
            for m, model in enumerate(self.models)
            for name, array in model.arrays().items()
        }
        times = found.get("table 0/times")
        return found if times is None else {**found, "times": times}

    def meta(self) -> dict[str, Any]:
        """Return the other values of all models."""
        freedom = self.freedom if math.isfinite(self.freedom) else None
        return {
            TABLES: [model.meta() for model in self.models], "imputer": self.imputer,
            "freedom": freedom, "said": list(self.said),
        }  # fmt: skip

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Raise: the class of the models is needed (`restored`)."""
        raise TypeError("a pooled model is restored with the class of its models")


def restored(kind: type[Fitted], arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Fitted:
    """Return a saved model of a class, or the pooled models of that class."""
    if TABLES not in meta:
        return kind.restore(arrays, meta)
    given: Sequence[Mapping[str, Any]] = meta[TABLES]
    models = tuple(
        kind.restore(
            {k.split("/", 1)[1]: a for k, a in arrays.items() if k.startswith(f"table {m}/")}, one
        )
        for m, one in enumerate(given)
    )
    freedom = math.inf if meta["freedom"] is None else float(meta["freedom"])
    return Pooled(models, str(meta["imputer"]), freedom, tuple(meta.get("said", ())))
