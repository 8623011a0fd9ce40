"""The coordinator's own rows in a training: a first model, the validation loss, and R of models.

Nolte et al., Bioinformatics Advances 3(1), 2023. In section 3 the server has an initial training
set and a validation set D_V; no other rows are outside the sites. Here they are `protocol.OwnRows`.

First model (section 2.1). Before round 1 the coordinator trains the start vector on its first rows,
by visits as a site makes them, until `WAITS` visits (or the patience) bring no better loss on D_V,
and keeps the best; without D_V it makes as many visits as there are rounds.

Validation loss. L_V(θ) is the mean loss on D_V, without penalties. With a patience it takes the
place of the sites' held-out loss, so sites hold no rows out.

R (section 3.5). In each round the coordinator sees θ_jt, the model of site j after its local
training, and computes x_jt = L_V(θ_jt). Over T rounds and n sites,

    B = T/(n−1) Σ_j (x̄_j − x̄)²,   W = 1/(n(T−1)) Σ_jt (x_jt − x̄_j)²                       (1)
    R = ((1−α) W + α B)/W,   α = 1/T                                                       (2)

as in the paper, with numerator and denominator exchanged (see the errata). W is about each site's
own mean: a falling loss is variation within, and near the common path (`metrics.trajectories`) the
models of sites that are alike never mix, since each site trains on the same rows in every round.
For that reason B/W has no F distribution here, and the alarm is a fixed level of R, after
`FEWEST` rounds. Rounds in which a site is missing do not count.

Halt (section 3.5): "let each client train their own model and temporarily halt federated
aggregation": while R is above the level, each site goes on from its own last model, and the
coordinator tracks their validation losses. When R falls to the level, training goes on from the
mean of these models. A training that ends while it is halted has a model of each site.

Revealed: in R and in a halt, each site's own model in each round, to the coordinator, which is why
no masked sum can hide them (`replies.Visit`). The coordinator's rows go nowhere, but all sites
receive the first model, which was made of them without noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import SettingError, Task
from fedcohort.training.networks.local import loss_at, train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule, course_of, follow
from fedcohort.training.rows import Rows, known_rows

#: Value of the setting `monitor` for R of the sites' models.
VALIDATION = "validation"
#: Visits without a better validation loss that end the training of the first model.
WAITS = 10
#: Fewest rounds of R with an alarm.
FEWEST = 3

_TAG = 0x6F776E


@dataclass(frozen=True)
class CoordinatorRows:
    """The coordinator's own rows as a training uses them.

    Attributes
    ----------
    first : rows of the first model; None without.
    validation : D_V; None without.
    plan : of visits, without rows held out.
    """

    plan: Plan
    seed: int
    first: Rows | None
    validation: Rows | None

    @classmethod
    def of(
        cls, task: Task, plan: Plan, made: Callable[[Rows], Rows] = lambda rows: rows
    ) -> CoordinatorRows | None:
        """Return the coordinator's rows for a training by `plan`; None without any.

        made : rows → those that the method trains on.
        """
        if task.own is None:
            return None
        plan = replace(plan, validation_fraction=0.0)
        first, validation = (
            None if table is None else made(known_rows(table, plan, (task.seed, _TAG)))
            for table in (task.own.first, task.own.validation)
        )
        return cls(plan, task.seed, first, validation)

    def sites_plan(self, plan: Plan) -> Plan:
        """Return the plan of the sites; without held-out rows if the coordinator has D_V."""
        return plan if self.validation is None else self.plan

    def start(self, theta: Array, schedule: Schedule) -> Array:
        """Return the first model (P,), trained from θ (P,); without rows for it, θ."""
        rows, done = self.first, [0]
        if rows is None:
            return theta

        def advance(theta: Array, rate: float) -> tuple[Array, float]:
            done[0] += 1
            return train(theta, rows, self.plan, rate, (self.seed, _TAG, done[0]))

        waits = WAITS if schedule.patience is None else schedule.patience
        judged = self.validation is not None
        rule = "constant" if schedule.lr_rule == "plateau" and not judged else schedule.lr_rule
        mine = replace(
            schedule, patience=waits if judged else None, patience_by="loss", lr_rule=rule, keep=(),
            first=0,
        )  # fmt: skip
        return follow(advance, course_of(mine, theta, held_out=self.loss)).theta

    def loss(self, theta: Array) -> float:
        """Return L_V(θ) of θ (P,)."""
        assert self.validation is not None
        return loss_at(theta, self.validation, self.plan)


def mixing(losses: Array) -> float:
    """Return R, eq. (2), of x_jt (T, n), T ≥ 2 and n ≥ 2; inf if no loss ever moves."""
    rounds, sites = losses.shape
    means = losses.mean(axis=0)
    between = rounds / (sites - 1) * float(((means - means.mean()) ** 2).sum())
    within = float(((losses - means) ** 2).sum()) / (sites * (rounds - 1))
    if not within:
        return np.inf if between else 1.0
    return 1.0 - 1.0 / rounds + between / within / rounds


@dataclass
class Validated:
    """R of the sites' models on the coordinator's validation rows, and the halt.

    Attributes
    ----------
    level : R above which sites differ.
    halts : whether aggregation is halted while R is above it.
    ends : whether the training ends at the first alarm (`heterogeneity.Watch`).
    models, weights : each site's latest model (P,) and its rows, by site.
    halted : whether the next round is without aggregation.
    """

    own: CoordinatorRows
    level: float
    halts: bool = False
    ends: bool = False
    models: dict[str, Array] = field(default_factory=dict[str, Array])
    weights: dict[str, float] = field(default_factory=dict[str, float])
    halted: bool = False
    fired: int | None = None
    _losses: list[list[float]] = field(default_factory=list[list[float]])
    _row: dict[str, float] = field(default_factory=dict[str, float])
    _rounds: int = 0

    def __call__(self, theta: Array) -> bool:
        """Return whether the training ends (`schedule.Enough`)."""
        return self.ends and self.fired is not None

    def hear(
        self, sites: Sequence[str], models: Mapping[str, Array], rows: Mapping[str, float]
    ) -> None:
        """Add the models of a round.

        Parameters
        ----------
        sites : all sites of the federation.
        models, rows : θ_jt (P,) and n_j of those that answered.
        """
        self._rounds += 1
        halted = self.halted
        self.models |= models
        self.weights |= rows
        losses = {s: self.own.loss(models[s]) for s in sites if s in models and rows[s]}
        self._row = {f"validation_loss {s}": x for s, x in losses.items()}
        if len(losses) == len(sites) > 1:
            self._losses.append(list(losses.values()))
        if len(self._losses) >= FEWEST:
            r = mixing(np.array(self._losses))
            self._row |= {"R_models": r, "R_models_level": self.level}
            if r > self.level and self.fired is None:
                self.fired = self._rounds
            self.halted = self.halts and r > self.level
        if self.halts:
            self._row["halted"] = float(halted)

    def start_from(self, sites: Sequence[str], theta: Array) -> None:
        """Note that all sites train from θ (P,) in this round."""
        self.models = dict.fromkeys(sites, theta)

    @property
    def latest(self) -> tuple[Array, Array]:
        """Each site's latest model (n, P), and its share of the rows (n,)."""
        n = np.array([self.weights.get(s, 0.0) for s in self.models])
        share = n / n.sum() if n.any() else np.full(len(n), 1 / len(n))
        return np.stack([*self.models.values()]), share

    @property
    def mean(self) -> Array:
        """The mean (P,) of the sites' latest models, by rows."""
        thetas, share = self.latest
        return share @ thetas

    def recording(self, record: Callable[..., None]) -> Callable[..., None]:
        """Return `record` of a federation, with this round's losses and R added."""

        def both(**values: float) -> None:
            record(**values, **self._row)

        return both


