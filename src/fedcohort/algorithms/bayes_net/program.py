"""A neural network with a posterior over its weights, by partitioned variational inference.

Bui, Nguyen, Swaroop, Turner, arXiv:1811.11206; Ashman et al., "Partitioned variational inference: a
framework for probabilistic federated learning", arXiv:2202.12275; GenoMed4All D6.2, section 4.2,
with its errata. The posterior over all weights is

    q(w) ∝ p(w) Π_k t_k(w),   t_k ≈ p(D_k | w)                                             (1)

with a Gaussian factor t_k of each site k, of natural parameters (λ_k, η_k) for each weight. In a
round each site maximises its local free energy (`training.networks.variational`) with the cavity
q/t_k, which holds the prior and what all other sites know, takes q_k for q, and sends

    Δ_k = ρ (q_k − q)   in natural parameters; then  t_k ← t_k Δ_k,  q ← q Π_k Δ_k          (2)

At a fixed point all q_k are q, and the sum of the local free energies is the global one. With ρ of
1 over the number of sites in a round, q is a mean of the q_k. Then no precision can become
negative. With another ρ each site cuts its own Δ_k so that all together leave a tenth of each
precision. A site that is away keeps its factor, and its rows stay in the posterior.

The first q has means by the seed and the standard deviation `start_sd`. Its quotient by the prior
is shared equally by all factors. A prior that is a mixture is no Gaussian: each site then adds its
share, the K-th root of the prior, to its free energy, and its factor holds it.

pvi          all sites at once, or after the first round `sites_per_round` drawn ones: Δ is summed
virtual      pvi of the weights that all sites share, beside weights of each site's own (`virtual`)
sep          all sites at once with one factor t, the average one, that no site keeps, eq. (3)
sequential   one site after another in a new random order, each from the last q, with ρ = 1
fedavg       each site fits the posterior of its own rows with the whole prior; the mean over rows
             of natural parameters is the next q
ensemble     each site's own posterior, from the start; predictions are averaged, weighted by rows

A time by Cox's model (`head: cox`) has the network as its log risk f. The likelihood of a site is
its own partial likelihood, so that of all sites is their product: that of a baseline hazard
stratified by site, which eq. (1) divides among the sites. Within a mini-batch, risk sets are those
of its rows, which is stratified by random groups too. It compares rows, so that all rows of a step
share one draw of the weights. A draw w of the posterior determines f_w up
to a constant, so f_w is taken relative to f_w(x₀), with the public point x₀ near the middle of the
covariates (`Task.origin`). At the end sites sum over risk sets at the mean of f over draws, for
Breslow's hazard of all rows (`training.hazard`).

With a staleness s, pvi's sites take turns in s + 1 groups. The group of round r works from the q of
round r − s, and its Δ is added to that of round r: q then lacks nothing but what is still under
way. Since a site's own factor has not changed in between, its cavity is right. The precision of q
may have fallen meanwhile, so each site also keeps λ_k ≥ −0.9 λ_p/K, with the precision λ_p of the
prior and all K sites: then q keeps a tenth of λ_p whoever was late. ρ is 1/K.

sep is stochastic expectation propagation (Li, Hernández-Lobato, Turner, NeurIPS 2015), with the
local free energy in the place of moments, over K sites at once:

    t = (q/p)^(1/K),   q_k by the cavity q/t,   q ← q Π_k (q_k/q)^ρ                         (3)

so t moves to the mean of the t_k = q_k t/q. Where q_k is exact, the fixed point is the posterior;
else a cavity also lacks a share of the other sites' factors and holds a share of the site's own.
The algorithm of that name with natural gradients (SNEP: Hasenclever et al., JMLR 18(106), 2017,
which D6.2 cites) keeps a factor at each site as pvi does, and takes its steps by Markov chains in
the factor's mean parameters. Its fixed points are those of expectation propagation; with the local
free energy in the place of moments they would be those of pvi.

Survival ends where `min_cell` records were still followed, as of other methods: Weibull's law has
no end, but nobody was seen beyond.

Losses: two classes and several, counts; a value by its mean and its log standard deviation, both
outputs of the network (`models.losses.Spread`); a time by Weibull's distribution, likewise, or by
the partial likelihood (`models.losses.PartialLikelihood`).

Revealed: of classes `Sizes` (`training.class_sizes`), of values and counts `Moments`
(`training.outcome_moments`), of times the sums of `data.timegrid` and `LogTimes`, or with cox
those of `training.hazard`, once, as sums; pvi, virtual and sep `Change` and fedavg `Own` every
round, as sums over the sites of the round; virtual `Finished` once, as a sum; sequential `Change`
and ensemble `Own` of each site. At the end `Spreads`, as a sum, of which the model keeps groups of
`min_cell` rows or more; none if sites keep models of their own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcohort.algorithms.bayes_net.model import BayesNetModel, drawn, shares_of
from fedcohort.algorithms.bayes_net.settings import BayesNetSettings
from fedcohort.algorithms.bayes_net.steps import (
    Change,
    count_spreads,
    places_of,
    posterior_at_start,
    refine,
    refine_alone,
    refine_average,
    train_alone,
    train_posterior,
)
from fedcohort.algorithms.bayes_net.virtual import (
    joined,
    keep_own,
    own_weights,
    refine_shared,
    shared_of,
)
from fedcohort.arrays import Array
from fedcohort.data import timegrid
from fedcohort.data.classes import check_each_class
from fedcohort.data.exact import check_covariates
from fedcohort.models.bayes import base_of
from fedcohort.models.losses import scaled, several
from fedcohort.protocol import DataError, Federation, NothingToLearn, Summed, Task
from fedcohort.training.class_sizes import count_each_class
from fedcohort.training.hazard import Pool, centred
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.variational import Natural, Prior
from fedcohort.training.outcome_moments import mean_and_spread, unit_of_times

#: Most intervals of follow-up, the last of which ends the curves.
INTERVALS = 20


@dataclass(frozen=True, kw_only=True)
class Aim:
    """The outcome's model and scale.

    Attributes
    ----------
    model : logistic, softmax, spread, poisson, weibull or cox.
    centre, scale : of a value its mean and standard deviation; scale of a count its mean, of times
        e to the mean of their logarithms.
    outputs : of the network.
    times : of weibull, ends of the intervals (T,) in which survival is estimated; (0,) without.
    grid : of cox, the intervals of its risk sets; None without.
    """

    model: str
    centre: float = 0.0
    scale: float = 1.0
    outputs: int = 1
    times: Array = field(default_factory=lambda: np.zeros(0))
    grid: timegrid.Intervals | None = None

    @property
    def loss(self) -> str:
        """Name of the loss, for a plan."""
        if self.model == "softmax":
            return several(self.outputs)
        if self.model == "weibull":
            return f"weibull {self.scale!r}"
        return scaled(self.model, self.centre, self.scale)


def aim_of(task: Task, head: str) -> Aim:
    """Return the aim without what the sites tell.

    Parameters
    ----------
    head : of the settings, for a time to an event.
    """
    if task.kind == "survival":
        return Aim(model=head, outputs=2 if head == "weibull" else 1)
    if task.kind == "classification":
        classes = len(task.levels) if task.outcome not in ("", "binary") else 2
        return Aim(model="softmax", outputs=classes) if classes > 2 else Aim(model="logistic")
    count = task.outcome == "count"
    return Aim(model="poisson") if count else Aim(model="spread", outputs=2)


def prior_of(config: BayesNetSettings) -> Prior:
    """Return the prior of the settings."""
    mixed = config.prior == "mixture"
    return Prior(
        wide=config.prior_scale,
        narrow=config.prior_narrow if mixed else 0.0,
        share=config.prior_share if mixed else 1.0,
        weight=config.temperature,
        weights=config.kl_weights,
    )


def fit(fed: Federation, config: BayesNetSettings, task: Task) -> BayesNetModel:
    """Fit the posterior.

    Raises
    ------
    DataError : there are no covariates, too few rows, or the variance of a posterior explodes.
    NothingToLearn : the outcome is constant, a class has few records, or there are few events.
    SiteUnavailable : a call fell below the quorum.
    """
    check_covariates(task)
    aim = surveyed(fed, aim_of(task, config.head), task)
    plan = config.plan(len(task.features), aim.loss, aim.outputs)
    if config.strategy == "ensemble":
        plan = replace(plan, epochs=plan.epochs * config.rounds)
    start = posterior_at_start(plan.network, task.seed)
    asked: dict[str, Any] = {
        "plan": plan.text, "rate": config.learning_rate, "prior": prior_of(config).text,
    }  # fmt: skip
    run = Run(fed, config, task, start, asked)
    match config.strategy:
        case "ensemble":
            found, weights = run.ensemble()
        case "fedavg":
            found, weights = [run.averaged()], np.ones(1)
        case "sequential":
            found, weights = [run.in_turn()], np.ones(1)
        case "virtual":
            found, weights = [run.with_own(aim)], np.ones(1)
        case _:
            found, weights = [run.at_once()], np.ones(1)
    at = places_of(plan.network)
    model = BayesNetModel(
        features=task.features,
        levels=task.levels if aim.model in ("logistic", "softmax") else (),
        model=aim.model,
        network=plan.network,
        thetas=np.array([q.into(at) for q in found]),
        weights=weights,
        centre=aim.centre,
        scale=aim.scale,
        times=aim.times,
        rounds=config.rounds,
        samples=config.samples,
        seed=task.seed,
        level=config.level,
        every=config.method if config.every and config.private_weights == "last" else "",
    )
    return model if config.every else finished(fed, model, plan, aim, task)


def finished(
    fed: Federation, model: BayesNetModel, plan: Plan, aim: Aim, task: Task
) -> BayesNetModel:
    """Return a model with what is summed after the last round."""
    if aim.grid is not None:
        model = with_hazard(fed, model, plan, aim.grid, task)
    return with_spreads(fed, model, plan, task)


def with_spreads(fed: Federation, model: BayesNetModel, plan: Plan, task: Task) -> BayesNetModel:
    """Return a model that knows of how many training rows it is how sure."""
    told = fed.sum(
        count_spreads, thetas=model.thetas, weights=model.weights, centres=model.centres,
        plan=plan.text, law=model.model, samples=model.samples, seed=task.seed,
    )  # fmt: skip
    spreads, nearer = shares_of(told.counts, task.min_cell if len(fed.sites) > 1 else 1)
    return replace(model, spreads=spreads, nearer=nearer)


def with_hazard(
    fed: Federation, model: BayesNetModel, plan: Plan, grid: timegrid.Intervals, task: Task
) -> BayesNetModel:
    """Return a model of times by cox with its draws' centres and its baseline hazard.

    The draws are sent as weights of the network without a posterior.
    """
    base = replace(plan, network=base_of(plan.network))
    at = places_of(plan.network).mean
    draws = drawn(model.network, model.thetas, model.samples, model.seed)
    thetas = base.sent(np.array([theta[at] for theta in draws]))
    weights = np.repeat(model.weights / model.samples, model.samples)
    pool = Pool(fed, grid, base.text, held_out=False)
    centre, baseline = centred(pool, grid, thetas, weights, task.min_cell)
    middle = np.zeros(len(task.features)) if task.origin is None else task.origin
    there = model.at_draws(middle[None])[:, 0]
    return replace(
        model,
        centres=there - weights @ there + centre,
        times=baseline.times,
        cumulative=baseline.cumulative,
    )


def surveyed(fed: Federation, aim: Aim, task: Task) -> Aim:
    """Return the aim on the scale of the pooled outcome, and check that it can be learnt."""
    least = task.min_cell if len(fed.sites) > 1 else 1
    if aim.model in ("logistic", "softmax"):
        levels = task.levels or ("0", "1")
        sizes = fed.awaiting().sum(count_each_class, classes=len(levels)).sizes.tolist()
        check_each_class(sizes, levels, least)
        return aim
    if aim.model in ("weibull", "cox"):
        rule = INTERVALS if aim.model == "weibull" else "protected"
        grid = timegrid.intervals(fed, rule, task.min_cell)
        if not grid.known:
            raise NothingToLearn(
                f"fewer than {2 * max(task.min_cell, 1)} records at all sites together (twice "
                f"min_cell) are followed to different times, so there is no curve. Add sites."
            )
        if aim.model == "cox":
            return replace(aim, grid=grid)
        return replace(aim, scale=unit_of_times(fed), times=grid.times[grid.times <= grid.known])
    mean, spread = mean_and_spread(fed, task.min_cell)
    if aim.model == "poisson":
        return replace(aim, scale=mean)
    return replace(aim, centre=mean, scale=spread)


@contextmanager
def in_round(number: int) -> Generator[None]:
    """Name the round, which counts from 0, in an error of a site's visit.

    Raises
    ------
    DataError : of the same class, with the round in its text.
    """
    try:
        yield
    except DataError as error:
        raise type(error)(f"in round {number + 1}, {error}") from error


class Run:
    """A fit by its strategy, from the posterior before the first round."""

    def __init__(
        self, fed: Federation, config: BayesNetSettings, task: Task, start: Natural,
        asked: Mapping[str, Any],
    ):  # fmt: skip
        self._fed, self._config, self._task = fed, config, task
        self._start, self._asked, self._rng = start, asked, task.rng

    def at_once(self) -> Natural:
        """Return the posterior of pvi, in groups or not, or of sep."""
        if self._config.staleness:
            return self._late()
        step = refine_average if self._config.strategy == "sep" else refine
        return deque(self.together(step, self._start), 1).pop()

    def together(self, step: Summed[..., Change], q: Natural, **more: Any) -> Iterator[Natural]:
        """Yield the posterior after each round of eq. (2), all or the drawn sites at once.

        The first round is of all sites: under masks no sum is of sites with a factor and others.

        Parameters
        ----------
        step : takes the arguments of `_shared`, and `more`.
        """
        fed, sites = self._fed, len(self._fed.sites)
        drawn = min(self._config.sites_per_round or sites, sites)
        for number in fed.rounds(self._config.rounds):
            there, parts = (fed, drawn) if number else (fed.awaiting(), sites)
            if number and drawn < sites:
                chosen = self._rng.choice(fed.sites, drawn, replace=False).tolist()
                there = fed.only(sorted(chosen))
            q = self._changed(number, there, step, q, q, parts=parts, **more)
            yield q

    def _late(self) -> Natural:
        """Return the posterior of pvi whose sites take turns in groups; see the header.

        Each group's first round is of all its sites.
        """
        fed, late, sites = self._fed, self._config.staleness, len(self._fed.sites)
        damping = self._config.damping or 1.0 / sites
        order, past = self._rng.permutation(fed.sites).tolist(), deque([self._start], late + 1)
        groups = [sorted(order[g :: late + 1]) for g in range(late + 1)]
        for number in fed.rounds(self._config.rounds):
            there = fed.only(groups[number % (late + 1)])
            there = there.awaiting() if number <= late else there
            q = self._changed(
                number, there, refine, past[0], past[-1], parts=len(there.sites), damping=damping,
                late=True,
            )  # fmt: skip
            past.append(q)
        return past[-1]

    def _changed(
        self, number: int, there: Federation, step: Summed[..., Change], asked: Natural, q: Natural,
        *, parts: int, **more: Any,
    ) -> Natural:  # fmt: skip
        """Return q after the changes of some sites, which work from the posterior `asked`."""
        given = {**self._shared(asked, parts), **more}
        if step is refine_average:
            del given["seed"]
        with in_round(number):
            told = there.sum(step, **given)
        q = q.plus(Natural(told.precision, told.shift))
        self._record(float(told.loss) / max(float(told.rows), 1.0), q)
        return q

    def with_own(self, aim: Aim) -> Natural:
        """Return the posterior of the shared weights, with the prior of the sites' own (`virtual`).

        Sites finish their own models, if they keep them.
        """
        config, spec = self._config, Plan.of(self._asked["plan"]).network
        own = own_weights(spec, config.private_weights)
        private: dict[str, Any] = {"private": config.private_weights}
        rounds = self.together(refine_shared, shared_of(self._start, own), **private)
        q = deque(rounds, 1).pop()
        if config.every:
            asked = self._shared(q, len(self._fed.sites)) | private
            del asked["parts"], asked["damping"]
            with in_round(config.rounds):
                self._fed.awaiting().sum(
                    keep_own, **asked, ends=aim.times, samples=config.samples,
                    level=config.level,
                )  # fmt: skip
        prior = prior_of(config).natural(len(own))
        return joined(q, prior, own)

    def in_turn(self) -> Natural:
        """Return the posterior by eq. (2), one site after another; absent ones come last."""
        fed, q = self._fed, self._start
        for number in fed.rounds(self._config.rounds):
            losses, rows, came = 0.0, 0.0, list[str]()
            due = self._rng.permutation(fed.sites).tolist()
            for fewest in (0, 1):
                late: list[str] = []
                for name in due:
                    there = fed.only([name]).optional().awaiting(fewest)
                    with in_round(number):
                        replies = there.gather(refine_alone, **self._shared(q, 1))
                    for told in replies.values():
                        q = q.plus(Natural(told.precision, told.shift))
                        losses, rows = losses + float(told.loss), rows + float(told.rows)
                        came.append(name)
                    if name not in (*came, *fed.refused):
                        late.append(name)
                due = late
            fed.enough(came)
            self._record(losses / max(rows, 1.0), q)
        return q

    def averaged(self) -> Natural:
        """Return the mean of the sites' posteriors in natural parameters, weighted by rows."""
        fed, q = self._fed, self._start
        for number in fed.rounds(self._config.rounds):
            with in_round(number):
                told = fed.sum(train_posterior, precision=q.precision, shift=q.shift, **self._asked)
            q = Natural(told.precision / told.rows, told.shift / told.rows)
            self._record(float(told.loss / told.rows), q)
        return q

    def ensemble(self) -> tuple[list[Natural], Array]:
        """Return each site's own posterior, and weights by rows (M,).

        All rounds are one visit of `rounds` times the epochs.
        """
        fed, q = self._fed, self._start
        next(fed.rounds(1))
        told = fed.awaiting().gather(
            train_alone, precision=q.precision, shift=q.shift, **self._asked
        )
        members = [one for one in told.values() if one.rows]
        n = np.array([float(one.rows) for one in members])
        self._fed.record(loss=float(sum(one.loss for one in members) / n.sum()))
        return [Natural(m.precision / m.rows, m.shift / m.rows) for m in members], n / n.sum()

    def _shared(self, q: Natural, parts: int) -> dict[str, Any]:
        """Return the arguments of a change of the posterior."""
        damping = self._config.damping
        return {
            "precision": q.precision,
            "shift": q.shift,
            "seed": self._task.seed,
            "parts": parts,
            "sites": len(self._fed.sites),
            "damping": 1.0 / parts if damping is None else damping,
            **self._asked,
        }

    def _record(self, loss: float, q: Natural) -> None:
        """Add the loss and the geometric mean of the posterior's standard deviations."""
        self._fed.record(loss=loss, posterior_sd=math.exp(-0.5 * float(np.log(q.precision).mean())))
