"""Deep embedded clustering over sites: an autoencoder, then centroids in its latent space.

Xie et al., ICML 2016; on MDS patients and federated: thesis 003 (GenoMed4All), sections 2.1.1 and
2.1.2; with reconstruction kept in phase 2: Guo et al., "Improved deep embedded clustering", IJCAI
2017. q, P and f are those of `models.dec`, the losses those of `models.objectives`:

    phase 1   min_θ  (1−β) MSE + β (Dice + BCE)               by rounds of local training     (1)
    between   μ      k-means in the latent space              by sums, or from sites' own     (2)
    phase 2   min_θμ KL(P‖Q)/n + γ (1),  P from f             by rounds of local training     (3)

In phase 2 each round begins with a sum: f_j = Σ_i q_ij over the rows of all sites, so that every
site's P is that of the pooled table. It ends when fewer than `tol` of all labels change between two
rounds. With one step a round of plain gradient descent on all rows, and means weighted by rows, the
rounds equal pooled training. With ``target: site`` f is each site's own, as in the thesis, and they
do not.

Clusters with fewer than `min_cell` rows are dropped, the smallest first, and their rows counted
with the nearest of the others. Means and variances within the remaining clusters make synthetic
rows. Before k-means, and at the end, sites receive θ once and keep their latent points.

Rows of the coordinator give phase 1 a first model and a validation loss
(`training.networks.validated`). The scales, and the frequencies of flips, are those of the sites.

With `personal`, phase 2 makes encoder and centroids one site's own, by `training.personal`: in
finetune by passes over the user's rows at its end, in ditto beside each round. In fedper and fedrep
the encoder's last layer, μ and f are each site's own, because clusters of different sites may
differ; they start from the common ones. Clusters are summarised over all sites' rows, so all sites
see the user's model. With a monitor (`training.heterogeneity`) clusters are personal only after an
alarm in phase 1.

Revealed: with `personal` see `own_steps` and `training.personal`, with a monitor
`training.heterogeneity`; else `steps`. `Placed` twice. `Near` and `Sums` of latent points
(`training.clusters.partition`) once at the end, and with ``centroids: lloyd`` in the rounds of
k-means, with `Flows`, after `Moments`, once, and `Weighed` candidates
(`training.clusters.candidates`); all as sums over all sites. With other centroids `OwnCentroids` of
each site, once (`training.clusters.seeding`). With ``n_clusters: auto`` see
`training.clusters.how_many`, and with ``pretrain: layerwise``
`algorithms.deep_clustering.layerwise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fedcohort.algorithms.deep_clustering import layerwise
from fedcohort.algorithms.deep_clustering.model import DeepClusters
from fedcohort.algorithms.deep_clustering.own_steps import (
    refine_with_own,
    sum_memberships,
    tell_clusters,
)
from fedcohort.algorithms.deep_clustering.settings import DeepClusteringSettings
from fedcohort.algorithms.deep_clustering.steps import (
    Columns,
    held_out_loss,
    look_at_columns,
    rebuild,
    rebuild_kept,
    rebuild_seen,
    refine,
    refine_kept,
    refine_seen,
    soft_frequencies,
    with_frequencies,
)
from fedcohort.arrays import Array
from fedcohort.models.network import initial
from fedcohort.protocol import DataError, Federation, Row, SettingError, Task, check_all_answered
from fedcohort.training import personal
from fedcohort.training.clusters.candidates import from_candidates
from fedcohort.training.clusters.how_many import by_consensus, by_gap
from fedcohort.training.clusters.lloyd import Found, lloyd, unscaled
from fedcohort.training.clusters.partition import Cells, sum_near
from fedcohort.training.clusters.points import Space, placed
from fedcohort.training.clusters.seeding import Cloud, cloud, from_sites, standard
from fedcohort.training.heterogeneity import watching
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.strategies import Visits, averaging
from fedcohort.training.networks.validated import begun
from fedcohort.training.personal import OwnSteps, Way
from fedcohort.training.rows import Rows


def fit(fed: Federation, config: DeepClusteringSettings, task: Task) -> DeepClusters:
    """Train an autoencoder, find centroids in its latent space, and sharpen both.

    Raises
    ------
    DataError : no columns, an unusable column (named), or fewer rows than `min_cell`.
    SettingError : more clusters than the rows allow, or fewer sites than the aggregation needs.
    NothingToLearn : the user has fewer than `min_cell` rows.
    SiteUnavailable : fewer sites answered than the quorum, or a site left before the first sums of
        k-means.
    """
    if config.personal != "none":
        personal.owner(fed, Way(name=config.personal, user=config.user))
    columns = fed.sum(look_at_columns)
    binary = check_columns(columns, config, task, least_of(fed, task))
    theta, differ = reconstruct(fed, config, task, columns)
    return cluster(fed, config, task, theta, binary, apart=differ)


def cluster(
    fed: Federation, config: DeepClusteringSettings, task: Task, theta: Array, binary: bool,
    *, apart: bool = True, begun: tuple[Array, int, tuple[Row, ...]] | None = None,
) -> DeepClusters:  # fmt: skip
    """Return the clusters after phase 1: centroids, phase 2, eq. (3), and summaries.

    Parameters
    ----------
    theta : θ (P,) of the autoencoder.
    binary : whether samples are 0 or 1.
    apart : whether clusters may be personal, if the settings ask for it.
    begun : what `centroids` returned, where it is known.

    Raises
    ------
    SettingError : the sites' own centroids are fewer than k.
    SiteUnavailable : as in `fit`.
    """
    mu, k, numbers = begun or centroids(fed, config, task, theta)
    own = config.personal != "none" and apart
    sharper = sharpen_own if own else sharpen
    theta, mu, settled = sharper(fed, config, task, theta, mu)
    last = within(fed, config, task, theta, mu)
    return DeepClusters(
        features=task.features,
        network=config.dec(len(task.features), len(last.counts)).spec,
        theta=np.concatenate([theta, last.centroids.ravel()]),
        means=last.means,
        variances=last.variances,
        counts=last.counts,
        binary=binary,
        dtype=config.dtype,
        asked=k,
        settled=settled,
        numbers=numbers,
        user=config.user if config.personal != "none" else "",
        own=own,
    )


def least_of(fed: Federation, task: Task) -> int:
    """Return the fewest rows of a sum; 1 with a single site."""
    return max(task.min_cell, 1) if len(fed.sites) > 1 else 1


def check_columns(seen: Columns, config: DeepClusteringSettings, task: Task, least: int) -> bool:
    """Check the columns; return whether they are zeros and ones.

    Raises
    ------
    DataError : no columns, too few rows, missing values, or values that the settings exclude.
    SettingError : more clusters than the rows allow.
    """
    if not task.features:
        raise DataError("there are no columns to cluster by; name at least one.")

    def first(at: Array) -> str:
        return repr(task.features[int(np.flatnonzero(at)[0])])

    rows, k = int(seen.rows), config.numbers[0]
    if seen.missing.any():
        raise DataError(
            f"column {first(seen.missing)} has missing or infinite values. Let the preprocessing "
            f"impute them."
        )
    if rows < least:
        raise DataError(f"{rows} rows in all are too few to cluster; sums need {least}. Add sites.")
    if k * least > rows:
        raise SettingError(
            f"setting 'n_clusters' is {config.n_clusters}, and {rows} rows make at most "
            f"{rows // least} clusters of {least}. Give fewer, or add sites."
        )
    if config.beta and seen.outside.any():
        raise DataError(
            f"column {first(seen.outside)} has values below 0 or above 1, but a 'beta' above 0 "
            f"needs probabilities. Set scale: minmax, or beta: 0."
        )
    not_binary = seen.outside + seen.fractions > 0
    needs = "binary: true" if config.binary is True else "noise: flip"
    if not_binary.any() and (config.binary is True or config.noise == "flip"):
        raise DataError(
            f"column {first(not_binary)} has other values than 0 and 1, which {needs} needs. Leave "
            f"the column out, or that setting."
        )
    return not not_binary.any() if config.binary == "auto" else config.binary


def reconstruct(
    fed: Federation, config: DeepClusteringSettings, task: Task, columns: Columns
) -> tuple[Array, bool]:
    """Return θ (P,) of the autoencoder after phase 1, eq. (1), and whether sites may differ.

    They may, unless phase 1 was monitored without an alarm.
    """
    p, rule, centre = len(task.features), RULES[config.strategy], config.centre
    plan, schedule = config.plan(p), config.schedule
    flips = config.noise == "flip"
    given = {"frequencies": columns.totals / columns.rows if flips else np.zeros(0)}
    visits = Visits(rebuild, rebuild_seen, lambda theta: given, rebuild_kept)

    def held_out(theta: Array) -> float:
        sums = fed.sum(held_out_loss, theta=theta, plan=plan.text)
        return float(sums.loss) / max(float(sums.rows), 1.0)

    theta = initial(plan.network, task.seed)
    own, plan, theta = begun(
        task, plan, theta, schedule, counts=config.counts,
        made=partial(_as_sites, config=config, frequencies=given["frequencies"]),
    )  # fmt: skip
    if config.pretrain == "layerwise":
        theta = layerwise.pretrain(
            fed, config.autoencoder(p), config.reconstruction, plan, schedule, rule, config.server,
            task.seed, centre, visits,
        )  # fmt: skip
    start = config.server(theta)
    watched = replace(config.watched_plan(p), validation_fraction=plan.validation_fraction)
    seen = watching(fed, watched, config.monitor, least_of(fed, task))
    if own is not None and own.validation is not None:
        held_out = own.loss
    course = averaging(fed, plan, schedule, rule, start, held_out, centre, visits, watch=seen)
    return course.theta, seen is None or seen.fired is not None


def _as_sites(rows: Rows, *, config: DeepClusteringSettings, frequencies: Array) -> Rows:
    """Return the coordinator's rows as sites have theirs: probabilities, with their flips."""
    x = rows.x.clamp(0.0, 1.0) if config.beta else rows.x
    return with_frequencies(Rows(x, rows.loss), frequencies)


