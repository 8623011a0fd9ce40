"""Which steps a study may ask of a site: those that its methods need with its settings, no others.

A method declares which of its steps a fit with given settings can ask for (`Method.asks`); the
preprocessing and the judging are narrowed by what is imputed and cut, and by what is predicted. A
site's sessions agree to these steps alone (`sessions`), and the data steward is shown the same
ones (`network.steward.details`), so that what was read and what can be asked are one list.

Revealed: nothing; this is made from a study's text alone.
"""

from __future__ import annotations

import itertools
import typing
from typing import Any

from fedcohort.data import describe, prepare
from fedcohort.data.outcome import Outcome
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import registry
from fedcohort.protocol.step import Step
from fedcohort.study.at_site import counting, holding
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.judge.evaluate import JUDGING, Steps
from fedcohort.study.run import private
from fedcohort.study.run.extras import arm_of, asked_of

#: More combinations of a grid than these are not looked through; all steps are listed then.
MOST = 1000


def of_fit(plan: Plan, arm: Arm) -> Steps:
    """Return what fits of an arm may ask, whatever of its settings are tried."""
    method = registry.find(arm.method)
    if plan.privacy.dp is not None:
        listed = private.releases(method, method.configure(arm.configured()), plan.privacy.dp)
        names = {release.step for release in listed}
        return tuple(s for s in method.steps if s.name in names)
    # what is proposed of a space is not known beforehand
    asked = method.steps if plan.space(arm) else _of_grid(arm)
    if not plan.kind.timed:
        asked = tuple(s for s in asked if not _of_times(s))
    if method.raw or method.design is not None:
        return asked
    return (*prepare.asked(arm.preprocess), *asked)


def _of_times(step: Step[..., Any]) -> bool:
    """Return whether a step reads times to an event, as a table of another outcome has none."""
    first = next(iter(typing.get_type_hints(step.run).values()))
    return SurvivalTable in typing.get_args(first)


def _of_grid(arm: Arm) -> Steps:
    method = registry.find(arm.method)
    tried = [list(v) if isinstance(v, (list, tuple)) else [v] for v in arm.grid.values()]
    found: dict[str, Step[..., Any]] = {}
    for i, values in enumerate(itertools.product(*tried)):
        if i == MOST:
            return method.steps
        chosen = dict(zip(arm.grid, values, strict=True))
        found |= {s.name: s for s in method.asked(method.configure(arm.configured(chosen)))}
    return tuple(s for s in method.steps if s.name in found)


def of_extras(kind: str) -> Steps:
    """Return what a comparison of sites may ask, or feedback to them; see `study.run.extras`."""
    arm = arm_of(kind)
    method = registry.find(arm.method)
    return method.asked(method.configure(arm.configured()))


def of_alone(outcome: Outcome | None, task: str) -> Steps:
    """Return what judging each site's own model may ask."""
    return JUDGING[task].own_steps(outcome)


def of_judge(outcome: Outcome | None, task: str) -> Steps:
    """Return what judging a model may ask."""
    return JUDGING[task].steps(outcome)


def of_study(plan: Plan, outcome: Outcome | None) -> Steps:
    """Return all that a study may ask of a site, each step once."""
    fits = [of_fit(plan, arm) for arm in plan.arms if arm.scope == "sites"]
    tuned = any(plan.is_tuned(arm) for arm in plan.arms if arm.scope == "sites")
    every = (
        *itertools.chain(*fits),
        *describe.STEPS,
        *counting.STEPS,
        *of_judge(outcome, plan.task),
        *holding.STEPS * tuned,
        *itertools.chain(*(of_extras(kind) for kind in asked_of(plan))),
    )
    return tuple({s.run: s for s in every}.values())
