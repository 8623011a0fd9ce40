"""Variational autoencoders over sites: latent variables of patients, with one view or several."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.autoencoders import joint
from fedcohort.algorithms.autoencoders.model import LatentModel, VaeModel
from fedcohort.algorithms.autoencoders.program import VISITS, fit, starts_of
from fedcohort.algorithms.autoencoders.settings import (
    LatentSettings,
    McvaeSettings,
    VaeSettings,
)
from fedcohort.algorithms.autoencoders.steps import (
    STEPS,
    held_out_elbo,
    learn_seen,
)
from fedcohort.protocol import Method, Step, Task
from fedcohort.training import heterogeneity, personal
from fedcohort.training.networks import collapse, compression, counts, fits
from fedcohort.training.networks.collapse import latent_divergences
from fedcohort.training.networks.entries import REVEALS as ONCE
from fedcohort.training.networks.entries import count_entries, views_of
from fedcohort.training.networks.strategies import train_kept
from fedcohort.training.personal import own_counts

#: Why no fit calls `data.exact`.
_UNGUARDED = (
    "Models weighted by rows, no sums of covariates (`training.networks.strategies`); what a "
    "network may store of few rows is not checked."
)

SUMS = "each round, the sum over sites of their models, weighted by rows"
LONE = " (for a view at only one site, that site's own part)"
SEEN = "each round, every site's own model, which the coordinator sees: no masked sum can hide it"
HELD_OUT = (
    "with a patience or lr_rule: plateau, each round the ELBO of rows held out, as a sum over sites"
)


def reveals_with(config: LatentSettings) -> str:
    """Return what leaves a site, in plain words."""
    parts = [ONCE, SUMS + LONE if config.centre.plain else SEEN]
    parts[-1] += config.reveals_more
    if config.looks and not config.counts:
        parts.append(HELD_OUT)
    if _joint(config):
        experts = config.visible
        parts.append(joint.REVEALS_EXPERTS if experts else joint.REVEALS_PRODUCT)
    if config.told_divergences and config.personal == "none":
        parts.append(collapse.REVEALS)
    if config.personal != "none":
        parts.append(config.reveals_own("the coordinator sees"))
    if config.monitor != "none":
        parts.append(heterogeneity.REVEALS)
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def asks(config: LatentSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit."""
    visits = VISITS.by(config)
    sends = compression.asks(config.compression)
    if config.personal != "none":
        own = config.asks_own(config.personal, visits)
        return (count_entries, *own, *sends)
    held_out = (held_out_elbo,) if config.looks else ()
    if config.counts:
        held_out = counts.STEPS
    if _joint(config):
        ask = joint.tell_prior if config.visible else joint.sum_priors
        told = (joint.joint_divergences,) * (config.told_divergences > 0)
        return (count_entries, ask, joint.learn_with_prior, *told)
    trains = visits.sum if config.centre.plain else learn_seen
    return (
        count_entries,
        trains,
        *sends,
        *held_out,
        *(latent_divergences,) * (config.told_divergences > 0),
        *heterogeneity.asks(config.monitor),
    )


def _joint(config: LatentSettings) -> bool:
    """Return whether the prior is made of the sites' own."""
    return isinstance(config, VaeSettings) and config.prior == "vamp"


def bounds(config: LatentSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    views = views_of(task)
    plan = config.plan(views, task.heads)
    ways = (config.personal_way(plan),) if views else ()
    return {
        "plan": (plan.text, replace(plan, validation_fraction=0.0).text),
        "since_cut": range(config.rounds),
        "at": range(config.rounds),
        "pseudo": (config.components,) if isinstance(config, VaeSettings) else (),
        "patience": (-1 if config.patience is None else config.patience,),
        **compression.BOUNDS,
        **config.own_bounds(ways, config.rounds),
    }


def _method(
    title: str, paper: str, settings: type[LatentSettings], model: type[LatentModel] = LatentModel,
    more: str = "", steps: tuple[Step[..., Any], ...] = (), tasks: tuple[str, ...] = (),
) -> Method:  # fmt: skip
    """Return a method.

    Parameters
    ----------
    more, steps : what it reveals besides, in words that begin with "; ", and its steps for that.
    tasks : further kinds of task.
    """
    return Method(
        name=settings.method,
        title=title,
        tasks=("latent", "synthesis", "imputation", *tasks),
        paper=paper,
        reveals=(
            f"{ONCE[0].upper()}{ONCE[1:]}; {SUMS}; {HELD_OUT}; "
            f"{collapse.REVEALS}; "
            f"{fits.MORE}; an "
            f"aggregation other than mean: {SEEN}; with personal, besides, the user's own model, "
            f"which the coordinator sees; with monitor: {heterogeneity.REVEALS}"
            f"{more}."
        ),
        reveals_with=reveals_with,
        unguarded=_UNGUARDED,
        settings=settings,
        fit=fit,
        model=model,
        steps=(
            count_entries,
            *STEPS,
            *steps,
            latent_divergences,
            train_kept,
            *counts.STEPS,
            *compression.STEPS,
            *personal.STEPS,
            *own_counts.STEPS,
            *heterogeneity.STEPS,
        ),
        asks=asks,
        bounds=bounds,
        preprocess={"impute": "none", "scale": "standard"},
        own=lambda config: (
            "with starts above 1 a fit begins at several models" if starts_of(config) > 1 else ""
        ),
    )


VAE = _method(
    "variational autoencoder: latent coordinates of patients, missing values allowed",
    "Kingma, Welling, ICLR 2014; federated as a baseline in Balelli, Silva, Lorenzi 2022",
    VaeSettings,
    VaeModel,
    f"; {joint.REVEALS_EXPERTS}; {joint.REVEALS_PRODUCT}",
    joint.STEPS,
    ("clustering",),  # of `prior: mixture` (`VaeSettings.check_task`)
)
MCVAE = _method(
    "multi-channel variational autoencoder: latent coordinates from several views of a patient",
    "Antelmi et al., ICML 2019; federated as a baseline in Balelli, Silva, Lorenzi 2022",
    McvaeSettings,
)

__all__ = ["MCVAE", "VAE", "LatentModel", "McvaeSettings", "VaeModel", "VaeSettings"]
