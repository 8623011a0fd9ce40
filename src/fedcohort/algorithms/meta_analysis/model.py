"""Pooled coefficients with the sites' own, and the values that they give new patients."""

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

#: What exp(β) is, by family and link; Cox's model has the link log.
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
    offset : whether the last of them is an offset, which has no coefficient.
    family, link : of the sites' models; ``cox`` and ``log`` of survival.
    pool : random, fixed or multivariate.
    origin : (p,), where covariates are counted from: the intercept is the value there.
    names : of the sites that answered, (m,).
    estimates, errors : (m, k), their coefficients with standard errors; the intercept first, but
        for Cox.
    pooled : (k,), in the order of the coefficients.
    covariance : (k, k) of the pooled ones, all together where `pool` is multivariate; else their
        squared standard errors on the diagonal.
    left_out : why the other sites gave nothing, by site.
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
        """Where the covariates' coefficients begin: 0 of Cox's model, which has no intercept."""
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
        """The pooled linear predictor at the origin; Cox's model has none."""
        return self.pooled[0] if self.first else None

    @property
    def ratio(self) -> str:
        """What exp(β) is; empty where it is no ratio."""
        return RATIOS.get((self.family, self.link), "")

    @property
    def heterogeneity(self) -> tuple[float, int, float]:
        """Whether the sites' coefficients are alike, all together: Q, degrees of freedom, p.

        That of ``pool="multivariate"`` rests on all covariances; else the Q of the covariates are
        not added up, since they depend on each other: nan.
        """
        if self.pool != "multivariate":
            return math.nan, 0, math.nan
        q, df = self.pooled[0].q, self.pooled[0].df
        return q, df, self.pooled[0].p

    @property
    def sites(self) -> list[Row]:
        """One row for each site and covariate, as a forest plot has them; intervals are Wald's."""
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
        """Return g⁻¹ of the pooled linear predictor of rows x: (n,).

        Of Cox's model the log hazard ratio to a patient at the origin.
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
        """Return one row per covariate, pooled over the sites; nan where sites are too few.

        ``low``, ``high`` and ``p`` are by Hartung and Knapp for random effects, by the normal
        distribution for fixed ones; ``prediction_low`` and ``prediction_high`` tell where the
        coefficient of a new site is expected.
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
        """Return the intercept at 0 and at the origin, how it varies, and the sites left out.

        The pooled intercept, which has a test, is that at the origin; at 0 it follows from all
        coefficients. Cox's model has none, and its baseline is not pooled.
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
        """Return the intercept, and how sites differ in it."""
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
            rows = [first, pooled | {"note": f"f where {at}, and all else is 0; sites pool it"}]
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
        """Return the sites' and the pooled coefficients."""
        return {
            "origin": self.origin,
            "estimates": self.estimates,
            "errors": self.errors,
            "pooled": np.array(self.pooled, float),
            "covariance": self.covariance,
        }

    def meta(self) -> dict[str, Any]:
        """Return names, family, link, how sites were pooled, and who was left out."""
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
        """Rebuild the model from what `arrays` and `meta` returned."""
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
    """Return eˣ; inf where it overflows."""
    return math.exp(x) if not x > 709.0 else math.inf
