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
from fedcohort.data.outcome import Binary, Outcome, Survival
from fedcohort.data.prepare import timegrid
from fedcohort.data.tables import SurvivalTable
from fedcohort.metrics.sums import clusters as federated_clusters
from fedcohort.metrics.sums import latent as federated_latent
from fedcohort.metrics.sums import predictions as federated
from fedcohort.metrics.sums import values as federated_values
from fedcohort.metrics.sums import within_sites
from fedcohort.protocol import registry
from fedcohort.protocol.step import Step
from fedcohort.study.at_site import cluster_sites, counting, holding, judging, latent_sites
from fedcohort.study.at_site.cluster_sites import tell_own_groups
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.kinds import CLUSTERING, LATENT
from fedcohort.study.run import private
from fedcohort.study.run.extras import arm_of, asked_of

Steps = tuple[Step[..., Any], ...]

#: More combinations of a grid than these are not looked through; all steps are listed then.
MOST = 1000

_OF_CLASSES: Steps = (within_sites.sum_label_pairs, within_sites.sum_binned_label_pairs)
_OF_VALUES: Steps = (federated_values.sum_values, federated_values.sum_spread)
_OF_TIMES: Steps = (
    *timegrid.STEPS,
    federated.count_leavers,
    federated.count_risk_by_time,
    federated.sum_brier,
    federated.sum_groups,
    federated.count_own_survival,
    federated.sum_slope,
    within_sites.sum_own_pairs,
    within_sites.sum_own_slope,
    within_sites.sum_binned_pairs,
)


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


def of_clusters(outcome: Outcome | None, *, alone: bool = False) -> Steps:
    """Return what judging clusters may ask; of each site's own, `alone`, what it says of these."""
    if alone:
        return (tell_own_groups,)
    found: Steps = (*federated_clusters.STEPS, *cluster_sites.STEPS)
    if outcome is None or not outcome.has_classes:
        found = tuple(s for s in found if s is not federated_clusters.count_classes)
    if not isinstance(outcome, Survival):
        return tuple(s for s in found if s is not federated_clusters.sum_exposure)
    return (
        *found, *timegrid.STEPS[:-1], federated.count_leavers, federated.count_risk_by_time,
        within_sites.sum_own_pairs, within_sites.sum_binned_pairs,
    )  # fmt: skip


def of_latent(*, alone: bool = False) -> Steps:
    """Return what judging latent coordinates may ask; `alone`, of each site's own."""
    return latent_sites.STEPS if alone else (*federated_latent.STEPS, *latent_sites.STEPS)


def of_alone(outcome: Outcome | None, task: str) -> Steps:
    """Return what judging each site's own model may ask."""
    if task == CLUSTERING.name:
        return of_clusters(outcome, alone=True)
    return of_latent(alone=True) if task == LATENT.name else of_judge(outcome, task)


def of_judge(outcome: Outcome | None, task: str = "") -> Steps:
    """Return what judging a model of an outcome, or of a task, may ask."""
    if task == CLUSTERING.name:
        return of_clusters(outcome)
    if task == LATENT.name:
        return of_latent()
    if isinstance(outcome, Survival):
        other: Steps = (*federated_values.STEPS, *_OF_CLASSES)
    elif isinstance(outcome, Binary):
        other = (*_OF_TIMES, *_OF_VALUES)
    else:
        values = tuple(s for s in federated_values.STEPS if s not in _OF_VALUES)
        other = (*_OF_TIMES, *_OF_CLASSES, *values, federated.count_risks)
    return tuple(s for s in judging.STEPS if s not in other)


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
