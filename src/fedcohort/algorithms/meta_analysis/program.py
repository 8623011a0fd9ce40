"""Meta-analysis: each site fits its own regression, and the coefficients are pooled.

Site j returns its own maximum-likelihood β_j and standard errors s_j, once. Ways of pooling:

    random        each coefficient separately, DerSimonian & Laird's model (Control. Clin. Trials 7,
                  1986) with τ² by REML and the interval of Hartung & Knapp: eqs. (1) to (4) of
                  `metrics.heterogeneity`
    fixed         the same with τ² = 0 and normal intervals
    multivariate  all coefficients together, with the sites' covariances C_j (Becker & Wu, Stat.
                  Sci. 22, 2007):
                  β = C Σ_j C_j⁻¹ β_j,   C = (Σ_j C_j⁻¹)⁻¹                                 (1)
                  Q = Σ_j (β_j − β)ᵀ C_j⁻¹ (β_j − β)                                       (2)
                  Q is χ² with (m − 1) k degrees of freedom if β is the same at the m sites

The sites' models are generalised linear (`numerics.families`) or Cox's with the site's own baseline
hazard (`numerics.coxph`).

Revealed: each site's coefficients and standard errors, not rounded, and with "multivariate" their
covariance. These 2 k, or k (k + 3)/2, numbers are too few to solve for the n (p + 1) values of the
records. A site whose coefficients could be those of few records returns only the reason and the
covariates concerned: fewer than `min_cell` records more than coefficients; fewer than `min_cell`
events, records of a class, or counts above 0; a covariate in which fewer than `min_cell` records
differ from its most common value; the rules of `cells`. So does a site with collinear covariates,
separation, or a fit that does not converge. Sites learn the origin of the covariates, which is
public.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import chdtrc, ndtri

from fedcohort.algorithms.meta_analysis import cells, sitefit
from fedcohort.algorithms.meta_analysis.model import MetaModel
from fedcohort.algorithms.meta_analysis.settings import MetaSettings
from fedcohort.algorithms.meta_analysis.steps import OwnFit, own_fit
from fedcohort.arrays import Array
from fedcohort.data.exact import check_covariates
from fedcohort.data.words import first_of
from fedcohort.metrics.heterogeneity import Pooled, fixed_effect, random_effects
from fedcohort.numerics.collinearity import quoted
from fedcohort.numerics.families import FAMILIES, USUAL
from fedcohort.protocol import DataError, Federation, NothingToLearn, SettingError, Task


def fit(fed: Federation, config: MetaSettings, task: Task) -> MetaModel:
    """Pool the coefficients of all sites that answer.

    Raises
    ------
    DataError : no covariates, an outcome that the family excludes, or fewer than two sites with
        coefficients (one is enough for a single site with fixed effects).
    SettingError : the family does not go with the kind of task.
    """
    covariates = task.features[:-1] if task.offset else task.features
    check_covariates(task)
    family, link = model_of(config, task)
    origin = np.zeros(len(task.features)) if task.origin is None else task.origin
    origin = np.asarray(origin[: len(covariates)], float)
    several = len(fed.sites) > 1
    least = max(task.min_cell, 1) if several else 1
    replies: Mapping[str, OwnFit] = {}
    for _ in fed.rounds(1):
        replies = fed.gather(
            own_fit,
            family=family,
            link=link,
            ties=config.ties,
            origin=origin,
            offset=task.offset,
            full=config.pool == "multivariate",
            least=least,
            tol=config.tol,
            max_rounds=config.max_rounds,
        )
        silent = sum(1 for one in replies.values() if one.reason)
        fed.record(sites=float(len(replies) - silent), left_out=float(silent))
    if bad := [site for site, reply in replies.items() if reply.wrong]:
        raise DataError(
            f"the outcome has values that family {family!r} cannot have, at {quoted(bad)}. "
            f"Correct them, or choose another family."
        )
    given = {site: one for site, one in replies.items() if not one.reason}
    left_out = {
        site: why(one, family, covariates, least) for site, one in replies.items() if one.reason
    }
    needed = 2 if several or config.pool == "random" else 1
    if len(given) < needed:
        raise NothingToLearn(_too_few(len(given), needed, left_out))
    return _pooled(given, left_out, family, link, origin, config, task)


def model_of(config: MetaSettings, task: Task) -> tuple[str, str]:
    """Return the family and the link of the sites' models.

    Raises
    ------
    SettingError : a yes/no outcome with another family than binomial, or the reverse; a family for
        survival; or a link that does not go with the family.
    """
    if task.kind == "survival":
        if config.family != "auto" or config.link != "auto":
            raise SettingError(
                "family and link of method 'meta_analysis' are not for survival: sites fit Cox's "
                "model. Leave them out."
            )
        return "cox", "log"
    usual = "binomial" if task.kind == "classification" else USUAL.get(task.outcome)
    family = (usual or "gaussian") if config.family == "auto" else config.family
    if (family == "binomial") != (task.kind == "classification"):
        others = "binomial" if task.kind == "classification" else "gaussian, poisson or gamma"
        raise SettingError(
            f"family {family!r} of method 'meta_analysis' does not go with {task.kind}; give "
            f"{others}, or auto."
        )
    link = FAMILIES[family][0] if config.link == "auto" else config.link
    if link not in FAMILIES[family]:
        raise SettingError(
            f"link {link!r} of method 'meta_analysis' does not go with family {family!r}; give "
            f"{', '.join(FAMILIES[family])}, or auto."
        )
    return family, link


def why(reply: OwnFit, family: str, names: tuple[str, ...], least: int) -> str:
    """Return why a site gave no coefficients, and what to do."""
    blame = quoted([n for n, b in zip(names, reply.blame.tolist(), strict=True) if b])
    also = " and the outcome" if reply.blame.sum() == 1 else ""
    kinds = {"cox": "events", "binomial": "records of one class", "poisson": "counts above 0"}
    return {
        sitefit.FEW_RECORDS: f"fewer than {least} records more than coefficients (min_cell); "
        f"use fewer covariates, or join the site with another",
        sitefit.FEW_EVENTS: f"fewer than {least} {kinds.get(family, 'records')} (min_cell); "
        f"join the site with another",
        sitefit.RARE: f"fewer than {least} records differ from the most common value of "
        f"{blame} (min_cell); drop it, or join rare levels (pool_levels)",
        sitefit.COLLINEAR: f"{blame or 'covariates'}: constant or collinear there; drop one",
        sitefit.SEPARATED: f"{blame or 'covariates'}: separation, it predicts the outcome without "
        f"error there; drop it, or join rare levels (pool_levels)",
        sitefit.ENDLESS: f"its fit did not converge, mostly along {blame or 'the intercept'}; "
        f"raise max_rounds, or drop it",
        sitefit.NO_SPREAD: "the outcome has one value there, or the covariates predict it without "
        "error, so there are no standard errors; check its column",
        cells.SMALL_CELL: f"fewer than {least} {kinds.get(family, 'records')} have one value of "
        f"{blame} (min_cell), and coefficients would reveal how many; drop it, or join the site "
        f"with another",
        cells.ALONE: f"one record is so far from the others in {blame or 'the outcome'} that "
        f"coefficients would reveal it; correct it, cut the column to a limit (winsorise), or "
        f"drop it",
        cells.NEAR: f"{blame}{also}: one is predicted by the others except in fewer than {least} "
        f"records (min_cell), and coefficients would reveal those; drop one",
        cells.SAME: f"fewer than {least} records differ from the most common value of the outcome "
        f"(min_cell), and coefficients would reveal them; join the site with another",
        cells.HEAVY: f"weights or offset let fewer than {least} records (min_cell) count for "
        f"nearly all, or differ for so few; leave them out, or join the site with another",
    }[int(reply.reason)]


def _too_few(n: int, needed: int, left_out: Mapping[str, str]) -> str:
    sites: dict[str, list[str]] = {}
    for site, reason in left_out.items():
        sites.setdefault(reason, []).append(site)
    reasons = "; ".join(f"{first_of(names)}: {reason}" for reason, names in sites.items())
    what = "no site gives" if not n else f"{n} site gives"
    advice = (
        f" Left out are {reasons}." if reasons else " Bring more sites, or take 'glm' or 'cox'."
    )
    return f"{what} coefficients, and pooling needs {needed} or more.{advice}"


def _pooled(
    given: Mapping[str, OwnFit],
    left_out: Mapping[str, str],
    family: str,
    link: str,
    origin: Array,
    config: MetaSettings,
    task: Task,
) -> MetaModel:
    estimates = np.array([one.coefficients for one in given.values()])
    errors = np.array([one.errors for one in given.values()])
    if config.pool == "multivariate":
        pooled, covariance = together(estimates, [g.covariance for g in given.values()], config)
    else:
        each = random_effects if config.pool == "random" else fixed_effect
        columns = zip(estimates.T, errors.T, strict=True)
        pooled = tuple(each(values, spread, config.level) for values, spread in columns)
        covariance = np.diag([one.error**2 for one in pooled])
    return MetaModel(
        features=task.features,
        offset=task.offset,
        family=family,
        link=link,
        pool=config.pool,
        origin=origin,
        names=tuple(given),
        estimates=estimates,
        errors=errors,
        pooled=pooled,
        covariance=covariance,
        left_out=left_out,
        level=config.level,
    )


def together(
    estimates: Array, covariances: list[Array], config: MetaSettings
) -> tuple[tuple[Pooled, ...], Array]:
    """Return eqs. (1), (2): each coefficient, with the common Q, df and p, and C (k, k).

    Parameters
    ----------
    estimates : (m, k).
    covariances : m of (k, k).
    """
    weights = [np.linalg.inv(one) for one in covariances]
    covariance = np.linalg.inv(np.sum(weights, axis=0))
    paired = list(zip(weights, estimates, strict=True))
    mean = covariance @ np.sum([w @ b for w, b in paired], axis=0)
    q = float(sum((b - mean) @ w @ (b - mean) for w, b in paired))
    df = (len(estimates) - 1) * len(mean)
    p = float(chdtrc(df, q)) if df else np.nan
    i2 = max(0.0, 1.0 - df / q) if q > 0 and df else 0.0
    error = np.sqrt(np.diag(covariance))
    half = float(ndtri((1.0 + config.level) / 2.0)) * error
    pooled = tuple(
        Pooled(m, m - h, m + h, np.nan, np.nan, 0.0, q, df, p, i2, e)
        for m, h, e in zip(mean.tolist(), half.tolist(), error.tolist(), strict=True)
    )
    return pooled, covariance
