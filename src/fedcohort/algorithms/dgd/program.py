"""The deep generative decoder over sites: clusters and latent coordinates, with missing entries.

Schuster and Krogh, "The deep generative decoder", arXiv:2110.06672; Bioinformatics 39(9), 2023;
GenoMed4All D6.2, chapter 9. As section 9.5 there asks, the representations stay at the sites; only
decoder and mixture travel. With ℓ the loss of a row, eq. (5) of `models.dgd`, and z_i the
representations of site k's rows, a round is `internal_epochs` of

    (θ_k, z) = argmin (1/n_k) Σ_i ℓ(x_i, z_i; θ) + ½μ‖θ − θ_r‖²,   from (θ_r, z)             (1)
    θ_{r+1} = Σ_k (n_k/n) θ_k                                                              (2)

with μ = 0 except for fedprox, and another server rule for fedadam and fedyogi. θ is the decoder and
the mixture. ℓ is a mean over rows, of the mixture's prior too, so that (2) weighs the sites' slopes
as the pooled table does. z begin at 0; at a site that joins later, in phase 2, or if the first
model was trained on rows of the coordinator, at the best representations by that model.

Start of the mixture. As in the paper, means can be drawn from the softball, and z begin at 0. Then
the component nearest to 0 gets all rows, unless the likelihood is much stronger than (2) of
`models.dgd`, as with thousands of genes. So by default phase 1 has one broad component; then each
site seeks the representations of its rows by the common decoder, and they are clustered by k-means
over sites (`training.clusters.lloyd`), each cluster of `min_cell` rows or more. Centroids,
variances and shares are the mixture with which phase 2 begins.

Small components. A component of one patient would have the patient's representation as its mean,
and the decoder makes the row of it. So after the last round a component with n π_k < `min_cell` is
left out, and the others' weights are scaled to sum 1 (`disclosure`). This asks the sites nothing.

Encoder. With `encoder` the coordinator trains a network x → z on rows that it draws from the model
(`distilled`); no row of a patient is used.

Revealed: see `steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch

from fedcohort.algorithms.dgd.disclosure import (
    MIXTURE,
    check_clusters,
    without_small,
)
from fedcohort.algorithms.dgd.encoder import distilled
from fedcohort.algorithms.dgd.model import DgdModel
from fedcohort.algorithms.dgd.settings import DgdSettings
from fedcohort.algorithms.dgd.steps import (
    held_out_density,
    learn_decoder,
    learn_decoder_seen,
    place_rows,
    visited,
)
from fedcohort.arrays import Array
from fedcohort.models.dgd import DgdNet
from fedcohort.models.network import initial, network
from fedcohort.protocol import Federation, Task
from fedcohort.training.clusters.candidates import from_candidates
from fedcohort.training.clusters.lloyd import Found, lloyd
from fedcohort.training.clusters.points import Space
from fedcohort.training.clusters.seeding import Cloud, cloud
from fedcohort.training.networks.entries import check_entries, count_entries
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.strategies import Visits, averaging
from fedcohort.training.networks.validated import begun
from fedcohort.training.rows import known_rows

#: Training steps; all keep a state at the site.
VISITS = Visits(learn_decoder, learn_decoder_seen, kept=learn_decoder)

#: Smallest variance of a component at the start of phase 2, in that of all representations.
NARROW = 1e-3

_TAG = 0x64676401


def fit(fed: Federation, config: DgdSettings, task: Task) -> DgdModel:
    """Train decoder and mixture, eqs. (1) and (2).

    Raises
    ------
    DataError : no columns, an unusable column, or fewer rows than `min_cell`.
    SettingError : fewer sites than the aggregation needs, or more clusters than the rows allow.
    SiteUnavailable : fewer sites answered than the quorum.
    """
    entries = fed.sum(count_entries)
    least = task.min_cell if len(fed.sites) > 1 else 1
    check_entries(entries, task, least)
    training = Training(fed, config, task)
    done, theta = 0, training.first
    if config.begin == "kmeans":
        check_clusters(int(entries.rows), config, least)
        theta, done = training.phase(1, theta, config.rounds, 0)
        theta = training.mixture(theta, least)
    theta, done = training.phase(config.n_clusters, theta, config.cluster_rounds, done)
    plan = config.plan(task, config.n_clusters)
    spec, theta, dropped = without_small(plan.network, theta, int(entries.rows), least)
    gaps = 1.0 - float(entries.known.mean()) / max(int(entries.rows), 1)
    return DgdModel(
        features=task.features,
        network=spec,
        theta=theta,
        dtype=config.dtype,
        starts=config.starts,
        steps=config.search_steps,
        dropped=dropped,
        rounds=done,
        encoder=config.encoder,
        weights=distilled(spec, theta, config.encoder, config.dtype, gaps, task.seed),
    )


@dataclass
class Training:
    """The rounds of a fit.

    Attributes
    ----------
    began : whether sites have representations.
    seeks : whether new ones are sought by the model.
    """

    fed: Federation
    config: DgdSettings
    task: Task
    began: bool = False
    seeks: bool = False

    @cached_property
    def first(self) -> Array:
        """The vector (P,) to begin with; trained on rows of the coordinator, if there are any.

        It takes as many visits to them as the phase has rounds, all at the first learning rate.
        """
        config, task = self.config, self.task
        paper = config.begin == "drawn"
        plan = config.plan(task, config.n_clusters if paper else 1)
        start = theta = initial(plan.network, task.seed)
        if task.own is None or task.own.first is None:
            return start
        alone, held = replace(plan, validation_fraction=0.0), None
        rows = known_rows(task.own.first, alone, (task.seed, _TAG))
        for number in range(config.cluster_rounds if paper else config.rounds):
            theta, _, _, held = visited(
                held, theta, rows, alone, config.learning_rate, config.representation_rate,
                (task.seed, _TAG, number), seek=False,
            )  # fmt: skip
        self.seeks = bool(np.isfinite(theta).all())
        return theta if self.seeks else start

    def phase(self, components: int, theta: Array, rounds: int, done: int) -> tuple[Array, int]:
        """Train from θ (P,) with so many components; return θ, and the rounds so far.

        Parameters
        ----------
        done : rounds before this phase.
        """
        fed, config, task = self.fed, self.config, self.task
        plan, schedule = config.plan(task, components), config.phase(rounds, done)

        def held_out(theta: Array) -> float:
            sums = fed.sum(held_out_density, theta=plan.sent(theta), plan=plan.text)
            return float(sums.loss) / max(float(sums.rows), 1.0)

        bare = task if task.own is None else replace(task, own=replace(task.own, first=None))
        own, plan, theta = begun(bare, plan, theta, schedule, counts=config.counts)

        def given(theta: Array) -> Mapping[str, Any]:
            begin, seek = not self.began, self.began or self.seeks
            self.began = True
            return {"pace": config.representation_rate, "begin": begin, "seek": seek}

        course = averaging(
            fed, plan, schedule, RULES[config.strategy], config.server(theta),
            held_out if own is None or own.validation is None else own.loss, config.centre,
            replace(VISITS, given=given),
        )  # fmt: skip
        return course.theta, done + course.rounds

    def mixture(self, theta: Array, least: int) -> Array:
        """Return θ (P,) with the decoder of phase 1 and a mixture by k-means.

        Raises
        ------
        SiteUnavailable : a site is absent.
        """
        config, task = self.config, self.task
        before, after = config.plan(task, 1), config.plan(task, config.n_clusters)
        fed = self.fed.awaiting(len(self.fed.sites))
        fed.sum(place_rows, theta=before.sent(theta), plan=before.text)
        fed = fed.only(fed.answered).awaiting()
        space, rng = space_of(before), self.task.rng
        pooled = cloud(fed, space, least=least)
        start = from_candidates(
            pooled, config.n_clusters, space, rng=rng, least=least, restarts=config.restarts
        )
        found = lloyd(pooled.fed, start, space, rng=rng, least=least, swaps=config.swaps)
        self.began = False
        self.seeks = True
        return mixed(before.network, theta, after.network, found, pooled)


def space_of(plan: Plan) -> Space:
    """Return the space of the representations that sites keep."""
    return Space(network=plan.network, dtype=plan.dtype, device=plan.device, kept=True)


def mixed(before: str, theta: Array, after: str, found: Found, pooled: Cloud) -> Array:
    """Return θ (P,) of the spec `after`: the decoder of `before`, and the clusters found.

    All representations are shifted and scaled to mean 0 and variance r²/q, and the decoder with
    them. A variance within a cluster is at least `NARROW` of that. Components without a cluster,
    because k-means dropped it, lie at the largest one's centroid, with the weight of half a row.
    """
    old, new = network(before), network(after)
    old.load(theta)
    module = cast("DgdNet", new.module)
    unit = np.sqrt(np.maximum(pooled.variance, np.finfo(float).tiny) * module.net.latent)
    unit = unit / module.net.radius
    missing = module.net.components - len(found.counts)
    at = [*range(len(found.counts)), *[int(found.counts.argmax())] * missing]
    counts = np.append(found.counts.astype(float), np.full(missing, 0.5))
    least = NARROW * module.net.radius**2 / module.net.latent
    with torch.no_grad():
        fresh = dict(module.named_parameters())
        for name, value in old.module.named_parameters():
            if name not in MIXTURE:
                fresh[name].copy_(value)
    module.rescale(torch.from_numpy(pooled.mean), torch.from_numpy(unit))
    module.mix(
        torch.from_numpy((found.centroids[at] - pooled.mean) / unit),
        torch.from_numpy(np.maximum(found.variance[at] / unit**2, least)),
        torch.from_numpy(counts / counts.sum()),
    )
    return new.read()
