"""The steps that a study may ask of a site: those that its methods need with its settings.

A method declares the steps of a fit with given settings (`Method.asks`). The preprocessing and the
evaluation are narrowed by their options and by the outcome. A site's sessions allow only these
steps (`sessions`), and the data steward is shown the same list (`network.steward.details`).

Revealed: nothing; all follows from a study's text alone.
"""

from __future__ import annotations

import itertools
import typing
from collections.abc import Collection
from typing import Any

from fedcohort.data import describe, prepare
from fedcohort.data.outcome import Outcome
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import registry
from fedcohort.protocol.step import Step
from fedcohort.study.at_site import counting, holding, unlabelled
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.judge.evaluate import JUDGING, Steps
from fedcohort.study.run import private
from fedcohort.study.run.extras import arm_of, asked_of

#: Names of steps that a single site may answer, because it keeps its sums.
HELD = (holding.hold.name, unlabelled.hold_unlabelled.name)
#: Largest number of grid combinations to examine; with more, all steps are listed.
MOST = 1000


def of_fit(plan: Plan, arm: Arm) -> Steps:
    """Return the steps of an arm's fits, with any of its tried settings."""
    method = registry.find(arm.method)
    if plan.privacy.dp is not None:
        listed = private.releases(method, method.configure(arm.configured()), plan.privacy.dp)
        names = {release.step for release in listed}
        return tuple(s for s in method.steps if s.name in names)
    # proposals from a space are not known beforehand
    asked = method.steps if plan.space(arm) else _of_grid(arm)
    if not plan.kind.timed:
        asked = tuple(s for s in asked if not _of_times(s))
    if method.raw or method.design is not None:
        return asked
    return (*prepare.asked(arm.preprocess), *asked)


def _of_times(step: Step[..., Any]) -> bool:
    """Return whether a step reads times to an event, which tables of other outcomes lack."""
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
    """Return the steps of a comparison of sites, or of feedback; see `study.run.extras`."""
    arm = arm_of(kind)
    method = registry.find(arm.method)
    return method.asked(method.configure(arm.configured()))


def of_alone(outcome: Outcome | None, task: str, metrics: Collection[str] = ()) -> Steps:
    """Return the steps of evaluating each site's own model by these metrics."""
    return JUDGING[task].steps_of(outcome, metrics, own=True)


def of_judge(outcome: Outcome | None, task: str, metrics: Collection[str] = ()) -> Steps:
    """Return the steps of evaluating a model by these metrics."""
    return JUDGING[task].steps_of(outcome, metrics, own=False)


def of_score(plan: Plan) -> Steps:
    """Return the steps of scoring tried settings."""
    return unlabelled.STEPS if plan.kind.scores else holding.STEPS


def of_study(plan: Plan, outcome: Outcome | None) -> Steps:
    """Return all steps of a study, each once."""
    fits = [of_fit(plan, arm) for arm in plan.arms if arm.scope == "sites"]
    if plan.forget is not None:  # nothing is described or judged
        more = [registry.find(a.method).forgets for a in plan.arms if a.scope == "sites"]
        return tuple({s.run: s for s in itertools.chain(*fits, *more)}.values())
    tuned = any(plan.is_tuned(arm) for arm in plan.arms if arm.scope == "sites")
    every = (
        *itertools.chain(*fits),
        *describe.STEPS,
        *counting.STEPS,
        *of_judge(outcome, plan.task, plan.metrics),
        *of_score(plan) * tuned,
        *itertools.chain(*(of_extras(kind) for kind in asked_of(plan))),
    )
    return tuple({s.run: s for s in every}.values())
