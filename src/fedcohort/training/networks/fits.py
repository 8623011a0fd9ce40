"""One network trained over sites by the strategy of its settings.

The strategies are those of `networks.strategies`; "exact" is the method's own, one step along the
gradient of the pooled loss in each round. With `personal` the model is one site's own
(`training.personal`). Rows of the coordinator give a first model and a validation loss
(`networks.validated`).

Revealed: see the strategy, `training.personal`, and with a monitor `training.heterogeneity`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Fitted, NotSupported, Step, Task
from fedcohort.training import heterogeneity
from fedcohort.training.networks import compression, counts, ensembles, strategies
from fedcohort.training.networks import settings as averages
from fedcohort.training.networks.fit_settings import StrategySettings
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Course, HeldOut
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.settings import COMPRESSED, COUNTS, MOMENTS
from fedcohort.training.networks.strategies import PLAIN, Visits, Watching
from fedcohort.training.networks.switching import personalise_as_set
from fedcohort.training.networks.validated import CoordinatorRows, validating

#: Weights of a single network.
ONE = np.ones(1)

#: What leaves a site in training, by strategy, in plain words.
AVERAGED = "each round, the sum over sites of their models, weighted by rows"
SEEN = "each round, every site's own model, which the coordinator sees: no masked sum can hide it"
REVEALS: Mapping[str, str] = {
    **dict.fromkeys(averages.STRATEGIES, AVERAGED),
    "sequential": "each round, every site's own model as it left it, which the coordinator sees",
    "ensemble": "once, every site's own model, which the coordinator and all sites see",
}

#: What else leaves a site, by settings, in plain words.
MORE = (
    f"optimiser_state: averaged: {MOMENTS}; patience_by: count: {COUNTS}; compression: "
    + "; ".join(f"{name}: {text}" for name, text in COMPRESSED.items())
)


@dataclass(frozen=True)
class Trained:
    """The result of a training.

    Attributes
    ----------
    thetas : (M, P), of M networks: of the sites for an ensemble, or if averaging was halted at the
        end; otherwise one.
    weights : (M,), with sum 1.
    rounds : number of rounds.
    kept : number of rounds → thetas (M, P) if that round were the last.
    """

    thetas: Array
    weights: Array
    rounds: int
    kept: Mapping[int, Array]

    @classmethod
    def of(cls, course: Course) -> Trained:
        """Return the result of one network's training."""
        kept = {r: theta[None] for r, theta in course.kept.items()}
        return cls(course.theta[None], ONE, course.rounds, kept)


def own(config: StrategySettings) -> str:
    """Return why a fit cannot use rows of the coordinator, or "" (`Method.own`)."""
    return "strategy 'ensemble' has no common model" * (config.strategy == "ensemble")


def train_as_set(
    fed: Federation,
    config: StrategySettings,
    plan: Plan,
    theta: Array,
    task: Task,
    *,
    exact: Callable[[], Course],
    held_out: HeldOut,
    own: CoordinatorRows | None = None,
    also: Callable[[Watching | None], Watching | None] = lambda watch: watch,
    visits: Visits = PLAIN,
) -> Trained:
    """Train from θ (P,) by the strategy of the settings.

    Parameters
    ----------
    exact : training of the strategy "exact".
    held_out : θ → its loss on the rows held out, over all sites.
    own : rows of the coordinator, see `validated.begun`; None without.
    also : adds to what looks at the model before each round of an averaging.
    visits : training steps of an averaging.

    Raises
    ------
    SettingError, NothingToLearn : of a personal model, see `training.personal`.
    SiteUnavailable : a call fell below the quorum.
    """
    schedule = config.schedule
    if config.strategy == "ensemble":
        thetas, weights = ensembles.ensemble(fed, plan, schedule, theta)
        kept = dict(zip(schedule.keep, thetas[1:], strict=True))
        return Trained(thetas[0], weights, schedule.rounds, kept)
    if config.personal != "none":
        users = personalise_as_set(
            fed, plan, schedule, RULES[config.strategy], config.server, theta,
            config.personal_way(plan), config, seed=task.seed, own=own,
            min_cell=task.min_cell if len(fed.sites) > 1 else 1,
        )  # fmt: skip
        return Trained.of(Course(users.theta, users.rounds, users.kept))
    if config.strategy == "exact":
        return Trained.of(exact())
    if config.strategy == "sequential":
        course = strategies.sequential(fed, plan, schedule, theta, task.rng, held_out)
        return Trained.of(course)
    models = validating(own, config)
    seen = models or also(heterogeneity.watching(fed, plan, config.monitor, task.min_cell))
    course = strategies.averaging(
        fed, plan, schedule, RULES[config.strategy], config.server(theta), held_out, config.centre,
        visits, watch=seen,
    )  # fmt: skip
    if models is not None and models.halted:
        thetas, weights = models.latest
        return Trained(thetas, weights, course.rounds, {})
    return Trained.of(course)


