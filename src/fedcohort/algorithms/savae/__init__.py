"""Survival analysis with latent variables: a variational autoencoder of covariates and time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.savae.model import SavaeModel
from fedcohort.algorithms.savae.program import INTERVALS, fit, visits_of
from fedcohort.algorithms.savae.settings import SavaeSettings
from fedcohort.algorithms.savae.steps import STEPS
from fedcohort.data import timegrid
from fedcohort.models.objectives import InTimes
from fedcohort.protocol import Method, Step, Task
from fedcohort.training import heterogeneity, personal
from fedcohort.training.networks import collapse, entries, fits, pooled, strategies
from fedcohort.training.networks.collapse import latent_divergences
from fedcohort.training.networks.entries import count_entries
from fedcohort.training.outcome_moments import sum_times
from fedcohort.training.personal import own_counts

EXACT = "each step, the sum over sites of the gradient of the objective"
FIRST = (
    f"{entries.REVEALS}; histograms of the times, and the sum of their logarithms, as sums over "
    f"sites"
)
HELD_OUT = (
    "with a patience or lr_rule: plateau each round the objective of rows held out, as a sum over "
    "sites"
)


def asks(config: SavaeSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps that a fit with these settings can ask for."""
    held_out = (pooled.sum_losses,) if _pools_losses(config) else ()
    watched = (latent_divergences,) if config.watches else ()
    return (
        count_entries, sum_times, *timegrid.asks(INTERVALS),
        *fits.asks(config, pooled.pull_rows, visits_of(config)), *held_out, *watched,
    )  # fmt: skip


def reveals_with(config: SavaeSettings) -> str:
    """Describe what leaves a site with these settings."""
    parts = [FIRST, fits.reveals(config, EXACT, "the coordinator sees")]
    parts += [HELD_OUT] * _pools_losses(config) + [collapse.REVEALS] * config.watches
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def _pools_losses(config: SavaeSettings) -> bool:
    """Return whether the loss of held-out rows is asked for, as a sum over sites."""
    return config.looks and not config.counts and config.strategy != "ensemble"


def bounds(config: SavaeSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`).

    The unit and the parts of the time in a plan follow from the sites' sums.
    """
    plan = config.plan(task)
    texts = dict.fromkeys((plan.text, replace(plan, validation_fraction=0.0).text))
    return {
        "plan": tuple(InTimes(text, plan.loss, config.n_parts) for text in texts),
        **fits.bounds(config),
        **config.own_bounds((config.personal_way(plan),), config.rounds),
    }


METHOD = Method(
    name="savae",
    title="survival variational autoencoder: curves, virtual patients, missing values allowed",
    tasks=("survival", "synthesis"),
    paper="GenoMed4All D6.2 (2021), section 6.4; Apellániz, Parras, Zazo 2023",
    reveals=(
        f"{FIRST[0].upper()}{FIRST[1:]}; "
        + "; ".join(f"{name}: {text}" for name, text in {**fits.REVEALS, "exact": EXACT}.items())
        + f"; {HELD_OUT}; {collapse.REVEALS}; an aggregation other than mean: {fits.SEEN}; with "
        f"monitor: {heterogeneity.REVEALS}; {fits.MORE}; with personal: also the user's own model, "
        f"which the coordinator sees."
    ),
    reveals_with=reveals_with,
    unguarded=(
        "Models, or gradients of a network, weighted by rows, no sums of covariates "
        "(`training.networks.local`); what a network may remember of few rows is not checked."
    ),
    settings=SavaeSettings,
    fit=fit,
    model=SavaeModel,
    steps=(
        count_entries,
        sum_times,
        latent_divergences,
        *timegrid.STEPS,
        *pooled.STEPS,
        pooled.descend_rows,
        *strategies.STEPS,
        *STEPS,
        *heterogeneity.STEPS,
        *personal.STEPS,
        *own_counts.STEPS,
    ),
    asks=asks,
    bounds=bounds,
    preprocess={"impute": "none", "scale": "standard"},
    own=fits.own,
)

__all__ = ["METHOD", "SavaeModel", "SavaeSettings"]
