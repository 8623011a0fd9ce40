"""DeepCox: a neural network trained on Cox's partial likelihood, by seven federated strategies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.deepcox import private
from fedcohort.algorithms.deepcox.model import DeepCoxModel
from fedcohort.algorithms.deepcox.program import STEPS, asks, fit
from fedcohort.algorithms.deepcox.settings import DeepCoxSettings
from fedcohort.protocol import Method, PrivateFits, Task
from fedcohort.training import heterogeneity
from fedcohort.training.networks.settings import COUNTS, MOMENTS

AVERAGED = "each round, the sum over sites of their models, weighted by rows"
SEEN = "each round, every site's own model, which the coordinator sees: no masked sum can hide it"
REVEALS = {
    **dict.fromkeys(("fedavg", "fedprox", "fedadam", "fedyogi"), AVERAGED),
    "exact": "each step, the sums over sites of risk sets on the time grid and of the gradient",
    "sequential": "each round, every site's own model as it left it, which the coordinator sees",
    "ensemble": "once, every site's own model, which the coordinator and all sites see",
}


def reveals_with(config: DeepCoxSettings) -> str:
    """Describe what leaves a site with these settings."""
    exact_times = config.time_grid == "exact"
    grid = "each site's own times of death" if exact_times else "histograms of the times of death"
    how = "which the coordinator sees" if exact_times else "as sums over sites"
    trained = REVEALS[config.strategy] if config.centre.plain else SEEN
    if config.personal != "none":
        trained = f"{trained}; {config.reveals_own('the coordinator and all sites see')}"
    seen = "" if config.monitor == "none" else f"; {heterogeneity.REVEALS}"
    seen = config.reveals_more * (config.strategy != "ensemble") + seen
    text = f"{trained}{seen}; {grid}, {how}; deaths and risk sets on them, as sums."
    return text[0].upper() + text[1:]


def bounds(config: DeepCoxSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    plan, schedule = config.plan(len(task.features)), config.schedule
    return {
        "plan": (plan.text, replace(plan, validation_fraction=0.0).text),
        "held_out": (False, True),
        "together": (config.time_grid != "exact",),
        "draw": range(-1, schedule.rounds),
        "rounds": (schedule.rounds,),
        "lr_rule": (schedule.lr_rule,),
        "lr_patience": (schedule.lr_patience,),
        "since_cut": range(schedule.rounds),
        "patience": (-1 if schedule.patience is None else schedule.patience,),
        **config.own_bounds((config.personal_way(plan),), schedule.rounds),
    }


METHOD = Method(
    name="deepcox",
    title="Cox regression with a neural network as the log risk",
    tasks=("survival",),
    paper="Faraggi and Simon 1995; GenoMed4All D6.2 (2021), section 8.2",
    reveals=(
        "; ".join(f"{name}: {text}" for name, text in REVEALS.items())
        + f"; an aggregation other than mean: {SEEN}; with monitor: {heterogeneity.REVEALS}; "
        f"optimiser_state: averaged: {MOMENTS}; patience_by: count: {COUNTS}; with "
        "personal: also the user's own model, which the coordinator and all sites see; always: "
        "the time grid, deaths and risk sets on it, as sums over sites."
    ),
    reveals_with=reveals_with,
    unguarded=(
        "Models, or gradients of a network, weighted by rows, no sums of covariates "
        "(`training.networks.local`); what a network may remember of few rows is not checked."
    ),
    settings=DeepCoxSettings,
    fit=fit,
    model=DeepCoxModel,
    steps=STEPS,
    asks=asks,
    bounds=bounds,
    private=PrivateFits(
        releases=private.releases,
        reveals=private.reveals,
        clips=private.CLIPS,
        held=private.held,
    ),
    preprocess={"scale": "minmax", "impute": "median"},
)
