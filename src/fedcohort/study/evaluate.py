"""How good a fit is on rows that it has never seen.

The test rows are one blind table, as D6.2 (section 8.3.2) has it; where sites are natural, each
site's own test rows are judged as well. A judge holds what the metrics of a kind of task need
besides predictions, and is the same for every arm of a repeat:

    survival         `Yardstick`: train_time, train_event, test, time, event, times, tau, horizon
    classification   `Labels`: test, y (n,) 0/1; of a binary outcome
    regression       `Values`: test, y (n,), usual; of a continuous outcome or a count

All know `min_cell`: of fewer patients nothing is shown by itself.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Binary, Continuous, Count, Outcome, Survival
from fedcohort.data.targets import target_of
from fedcohort.metrics import classification, concordance, regression
from fedcohort.protocol import SettingError
from fedcohort.study.engine import Problem
from fedcohort.study.judges.base import Judge
from fedcohort.study.judges.classification import Labels
from fedcohort.study.judges.regression import Values
from fedcohort.study.judges.survival import Yardstick

__all__ = ["Judge", "Labels", "Values", "Yardstick", "check", "judge_of", "score"]


def check(outcome: Outcome | None) -> None:
    """Refuse an outcome that nothing can judge.

    Raises
    ------
    SettingError : it is a category of several classes, or there is none.
    """
    if not isinstance(outcome, (Survival, Binary, Continuous, Count)):
        kind = "no outcome" if outcome is None else f"a {type(outcome).__name__.lower()} outcome"
        raise SettingError(
            f"this version cannot evaluate a study with {kind}; give a survival, binary, "
            "continuous or count one."
        )


def judge_of(problem: Problem, test: pd.DataFrame) -> Judge:
    """Return the judge of test rows; `problem` holds the training rows, at all sites.

    Raises
    ------
    SettingError : nothing can judge the outcome.
    """
    outcome = problem.outcome
    check(outcome)
    if isinstance(outcome, (Survival, Continuous, Count)):
        train = problem.pooled().frames["pooled"]
        if isinstance(outcome, Survival):
            return Yardstick.of(train, test, outcome, problem.min_cell)
        return Values.of(train, test, outcome, problem.min_cell)
    assert isinstance(outcome, Binary)
    return Labels.of(test, outcome, problem.dictionary, problem.min_cell)


def score(problem: Problem, rows: pd.DataFrame, said: Array) -> float:
    """Return how good predictions (n,) of rows are: C-index, AUC or R²; chance where none is told.

    It is −inf for predictions beyond any number.
    """
    outcome = problem.outcome
    if isinstance(outcome, Survival):
        time, event = (np.asarray(rows[c], float) for c in (outcome.time, outcome.event))
        return _or(concordance.harrell(said, time, event > 0), 0.5)
    check(outcome)
    if isinstance(outcome, (Continuous, Count)):
        if not np.isfinite(said).all():
            return -math.inf
        return _or(float(regression.r2(target_of(rows, outcome, ()), said)), 0.0)
    assert isinstance(outcome, Binary)
    labels = Labels.of(rows, outcome, problem.dictionary, problem.min_cell)
    return _or(float(classification.auc(labels.y, said)), 0.5)


def _or(value: float, chance: float) -> float:
    return chance if math.isnan(value) else value
