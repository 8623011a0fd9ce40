"""Hierarchical Dirichlet process over sites: topics are inferred at each site, then merged by
k-means.

The model and its sampler are those of `topics`. Each site infers its number of topics, and the
topics. The coordinator clusters all sites' topics, weighted by their rows; the weighted mean of
each cluster is a topic of all sites. This is not a fit of one model to all rows: a topic that is
rare at every site is not found. With one site it is the sampler's result. Topics of fewer than
`min_cell` rows over all sites are dropped, the smallest first.

Revealed: `Moments` once and `Labelled` once or a few times, as sums over all sites; `Topics` of
each site, once, with topics of `min_cell` rows or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcohort.algorithms.hdp.model import TopicModel
from fedcohort.algorithms.hdp.topics import Topics, count_topics, own_topics
from fedcohort.arrays import Array
from fedcohort.numerics.centroids import nearest, weighted_kmeans
from fedcohort.privacy.disclosure.counts import few
from fedcohort.protocol import (
    DataError,
    Federation,
    SettingError,
    Settings,
    Task,
    check_all_answered,
    setting,
)
from fedcohort.training.clusters.seeding import cloud


@dataclass(frozen=True, kw_only=True)
class HdpSettings(Settings, method="hdp"):
    """Settings of `hdp`."""

    n_clusters: int | Literal["auto"] = setting(
        "auto",
        "Number of merged topics; auto: the largest number at one site",
        within="[1, inf)",
    )
    iterations: int = setting(500, "Sweeps of Gibbs sampling at each site", within="[1, inf)")
    alpha: float = setting(
        0.1, "Concentration of a row's shares around the site's", within="(0, inf)"
    )
    gamma: float = setting(0.1, "Concentration of the site's shares", within="(0, inf)")
    eta: float = setting(
        0.5, "Concentration of a topic's columns: less gives more topics", within="(0, inf)"
    )


def fit(fed: Federation, config: HdpSettings, task: Task) -> TopicModel:
    """Infer topics at each site, and merge them.

    Raises
    ------
    DataError : no features, a feature with values other than 0 and 1, or no topic of `min_cell`
        rows at any site.
    SettingError : more topics requested than sites have.
    SiteUnavailable : a site left after the first call.
    """
    if not task.features:
        raise DataError("there are no columns to cluster by; name at least one.")
    least = task.min_cell if len(fed.sites) > 1 else 1
    pooled = cloud(fed, least=least)
    for name, binary in zip(task.features, pooled.binary, strict=True):
        if not binary:
            raise DataError(
                f"column {name!r} has other values than 0 and 1, but hdp needs binary columns. "
                f"Leave it out, make classes of it, or use kmeans."
            )
    fed = pooled.fed
    next(iter(fed.rounds(1)))
    replies = fed.gather(
        own_topics, iterations=config.iterations, alpha=config.alpha, gamma=config.gamma,
        eta=config.eta, least=least,
    )  # fmt: skip
    check_all_answered(fed)
    topics, weights = together(replies, config.n_clusters, least, task.rng)
    while True:
        found = fed.sum(count_topics, topics=topics, weights=weights, concentration=config.alpha)
        check_all_answered(fed)
        if found.counts.min() >= least or len(topics) == 1:
            break
        kept = np.arange(len(topics)) != found.counts.argmin()
        topics, weights = topics[kept], weights[kept] / weights[kept].sum()
    fed.record(topics=float(len(topics)))
    order = np.argsort(-found.counts, kind="stable")
    return TopicModel(
        features=task.features,
        topics=topics[order],
        weights=weights[order],
        counts=found.counts[order],
        blank=0 if few(found.blank, least) else int(found.blank),
        alpha=config.alpha,
        asked=len(topics) if config.n_clusters == "auto" else int(config.n_clusters),
    )


def together(
    sites_topics: dict[str, Topics], k: int | str, least: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return merged topics of all sites (k, p) and their shares of rows (k,).

    Raises
    ------
    DataError : no site has a topic.
    SettingError : all sites have fewer than k.
    """
    replies = [own for _, own in sorted(sites_topics.items())]
    topics = np.vstack([own.topics for own in replies])
    sizes = np.concatenate([own.sizes for own in replies]).astype(float)
    if not len(sizes):
        raise DataError(
            f"no site has a topic of {least} rows or more. Let larger sites take part, or use "
            f"kmodes."
        )
    number = max(len(own.sizes) for own in replies) if k == "auto" else int(k)
    if len(sizes) < number:
        raise SettingError(
            f"setting 'n_clusters' is {number}, and the sites found {len(sizes)} topics of {least} "
            f"rows or more. Give fewer, or auto."
        )
    if len(sizes) == number:
        return topics, sizes / sizes.sum()
    centroids, _ = weighted_kmeans(topics, sizes, number, rng)
    label = nearest(topics, centroids)
    rows = np.bincount(label, weights=sizes, minlength=number)
    return centroids[rows > 0], rows[rows > 0] / sizes.sum()
