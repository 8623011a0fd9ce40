"""Steps of personalised training; what they reveal is in the package's header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Keep, Refused, Site, gathered, message, summed
from fedcohort.training.networks.local import evaluate, train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Update
from fedcohort.training.personal.visits import (
    Own,
    RowsAt,
    advanced,
    begun,
    draws,
    told,
    with_own_part,
)
from fedcohort.training.personal.ways import BESIDE, PARTED, Way
from fedcohort.training.rows import Rows, known_rows
from fedcohort.training.update_bounds import misfit


@message(parameters=["theta"])
class Told:
    """The user's model (P,), its loss on the user's rows (), α (), and whether there is one ()."""

    theta: Array
    loss: Array
    alpha: Array
    part: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return what is wrong with one site's reply; see `protocol.updates`."""
        if why := misfit(self.theta, asked["theta"], self.part, self.loss):
            return why
        if self.alpha.shape or not 0 <= self.alpha <= 1 or self.part not in (0, 1):
            return "a share of its own model, or a part, that there cannot be."
        return ""


@message
class Learners:
    """Whether a site has rows that teach anything: 1 or 0 ()."""

    sites: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return what is wrong with one site's reply; see `protocol.updates`."""
        fine = not self.sites.shape and self.sites in (0, 1)
        return "" if fine else "a site that is neither one nor none."


@message(parameters=["thetas"])
class Alone:
    """A model of the user's rows alone: (1 + K, P), the last first; losses by round (R,)."""

    thetas: Array
    losses: Array
    part: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return what is wrong with one site's reply; see `protocol.updates`."""
        wanted = (1 + len(asked["keep"]), len(asked["theta"]))
        if self.thetas.shape != wanted or self.thetas.dtype != np.float64:
            return "models of another shape or type than it was asked for."
        if self.losses.shape != (asked["rounds"],) or self.part.shape or self.part not in (0, 1):
            return "another number of losses than of rounds."
        return ""


@summed
def train_with_own(
    site: Site[Any, Own | None], *, theta: Array, plan: str, rate: float, way: str
) -> Keep[Update, Own]:
    """Train what is common; keep what is this site's own."""
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    return trained_with_own(site, theta, rows, lambda _: rows, p, Way.of(way), rate)


def trained_with_own(
    site: Site[Any, Own | None], theta: Array, rows: Rows, rows_at: RowsAt, plan: Plan, way: Way,
    rate: float,
) -> Keep[Update, Own]:  # fmt: skip
    """Return what a site replies of a visit from the common θ (P,), and what it keeps.

    Parameters
    ----------
    rows : of the common training.
    rows_at : of the site's own.
    """
    own = site.state or begun(theta, way)
    if way.name in PARTED:
        left, own, loss = with_own_part(own, theta, rows_at, plan, way, rate, site)
        n = len(rows.x)
        return Keep(Update(n * left, np.array(float(n)), np.array(n * loss)), own)
    mine = way.name in BESIDE and way.user in ("", site.name)
    if mine and site.state is not None:
        own = advanced(site, own, theta, rows_at(own.theta), plan, way, rate)
    kept = own if mine else Own(np.zeros(0), np.array(0.0), np.array(0))
    return Keep(Update.trained(theta, rows, plan, rate, site.entropy), kept)


@summed
def count_learners(site: Site[Any, Any], *, plan: str) -> Learners:
    """Count the sites whose models are in the sums: a sum of few hides nobody."""
    rows = known_rows(site.data, Plan.of(plan), site.entropy)
    return Learners(np.array(int(rows.informative)))


@gathered
def tell_personal(
    site: Site[Any, Own | None], *, theta: Array, plan: str, rate: float, way: str, min_cell: int
) -> Told:
    """Tell the model of the site that it is for."""
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    return told_of_own(site, theta, lambda _: rows, p, Way.of(way), rate, min_cell)


def told_of_own(
    site: Site[Any, Own | None], theta: Array, rows_at: RowsAt, plan: Plan, way: Way, rate: float,
    min_cell: int,
) -> Told:  # fmt: skip
    """Return what the user tells of its model beside the common θ (P,): nothing of few rows.

    Raises
    ------
    Refused : the model is for another site.
    """
    _check_asked(site, way)
    rows = rows_at(theta)
    if len(rows.x) < max(min_cell, 1) or not rows.informative:
        return Told(np.zeros(len(theta)), *(np.array(0.0) for _ in range(3)))
    v, alpha = told(site, theta, rows_at, plan, way, rate)
    return Told(v, np.array(evaluate(v, rows_at(v), plan)), np.array(alpha), np.array(1.0))


@gathered
def tell_alone(
    site: Site[Any, Own | None], *, theta: Array, plan: str, rate: float, rounds: int, keep: Array,
    way: str, min_cell: int,
) -> Alone:  # fmt: skip
    """Train on the rows of the user's site alone, and tell that model.

    keep : numbers (K,) of rounds after which the model is told, too.
    """
    p, w = replace(Plan.of(plan), mu=0.0), Way.of(way)
    _check_asked(site, w)
    rows = known_rows(site.data, p, site.entropy)
    wanted: list[int] = keep.tolist()
    if len(rows.x) < max(min_cell, 1) or not rows.informative:
        nothing = np.zeros((1 + len(wanted), len(theta)))
        return Alone(nothing, np.zeros(rounds), np.array(0.0))
    losses, kept = np.zeros(rounds), dict[int, Array]()
    v = theta.astype(np.float64)
    for k in range(rounds):
        v, losses[k] = train(v, rows, p, rate, draws(site, k))
        if k + 1 in wanted:
            kept[k + 1] = v
    return Alone(np.stack([v, *(kept.get(r, v) for r in wanted)]), losses, np.array(1.0))


def _check_asked(site: Site[Any, Any], way: Way) -> None:
    if way.user not in ("", site.name):
        raise Refused(
            "way",
            f"site {site.name!r} tells its own model to nobody: the model is for {way.user!r}.",
        )


#: `tell_alone` is for methods with the way local.
STEPS = (train_with_own, count_learners, tell_personal)
