"""Bayesian regressions with effects of sites (partial pooling), by sums over sites.

Gelman, Carlin, Stern, Dunson, Vehtari, Rubin, "Bayesian Data Analysis", 3rd ed. 2013, chapters 5
and 15; Gelman, Bayesian Analysis 1, 2006 (priors of τ). In the notation of `program`, site k has
its own coefficients γ_k = γ + u_k of z = (1, (x − centre)/s): the intercept alone or all,

    u_k0 ~ N(0, τ₀²),   u_kj ~ N(0, τ₁²),   τ ~ |N(0, s_τ²)|                                (1)

in `bayes_linear` in residual standard deviations: u_k | σ² ~ N(0, σ² τ²). At each point of a grid
of τ (`training.site_effects`) a site integrates u_k out.

`bayes_linear`: what remains of its cross-products of (z, y) is one matrix. With the sum M, its
blocks M_zz, M_zy, M_yy, the prior's P = diag(0, 1/s², …), and D = Σ log|C|, the posterior given τ
is that of eqs. (2) and (3) of `program` with A = M_zz + P, and

    b = b₀ + (M_yy − M_yz A⁻¹ M_zy)/2,   a = a₀ + (n − 1)/2
    p(τ | y) ∝ p(τ) exp(−D/2) |A|^-½ b^-a                                                  (2)

It is exact, from one sum, but for the grid. `bayes_logistic`: expectation propagation at every
point at once. A row's f has the site's effect in it, so its cavity is that of (γ, u_k) jointly: the
site divides its own part out of the common posterior and puts all factors of its rows and the prior
of u_k in its place. p(τ | y) follows from the evidence, eq. (4) of `numerics.propagation`, of γ and
all u_k together.

Revealed, only as sums over all sites: the sums of `data.exact`; `Partaken` once, or twice if the
mean is far from the public point; `Likelihood` once, or `ProjectedBySite` every round. **Sums at
several τ come apart by site**: a site's part at τ is another function of its cross-products, so
G points give G equations for each entry of the K sites' matrices
(`tests/algorithms/test_bayes_by_site_disclosure.py` solves them). With effects of intercepts they
give each site's number of records and its means of covariates and outcome, as of `mixed`; with
effects of all coefficients each site's cross-products, as a gathered regression tells them
(`meta_analysis` with ``pool: multivariate``). Fewer points would not help where sites are few: two
do for intercepts. So sites with few records take no part, with effects of all coefficients also
sites whose own cross-products tell of few records (`site_steps`), and the fit says how many. With
`site_effects`, also each site's posterior mean and standard deviation of u_k.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaincc

from fedcohort.algorithms.bayes_glm.checks import Points, checked
from fedcohort.algorithms.bayes_glm.errors import OUTLYING, no_variance
from fedcohort.algorithms.bayes_glm.settings import BayesLinearSettings, BayesLogisticSettings
from fedcohort.algorithms.bayes_glm.site_model import BayesLinearBySite, BayesLogisticBySite
from fedcohort.algorithms.bayes_glm.site_steps import (
    Likelihood,
    Partaken,
    ProjectedBySite,
    integrate,
    own_effects,
    project_sites,
    take_part,
)
from fedcohort.arrays import Array
from fedcohort.data.classes import Kind
from fedcohort.data.exact import Exact, exact_sums
from fedcohort.numerics.mixture import increasing
from fedcohort.numerics.propagation import damped
from fedcohort.protocol import Federation, Row, Task
from fedcohort.training.linear.cross_products import Moments, moments, origin_of
from fedcohort.training.linear.newton import check_weight, unfinished
from fedcohort.training.settings import BySiteSettings
from fedcohort.training.site_effects import (
    Grid,
    Own,
    check_enough,
    note_of,
    tau_row,
    weights_of,
)

#: Points of τ with a smaller share of the posterior need not have converged.
SLIGHT = 1e-6
#: Name of a row of the parameters.
SHARE = "share of the variance, given covariates, between sites"


@dataclass(frozen=True)
class Ground:
    """What is known before effects are integrated out.

    Attributes
    ----------
    sites : those that answered.
    moments : of the sites that take part; `scale` (p,), standard deviations.
    grid : of τ.
    partaking, out : number of sites that take part, and of others with records.
    asked : arguments of every step.
    """

    sites: Exact
    moments: Moments
    scale: Array
    grid: Grid
    partaking: int
    out: int
    asked: Mapping[str, Any]

    @property
    def note(self) -> str:
        """Warnings about few sites and sites left out; may be empty."""
        return note_of(self.partaking, self.out, self.sites.least)

    def back(self) -> Array:
        """Return the matrix (k, k) from coefficients of z to those of (1, x)."""
        out = np.diag(np.r_[1.0, 1.0 / self.scale])
        out[0, 1:] = -self.moments.mean / self.scale
        return out


def survey(fed: Federation, config: BySiteSettings, task: Task, kind: Kind) -> Ground:
    """Return the sites that take part, their moments, and the grid of τ.

    Raises
    ------
    NothingToLearn : too few sites take part; and the errors of `moments`.
    """
    sites = exact_sums(fed, task, kind)
    slopes = config.by_site == "all"
    origin = origin_of(task)
    asked: dict[str, Any] = {"origin": origin, "slopes": slopes, "least": sites.least}
    told: list[Partaken] = []

    def ask(origin: Array, centre: Array) -> Partaken:
        told.append(
            sites.sum(take_part, origin=origin, centre=centre, slopes=slopes, least=sites.least)
        )
        check_enough(config.by_site, int(told[0].sites), int(told[0].others_out))
        return told[-1]

    m = moments(sites, task, kind, ask)
    covariates = len(m.mean) if slopes else 0
    grid = Grid.over(config.site_scale, m.rows, covariates)
    return Ground(
        sites, m, m.deviations(task.features), grid, int(told[0].sites), int(told[0].others_out),
        asked | {"spread": grid.spread},
    )  # fmt: skip


def linear_by_site(fed: Federation, config: BayesLinearSettings, task: Task) -> BayesLinearBySite:
    """Return the posterior of a linear regression with effects of sites, eq. (2).

    Raises
    ------
    DataError : no covariates.
    NothingToLearn : few sites or records, an outcome of one value, or a column singles out records.
    SingularInformation : a covariate is constant; it is named.
    SiteUnavailable : a site left during the fit.
    """
    next(fed.rounds(1))
    ground = survey(fed, config, task, "number")
    m, grid, k = ground.moments, ground.grid, 1 + len(ground.scale)
    asked: dict[str, Any] = {**ground.asked, "centre": m.centre, "scale": ground.scale}
    told: Likelihood = ground.sites.sum(integrate, **asked)
    inner = told.inner[:, :k, :k] + np.diag(np.r_[0.0, np.full(k - 1, config.prior_scale**-2.0)])
    inverse = np.linalg.inv(inner)
    mean = np.einsum("gij,gj->gi", inverse, told.inner[:, :k, k])
    rest = told.inner[:, k, k] - np.einsum("gi,gi->g", mean, told.inner[:, :k, k])
    shape = config.noise_shape + (m.rows - 1.0) / 2.0
    rate = config.noise_rate + np.maximum(rest, 0.0) / 2.0
    if rate.min() <= 0.0 or shape <= 1.0:
        raise no_variance()
    log_mass = grid.log_prior - 0.5 * (told.log_det + np.linalg.slogdet(inner)[1])
    log_mass -= shape * np.log(rate)
    shares = weights_of(log_mass)
    fed.record(residual_sd=math.sqrt(float(shares @ rate) / shape))
    variance = rate / (shape - 1.0)
    own = _own(ground, config, task, shares, mean, variance[:, None, None] * inverse, variance)
    points = Points(shares, mean, inverse, shape, rate, grid.spread)
    checks = _checks(ground, config, task, points)
    means, scales = _back(ground, mean, rate[:, None, None] / shape * inverse)
    means[:, 0] += m.middle
    rows = [
        row
        for kind in range(grid.kinds)
        for row in _rows_of_linear(grid, log_mass, kind, config.level, np.log(rate), shape)
    ]
    return BayesLinearBySite(
        **_common(ground, config, task, shares, means, scales, own, rows, checks),
        shape=shape,
        rate=float(shares @ rate),
        rates=rate,
    )


def logistic_by_site(
    fed: Federation, config: BayesLogisticSettings, task: Task
) -> BayesLogisticBySite:
    """Return the posterior of a logistic regression with effects of sites.

    Raises
    ------
    DataError : no covariates, or an outcome of more than two classes.
    NothingToLearn : few sites, one class only, a class of few records, columns that single out
        records, or few records that count for nearly all.
    SingularInformation : a covariate is constant; it is named.
    NotConverged : `max_rounds` is reached.
    SiteUnavailable : a site left during the fit.
    """
    ground = survey(fed, config, task, "class")
    m, grid = ground.moments, ground.grid
    prior = np.r_[config.intercept_scale, np.full(len(ground.scale), config.prior_scale)] ** -2.0
    asked = {**ground.asked, "centre": m.mean, "scale": ground.scale, "share": m.middle}
    reached = _propagate(ground, asked, prior, config)
    log_mass = grid.log_prior + reached.log_evidence
    shares = weights_of(log_mass)
    none = np.zeros(0)
    own = _own(ground, config, task, shares, reached.mean, reached.covariance, none)
    points = Points(shares, reached.mean, reached.covariance, 1.0, none, grid.spread)
    checks = _checks(ground, config, task, points)
    means, scales = _back(ground, reached.mean, reached.covariance)
    rows = [
        _row_of(
            kind,
            grid.mean(shares, kind),
            grid.interval(log_mass, kind, config.level),
            "log odds",
        )
        for kind in range(grid.kinds)
    ]
    top = float(log_mass.max())
    return BayesLogisticBySite(
        **_common(ground, config, task, shares, means, scales, own, rows, checks),
        log_evidence=top + math.log(float(np.exp(log_mass - top).sum())),
        rounds=reached.rounds,
    )


@dataclass(frozen=True)
class Reached:
    """The posteriors at the fixed points, of z.

    Attributes
    ----------
    mean, covariance : (G, k) and (G, k, k).
    log_evidence : (G,).
    rounds : number of rounds.
    """

    mean: Array
    covariance: Array
    log_evidence: Array
    rounds: int


def _propagate(
    ground: Ground, asked: Mapping[str, Any], prior: Array, config: BayesLogisticSettings
) -> Reached:
    """Return the fixed points of expectation propagation; see `program.propagate`.

    Parameters
    ----------
    prior : diagonal of P (k,).
    """
    k, g = len(prior), len(ground.grid.spread)
    mean, covariance = np.zeros((0, k)), np.zeros((0, k, k))
    damping, change = 1.0, math.inf

    def step() -> ProjectedBySite:
        return ground.sites.sum(
            project_sites, **asked, mean=mean, covariance=covariance, damping=damping
        )

    def posterior(told: ProjectedBySite) -> tuple[Array, Array]:
        spread = np.linalg.inv(told.inner[:, :k, :k] + np.diag(prior))
        spread = (spread + np.swapaxes(spread, 1, 2)) / 2
        return np.einsum("gij,gj->gi", spread, told.inner[:, :k, k]), spread

    mean, covariance = posterior(step())
    for round_ in ground.sites.fed.rounds(config.max_rounds):
        told = step()
        before, sd, last = mean, np.sqrt(np.einsum("gii->gi", covariance)), change
        mean, covariance = posterior(told)
        now = np.sqrt(np.einsum("gii->gi", covariance))
        fit = np.linalg.slogdet(covariance)[1] + np.log(prior).sum() - told.log_det
        fit += np.einsum("gi,gi->g", mean, told.inner[:, :k, k]) - told.inner[:, k, k]
        evidence = 0.5 * fit + told.evidence
        shares = weights_of(ground.grid.log_prior + evidence)
        moved = np.maximum(np.abs(mean - before) / sd, np.abs(now / sd - 1)).max(axis=1)
        change = float(moved[shares > SLIGHT / g].max()) / damping
        ground.sites.fed.record(log_evidence=float(shares @ evidence), change=change)
        if change < config.tol:
            near = shares > SLIGHT
            total, squares = told.squares[near].T
            check_weight(total, squares, ground.sites.least, OUTLYING)
            return Reached(mean, covariance, evidence, round_ + 1)
        damping = damped(damping, change > last)
    raise unfinished(change, config.max_rounds, config.tol, "Raise max_rounds.")


def _own(
    ground: Ground, config: BySiteSettings, task: Task, shares: Array, mean: Array,
    covariance: Array, residual: Array,
) -> Mapping[str, Own]:  # fmt: skip
    """Return each site's own effects where the settings ask for them; see `own_effects`."""
    if not config.site_effects:
        return {}
    m = ground.moments
    asked = {name: ground.asked[name] for name in ("origin", "slopes", "spread")}
    replies = ground.sites.fed.gather(
        own_effects,
        **asked,
        centre=m.centre if len(residual) else m.mean,
        scale=ground.scale,
        shares=shares,
        mean=mean,
        covariance=covariance,
        residual=residual,
        min_cell=task.min_cell,
    )
    return {
        name: Own(reply.mean.tolist(), reply.sd.tolist())
        for name, reply in replies.items()
        if reply.told
    }