def centroids(
    fed: Federation, config: DeepClusteringSettings, task: Task, theta: Array
) -> tuple[Array, int, tuple[Row, ...]]:
    """Return the start centroids μ of phase 2, their number, and the criterion of that number.

    They are fewer if k-means by sums dropped some.

    Raises
    ------
    SettingError : the sites' own centroids are fewer than k.
    """
    rng, least = task.rng, least_of(fed, task)
    fed, space = placed(fed, latent(config, task, theta))
    pooled: Cloud | None = None
    if config.latent_scale == "standard":
        space, pooled = standard(fed, space, least=least)
        fed = pooled.fed
    space = replace(space, scale=config.latent_scale)

    def by_sums(pooled: Cloud, k: int) -> Found:
        start = from_candidates(pooled, k, space, rng=rng, least=least, restarts=config.restarts)
        return lloyd(pooled.fed, start, space, rng=rng, least=least, swaps=config.swaps)

    k, numbers, found = config.numbers[0], (), None
    if config.n_clusters == "auto":
        pooled = pooled or cloud(fed, space, least=least)
        fed = pooled.fed
        possible = [k for k in config.numbers if k * least <= pooled.rows]
        if config.choose == "gap":
            choice = by_gap(pooled, possible, by_sums, rng, least=least, space=space)
        else:
            choice = by_consensus(pooled, possible, by_sums, least=least, space=space)
        k, numbers, found = choice.k, tuple(choice.table), choice.found[choice.k]
    if config.centroids == "lloyd":
        found = found or by_sums(pooled or cloud(fed, space, least=least), k)
    else:
        at, fed = from_sites(
            fed, k, space, rng=rng, least=least, restarts=config.restarts,
            aggregation=config.centroids,
        )  # fmt: skip
        if config.latent_scale == "none":
            return at, k, numbers
        found = lloyd(fed, at, space, rng=rng, least=least, rounds=0)
    return unscaled(fed, found, space)[0], k, numbers


