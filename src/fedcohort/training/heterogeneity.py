"""R live during a training: whether sites differ is seen round by round, from sums alone.

`metrics.trajectories` has the statistic. Here is what a site's trajectory is made of. A
site deals its rows at random into K parts of nearly equal size, and in round t computes on part t
alone, at the model θ_t with which the round begins,

    "loss"      x_jt = L(θ_t), the averaged loss                                          (1)
    "gradient"  x_jt = ∇L(θ_t), or of a long one a sketch: parameters are dealt into
                `WIDTH` sums with random signs (Charikar et al., ICALP 2002)               (2)

without penalties, which are the same at all sites. So no row is in two points, and sites that are
alike differ as the parts of one site do. After K rounds the rows are dealt anew, and a further lap
begins; its looks share the same level. The weight of a site is the size of its parts.

(1) is the paper's, but for the rows: its coordinator holds some of its own, ours has none. Two
sites with opposite effects may lose alike, and only (2) tells them apart.

What a loss draws in training, each site draws anew in each round. Of an autoencoder each number of
a sketch mixes `MIXED` parameters or more on average.

Revealed: `Told`, each round, only as a sum over sites; and `There`, before each lap. A site with
fewer than `min_cell` rows in some tenth, or one that can teach nothing, takes no part (a part that
can teach nothing, such as one without a death, has a point of 0). A site that missed a round of a
lap is in no sum of its later ones: it refuses, and does not answer zeros. A lap is begun where the
sum hides each site and tells of no few: three or more can teach in all their parts (of two, Σ w x
and Σ w x xᵀ give each one's x), or both of a federation of two; and in each part there are, at all
of them together, `min_cell` rows or more of each kind (`Loss.kinds`: deaths of Cox, either class of
logistic, what is above 0 of Poisson, else rows); in fifths where in tenths there are not. A fifth
is two tenths, of the same sites: else the counts by both, or points at one θ, would differ by one
site's rows, or by single ones. Of a covariate in which fewer rows of a part differ from their
site's median, the first layer's weights are no part of (2): of a rare level in a part they would
tell the outcomes of few. Where sites come and go, the lap starts again. Not looked at: sites that
leave between the count and the sum, or between two counts, which then tell a site's own by their
difference.
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

#: What trajectories may be of; "none" watches nothing.
KINDS = ("none", "loss", "gradient")
#: Numbers of a point, at most; parameters in each number of an autoencoder's, on average at least.
WIDTH, MIXED = 16, 4
#: K, the first by which a lap can be begun; the share of trainings over sites that are alike in
#: which there is an alarm, at most.
PARTS, LEVEL = (10, 5), 0.05
#: In place of the lap of a site that has too few rows for it.
AWAY = -1
#: Fewest sites in a sum, where there are so many.
HIDDEN = 3

_TAG = 0x77617463


@message
class Way:
    """What a site remembers of its trajectory: the lap (), rounds in it (), and Σ_t x_jt (q,)."""

    lap: Array
    turns: Array
    total: Array


@message
class There:
    """Whether a site can teach in each of its parts (), and how many rows are in them.

    ``kinds`` (K, m) of each of m kinds in each part; ``apart`` (p,) those that differ in each
    covariate from the part's median, in the least part, (0,) of an autoencoder. All are 0 of a site
    that takes no part.
    """

    sites: Array
    kinds: Array
    apart: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return what is wrong with one site's reply; see `protocol.updates`."""
        if self.sites.shape or self.sites not in (0, 1):
            return "a site that is neither there nor away."
        if self.kinds.ndim != 2 or len(self.kinds) != asked["parts"] or self.apart.ndim != 1:
            return "other shapes than a number for each part and kind, and for each covariate."
        return count_fault("kinds", self.kinds) or count_fault("apart", self.apart)


@summed
def count_watched(site: Site[Any, Any], *, plan: str, parts: int, lap: int, min_cell: int) -> There:
    """Tell whether the site's trajectory can be in a sum that hides it."""
    rows = known_rows(site.data, Plan.of(plan), site.entropy)
    dealt = _dealt(site, rows, parts, lap, min_cell)
    found = [rows.take(part) for part in dealt or ()]
    if not found:
        none = np.zeros((parts, len(_kinds(rows))), np.int64)
        return There(np.array(0), none, _apart(rows) * 0)
    kinds, apart = np.array([_kinds(p) for p in found]), np.array([_apart(p) for p in found])
    there = all(part.informative for part in found)
    return There(np.array(int(there)), kinds, apart.min(axis=0))


