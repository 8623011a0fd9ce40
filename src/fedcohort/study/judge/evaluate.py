"""Evaluation of fits for each kind of task, on blind rows.

For tables in one process the test rows are one blind table (D6.2, section 8.3.2); natural sites
also get metrics of their own test rows. A judge holds all that the metrics of a task need besides
predictions, and is the same for every arm of a repeat:

    survival         `Yardstick`: train_time, train_event, test, time, event, times, tau, horizon
    classification   `Labels`: test, y (n,) 0/1; `Classes`: of several classes, 0 … K−1
    regression       `Values`: test, y (n,), usual; of a continuous outcome or a count
    clustering       `Clusters`: test, train; an outcome that no fit has seen, or none
    latent           `Latent`: the same
    synthesis        `Virtual`: the same, and a model that draws rows
    imputation       `Imputed`: the same, and a model that imputes

All have `min_cell`. Over a network sums over sites give the metrics (`judge.summed`), by `steps`
that a site agrees to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from fedcohort.data import timegrid
from fedcohort.data.outcome import Category, Outcome, Survival, levels_of
from fedcohort.metrics.sums import classes as sums_of_classes
from fedcohort.metrics.sums import clusters as sums_of_clusters
from fedcohort.metrics.sums import curve_pairs, predictions, values, within_sites
from fedcohort.metrics.sums import latent as sums_of_latent
from fedcohort.protocol import Method, Row, registry
from fedcohort.protocol.step import Step
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.at_site import (
    cluster_sites,
    imputed_sites,
    judging,
    latent_sites,
    virtual_sites,
)
from fedcohort.study.at_site.coding import Coded, names_of
from fedcohort.study.at_site.judging import Own, Said, Seen
from fedcohort.study.at_site.own_judging import judged_alone
from fedcohort.study.at_site.placing import Clustered
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge.pooled.base import Judge
from fedcohort.study.judge.pooled.classification import Labels
from fedcohort.study.judge.pooled.clusters import Clusters
from fedcohort.study.judge.pooled.imputed import Imputed
from fedcohort.study.judge.pooled.latent import Latent
from fedcohort.study.judge.pooled.regression import Values
from fedcohort.study.judge.pooled.survival import Yardstick
from fedcohort.study.judge.pooled.virtual import Virtual
from fedcohort.study.judge.shown.classes import class_rows
from fedcohort.study.judge.shown.clusters import cluster_rows
from fedcohort.study.judge.shown.imputed_rows import imputed_rows
from fedcohort.study.judge.shown.latent_rows import latent_rows
from fedcohort.study.judge.shown.posterior import posterior_rows
from fedcohort.study.judge.shown.virtual_rows import virtual_rows
from fedcohort.study.judge.summed import clusters, clusters_shown, evaluation, latent
from fedcohort.study.judge.summed.evaluation import Found
from fedcohort.study.kinds import (
    CLASSIFICATION,
    CLUSTERING,
    IMPUTATION,
    KINDS,
    LATENT,
    REGRESSION,
    SURVIVAL,
    SYNTHESIS,
)
from fedcohort.study.run.engine import Problem, Run
from fedcohort.study.run.pieces import Cell
from fedcohort.study.sites.layout import Laid, seed_of

Steps = tuple[Step[..., Any], ...]
Views = Mapping[str, tuple[type[Any], ...]]


@dataclass(frozen=True)
class Model:
    """A model of all sites to evaluate over a network.

    Attributes
    ----------
    fed, terms, cell : the sites, the study, and the current piece.
    run, said : the fit, and its form as sent to sites.
    earlier : returns the sent models of earlier arms of the repeat; keeps this one.
    """

    fed: Coordinator
    terms: Terms
    cell: Cell
    run: Run
    said: Said
    earlier: Callable[[], list[str]]


@dataclass(frozen=True)
class Judging:
    """Evaluation of one kind of task.

    Attributes
    ----------
    judge : for pooled rows.
    summed, alone : evaluation by sums over sites; of models of one site each.
    steps, own_steps : outcome → steps of these.
    views : by kind of session, its allowed views.
    shown : further rows of the first repeat, from pooled rows.
    named, own_named : by metric, further steps if a study names it.
    """

    judge: type[Judge]
    steps: Callable[[Outcome | None], Steps]
    own_steps: Callable[[Outcome | None], Steps]
    summed: Callable[[Model], Found] = lambda m: evaluation.judge(
        m.fed, m.terms.plan, m.said, m.terms.horizon,
        levels_of(m.terms.outcome, m.terms.dictionary), posterior=not m.cell.repeat,
    )  # fmt: skip
    alone: Callable[[Coordinator, Plan], Found] = lambda fed, plan: evaluation.judge(
        fed, plan, Own()
    )
    views: Views = field(
        default_factory=lambda: {"judge": (Seen, Said), "alone": (Seen, Own), "score": (Said, Own)}
    )
    shown: Callable[[Run, Any, Laid, Plan, Method, int], dict[str, list[Row]]] = (
        lambda run, judge, laid, plan, method, seed: {}
    )
    named: Mapping[str, Steps] = field(default_factory=dict[str, Steps])
    own_named: Mapping[str, Steps] = field(default_factory=dict[str, Steps])

    def steps_of(self, outcome: Outcome | None, metrics: Collection[str], *, own: bool) -> Steps:
        """Return the steps of evaluating a model by these metrics, or models of one site each."""
        steps, named = (self.steps, self.named) if not own else (self.own_steps, self.own_named)
        more = (s for m, some in named.items() if m in metrics for s in some)
        return (*steps(outcome), *dict.fromkeys(more))


def judge_of(
    problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
) -> Judge:
    """Return the judge of test rows; `problem` holds the training rows, at all sites.

    In a private study it does not use the training rows, since ε does not cover their exact
    numbers: follow-up and typical values come from the test rows.

    Parameters
    ----------
    seed : seed of its own draws.
    horizon : the study's, in the unit of time; None without.

    Raises
    ------
    SettingError : no judge can evaluate the outcome.
    """
    KINDS[problem.kind].check(problem.outcome)
    return JUDGING[problem.kind].judge.of(problem, test, seed, horizon)


# predictions --------------------------------------------------------------------------


def _without(*others: Step[..., Any]) -> Callable[[Outcome | None], Steps]:
    """Return the steps of evaluating predictions, without `others`."""
    return lambda outcome: tuple(s for s in judging.STEPS if s not in others)


_OF_CLASSES: Steps = (within_sites.sum_label_pairs, within_sites.sum_binned_label_pairs)
_OF_VALUES: Steps = (values.sum_values, values.sum_spread)
_OF_TIMES: Steps = (
    *timegrid.STEPS,
    predictions.count_leavers,
    predictions.count_risk_by_time,
    predictions.sum_brier,
    predictions.sum_groups,
    predictions.count_own_survival,
    predictions.sum_slope,
    within_sites.sum_own_pairs,
    within_sites.sum_own_slope,
    within_sites.sum_binned_pairs,
)
_SURVIVAL = _without(*values.STEPS, *_OF_CLASSES, *sums_of_classes.STEPS)
_YES_NO = _without(*_OF_TIMES, *_OF_VALUES, *sums_of_classes.STEPS)
_SEVERAL = _without(*_OF_TIMES, *_OF_VALUES)
_REGRESSION = _without(
    *_OF_TIMES, *_OF_CLASSES, *(s for s in values.STEPS if s not in _OF_VALUES),
    predictions.count_risks, *sums_of_classes.STEPS,
)  # fmt: skip


def _classification(outcome: Outcome | None) -> Steps:
    return (_SEVERAL if isinstance(outcome, Category) else _YES_NO)(outcome)


# clusters, latent variables -----------------------------------------------------------


def _grouped(m: Model) -> Found:
    """Evaluate clusters; for the first repeat, also return its published rows."""
    terms, plan = m.terms, m.terms.plan
    sums = clusters.Sums.of(m.fed, m.said.model, m.earlier(), plan.min_cell)
    judged, times = clusters.judge(sums, plan, terms.outcome)
    if m.cell.repeat:
        return judged
    seed = seed_of(plan, m.cell.repeat)
    more = clusters_shown.shown_rows(
        sums, m.run, terms.outcome, terms.dictionary, times, seed, umap=plan.umap
    )
    return replace(judged, more=more)


def _coded(m: Model) -> Found:
    """Evaluate latent variables; for the first repeat, also return its published rows."""
    plan, named = m.terms.plan, names_of(m.run.design, m.terms.seen.features())
    method = registry.find(plan.arms[m.cell.arm].method)
    judge = latent.Judge.of(
        m.fed, m.said.model, named, plan.min_cell, fills="impute" in method.gives,
        pairs=m.run.design.pairs,
    )  # fmt: skip
    judged = judge.metrics(plan)
    if m.cell.repeat:
        return judged
    order = sum(arm.scope == "sites" for arm in plan.arms[: m.cell.arm + 1])
    return replace(judged, more=latent.shown_rows(judge, method, m.run, order))


def _drawn(m: Model) -> Found:
    """Evaluate virtual rows: at each site, by its own blind rows; metrics are means over sites."""
    rows = m.fed.through(virtual_sites.Drawn(m.said.model))
    return judged_alone(rows, virtual_sites.tell_own_likeness, virtual_sites.OWN, m.terms.plan)


def _masked(fed: Coordinator, model: str, plan: Plan) -> Found:
    """Evaluate imputation at each site, by its own blind rows; metrics are means over sites."""
    return judged_alone(
        fed.through(Coded(model)), imputed_sites.tell_own_masked, imputed_sites.OWN, plan
    )


def _of_clusters(outcome: Outcome | None) -> Steps:
    found: Steps = (*sums_of_clusters.STEPS, *cluster_sites.STEPS)
    if outcome is None or not outcome.has_classes:
        found = tuple(s for s in found if s is not sums_of_clusters.count_classes)
    if not isinstance(outcome, Survival):
        return tuple(s for s in found if s is not sums_of_clusters.sum_exposure)
    return (
        *found, *timegrid.STEPS[:-1], predictions.count_leavers, predictions.count_risk_by_time,
        within_sites.sum_own_pairs, within_sites.sum_binned_pairs,
    )  # fmt: skip


def _sure(
    run: Run, judge: Any, laid: Laid, plan: Plan, method: Method, seed: int
) -> dict[str, list[Row]]:
    return posterior_rows(run, laid.problem, laid.test)


JUDGING: Mapping[str, Judging] = {
    SURVIVAL.name: Judging(
        Yardstick,
        _SURVIVAL,
        _SURVIVAL,
        shown=_sure,
        named={"antolini_c": curve_pairs.STEPS},
        own_named={"antolini_c": (curve_pairs.sum_own_curve_pairs,)},
    ),
    CLASSIFICATION.name: Judging(
        Labels,
        _classification,
        _classification,
        shown=lambda run, judge, laid, plan, method, seed: (
            class_rows(run, judge) | posterior_rows(run, laid.problem, laid.test)
        ),
    ),
    REGRESSION.name: Judging(
        Values,
        _REGRESSION,
        _REGRESSION,
        shown=_sure,
    ),
    CLUSTERING.name: Judging(
        Clusters,
        _of_clusters,
        lambda outcome: (cluster_sites.tell_own_groups,),
        _grouped,
        clusters.judge_alone,
        {"judge": (Seen, Clustered), "alone": (Seen, Clustered), "score": (Clustered,)},
        lambda run, judge, laid, plan, method, seed: cluster_rows(
            run, judge, laid, seed, umap=plan.umap
        ),
        named=sums_of_clusters.NAMED,
    ),
    LATENT.name: Judging(
        Latent,
        lambda outcome: (*sums_of_latent.STEPS, *latent_sites.STEPS),
        lambda outcome: latent_sites.STEPS,
        _coded,
        latent.judge_alone,
        {"judge": (Coded,), "alone": (Coded,), "score": (Coded,)},
        lambda run, judge, laid, plan, method, seed: latent_rows(method, run, judge),
        named=sums_of_latent.NAMED,
    ),
    SYNTHESIS.name: Judging(
        Virtual,
        lambda outcome: virtual_sites.STEPS,
        lambda outcome: virtual_sites.STEPS,
        _drawn,
        lambda fed, plan: judged_alone(
            fed.through(virtual_sites.Drawn("")),
            virtual_sites.tell_own_likeness,
            virtual_sites.OWN,
            plan,
        ),
        {"judge": (virtual_sites.Drawn,), "alone": (virtual_sites.Drawn,)},
        lambda run, judge, laid, plan, method, seed: virtual_rows(
            run, judge, seed, private=plan.privacy.dp is not None
        ),
    ),
    IMPUTATION.name: Judging(
        Imputed,
        lambda outcome: imputed_sites.STEPS,
        lambda outcome: imputed_sites.STEPS,
        lambda m: _masked(m.fed, m.said.model, m.terms.plan),
        lambda fed, plan: _masked(fed, "", plan),
        {"judge": (Coded,), "alone": (Coded,)},
        lambda run, judge, laid, plan, method, seed: imputed_rows(run, judge),
    ),
}