def validating(own: CoordinatorRows | None, config: Any, *, ends: bool = False) -> Validated | None:
    """Return the R of models that the settings ask for; None without.

    Raises
    ------
    SettingError : the coordinator has no validation rows.
    """
    if config.monitor != VALIDATION:
        return None
    if own is None or own.validation is None:
        raise SettingError(
            f"setting 'monitor' of method {config.method!r} is 'validation', and the coordinator "
            f"has no validation rows. Give it some (coordinator_data), or another monitor."
        )
    return Validated(own, config.alarm, getattr(config, "halt", False), ends)


def begun(
    task: Task, plan: Plan, theta: Array, schedule: Schedule, *, counts: bool = False,
    made: Callable[[Rows], Rows] = lambda rows: rows,
) -> tuple[CoordinatorRows | None, Plan, Array]:  # fmt: skip
    """Return the coordinator's rows, the sites' plan, and the vector (P,) to start from.

    With such rows it is the first model. With validation rows sites hold no rows out, unless they
    count their rounds without a better loss (`counts`). `made` is as in `CoordinatorRows.of`.
    """
    own = CoordinatorRows.of(task, plan, made)
    if own is None:
        return None, plan, theta
    sites = plan if counts else own.sites_plan(plan)
    return own, sites, own.start(theta, schedule)
