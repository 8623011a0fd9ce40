"""Multi-view probabilistic PCA over sites, views missing at some of them (Fed-mv-PPCA).

Balelli, Silva, Lorenzi (2022), algorithm 1. With θ = (μ, W, σ²) of each site from a common
distribution θ̃, eq. (4-6) of `algorithms.multiview_ppca.maths.model`:

    in each round
        each site   θ_c ← EM for the maximum of p(t|θ) p(θ|θ̃), from the middle of θ̃
        coordinator θ̃ ← the most likely, given all θ_c:
            μ̃ = Σ μ_c / C_k,   σ_μ̃² = Σ (‖μ_c − μ̃‖² + tr Var(μ_c)) / (C_k d_k)               (1)
            W̃ and σ_W̃² likewise;  α̃, β̃ by `algorithms.multiview_ppca.maths.inverse_gamma`

over the C_k sites with view k, from sums over sites alone. Seven differences from the paper:

* Each site's patients have their own mean, x ~ N(m_c, I), m_c ~ N(0, τ² I), from the second round
  on, with

      τ² = Σ (‖m_c‖² + tr Var(m_c)) / (C q)                                                (2)

  If both groups of patients and missing views differ by site (the paper's G/K), the
  offsets of views from different sites do not match without it: the error of new rows was
  1.4 to 5 times that of one table, and is 1.0 times (`centres: false` is the paper). For a
  new patient of any site, mean and covariance of the m_c become part of μ and W.
* Each column has its own noise (`noise: view` is the paper). One noise per view does not fit
  standardised columns, and needs additional dimensions.
* Var(μ_c), the uncertainty of the site's posterior, is part of eq. (1), which makes it a step of EM
  for the hierarchy; so are ⟨ln σ²⟩ and ⟨1/σ²⟩ of α̃, β̃. With the modes alone (eq. 14 and 18;
  `spread: modes`) a small spread goes to 0, as if sites did not differ, whatever their rows. Either
  is kept above `FLOOR`.
* W is turned to a common frame before the sum, because it is known only up to a rotation; in the
  first round by columns that all sites have.
* EM starts at each site's own principal components: after 30 iterations from a random W it is far
  from the maximum, and averages of such W are farther.
* μ maximises the posterior of all views at once (`algorithms.multiview_ppca.maths.em`).
* A view of q columns or fewer uses all latent dimensions (`narrow`). With one less than it has
  columns, as in the paper, views of 2 and 1 columns displaced three axes of a model.

The middle of σ̃² is β̃/α̃, the harmonic mean of the sites' σ². With one site θ̃ is its own maximum.

Revealed: `Held`, `Moved`, `Criterion` of `steps`, as sums; `Deviation` of each site if requested.
For a view at only one site, that site's own parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.algorithms.multiview_ppca.maths.draws import roots
from fedcohort.algorithms.multiview_ppca.maths.inverse_gamma import most_likely
from fedcohort.algorithms.multiview_ppca.maths.model import Prior, Views
from fedcohort.algorithms.multiview_ppca.model import MultiView
from fedcohort.algorithms.multiview_ppca.private import fit_privately
from fedcohort.algorithms.multiview_ppca.settings import Settings
from fedcohort.algorithms.multiview_ppca.steps import (
    Moved,
    compare,
    criterion,
    first_round,
    look,
    next_round,
    tell_information,
)
from fedcohort.arrays import Array
from fedcohort.protocol import DataError, Federation, NothingToLearn, Row, Task, check_all_answered

#: τ² of the second round, the first with a prior; least τ².
WIDE, LEAST = 100.0, 1e-4
#: Least σ_μ̃² and σ_W̃², as a share of the mean square of the entries of W̃ in the view.
FLOOR = 1e-8


@dataclass(frozen=True)
class Course:
    """Result of the rounds for one q: the prior, its views, and whether it settled.

    ``centre`` (q,) and ``spread`` (q, q) are mean and covariance of the sites' m, eq. (2).
    """

    views: Views
    prior: Prior
    centre: Array
    spread: Array
    rounds: int
    settled: bool


def fit(fed: Federation, config: Settings, task: Task) -> MultiView:
    """Fit the hierarchy, for the given q or for each q in the range.

    Raises
    ------
    DataError : no features; a view that no site has; q as large as the number of columns.
    NothingToLearn : fewer rows than a latent space of q dimensions needs.
    SiteUnavailable : a site left between two sums.
    """
    names, of = numbered(task)
    if task.dp is not None:
        return _privately(fed, config, task, names, of)
    counts = fed.sum(look, of=of, least=_least(fed, task))
    fed = fed.only(fed.answered).awaiting()
    check(names, of, task, config, int(counts.rows), counts.entries, counts.sites, len(fed.sites))
    shared = counts.sites == int(counts.places)
    courses: dict[int, Course] = {}
    numbers: list[Row] = []
    for q in config.numbers:
        views = Views(of, q, config.narrow, config.noise == "column")
        courses[q] = course(fed, config, task, views, shared)
        if config.draws:
            numbers.append(waic(fed, config, courses[q], numbers, _least(fed, task)))
            fed.record(q=float(q), waic=numbers[-1]["waic"], cost=numbers[-1]["cost"])
    q = chosen(numbers) if config.q == "auto" else config.q
    best = courses[q]
    return MultiView(
        features=task.features, views=names, of=of, q=q, narrow=config.narrow,
        each=best.views.each, prior=best.prior, centre=best.centre, spread=best.spread,
        rows=int(counts.rows), empty=int(counts.empty), together=counts.together,
        sites=counts.sites, rounds=best.rounds, settled=best.settled, numbers=tuple(numbers),
        deviations=tuple(deviations(fed, names, best, task)) if config.compare else (),
    )  # fmt: skip


def _privately(
    fed: Federation, config: Settings, task: Task, names: tuple[str, ...], of: Array
) -> MultiView:
    """Return the model of a private fit."""
    views = Views(of, config.numbers[-1], config.narrow, config.noise == "column")
    _check_room(len(of), views.q)
    prior = fit_privately(fed, config, task, views)
    return MultiView(
        features=task.features, views=names, of=of, q=views.q, narrow=views.narrow,
        each=views.each, prior=prior, centre=np.zeros(views.q),
        spread=np.zeros((views.q, views.q)), rows=0, empty=0,
        together=np.ones((views.count, views.count), np.int64),
        sites=np.zeros(len(of), np.int64), settled=True,
        rounds=config.dp_rounds if config.dp_route == "differences" else 1,
    )  # fmt: skip


def numbered(task: Task) -> tuple[tuple[str, ...], Array]:
    """Return the names of the views, in column order, and the view number of each column (p,).

    Columns without a view form one view.

    Raises
    ------
    DataError : there are no features.
    """
    if not task.features:
        raise DataError("there are no columns to model; name at least two.")
    of = task.views or ("",) * len(task.features)
    names = tuple(dict.fromkeys(of))
    return names, np.array([names.index(v) for v in of], np.int64)


def check(
    names: tuple[str, ...], of: Array, task: Task, config: Settings, rows: int, entries: Array,
    held: Array, sites: int,
) -> None:  # fmt: skip
    """Refuse tables that cannot be fitted.

    Raises
    ------
    DataError, NothingToLearn : as `fit`.
    """
    least, p, q = (task.min_cell if sites > 1 else 1), len(of), config.numbers[-1]
    for k, name in enumerate(names):
        if not held[of == k].any():
            raise DataError(
                f"no site has {least} rows or more with view {name!r}, "
                f"{int((of == k).sum())} columns. Leave them out of the dictionary, or add a site "
                f"that has them."
            )
    for name, n in zip(task.features, entries, strict=True):
        if n < max(least, 2):
            raise DataError(
                f"column {name!r} has fewer than {max(least, 2)} values over all sites. Leave it "
                f"out, or add rows."
            )
    _check_room(p, q)
    if rows < 2 * (q + 1):
        raise NothingToLearn(
            f"there are {rows} rows, too few for a latent space of {q} dimensions, which needs "
            f"{2 * (q + 1)}. Give a smaller q, or add sites."
        )


def _check_room(p: int, q: int) -> None:
    if q >= p:
        raise DataError(
            f"q is {q}, and there are {p} columns: a latent space has fewer dimensions. Give a "
            f"smaller q."
        )


def course(fed: Federation, config: Settings, task: Task, views: Views, shared: Array) -> Course:
    """Run the rounds for one q."""
    p, uncertain = len(views.of), config.spread == "posterior" and len(fed.sites) > 1
    frame = task.rng.standard_normal((p, views.q))
    start = config.start if views.free.all() or config.start == "random" else "common"
    prior, settled, r = Prior.flat(views), False, 0
    wait, least = 2 * (config.numbers[-1] + 1), _least(fed, task)
    sums: Moved | None = None
    for r in fed.rounds(config.rounds if len(fed.sites) > 1 else 1):
        if r == 0:
            sums = fed.sum(
                first_round, of=views.of, q=views.q, narrow=views.narrow, each=views.each,
                frame=frame, shared=shared if shared.any() else np.ones(p, bool), start=start,
                epochs=_first_epochs(fed, config), uncertain=uncertain, wait=wait, least=least,
            )  # fmt: skip
            _check_company(fed, sums, wait)
        else:
            sums = fed.sum(
                next_round, **_given(views, prior), epochs=config.internal_epochs,
                uncertain=uncertain, least=least,
            )  # fmt: skip
        check_all_answered(fed)
        before, prior = prior, updated(prior, sums, views)
        if config.centres and len(fed.sites) > 1:
            prior = replace(prior, centre_variance=centre_variance(sums, views.q) if r else WIDE)
        moved = _moved(before, prior) if r else np.inf
        fed.record(
            q=float(views.q), log_likelihood=float(sums.log_likelihood), **_spreads(prior, views)
        )
        if settled := moved < config.tol:
            break
    assert sums is not None
    places = max(int(sums.places), 1)
    centre = sums.centres / places
    spread = sums.spread / places - np.outer(centre, centre)
    return Course(views, prior, centre, spread, r + 1, settled or len(fed.sites) == 1)


def _least(fed: Federation, task: Task) -> int:
    """Return the fewest rows that a site tells about."""
    return task.min_cell if len(fed.sites) > 1 else 1


def _check_company(fed: Federation, sums: Moved, wait: int) -> None:
    """Refuse to continue with one site of several: later changes would be the other sites' own.

    Raises
    ------
    NothingToLearn : at most one site has enough rows for the first round.
    """
    if len(fed.sites) > 1 and int(sums.places) < 2:
        raise NothingToLearn(
            f"{int(sums.places)} of {len(fed.sites)} sites have {wait} rows or more; the first "
            f"round needs two such sites. Give a smaller q, or add sites."
        )


def centre_variance(sums: Moved, q: int) -> float:
    """Return τ², eq. (2), at least `LEAST`."""
    return max(float(np.trace(sums.spread)) / (max(int(sums.places), 1) * q), LEAST)


def _first_epochs(fed: Federation, config: Settings) -> int:
    """Return the iterations of the first round; of all rounds if there is one site."""
    more = config.rounds * config.internal_epochs
    return config.first_epochs + (more if len(fed.sites) == 1 else 0)


def _given(views: Views, prior: Prior) -> dict[str, Any]:
    """Return the arguments of steps for a prior."""
    return {
        "of": views.of, "narrow": views.narrow, "each": views.each, "mu": prior.mu, "w": prior.w,
        "variance": prior.variance, "mu_variance": prior.mu_variance,
        "w_variance": prior.w_variance, "alpha": prior.alpha, "beta": prior.beta,
        "centre_variance": prior.centre_variance,
    }  # fmt: skip


def updated(prior: Prior, sums: Moved, views: Views) -> Prior:
    """Return the most likely common distribution, eq. (1), from sums about the prior's middle.

    A view without sums stays as it is.

    Raises
    ------
    NothingToLearn : a view without a prior has no sums.
    """
    c = sums.sites.astype(float)
    if (missing := (c == 0) & np.isinf(prior.w_variance)).any():
        raise NothingToLearn(
            f"{int(missing.sum())} views are only at sites with fewer than {2 * (views.q + 1)} "
            f"rows, too few to begin with. Give a smaller q, or add sites."
        )
    if (alike := ~(sums.noises > 0) & (prior.alpha < 0)).any():
        columns = int(np.isin(views.noise, np.flatnonzero(alike)).sum())
        raise NothingToLearn(
            f"{columns} columns do not vary at any site, so their noise is unknown. Leave them out "
            f"of the dictionary."
        )
    seen = c > 0
    c = np.where(seen, c, 1.0)
    mu, w = sums.mu / c[views.of], sums.w / c[views.of][:, None]
    size = np.maximum(views.widths * views.used, 1)
    middle = prior.w + w
    floor = FLOOR * views.total(np.square(middle)) / size
    mu_variance = (sums.mu_squares / c - views.total(np.square(mu))) / views.widths
    w_variance = (sums.w_squares / c - views.total(np.square(w))) / size
    heard = sums.noises > 0
    n = np.where(heard, sums.noises, 1).astype(float)
    alpha, beta = most_likely(
        np.where(heard, sums.log_variance / n, 0.0), np.where(heard, sums.precision / n, 1.0)
    )
    kept = seen[views.of]
    return Prior(
        mu=np.where(kept, prior.mu + mu, prior.mu),
        w=np.where(kept[:, None], middle, prior.w),
        mu_variance=np.where(seen, np.maximum(mu_variance, floor), prior.mu_variance),
        w_variance=np.where(seen, np.maximum(w_variance, floor), prior.w_variance),
        alpha=np.where(heard, alpha, prior.alpha),
        beta=np.where(heard, beta, prior.beta),
    )


def _moved(before: Prior, after: Prior) -> float:
    """Return the change of the middle, relative to the root mean square of W̃."""
    size = float(np.sqrt(np.square(after.w).mean()))
    off = max(
        float(np.sqrt(np.square(after.w - before.w).mean())),
        float(np.sqrt(np.square(after.mu - before.mu).mean())),
    )
    return off / size if size > 0 else 0.0


def _spreads(prior: Prior, views: Views) -> dict[str, float]:
    """Return the values of the paper's figure 7 for one round, by view number."""
    return {
        f"{name}_{k + 1}": float(value)
        for k in range(views.count)
        for name, value in (
            ("sd_mu", np.sqrt(prior.mu_variance[k])),
            ("sd_w", np.sqrt(prior.w_variance[k])),
            ("sigma", np.sqrt(prior.variance[views.noise[views.of == k]].mean())),
        )
    }