def latent(config: DeepClusteringSettings, task: Task, theta: Array) -> Space:
    """Return the latent space of the autoencoder at θ (P,)."""
    network = config.plan(len(task.features)).network
    return Space(network=network, theta=theta, dtype=config.dtype, device=config.device)


def sharpen(
    fed: Federation, config: DeepClusteringSettings, task: Task, theta: Array, mu: Array
) -> tuple[Array, Array, bool]:
    """Return θ (P,) and μ (k, d) after phase 2, eq. (3), and whether labels settled."""
    plan = config.cluster_plan(len(task.features), len(mu))
    start = config.server(np.concatenate([theta, mu.ravel()]))
    frequencies, asked, settled = np.zeros(0), 0, False

    def enough(both: Array) -> bool:
        nonlocal frequencies, asked, settled
        sums = fed.sum(soft_frequencies, theta=plan.sent(both), plan=plan.text)
        share = float(sums.changed) / max(float(sums.rows), 1.0)
        if asked:
            fed.record(changed=share)
        frequencies, asked, settled = sums.frequencies, asked + 1, share < config.tol
        return settled

    def given(both: Array) -> Mapping[str, Any]:
        f = frequencies if config.target == "global" else np.zeros(0)
        return {"frequencies": f, "gamma": config.gamma}

    course = averaging(
        fed, plan, config.cluster_schedule, RULES[config.strategy], start, _never, config.centre,
        Visits(refine, refine_seen, given, refine_kept), enough,
    )  # fmt: skip
    return course.theta[: len(theta)], course.theta[len(theta) :].reshape(mu.shape), settled


