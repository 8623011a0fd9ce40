"""Wald's inference on coefficients, which may be the logarithms of ratios.

With β̂ and its standard error s, and q the normal quantile of (1 + level)/2:

    z = β̂/s,   p = P(|Z| > |z|),   interval β̂ ± q s, of the ratio exp(β̂ ± q s)            (1)

Where a dispersion was estimated, Student's distribution stands in for the normal, and t for z.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any

from scipy.special import stdtr, stdtrit

from fedcohort.arrays import Array

#: The keys of a row of a coefficient that is no ratio.
PLAIN = ("covariate", "coefficient", "standard_error", "z", "t", "p", "low", "high")


def ratio_rows(
    names: Iterable[str],
    coefficients: Array,
    standard_errors: Array,
    level: float,
    ratio: str = "",
    freedom: float = math.inf,
) -> list[dict[str, Any]]:
    """Return one row per covariate, eq. (1).

    Parameters
    ----------
    names : of the p covariates.
    coefficients, standard_errors : (p,).
    level : coverage of the intervals.
    ratio : name of exp(β), such as ``hazard_ratio``; its initials begin the keys of its interval.
        Empty: rows have none.
    freedom : degrees of freedom of Student's distribution; infinite for the normal.

    Returns
    -------
    rows : ``low`` and ``high`` are of the coefficient, ``hr_low`` and ``hr_high`` of such a ratio.
    """
    normal = math.isinf(freedom)
    half = 0.5 + level / 2
    quantile = NormalDist().inv_cdf(half) if normal else float(stdtrit(freedom, half))
    initials = "".join(word[:1] for word in ratio.split("_"))
    rows: list[dict[str, Any]] = []
    for name, beta, se in zip(names, coefficients.tolist(), standard_errors.tolist(), strict=True):
        z = beta / se if se else math.copysign(math.inf, beta)
        p = math.erfc(abs(z) / math.sqrt(2)) if normal else 2 * float(stdtr(freedom, -abs(z)))
        low, high = beta - quantile * se, beta + quantile * se
        row = {"covariate": name, "coefficient": beta, ratio: _exp(beta), "standard_error": se}
        row |= {"z" if normal else "t": z, "p": p, "low": low, "high": high}
        row |= {f"{initials}_low": _exp(low), f"{initials}_high": _exp(high)}
        rows.append({key: v for key, v in row.items() if ratio or key in PLAIN})
    return rows


def credible_rows(
    names: Iterable[str],
    means: Array,
    scales: Array,
    level: float,
    ratio: str = "",
    freedom: float = math.inf,
) -> list[dict[str, Any]]:
    """Return one row per covariate of a posterior, normal or Student's.

    Parameters
    ----------
    means, scales : (p,), posterior means, and standard deviations or Student's scales.
    level, ratio, freedom : as in `ratio_rows`; `level` is the intervals' probability.

    Returns
    -------
    rows : as `ratio_rows`, without a test; ``standard_error`` is the posterior standard deviation
        (infinite on 2 degrees of freedom or fewer), and ``above_0`` the probability of a
        coefficient above 0.
    """
    normal = math.isinf(freedom)
    wider = 1.0 if normal else math.sqrt(freedom / (freedom - 2)) if freedom > 2 else math.inf
    rows = ratio_rows(names, means, scales, level, ratio, freedom)
    for row, mean, scale in zip(rows, means.tolist(), scales.tolist(), strict=True):
        z = mean / scale
        above = math.erfc(-z / math.sqrt(2)) / 2 if normal else float(stdtr(freedom, z))
        row |= {"standard_error": wider * scale, "above_0": above}
        for key in ("z", "t", "p"):
            row.pop(key, None)
    return rows


def _exp(x: float) -> float:
    """Return eˣ; inf where a covariate's unit is so large that it overflows."""
    return math.exp(x) if x < 709.0 else math.inf