def waic(
    fed: Federation, config: Settings, found: Course, before: list[Row], least: int
) -> Row:  # fmt: skip
    """Return WAIC and its parts after the rounds for one q, over the rows that sites tell about.

    With the standard errors of its differences from earlier q, by q.
    """
    given: dict[str, Any] = {
        **_given(found.views, found.prior), "epochs": config.internal_epochs, "least": least
    }  # fmt: skip
    known = fed.sum(tell_information, **given).precision
    check_all_answered(fed)
    sums = fed.sum(criterion, **given, shared=roots(known, found.views), draws=config.draws)
    check_all_answered(fed)
    fit, cost, n = float(sums.fit), float(sums.cost), float(sums.rows)
    off = np.array([(fit - cost) - (row["fit"] - row["cost"]) for row in before])
    errors = 2.0 * np.sqrt(np.maximum(sums.squares - off**2 / n, 0.0))
    return {
        "q": found.views.q, "waic": -2.0 * (fit - cost), "fit": fit, "cost": cost,
        "errors": {row["q"]: float(e) for row, e in zip(before, errors, strict=True)},
    }  # fmt: skip


def chosen(numbers: list[Row]) -> int:
    """Return the smallest q whose WAIC is within two standard errors of the least one."""
    best = min(numbers, key=lambda row: row["waic"])

    def error(row: Row) -> float:
        first, later = sorted((row, best), key=lambda one: one["q"])
        return float(later["errors"].get(first["q"], 0.0))

    return int(min(row["q"] for row in numbers if row["waic"] <= best["waic"] + 2.0 * error(row)))


def deviations(fed: Federation, names: tuple[str, ...], found: Course, task: Task) -> list[Row]:
    """Return a row for each site and view, and one for its patients, from `compare`."""
    least = _least(fed, task)
    given = {k: v for k, v in _given(found.views, found.prior).items() if k in KNOWN}
    rows: list[Row] = []
    for site, reply in fed.gather(compare, **given, least=least).items():
        size = float(np.linalg.norm(reply.latent))
        rows.append({"site": site, "what": "patients", "shift": size,
                     "chi2": float(reply.latent_chi2), "df": found.views.q})  # fmt: skip
        columns = (reply.shift, reply.chi2, reply.df, reply.noise)
        rows += [
            {"site": site, "what": name, "shift": float(shift), "chi2": float(chi2),
             "df": int(df), "noise": float(noise)}
            for name, shift, chi2, df, noise in zip(names, *columns, strict=True)
            if df > 0
        ]  # fmt: skip
    return rows


#: Arguments of `compare`.
KNOWN = ("of", "narrow", "each", "mu", "w", "variance")
