"""Site steps of multi-view probabilistic PCA.

Revealed, only as sums over all sites: `Held` once, `Moved` every round, `Known` and `Criterion`
once for each q. If sites are compared, `Deviation` of each site, once. A view with fewer than
`least` rows at a site is treated as absent there, and so is a site with so few rows: otherwise, if
the other sites are alike, the sum less their expected part is that site's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.algorithms.multiview_ppca.maths import em, sites
from fedcohort.algorithms.multiview_ppca.maths.draws import information, waic
from fedcohort.algorithms.multiview_ppca.maths.model import Prior, Theta, Views
from fedcohort.algorithms.multiview_ppca.maths.moments import Pattern, patterns
from fedcohort.algorithms.multiview_ppca.maths.start import principal, turned
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable, remembered
from fedcohort.protocol import Keep, Site, gathered, message, summed


@message
class Held:
    """Rows with an entry, and without any, (); entries by column (p,), and sites that have one,
    ``sites`` (p,); ``together`` (K, K), sites with enough rows that have both of two views;
    ``places``, sites with any ().
    """

    rows: Array
    empty: Array
    entries: Array
    sites: Array
    together: Array
    places: Array


@message
class Moved:
    """Sums over sites about the prior's middle, by view (K,) unless stated otherwise.

    ``sites`` with the view; Σ Δμ (p,) and Σ ‖Δμ‖², Σ ΔW (p, q) and Σ ‖ΔW‖², the squares with the
    posterior variances if these are used; for each noise (G,) the number of ``noises``, Σ ln σ² and
    Σ 1/σ²; Σ m (q,) and Σ m mᵀ (q, q), with the covariance of m, over ``places`` (); the sum of the
    sites' log-likelihoods (), and the number of sites waiting for a prior ().
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
    """Parts of WAIC, summed over rows (): ``fit``, ``cost``, ``rows``.

    ``squares`` (m,): Σ (e − e_before)², with e = fit − cost of a row, and e_before that of the m
    numbers of dimensions tried before.
    """

    fit: Array
    cost: Array
    rows: Array
    squares: Array


@message
class Parts:
    """State of a site: each row's part of the criterion, by dimensions tried (n, m)."""

    parts: Array


@message
class Deviation:
    """Differences of one site: see `algorithms.multiview_ppca.maths.sites`.

    ``latent`` (q,) and its χ² (); by view (K,), ``shift``, its χ² with ``df``, and ``noise``; −1
    for an absent view.
    """

    latent: Array
    latent_chi2: Array
    shift: Array
    chi2: Array
    df: Array
    noise: Array


@summed
def look(site: Site[FeatureTable, None], *, of: Array, least: int) -> Held:
    """Count rows and entries."""
    x = told_of(site, of, least)
    there = ~np.isnan(x)
    entries = np.array([int(column.sum()) for column in there.T], np.int64)
    has = _has(there, of).astype(np.int64)
    empty = int(np.isnan(site.data.x).all(axis=1).sum())
    return Held(
        np.array(int(there.any(axis=1).sum())), np.array(empty if empty >= least else 0), entries,
        (entries > 0).astype(np.int64), (has.T @ has >= least).astype(np.int64),
        np.array(int(there.any())),
    )  # fmt: skip


def _has(there: Array, of: Array) -> Array:
    """Return the views of which each row has an entry (n, K), from entries (n, p)."""
    return np.stack([there[:, of == k].any(axis=1) for k in range(int(of.max()) + 1)], axis=1)


def told_of(site: Site[FeatureTable, Any], of: Array, least: int) -> Array:
    """Return this site's x (n, p) without views that fewer than `least` of its rows have.

    All entries are removed if fewer than `least` rows have one.
    """

    def make() -> Array:
        x = site.data.x.copy()
        while True:
            has = _has(~np.isnan(x), of)
            rows = has.sum(axis=0)
            few = (rows > 0) & (rows < least)
            if has.any(axis=1).sum() < least:
                few = rows > 0
            if not few.any():
                return x
            x[:, few[of]] = np.nan

    return remembered(site.data, ("told", least, of.tobytes()), make)


def found_at(site: Site[FeatureTable, Any], of: Array, least: int = 1) -> list[Pattern]:
    """Return the patterns of this site's rows, see `told_of`."""
    key = ("patterns", least, of.tobytes())
    return remembered(site.data, key, lambda: patterns(told_of(site, of, least)))


def local_fit(found: list[Pattern], views: Views, prior: Prior, start: Theta, epochs: int) -> Theta:
    """Return θ from a site's patterns after so many iterations of EM."""
    theta, floors = start, em.floors(found, views)
    for _ in range(epochs):
        theta = em.step(found, theta, prior, views, floors)
    return theta


def views_here(found: list[Pattern], views: Views) -> Array:
    """Return the views of which a site's patterns have an entry (K,)."""
    seen = np.zeros(len(views.of))
    for one in found:
        seen[one.columns] = 1.0
    return views.total(seen) > 0


