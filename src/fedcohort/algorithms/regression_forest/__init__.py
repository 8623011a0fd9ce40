"""Deep regression forests over sites: soft trees on a network, of values and of survival."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.regression_forest.model import ForestModel
from fedcohort.algorithms.regression_forest.program import aim_of, fit, own_model
from fedcohort.algorithms.regression_forest.settings import ForestSettings
from fedcohort.algorithms.regression_forest.steps import STEPS, sum_soft_leaves
from fedcohort.data import timegrid
from fedcohort.models.losses import Rescaled
from fedcohort.models.objectives import Regridded
from fedcohort.protocol import Dp, Method, PrivateFits, Release, SettingError, Step, Task
from fedcohort.training import heterogeneity, outcome_moments, personal, private
from fedcohort.training.hazard import count_deaths
from fedcohort.training.networks import fits, pooled, private_fits, refined, strategies
from fedcohort.training.personal import own_counts

EXACT = (
    "each step, the sum over sites of the gradient of the loss; after it, for each leaf, sums over "
    "sites of outcomes weighted by its probability"
)
HELD_OUT = (
    "with a patience or lr_rule: plateau each round the loss of the rows held out, as a sum over "
    "sites"
)
FIRST = (
    f"{outcome_moments.REVEALS[0].upper()}{outcome_moments.REVEALS[1:]}; of survival instead "
    "histograms of the times, and deaths and leavers in each interval, as sums over sites"
)


def asks(config: ForestSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps that a fit with these settings can ask for."""
    held_out = (pooled.sum_losses,) if _pools_losses(config) else ()
    leaves = STEPS if config.strategy == "exact" else ()
    grid = timegrid.asks(config.time_grid, known=True)
    grid = (*grid, count_deaths) if config.leaf_start == "moments" else grid
    mapped = () if config.refined == "none" else refined.STEPS
    return (
        outcome_moments.sum_outcome, *mapped, *grid, *fits.asks(config, pooled.pull_rows), *leaves,
        *held_out,
    )  # fmt: skip


def reveals_with(config: ForestSettings) -> str:
    """Describe what leaves a site with these settings."""
    held_out = f"; {HELD_OUT}" if _pools_losses(config) else ""
    trained = fits.reveals(config, EXACT, "the coordinator sees")
    return f"{FIRST}{refined.reveals(config.refined)}; {trained}{held_out}."


def _pools_losses(config: ForestSettings) -> bool:
    """Return whether the loss of held-out rows is asked for, as a sum over sites."""
    return config.looks and not config.counts and config.strategy != "ensemble"


def bounds(config: ForestSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`).

    The mean and the standard deviation in a plan, or the times, follow from the sites' sums.
    """
    aim = aim_of(config, task)
    plans = [replace(aim, least=least).plan(config, task) for least in (aim.least, 0.0)]
    plans += [replace(plan, validation_fraction=0.0) for plan in plans]
    loss = "leaves" if aim.times is None else "lifetimes"
    texts = [replace(plan, loss=loss).text for plan in plans]
    found = (
        [Rescaled(text, loss) for text in texts]
        if aim.times is None
        else [Regridded(text, loss, config.intervals) for text in texts]
    )
    rules: list[Any] = [*(plan.text for plan in plans), *found]
    if config.refined != "none":
        maps = refined.blank(task)
        rules = [refined.Mapped(rule, maps) for rule in rules]
    return {
        **refined.BOUNDS,
        "plan": tuple(rules),
        "held_out": (False,),
        "together": (True,),
        **fits.bounds(config),
        **config.own_bounds((config.personal_way(plans[0]),), config.rounds),
    }


def held(config: ForestSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that a site requires in a private fit: all except models."""
    assert task.dp is not None
    return private_fits.held(config, task.dp, aim_of(config, task).plan(config, task))


def releases(config: ForestSettings, dp: Dp) -> Sequence[Release]:
    """Return all releases of a private fit.

    Raises
    ------
    SettingError : these settings have no private fit; or (ε, δ) cannot be met.
    """
    config.check_private()
    if dp.unit == "record":
        raise SettingError(
            f"method {config.method!r} has no private fit that protects a record: the leaves of "
            f"its trees are no gradient step. Give dp 'unit: site', or take 'regressor' or "
            f"'deepcox'."
        )
    return private_fits.releases(config, dp)


METHOD = Method(
    name="regression_forest",
    title="deep regression forest: soft trees on a network, of a value or of survival",
    tasks=("regression", "survival"),
    outcomes=("continuous", "survival"),
    paper="Shen et al. 2018; Nolte et al. 2023 (federated); survival leaves are ours",
    reveals=(
        f"{FIRST}; "
        + "; ".join(f"{name}: {text}" for name, text in {**fits.REVEALS, "exact": EXACT}.items())
        + f"; {HELD_OUT}; an aggregation other than mean: {fits.SEEN}; with monitor: "
        f"{heterogeneity.REVEALS}; {fits.MORE}; with personal: also the user's own model, which "
        f"the coordinator sees; with refined: sums {refined.REVEALS}."
    ),
    reveals_with=reveals_with,
    unguarded=(
        "Models, or gradients of a network, weighted by rows, no sums of covariates "
        "(`training.networks.local`); what a network may remember of few rows is not checked. A "
        "leaf is updated from a least number of rows, the setting leaf_rows. Sums for a map of the "
        "columns have the checks of an exact fit."
    ),
    settings=ForestSettings,
    fit=fit,
    model=ForestModel,
    steps=(
        *outcome_moments.STEPS,
        *refined.STEPS,
        *timegrid.STEPS,
        count_deaths,
        sum_soft_leaves,
        *pooled.STEPS,
        *strategies.STEPS,
        *heterogeneity.STEPS,
        *personal.STEPS,
        *own_counts.STEPS,
        *private.STEPS,
    ),
    asks=asks,
    own_model=own_model,
    bounds=bounds,
    private=PrivateFits(
        releases=releases,
        reveals=private_fits.reveals,
        clips={"site": private_fits.CLIPS["site"]},
        held=held,
    ),
    preprocess={"scale": "standard", "impute": "median"},
    own=fits.own,
)

__all__ = ["METHOD", "ForestModel", "ForestSettings"]
