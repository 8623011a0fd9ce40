"""Variational autoencoders over sites, for rows with missing entries and missing views.

Kingma and Welling, ICLR 2014; with several views Antelmi et al., ICML 2019. The ELBO is that of
`models.vae`, or of `models.mcvae`. Training follows the baselines of Fed-mv-PPCA (Balelli, Silva,
Lorenzi, "A differentially private probabilistic framework for modeling the variability across
federated datasets of heterogeneous multi-view observations", MELBA 1, 2022, section 4.2): rounds of
local training and a mean of the sites' models θ_k, weighted by rows,

    θ ← Σ_k (n_k/n) θ_k,   θ_k = argmin −ELBO + ½μ‖θ_k − θ‖², by `internal_epochs` from θ    (1)

with μ = 0 except for fedprox, and another server rule for fedadam and fedyogi. A site without a
view does not change that view's encoder and decoder, but its model counts in the mean, so the view
learns more slowly.

With `personal` the model is one site's own, see `training.personal`; in fedper and fedrep the last
layer of each decoder is each site's own.

Rows of the coordinator give a first model and a validation loss (`training.networks.validated`).

The likelihood of each column is by the dictionary, and collapse is watched (`collapse`).

A mixture learnt with θ has local optima. With `starts` the rounds are run from several first θ, and
that with the least mean loss of its last rounds is kept.

In `vae` the prior may be a mixture learnt with θ, or one made of the sites' own in each round
(`joint`), and a column may be a label.

Revealed: see `steps`, `joint` and `collapse`; with `personal` `training.personal`, and with a
monitor `training.heterogeneity`.
"""

from __future__ import annotations

from dataclasses import replace

from fedcohort.algorithms.autoencoders.joint import (
    JointPrior,
    joint_divergences,
    learn_with_prior,
)
from fedcohort.algorithms.autoencoders.model import LatentModel, VaeModel
from fedcohort.algorithms.autoencoders.settings import LatentSettings, VaeSettings
from fedcohort.algorithms.autoencoders.steps import (
    held_out_elbo,
    learn,
    learn_seen,
)
from fedcohort.arrays import Array
from fedcohort.models.network import initial
from fedcohort.protocol import Federation, Task
from fedcohort.training.heterogeneity import watching
from fedcohort.training.networks.collapse import LatentWatch, shares
from fedcohort.training.networks.entries import check_entries, count_entries, views_of
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Course
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.strategies import Visits, averaging
from fedcohort.training.networks.switching import personalise_as_set
from fedcohort.training.networks.validated import begun

#: Training steps with a prior that is made of the sites' own in each round.
WITH_PRIOR = Visits(learn_with_prior)
#: Training steps; rows without a known entry do not count in them.
VISITS = Visits(learn, learn_seen)


def fit(fed: Federation, config: LatentSettings, task: Task) -> LatentModel:
    """Train a variational autoencoder, eq. (1).

    Raises
    ------
    DataError : no columns, an unusable column, a view without entries (both named), or fewer rows
        than `min_cell`.
    SettingError : fewer sites than the aggregation, or a personal model, needs; or no such user.
    NothingToLearn : the user of a personal model has fewer than `min_cell` rows.
    SiteUnavailable : fewer sites answered than the quorum.
    """
    views = views_of(task)
    entries = fed.sum(count_entries)
    least = task.min_cell if len(fed.sites) > 1 else 1
    check_entries(entries, task, least)
    plan = config.plan(views, task.heads)

    def held_out(theta: Array) -> float:
        sums = fed.sum(held_out_elbo, theta=plan.sent(theta), plan=plan.text)
        return float(sums.loss) / max(float(sums.rows), 1.0)

    start = initial(plan.network, task.seed)
    own, plan, start = begun(task, plan, start, config.schedule, counts=config.counts)
    rule, asked = RULES[config.strategy], config.told_divergences
    joint = joint_of(fed, plan, config)
    if config.personal != "none":
        own = personalise_as_set(
            fed, plan, config.schedule, rule, config.server, start, config.personal_way(plan),
            config, min_cell=least, seed=task.seed, visits=VISITS,
        )  # fmt: skip
        theta, rounds, kl = own.theta, own.rounds, None
    else:
        watch = watching(fed, plan, config.monitor, least)
        seen = watch
        if asked and joint is not None:
            seen = LatentWatch(fed, plan, watch, asked, joint_divergences, joint.given)
        elif asked:
            seen = LatentWatch(fed, plan, watch, asked)
        courses: list[Course] = []
        for number in range(starts_of(config)):
            given, visits = shares(config.anneal, config.share_rounds(config.rounds)), VISITS
            if joint is not None:
                given, visits = joint.arguments(given), WITH_PRIOR
            schedule = replace(config.schedule, first=sum(c.rounds for c in courses))
            start = initial(plan.network, task.seed + number) if number else start
            courses.append(averaging(
                fed, plan, schedule, rule, config.server(start),
                held_out if own is None or own.validation is None else own.loss, config.centre,
                replace(visits, given=given), watch=seen,
            ))  # fmt: skip
        theta = min(courses, key=lambda course: course.loss).theta
        rounds = sum(course.rounds for course in courses)
        kl = seen.ask(theta) if isinstance(seen, LatentWatch) else None
    told = None if joint is None else joint.ask(theta)
    model = VaeModel if isinstance(config, VaeSettings) else LatentModel
    return model(
        features=task.features,
        views=views,
        network=plan.network,
        theta=theta,
        dtype=config.dtype,
        passes=config.passes,
        rounds=rounds,
        kl=kl,
        prior=None if told is None else told.prior,
        owners=() if told is None else told.owners,
    )


def starts_of(config: LatentSettings) -> int:
    """Return the number of trainings, of which that with the least loss is kept."""
    return config.starts if isinstance(config, VaeSettings) else 1


def joint_of(fed: Federation, plan: Plan, config: LatentSettings) -> JointPrior | None:
    """Return the joint prior of a fit, if it has one."""
    if isinstance(config, VaeSettings) and config.prior == "vamp":
        return JointPrior(fed, plan, config.components, config.combine_priors)
    return None
