"""Published rows of a model with a posterior: how sure it is of the blind rows.

posterior   blind rows; the mean share of the outcome's variance that is due to the model; of values
            how many rows have their outcome in the interval of probability `LEVEL`, as a share with
            its exact binomial 95 % interval

It needs the pooled blind rows, so a study over a network has no such rows. Nothing is published of
fewer than 2 `min_cell` rows, and no share if the rows inside and outside are counts that
`disclosure.counts.published_parts` hides.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from fedcohort.metrics.uncertainty import epistemic_share, exact_interval, inside
from fedcohort.privacy.disclosure.counts import published_parts
from fedcohort.protocol import NotSupported, Row
from fedcohort.study.judge.leading import Outcomes
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Problem, Run

#: Key of results.json; only studies with such a method have it.
KEYS = ("posterior",)
#: Probability of the judged intervals.
LEVEL = 0.9


def posterior_rows(run: Run, problem: Problem, test: pd.DataFrame) -> dict[str, list[Row]]:
    """Return the row of a fit; none unless its model has a posterior of this outcome.

    Parameters
    ----------
    problem : the training rows, with the `min_cell`.
    test : blind rows.
    """
    n, m, outcome = len(test), problem.min_cell, run.design.outcome
    if outcome is None or n < max(2 * m, 1):
        return {}
    x = run.design.matrix(test)
    try:
        share = epistemic_share(np.array(run.model.uncertainty(x)))
    except NotSupported:
        return {}
    found = {"epistemic": float(share.mean()), "covered": math.nan}
    if outcome.type == "continuous":
        y = Outcomes.of(test, outcome, problem.dictionary).y
        held = inside(y, run.model.intervals(x, LEVEL))
        if None not in published_parts(np.array([held, n - held]), m):
            low, high = exact_interval(held, n)
            found |= {"covered": held / n, "low": low, "high": high}
    return {"posterior": [{"n": n, "level": LEVEL, **plain(found)}]}
