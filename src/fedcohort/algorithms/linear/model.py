"""Fitted linear model: coefficients, goodness of fit, uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import fdtrc, stdtr, stdtrit

from fedcohort.algorithms.linear.course import Course
from fedcohort.arrays import Array
from fedcohort.numerics.parameters import chosen_row, intercept_row
from fedcohort.protocol import Estimates, Fitted, NotSupported, Row


@dataclass(frozen=True, eq=False)
class LinearModel(Fitted):
    """E(y | x) = b₀ + xᵀβ.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    intercept : b₀, in the unit of y.
    coefficients : β (p,), in units of y per unit of the covariate.
    rows : records at all sites; 0 for a private fit.
    objective : mean squared residual, plus the penalty.
    iterations : rounds of the fit, or sweeps of coordinate descent.
    level : coverage of the intervals in `summary`.
    total, residual : Σ (y − mean)² and Σ (y − b₀ − xᵀβ)²; None for ADMM and private fits.
    df : degrees of freedom of the covariates; p without a penalty.
    spread : (p + 1, p + 1), the covariance of (b₀, β) over σ²; None if the method has none.
    course : coefficients and errors along a path of penalties; None without a path.
    """

    features: tuple[str, ...]
    intercept: float
    coefficients: Array
    rows: int
    objective: float
    iterations: int
    level: float = 0.95
    total: float | None = None
    residual: float | None = None
    df: float | None = None
    spread: Array | None = None
    course: Course | None = None

    @property
    def coef_(self) -> Array:
        """β (p,), under scikit-learn's name."""
        return self.coefficients

    @property
    def intercept_(self) -> float:
        """b₀, under scikit-learn's name."""
        return self.intercept

    @property
    def n_iter_(self) -> int:
        """Rounds of the fit, or sweeps of coordinate descent."""
        return self.iterations

    @property
    def path_(self) -> Course:
        """Path of penalties.

        Raises
        ------
        NotSupported : the fit has one penalty only.
        """
        if self.course is None:
            raise NotSupported(
                "this fit has no path of penalties. Use 'lasso' with the exact solver."
            )
        return self.course

    @property
    def df_residual(self) -> float:
        """Degrees of freedom of the residual, n − 1 − df."""
        return self.rows - 1 - self._known(self.df)

    @property
    def sigma2(self) -> float:
        """σ², Σ (y − b₀ − xᵀβ)² / (n − 1 − df), in the squared unit of y.

        Raises
        ------
        NotSupported : as many covariates as records, or no sums of squares (ADMM).
        """
        if self.df_residual <= 0:
            raise NotSupported(
                f"{self.rows} records leave no residual to the {self.df:g} degrees of freedom of "
                f"the covariates. Use fewer, or a larger penalty."
            )
        return self._known(self.residual) / self.df_residual

    @property
    def r2(self) -> float:
        """R², the share of the outcome's variance that the covariates explain."""
        return 1 - self._known(self.residual) / self._known(self.total)

    @property
    def r2_adjusted(self) -> float:
        """R² adjusted for degrees of freedom."""
        return 1 - self.sigma2 * (self.rows - 1) / self._known(self.total)

    @property
    def f_test(self) -> tuple[float, float]:
        """Test of β = 0: F on df and n − 1 − df degrees of freedom, p-value.

        Raises
        ------
        NotSupported : the fit has a penalty, so F's distribution does not apply.
        """
        if self.spread is None or self.df != len(self.features):
            raise NotSupported(
                "the F test needs least squares without a penalty. Use 'ridge' with penalty 0 and "
                "the exact solver."
            )
        explained = (self._known(self.total) - self._known(self.residual)) / self._known(self.df)
        statistic = max(explained, 0.0) / self.sigma2 if self.sigma2 else math.inf
        return statistic, float(fdtrc(self._known(self.df), self.df_residual, statistic))

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of normal residuals, with the variance that maximises it."""
        mean = self._known(self.residual) / self.rows
        return -self.rows / 2 * (math.log(2 * math.pi * mean) + 1) if mean else math.inf

    @property
    def aic(self) -> float:
        """−2 log-likelihood + 2 (df + 1)."""
        return -2 * self.log_likelihood + 2 * (self._known(self.df) + 1)

    @property
    def bic(self) -> float:
        """−2 log-likelihood + log(n) (df + 1)."""
        return -2 * self.log_likelihood + math.log(self.rows) * (self._known(self.df) + 1)

    @property
    def covariance(self) -> Array:
        """Covariance (p + 1, p + 1) of (b₀, β).

        Raises
        ------
        NotSupported : a fit with an L1 penalty or by ADMM has none.
        """
        if self.spread is None:
            raise NotSupported(
                "this fit has no standard errors. Use 'ridge' with the exact solver and without "
                "noise."
            )
        return self.sigma2 * self.spread

    @property
    def standard_errors(self) -> Array:
        """Standard errors of (b₀, β), (p + 1,)."""
        return np.sqrt(np.diag(self.covariance))

    def predict(self, x: Array) -> Array:
        """Return the expected outcome (n,) of rows x (n, p)."""
        return self.intercept + np.asarray(x, float) @ self.coefficients

    def summary(self) -> list[Row]:
        """Return one row per covariate; with t, on n − 1 − df degrees of freedom, if it exists."""
        rows: list[Row] = [
            {"covariate": name, "coefficient": beta}
            for name, beta in zip(self.features, self.coefficients.tolist(), strict=True)
        ]
        if self.spread is None:
            return rows
        quantile = float(stdtrit(self.df_residual, 0.5 + self.level / 2))
        for row, se in zip(rows, self.standard_errors[1:].tolist(), strict=True):
            beta = row["coefficient"]
            t = beta / se if se else math.copysign(math.inf, beta)
            row["standard_error"] = se
            row["t"], row["p"] = t, 2 * float(stdtr(self.df_residual, -abs(t)))
            row["low"], row["high"] = beta - quantile * se, beta + quantile * se
        return rows

    def inference(self) -> Estimates:
        """Return (b₀, β) with their covariance."""
        names, values = ("intercept", *self.features), np.r_[self.intercept, self.coefficients]
        return Estimates(names, values, self.covariance, self.df_residual, self.level, "")

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, the chosen λ, and the residual variance.

        The intercept has its t test if that exists.
        """
        taken = []
        if self.course is not None and self.course.rule != "given":
            taken = [chosen_row(self.course.penalty)]
        if self.df is None or self.df_residual <= 0:
            return [intercept_row(self.intercept, None, self.level, "identity"), *taken]
        error = None if self.spread is None else float(self.standard_errors[0])
        freedom = self.df_residual
        intercept = intercept_row(self.intercept, error, self.level, "identity", freedom=freedom)
        note = f"on {freedom:.4g} degrees of freedom"
        spread = {"name": "residual variance", "value": self.sigma2, "note": note}
        return [intercept, *taken, spread]

    def arrays(self) -> dict[str, Array]:
        """Return b₀, β, and their spread and path, if any."""
        spread = {} if self.spread is None else {"spread": self.spread}
        course = {} if self.course is None else self.course.arrays()
        return {
            "intercept": np.array(self.intercept),
            "coefficients": self.coefficients,
            **spread,
            **course,
        }

    def meta(self) -> dict[str, Any]:
        """Return names, rows, sums of squares and the level of the intervals."""
        return {
            "features": list(self.features),
            "rows": self.rows,
            "objective": self.objective,
            "iterations": self.iterations,
            "level": self.level,
            "total": self.total,
            "residual": self.residual,
            "df": self.df,
            "course": None if self.course is None else self.course.meta(),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> LinearModel:
        """Rebuild the model from what `arrays` and `meta` returned."""
        plain: dict[str, Any] = {**meta, "features": tuple(meta["features"])}
        course = plain.pop("course")
        return cls(
            **plain,
            intercept=float(arrays["intercept"]),
            coefficients=arrays["coefficients"],
            spread=arrays.get("spread"),
            course=None if course is None else Course.restore(arrays, course),
        )

    def _known(self, value: float | None) -> float:
        if value is None:
            raise NotSupported(
                "this fit has no sums of squares: ADMM and private fits give only coefficients. "
                "Fit with the exact solver, without noise."
            )
        return value
