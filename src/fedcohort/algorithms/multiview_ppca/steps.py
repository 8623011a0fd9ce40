"""What sites do in multi-view probabilistic PCA.

Revealed, only as sums over all sites: `Held` once, `Moved` every round, `Known` and `Criterion`
once for each q that is tried. Where sites are compared, `Deviation` of each site, once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.remembered import remembered
from fedcohort.data.tables import FeatureTable
from fedcohort.numerics.multiview import em, sites
from fedcohort.numerics.multiview.draws import information, waic
from fedcohort.numerics.multiview.model import Prior, Theta, Views
from fedcohort.numerics.multiview.moments import Pattern, patterns
from fedcohort.numerics.multiview.start import principal, turned
from fedcohort.protocol import Keep, Site, gathered, message, summed


@message
class Held:
    """Rows with an entry, and those without any, (); by column, entries (p,) and sites that have
    one, ``sites`` (p,).
    """

    rows: Array
    empty: Array
    entries: Array
    sites: Array


@message
class Moved:
    """Sums over sites about the prior's middle, by view (K,) unless said otherwise.

    ``sites`` that have the view; Σ Δμ (p,) and Σ ‖Δμ‖², Σ ΔW (p, q) and Σ ‖ΔW‖², the squares with
    the posterior variances where they count; of each noise (G,) the ``noises`` that are known, Σ ln
    σ² and Σ 1/σ²; Σ m (q,) and Σ m mᵀ (q, q), with what is left open of m, over so many ``places``
    (); the sites' log-likelihoods, summed (), and how many sites wait for a prior ().
    """

    sites: Array
    mu: Array
    mu_squares: Array
    w: Array
    w_squares: Array
    noises: Array
    log_variance: Array
    precision: Array
    centres: Array
    spread: Array
    places: Array
    log_likelihood: Array
    waiting: Array


@message
class Known:
    """Precisions of the common (W_j, μ_j) by column (p, q + 1, q + 1)."""

    precision: Array


@message
class Criterion:
    """The parts of WAIC, summed over rows (): ``fit``, ``cost``, ``rows``.

    Of each row's part e = fit − cost and those of the m dimensions tried before, Σ (e − e_before)²
    (m,), as ``squares``.
    """

    fit: Array
    cost: Array
    rows: Array
    squares: Array


@message
class Parts:
    """What a site keeps: each row's part of the criterion, by the dimensions tried (n, m)."""

    parts: Array


@message
class Deviation:
    """How one site differs: see `numerics.multiview.sites`.

    ``latent`` (q,) and its χ² (); by view (K,), ``shift``, its χ² with ``df``, and
    ``noise``; −1 of a view that it lacks.
    """

    latent: Array
    latent_chi2: Array
    shift: Array
    chi2: Array
    df: Array
    noise: Array


@summed
def look(site: Site[FeatureTable, None]) -> Held:
    """Count rows and entries."""
    there = ~np.isnan(site.data.x)
    some = there.any(axis=1)
    entries = np.array([int(column.sum()) for column in there.T], np.int64)
    return Held(
        np.array(int(some.sum())), np.array(int((~some).sum())), entries,
        (entries > 0).astype(np.int64),
    )  # fmt: skip


def found_at(site: Site[FeatureTable, Any]) -> list[Pattern]:
    """Return the patterns of this site's rows."""
    return remembered(site.data, "patterns", lambda: patterns(site.data.x))


def local_fit(
    site: Site[FeatureTable, Any], views: Views, prior: Prior, start: Theta, epochs: int
) -> Theta:
    """Return θ of this site after so many iterations of EM."""
    found, theta = found_at(site), start
    least = em.floors(found, views)
    for _ in range(epochs):
        theta = em.step(found, theta, prior, views, least)
    return theta


def views_here(site: Site[FeatureTable, Any], views: Views) -> Array:
    """Return which views this site has an entry of (K,)."""
    seen = np.zeros(len(views.of))
    for one in found_at(site):
        seen[one.columns] = 1.0
    return views.total(seen) > 0


@summed
def first_round(
    site: Site[FeatureTable, None], *, of: Array, q: int, narrow: bool, each: bool, frame: Array,
    shared: Array, start: str, epochs: int, uncertain: bool,
) -> Moved:  # fmt: skip
    """Fit this site alone, without a prior.

    A site with fewer than 2 (q + 1) rows waits: alone it would fit itself to the last digit. So
    does one where nothing varies; of a σ² whose columns do not vary, a site says nothing.

    Parameters
    ----------
    of : view of each column (p,).
    frame : random (p, q), the same for all: W is turned towards it, by the columns in ``shared``
        (p,), which all sites have; or where EM starts.
    start, epochs, uncertain : see `Settings`.
    """
    views = Views(of, q, narrow, each)
    prior = Prior.flat(views)
    found = found_at(site)
    if sum(p.rows for p in found) < 2 * (q + 1) or not em.varies(found, views).any():
        return _moved(None, prior, views, views_here(site, views), found, uncertain)
    if start == "local":
        begin = principal(found, views)
    else:
        w = site.rng.standard_normal(frame.shape) if start == "random" else frame
        begin = principal(found, views, w=w * views.free)
    theta = local_fit(site, views, prior, begin, epochs)
    if start == "local":
        theta = turned(theta, frame, np.flatnonzero(shared & views_here(site, views)[of]), views)
    return _moved(theta, prior, views, views_here(site, views), found, uncertain)


