"""Each arm of a study fitted once before it runs, to learn what a method will refuse.

What a method refuses it says in its fit: columns that are collinear, classes that a line divides,
too few rows or events at the sites, counts below `min_cell`, settings that do not go together. So
the rules are not written here a second time: every arm is fitted to the first repeat's training
rows of each scenario, as `fedcohort run` would. An arm that trains in rounds of epochs is fitted
for one round. The isolated bound is left out: a hospital without a model of its own counts as
chance there.

A fit ends after `SECONDS`, all of them after `IN_ALL`; what was not fitted to its end is told.
Nothing leaves this process.
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

#: Seconds after which one fit, and all of them, are not gone on with.
SECONDS, IN_ALL = 10.0, 60.0


@dataclass(frozen=True)
class Tried:
    """How the fit of an arm in a scenario ended.

    Attributes
    ----------
    refused : why there is no model; "" where nothing was refused.
    run : the fit, of an arm that was fitted to its end.
    short : whether it was fitted for one round, of more that the study asks for.
    """

    arm: Arm
    scenario: Scenario
    refused: str = ""
    run: Run | None = None
    short: bool = False


class _TimeIsUp(Exception):
    """A fit has taken long enough."""


def rehearsed(
    plan: Plan, table: Table, *, seconds: float = SECONDS, in_all: float = IN_ALL
) -> Iterator[Tried]:
    """Yield how the fit of each arm ended, scenario by scenario.

    The pooled bound does not depend on the scenario, and is fitted once.

    seconds, in_all : as `SECONDS` and `IN_ALL`.
    """
    end = time.monotonic() + in_all
    for i, scenario in enumerate(plan.scenarios):
        laid = lay_out(plan, table, scenario, 0)
        # masks change no bit of a sum
        problem = replace(laid.problem, secure="auto", availability=None)
        for arm in plan.arms:
            if arm.scope == "isolated" or (arm.scope == "centralised" and i):
                continue
            limit = min(end, time.monotonic() + seconds)
            yield _tried(plan, arm, scenario, problem, limit)


def _tried(plan: Plan, arm: Arm, scenario: Scenario, problem: Problem, limit: float) -> Tried:
    """Fit one arm until a moment of the monotonic clock."""

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
    except Exception as error:  # a study notes it and goes on, and so do these fits
        return Tried(arm, scenario, defect(error))
    return Tried(arm, scenario, run=run, short=short)
