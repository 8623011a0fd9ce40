"""Published rows of a model with a posterior: how sure it is of the blind rows.

posterior   blind rows; the mean share of the outcome's variance that is due to the model; the mean
            negative log predictive density; of values how many rows have their outcome in the
            interval of probability `LEVEL`, as a share with its exact binomial 95 % interval

Nothing is published of fewer than 2 `min_cell` rows, and no share if the rows inside and outside
are counts that `disclosure.counts.published_parts` hides.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.metrics.uncertainty import LEVEL, exact_interval, of_rows
from fedcohort.privacy.disclosure.counts import published_parts
from fedcohort.protocol import Fitted, Row
from fedcohort.study.judge.leading import Outcomes
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Problem, Run

#: Key of results.json; only studies with such a method have it.
KEYS = ("posterior",)


def posterior_rows(run: Run, problem: Problem, test: pd.DataFrame) -> dict[str, list[Row]]:
    """Return the row of a fit; none unless its model has a posterior of this outcome.

    Parameters
    ----------
    problem : the training rows, with the `min_cell`.
    test : blind rows.
    """
    outcome = run.design.outcome
    if outcome is None or not len(test):
        return {}
    seen = Outcomes.of(test, outcome, problem.dictionary)
    told = told_of(run.model, run.design.matrix(test), seen, outcome)
    return row_of({k: float(v.sum()) for k, v in told.items()}, len(test), problem.min_cell)


def told_of(model: Fitted, x: Array, seen: Outcomes, outcome: Outcome) -> dict[str, Array]:
    """Return `uncertainty.of_rows` of rows x (n, p) with their outcomes."""
    timed = isinstance(outcome, Survival)
    y = seen.time if timed else seen.y
    return of_rows(model, x, y, seen.y > 0, number=outcome.type == "continuous")


def row_of(total: dict[str, float], n: int, min_cell: int) -> dict[str, list[Row]]:
    """Return the row of sums over n blind rows; none without sums, or of few rows.

    Parameters
    ----------
    total : sum of each of `uncertainty.of_rows`.
    """
    if not total or n < max(2 * min_cell, 1):
        return {}
    found = {name: total.get(name, math.nan) / n for name in ("epistemic", "covered", "nlpd")}
    if math.isfinite(found["covered"]):
        held = round(total["covered"])
        if None in published_parts(np.array([held, n - held]), min_cell):
            found["covered"] = math.nan
        else:
            low, high = exact_interval(held, n)
            found |= {"low": low, "high": high}
    return {"posterior": [{"n": n, "level": LEVEL, **plain(found)}]}
