"""Variational autoencoders over sites, of rows in which entries and whole views may be missing.

Kingma and Welling, ICLR 2014; with several views Antelmi et al., ICML 2019. The ELBO is that of
`models.vae`, or of `models.mcvae`, and is trained as the baselines of Fed-mv-PPCA are (Balelli,
Silva, Lorenzi, "A differentially private probabilistic framework for modeling the variability
across federated datasets of heterogeneous multi-view observations", MELBA 1, 2022, section 4.2): by
rounds of local training and a mean of the sites' models θ_k, weighted by rows,

    θ ← Σ_k (n_k/n) θ_k,   θ_k = argmin −ELBO + ½μ‖θ_k − θ‖², by `internal_epochs` from θ    (1)

with μ = 0 but for fedprox, and another server rule for fedadam and fedyogi. A site that lacks a
view leaves the encoder and the decoder of that view as they were, and its model counts in the mean
all the same: such a view learns more slowly.

With `personal` the model is one site's own, as `training.personal` has it; own in fedper and fedrep
is the last layer of each decoder.

Revealed: what `steps` says; with `personal` what `training.personal` says, and with a monitor what
`training.heterogeneity` does.
"""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.autoencoders.model import LatentModel
from fedcohort.algorithms.autoencoders.settings import VaeSettings
from fedcohort.algorithms.autoencoders.steps import (
    Entries,
    count_entries,
    held_out_elbo,
    learn,
    learn_seen,
)
from fedcohort.arrays import Array
from fedcohort.models.network import initial
from fedcohort.protocol import DataError, Federation, Task
from fedcohort.training.heterogeneity import watching
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.strategies import Visits, averaging
from fedcohort.training.networks.switching import personalise_as_set


def fit(fed: Federation, config: VaeSettings, task: Task) -> LatentModel:
    """Train a variational autoencoder, eq. (1).

    Raises
    ------
    DataError : no columns; one that cannot be used, by name; a view without entries, by name; or
        fewer rows than `min_cell`.
    SettingError : fewer sites than the aggregation needs, or a personal model; or no such user.
    NothingToLearn : of a personal model, the user's rows are fewer than `min_cell`.
    SiteUnavailable : a call fell below the quorum.
    """
    views = views_of(task)
    entries = fed.sum(count_entries)
    least = task.min_cell if len(fed.sites) > 1 else 1
    check_entries(entries, task, least)
    plan = config.plan(views)

    def held_out(theta: Array) -> float:
        told = fed.sum(held_out_elbo, theta=plan.sent(theta), plan=plan.text)
        return float(told.loss) / max(float(told.rows), 1.0)

    start = initial(plan.network, task.seed)
    visits, rule = Visits(learn, learn_seen), RULES[config.strategy]
    if config.personal != "none":
        own = personalise_as_set(
            fed, plan, config.schedule, rule, config.server, start, config.personal_way(plan),
            config, min_cell=least, seed=task.seed, visits=visits,
        )  # fmt: skip
        theta, rounds = own.theta, own.rounds
    else:
        course = averaging(
            fed, plan, config.schedule, rule, config.server(start), held_out, config.centre,
            visits, watch=watching(fed, plan, config.monitor, least),
        )  # fmt: skip
        theta, rounds = course.theta, course.rounds
    return LatentModel(
        features=task.features,
        views=views,
        network=plan.network,
        theta=theta,
        dtype=config.dtype,
        passes=config.passes,
        rounds=rounds,
    )


def views_of(task: Task) -> tuple[str, ...]:
    """Return the view of each column of x (p,); "" where it has none."""
    return task.views or ("",) * len(task.features)


def check_entries(seen: Entries, task: Task, least: int) -> None:
    """Refuse tables that nothing can be learnt from, or that would tell of too few rows.

    Parameters
    ----------
    least : the fewest rows, and the fewest entries of a column, that a fit may be about.

    Raises
    ------
    DataError : names the view or the column.
    """
    if not task.features:
        raise DataError("there are no columns to learn from; name at least one.")
    least = max(least, 1)
    if seen.infinite.any():
        at = int(np.flatnonzero(seen.infinite)[0])
        raise DataError(
            f"column {task.features[at]!r} has infinite values, which no network takes. Correct "
            f"them, or leave the column out."
        )
    if seen.rows < least:
        raise DataError(
            f"{int(seen.rows)} rows with a known entry are too few; {least} are needed. Add sites."
        )
    views = np.array(views_of(task))
    for view in sorted({*views[seen.known == 0].tolist()} - {""}):
        if not seen.known[views == view].any():
            raise DataError(
                f"no site has an entry of view {view!r}. Take it out of the dictionary, or add a "
                f"site that has it."
            )
    if (few := seen.known < least).any():
        at = int(np.flatnonzero(few)[0])
        raise DataError(
            f"column {task.features[at]!r} has fewer than {least} known entries at all sites "
            f"together. Leave it out, or add sites."
        )
