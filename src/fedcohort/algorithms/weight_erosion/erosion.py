"""Weight Erosion: gradient descent for one user, with falling weights of sites unlike the user's.

Grimberg, "Privacy-preserving and personalized federated machine learning for medical data",
semester project, EPFL, 2020, Algorithm 1. Every site starts with α_i = 1, and the user's, site 0,
keeps it. With mean gradients g_i of each site's batch at θ, in round r

    d_i = ‖g_i − g_0‖ / ‖g_0‖                                                             (1)
    α_i ← max(0, α_i − (1 + p_s k_i) p_d d_i),   k_i = ⌊(r_i − 1) b / |S_i|⌋              (2)
    θ ← θ − η Σ_i α_i g_i / Σ_i α_i                                                       (3)

k_i is the mean number of uses of a row, r_i the number of rounds with the site (the paper's r, if
sites come and go; see errata). A late site starts at the median of all α. g_i is the gradient of b
rows, or of all rows of a smaller site (`batch`); of all rows (`full`, k_i = r_i − 1); or (θ −
θ_i)/η after some passes of gradient descent to θ_i (`local`, k_i = r_i − 1 times the passes), so
that (3) is a mean of models.

With full gradients ‖g_0‖ → 0 at the user's own optimum, where d_i is unbounded: the others lose
their weight, and the user's own model is left (the paper's example 4). A round in which ‖g_0‖ is
below 10⁻⁹ of its largest value so far (or 10⁻¹⁴) changes nothing.

With `against` noise, weights fall only by the distance beyond chance:

    d_i = max(0, ‖g_i − g_0‖² − 2 (v_i + v_0)) / v_0                                      (4)

v is the variance of a mean gradient, eq. (1) of `gradient`. By chance the mean squared distance is
v_i + v_0; twice that is rare in one population. So a site keeps its weight until it differs by more
than the uncertainty, even with few rows or as ‖g_0‖ → 0. This is not in the paper.

Revealed, each round: `Slope`, the user's own gradient, loss, and v_0 if used, to the coordinator
and all sites; `Distance` of each other site, and so α_i, to all; Σ_{i≠0} α_i g_i, `Weighed`, only
as a sum. The distances of many rounds are as many equations about a site's totals.

With the user's gradient known, a sum over the user and one other site would tell that site's. So
two sites are refused, and with more the last one with a weight is left out of (3). Weights are sent
with their sum, and a site adds nothing unless another one has at least a quarter of the largest
weight. If two sites are left, each can compute the other's part from the next θ; with three or
more, two would have to collude. Two sums at one θ with different weights would separate two sites.
So a node refuses a second sum at one θ (`study.at_site.pins`), and a round that returns to a θ
changes nothing. As θ settles, sums at nearly one θ tell nearly the same. Not protected: sites that
leave between the two calls of a round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcohort.algorithms.weight_erosion.gradient import slope_of, spread_of
from fedcohort.arrays import Array
from fedcohort.protocol import (
    Federation,
    NotConverged,
    Refused,
    SettingError,
    Site,
    gathered,
    message,
    per_site,
    summed,
)
from fedcohort.protocol.step import mark_of
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import rows_of
from fedcohort.training.update_bounds import length

#: Measures of a distance: eqs. (1) and (4).
AGAINST = ("gradient", "noise")
#: Squared distances up to so many times their mean by chance cost nothing, eq. (4).
CHANCE = 2.0
#: Least v_0, relative to ‖g_0‖².
SILENT = 1e-12
#: The user's gradient counts as 0 below this part of its largest length, or below this length.
FLAT, ROUNDING = 1e-9, 1e-14
#: Fewest other sites with a weight in a sum, and least weight relative to the largest.
HIDDEN, HEAVY = 2, 0.25
#: Tolerance of rounding when a gradient's length is compared with its distance.
ROOM = 1e-6


@dataclass(frozen=True, kw_only=True)
class Erosion:
    """Decrease of weights, eq. (2).

    Attributes
    ----------
    distance : p_d ≥ 0. 0 is gradient descent on the mean over sites.
    size : p_s ≥ 0, for rows that were used before.
    against : one of `AGAINST`.
    """

    distance: float = 0.01
    size: float = 0.2
    against: str = "gradient"

    @property
    def noisy(self) -> bool:
        """Whether weights fall by eq. (4)."""
        return self.against == "noise"

    def __call__(self, alpha: float, d: float, passes: float) -> float:
        """Return the next α of a site with α, d and k."""
        return max(0.0, alpha - (1.0 + self.size * passes) * self.distance * d)


@dataclass
class Weights:
    """α of sites other than the user's, and their numbers of rounds.

    Attributes
    ----------
    alpha : of each site that has taken part.
    past : number of rounds with each site.
    """

    alpha: dict[str, float] = field(default_factory=dict[str, float])
    past: dict[str, int] = field(default_factory=dict[str, int])

    def erode(self, replies: Mapping[str, Distance], by: Erosion) -> dict[str, float]:
        """Lower the α of the sites that took part; return these.

        A new site starts at 1, or, once others have an α, at the median of all α with the user's,
        before this round.
        """
        start = float(np.median([1.0, *self.alpha.values()]))
        part = {site: d for site, d in replies.items() if d.part}
        for site, d in part.items():
            now = self.alpha.get(site, start)
            distance = float(d.excess if by.noisy else d.distance)
            self.alpha[site] = by(now, distance, float(d.passes))
            self.past[site] = self.past.get(site, 0) + 1
        return {site: self.alpha[site] for site in part}


@message(parameters=["gradient"])
class Slope:
    """The user's g_0 (P,), its loss (), v_0 () or 0, and whether its rows carry information ()."""

    gradient: Array
    loss: Array
    noise: Array
    part: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""; see `protocol.updates`."""
        numbers = self.loss, self.noise, self.part
        if why := _shape_fault(self.gradient, asked["theta"], *numbers):
            return why
        if self.noise < 0 or self.part not in (0, 1):
            return "a variance below 0, or a part other than 0 or 1."
        return ""


@message
class Distance:
    """d_i () of eq. (1), that of (4) or 0 (), k_i () of (2), and whether the site takes part ()."""

    distance: Array
    excess: Array
    passes: Array
    part: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if any(a.shape for a in (self.distance, self.excess, self.passes, self.part)):
            return "a distance that is not one number."
        most = asked["past"] * Plan.of(asked["plan"]).epochs
        least = min(self.distance, self.excess, self.passes)
        if least < 0 or self.part not in (0, 1) or self.passes > most:
            return "an impossible distance, number of passes, or part."
        return ""


@message(parameters=["gradient"])
class Weighed:
    """α_i g_i (P,) and α_i () of one site."""

    gradient: Array
    weight: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if why := _shape_fault(self.gradient, asked["theta"], self.weight):
            return why
        given = asked["alphas"] == self.weight
        if self.weight and not given.any():
            return "a weight that was not sent."
        most = float(self.weight) * max(asked["longest"][given], default=0.0)
        too_long = bool(length(self.gradient) > (1.0 + ROOM) * most)
        return "a gradient longer than its distance from the user's allows." * too_long


# site ---------------------------------------------------------------------------------


@gathered
def tell_slope(
    site: Site[Any, None], *, theta: Array, plan: str, visit: str, rate: float, draw: int,
    against: str, user: str, min_cell: int,
) -> Slope:  # fmt: skip
    """Return the gradient of the user's own rows, and its variance if that is used.

    A user with few rows of one of several classes tells nothing.
    """
    if user not in ("", site.name):
        raise Refused(
            "user", f"site {site.name!r} does not tell its gradient: the model is for {user!r}."
        )
    found = slope_of(site, theta, plan, visit, rate, draw, min_cell)
    if found is None or rows_of(site.data, Plan.of(plan), site.entropy).few(min_cell):
        return Slope(np.zeros(len(theta)), np.array(0.0), np.array(0.0), np.array(0.0))
    noise = spread_of(site, theta, plan, visit, draw) if against == "noise" else 0.0
    return Slope(found[0], np.array(found[1]), np.array(noise), np.array(1.0))


@gathered
def tell_distance(
    site: Site[Any, None], *, theta: Array, own: Array, noise: float, plan: str, visit: str,
    rate: float, draw: int, past: int, against: str, min_cell: int,
) -> Distance:  # fmt: skip
    """Return the distance of this site's gradient from the user's.

    By eq. (1), and by eq. (4) with `against` noise.

    own : g_0 (P,). noise : v_0, or 0; used only with `against` noise. past : number of earlier
    rounds with this site.
    """
    found = slope_of(site, theta, plan, visit, rate, draw, min_cell)
    if found is None:
        return Distance(np.array(0.0), np.array(0.0), np.array(0.0), np.array(0.0))
    p, n = Plan.of(plan), len(site.data.x)
    used = {"batch": min(p.batch_size or n, n), "full": n, "local": p.epochs * n}[visit]
    far, excess = length(found[0] - own), 0.0
    if against == "noise" and noise > 0:
        chance = noise + spread_of(site, theta, plan, visit, draw)
        excess = max(0.0, far**2 - CHANCE * chance) / noise
    return Distance(
        np.array(far / length(own)), np.array(excess), np.array(float(past * used // n)),
        np.array(1.0),
    )  # fmt: skip


@summed
def weigh_slope(
    site: Site[Any, None], *, theta: Array, alphas: Array, longest: Array, marks: Array,
    plan: str, visit: str, rate: float, draw: int, min_cell: int,
) -> Weighed:  # fmt: skip
    """Return the gradient of this site's rows times its weight, from the same rows as its distance.

    alphas : α (K,). longest : ‖g_0‖ (1 + d_i) (K,). marks : marks of their sites (K,).

    Raises
    ------
    Refused : no other site of the sum has a weight. Sites outside the sum hide nobody, whatever
        weight they are stated to have.
    """
    nothing = Weighed(np.zeros(len(theta)), np.array(0.0))
    alpha = float(alphas[marks == mark_of(site.name)].sum())
    if not alpha:
        return nothing
    there = np.unique(marks, return_index=True)[1]
    if site.among:  # sites outside the sum hide nobody
        there = there[np.isin(marks[there], [mark_of(s) for s in site.among])]
    if not hides(alphas[there]) or alphas.min() < 0 or alphas.max() > 1:
        raise Refused(
            "weights",
            f"site {site.name!r} would be alone in the sum of gradients: fewer than {HIDDEN} sites "
            f"of it besides the user's have a weight, up to 1, of {HEAVY:.0%} of the largest.",
        )
    found = slope_of(site, theta, plan, visit, rate, draw, min_cell)
    return nothing if found is None else Weighed(alpha * found[0], np.array(alpha))


# coordinator --------------------------------------------------------------------------


@dataclass(frozen=True)
class Eroded:
    """Result of a training.

    Attributes
    ----------
    theta : θ (P,).
    alpha : of each site that took part; the user's is 1.
    flat : rounds without a step, because the user's gradient was 0 or θ was already summed.
    alone : site → rounds in which it was left out as the last one with a weight.
    """

    theta: Array
    alpha: dict[str, float]
    flat: int
    alone: dict[str, int]


def train_eroding(
    fed: Federation,
    user: str,
    theta: Array,
    plan: Plan,
    rounds: int,
    rate: float,
    *,
    visit: str,
    by: Erosion,
    min_cell: int,
    after: Callable[[Array], None] | None = None,
) -> Eroded:
    """Descend from θ (P,) by eq. (3), one step a round.

    Parameters
    ----------
    user : name of the site that the model is for; "" for the only one.
    rate : η > 0. visit : one of `gradient.VISITS`.
    min_cell : fewest rows of a site that takes part.
    after : called with θ after each step.

    Raises
    ------
    SettingError : two sites, or no such user.
    NotConverged : θ left the range of floating point.
    SiteUnavailable : the user's site, or more sites than the quorum allows, did not answer.
    """
    own = owner(fed, user)
    others = fed.only([s for s in fed.sites if s != own])
    weights_so_far, steepest, flat, summed_at = Weights(), 0.0, 0, set[bytes]()
    alone: dict[str, int] = {}
    for r in fed.rounds(rounds):
        slope = fed.only([own]).gather(
            tell_slope, theta=theta, plan=plan.text, visit=visit, rate=rate, draw=r,
            against=by.against, user=user, min_cell=min_cell,
        )[own]  # fmt: skip
        norm = length(slope.gradient)
        steepest = max(steepest, norm)
        noise = max(float(slope.noise), SILENT * norm**2) if by.noisy else 0.0
        seen = {"loss": float(slope.loss), "gradient": norm} | ({"noise": noise} if noise else {})
        if norm <= max(FLAT * steepest, ROUNDING) or theta.tobytes() in summed_at:
            flat += 1
            fed.record(**seen)
            continue
        weights: dict[str, float] = {}
        found: dict[str, Distance] = {}
        if others.sites:
            found = others.gather(
                tell_distance, theta=theta, own=slope.gradient, noise=noise, plan=plan.text,
                visit=visit, rate=rate, draw=r, against=by.against, min_cell=min_cell,
                past=per_site({s: weights_so_far.past.get(s, 0) for s in others.sites}),
            )  # fmt: skip
            weights = weights_so_far.erode(found, by)
        for site, alpha in weights.items():
            seen |= {f"alpha {site}": alpha, f"distance {site}": float(found[site].distance)}
            seen |= {f"excess {site}": float(found[site].excess)} if noise else {}
        heavy = {site: alpha for site, alpha in weights.items() if alpha}
        gradient, weight = slope.gradient, 1.0
        if hides(alphas := np.array([*heavy.values()])):
            summed_at.add(theta.tobytes())
            total = fed.sum(
                weigh_slope, theta=theta, alphas=alphas,
                longest=np.array([norm * (1.0 + float(found[s].distance)) for s in heavy]),
                marks=np.array([mark_of(s) for s in heavy]), plan=plan.text, visit=visit, rate=rate,
                draw=r, min_cell=min_cell,
            )  # fmt: skip
            gradient, weight = gradient + total.gradient, weight + float(total.weight)
        else:
            alone |= {site: alone.get(site, 0) + 1 for site in heavy}
        theta = theta - rate / weight * gradient
        if after is not None:
            after(theta)
        fed.record(**seen)
        if not math.isfinite(length(theta)):
            raise NotConverged(
                f"the model left the range of numbers in round {r + 1}. Lower learning_rate from "
                f"{rate:g}."
            )
    return Eroded(theta, {own: 1.0, **weights_so_far.alpha}, flat, alone)


def owner(fed: Federation, user: str) -> str:
    """Return the site that the model is for.

    Raises
    ------
    SettingError : no site has this name, or there are two sites.
    """
    check_number(len(fed.sites))
    if not user and len(fed.sites) == 1:
        return fed.sites[0]
    if user not in fed.sites:
        given = f"is {user!r}, which is no site" if user else "is not given"
        raise SettingError(
            f"setting 'user' {given}; name the site that the model is for: {', '.join(fed.sites)}."
        )
    return user


def check_number(sites: int) -> None:
    """Refuse two sites.

    Raises
    ------
    SettingError : there are two.
    """
    if sites == 2:
        raise SettingError(
            "Weight Erosion over 2 sites would tell the other site's gradient, because the user's "
            "is known. It needs 3 sites or more. Ask another site to join."
        )


def hides(alphas: Array) -> bool:
    """Return whether at least `HIDDEN` of the weights (K,) are `HEAVY` relative to the largest."""
    return bool((alphas > 0).any() and (alphas >= HEAVY * alphas.max()).sum() >= HIDDEN)


def _shape_fault(gradient: Array, theta: Array, *numbers: Array) -> str:
    if gradient.shape != theta.shape or gradient.dtype != np.float64:
        return "a gradient of another shape or type than the model."
    if any(a.shape or a.dtype != np.float64 for a in numbers):
        return "a loss or weight that is not one real number."
    return ""


STEPS = (tell_slope, tell_distance, weigh_slope)
