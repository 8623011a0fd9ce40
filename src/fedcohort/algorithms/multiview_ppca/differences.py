"""Multi-view PPCA with differential privacy as in the paper: noise on the changes of each round.

Balelli, Silva, Lorenzi (2022), algorithm 2. In round r a site maximises its posterior from the
middle of θ̃[r − 1]. Its changes are clipped by view to C times the spread between sites, and get
noise. Here the noise is in the sum over sites (or in its sites' shares):

    Δ̄μ^(k) = Δμ^(k)/s · min(1, s/‖Δμ^(k)‖),  s = C σ_μ̃[r − 1],   W^(k) likewise            (1)
    Gaussian noise on all Δ̄ and on the squares for the spread, as one release a round
    Laplace noise on Δ ln σ², clipped to ± `MOST_LOG`, as another

One record more or less can move each of the 2 K parts of (1) from one end of a ball of radius 1 to
the other: sensitivity 2 √(2 K), or √(2 K) if sites are protected. The paper counts each parameter
by itself, and one round; its budget of a round is (3 K ε, 2 K δ). Here all releases of all rounds
are composed (`privacy.accounting`).

θ̃ with noise is kept within public limits (`updated`), which costs nothing. The noise for a record
is as large as for a site, and does not fall with a site's rows. So with few sites this route is
inaccurate at any protective ε (docs/mv-ppca-private.md).

The first round's prior is public: `START`. A site without a view reports no change and an unchanged
spread, as in EM, so its views are not revealed. σ² have an inverse gamma of a fixed α about their
middle.

Revealed: `Changes` and `Levels` of each round, with noise, as sums over the sites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.multiview_ppca.maths import em
from fedcohort.algorithms.multiview_ppca.maths.model import Prior, Theta, Views
from fedcohort.algorithms.multiview_ppca.maths.start import turned
from fedcohort.algorithms.multiview_ppca.steps import found_at, local_fit, views_here
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import Dp, Federation, Private, Release, Site, message, summed

#: Public prior for columns within [−1, 1]: standard deviations of μ and W, σ², and α.
START = {"mu": 0.2, "w": 0.2, "variance": 0.05, "alpha": 10.0}
#: Largest change of ln σ² in a round, and largest factor of a squared spread.
MOST_LOG, MOST_SPREAD = 1.0, 4.0


#: NumPy's errors on invalid numbers.
ARITHMETIC = (np.linalg.LinAlgError, ArithmeticError, ValueError)


@message
class Changes:
    """Σ Δ̄μ (p,) and Σ Δ̄W (p, q); sums of squares by view (2 K,), of μ and then of W."""

    mu: Array
    w: Array
    squares: Array


@message
class Levels:
    """Σ Δ ln σ² (G,), each clipped to ± `MOST_LOG`."""

    change: Array


@summed
def changes_privately(
    site: Site[FeatureTable, None], *, of: Array, narrow: bool, each: bool, mu: Array, w: Array,
    variance: Array, mu_variance: Array, w_variance: Array, alpha: Array, beta: Array, epochs: int,
    clip: float, unit: str,
) -> Private[Changes]:  # fmt: skip
    """Maximise this site's posterior; return its changes, clipped by view.

    Parameters
    ----------
    clip, unit : C, and the protected unit.
    """
    views = Views(of, w.shape[1], narrow, each)
    prior = Prior(mu, w, mu_variance, w_variance, alpha, beta)
    reply = changes(site, views, prior, Theta(mu, w, variance), epochs, clip)
    reach = math.sqrt(2.0 * views.count)
    return Private(reply, {
        "mu": _radii(unit) * math.sqrt(views.count), "w": _radii(unit) * math.sqrt(views.count),
        "squares": reach,
    })  # fmt: skip


def changes(
    site: Site[FeatureTable, Any], views: Views, prior: Prior, start: Theta, epochs: int,
    clip: float,
) -> Changes:  # fmt: skip
    """Return eq. (1) of one site, and its squares over `MOST_SPREAD` times those of the prior.

    If the fit fails, return no change and the prior's squares: a failure must not tell of a record.
    """
    found = found_at(site, views.of)
    here = views_here(found, views)
    try:
        theta = local_fit(found, views, prior, start, epochs)
        theta = turned(theta, prior.w, np.flatnonzero(here[views.of]), views)
        left = em.spread(found, theta, prior, views)
    except ARITHMETIC:
        theta, here = Theta(prior.mu, prior.w, start.variance), np.zeros(views.count, bool)
        none = np.zeros(views.count)
        left = em.Spread(none, none, np.zeros((views.q, views.q)), none, none)
    parts: list[Array] = []
    squares: list[Array] = []
    for change, spread, open_, size in (
        (theta.mu - prior.mu, prior.mu_variance, left.mu, views.widths),
        (theta.w - prior.w, prior.w_variance, left.w, views.widths * views.used),
    ):
        change = np.where(np.isfinite(change), change, 0.0)
        norm = np.sqrt(views.total(np.square(change)))
        cut = clip * np.sqrt(spread)
        scale = np.where(here, 1.0 / np.maximum(norm, cut), 0.0)[views.of]
        parts.append(change * (scale if change.ndim == 1 else scale[:, None]))
        ratio = (np.square(norm) + open_) / (size * spread)
        ratio = np.where(here & np.isfinite(ratio), ratio, 1.0)
        squares.append(np.clip(ratio / MOST_SPREAD, 0.0, 1.0))
    mu, w = parts
    return Changes(mu, w, np.concatenate(squares))


@summed
def levels_privately(
    site: Site[FeatureTable, None], *, of: Array, narrow: bool, each: bool, mu: Array, w: Array,
    variance: Array, mu_variance: Array, w_variance: Array, alpha: Array, beta: Array, epochs: int,
    unit: str,
) -> Private[Levels]:  # fmt: skip
    """Maximise this site's posterior; return the differences of its ln σ² from the common ones."""
    views = Views(of, w.shape[1], narrow, each)
    prior = Prior(mu, w, mu_variance, w_variance, alpha, beta)
    found = found_at(site, of)
    try:
        theta = local_fit(found, views, prior, Theta(mu, w, variance), epochs)
        change = np.log(theta.variance) - np.log(variance)
    except ARITHMETIC:  # as in `changes`
        change = np.zeros(views.noises)
    known = views.pooled(views_here(found, views)[of].astype(float)) > 0
    cut = np.clip(np.nan_to_num(change), -MOST_LOG, MOST_LOG)
    return Private(
        Levels(np.where(known, cut, 0.0)), {"change": _radii(unit) * MOST_LOG * views.noises}
    )  # fmt: skip


