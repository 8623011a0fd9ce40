"""Cohorts that ship with scikit-survival and lifelines, each with its Efron Cox fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from lifelines.datasets import load_rossi
from sksurv.datasets import load_gbsg2, load_whas500
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv


class Cohort(NamedTuple):
    """Records with the risk that a Cox model gives them, and that model."""

    x: np.ndarray
    time: np.ndarray
    event: np.ndarray
    risk: np.ndarray
    model: CoxPHSurvivalAnalysis

    @property
    def y(self):
        return Surv.from_arrays(self.event, self.time)

    def rows(self, chosen):
        return Cohort(*(a[chosen] for a in self[:4]), self.model)

    def surv(self, times):
        curves = self.model.predict_survival_function(self.x)
        return np.stack([np.atleast_1d(curve(times)) for curve in curves])

    def halves(self):
        """Two thirds to learn G from, and the records among the others that it covers."""
        order = np.random.default_rng(7).permutation(len(self.time))
        cut = 2 * len(order) // 3
        train, rest = self.rows(order[:cut]), self.rows(order[cut:])
        return train, rest.rows(rest.time < train.time.max())


def fitted(frame: pd.DataFrame, time, event) -> Cohort:
    x = pd.get_dummies(frame, drop_first=True).to_numpy(float)
    time, event = np.asarray(time, float), np.asarray(event, bool)
    model = CoxPHSurvivalAnalysis(ties="efron").fit(x, Surv.from_arrays(event, time))
    return Cohort(x, time, event, model.predict(x), model)


@pytest.fixture(scope="session")
def gbsg2() -> Cohort:
    x, y = load_gbsg2()
    return fitted(x, y["time"], y["cens"])


@pytest.fixture(scope="session")
def gbsg2_graded() -> Cohort:
    """GBSG2 with the tumour grade as a number, as in scikit-survival's manual."""
    x, y = load_gbsg2()
    return fitted(x.assign(tgrade=x["tgrade"].map(len).astype(int)), y["time"], y["cens"])


@pytest.fixture(scope="session")
def whas500() -> Cohort:
    x, y = load_whas500()
    return fitted(x.astype(float), y["lenfol"], y["fstat"])


@pytest.fixture(scope="session")
def rossi() -> Cohort:
    frame = load_rossi()
    return fitted(frame.drop(columns=["week", "arrest"]), frame["week"], frame["arrest"])
