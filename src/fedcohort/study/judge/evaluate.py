"""How good a fit is on rows that it has never seen.

The test rows are one blind table, as D6.2 (section 8.3.2) has it; where sites are natural, each
site's own test rows are judged as well. A judge holds what the metrics of a kind of task need
besides predictions, and is the same for every arm of a repeat:

    survival         `Yardstick`: train_time, train_event, test, time, event, times, tau, horizon
    classification   `Labels`: test, y (n,) 0/1; of a binary outcome
    regression       `Values`: test, y (n,), usual; of a continuous outcome or a count
    clustering       `Clusters`: test, train; an outcome that no fit has seen, or none
    latent           `Latent`: the same

All know `min_cell`: of fewer patients nothing is shown by itself.
"""

from __future__ import annotations

import pandas as pd

from fedcohort.data.outcome import Binary, Continuous, Count, Survival
from fedcohort.study.judge.pooled.base import Judge
from fedcohort.study.judge.pooled.classification import Labels
from fedcohort.study.judge.pooled.clusters import Clusters
from fedcohort.study.judge.pooled.latent import Latent
from fedcohort.study.judge.pooled.regression import Values
from fedcohort.study.judge.pooled.survival import Yardstick
from fedcohort.study.kinds import KINDS
from fedcohort.study.run.engine import Problem

__all__ = [
    "Clusters", "Judge", "Labels", "Latent", "Values", "Yardstick", "judge_of", "taught",
]  # fmt: skip


def judge_of(
    problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
) -> Judge:
    """Return the judge of test rows; `problem` holds the training rows, at all sites.

    Of a private study nothing is taken of the training rows, of which every exact number would be
    beyond its ε: the test rows say where they are followed, and what is usual.

    Parameters
    ----------
    seed : what its own draws derive from.
    horizon : the study's, in the unit of time; None without.

    Raises
    ------
    SettingError : nothing can judge the outcome.
    """
    if problem.kind == "clustering":
        return Clusters.of(problem, test, seed)
    if problem.kind == "latent":
        return Latent.of(problem, test)
    outcome = problem.outcome
    KINDS[problem.kind].check(outcome)
    if isinstance(outcome, (Survival, Continuous, Count)):
        train = problem.pooled().frames["pooled"] if problem.dp is None else test
        if isinstance(outcome, Survival):
            return Yardstick.of(train, test, outcome, problem.min_cell, horizon)
        return Values.of(train, test, outcome, problem.min_cell)
    assert isinstance(outcome, Binary)
    return Labels.of(test, outcome, problem.dictionary, problem.min_cell)


def taught(judge: Judge, problem: Problem) -> Judge:
    """Return the judge of a model of these training rows, such as those of one site alone."""
    return judge.taught(problem) if isinstance(judge, (Clusters, Latent)) else judge
