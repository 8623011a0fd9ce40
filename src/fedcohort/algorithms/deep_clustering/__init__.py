"""Deep embedded clustering over sites: clusters in the latent space of an autoencoder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.deep_clustering import layerwise, own_steps
from fedcohort.algorithms.deep_clustering.model import DeepClusters
from fedcohort.algorithms.deep_clustering.own_steps import (
    refine_with_own,
    sum_memberships,
    tell_clusters,
)
from fedcohort.algorithms.deep_clustering.program import fit
from fedcohort.algorithms.deep_clustering.settings import DeepClusteringSettings
from fedcohort.algorithms.deep_clustering.steps import (
    STEPS,
    held_out_loss,
    look_at_columns,
    rebuild,
    rebuild_kept,
    rebuild_seen,
    refine,
    refine_kept,
    refine_seen,
    soft_frequencies,
)
from fedcohort.models.stacking import lower, objectives, pairs
from fedcohort.protocol import Method, Step, Task
from fedcohort.training import heterogeneity, personal
from fedcohort.training.clusters import candidates, how_many, lloyd, points, seeding
from fedcohort.training.clusters.points import Space
from fedcohort.training.networks import compression, counts, fits
from fedcohort.training.networks.strategies import keeps
from fedcohort.training.personal.steps import count_learners

SUMS = (
    "as sums over sites: once, totals of the columns; each round, models weighted by rows, and how "
    "far rows belong to each cluster; and once, rows, means and variances of the clusters"
)
SEEN = "each round, every site's own model, which the coordinator sees: no masked sum can hide it"
LLOYD = (
    "k-means of latent points: their totals and squares, counts of rows near to drawn points, and "
    "sums over clusters"
)
OWN = (
    "once, centroids and sizes of every site's own clusters of latent points, none of fewer rows "
    "than min_cell, which the coordinator sees"
)
GAP = "once, products of sums of latent points over min_cell rows or more, drawn at random"
OF_USER = (
    "once how many sites have rows to learn from; after phase 2, the user's own encoder and "
    "centroids and their loss, which the coordinator and all sites see"
)
PARTS = "; a site's own last layer and centroids stay there"
LEFT_OUT = "the same sums without each site in turn, from which that site's own follow"


def reveals_with(config: DeepClusteringSettings) -> str:
    """Return what leaves a site, in plain words."""
    parts = [SUMS if config.centre.plain else f"{SEEN}; the rest {SUMS}"]
    parts[0] += config.reveals_more
    if config.personal != "none":
        parts.append(OF_USER + (PARTS if config.personal in personal.PARTED else ""))
    if config.monitor != "none":
        parts.append(heterogeneity.REVEALS)
    auto = config.n_clusters == "auto"
    if config.centroids == "lloyd" or auto:
        parts.append(LLOYD + (", for each number of clusters" if auto else ""))
    if config.centroids != "lloyd":
        parts.append(OWN)
    if auto:
        parts.append(GAP if config.choose == "gap" else LEFT_OUT)
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def asks(config: DeepClusteringSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit."""
    plain, kept = config.centre.plain, keeps(config)
    rebuilds, refines = (rebuild_kept, refine_kept) if kept else (rebuild, refine)
    found: list[Step[..., Any]] = [look_at_columns, *points.STEPS, *lloyd.STEPS]
    found += [rebuilds if plain else rebuild_seen, *heterogeneity.asks(config.monitor)]
    if config.personal == "none" or config.monitor != "none":
        found += [soft_frequencies, refines if plain else refine_seen]
    if config.personal != "none":
        found += _asks_own(config)
    if config.looks:
        found += counts.STEPS if config.counts else (held_out_loss,)
    if config.pretrain == "layerwise":
        pair = layerwise.train_pair_kept if kept else layerwise.train_pair
        found.append(pair if plain else layerwise.visit_pair)
    if config.centroids != "lloyd":
        found.append(seeding.own_centroids)
    auto = config.n_clusters == "auto"
    if config.centroids == "lloyd" or auto or config.latent_scale == "standard":
        found.append(seeding.sum_points)
    if config.centroids == "lloyd" or auto:
        found += candidates.STEPS
    if auto and config.choose == "gap":
        found += how_many.STEPS
    return (*found, *compression.asks(config.compression))


