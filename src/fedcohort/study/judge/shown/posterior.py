"""Published rows of a model with a posterior: how sure it is of the blind rows.

posterior   blind rows; the mean share of the outcome's variance that is due to the model; the mean
            negative log predictive density; of values how many rows have their outcome in the
            interval of probability `LEVEL`, as a share with its exact binomial 95 % interval
unlike      with `evaluate.left_out`, for each natural site: the AUROC of `unlike_training` of a
            model that was fitted without it, between its blind rows and those of the other sites

Nothing is published of fewer than 2 `min_cell` rows, and no share if the rows inside and outside
are counts that `disclosure.counts.published_parts` hides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.metrics.uncertainty import LEVEL, exact_interval, of_rows
from fedcohort.privacy.disclosure.counts import fewest, published_parts
from fedcohort.protocol import FedcohortError, Fitted, Row
from fedcohort.study.judge.leading import AUC, Outcomes
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Problem, Run
from fedcohort.study.sites.layout import Laid

#: Keys of results.json; only studies with such a method have them.
KEYS = ("posterior", "unlike")


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


def unlike_rows(laid: Laid, fit: Callable[[Problem], Run]) -> list[Row]:
    """Return the row of `unlike` of each natural site; none in another scenario.

    Parameters
    ----------
    fit : problem → its fit.
    """
    if laid.test_site is None:
        return []
    site, found = np.asarray(laid.test_site), list[Row]()
    for name in sorted(laid.problem.frames):
        rest = {s: frame for s, frame in laid.problem.frames.items() if s != name}
        gone = Outcomes(np.zeros(len(site)), (site == name).astype(float))
        value = None
        if AUC.may_be_shown(gone, laid.problem.min_cell) and rest:
            with suppress(FedcohortError):  # no fit without this site, or no such score
                run = fit(laid.problem.on(rest))
                v = run.model.unlike_training(run.design.matrix(laid.test))
                score = AUC.influence(v, gone)
                value = score.value, score.error
        few = f"no fit without it, or fewer than {fewest(laid.problem.min_cell)} blind rows"
        row = AUC.row(str(name), value, laid.problem.min_cell)
        found.append(row | ({} if value else {"note": few}))
    return found


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
