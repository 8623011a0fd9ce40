"""A fitted regression with site effects: coefficients, variances and predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, expit

from fedcohort.arrays import Array
from fedcohort.numerics.parameters import intercept_row
from fedcohort.numerics.wald import ratio_rows
from fedcohort.protocol import Fitted, Row

#: Meaning of exp(β), by family.
RATIOS = {"gaussian": "", "binomial": "odds_ratio", "poisson": "rate_ratio"}
#: Variance of the standard logistic distribution.
LOGISTIC = math.pi**2 / 3.0


@dataclass(frozen=True, eq=False)
class MixedModel(Fitted):
    """g(μ) = b₀ + xᵀβ + u, with u ~ N(0, τ²) for each site.

    Attributes
    ----------
    features : names of the columns of x, in order.
    offset : the last column is an offset, without a coefficient.
    family : gaussian, binomial or poisson.
    likelihood : reml or ml.
    intercept : b₀, the linear predictor at x = 0 and u = 0.
    coefficients : β (p,), per unit of the covariate, at a given site.
    covariance : (p + 1, p + 1) of (b₀, β); gaussian: given τ²/σ², as in other software.
    sigma2 : σ², variance within a site; nan for binomial and Poisson.
    tau2, tau2_low, tau2_high : τ², variance between sites, and its interval; the upper end is nan
        if τ² is 0.
    log_likelihood, null_log_likelihood : at the fit, and at the best fit with τ² = 0; with reml,
        only fits with the same covariates can be compared.
    rows, sites : records, and sites with records.
    level : coverage of the intervals.
    note : warnings about few sites and sites left out; may be empty.
    site_effects : û of each site that revealed it.
    """

    features: tuple[str, ...]
    offset: bool
    family: str
    likelihood: str
    intercept: float
    coefficients: Array
    covariance: Array
    sigma2: float
    tau2: float
    tau2_low: float
    tau2_high: float
    log_likelihood: float
    null_log_likelihood: float
    rows: int
    sites: int
    level: float
    note: str
    site_effects: Mapping[str, float]

    @property
    def standard_errors(self) -> Array:
        """Standard errors of (b₀, β), (p + 1,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def icc(self) -> float:
        """Intraclass correlation: share of the variance, given x, that is between sites.

        For binomial it is on the log odds, τ²/(τ² + π²/3); nan for Poisson, where it depends on x.
        """
        within = {"gaussian": self.sigma2, "binomial": LOGISTIC}.get(self.family, math.nan)
        return self.tau2 / (self.tau2 + within)

    @property
    def heterogeneity(self) -> tuple[float, float]:
        """2(ℓ − ℓ₀) and p-value, under ½χ²₀ + ½χ²₁, of the test of τ² = 0."""
        statistic = max(2.0 * (self.log_likelihood - self.null_log_likelihood), 0.0)
        return statistic, 0.5 * float(chdtrc(1, statistic)) if statistic > 0 else 1.0

    def linear(self, x: Array, effect: float = 0.0) -> Array:
        """Return b₀ + xᵀβ + offset + u (n,) of rows x, with `effect` u."""
        x = np.asarray(x, float)
        p = len(self.coefficients)
        eta = self.intercept + effect + x[:, :p] @ self.coefficients
        return eta + x[:, p] if self.offset else eta

    def predict(self, x: Array) -> Array:
        """Return g⁻¹(b₀ + xᵀβ) (n,) of each row of x, the value at a site with u = 0.

        For the gaussian family this is also the mean over sites. The mean probability over sites
        is nearer to ½, the mean count larger by the factor exp(τ²/2).
        """
        eta = self.linear(x)
        if self.family == "binomial":
            return expit(eta)
        return np.exp(eta) if self.family == "poisson" else eta

    def summary(self) -> list[Row]:
        """Return one row per covariate; ``low`` and ``high`` are Wald's, of the coefficient."""
        names = self.features[: len(self.coefficients)]
        errors = self.standard_errors[1:]
        return ratio_rows(names, self.coefficients, errors, self.level, RATIOS[self.family])

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, the variances, and the test of τ² = 0."""
        link = {"binomial": "logit", "poisson": "log"}.get(self.family, "identity")
        error = float(self.standard_errors[0])
        first = intercept_row(self.intercept, error, self.level, link, offset=self.offset)
        first["note"] += ", at a site whose effect is 0"
        ends = {"low": self.tau2_low, "high": self.tau2_high}
        between: Row = {"name": "variance between sites, τ²", "value": self.tau2, **ends}
        rows = [first, between | ({"note": self.note} if self.note else {})]
        if self.family == "gaussian":
            rows.append({"name": "variance within sites, σ²", "value": self.sigma2})
        if not math.isnan(self.icc):
            note = "share of the variance, given the covariates, that is between sites"
            rows.append({"name": "intraclass correlation", "value": self.icc, "note": note})
        statistic, p = self.heterogeneity
        note = "likelihood ratio, against ½χ²₀ + ½χ²₁"
        return [*rows, {"name": "test of τ² = 0", "value": statistic, "p": p, "note": note}]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        return {
            "intercept": np.array(self.intercept),
            "coefficients": self.coefficients,
            "covariance": self.covariance,
            "variances": np.array([self.sigma2, self.tau2, self.tau2_low, self.tau2_high]),
        }

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        return {
            "features": list(self.features),
            "offset": self.offset,
            "family": self.family,
            "likelihood": self.likelihood,
            "log_likelihood": self.log_likelihood,
            "null_log_likelihood": self.null_log_likelihood,
            "rows": self.rows,
            "sites": self.sites,
            "level": self.level,
            "note": self.note,
            "site_effects": dict(self.site_effects),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> MixedModel:
        """Build the model from saved arrays and values."""
        sigma2, tau2, low, high = (float(v) for v in arrays["variances"])
        return cls(
            features=tuple(meta["features"]),
            offset=bool(meta["offset"]),
            family=str(meta["family"]),
            likelihood=str(meta["likelihood"]),
            intercept=float(arrays["intercept"]),
            coefficients=arrays["coefficients"],
            covariance=arrays["covariance"],
            sigma2=sigma2,
            tau2=tau2,
            tau2_low=low,
            tau2_high=high,
            log_likelihood=float(meta["log_likelihood"]),
            null_log_likelihood=float(meta["null_log_likelihood"]),
            rows=int(meta["rows"]),
            sites=int(meta["sites"]),
            level=float(meta["level"]),
            note=str(meta["note"]),
            site_effects=dict(meta["site_effects"]),
        )
