"""One fit over several imputed tables: draw missing values, fit each table, pool the coefficients.

    1  The design of the analysis, and that of the imputation: the same columns and the outcome as
       features. Of survival these are the event and the cumulative hazard at the time.
    2  The imputer (`mice` or `joint_normal`) draws its parameters, once for each table.
    3  Each site draws its missing values by them (`data.imputing.view`); no value leaves it.
    4  The method is fitted to each of the M tables, and Rubin's rules pool the fits.

Revealed: by the imputer what its page says; by the method what its page says, M times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.data import prepare
from fedcohort.data.imputing.pooled import Pooled
from fedcohort.data.imputing.view import ImputedView
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.prepare import IMPUTERS, TABLES, Design, NumberColumn
from fedcohort.protocol import DataError, Federation, Fitted, Method, SettingError, Task, registry
from fedcohort.protocol.step import Step

#: Method of the cumulative hazard of step 1.
HAZARD = "nelson_aalen"
#: Settings that give a column another part than that of a covariate.
ROLES = ("offset", "weights", "strata")


@dataclass(frozen=True)
class Asked:
    """Multiple imputation as the preprocessing asks for it.

    Attributes
    ----------
    imputer : the method that draws.
    tables : M.
    """

    imputer: Method
    tables: int

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Asked | None:
        """Return what options of the preprocessing ask for; None for another imputation."""
        if table.get("impute") != "multiple":
            return None
        return cls(
            registry.find(table.get("imputer", IMPUTERS[0])),
            int(table.get("imputations", TABLES)),
        )

    @property
    def steps(self) -> tuple[Step[..., Any], ...]:
        """Return the steps of the imputation."""
        return (*self.imputer.steps, *registry.find(HAZARD).steps)


def check(config: Any, *, private: bool) -> None:
    """Refuse a fit that cannot impute several tables.

    Raises
    ------
    SettingError : a private fit, or one with an offset, weights or strata.
    """
    if private:
        raise SettingError(
            "impute is 'multiple', which has no private fit (dp). Take impute 'mean' or 'median'."
        )
    if used := [role for role in ROLES if getattr(config, role, "")]:
        raise SettingError(
            f"impute is 'multiple', which does not support the setting {used[0]!r}. Leave it out, "
            f"or take impute 'iterative'."
        )


def fit_tables(
    fed: Federation,
    asked: Asked,
    design: Design,
    dictionary: Any,
    task: Task,
    fit: Callable[[Federation], Fitted],
) -> Fitted:
    """Return the pooled fit of M imputed tables.

    Parameters
    ----------
    fed : sites that hold data frames.
    design : of the analysis.
    dictionary : of the columns that fits see.
    task : of the analysis.
    fit : (sites with a completed table) → model.

    Raises
    ------
    DataError : there is no outcome, or no missing value could be drawn.
    """
    if design.outcome is None:
        raise DataError("impute is 'multiple', which needs an outcome. Name one.")
    features = imputation_design(fed, design.outcome, dictionary, task)
    imputer = asked.imputer
    own = replace(
        task, kind=imputer.tasks[0], features=features.features, views=features.views,
        pairs=features.pairs, heads=features.heads, origin=features.origin, outcome="", levels=(),
    )  # fmt: skip
    config = imputer.configure({"draws": asked.tables})
    model: Any = imputer.fit(fed.through(features), config, own)
    models = tuple(
        fit(fed.through(ImputedView(design, features, model.drawing.only(m), task.seed, m)))
        for m in range(asked.tables)
    )
    return Pooled.of(models, imputer.name, model.cautions())


def imputation_design(fed: Federation, outcome: Outcome, dictionary: Any, task: Task) -> Design:
    """Return the design of the imputation: all covariates and the outcome, nothing filled."""
    options: dict[str, Any] = {"scale": "standard", "impute": "none", "min_cell": task.min_cell}
    if not isinstance(outcome, Survival):
        return prepare.fit_design(fed, dictionary, None, **options)
    design = prepare.fit_design(fed, dictionary, outcome, **options)
    hazard = registry.find(HAZARD)
    bare = Design(columns=(), outcome=replace(outcome, entry=""), dropped={})
    own = replace(task, features=(), views=(), pairs=(), heads=(), origin=None)
    curve = hazard.fit(fed.through(bare), hazard.configure({}), own)
    times = np.asarray(curve.arrays()["times"], float)
    alive = curve.predict_survival(np.zeros((1, 0)), times)[0]
    level = -np.log(np.maximum(alive, 1e-6))
    spread = float(level.std()) or 1.0
    known = np.r_[0.0, times], np.r_[0.0, level / spread]
    columns = (
        NumberColumn(
            name=outcome.time, type="number", fill=0.0,
            knots=tuple(known[0].tolist()), shares=tuple(known[1].tolist()),
        ),
        NumberColumn(name=outcome.event, type="binary", fill=0.0),
    )  # fmt: skip
    return replace(design, columns=(*design.columns, *columns), outcome=None)
