"""Heterogeneity statistic R during training: in each round, from sums over sites.

`metrics.trajectories` defines the statistic. Here are the trajectories. A site deals its rows at
random into K parts of nearly equal size. In round t it uses part t alone, at θ_t, the model at the
start of the round:

    "loss"      x_jt = L(θ_t), the averaged loss                                          (1)
    "gradient"  x_jt = ∇L(θ_t), or a sketch of a long one: its entries are dealt into
                `WIDTH` sums with random signs (Charikar et al., ICALP 2002)               (2)

without penalties, which are the same at all sites. Each row is in one point only, so sites with the
same distribution differ as the parts of one site do. After K rounds the next lap deals the rows
again; all laps share one level. A site's weight is the size of its parts.

(1) is the paper's, but its coordinator has its own rows, ours has none. Two sites with opposite
effects may have the same loss; only (2) separates them.

Each site draws a random loss again in each round. Each number of an autoencoder's sketch mixes
`MIXED` parameters or more on average.

Revealed: `Contribution`, each round, and `There`, before each lap, only as sums over sites.

A site takes no part if one of its tenths has fewer than `min_cell` rows, or if it cannot learn from
its rows. A single part without information, such as one without a death, has the point 0. A site
that missed a round of a lap refuses the later rounds of that lap.

A lap begins only if its sums hide each site and each small group of rows:

    sites   three or more learn from each of their parts (with two, Σ w x and Σ w x xᵀ would
            give each site's x), or both sites of a federation of two do;
    rows    each part has `min_cell` rows or more of each kind (`Loss.kinds`: deaths of Cox,
            each class of logistic, counts above 0 of Poisson, else rows), over all sites.

Tenths are tried first, then fifths. A fifth is two tenths of the same sites; otherwise the counts
of both, or points at one θ, would differ by one site's rows or by single rows. If fewer than
`min_cell` rows of a part differ from their site's median of a covariate, then (2) leaves out that
covariate's first-layer weights: they could tell the outcomes of a few rows with a rare level. An
image's filters belong to no covariate, and stay. If the set of sites changes, the lap starts again.

Not protected: a site that leaves between the count and the sum, or between two counts. The
difference of the two then tells its own numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.trajectories import Contribution, Mixing, Trajectories, level_of_look
from fedcohort.models.network import network
from fedcohort.models.objectives import Objective
from fedcohort.protocol import Federation, Keep, Site, Step, message, summed
from fedcohort.protocol.errors import ReplyRejected
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import Rows, known_rows

#: Quantities of a trajectory; "none" turns R off.
KINDS = ("none", "loss", "gradient")
#: Most numbers of a point; fewest parameters in each number of an autoencoder's, on average.
WIDTH, MIXED = 16, 4
#: Choices of K, in order; largest share of trainings with an alarm if sites do not differ.
PARTS, LEVEL = (10, 5), 0.05
#: Lap of a site with too few rows.
AWAY = -1
#: Fewest sites in a sum, if the federation has as many.
HIDDEN = 3

_TAG = 0x77617463


@message
class Way:
    """State of a site's trajectory: the lap (), its rounds so far (), and Σ_t x_jt (q,)."""

    lap: Array
    turns: Array
    total: Array


@message
class There:
    """Whether a site can learn from each of its parts (), and its numbers of rows.

    ``kinds`` (K, m) counts the rows of m kinds in each part. ``apart`` (p,) counts the rows that
    differ from the part's median of each covariate, in the part with the fewest; (0,) for an
    autoencoder. All are 0 for a site that takes no part.
    """

    sites: Array
    kinds: Array
    apart: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.sites.shape or self.sites not in (0, 1):
            return "a number of sites other than 0 or 1."
        if self.kinds.ndim != 2 or len(self.kinds) != asked["parts"] or self.apart.ndim != 1:
            return "arrays of other shapes than (parts, kinds) and (covariates,)."
        return count_fault("kinds", self.kinds) or count_fault("apart", self.apart)


@summed
def count_watched(site: Site[Any, Any], *, plan: str, parts: int, lap: int, min_cell: int) -> There:
    """Count the site and its rows, to decide whether a sum hides them."""
    rows = known_rows(site.data, Plan.of(plan), site.entropy)
    dealt = _dealt(site, rows, parts, lap, min_cell)
    found = [rows.take(part) for part in dealt or ()]
    if not found:
        none = np.zeros((parts, len(_kinds(rows))), np.int64)
        return There(np.array(0), none, _off_median(rows) * 0)
    kinds, apart = np.array([_kinds(p) for p in found]), np.array([_off_median(p) for p in found])
    there = all(part.informative for part in found)
    return There(np.array(int(there)), kinds, apart.min(axis=0))


