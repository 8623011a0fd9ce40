"""A neural network with a posterior over its weights, by partitioned variational inference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.bayes_net import private, program, virtual
from fedcohort.algorithms.bayes_net.forgetting import forget
from fedcohort.algorithms.bayes_net.model import BayesNetModel
from fedcohort.algorithms.bayes_net.program import INTERVALS, aim_of, prior_of
from fedcohort.algorithms.bayes_net.settings import BayesNetSettings
from fedcohort.algorithms.bayes_net.steps import (
    STEPS,
    count_spreads,
    refine,
    refine_alone,
    refine_average,
    train_alone,
    train_posterior,
)
from fedcohort.algorithms.bayes_net.virtual import keep_own, own_model, refine_shared
from fedcohort.data import timegrid
from fedcohort.models.bayes import base_of
from fedcohort.models.losses import InUnit, Rescaled
from fedcohort.protocol import Federation, Method, PrivateFits, Step, Task
from fedcohort.training import class_sizes, hazard, outcome_moments

#: Steps before the first round.
FIRST = (
    *class_sizes.STEPS,
    *outcome_moments.STEPS,
    *timegrid.asks(INTERVALS),
    outcome_moments.sum_times,
)
#: Most sites of a fit.
MOST_SITES = 100_000
_TRAINS: Mapping[str, Step[..., Any]] = {
    "pvi": refine, "virtual": refine_shared, "sep": refine_average, "sequential": refine_alone,
    "fedavg": train_posterior, "ensemble": train_alone,
}  # fmt: skip
_REVEALS = {
    "pvi": "each round, the sum over the round's sites of the changes of the posterior's means and "
    "precisions; each site's own factor stays there",
    "virtual": "each round, the same of the weights that all sites share; each site's own weights, "
    "and its model, stay there; at the end the number of sites with rows and the losses of their "
    "models, as sums over sites",
    "sep": "each round, the sum over the round's sites of the changes of the posterior's means and "
    "precisions",
    "sequential": "each round, each site's change of the posterior, which the coordinator sees",
    "fedavg": "each round, the sum over sites of their posteriors, weighted by rows",
    "ensemble": "once, each site's own posterior, which the coordinator and all sites see",
}
_ONCE = (
    "Once, as sums over sites, how many rows each class has; or the mean and standard deviation of "
    "a value or count; or how many leave by interval of time, and the mean of log times; at the "
    "end, training rows by how unsure the model is of them"
)
_COX = "; head cox: at the end, deaths and risk sets on a time grid, as sums over sites"


def asks(config: BayesNetSettings) -> Iterator[Step[..., Any]]:
    """Yield the steps that a fit with these settings can ask for."""
    yield from (*FIRST, _TRAINS[config.strategy])
    yield keep_own if config.every else count_spreads
    if config.head == "cox":
        yield from hazard.STEPS


def bounds(config: BayesNetSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`).

    The mean and the standard deviation of a value, and the unit of times, follow from sums.
    """
    if task.dp is not None:
        return {"plan": (private.plan_of(config, task).text,)}
    aim = aim_of(task, config.head)
    plan = config.plan(len(task.features), aim.model, aim.outputs)
    if config.strategy == "ensemble":
        plan = replace(plan, epochs=plan.epochs * config.rounds)
    plans: tuple[Any, ...]
    match aim.model:
        case "softmax":
            plans = (replace(plan, loss=aim.loss).text,)
        case "weibull":
            plans = (InUnit(plan.text, plan.loss),)
        case "cox":
            plans = (plan.text, replace(plan, network=base_of(plan.network)).text)
        case "logistic":
            plans = (plan.text,)
        case _:
            plans = (plan.text, Rescaled(plan.text, plan.loss))
    several = range(1, MOST_SITES + 1)
    return {
        "plan": plans,
        "prior": (prior_of(config).text,),
        "classes": (len(task.levels or ("0", "1")),),
        "sites": several,
        "held_out": (False,),
        "together": (True,),
        "draw": (-1,),
        "law": (aim.model,),
        "late": (config.staleness > 0,),
        "private": (config.private_weights,),
        "samples": (config.samples,),
        "parts": (1,) if config.strategy == "sequential" else several,
    }


def reveals_with(config: BayesNetSettings) -> str:
    """Describe what leaves a site with these settings."""
    return f"{_ONCE}; {_REVEALS[config.strategy]}{_COX * (config.head == 'cox')}."


def fit(fed: Federation, config: BayesNetSettings, task: Task) -> BayesNetModel:
    """Fit the posterior, with noise where the study asks for an ε."""
    if task.dp is not None:
        return private.fit(fed, config, task, task.dp)
    return program.fit(fed, config, task)


METHOD = Method(
    name="bayes_net",
    title="Neural network with a posterior over its weights",
    tasks=("classification", "regression", "survival"),
    outcomes=("binary", "category", "ordinal", "continuous", "count", "survival"),
    paper="Bui et al., Partitioned variational inference, 2018; Blundell et al., ICML 2015",
    reveals=f"{_ONCE}; " + "; ".join(f"{k}: {v}" for k, v in _REVEALS.items()) + f"{_COX}.",
    reveals_with=reveals_with,
    unguarded=(
        "Posteriors of a network's weights, or sums of their changes, and no sums of covariates "
        "(`training.networks.variational`); what a network may remember of few rows is not checked."
    ),
    settings=BayesNetSettings,
    fit=fit,
    model=BayesNetModel,
    steps=(
        *class_sizes.STEPS,
        *outcome_moments.STEPS,
        *timegrid.asks(INTERVALS),
        *hazard.STEPS,
        *STEPS,
        *virtual.STEPS,
        *private.STEPS,
    ),
    asks=asks,
    own_model=own_model,
    bounds=bounds,
    private=PrivateFits(
        releases=private.releases,
        reveals=private.reveals,
        clips=private.CLIPS,
        held=private.held,
    ),
    preprocess={"scale": "standard", "impute": "median"},
    forget=forget,
)

__all__ = ["METHOD", "BayesNetModel", "BayesNetSettings", "aim_of", "fit", "prior_of"]