def _radii(unit: str) -> float:
    """Return the number of radii by which a protected unit can move a point in a ball."""
    return 2.0 if unit == "record" else 1.0


STEPS = (changes_privately, levels_privately)


def releases(rounds: int, dp: Dp) -> Sequence[Release]:
    """Return the releases of so many rounds: one of each step a round, with equal noise.

    Raises
    ------
    SettingError : (ε, δ) cannot be met.
    """
    return _releases(rounds, dp)


@lru_cache(maxsize=64)
def _releases(rounds: int, dp: Dp) -> tuple[Release, ...]:
    from fedcohort.privacy import accounting  # slow to import

    def make(z: float) -> tuple[Release, ...]:
        return (
            Release(step=changes_privately.name, noise=z, count=rounds),
            Release(step=levels_privately.name, noise=z, count=rounds, mechanism="laplace"),
        )

    return make(accounting.calibrate(make, dp))


def begin(frame: Array, views: Views) -> Prior:
    """Return the public prior, with a random W̃ (p, q)."""
    k, g = views.count, views.noises
    alpha = np.full(g, START["alpha"])
    return Prior(
        np.zeros(len(views.of)), START["w"] * frame * views.free, np.full(k, START["mu"] ** 2),
        np.full(k, START["w"] ** 2), alpha, alpha * START["variance"],
    )  # fmt: skip


def updated(prior: Prior, sums: Changes, levels: Levels, sites: int, clip: float,
            views: Views) -> Prior:  # fmt: skip
    """Return θ̃ after a round, within public limits.

    Columns are within [−1, 1], so μ is kept within them, and a row of W within length 1. A spread
    at most halves or doubles, and is never above that of `START`.
    """
    k = views.count
    cuts = clip * np.sqrt(prior.mu_variance), clip * np.sqrt(prior.w_variance)
    mu = sums.mu * cuts[0][views.of] / sites
    w = sums.w * cuts[1][views.of][:, None] / sites

    def spread(before: Array, squares: Array, moved: Array, size: Array, most: float) -> Array:
        now = before * squares * MOST_SPREAD / sites - views.total(np.square(moved)) / size
        return np.minimum(np.clip(now, before / 4.0, before * 4.0), most**2)

    variance = prior.variance * np.exp(np.clip(levels.change / sites, -MOST_LOG, MOST_LOG))
    middle = prior.w + w
    length = np.linalg.norm(middle, axis=1, keepdims=True)
    return Prior(
        np.clip(prior.mu + mu, -1.0, 1.0), middle / np.maximum(length, 1.0),
        spread(prior.mu_variance, sums.squares[:k], mu, views.widths, START["mu"]),
        spread(prior.w_variance, sums.squares[k:], w, views.widths * views.used, START["w"]),
        prior.alpha, prior.alpha * np.clip(variance, 1e-6, 1.0),
    )  # fmt: skip


def fit(fed: Federation, frame: Array, views: Views, dp: Dp, *, rounds: int, epochs: int) -> Prior:
    """Run the rounds; see the header."""
    prior = begin(frame, views)
    for _ in fed.rounds(rounds):
        given: dict[str, Any] = {
            "of": views.of, "narrow": views.narrow, "each": views.each, "mu": prior.mu,
            "w": prior.w, "variance": prior.variance, "mu_variance": prior.mu_variance,
            "w_variance": prior.w_variance, "alpha": prior.alpha, "beta": prior.beta,
            "epochs": epochs, "unit": dp.unit,
        }  # fmt: skip
        sums = fed.sum(changes_privately, **given, clip=dp.norm)
        levels = fed.sum(levels_privately, **given)
        prior = updated(prior, sums, levels, len(fed.sites), dp.norm, views)
        fed.record(
            sd_mu=float(np.sqrt(prior.mu_variance.mean())),
            sd_w=float(np.sqrt(prior.w_variance.mean())),
            sigma=float(np.sqrt(prior.variance.mean())),
        )
    return prior
