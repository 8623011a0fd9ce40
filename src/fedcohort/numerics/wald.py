"""Wald's inference on coefficients that are the logarithms of ratios.

With β̂ and its standard error s, and q the normal quantile of (1 + level)/2:

    z = β̂/s,   p = P(|Z| > |z|),   interval β̂ ± q s, of the ratio exp(β̂ ± q s)            (1)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any

from fedcohort.arrays import Array


def ratio_rows(
    names: Iterable[str], coefficients: Array, standard_errors: Array, level: float, ratio: str
) -> list[dict[str, Any]]:
    """Return one row per covariate, eq. (1).

    Parameters
    ----------
    names : of the covariates, p of them.
    coefficients, standard_errors : (p,).
    level : coverage of the intervals.
    ratio : what exp(β) is, such as ``hazard_ratio``; its initials head the keys of its interval.

    Returns
    -------
    rows : ``low`` and ``high`` are of the coefficient, ``hr_low`` and ``hr_high`` of such a ratio.
    """
    quantile = NormalDist().inv_cdf(0.5 + level / 2)
    initials = "".join(word[0] for word in ratio.split("_"))
    rows: list[dict[str, Any]] = []
    for name, beta, se in zip(names, coefficients.tolist(), standard_errors.tolist(), strict=True):
        z, low, high = beta / se, beta - quantile * se, beta + quantile * se
        rows.append(
            {
                "covariate": name,
                "coefficient": beta,
                ratio: _exp(beta),
                "standard_error": se,
                "z": z,
                "p": math.erfc(abs(z) / math.sqrt(2)),
                "low": low,
                "high": high,
                f"{initials}_low": _exp(low),
                f"{initials}_high": _exp(high),
            }
        )
    return rows


def _exp(x: float) -> float:
    """Return eˣ; inf where a covariate's unit is so large that it overflows."""
    return math.exp(x) if x < 709.0 else math.inf