def asks(
    config: StrategySettings, pull: Step[..., Any], averages: Visits = PLAIN
) -> tuple[Step[..., Any], ...]:
    """Return the training steps that a fit with these settings can ask for.

    Parameters
    ----------
    pull : training step of the strategy "exact".
    averages : training steps of an averaging.
    """
    if config.personal != "none":
        visits = PLAIN.by(config)
        return (*config.asks_own(config.personal, visits), *compression.asks(config.compression))
    trains: Mapping[str, Step[..., Any]] = {
        "exact": pull, "sequential": strategies.visit, "ensemble": ensembles.train_alone,
    }  # fmt: skip
    usual = averages.gather if _sees_models(config) else averages.by(config).sum
    counted = counts.STEPS if config.counts and config.strategy != "ensemble" else ()
    counted = (*counted, *compression.asks(config.compression))
    return (trains.get(config.strategy, usual), *counted, *heterogeneity.asks(config.monitor))


def _sees_models(config: StrategySettings) -> bool:
    """Return whether the coordinator sees each site's model in each round."""
    return bool(config.validated) or not config.centre.plain


def reveals(config: StrategySettings, exact: str, seen_by: str) -> str:
    """Return what leaves a site in a training with these settings, in plain words.

    Parameters
    ----------
    exact : what the strategy "exact" reveals.
    seen_by : who sees the user's own model.
    """
    trained = SEEN if _sees_models(config) else {**REVEALS, "exact": exact}[config.strategy]
    if config.personal != "none":
        trained = f"{trained}; {config.reveals_own(seen_by)}"
    if config.strategy != "ensemble":
        trained += config.reveals_more
    watched = config.monitor in heterogeneity.KINDS[1:]
    return trained + f"; {heterogeneity.REVEALS}" * watched


def bounds(config: StrategySettings) -> Mapping[str, Any]:
    """Return the allowed arguments of the training steps, without plan and way."""
    schedule = config.schedule
    return {
        "draw": range(-1, schedule.rounds),
        "rounds": (schedule.rounds,),
        "lr_rule": (schedule.lr_rule,),
        "lr_patience": (schedule.lr_patience,),
        "since_cut": range(schedule.rounds),
        "at": range(schedule.rounds),
        **compression.BOUNDS,
        "patience": (-1 if schedule.patience is None else schedule.patience,),
    }


class StagedModel(Fitted):
    """A model of a fit that also keeps those after earlier rounds (`keep_rounds`).

    Attributes
    ----------
    rounds : of this model.
    kept : number of rounds → the model, or what `_stage` makes one of.
    """

    rounds: int
    kept: Mapping[int, Any]

    def at_round(self, rounds: int) -> Self:
        """Return the model after this number of rounds.

        Raises
        ------
        NotSupported : the fit did not keep that round; those kept are named.
        """
        if rounds >= self.rounds:
            return self
        if rounds not in self.kept:
            raise NotSupported(
                f"this fit kept the models after rounds {sorted(self.kept)} and {self.rounds}, not "
                f"after {rounds}. Name the rounds you want in the setting 'keep_rounds'."
            )
        return self._stage(rounds)

    def _stage(self, rounds: int) -> Self:
        return self.kept[rounds]
