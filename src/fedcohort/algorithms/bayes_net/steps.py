"""Site steps of `bayes_net`.

A site's factor stays in its state; no message to the coordinator holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.bayes_net.model import EDGES, draws_of, spread
from fedcohort.arrays import Array
from fedcohort.models.bayes import Places, places
from fedcohort.models.network import initial, network
from fedcohort.protocol import DataError, Keep, Refused, Site, gathered, message, summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.variational import Goal, Natural, Prior, maximise
from fedcohort.training.outcome_moments import sum_times
from fedcohort.training.rows import rows_of

#: Share of a precision that all changes of a round together leave at least.
LEFT = 0.1
#: Most rows of a site that are compared with new ones.
MOST_ROWS = 1000
#: Smallest and largest log σ of a weight.
NARROWEST, WIDEST = -30.0, 7.0


@message
class Change:
    """Damped change of the posterior's natural parameters by a site, (W,) each.

    ``rows`` () and ``loss`` (), n and n times the mean −ln p(y | x, w) during the visit.
    """

    precision: Array
    shift: Array
    rows: Array
    loss: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if why := misfit(self, asked):
            return why
        least = -(1.0 - LEFT) / asked["parts"] * asked["precision"]
        if (self.precision < least * (1.0 + 1e-9)).any():
            return "a change that could make a precision negative."
        return ""


@message
class Own:
    """A site's own posterior: n λ and n η (W,); ``rows`` and ``loss`` as in `Change`."""

    precision: Array
    shift: Array
    rows: Array
    loss: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if why := misfit(self, asked):
            return why
        return "a precision that is not above 0." if (self.precision < 0).any() else ""


def misfit(reply: Change | Own, asked: Mapping[str, Any]) -> str:
    """Return the fault of a reply's shapes and counts, or ""."""
    size = asked["precision"].shape
    if reply.precision.shape != size or reply.shift.shape != size:
        return "another number of weights than of the posterior."
    return count_fault("rows", reply.rows[None])


@message
class Factor:
    """A site's factor, λ and η (W,)."""

    precision: Array
    shift: Array


@message
class Factors:
    """Product of the sites' factors of the posterior: λ and η (W,)."""

    precision: Array
    shift: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        size = asked["precision"].shape
        if self.precision.shape != size or self.shift.shape != size:
            return "another number of weights than of the posterior."
        return ""


@message
class Spreads:
    """Training rows by v, eq. (1) of `model`: ``counts`` (B + 1,) between `EDGES` (B,)."""

    counts: Array


NetSite = Site[Any, Factor | None]


@summed
def refine(
    site: NetSite, *, precision: Array, shift: Array, plan: str, rate: float, prior: str,
    seed: int, parts: int, sites: int, damping: float, late: bool = False,
) -> Keep[Change, Factor]:  # fmt: skip
    """Improve the site's own factor of the posterior; return by how much the posterior changes.

    The posterior has the natural parameters `precision` and `shift` (W,), and `parts` of all
    `sites` change it in this round. Before the first it is that of `seed`, whose quotient by the
    prior is shared equally by all sites. `prior` is the text of a `Prior`. `late`: the posterior is
    of an earlier round, and others have changed it since.
    """
    q = _posterior(site, precision, shift, plan)
    return _refined(site, q, plan, rate, prior, seed, parts, sites, damping, late)


@gathered
def refine_alone(
    site: NetSite, *, precision: Array, shift: Array, plan: str, rate: float, prior: str,
    seed: int, parts: int, sites: int, damping: float,
) -> Keep[Change, Factor]:  # fmt: skip
    """Improve the site's own factor of the posterior; return the change of this site."""
    q = _posterior(site, precision, shift, plan)
    return _refined(site, q, plan, rate, prior, seed, parts, sites, damping)


def _refined(
    site: NetSite, q: Natural, plan: str, rate: float, prior: str, seed: int, parts: int,
    sites: int, damping: float, late: bool = False,
) -> Keep[Change, Factor]:  # fmt: skip
    base = Prior.of(prior).natural(len(q.shift))
    if site.state is None:
        start = posterior_at_start(Plan.of(plan).network, seed)
        own = start.less(base).times(1.0 / sites)
    else:
        own = Natural(site.state.precision, site.state.shift)
    best, n, loss = trained(site, q, q.less(own), plan, rate, prior, 1.0 / sites)
    change = damped(site, best, q, parts, damping)
    if late:
        floor = -(1.0 - LEFT) / sites * base.precision
        change = Natural(np.maximum(change.precision, floor - own.precision), change.shift)
    now = own.plus(change)
    return Keep(told(change, n, loss), Factor(now.precision, now.shift))


@summed
def refine_average(
    site: Site[Any, None], *, precision: Array, shift: Array, plan: str, rate: float, prior: str,
    parts: int, sites: int, damping: float,
) -> Change:  # fmt: skip
    """Improve the factor that all sites share; return by how much the posterior changes.

    Arguments as of `refine`. The site keeps nothing.
    """
    q = _posterior(site, precision, shift, plan)
    own = q.less(Prior.of(prior).natural(len(q.shift))).times(1.0 / sites)
    best, n, loss = trained(site, q, q.less(own), plan, rate, prior, 1.0 / sites)
    return told(damped(site, best, q, parts, damping), n, loss)


def damped(site: Site[Any, Any], best: Natural, q: Natural, parts: int, damping: float) -> Natural:
    """Return a site's change of q, cut so that `parts` of them leave a tenth of each precision."""
    if not 0.0 < damping <= 1.0:
        raise Refused("posterior", f"site {site.name!r} takes no damping that is not in (0, 1].")
    change = best.less(q).times(damping)
    least = -(1.0 - LEFT) / parts * q.precision
    return Natural(np.maximum(change.precision, least), change.shift)