def _back(ground: Ground, mean: Array, scale: Array) -> tuple[Array, Array]:
    """Return coefficients (G, k) and scale matrices (G, k, k) of (1, x) from those of z."""
    back = ground.back()
    return mean @ back.T, back @ scale @ back.T


def _common(
    ground: Ground, config: BySiteSettings, task: Task, shares: Array, means: Array, scales: Array,
    own: Mapping[str, Own], rows: list[Row], checks: tuple[Row, ...],
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of both models."""
    m, middle = ground.moments, shares @ means
    return {
        "features": task.features,
        "intercept": float(middle[0]),
        "coefficients": middle[1:],
        "rows": int(m.rows),
        "caution": ground.sites.caution,
        "covariance": np.einsum("g,gij->ij", shares, scales),
        "centre": m.mean,
        "scatter": m.xx / m.rows,
        "level": config.level,
        "shares": shares,
        "means": means,
        "scales": scales,
        "tau": ground.grid.spread,
        "taus": tuple(rows),
        "sites": ground.partaking,
        "note": ground.note,
        "own": own,
        "checks": checks,
    }


def _checks(ground: Ground, config: BySiteSettings, task: Task, points: Points) -> tuple[Row, ...]:
    """Return posterior predictive checks where the settings ask for them."""
    asked = {name: ground.asked[name] for name in ("origin", "slopes", "least")}
    return checked(
        ground.sites, ground.moments, ground.scale, points, config.predictive_draws, task.rng, asked
    )


def _rows_of_linear(
    grid: Grid, log_mass: Array, kind: int, level: float, log_rate: Array, shape: float
) -> list[Row]:
    """Return the rows of one τ in the unit of the outcome, and of its share of the variance."""
    ratio, mass = grid.marginal(log_mass, kind)
    rates = np.exp(grid.fine(log_rate, kind))
    sigma = np.exp(log_rate / 2.0 + math.lgamma(shape - 0.5) - math.lgamma(shape))
    mean = grid.mean(weights_of(log_mass), kind, sigma)

    def below(x: float) -> float:
        return float((mass * gammaincc(shape, rates * (ratio / x) ** 2)).sum())

    top = 10.0 * float(ratio[-1] * np.sqrt(rates.max() / shape))
    ends = [increasing(below, p, 0.0, top) for p in ((1.0 - level) / 2.0, (1.0 + level) / 2.0)]
    rows = [_row_of(kind, mean, ends, "unit of the outcome")]
    if not kind:
        squared = grid.spread[:, 0] ** 2
        low, high = (r**2 / (1.0 + r**2) for r in grid.interval(log_mass, kind, level))
        share = float(weights_of(log_mass) @ (squared / (1.0 + squared)))
        rows.append({"name": SHARE, "value": share, "low": low, "high": high})
    return rows


def _row_of(kind: int, mean: float, ends: Sequence[float], unit: str) -> Row:
    """Return the row of one τ."""
    return tau_row("slopes, per SD of the covariate" if kind else "intercepts", mean, ends, unit)
