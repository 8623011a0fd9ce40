"""Pooled coefficients, the sites' own coefficients, and predictions for new patients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtri, stdtr

from fedcohort.arrays import Array
from fedcohort.metrics.heterogeneity import Pooled
from fedcohort.numerics.families import Family
from fedcohort.numerics.parameters import predicted
from fedcohort.protocol import Fitted, Row

#: Meaning of exp(β), by family and link; Cox's model has the link log.
RATIOS = {
    ("cox", "log"): "hazard_ratio",
    ("binomial", "logit"): "odds_ratio",
    ("poisson", "log"): "rate_ratio",
    ("gamma", "log"): "mean_ratio",
    ("gaussian", "log"): "mean_ratio",
}


@dataclass(frozen=True, eq=False)
class MetaModel(Fitted):
    """Coefficients of each site's own regression, pooled.

    Attributes
    ----------
    features : names of the columns of x, in order.
    offset : the last column is an offset, without a coefficient.
    family, link : of the sites' models; ``cox`` and ``log`` for survival.
    pool : random, fixed or multivariate.
    origin : (p,), origin of the covariates; the intercept is the value there.
    names : of the sites that gave coefficients, (m,).
    estimates, errors : (m, k), their coefficients and standard errors, the intercept first; Cox's
        model has none.
    pooled : (k,), in the order of the coefficients.
    covariance : (k, k) of the pooled coefficients; diagonal unless `pool` is multivariate.
    left_out : why the other sites gave no coefficients, by site.
    level : coverage of the intervals.
    """

    features: tuple[str, ...]
    offset: bool
    family: str
    link: str
    pool: str
    origin: Array
    names: tuple[str, ...]
    estimates: Array
    errors: Array
    pooled: tuple[Pooled, ...]
    covariance: Array
    left_out: Mapping[str, str]
    level: float

    @property
    def first(self) -> int:
        """Index of the first covariate's coefficient: 1, or 0 in Cox's model (no intercept)."""
        return 0 if self.family == "cox" else 1

    @property
    def covariates(self) -> tuple[str, ...]:
        """Names of the covariates (p,)."""
        return self.features[: len(self.origin)]

    @property
    def coefficients(self) -> Array:
        """The pooled β (p,)."""
        return np.array([one.mean for one in self.pooled[self.first :]])

    @property
    def standard_errors(self) -> Array:
        """Standard errors of the pooled β (p,)."""
        return np.array([one.error for one in self.pooled[self.first :]])

    @property
    def intercept(self) -> Pooled | None:
        """The pooled linear predictor at the origin; None for Cox's model."""
        return self.pooled[0] if self.first else None

    @property
    def ratio(self) -> str:
        """Meaning of exp(β); empty if it is no ratio."""
        return RATIOS.get((self.family, self.link), "")

    @property
    def heterogeneity(self) -> tuple[float, int, float]:
        """Q, degrees of freedom and p of the test that all coefficients are equal at all sites.

        Only ``pool="multivariate"`` has the necessary covariances; otherwise nan, 0, nan.
        """
        if self.pool != "multivariate":
            return math.nan, 0, math.nan
        q, df = self.pooled[0].q, self.pooled[0].df
        return q, df, self.pooled[0].p

    @property
    def sites(self) -> list[Row]:
        """One row for each site and covariate, for a forest plot; intervals are Wald's."""
        half = float(ndtri((1.0 + self.level) / 2.0)) * self.errors
        rows: list[Row] = []
        for j, covariate in enumerate(self.covariates, self.first):
            for i, site in enumerate(self.names):
                value, reach = float(self.estimates[i, j]), float(half[i, j])
                row = {"covariate": covariate, "site": site, "coefficient": value}
                row |= {"standard_error": float(self.errors[i, j])}
                rows.append(row | {"low": value - reach, "high": value + reach})
        return rows

    def predict(self, x: Array) -> Array:
        """Return the expected outcome (n,) of rows x.

        For Cox's model it is the log hazard ratio to a patient at the origin.
        """
        x = np.asarray(x, float)
        p = len(self.origin)
        eta = (x[:, :p] - self.origin) @ self.coefficients
        if self.offset:
            eta = eta + x[:, p]
        if self.intercept is None:
            return eta
        return Family(self.family, self.link).inverse(eta + self.intercept.mean)

    def summary(self) -> list[Row]:
        """Return one row per covariate, pooled over the sites; nan with too few sites.

        ``low``, ``high`` and ``p`` are Hartung and Knapp's for random effects, normal for fixed
        ones. ``prediction_low`` and ``prediction_high`` bound the coefficient of a new site.
        """
        rows: list[Row] = []
        for name, one in zip(self.covariates, self.pooled[self.first :], strict=True):
            row: Row = {"covariate": name, "coefficient": one.mean}
            ends = {"low": one.low, "high": one.high}
            if self.ratio:
                initials = "".join(word[0] for word in self.ratio.split("_"))
                row[self.ratio] = _exp(one.mean)
                ends |= {f"{initials}_{end}": _exp(value) for end, value in list(ends.items())}
            row |= {"standard_error": one.error, "p": self._p(one), **ends}
            row |= {"prediction_low": one.prediction_low, "prediction_high": one.prediction_high}
            row |= {"tau2": one.tau2, "i2": one.i2, "q": one.q, "sites": len(self.names)}
            rows.append(row)
        return rows

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept at 0 and at the origin, its heterogeneity, and the sites left out.

        The intercept at the origin is pooled and has a test; that at 0 follows from all
        coefficients. Cox's model has no intercept, and its baseline is not pooled.
        """
        rows = self._intercepts()
        statistic, df, p = self.heterogeneity
        if df:
            note = f"χ² on {df} degrees of freedom, of all coefficients together"
            rows.append({"name": "Q, sites alike", "value": statistic, "p": p, "note": note})
        sites: dict[str, list[str]] = {}
        for site, reason in self.left_out.items():
            sites.setdefault(reason, []).append(site)
        if sites:
            note = "; ".join(f"{', '.join(names)}: {why}" for why, names in sites.items())
            rows.append({"name": "sites left out", "value": math.nan, "note": note})
        return rows

    def _intercepts(self) -> list[Row]:
        one = self.intercept
        if one is None:
            note = (
                "not pooled, so no survival; exp(sum of coefficient × covariate) is the hazard "
                "ratio to a patient whose covariates are 0"
            )
            return [{"name": "baseline hazard", "value": math.nan, "note": note}]
        tested: Row = {"standard_error": one.error, "p": self._p(one), "low": one.low}
        tested["high"] = one.high
        note = predicted(self.link, offset=self.offset)
        first: Row = {"name": "intercept", "value": one.mean, "note": note}
        rows = [first | tested]
        if self.origin.any():
            first["value"] -= float(self.origin @ self.coefficients)
            some = zip(self.covariates, self.origin.tolist(), strict=True)
            at = ", ".join(f"{name} = {value:g}" for name, value in some if value)
            pooled: Row = {"name": "intercept at the origin", "value": one.mean, **tested}
            rows = [first, pooled | {"note": f"f at {at}, and 0 otherwise; this one is pooled"}]
        if self.pool == "random":
            rows.append({"name": "τ² of the intercept", "value": one.tau2})
            rows.append({"name": "I² of the intercept", "value": one.i2})
        return rows

    def _p(self, one: Pooled) -> float:
        """Return the p-value of a coefficient of 0."""
        z = abs(one.mean) / one.error
        if self.pool == "random":
            return 2.0 * float(stdtr(len(self.names) - 1, -z))
        return float(chdtrc(1, z**2))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        return {
            "origin": self.origin,
            "estimates": self.estimates,
            "errors": self.errors,
            "pooled": np.array(self.pooled, float),
            "covariance": self.covariance,
        }

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        return {
            "features": list(self.features),
            "offset": self.offset,
            "family": self.family,
            "link": self.link,
            "pool": self.pool,
            "names": list(self.names),
            "left_out": dict(self.left_out),
            "level": self.level,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> MetaModel:
        """Build the model from saved arrays and values."""
        pooled = (Pooled(*row) for row in arrays["pooled"].tolist())
        return cls(
            features=tuple(meta["features"]),
            offset=bool(meta["offset"]),
            family=str(meta["family"]),
            link=str(meta["link"]),
            pool=str(meta["pool"]),
            origin=arrays["origin"],
            names=tuple(meta["names"]),
            estimates=arrays["estimates"],
            errors=arrays["errors"],
            pooled=tuple(one._replace(df=int(one.df)) for one in pooled),
            covariance=arrays["covariance"],
            left_out=dict(meta["left_out"]),
            level=float(meta["level"]),
        )


def _exp(x: float) -> float:
    return math.exp(x) if not x > 709.0 else math.inf