def _asks_own(config: DeepClusteringSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a personal phase 2."""
    alone = config.target == "site" or config.personal in personal.PARTED
    refines = refine_kept if keeps(config) else refine
    trains = refines if config.personal in personal.AFTER else refine_with_own
    sums = () if alone else (sum_memberships,)
    return (*dict.fromkeys((*sums, trains, count_learners, tell_clusters)),)


def bounds(config: DeepClusteringSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    p, most = len(task.features), config.numbers[-1]
    plan, autoencoder = config.plan(p), config.autoencoder(p)
    made = zip(pairs(autoencoder), objectives(autoencoder, config.reconstruction), strict=True)
    small = (replace(plan, network=pair.spec, loss=goal.spec) for pair, goal in made)
    whole = [replace(one, validation_fraction=0.0) for one in (plan, config.watched_plan(p))]
    plans = [
        plan,
        config.watched_plan(p),
        *whole,
        *small,
        *(config.cluster_plan(p, k) for k in range(1, most + 1)),
    ]
    spaces = (
        Space(
            network=plan.network, dtype=config.dtype, device=config.device, scale=scale, kept=True
        )
        for scale in ("none", config.latent_scale)
    )
    ways = (config.cluster_way(p, k) for k in range(1, most + 1))
    return {
        **config.own_bounds(ways if p else (), config.rounds),
        "plan": tuple(one.text for one in plans),
        "below": tuple(lower(autoencoder, n).spec for n in range(1, len(autoencoder.widths))),
        "space": tuple(space.text for space in spaces),
        "since_cut": range(config.rounds),
        **compression.BOUNDS,
        "k": config.numbers,
        "restarts": (config.restarts,),
        "unscaled": (False, True),
    }


def own(config: DeepClusteringSettings) -> str:
    """Return why a fit cannot use rows of the coordinator, or "" (`Method.own`)."""
    layers = config.pretrain == "layerwise"
    return "pretrain 'layerwise' begins with single layers, not with a first model" * layers


METHOD = Method(
    name="deep_clustering",
    title="deep embedded clustering: groups in the latent space of an autoencoder",
    tasks=("clustering", "synthesis"),
    paper=(
        "Xie, Girshick, Farhadi, ICML 2016; Guo et al., IJCAI 2017 (IDEC); federated on patients "
        "with MDS: GenoMed4All, thesis on unsupervised clustering by federated learning"
    ),
    reveals=(
        f"{SUMS[0].upper()}{SUMS[1:]}; centroids: lloyd: {LLOYD}; other centroids: {OWN}; an "
        f"aggregation other than mean: {SEEN}; {fits.MORE}; n_clusters: auto: {GAP}; choose: "
        f"consensus: {LEFT_OUT}; with personal: {OF_USER}{PARTS} in fedper and fedrep; with "
        f"monitor: {heterogeneity.REVEALS}."
    ),
    reveals_with=reveals_with,
    unguarded=(
        "Models weighted by rows, no sums of covariates; clusters of min_cell rows or more, whose "
        "sums of two rounds do not differ in fewer (`training.clusters.lloyd`)."
    ),
    settings=DeepClusteringSettings,
    fit=fit,
    model=DeepClusters,
    steps=(
        *STEPS,
        *counts.STEPS,
        *compression.STEPS,
        *own_steps.STEPS,
        count_learners,
        *heterogeneity.STEPS,
        *layerwise.STEPS,
        *points.STEPS,
        *seeding.STEPS,
        *candidates.STEPS,
        *lloyd.STEPS,
        *how_many.STEPS,
    ),
    asks=asks,
    bounds=bounds,
    preprocess={"scale": "minmax", "impute": "mean"},
    own=own,
)

__all__ = ["METHOD", "DeepClusteringSettings", "DeepClusters"]
