"""Posterior predictive checks of a Cox model, by one sum over sites.

Gelman, Meng, Stern, Statistica Sinica 6, 1996; Gelman et al., "Bayesian Data Analysis", 3rd ed.
2013, section 6.3. For each of L draws of the posterior every site draws new times of death of its
records, and new effects of the site where sites have these. The baseline hazard has the posterior
under a gamma process whose precision falls to 0 (J. D. Kalbfleisch, JRSS B 40(2), 1978),

    h_t | β ~ Gamma(d_t, S₀(t; β)),                                                         (1)

drawn by each site of its own hazard, else once for all. There S₀(t; β) is, to first order about the
mean β̂, S₀(t; β̂) exp((β − β̂)ᵀ m(t)), which takes no more sums. A drawn record is censored where the
record was; one that died, at a time drawn from the site's distribution of censoring after that
death, at the latest at the site's last time. Test quantities are

    deaths                 their number
    alive at t             by a life table of the quarters that end with a quarter, a half and three
                           quarters of the deaths of a stratum: Π (1 − d/(n + (e − c)/2)), with e
                           entries and c censored records of a quarter
    risk score             mean of g² over deaths, g the standardised linear predictor at the mean
                           of the draws, cut to ±`CUT`: shows a risk that is no line
    early against late     mean of g over the deaths of the first half, less that over the others:
                           shows effects that change with time

and p = P(T(y_rep) ≥ T(y)) over the draws, with half of those that are equal.

Revealed, as a sum over all sites: `Survived`, once. Deaths, censored records and entries of the
four quarters follow from `Deaths`; Σ g and Σ g² over deaths by quarter are new; the rest are draws.
Quarters of 1 to `min_cell` − 1 deaths are joined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.algorithms.cox.ascent import Top
from fedcohort.algorithms.cox.hierarchical import BySite
from fedcohort.algorithms.cox.likelihood import Ground
from fedcohort.algorithms.cox.placing import SurvivalSite, own_grid, placed
from fedcohort.algorithms.cox.site_steps import takes_part
from fedcohort.arrays import Array
from fedcohort.data.exact import Exact
from fedcohort.numerics.coxph import at_risk
from fedcohort.numerics.strata import by_stratum, rows_of
from fedcohort.protocol import Refused, Row, Task, message, summed
from fedcohort.training.site_effects import check_row

#: Largest number of draws, largest g, and largest |linear predictor|.
MOST, CUT, FAR = 1000, 3.0, 500.0
#: Shares of the deaths that end the first three quarters.
QUARTERS = (0.25, 0.5, 0.75)
HALVES = (slice(0, 2), slice(2, 4))


@message
class Survived:
    """Counts and sums of K strata by quarter, of the records and of L draws of them.

    ``entered`` (K, 5): records that enter before the first quarter, and in each. ``seen`` (K, 4, 4)
    and ``drawn`` (L, K, 4, 4), by quarter: deaths, censored records, Σ g and Σ g² over deaths.
    """

    entered: Array
    seen: Array
    drawn: Array


@summed
def replicate_survival(
    site: SurvivalSite,
    *,
    times: Array,
    sizes: Array,
    centre: Array,
    scale: Array,
    cuts: Array,
    draws: Array,
    tau: Array,
    hazards: Array,
    together: bool,
    least: int,
    number: int,
) -> Survived:
    """Draw times of death of all records from a fitted model; count them by quarter.

    Parameters
    ----------
    cuts : (K, 3), ends of the first three quarters.
    draws : (L, p), coefficients of standardised covariates.
    tau : (L, p), standard deviations of effects of sites; (L, 0) without.
    hazards : (L, T), baseline hazards at `times`; (L, 0) where each site has its own.
    together : times are ends of intervals, within which hazards are constant.
    number : L, which the study's settings pin.

    Raises
    ------
    Refused : numbers that no honest fit asks with.
    """
    p = len(scale)
    fine = all(np.isfinite(a).all() for a in (draws, tau, hazards, scale, cuts))
    if not (fine and 0 < number <= MOST and draws.shape == (number, p) and (scale > 0).all()):
        raise Refused("posterior", f"site {site.name!r} draws no times of such coefficients.")
    table, rng, strata = site.data, site.rng, len(sizes)
    out = Survived(
        np.zeros((strata, 5)), np.zeros((strata, 4, 4)), np.zeros((number, strata, 4, 4))
    )
    if not len(table.x) or (tau.shape[1] and not takes_part(table, p, least)):
        return out
    x = (table.x[:, :p] - centre[:p]) / scale
    offset = table.x[:, p] - centre[p] if len(centre) > p else np.zeros(len(x))
    mean = draws.mean(axis=0)
    g = np.clip(x @ mean / max(float(np.linalg.norm(mean)), 1e-12), -CUT, CUT)
    dies, entry = np.asarray(table.event, bool), table.entry
    own, own_sizes, _ = own_grid(table)
    records = placed(table, own, own_sizes, None, centre, scale)
    groups = [rows_of(table.stratum, k) for k in range(strata)]
    late = [_Censoring(table.time[at], dies[at]) for at in groups]
    grid = by_stratum(times, sizes) if hazards.shape[1] else by_stratum(own, own_sizes)
    for k, at in enumerate(groups):
        quarter = np.searchsorted(cuts[k], table.time[at])
        out.seen[k] = _by_quarter(quarter, dies[at], g[at])
        since = np.zeros(len(quarter)) if entry is None else np.asarray(entry, float)[at]
        first = np.where(since > 0, 1 + np.searchsorted(cuts[k], since), 0)
        out.entered[k] = np.bincount(first, minlength=5)
    for i in range(number):
        beta = draws[i] + tau[i] * rng.normal(size=p) if tau.shape[1] else draws[i]
        risk = np.exp(np.clip(x @ beta + offset, -FAR, FAR))
        if hazards.shape[1]:
            steps = by_stratum(hazards[i], sizes)
        else:
            s0 = at_risk(records.leaving(records.risk(beta)), records.sizes)
            each = rng.gamma(np.maximum(records.deaths, 1e-300)) / np.maximum(s0, 1e-300)
            steps = by_stratum(each, own_sizes)
        for k, at in enumerate(groups[: len(steps)]):
            since = None if entry is None else np.asarray(entry, float)[at]
            death = _times(grid[k], steps[k], risk[at], since, rng, together and hazards.size > 0)
            leave = late[k].drawn(rng)
            quarter = np.searchsorted(cuts[k], np.minimum(death, leave))
            out.drawn[i, k] = _by_quarter(quarter, death <= leave, g[at])
    return out


def _by_quarter(quarter: Array, dies: Array, g: Array) -> Array:
    """Return deaths, censored records, Σ g and Σ g² over deaths of each quarter, (4, 4)."""
    each = (dies, ~dies, dies * g, dies * g**2)
    return np.array([np.bincount(quarter, v, minlength=4) for v in each]).T


def _times(
    grid: Array, steps: Array, risk: Array, since: Array | None, rng: np.random.Generator,
    spread: bool,
) -> Array:  # fmt: skip
    """Return times of death (n,) under a hazard; inf beyond the grid.

    Parameters
    ----------
    grid, steps : (T,), times and hazards.
    since : (n,), times of entry; None without.
    spread : the hazard is constant between times, not at them.
    """
    total = np.cumsum(steps)
    need = rng.exponential(size=len(risk)) / risk
    if not len(grid):
        return np.full(len(risk), np.inf)
    if spread:
        ends, heights = np.r_[0.0, grid], np.r_[0.0, total]
        if since is not None:
            need = need + np.interp(since, ends, heights)
        return np.where(need <= total[-1], np.interp(need, heights, ends), np.inf)
    if since is not None:
        need = need + np.r_[0.0, total][np.searchsorted(grid, since, side="right")]
    return np.r_[grid, np.inf][np.searchsorted(total, need)]


class _Censoring:
    """Kaplan and Meier's distribution of the times of censoring, after each record's own time.

    Parameters
    ----------
    time, dies : (n,).
    """

    def __init__(self, time: Array, dies: Array):
        self._time, self._dies = np.asarray(time, float), dies
        self._end = float(self._time.max(initial=0.0))
        self._at = np.unique(self._time[~dies])
        left = np.searchsorted(np.sort(self._time), self._at, side="left")
        same = np.searchsorted(np.sort(self._time[~dies]), self._at, side="right")
        gone = np.diff(same, prepend=0)
        self._below = 1.0 - np.cumprod(1.0 - gone / np.maximum(len(time) - left, 1))
        place = np.searchsorted(self._at, self._time, side="right")
        self._from = np.r_[0.0, self._below][place]

    def drawn(self, rng: np.random.Generator) -> Array:
        """Return times of censoring (n,): those of censored records, and drawn ones of deaths."""
        u = self._from + (1.0 - self._from) * rng.random(len(self._time))
        drawn = np.r_[self._at, self._end][np.searchsorted(self._below, u)]
        return np.where(self._dies, np.maximum(drawn, self._time), self._time)


def cuts_of(ground: Ground, least: int) -> Array:
    """Return the ends (K, 3) of the first three quarters of the deaths of each stratum.

    A quarter of fewer than `least` deaths is joined with the next: its end is that of the one
    before, or 0.
    """
    out = np.zeros((len(ground.sizes), len(QUARTERS)))
    each = (by_stratum(v, ground.sizes) for v in (ground.times, ground.deaths))
    for k, (times, died) in enumerate(zip(*each, strict=True)):
        total, taken, last = np.cumsum(died), 0.0, 0.0
        for q, share in enumerate(QUARTERS if died.any() else ()):
            j = int(np.argmax(total >= share * total[-1] - 1e-9))
            if min(total[j] - taken, total[-1] - total[j]) >= least:
                taken, last = total[j], times[j]
            out[k, q] = last
    return out


@dataclass(frozen=True)
class Hazards:
    """Baseline hazard at each grid time (T,), and means of covariates over risk sets (T, p)."""

    steps: Array
    centres: Array

    def drawn(self, away: Array, deaths: Array, rng: np.random.Generator) -> Array:
        """Return hazards (L, T) by eq. (1), of coefficients `away` (L, p) of β̂."""
        law = rng.gamma(np.maximum(deaths, 1e-300), size=(len(away), len(deaths)))
        return self.steps * law / np.maximum(deaths, 1.0) * np.exp(-away @ self.centres.T)


@dataclass(frozen=True)
class Law:
    """Posterior of standardised coefficients, at G points of τ.

    Attributes
    ----------
    shares : (G,).
    mean, covariance : (G, p) and (G, p, p).
    tau : (G, p); (G, 0) without effects of sites.
    """

    shares: Array
    mean: Array
    covariance: Array
    tau: Array

    @classmethod
    def of(cls, top: Top) -> Law:
        """Return Laplace's distribution at a mode."""
        return cls(np.ones(1), top.gamma[None], top.covariance[None], np.zeros((1, 0)))

    @classmethod
    def of_sites(cls, found: BySite) -> Law:
        """Return the posterior with effects of sites."""
        return cls(found.shares, found.mean, found.covariance, found.tau)

    def drawn(self, number: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return L coefficients (L, p) and τ of each, (L, p) or (L, 0)."""
        at = rng.choice(len(self.shares), number, p=self.shares)
        roots = np.linalg.cholesky(self.covariance)[at]
        away = np.einsum("lij,lj->li", roots, rng.normal(size=self.mean[at].shape))
        return self.mean[at] + away, self.tau[at]


def checked(
    sites: Exact, ground: Ground, task: Task, law: Law, number: int, shared: Hazards | None
) -> tuple[Row, ...]:
    """Return a row for each check.

    Parameters
    ----------
    number : L.
    shared : baseline hazard of all sites; None where each has its own.
    """
    draws, tau = law.drawn(number, task.rng)
    hazards = np.zeros((number, 0))
    if shared is not None:
        hazards = shared.drawn(draws - law.shares @ law.mean, ground.deaths, task.rng)
    cuts = cuts_of(ground, max(sites.least, 1))
    told = sites.sum(
        replicate_survival, times=ground.times, sizes=ground.sizes, centre=ground.centre,
        scale=ground.scale, cuts=cuts, draws=draws, tau=tau, hazards=hazards,
        together=ground.together, least=sites.least, number=number,
    )  # fmt: skip
    return tuple(rows_of_checks(told, cuts, task.strata))


def rows_of_checks(told: Survived, cuts: Array, strata: tuple[str, ...]) -> list[Row]:
    """Return the rows of the test quantities of the header."""
    both = [told.seen[None], told.drawn]
    names = ["deaths"]
    found = [[v[..., 0].sum(axis=(1, 2)) for v in both]]
    for k, stratum in enumerate(strata or ("",)):
        alive = [_alive(v[:, k], told.entered[k]) for v in both]
        for q in range(len(QUARTERS)):
            if cuts[k, q] > 0 and (q == 0 or cuts[k, q] > cuts[k, q - 1]):
                names.append(f"alive at {cuts[k, q]:g}" + (f", {stratum}" if stratum else ""))
                found.append([a[:, q] for a in alive])
    names += ["mean square of the risk score of deaths", "risk score of early less late deaths"]
    found.append([_mean(v[..., 3], v[..., 0]) for v in both])
    early, late = ([_mean(v[:, :, h, 2], v[:, :, h, 0]) for v in both] for h in HALVES)
    found.append([a - b for a, b in zip(early, late, strict=True)])
    each = zip(names, found, strict=True)
    return [check_row(name, float(seen[0]), drawn) for name, (seen, drawn) in each]


def _mean(total: Array, number: Array) -> Array:
    """Return Σ total/Σ number over strata and quarters, (L,)."""
    return total.sum(axis=(1, 2)) / np.maximum(number.sum(axis=(1, 2)), 1.0)


def _alive(counts: Array, entered: Array) -> Array:
    """Return the shares alive (L, 4) at the end of each quarter by the life table."""
    died, censored = counts[..., 0], counts[..., 1]
    left = np.cumsum(died + censored, axis=1) - (died + censored)
    start = np.cumsum(entered)[:4] - left
    risk = np.maximum(start + (entered[1:] - censored) / 2, np.maximum(died, 1.0))
    return np.cumprod(1.0 - died / risk, axis=1)


STEPS = (replicate_survival,)