def told(change: Natural, n: int, loss: float) -> Change:
    """Return a change as it leaves a site of n rows with this mean loss."""
    return Change(change.precision, change.shift, np.array(float(n)), np.array(n * loss))


@summed
def multiply_factors(
    site: NetSite, *, precision: Array, shift: Array, plan: str
) -> Keep[Factors, Factor]:
    """Return the product of the sites' own factors of the posterior.

    Before, each site multiplies its factor by a Gaussian of natural parameters `precision` and
    `shift` (W,).

    Raises
    ------
    Refused : the site has no factor, or one of another network.
    """
    own, size = site.state, places_of(Plan.of(plan).network).mean.shape
    fine = np.isfinite(precision).all() and np.isfinite(shift).all()
    if own is None or {own.precision.shape, precision.shape, shift.shape} != {size} or not fine:
        raise Refused("posterior", f"site {site.name!r} keeps no factor of such a posterior.")
    now = Natural(own.precision, own.shift).plus(Natural(precision, shift))
    return Keep(Factors(now.precision, now.shift), Factor(now.precision, now.shift))


@summed
def train_posterior(
    site: Site[Any, None], *, precision: Array, shift: Array, plan: str, rate: float, prior: str
) -> Own:  # fmt: skip
    """Fit the posterior to the site's own rows; return its part of the mean over rows."""
    return _alone(site, precision, shift, plan, rate, prior)


@gathered
def train_alone(
    site: Site[Any, None], *, precision: Array, shift: Array, plan: str, rate: float, prior: str
) -> Own:  # fmt: skip
    """Fit the posterior to the site's own rows, and return it."""
    return _alone(site, precision, shift, plan, rate, prior)


def _alone(
    site: Site[Any, None], precision: Array, shift: Array, plan: str, rate: float, prior: str
) -> Own:
    cavity = Prior.of(prior).natural(len(precision))
    q = _posterior(site, precision, shift, plan)
    own, n, loss = trained(site, q, cavity, plan, rate, prior, 1.0)
    return Own(n * own.precision, n * own.shift, np.array(float(n)), np.array(n * loss))


@summed
def count_spreads(
    site: Site[Any, Any], *, thetas: Array, weights: Array, centres: Array, plan: str, law: str,
    samples: int, seed: int,
) -> Spreads:  # fmt: skip
    """Count training rows, of a large site some, by how unsure the posterior is of them.

    `centres` (M samples,) of Cox's model are the outputs of draws that count as 0; else (0,).
    """
    spec = Plan.of(plan).network
    at = places_of(spec)
    fine = thetas.ndim == 2 and thetas.shape == (len(weights), 2 * len(at.mean))
    if not fine or centres.shape != ((len(weights) * samples if law == "cox" else 0),):
        raise Refused("posterior", f"site {site.name!r} has no posterior of another network.")
    x = np.asarray(site.data.x, float)
    if len(x) > MOST_ROWS:
        x = x[np.sort(site.rng.choice(len(x), MOST_ROWS, replace=False))]
    if not len(x):
        return Spreads(np.zeros(len(EDGES) + 1, np.int64))
    v = spread(draws_of(spec, thetas, weights, centres, samples, seed, x), law)
    bins = np.searchsorted(EDGES, v, side="right")
    return Spreads(np.bincount(bins, minlength=len(EDGES) + 1))


def trained(
    site: Site[Any, Any], q: Natural, cavity: Natural, plan: str, rate: float, prior: str,
    share: float,
) -> tuple[Natural, int, float]:  # fmt: skip
    """Return the posterior after a visit, the number of rows, and the mean loss."""
    p = Plan.of(plan)
    rows = rows_of(site.data, p, site.entropy)
    theta = q.into(places_of(p.network))
    found, loss = maximise(theta, rows, p, rate, site.entropy, Goal(cavity, Prior.of(prior), share))
    at = places_of(p.network)
    if not np.isfinite(found).all() or _beyond(found[at.log_sd]):
        raise DataError(
            f"site {site.name!r}: the posterior's variance grows or falls without limit. Give a "
            f"smaller learning_rate, or a smaller prior_scale."
        )
    return Natural.of(found, at), len(rows.x), loss


def _beyond(log_sd: Array) -> bool:
    return bool(((log_sd < NARROWEST) | (log_sd > WIDEST)).any())


def _posterior(site: Site[Any, Any], precision: Array, shift: Array, plan: str) -> Natural:
    """Return the posterior that a question has; refuse one that is none."""
    return checked(site, precision, shift, len(places_of(Plan.of(plan).network).mean))


def checked(site: Site[Any, Any], precision: Array, shift: Array, weights: int) -> Natural:
    """Return the posterior of a question, of this number of weights.

    Raises
    ------
    Refused : it is of another number, some precision is not above 0, or a number is not finite.
    """
    size, proper = (weights,), (precision > 0).all() and np.isfinite(precision).all()
    if precision.shape != size or shift.shape != size or not (proper and np.isfinite(shift).all()):
        raise Refused(
            "posterior", f"site {site.name!r} trains no posterior of another network, or without "
            f"finite precisions above 0.",
        )  # fmt: skip
    return Natural(precision, shift)


def posterior_at_start(spec: str, seed: int) -> Natural:
    """Return the posterior before the first round, of a network's spec and a seed."""
    return Natural.of(initial(spec, seed), places_of(spec))


@lru_cache(maxsize=16)
def places_of(spec: str) -> Places:
    """Return the places of a network's parameters."""
    return places(network(spec).module)


STEPS = (
    sum_times, refine, refine_alone, refine_average, train_posterior, train_alone, count_spreads,
    multiply_factors,
)  # fmt: skip
