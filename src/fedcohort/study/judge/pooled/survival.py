"""Survival: discrimination, Brier score and calibration of predicted risks and curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Survival
from fedcohort.metrics import calibration, decision, resampled
from fedcohort.metrics.survival import brier, concordance
from fedcohort.metrics.survival.antolini import antolini
from fedcohort.metrics.survival.kaplan_meier import round_time
from fedcohort.protocol import Row
from fedcohort.study.judge.leading import C_INDEX, Outcomes
from fedcohort.study.judge.pooled.base import (
    Metrics,
    Untaught,
    constant,
    decision_rows,
    observed,
    usual_rows,
)
from fedcohort.study.run.engine import Problem, Run

#: Metrics that need survival curves.
CURVES = frozenset({"ibs", "d_calibration_p", "antolini_c"})
#: Groups of similar predictions.
GROUPS = 5
#: Metrics of equal predictions for all patients.
CHANCE = {"c_index": 0.5, "uno_c": 0.5, "antolini_c": 0.5}


@dataclass(frozen=True)
class Predicted:
    """Predictions for the test rows: ``risk`` (n,), log hazards; ``surv`` (n, m), survival.

    ``surv`` is at the judge's times, and None if no wanted metric needs it.
    """

    risk: Array
    surv: Array | None


@dataclass(frozen=True)
class Yardstick(Untaught):
    """The outcomes of the test rows, and the time grid of all metrics.

    Attributes
    ----------
    train_time, train_event : of all training rows, for the censoring distribution; in a private
        study of the test rows, like ``tau`` and ``horizon``.
    time, event : of the test rows.
    times : (m,) times of the Brier score, inside the follow-up.
    tau : Uno's C counts pairs whose earlier time is below it.
    horizon : time of calibration: the study's, or else a round time near the median training event.
    min_cell : smallest published count of an outcome, except 0.
    """

    train_time: Array
    train_event: Array
    test: pd.DataFrame
    time: Array
    event: Array
    times: Array
    tau: float
    horizon: float
    min_cell: int

    leading: ClassVar[str] = C_INDEX.metric

    @classmethod
    def of(
        cls, problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
    ) -> Self:
        """See `Judge`."""
        train, outcome = usual_rows(problem, test), cast("Survival", problem.outcome)
        a, b = (np.asarray(train[c], float) for c in (outcome.time, outcome.event))
        t, e = (np.asarray(test[c], float) for c in (outcome.time, outcome.event))
        seen, died = b > 0, e > 0
        ends = a[seen] if seen.any() else a
        return cls(
            a, seen, test, t, died,
            brier.evaluation_times(a, seen, t, died),
            float(np.quantile(ends, 0.9)),
            horizon or round_time(float(np.median(ends)), float(a.max())),
            problem.min_cell,
        )  # fmt: skip

    @property
    def can_rank(self) -> bool:
        """Whether there are enough events to publish the C-index."""
        return C_INDEX.may_be_shown(Outcomes(self.time, self.event), self.min_cell)

    def on(self, rows: Array) -> Yardstick:
        """See `Judge`."""
        return Yardstick(
            self.train_time, self.train_event, self.test[rows].reset_index(drop=True),
            self.time[rows], self.event[rows], self.times, self.tau, self.horizon,
            self.min_cell,
        )  # fmt: skip

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Predicted:
        """See `Judge`."""
        x = run.design.matrix(self.test)
        curves = run.model.predict_survival(x, self.times) if CURVES & set(wanted) else None
        return Predicted(run.model.log_hazard(x), curves)

    def metrics(self, said: Predicted, wanted: tuple[str, ...]) -> Metrics:
        """See `Judge`."""
        risk, surv = said.risk, said.surv
        found: dict[str, float] = {}
        if "c_index" in wanted:
            found["c_index"] = concordance.harrell(risk, self.time, self.event)
        if "uno_c" in wanted:
            found["uno_c"] = concordance.uno(
                self.train_time, self.train_event, self.time, self.event, risk, self.tau
            )
        if surv is not None:
            if "ibs" in wanted:
                found["ibs"] = brier.integrated_brier(
                    self.train_time, self.train_event, self.time, self.event, surv, self.times
                )
            if "d_calibration_p" in wanted:
                own, died = calibration.own_survival(surv, self.times, self.time, self.event)
                found["d_calibration_p"] = calibration.d_calibration(own, died).p
            if "antolini_c" in wanted:
                found["antolini_c"] = float(antolini(surv, self.times, self.time, self.event))
        if "calibration_slope" in wanted:
            slope = calibration.calibration_slope(risk, self.time, self.event)
            found["calibration_slope"] = slope.value
        return {k: (float(v) if np.isfinite(v) else None) for k, v in found.items()}

    def draws(self, said: Predicted, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """Return the wanted metrics at each of B weightings (B, n) of the test rows: (B,) each.

        D-calibration's p-value is left out: repeated records in a bootstrap look miscalibrated.
        """
        risk, surv = said.risk, said.surv
        seen = (risk, self.time, self.event)
        train = (self.train_time, self.train_event)
        found: dict[str, Array] = {}
        if "c_index" in wanted:
            found["c_index"] = resampled.harrell(weights, *seen)
        if "uno_c" in wanted:
            found["uno_c"] = resampled.uno(weights, *train, self.time, self.event, risk, self.tau)
        if "ibs" in wanted and surv is not None:
            found["ibs"] = resampled.integrated_brier(
                weights, *train, self.time, self.event, surv, self.times
            )
        if "antolini_c" in wanted and surv is not None:
            found["antolini_c"] = antolini(surv, self.times, self.time, self.event, weights)
        if "calibration_slope" in wanted:
            found["calibration_slope"] = resampled.calibration_slope(weights, *seen)
        return found

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of equal predictions for all patients."""
        return constant(CHANCE, weights)

    def groups(self, run: Run) -> list[Row]:
        """Return predicted against observed survival at the horizon, by group of predictions."""
        surv = run.model.predict_survival(run.design.matrix(self.test), np.array([self.horizon]))
        groups = calibration.calibration_groups(
            surv[:, 0], self.time, self.event, self.horizon, GROUPS, self.min_cell
        )
        return [
            {"time": self.horizon, "group": i, "predicted": float(p), "n": int(n)}
            | observed(o, low, high)
            for i, (p, o, n, low, high) in enumerate(zip(*groups, strict=True))
        ]

    def decision(self, run: Run) -> list[Row]:
        """Return the decision curve of the predicted risk of an event by the horizon."""
        surv = run.model.predict_survival(run.design.matrix(self.test), np.array([self.horizon]))
        found = decision.of_survival(surv[:, 0], self.time, self.event, self.horizon, self.min_cell)
        return decision_rows(found, self.horizon)