@summed
def first_round(
    site: Site[FeatureTable, None], *, of: Array, q: int, narrow: bool, each: bool, frame: Array,
    shared: Array, start: str, epochs: int, uncertain: bool, wait: int, least: int,
) -> Moved:  # fmt: skip
    """Fit this site alone, without a prior.

    A site with fewer than `wait` rows waits, because alone it would fit exactly; so does one where
    nothing varies. A site tells no σ² whose columns do not vary.

    Parameters
    ----------
    of : view of each column (p,).
    frame : random (p, q), the same at all sites: W is turned towards it by the columns in
        ``shared`` (p,), which all sites have; or the start of EM.
    start, epochs, uncertain : see `Settings`.
    """
    views = Views(of, q, narrow, each)
    prior = Prior.flat(views)
    found = found_at(site, of, least)
    here = views_here(found, views)
    if sum(p.rows for p in found) < wait or not em.varies(found, views).any():
        return _moved(None, prior, views, here, found, uncertain)
    if start == "local":
        begin = principal(found, views)
    else:
        w = site.rng.standard_normal(frame.shape) if start == "random" else frame
        begin = principal(found, views, w=w * views.free)
    theta = local_fit(found, views, prior, begin, epochs)
    if start == "local":
        theta = turned(theta, frame, np.flatnonzero(shared & here[of]), views)
    return _moved(theta, prior, views, here, found, uncertain)


@summed
def next_round(
    site: Site[FeatureTable, None], *, of: Array, narrow: bool, each: bool, mu: Array, w: Array,
    variance: Array, mu_variance: Array, w_variance: Array, alpha: Array, beta: Array,
    centre_variance: float, epochs: int, uncertain: bool, least: int,
) -> Moved:  # fmt: skip
    """Maximise this site's posterior, from the middle of its prior."""
    views = Views(of, w.shape[1], narrow, each)
    prior = Prior(mu, w, mu_variance, w_variance, alpha, beta, centre_variance)
    found = found_at(site, of, least)
    theta = local_fit(found, views, prior, Theta(mu, w, variance, np.zeros(views.q)), epochs)
    present = views_here(found, views)
    theta = turned(theta, w, np.flatnonzero(present[of]), views)
    return _moved(theta, prior, views, present, found, uncertain)


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
    squares, open_ = [views.total(np.square(mu)), views.total(np.square(w))], np.zeros((q, q))
    log_variance, precision = np.log(theta.variance), 1.0 / theta.variance
    if uncertain:
        spread = em.spread(found, theta, prior, views)
        squares, open_ = [squares[0] + spread.mu, squares[1] + spread.w], spread.centre
        log_variance, precision = spread.log_variance, spread.precision
    known = em.varies(found, views)  # constant columns tell nothing of their noise
    return Moved(
        present.astype(np.int64), mu, squares[0], w, squares[1], known.astype(np.int64),
        np.where(known, log_variance, 0.0), np.where(known, precision, 0.0),
        theta.point, np.outer(theta.point, theta.point) + open_, np.array(1),
        np.array(em.log_likelihood(found, theta, views)), np.array(0),
    )  # fmt: skip


@summed
def tell_information(
    site: Site[FeatureTable, None], *, of: Array, narrow: bool, each: bool, mu: Array, w: Array,
    variance: Array, mu_variance: Array, w_variance: Array, alpha: Array, beta: Array,
    centre_variance: float, epochs: int, least: int,
) -> Known:  # fmt: skip
    """Return this site's information on the common loadings and offsets."""
    views = Views(of, w.shape[1], narrow, each)
    prior = Prior(mu, w, mu_variance, w_variance, alpha, beta, centre_variance)
    found = found_at(site, of, least)
    theta = local_fit(found, views, prior, Theta(mu, w, variance, np.zeros(views.q)), epochs)
    return Known(information(found, theta, prior, views))


@summed
def criterion(
    site: Site[FeatureTable, Parts | None], *, of: Array, narrow: bool, each: bool, mu: Array,
    w: Array, variance: Array, mu_variance: Array, w_variance: Array, alpha: Array, beta: Array,
    centre_variance: float, epochs: int, shared: Array, draws: int, least: int,
) -> Keep[Criterion, Parts]:  # fmt: skip
    """Draw from this site's posterior, and sum the parts of WAIC.

    Parameters
    ----------
    shared : roots of the covariance of the common W and μ given all sites, (p, q + 1, q + 1).
    """
    views = Views(of, w.shape[1], narrow, each)
    prior = Prior(mu, w, mu_variance, w_variance, alpha, beta, centre_variance)
    found = found_at(site, of, least)
    theta = local_fit(found, views, prior, Theta(mu, w, variance, np.zeros(views.q)), epochs)
    x = told_of(site, of, least)
    x = x[(~np.isnan(x)).any(axis=1)]
    parts = waic(x, theta, prior, views, shared, site.rng, draws=draws, burn=max(10, draws // 5))
    own = (parts.fit - parts.cost)[:, None]
    before = np.zeros((len(x), 0)) if site.state is None else site.state.parts
    squares = np.square(own - before).sum(axis=0)
    reply = Criterion(
        np.array(parts.fit.sum()), np.array(parts.cost.sum()), np.array(len(x)), squares
    )  # fmt: skip
    return Keep(reply, Parts(np.hstack([before, own])))


@gathered
def compare(
    site: Site[FeatureTable, None], *, of: Array, narrow: bool, each: bool, mu: Array, w: Array,
    variance: Array, least: int,
) -> Deviation:  # fmt: skip
    """Return this site's differences from the common model."""
    views = Views(of, w.shape[1], narrow, each)
    found = sites.deviation(found_at(site, of, least), Theta(mu, w, variance), views)
    return Deviation(*(np.asarray(part) for part in found))


STEPS: tuple[Any, ...] = (look, first_round, next_round, tell_information, criterion, compare)
