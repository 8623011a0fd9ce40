"""Virtual patients: rows drawn from a model, beside the training rows and the blind rows.

A model draws `TIMES` as many rows as it had training rows, at most `MOST`. Metrics are those of
`study.virtual.comparing`:

    marginal_error      mean over columns of the error of a column's distribution
    association_error   mean difference of correlations
    utility             C-index, AUC or R² of a model of virtual rows, on the blind rows
    utility_ratio       the same over that of a model of the training rows
    log_rank_p          log-rank test of virtual against blind rows
    distance_ratio      median distance to the nearest training row, over that of blind rows
    copies              share of virtual rows that equal a training row
    membership_auc      AUC of the nearest-record attack

In a private study none of them uses training rows, and those that need them are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedcohort.arrays import Array, ratio
from fedcohort.metrics import classes, classification, regression, resampled
from fedcohort.protocol import Row
from fedcohort.study.judge.leading import Outcomes
from fedcohort.study.judge.pooled.base import BesideTraining, Metrics, constant
from fedcohort.study.results.rows import UNDRAWN
from fedcohort.study.run.engine import Run
from fedcohort.study.virtual.comparing import Comparison
from fedcohort.study.virtual.drawing import Drawing

#: Rows that are drawn for each training row; the largest number of them.
TIMES, MOST = 4, 4_000
#: Metrics of a hospital without a model.
CHANCE = {"utility_ratio": 0.0, "membership_auc": 0.5, "copies": 0.0}


@dataclass(frozen=True)
class Virtual(BesideTraining):
    """The blind rows of one repeat, and what their metrics need.

    Attributes
    ----------
    outcome : among the columns of the rows, or None.
    seed : of the drawn rows.
    """

    leading: ClassVar[str] = "marginal_error"

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Comparison:
        """Return virtual rows beside the real ones."""
        drawing = Drawing(run.model, run.design, self.dictionary, self.outcome)
        virtual = drawing.table(min(TIMES * max(len(self.train), 1), MOST), self.seed)
        return Comparison.of(
            virtual, self.train, self.test, self.dictionary, drawing.drawn, self.seed
        )

    def metrics(self, said: Comparison, wanted: tuple[str, ...]) -> Metrics:
        """See `Judge`."""
        found = self.draws(said, np.ones((1, len(self.test))), wanted)
        shown = {k: float(v[0]) for k, v in found.items()}
        if "log_rank_p" in wanted and (test := said.log_rank) is not None:
            shown["log_rank_p"] = test.p
        if {"copies", "distance_ratio"} & {*wanted}:
            p = said.privacy
            shown |= {"copies": p.copied / max(p.rows, 1), "distance_ratio": p.ratio}
        return {m: shown[m] if np.isfinite(shown.get(m, np.nan)) else None for m in wanted}

    def draws(self, said: Comparison, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """See `Judge`."""
        found: dict[str, Array] = {}
        w = np.asarray(weights, float)
        if "marginal_error" in wanted:
            errors = said.marginal_errors(w)
            found["marginal_error"] = (
                errors.mean(axis=1) if errors.size else np.full(len(w), np.nan)
            )
        if "association_error" in wanted:
            found["association_error"] = said.association_errors(w)
        if {"utility", "utility_ratio"} & {*wanted} and said.outcome is not None:
            mine = self._utility(said, said.virtual_model, w)
            found["utility"] = mine
            if "utility_ratio" in wanted:
                found["utility_ratio"] = ratio(mine, self._utility(said, said.training_model, w))
        if "membership_auc" in wanted and said.privacy.attacks:
            found["membership_auc"] = said.membership(w)
        nothing = np.full(len(w), np.nan)
        return {m: found.get(m, nothing) for m in wanted if m not in UNDRAWN}

    def _utility(self, said: Comparison, run: Run | None, weights: Array) -> Array:
        """Return the leading metric (B,) of a model of the outcome, on the blind rows."""
        outcome = said.outcome
        if run is None or outcome is None:
            return np.full(len(weights), np.nan)
        seen = Outcomes.of(self.test, outcome, self.dictionary)
        f = seen.fits(run.model.predict(run.design.matrix(self.test)))
        if outcome.kind == "survival":
            return resampled.harrell(weights, f, seen.time, seen.y)
        if outcome.kind == "regression":
            return regression.METRICS["r2"](seen.y, f, weights)
        if seen.several:
            return classes.METRICS["auc"](np.asarray(seen.y, np.int64), f, weights)
        return classification.METRICS["auc"](seen.y, f, weights)

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of a hospital that draws no rows, of the metrics that it has."""
        return {k: v for k, v in constant(CHANCE, weights).items() if k in wanted}

    def groups(self, run: Run) -> list[Row]:
        """See `Judge`; nothing, as virtual rows predict nothing."""
        return []

    def decision(self, run: Run) -> list[Row]:
        """See `Judge`; nothing, as there is no risk."""
        return []
