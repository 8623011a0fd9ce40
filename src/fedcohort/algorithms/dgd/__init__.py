"""Deep generative decoder over sites: clusters and latent coordinates, missing values allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.dgd.model import DgdModel
from fedcohort.algorithms.dgd.program import fit, space_of
from fedcohort.algorithms.dgd.settings import DgdSettings
from fedcohort.algorithms.dgd.steps import (
    STEPS,
    held_out_density,
    learn_decoder,
    learn_decoder_seen,
    place_rows,
)
from fedcohort.protocol import Method, Step, Task
from fedcohort.training.clusters import candidates, lloyd, seeding
from fedcohort.training.networks import counts
from fedcohort.training.networks.entries import count_entries

ONCE = "once, how many rows and entries of each column are known, as sums over sites"
SUMS = (
    "each round, the sum over sites of their decoders and mixtures, weighted by rows; the "
    "representations of patients stay at their site"
)
SEEN = (
    "each round, every site's own decoder and mixture, which the coordinator sees: no masked sum "
    "can hide it; the representations of patients stay at their site"
)
HELD_OUT = (
    "with a patience or lr_rule: plateau, each round the log density of rows held out, as a sum "
    "over sites"
)
LLOYD = (
    "between the phases, k-means of representations: their number, totals and squares, counts of "
    "rows near to drawn points, and sums over clusters of min_cell rows or more"
)


def reveals_with(config: DgdSettings) -> str:
    """Return what leaves a site, in plain words."""
    parts = [ONCE, (SUMS if config.centre.plain else SEEN) + config.reveals_more]
    if config.looks and not config.counts:
        parts.append(HELD_OUT)
    if config.begin == "kmeans":
        parts.append(LLOYD)
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def asks(config: DgdSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit."""
    looks = counts.STEPS if config.counts else (held_out_density,) * config.looks
    trains = learn_decoder if config.centre.plain else learn_decoder_seen
    begins = (place_rows, seeding.sum_points, *candidates.STEPS, *lloyd.STEPS)
    return (count_entries, trains, *looks, *begins * (config.begin == "kmeans"))


def bounds(config: DgdSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    plans = [config.plan(task, k) for k in (1, config.n_clusters)]
    bare = [replace(plan, validation_fraction=0.0) for plan in plans]
    return {
        "plan": tuple(plan.text for plan in (*plans, *bare)),
        "begin": (False, True),
        "seek": (False, True),
        "since_cut": range(max(config.rounds, config.cluster_rounds)),
        "space": (space_of(plans[0]).text,),
        "unscaled": (False,),
    }


METHOD = Method(
    name="dgd",
    title="deep generative decoder: clusters and latent coordinates, missing values allowed",
    tasks=("clustering", "latent", "synthesis", "imputation"),
    paper=(
        "Schuster, Krogh, The deep generative decoder, Bioinformatics 39(9), 2023; GenoMed4All "
        "D6.2, chapter 9"
    ),
    reveals=(
        f"{ONCE[0].upper()}{ONCE[1:]}; {SUMS}; {HELD_OUT}; begin: kmeans: {LLOYD}; an "
        f"aggregation other than mean: {SEEN}."
    ),
    reveals_with=reveals_with,
    unguarded=(
        "Models weighted by rows, no sums of covariates; clusters of min_cell rows or more; "
        "components of fewer than min_cell rows are left out of the model "
        "(`algorithms.dgd.disclosure`); what a network may store of few rows is not checked."
    ),
    settings=DgdSettings,
    fit=fit,
    model=DgdModel,
    steps=(*STEPS, *counts.STEPS, seeding.sum_points, *candidates.STEPS, *lloyd.STEPS),
    asks=asks,
    bounds=bounds,
    preprocess={"impute": "none", "scale": "standard"},
    own=lambda config: "",
)

__all__ = ["METHOD", "DgdModel", "DgdSettings"]