def _kinds(rows: Rows) -> tuple[int, ...]:
    """Return the number of rows of each kind."""
    return (len(rows.x),) if rows.loss.kinds is None else rows.loss.kinds


def _off_median(rows: Rows) -> Array:
    """Count the rows that differ from each covariate's median (p,); (0,) without an outcome."""
    x = np.asarray(rows.x.cpu().numpy(), float)
    if rows.loss.kinds is None:
        return np.zeros(0, np.int64)
    if not len(x):
        return np.zeros(x.shape[1], np.int64)
    half = len(x) // 2
    return (x != np.partition(x, half, axis=0)[half]).sum(axis=0)


def _dealt(
    site: Site[Any, Any], rows: Rows, parts: int, lap: int, min_cell: int
) -> list[Array] | None:
    """Return the parts of a lap; None if the site takes no part, whatever `parts` is."""
    entropy = (*site.entropy[:2], _TAG, lap)
    least = min(map(len, parts_of(rows, finest(parts), entropy)))
    few = least < max(min_cell, 1) or not rows.informative
    return None if few else parts_of(rows, parts, entropy)


@summed
def watch_here(
    site: Site[Any, Way | None], *, theta: Array, plan: str, watch: str, parts: int, lap: int,
    turn: int, min_cell: int, columns: Array,
) -> Keep[Contribution, Way]:  # fmt: skip
    """Return the gradient or loss of this round's part of the rows, for the statistic R.

    columns : covariates whose weights stay in the gradient (p,); (0,) keeps all.
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    q = 1 if watch == "loss" else numbers(len(theta), rows)
    own, before = site.state, np.zeros(q)
    if turn:
        if not isinstance(own, Way) or own.lap not in (lap, AWAY) or own.turns != turn:
            raise ReplyRejected(
                f"site {site.name!r} missed a round of this lap of watch_here, so it is in none of "
                f"the lap's later sums: they would be over too few sites."
            )
        if own.lap == AWAY:
            return _nothing(q, turn)
        before = own.total
    dealt = _dealt(site, rows, parts, lap, min_cell)
    if dealt is None:
        return _nothing(q, turn)
    point = point_of(theta, rows.take(dealt[turn]), p, watch, columns, site.entropy)
    total = before + point
    reply = Contribution.of(point, total, len(rows.x) / parts)
    return Keep(reply, Way(np.array(lap), np.array(turn + 1), total))


def _nothing(q: int, turn: int) -> Keep[Contribution, Way]:
    """Return the reply and the state of a site with too few rows for a lap."""
    return Keep(Contribution.nothing(q), Way(np.array(AWAY), np.array(turn + 1), np.zeros(q)))


def parts_of(rows: Rows, parts: int, entropy: tuple[int, ...]) -> list[Array]:
    """Deal rows into parts of increasing row numbers; each part joins as many of the `finest`
    parts.
    """
    order = np.random.default_rng(entropy).permutation(len(rows.x))
    dealt = np.array_split(order, finest(parts))
    joined = len(dealt) // parts
    return [np.sort(np.concatenate(dealt[i : i + joined])) for i in range(0, len(dealt), joined)]


def finest(parts: int) -> int:
    """Return the number of parts dealt: 10 if they can be joined to `parts`, else `parts`."""
    return PARTS[0] if PARTS[0] % parts == 0 else parts


def numbers(size: int, rows: Rows) -> int:
    """Return q for a gradient of `size` parameters."""
    return min(max(1, size // MIXED) if isinstance(rows.loss, Objective) else size, WIDTH)


def point_of(
    theta: Array, rows: Rows, plan: Plan, watch: str, columns: Array, entropy: tuple[int, ...]
) -> Array:
    """Return x_jt (q,), eq. (1) or (2), at θ (P,) on some rows.

    Parameters
    ----------
    columns : as in `watch_here`.
    entropy : study seed, site and call: the seed of a loss with random draws.
    """
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    if watch == "loss":
        return np.array([rows.value(net)])
    q = numbers(len(theta), rows)
    if not rows.informative:
        return np.zeros(q)
    rows.pull(net, int(np.random.SeedSequence((*entropy, _TAG)).generate_state(1)[0]))
    gradient = np.asarray(net.gradient(), float)
    if len(columns) and net.by_column:
        gradient[net.first].reshape(-1, len(columns))[:, ~columns.astype(bool)] = 0.0
    return sketch(gradient, entropy[0], q)


def sketch(gradient: Array, seed: int, q: int = WIDTH) -> Array:
    """Return q sums of a gradient (P,), the same ones for one study seed; a short one unchanged."""
    size = len(gradient)
    if size <= q:
        return gradient
    rng = np.random.default_rng((seed, _TAG, size))
    place, sign = rng.integers(q, size=size), rng.choice([-1.0, 1.0], size)
    return np.bincount(place, sign * gradient, q)


class Watch:
    """Record R before each round of a training; see the header.

    Parameters
    ----------
    watch : "loss" or "gradient".
    parts : choices of K, in order; a lap takes the first that it can begin with.
    least : fewest rows of a part, and of each kind over all sites.
    level : largest share of trainings with an alarm if sites do not differ.
    ends : whether the training ends at the first alarm; the caller then goes on, for example with a
        personal last layer.

    Attributes
    ----------
    found : R of the latest round; None before the first.
    fired : number of rounds before the first alarm; None without one.
    """

    def __init__(
        self,
        fed: Federation,
        plan: Plan,
        watch: str,
        *,
        parts: tuple[int, ...] = PARTS,
        least: int = 1,
        level: float = LEVEL,
        ends: bool = False,
    ):
        self._fed, self._plan, self._watch, self._ends = fed, plan, watch, ends
        self._choices, self._least, self._level = parts, least, level
        self._parts = parts[0]
        self._lap, self._asked = 0, 0
        self._trajectories, self._columns = Trajectories(), np.zeros(0, bool)
        self.found: Mixing | None = None
        self.fired: int | None = None

    def __call__(self, theta: Array) -> bool:
        """Ask the sites at θ (P,); return whether the training ends (`schedule.Enough`)."""
        self._look(theta)
        self._asked += 1
        self.found = None
        if len(self._trajectories.means) > 1 and self._trajectories.sites > 1:
            t = len(self._trajectories.means)
            level = level_of_look(self._level, self._lap + 1, t, self._parts)
            self.found = self._trajectories.mixing(level)
        if self.fired is None and self.found is not None and self.found.fires:
            self.fired = self._asked - 1
        if not self._ends or self.fired is None:
            return False
        self._fed.record(**self._now())
        return True

    def _now(self) -> dict[str, float]:
        """Return R and R* under their names in the history; {} if unknown."""
        return {} if self.found is None else {"R": self.found.r, "R_alarm": self.found.alarm}

    def recording(self, record: Callable[..., None]) -> Callable[..., None]:
        """Return `record` of a federation, with R and R* of each round added."""

        def both(**values: float) -> None:
            record(**values, **self._now())

        return both

    def _look(self, theta: Array) -> None:
        """Add a round to the trajectories; begin a new lap if the set of sites changed."""
        if len(self._trajectories.means) == self._parts:
            self._begin()
        if self._trajectories.means:
            if self._trajectories.add(self._ask(theta)):
                return
            self._begin()
        hidden = max(2, min(HIDDEN, len(self._fed.sites)))
        for parts in self._choices:
            there = self._fed.sum(
                count_watched, plan=self._plan.text, parts=parts, lap=self._lap,
                min_cell=self._least,
            )  # fmt: skip
            if there.sites >= hidden and (there.kinds >= self._least).all():
                self._parts, self._columns = parts, there.apart >= self._least
                self._trajectories.add(self._ask(theta))
                return

    def _ask(self, theta: Array) -> Contribution:
        return self._fed.sum(
            watch_here, theta=self._plan.sent(theta), plan=self._plan.text, watch=self._watch,
            parts=self._parts, lap=self._lap, turn=len(self._trajectories.means),
            min_cell=self._least, columns=self._columns,
        )  # fmt: skip

    def _begin(self) -> None:
        self._lap, self._trajectories = self._lap + 1, Trajectories()


def watching(fed: Federation, plan: Plan, watch: str, least: int) -> Watch | None:
    """Return the watch that a training's settings ask for; None for other kinds."""
    return Watch(fed, plan, watch, least=least) if watch in KINDS[1:] else None


def bounds(watch: str, rounds: int) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of `watch_here` over so many rounds (`Method.bounds`)."""
    laps = range(2 * rounds + 1)
    watched = (watch,) if watch in KINDS[1:] else ()
    return {"watch": watched, "parts": PARTS, "lap": laps, "turn": range(max(PARTS))}


STEPS = (count_watched, watch_here)


def asks(watch: str) -> tuple[Step[..., Any], ...]:
    """Return the steps of the watch; () for other kinds."""
    return STEPS if watch in KINDS[1:] else ()


#: What leaves a site in these steps, in plain words.
REVEALS = (
    "each round, sums over sites of the common model's gradient, or loss, on a tenth or "
    "a fifth of their rows, and of products of these; every ten or five rounds the number of sites "
    "in these sums, their rows in each part (deaths, each class), and the smallest number of rows "
    "in a part that differ in each column"
)
