"""One fit of each arm before a study runs, to find what a method refuses.

Methods refuse collinear columns, separable classes, too few rows or events, counts below
`min_cell`, or settings that exclude each other only in a fit. So every arm is fitted to the first
repeat's training rows of each scenario, with one round if it trains in rounds of epochs. The
isolated bound is left out: a site without a model counts as chance there.

A fit ends after `SECONDS`, all fits after `IN_ALL`; unfinished fits are reported. Nothing leaves
this process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fedcohort.protocol import FedcohortError, registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan, Scenario
from fedcohort.study.run.engine import Problem, Run, fit_once
from fedcohort.study.run.pieces import defect
from fedcohort.study.sites.layout import Table, lay_out, seed_of

#: Time limits in seconds: of one fit, and of all.
SECONDS, IN_ALL = 10.0, 60.0


@dataclass(frozen=True)
class Tried:
    """Result of the fit of an arm in a scenario.

    Attributes
    ----------
    refused : why there is no model; "" if nothing was refused.
    run : the finished fit, if any.
    short : whether it had one round although the study asks for more.
    sites : number of sites of the finished fit.
    """

    arm: Arm
    scenario: Scenario
    refused: str = ""
    run: Run | None = None
    short: bool = False
    sites: int = 0


class _TimeIsUp(Exception):
    """A fit exceeded its time limit."""


def rehearsed(
    plan: Plan, table: Table, *, seconds: float = SECONDS, in_all: float = IN_ALL
) -> Iterator[Tried]:
    """Yield the result of the fit of each arm, scenario by scenario.

    The pooled bound does not depend on the scenario, and is fitted once.
    """
    end = time.monotonic() + in_all
    for i, scenario in enumerate(plan.scenarios):
        if scenario.after_ranking:  # of the scenario before, without some sites
            continue
        laid = lay_out(plan, table, scenario, 0)
        # masks do not change a sum
        problem = replace(laid.problem, secure="auto", availability=None)
        for arm in plan.arms:
            if arm.scope == "isolated" or (arm.scope == "centralised" and plan.pooled_in(i) != i):
                continue
            limit = min(end, time.monotonic() + seconds)
            yield _tried(plan, arm, scenario, problem, limit)


def _tried(plan: Plan, arm: Arm, scenario: Scenario, problem: Problem, limit: float) -> Tried:
    """Fit one arm, until `limit` on the monotonic clock."""

    def watch(_: Any) -> None:
        if time.monotonic() > limit:
            raise _TimeIsUp

    if time.monotonic() > limit:
        return Tried(arm, scenario)
    method = registry.find(arm.method)
    first = {key: next(iter(values)) for key, values in arm.grid.items()}
    settings = arm.configured(first)
    short = {"rounds", "internal_epochs"} <= method.settings.__dataclass_fields__.keys()
    if short:
        settings["rounds"] = 1
    part = problem.pooled() if arm.scope == "centralised" else problem
    try:
        seed = seed_of(plan, 0)
        run = fit_once(part, method, settings, arm.preprocess, seed, observer=watch)
    except _TimeIsUp:
        return Tried(arm, scenario)
    except FedcohortError as error:
        return Tried(arm, scenario, " ".join(str(error).split()))
    except Exception as error:  # as in a study, it fails only this fit
        return Tried(arm, scenario, defect(error))
    return Tried(arm, scenario, run=run, short=short, sites=len(part.frames))