def _kinds(rows: Rows) -> tuple[int, ...]:
    """Return how many rows there are of each kind."""
    return (len(rows.x),) if isinstance(rows.loss, Objective) else rows.loss.kinds


def _apart(rows: Rows) -> Array:
    """Return how many rows differ from the median of each covariate (p,); (0,) of an objective."""
    x = np.asarray(rows.x.cpu().numpy(), float)
    if isinstance(rows.loss, Objective):
        return np.zeros(0, np.int64)
    if not len(x):
        return np.zeros(x.shape[1], np.int64)
    half = len(x) // 2
    return (x != np.partition(x, half, axis=0)[half]).sum(axis=0)


def _dealt(
    site: Site[Any, Any], rows: Rows, parts: int, lap: int, min_cell: int
) -> list[Array] | None:
    """Return the parts of a lap; None of a site that takes no part, whatever their number."""
    entropy = (*site.entropy[:2], _TAG, lap)
    least = min(map(len, parts_of(rows, finest(parts), entropy)))
    few = least < max(min_cell, 1) or not rows.informative
    return None if few else parts_of(rows, parts, entropy)


@summed
def watch_here(
    site: Site[Any, Way | None], *, theta: Array, plan: str, watch: str, parts: int, lap: int,
    turn: int, min_cell: int, columns: Array,
) -> Keep[Contribution, Way]:  # fmt: skip
    """Tell where the site's trajectory is, on the rows of this round's part.

    columns : whether the weights of each covariate are part of a gradient (p,); (0,) where all are.
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    q = 1 if watch == "loss" else numbers(len(theta), rows)
    own, before = site.state, np.zeros(q)
    if turn:
        if not isinstance(own, Way) or own.lap not in (lap, AWAY) or own.turns != turn:
            raise ReplyRejected(
                f"site {site.name!r} was not asked watch_here in every round of this lap, and is "
                f"in no sum of it: sites without a part would leave those with one alone."
            )
        if own.lap == AWAY:
            return _nothing(q, turn)
        before = own.total
    dealt = _dealt(site, rows, parts, lap, min_cell)
    if dealt is None:
        return _nothing(q, turn)
    point = point_of(theta, rows.take(dealt[turn]), p, watch, columns, site.entropy)
    total = before + point
    told = Contribution.of(point, total, len(rows.x) / parts)
    return Keep(told, Way(np.array(lap), np.array(turn + 1), total))


def _nothing(q: int, turn: int) -> Keep[Contribution, Way]:
    """Return the reply, and the state, of a site whose own rows are too few for a lap."""
    return Keep(Contribution.nothing(q), Way(np.array(AWAY), np.array(turn + 1), np.zeros(q)))


def parts_of(rows: Rows, parts: int, entropy: tuple[int, ...]) -> list[Array]:
    """Deal rows into parts, by number, each in increasing order: of `finest`, as many together."""
    order = np.random.default_rng(entropy).permutation(len(rows.x))
    dealt = np.array_split(order, finest(parts))
    joined = len(dealt) // parts
    return [np.sort(np.concatenate(dealt[i : i + joined])) for i in range(0, len(dealt), joined)]


def finest(parts: int) -> int:
    """Return the number of parts that these are made of: tenths, if they can be."""
    return PARTS[0] if PARTS[0] % parts == 0 else parts


def numbers(size: int, rows: Rows) -> int:
    """Return q of a gradient of so many parameters."""
    return min(max(1, size // MIXED) if isinstance(rows.loss, Objective) else size, WIDTH)


def point_of(
    theta: Array, rows: Rows, plan: Plan, watch: str, columns: Array, entropy: tuple[int, ...]
) -> Array:
    """Return x_jt (q,), eq. (1) or (2), of θ (P,) on some rows.

    Parameters
    ----------
    columns : as of `watch_here`.
    entropy : study seed, site and call, from which a loss with noise draws.
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
    if len(columns):
        gradient[net.first].reshape(-1, len(columns))[:, ~columns.astype(bool)] = 0.0
    return sketch(gradient, entropy[0], q)


