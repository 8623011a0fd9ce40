"""Survival variational autoencoder over sites, by any strategy.

GenoMed4All D6.2, section 6.4; Apellániz, Parras, Zazo, arXiv 2312.14651. The objective of a row is
that of `models.savae`, with the likelihood of each column by the dictionary:

    L = −β KL(q(z|x) ‖ N(0, I)) + E_q Σ_{j∈O} ln p(x_j|z) + w E_q ln p(t|z)                 (1)

with ln f(t|z) of events and ln S(t|z) of censored times. Missing entries have no term. The time is
no input of q(z|x), so that a prediction needs covariates alone.

The objective of a row does not depend on other rows, so the sum of the sites' gradients is that of
the pooled table, for any split: "exact" takes the steps of pooled training. The other strategies
train at the sites (`training.networks.strategies`).

Times are in units of e^(mean ln t). Curves end where `min_cell` records were still followed, as of
other methods: a Weibull distribution has no end, but nobody was seen beyond.

Revealed: once the sums of `training.networks.entries`, `data.timegrid` and
`training.outcome_moments`; what `training.networks.fits` names; in some rounds
`training.networks.collapse`; with "exact" or a patience `training.networks.pooled`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcohort.algorithms.savae.model import SavaeModel
from fedcohort.algorithms.savae.settings import SavaeSettings
from fedcohort.algorithms.savae.steps import ANNEALED
from fedcohort.arrays import Array
from fedcohort.data import timegrid
from fedcohort.models.network import initial
from fedcohort.protocol import Federation, NothingToLearn, Task
from fedcohort.training.networks import fits, pooled
from fedcohort.training.networks.collapse import LatentWatch, shares
from fedcohort.training.networks.entries import check_entries, count_entries
from fedcohort.training.networks.strategies import PLAIN, Visits
from fedcohort.training.networks.validated import begun
from fedcohort.training.outcome_moments import unit_of_times

#: Most intervals of follow-up, at whose ends risk is summed.
INTERVALS = 20


def fit(fed: Federation, config: SavaeSettings, task: Task) -> SavaeModel:
    """Train by the strategy of the settings.

    Raises
    ------
    DataError : no columns, an unusable column, or fewer rows than `min_cell`.
    NothingToLearn : no site has an event; or too few records are followed to different times.
    SettingError : `likelihoods` does not fit the columns; or of a personal model.
    SiteUnavailable : a call fell below the quorum.
    """
    least = task.min_cell if len(fed.sites) > 1 else 1
    check_entries(fed.sum(count_entries), task, least)
    grid = timegrid.intervals(fed, INTERVALS, task.min_cell)
    if not grid.known:
        raise NothingToLearn(
            f"fewer than {2 * max(task.min_cell, 1)} records at all sites together (twice "
            f"min_cell) are followed to different times, so there is no curve. Add sites."
        )
    times, unit = grid.times[grid.times <= grid.known], unit_of_times(fed)
    edges = edges_of(times, config.n_parts) / unit
    plan = config.plan(task, unit, edges.tolist())
    own, plan, theta = begun(
        task, plan, initial(plan.network, task.seed), config.schedule, counts=config.counts
    )
    held_out = pooled.held_out_loss(fed, plan)
    if own is not None and own.validation is not None:
        held_out = own.loss
    found = fits.train_as_set(
        fed, config, plan, theta, task, held_out=held_out, own=own,
        exact=lambda: pooled.exact(fed, plan, config.schedule, theta, held_out, draws=True),
        also=lambda watch: (
            LatentWatch(fed, plan, watch, config.record_kl) if config.record_kl else watch
        ),
        visits=visits_of(config),
    )  # fmt: skip
    kl = None
    if config.watches and len(found.thetas) == 1:
        kl = LatentWatch(fed, plan, None, config.record_kl).ask(found.thetas[0])
    return SavaeModel(
        features=task.features,
        network=plan.network,
        thetas=found.thetas,
        weights=found.weights,
        unit=unit,
        edges=edges,
        times=times,
        samples=config.samples,
        seed=task.seed,
        dtype=config.dtype,
        passes=config.passes,
        rounds=found.rounds,
        kl=kl,
        kept=found.kept,
    )


def visits_of(config: SavaeSettings) -> Visits:
    """Return the training steps of an averaging."""
    if config.anneal == "none":
        return PLAIN
    return replace(ANNEALED, given=shares(config.anneal, config.share_rounds(config.rounds)))


def edges_of(times: Array, parts: int) -> Array:
    """Return the ends (J − 1,) of all parts of the time but the last; (0,) without parts.

    They are among `times` (T,) but the last, and beyond it where there are too few.
    """
    if not parts:
        return np.zeros(0)
    inner, wanted = times[:-1], parts - 1
    if len(inner) >= wanted:
        at = np.linspace(0, len(inner), wanted, endpoint=False).astype(int)
        return inner[at]
    beyond = times[-1] * (1.0 + np.arange(wanted - len(inner)))
    return np.concatenate([inner, beyond])
