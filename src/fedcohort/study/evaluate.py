"""How good a fit is on rows that it has never seen.

The test rows are one blind table, as D6.2 (section 8.3.2) has it; where sites are natural, each
site's own test rows are judged as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Survival
from fedcohort.metrics import brier, calibration, concordance, resampled
from fedcohort.protocol import Row, SettingError
from fedcohort.study.engine import Run


@dataclass(frozen=True)
class Yardstick:
    """What the metrics need besides the predictions: outcomes, and the grid that they share.

    Attributes
    ----------
    train_time, train_event : of all training rows, for the censoring distribution.
    test : the blind rows.
    time, event : their outcome.
    times : (m,) where the Brier score is evaluated, inside the follow-up.
    tau : Uno's C counts pairs whose earlier time is below it.
    horizon : where calibration is shown: the median time of the training events.
    """

    train_time: Array
    train_event: Array
    test: pd.DataFrame
    time: Array
    event: Array
    times: Array
    tau: float
    horizon: float

    @classmethod
    def of(cls, train: pd.DataFrame, test: pd.DataFrame, outcome: Any) -> Yardstick:
        """Return the yardstick for training and test rows with a survival outcome."""
        if not isinstance(outcome, Survival):
            raise SettingError("this version evaluates survival studies only.")
        a, b = (np.asarray(train[c], float) for c in outcome.columns)
        t, e = (np.asarray(test[c], float) for c in outcome.columns)
        seen, died = b > 0, e > 0
        return cls(
            a, seen, test, t, died,
            brier.evaluation_times(a, seen, t, died),
            float(np.quantile(a[seen], 0.9)),
            float(np.median(a[seen])),
        )  # fmt: skip

    def on(self, rows: Array) -> Yardstick:
        """Return the yardstick for some of the test rows."""
        return Yardstick(
            self.train_time, self.train_event, self.test[rows].reset_index(drop=True),
            self.time[rows], self.event[rows], self.times, self.tau, self.horizon,
        )  # fmt: skip


@dataclass(frozen=True)
class Predicted:
    """What a fit says of the test rows: log ``risk`` (n,), ``surv`` (n, m) at the yard's times.

    ``surv`` is None where no wanted metric takes it.
    """

    risk: Array
    surv: Array | None

    @classmethod
    def of(cls, run: Run, yard: Yardstick, wanted: tuple[str, ...]) -> Predicted:
        """Return what a fit predicts, as far as the wanted metrics need it."""
        x = run.design.matrix(yard.test)
        curves = {"ibs", "d_calibration_p"} & set(wanted)
        return cls(
            run.model.predict(x), run.model.predict_survival(x, yard.times) if curves else None
        )


def judge(said: Predicted, yard: Yardstick, wanted: tuple[str, ...]) -> dict[str, float | None]:
    """Return the wanted metrics of predictions; None where one is not defined."""
    risk, surv = said.risk, said.surv
    found: dict[str, float] = {}
    if "c_index" in wanted:
        found["c_index"] = concordance.harrell(risk, yard.time, yard.event)
    if "uno_c" in wanted:
        found["uno_c"] = concordance.uno(
            yard.train_time, yard.train_event, yard.time, yard.event, risk, yard.tau
        )
    if surv is not None:
        if "ibs" in wanted:
            found["ibs"] = brier.integrated_brier(
                yard.train_time, yard.train_event, yard.time, yard.event, surv, yard.times
            )
        if "d_calibration_p" in wanted:
            own, died = calibration.own_survival(surv, yard.times, yard.time, yard.event)
            found["d_calibration_p"] = calibration.d_calibration(own, died).p
    if "calibration_slope" in wanted:
        found["calibration_slope"] = calibration.calibration_slope(
            risk, yard.time, yard.event
        ).value
    return {k: (float(v) if np.isfinite(v) else None) for k, v in found.items()}


def calibration_groups(run: Run, yard: Yardstick, n_groups: int = 5) -> list[Row]:
    """Return predicted against observed survival at the horizon, by group of predicted risk."""
    surv = run.model.predict_survival(run.design.matrix(yard.test), np.array([yard.horizon]))
    groups = calibration.calibration_groups(
        surv[:, 0], yard.time, yard.event, yard.horizon, n_groups
    )
    return [
        {"time": yard.horizon, "group": i, "predicted": float(p), "n": int(n)}
        | {"observed": float(o) if np.isfinite(o) else None}
        for i, (p, o, n) in enumerate(zip(*groups, strict=True))
    ]


def judge_draws(
    said: Predicted, yard: Yardstick, weights: Array, wanted: tuple[str, ...]
) -> dict[str, Array]:
    """Return the wanted metrics at each of B weightings (B, n) of the test rows: (B,) each.

    The p-value of D-calibration is left out: records that a bootstrap repeats look miscalibrated.
    """
    risk, surv = said.risk, said.surv
    seen = (risk, yard.time, yard.event)
    train = (yard.train_time, yard.train_event)
    found: dict[str, Array] = {}
    if "c_index" in wanted:
        found["c_index"] = resampled.harrell(weights, *seen)
    if "uno_c" in wanted:
        found["uno_c"] = resampled.uno(weights, *train, yard.time, yard.event, risk, yard.tau)
    if "ibs" in wanted and surv is not None:
        found["ibs"] = resampled.integrated_brier(
            weights, *train, yard.time, yard.event, surv, yard.times
        )
    if "calibration_slope" in wanted:
        found["calibration_slope"] = resampled.calibration_slope(weights, *seen)
    return found