def sketch(gradient: Array, seed: int, q: int = WIDTH) -> Array:
    """Return a gradient (P,) as q sums of it, or fewer; the same ones for a study's seed."""
    size = len(gradient)
    if size <= q:
        return gradient
    rng = np.random.default_rng((seed, _TAG, size))
    place, sign = rng.integers(q, size=size), rng.choice([-1.0, 1.0], size)
    return np.bincount(place, sign * gradient, q)


class Watch:
    """R of a training, asked for before each of its rounds; see the header.

    Parameters
    ----------
    watch : "loss" or "gradient".
    parts : K, one or more, of which a lap has the first that it can be begun with.
    least : fewest rows of a part, and of each kind of them at all sites.
    level : share of trainings with an alarm where sites are alike, at most.
    ends : whether the training ends at the first alarm, so that the caller goes on in another way,
        with a personal last layer say.

    Attributes
    ----------
    found : R at the latest look; None before there is one.
    fired : the number of rounds after which there was an alarm first; None without.
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
        self._ways, self._least, self._level = parts, least, level
        self._parts = parts[0]
        self._lap, self._asked = 0, 0
        self._known, self._columns = Trajectories(), np.zeros(0, bool)
        self.found: Mixing | None = None
        self.fired: int | None = None

    def __call__(self, theta: Array) -> bool:
        """Look at the sites at θ (P,); return whether the training shall end (`course.Enough`)."""
        self._look(theta)
        self._asked += 1
        self.found = None
        if len(self._known.means) > 1 and self._known.sites > 1:
            t = len(self._known.means)
            level = level_of_look(self._level, self._lap + 1, t, self._parts)
            self.found = self._known.mixing(level)
        if self.fired is None and self.found is not None and self.found.fires:
            self.fired = self._asked - 1
        if not self._ends or self.fired is None:
            return False
        self._fed.record(**self._now())
        return True

    def _now(self) -> dict[str, float]:
        """Return R and R* as the history calls them; nothing where they are not known."""
        return {} if self.found is None else {"R": self.found.r, "R_alarm": self.found.alarm}

    def recording(self, record: Callable[..., None]) -> Callable[..., None]:
        """Return `record` of a federation, which tells R and R* of each round besides."""

        def both(**values: float) -> None:
            record(**values, **self._now())

        return both

    def _look(self, theta: Array) -> None:
        """Add a round to what is known, of a new lap where the sites are others than before."""
        if len(self._known.means) == self._parts:
            self._begin()
        if self._known.means:
            if self._known.add(self._told(theta)):
                return
            self._begin()
        hidden = max(2, min(HIDDEN, len(self._fed.sites)))
        for parts in self._ways:
            there = self._fed.sum(
                count_watched, plan=self._plan.text, parts=parts, lap=self._lap,
                min_cell=self._least,
            )  # fmt: skip
            if there.sites >= hidden and (there.kinds >= self._least).all():
                self._parts, self._columns = parts, there.apart >= self._least
                self._known.add(self._told(theta))
                return

    def _told(self, theta: Array) -> Contribution:
        return self._fed.sum(
            watch_here, theta=self._plan.sent(theta), plan=self._plan.text, watch=self._watch,
            parts=self._parts, lap=self._lap, turn=len(self._known.means),
            min_cell=self._least, columns=self._columns,
        )  # fmt: skip

    def _begin(self) -> None:
        self._lap, self._known = self._lap + 1, Trajectories()


def watching(fed: Federation, plan: Plan, watch: str, least: int) -> Watch | None:
    """Return what watches a training as its settings ask; None for "none"."""
    return None if watch == "none" else Watch(fed, plan, watch, least=least)


def bounds(watch: str, rounds: int) -> Mapping[str, Collection[Any]]:
    """Return what `watch_here` is asked with in so many rounds (`Method.bounds`)."""
    laps = range(2 * rounds + 1)
    watched = () if watch == "none" else (watch,)
    return {"watch": watched, "parts": PARTS, "lap": laps, "turn": range(max(PARTS))}


STEPS = (count_watched, watch_here)


def asks(watch: str) -> tuple[Step[..., Any], ...]:
    """Return the steps by which a training is watched; none for "none"."""
    return () if watch == "none" else STEPS


#: What leaves a site by them, in plain words.
REVEALS = (
    "each round, sums over sites of the common model's gradient, or loss, on a tenth or "
    "a fifth of their rows, and of products of these; every ten or five rounds how many sites can "
    "be in them, their rows in each part (deaths, each class), and in the least part those that "
    "differ in each column"
)
