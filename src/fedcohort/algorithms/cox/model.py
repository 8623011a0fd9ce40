"""A fitted Cox model: coefficients with their uncertainty, and survival of new patients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc

from fedcohort.arrays import Array
from fedcohort.numerics.proportional import p_value
from fedcohort.numerics.survival import Baseline
from fedcohort.numerics.wald import ratio_rows
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, eq=False)
class CoxModel(Fitted):
    """h(t | x) = h₀(t) exp((x − c)ᵀβ), with c their pooled mean, rounded.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    coefficients : β (p,), log hazard ratio per unit of the covariate.
    covariance : (p, p), inverse of the penalised information at β.
    centre : c (p,).
    baseline : cumulative hazard at x = c (Breslow); with a stratified fit, that of all sites
        pooled at the stratified β.
    log_likelihood, null_log_likelihood : partial, without the penalty, at β and at 0.
    rows, events : records and deaths at all sites; of a model read from a file deaths are None.
    level : coverage of the intervals in `summary`.
    ph_transform : function of time with which effects were tested to change; "none" if not.
    ph_chi2 : (p + 1,), the tests' χ² of each covariate and of all; (0,) without a test, NaN where
        time tells nothing.
    """

    features: tuple[str, ...]
    coefficients: Array
    covariance: Array
    centre: Array
    baseline: Baseline
    log_likelihood: float
    null_log_likelihood: float
    rows: int
    events: int | None
    level: float
    ph_transform: str
    ph_chi2: Array

    @property
    def standard_errors(self) -> Array:
        """Standard errors of β, (p,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def likelihood_ratio(self) -> tuple[float, float]:
        """The test of β = 0: its χ² on p degrees of freedom, and p-value (no ridge penalty)."""
        statistic = 2 * (self.log_likelihood - self.null_log_likelihood)
        return statistic, float(chdtrc(len(self.features), max(statistic, 0.0)))

    def predict(self, x: Array) -> Array:
        """Return (x − c)ᵀβ of rows x (n, p), log hazard ratios to a patient at the mean: (n,)."""
        return (np.asarray(x, float) - self.centre) @ self.coefficients

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) for each row of x (n, p) and each of `times` (m,): (n, m)."""
        return self.baseline.survival(self.predict(x), times)

    def summary(self) -> list[Row]:
        """Return one row per covariate; ``low``, ``high`` are of the coefficient."""
        return ratio_rows(
            self.features, self.coefficients, self.standard_errors, self.level, "hazard_ratio"
        )

    def proportional_hazards(self) -> list[Row]:
        """Return the test of a constant effect of each covariate, and of all as ``global``.

        Keys are covariate, chi2, df and p; a small p speaks against proportional hazards.
        """
        names = (*self.features, "global")
        df = (*(1 for _ in self.features), len(self.features))
        return [
            {"covariate": name, "chi2": chi2, "df": k, "p": p_value(chi2, k)}
            for name, chi2, k in zip(names, self.ph_chi2.tolist(), df, strict=False)
        ]

    def arrays(self) -> dict[str, Array]:
        """Return β, its covariance, the centre, the baseline and the tests' χ²."""
        return {
            "coefficients": self.coefficients,
            "covariance": self.covariance,
            "centre": self.centre,
            "times": self.baseline.times,
            "cumulative_hazard": self.baseline.cumulative,
            "ph_chi2": self.ph_chi2,
        }

    def meta(self) -> dict[str, Any]:
        """Return names, rows, log-likelihoods, the level of the intervals and the test's name."""
        return {
            "features": list(self.features),
            "log_likelihood": self.log_likelihood,
            "null_log_likelihood": self.null_log_likelihood,
            "rows": self.rows,
            "level": self.level,
            "ph_transform": self.ph_transform,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> CoxModel:
        """Rebuild the model from what `arrays` and `meta` returned."""
        return cls(
            features=tuple(meta["features"]),
            coefficients=arrays["coefficients"],
            covariance=arrays["covariance"],
            centre=arrays["centre"],
            baseline=Baseline(arrays["times"], arrays["cumulative_hazard"]),
            log_likelihood=float(meta["log_likelihood"]),
            null_log_likelihood=float(meta["null_log_likelihood"]),
            rows=int(meta["rows"]),
            events=None,
            level=float(meta["level"]),
            ph_transform=str(meta.get("ph_transform", "none")),
            ph_chi2=arrays.get("ph_chi2", np.zeros(0)),
        )
