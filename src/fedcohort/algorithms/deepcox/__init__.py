"""DeepCox: a neural network trained on Cox's partial likelihood, by seven federated strategies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.deepcox import private
from fedcohort.algorithms.deepcox.model import DeepCoxModel
from fedcohort.algorithms.deepcox.program import STEPS, asks, fit, own_model
from fedcohort.algorithms.deepcox.settings import DeepCoxSettings
from fedcohort.protocol import Method, PrivateFits, Task
from fedcohort.training import heterogeneity
from fedcohort.training.networks import fits, private_fits

EXACT = "each step, the sums over sites of risk sets on the time grid and of the gradient"
REVEALS = {**fits.REVEALS, "exact": EXACT}


def reveals_with(config: DeepCoxSettings) -> str:
    """Describe what leaves a site with these settings."""
    exact_times = config.time_grid == "exact"
    grid = "each site's own times of death" if exact_times else "histograms of the times of death"
    how = "which the coordinator sees" if exact_times else "as sums over sites"
    trained = fits.reveals(config, EXACT, "the coordinator and all sites see")
    sums = "how many sites have a baseline hazard, which stays there"
    sums = sums if config.every else "deaths and risk sets on them, as sums"
    text = f"{trained}; {grid}, {how}; {sums}."
    return text[0].upper() + text[1:]


def bounds(config: DeepCoxSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    plan = config.plan(len(task.features))
    return {
        "plan": (plan.text, replace(plan, validation_fraction=0.0).text),
        "held_out": (False, True),
        "together": (config.time_grid != "exact",),
        **fits.bounds(config),
        **config.own_bounds((config.personal_way(plan),), config.rounds),
    }


METHOD = Method(
    name="deepcox",
    title="Cox regression with a neural network as the log risk",
    tasks=("survival",),
    paper="Faraggi and Simon 1995; GenoMed4All D6.2 (2021), section 8.2",
    reveals=(
        "; ".join(f"{name}: {text}" for name, text in REVEALS.items())
        + f"; an aggregation other than mean: {fits.SEEN}; with monitor: {heterogeneity.REVEALS}; "
        f"{fits.MORE}; with personal: also the user's own model, which the coordinator and all "
        "sites see; always: the time grid, deaths and risk sets on it, as sums over sites."
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
    own_model=own_model,
    bounds=bounds,
    private=PrivateFits(
        releases=private.releases,
        reveals=private.reveals,
        clips=private_fits.CLIPS,
        held=private.held,
    ),
    preprocess={"scale": "minmax", "impute": "median"},
    own=fits.own,
)