@summed
def next_round(
    site: Site[FeatureTable, None], *, of: Array, narrow: bool, each: bool, mu: Array, w: Array,
    variance: Array, mu_variance: Array, w_variance: Array, alpha: Array, beta: Array,
    centre_variance: float, epochs: int, uncertain: bool,
) -> Moved:  # fmt: skip
    """Maximise this site's posterior, from the middle of its prior."""
    views = Views(of, w.shape[1], narrow, each)
    prior = Prior(mu, w, mu_variance, w_variance, alpha, beta, centre_variance)
    theta = local_fit(site, views, prior, Theta(mu, w, variance, np.zeros(views.q)), epochs)
    present = views_here(site, views)
    theta = turned(theta, w, np.flatnonzero(present[of]), views)
    return _moved(theta, prior, views, present, found_at(site), uncertain)


def _moved(
    theta: Theta | None, prior: Prior, views: Views, present: Array, found: list[Pattern],
    uncertain: bool,
) -> Moved:  # fmt: skip
    p, q, k, g = len(views.of), views.q, views.count, views.noises
    if theta is None or not found:
        none, silent = np.zeros(k), np.zeros(g)
        return Moved(
            none.astype(np.int64), np.zeros(p), none, np.zeros((p, q)), none,
            silent.astype(np.int64), silent, silent, np.zeros(q), np.zeros((q, q)), np.array(0),
            np.array(0.0), np.array(int(theta is None)),
        )  # fmt: skip
    columns = present[views.of]
    mu = np.where(columns, theta.mu - prior.mu, 0.0)
    w = np.where(columns[:, None], theta.w - prior.w, 0.0)
    squares = [views.total(np.square(mu)), views.total(np.square(w))]
    if uncertain:
        spread = em.spread(found, theta, prior, views)
        squares = [squares[0] + spread.mu, squares[1] + spread.w]
    tau2 = prior.centre_variance
    left = 1.0 / (sum(one.rows for one in found) + 1.0 / tau2) if uncertain and tau2 > 0 else 0.0
    open_ = left * np.eye(q)
    known = em.varies(found, views)  # nothing is known of the noise of what is constant here
    return Moved(
        present.astype(np.int64), mu, squares[0], w, squares[1], known.astype(np.int64),
        np.where(known, np.log(theta.variance), 0.0), np.where(known, 1.0 / theta.variance, 0.0),
        theta.point, np.outer(theta.point, theta.point) + open_, np.array(1),
        np.array(em.log_likelihood(found, theta, views)), np.array(0),
    )  # fmt: skip


@summed
def tell_information(
    site: Site[FeatureTable, None], *, of: Array, narrow: bool, each: bool, mu: Array, w: Array,
    variance: Array, mu_variance: Array, w_variance: Array, alpha: Array, beta: Array,
    centre_variance: float, epochs: int,
) -> Known:  # fmt: skip
    """Tell how well this site's rows know the common loadings and offsets."""
    views = Views(of, w.shape[1], narrow, each)
    prior = Prior(mu, w, mu_variance, w_variance, alpha, beta, centre_variance)
    theta = local_fit(site, views, prior, Theta(mu, w, variance, np.zeros(views.q)), epochs)
    return Known(information(found_at(site), theta, prior, views))


@summed
def criterion(
    site: Site[FeatureTable, Parts | None], *, of: Array, narrow: bool, each: bool, mu: Array,
    w: Array, variance: Array, mu_variance: Array, w_variance: Array, alpha: Array, beta: Array,
    centre_variance: float, epochs: int, shared: Array, draws: int,
) -> Keep[Criterion, Parts]:  # fmt: skip
    """Draw from this site's posterior, and sum the parts of WAIC.

    Parameters
    ----------
    shared : roots of what all sites leave open of the common W and μ, (p, q + 1, q + 1).
    """
    views = Views(of, w.shape[1], narrow, each)
    prior = Prior(mu, w, mu_variance, w_variance, alpha, beta, centre_variance)
    theta = local_fit(site, views, prior, Theta(mu, w, variance, np.zeros(views.q)), epochs)
    x = site.data.x[(~np.isnan(site.data.x)).any(axis=1)]
    told = waic(x, theta, prior, views, shared, site.rng, draws=draws, burn=max(10, draws // 5))
    own = (told.fit - told.cost)[:, None]
    before = np.zeros((len(x), 0)) if site.state is None else site.state.parts
    squares = np.square(own - before).sum(axis=0)
    reply = Criterion(
        np.array(told.fit.sum()), np.array(told.cost.sum()), np.array(len(x)), squares
    )  # fmt: skip
    return Keep(reply, Parts(np.hstack([before, own])))


@gathered
def compare(
    site: Site[FeatureTable, None], *, of: Array, narrow: bool, each: bool, mu: Array, w: Array,
    variance: Array, least: int,
) -> Deviation:  # fmt: skip
    """Tell how this site's rows lie in the common model; not of views with fewer rows."""
    views, found = Views(of, w.shape[1], narrow, each), found_at(site)
    rows = np.zeros(len(of))
    for one in found:
        rows[one.columns] += one.rows
    few = views.total(((rows > 0) & (rows < least)).astype(float)) > 0
    kept = [one for one in found if not few[of[one.columns]].any()]
    told = sites.deviation(kept, Theta(mu, w, variance), views)
    return Deviation(*(np.asarray(part) for part in told))


STEPS: tuple[Any, ...] = (look, first_round, next_round, tell_information, criterion, compare)