def sharpen_own(
    fed: Federation, config: DeepClusteringSettings, task: Task, theta: Array, mu: Array
) -> tuple[Array, Array, bool]:
    """Return the same for the user's own encoder and centroids; see the header.

    Raises
    ------
    NothingToLearn, NotConverged, SiteUnavailable : as `training.personal.personalise`.
    """
    p, k = len(task.features), len(mu)
    plan, way = config.cluster_plan(p, k), config.cluster_way(p, k)

    def given(both: Array) -> Mapping[str, Any]:
        f = np.zeros(0)
        if config.target == "global" and way.name not in personal.PARTED:
            f = fed.sum(sum_memberships, theta=plan.sent(both), plan=plan.text).frequencies
        return {"frequencies": f, "gamma": config.gamma}

    found = personal.personalise(
        fed, plan, config.cluster_schedule, RULES[config.strategy],
        config.server(np.concatenate([theta, mu.ravel()])), way, min_cell=least_of(fed, task),
        visits=Visits(refine, refine_seen, given, refine_kept),
        own=OwnSteps(refine_with_own, tell_clusters, given={"gamma": config.gamma}),
    )  # fmt: skip
    return found.theta[: len(theta)], found.theta[len(theta) :].reshape(mu.shape), False


def _never(theta: Array) -> float:
    raise AssertionError("phase 2 has no patience, and asks for no held-out loss.")


@dataclass(frozen=True)
class Within:
    """Clusters in the latent space, by size: μ, means and variances (k, d), and rows (k,)."""

    centroids: Array
    means: Array
    variances: Array
    counts: Array


def within(
    fed: Federation, config: DeepClusteringSettings, task: Task, theta: Array, mu: Array
) -> Within:
    """Return summaries of the clusters, without those of few rows; see the header."""
    least = least_of(fed, task)
    fed, space = placed(fed, latent(config, task, theta))
    found = lloyd(fed, mu, space, rng=task.rng, least=least, rounds=0)
    order = np.argsort(-found.counts, kind="stable")
    mu = found.centroids[order]
    sums = fed.sum(
        sum_near, path=mu[None], moves=Cells.around(mu).moves, about=mu, unscaled=False,
        **space.given,
    )  # fmt: skip
    check_all_answered(fed)
    off = sums.drift / sums.counts[:, None]
    variances = np.maximum(sums.squares / sums.counts[:, None] - off**2, 0.0)
    return Within(mu, mu + off, variances, sums.counts)
