"""Neural networks of classes, values and counts: `classifier` and `regressor`, by one program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.neural.model import NeuralModel
from fedcohort.algorithms.neural.program import (
    aim_of,
    classes_of,
    fit_classifier,
    fit_regressor,
    own_model,
)
from fedcohort.algorithms.neural.settings import NeuralSettings, RegressorSettings
from fedcohort.models.losses import Rescaled
from fedcohort.protocol import Dp, Fitted, Method, PrivateFits, Release, Step, Task
from fedcohort.training import heterogeneity, outcome_moments, personal, private
from fedcohort.training.class_sizes import STEPS, count_each_class
from fedcohort.training.networks import fits, pooled, private_fits, refined, strategies
from fedcohort.training.personal import own_counts

EXACT = "each step, the sum over sites of the gradient of the loss"
HELD_OUT = (
    "with a patience or lr_rule: plateau each round the loss of the rows held out, as a sum over "
    "sites"
)
SIZES = "once, how many rows each class has, as a sum over sites"


def asks(config: NeuralSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps that a fit with these settings can ask for."""
    first = count_each_class if config.by_class else outcome_moments.sum_outcome
    held_out = (pooled.sum_losses,) if _pools_losses(config) else ()
    mapped = () if config.refined == "none" else refined.STEPS
    return (first, *mapped, *fits.asks(config, pooled.pull_rows), *held_out)


def reveals_with(config: NeuralSettings) -> str:
    """Describe what leaves a site with these settings."""
    first = SIZES if config.by_class else outcome_moments.REVEALS
    held_out = f"; {HELD_OUT}" if _pools_losses(config) else ""
    trained = fits.reveals(config, EXACT, "the coordinator sees")
    mapped = refined.reveals(config.refined)
    return f"{first[0].upper()}{first[1:]}{mapped}; {trained}{held_out}."


def _pools_losses(config: NeuralSettings) -> bool:
    """Return whether the loss of held-out rows is asked for, as a sum over sites."""
    return config.looks and not config.counts and config.strategy != "ensemble"


def bounds(config: NeuralSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`).

    The mean and the standard deviation in a regressor's plan follow from the sites' sums.
    """
    plan = aim_of(task).plan(config, task)
    texts = dict.fromkeys((plan.text, replace(plan, validation_fraction=0.0).text))
    plans: tuple[Any, ...] = tuple(texts)
    if not config.by_class:
        plans += tuple(Rescaled(text, plan.loss) for text in texts)
    if config.refined != "none":
        maps = refined.blank(task)
        plans = tuple(refined.Mapped(rule, maps) for rule in plans)
    return {
        **refined.BOUNDS,
        "plan": plans,
        "classes": (len(classes_of(task)),),
        **fits.bounds(config),
        **config.own_bounds((config.personal_way(plan),), config.rounds),
    }


def held(config: NeuralSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that a site requires in a private fit: all except models."""
    assert task.dp is not None
    return private_fits.held(config, task.dp, aim_of(task).plan(config, task))


def releases(config: NeuralSettings, dp: Dp) -> Sequence[Release]:
    """Return all releases of a private fit; raise `SettingError` without one."""
    config.check_private()
    return private_fits.releases(config, dp)


def _method(
    title: str,
    tasks: tuple[str, ...],
    outcomes: tuple[str, ...],
    first: str,
    settings: type[NeuralSettings],
    fit: Callable[..., Fitted],
) -> Method:
    by_strategy = {**fits.REVEALS, "exact": EXACT}
    return Method(
        name=settings.method,
        title=title,
        tasks=tasks,
        outcomes=outcomes,
        paper="Rumelhart, Hinton, Williams 1986; LeCun et al. 1998; McMahan et al. 2017 (fedavg)",
        reveals=(
            f"{first[0].upper()}{first[1:]}; "
            + "; ".join(f"{name}: {text}" for name, text in by_strategy.items())
            + f"; {HELD_OUT}; an aggregation other than mean: {fits.SEEN}; with monitor: "
            f"{heterogeneity.REVEALS}; {fits.MORE}; with personal: also the user's own model, "
            f"which the coordinator sees; with refined: sums {refined.REVEALS}."
        ),
        reveals_with=reveals_with,
        unguarded=(
            "Models, or gradients of a network, weighted by rows, no sums of covariates "
            "(`training.networks.local`); what a network may remember of few rows is not checked. "
            "Sums for a map of the columns have the checks of an exact fit."
        ),
        settings=settings,
        fit=fit,
        model=NeuralModel,
        steps=(
            *STEPS,
            *outcome_moments.STEPS,
            *refined.STEPS,
            *pooled.STEPS,
            pooled.descend_rows,
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
            clips=private_fits.CLIPS,
            held=held,
        ),
        preprocess={"scale": "standard", "impute": "median"},
        own=fits.own,
    )


METHOD = _method(
    "neural network of classes, for tables and images",
    ("classification",),
    ("binary", "category", "ordinal"),
    SIZES,
    NeuralSettings,
    fit_classifier,
)
REGRESSOR = _method(
    "neural network of a value or a count, for tables and images",
    ("regression",),
    ("continuous", "count"),
    outcome_moments.REVEALS,
    RegressorSettings,
    fit_regressor,
)

__all__ = ["METHOD", "REGRESSOR", "NeuralModel", "NeuralSettings", "RegressorSettings"]
