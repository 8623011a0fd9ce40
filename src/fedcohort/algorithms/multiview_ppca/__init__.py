"""Multi-view probabilistic PCA over sites, some of which lack views."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.multiview_ppca import differences, private
from fedcohort.algorithms.multiview_ppca.model import MultiView
from fedcohort.algorithms.multiview_ppca.program import fit
from fedcohort.algorithms.multiview_ppca.settings import Settings
from fedcohort.algorithms.multiview_ppca.steps import (
    STEPS,
    compare,
    criterion,
    first_round,
    look,
    next_round,
    tell_information,
)
from fedcohort.protocol import Method, PrivateFits, Step, Task

REVEALS = (
    "Only sums over all sites: once the number of rows, of entries of each column, of sites that "
    "have it, and of sites whose rows have both of two views; and in each round, over the sites "
    "that have a view, sums of their parameters of it (means, loadings, noise), of the squared "
    "distances of these from the common ones, of the means of their patients' latent points and "
    "their products, and of log-likelihoods. For a view at only one site, these are that site's "
    "own. A site tells nothing about a view that fewer than min_cell of its rows have."
)
WAIC = " For each number of latent dimensions, sums over rows of the parts of WAIC."
OWN = (
    " Of each site, once: the distances of its patients' mean, and of its offsets and noise in "
    "each view with min_cell rows or more, from the common model."
)


def _reveals(config: Settings) -> str:
    """Return what leaves a site with these settings."""
    return REVEALS + (WAIC if config.draws else "") + (OWN if config.compare else "")


def asks(config: Settings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit."""
    found: tuple[Step[..., Any], ...] = (look, first_round, next_round)
    found += (tell_information, criterion) if config.draws else ()
    return found + ((compare,) if config.compare else ())


def bounds(config: Settings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return {
        "q": tuple(config.numbers),
        "narrow": (config.narrow,),
        "each": (config.noise == "column",),
        "start": (config.start, "common"),
        "uncertain": (config.spread == "posterior", False),
        "first_round.epochs": (
            config.first_epochs, config.first_epochs + config.rounds * config.internal_epochs
        ),
        "next_round.epochs": (config.internal_epochs,),
        "criterion.epochs": (config.internal_epochs,),
        "tell_information.epochs": (config.internal_epochs,),
        "draws": (config.draws,),
        "wait": (2 * (config.numbers[-1] + 1),),
        "least": (task.min_cell, 1),
    }  # fmt: skip


METHOD = Method(
    name="multiview_ppca",
    title="one latent space of several views, which sites may lack; imputes, compares sites",
    tasks=("latent", "synthesis", "imputation"),
    paper="Balelli, Silva, Lorenzi, MELBA 1, 2022 (Fed-mv-PPCA)",
    reveals=REVEALS,
    reveals_with=_reveals,
    unguarded=(
        "Changes of a model of a view that min_cell rows have (`algorithms.multiview_ppca.steps`)."
    ),
    settings=Settings,
    fit=fit,
    model=MultiView,
    steps=(*STEPS, private.views_privately, *differences.STEPS),
    preprocess={"scale": "standard", "impute": "none"},
    asks=asks,
    bounds=bounds,
    private=PrivateFits(
        releases=private.releases,
        reveals=private.reveals,
        held=private.held,
        clips=private.CLIPS,
    ),
)

__all__ = ["METHOD", "MultiView", "Settings"]
