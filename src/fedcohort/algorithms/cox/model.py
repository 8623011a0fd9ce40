"""A fitted Cox model: coefficients, their uncertainty, and the survival of new patients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtri

from fedcohort.algorithms.cox.elastic import Path
from fedcohort.algorithms.cox.proportional import p_value
from fedcohort.arrays import Array
from fedcohort.numerics.mahalanobis import chi_squared, squared_distance
from fedcohort.numerics.parameters import chosen_row
from fedcohort.numerics.survival import Baseline
from fedcohort.numerics.wald import credible_rows, ratio_rows
from fedcohort.protocol import DataError, Estimates, Fitted, NotSupported, Row


@dataclass(frozen=True, eq=False)
class CoxModel(Fitted):
    """h(t | x) = h₀(t) exp((x − c)ᵀβ), with c the rounded pooled mean of x.

    An offset is one more column of x, with coefficient 1.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    coefficients : β (p,), log hazard ratio per unit of the covariate.
    covariance : (p, p), inverse of the penalised information at β; NaN with a lasso penalty.
    centre : c (p,), or (p + 1,) with an offset.
    baselines : cumulative hazard at x = c (Breslow) of each stratum; of a stratified fit, that of
        all sites pooled at the stratified β.
    log_likelihood, null_log_likelihood : partial, without the penalty, at β and at 0.
    rows, events : records and deaths at all sites; events is None in a model read from a file.
    level : coverage of the intervals in `summary`.
    ph_transform : function of time in the test of proportional hazards; "none" without a test.
    ph_chi2 : (p + 1,), χ² of each covariate and of all; (0,) without a test, NaN if the data do
        not determine it.
    grid_error : (p,), error of β due to the unknown order within the grid's intervals: root mean
        square over all orders, in units of β; (0,) at exact times or with a lasso.
    path : the path of penalty "auto"; None otherwise.
    strata : levels of the column of strata, (K,), or (). With strata the last column of x is the
        number of each row's level.
    """

    features: tuple[str, ...]
    coefficients: Array
    covariance: Array
    centre: Array
    baselines: tuple[Baseline, ...]
    log_likelihood: float
    null_log_likelihood: float
    rows: int
    events: int | None
    level: float
    ph_transform: str
    ph_chi2: Array
    grid_error: Array
    path: Path | None = None
    strata: tuple[str, ...] = ()

    @property
    def baseline(self) -> Baseline:
        """The baseline of all records.

        Raises
        ------
        NotSupported : the model has strata.
        """
        if self.strata:
            raise NotSupported("each stratum has a baseline of its own; see baselines and strata.")
        return self.baselines[0]

    @property
    def path_(self) -> Path:
        """The coefficients along the path of penalties.

        Raises
        ------
        NotSupported : the fit had one penalty.
        """
        if self.path is None:
            raise NotSupported("this fit has no path of penalties; penalty 'auto' has.")
        return self.path

    @property
    def standard_errors(self) -> Array:
        """Standard errors of β, (p,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def likelihood_ratio(self) -> tuple[float, float]:
        """χ² (p degrees of freedom) and p-value of the test of β = 0; without a ridge penalty."""
        statistic = 2 * (self.log_likelihood - self.null_log_likelihood)
        return statistic, float(chdtrc(len(self.features), max(statistic, 0.0)))

    def predict(self, x: Array) -> Array:
        """Return (x − c)ᵀβ (n,) of rows x (n, p): log hazard ratios to a patient at the mean."""
        each = np.r_[self.coefficients, np.ones(len(self.centre) - len(self.coefficients))]
        return (self._parted(x)[0] - self.centre) @ each

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) (n, m) of each row of x (n, p) at each of `times` (m,).

        Raises
        ------
        DataError : rows are of a stratum without deaths in the fit; it is named.
        """
        risk, stratum = self.predict(x), self._parted(x)[1]
        out = np.empty((len(risk), len(times)))
        for k in np.unique(stratum).tolist():
            if self.strata and not self.baselines[k].cumulative.any():
                raise DataError(
                    f"stratum {self.strata[k]!r} has no baseline hazard: the fit had no death in "
                    f"it. Leave out its rows, or join levels and refit."
                )
            at = stratum == k
            out[at] = self.baselines[k].survival(risk[at], times)
        return out

    def known_until(self, x: Array) -> Array:
        """Return the last time (n,) at which the survival of each row of x (n, p) is known."""
        return np.array([b.end for b in self.baselines])[self._parted(x)[1]]

    def _parted(self, x: Array) -> tuple[Array, Array]:
        """Return x without the column of strata, and each row's stratum (n,)."""
        x = np.asarray(x, float)
        if not self.strata:
            return x, np.zeros(len(x), np.int64)
        stratum = x[:, -1].astype(np.int64)
        valid = (stratum == x[:, -1]) & (stratum >= 0) & (stratum < len(self.strata))
        if x.shape[1] != len(self.centre) + 1 or not valid.all():
            raise DataError(
                f"the last column of x must be the number of each row's stratum, from 0 to "
                f"{len(self.strata) - 1}, after {len(self.centre)} other columns. Use a table's "
                f"design.matrix."
            )
        return x[:, :-1], stratum

    def summary(self) -> list[Row]:
        """Return one row per covariate; ``low`` and ``high`` bound the coefficient.

        ``grid_error`` is in standard errors. With a lasso penalty a row has only the coefficient,
        the hazard ratio, and whether the coefficient is ``zero``.
        """
        errors = self.standard_errors
        rows = ratio_rows(self.features, self.coefficients, errors, self.level, "hazard_ratio")
        if np.isnan(errors).any():
            keys = ("covariate", "coefficient", "hazard_ratio")
            return [{k: r[k] for k in keys} | {"zero": r["coefficient"] == 0} for r in rows]
        for row, error, unit in zip(rows, self.grid_error.tolist(), errors.tolist(), strict=False):
            row["grid_error"] = error / unit
        return rows

    def inference(self) -> Estimates:
        """Return β with its covariance.

        Raises
        ------
        NotSupported : a lasso penalty, with which β has no covariance.
        """
        if np.isnan(self.covariance).any():
            raise NotSupported("coefficients with a lasso penalty have no standard errors to pool.")
        freedom = math.inf if self.events is None else max(self.events - len(self.features), 1)
        return Estimates(
            self.features, self.coefficients, self.covariance, freedom, self.level, "hazard_ratio"
        )

    def parameters(self, times: Array) -> list[Row]:
        """Return the constant of the linear predictor, a chosen λ, and baseline survival.

        Baseline survival is at `times` (m,). A stratum without deaths in the fit has none.
        """
        each = np.r_[self.coefficients, np.ones(len(self.centre) - len(self.coefficients))]
        offset = " + offset" if len(each) > len(self.coefficients) else ""
        note = (
            f"f = constant + sum of coefficient × covariate{offset}, 0 at the covariates’ means; "
            f"survival is baseline survival to the power of exp(f)"
        )
        rows: list[Row] = [{"name": "constant", "value": -float(self.centre @ each), "note": note}]
        rows += [] if self.path is None else [chosen_row(self.path.penalty)]
        times = np.asarray(times, float)
        for name, baseline in zip(self.strata or ("",), self.baselines, strict=True):
            stratum = f", {name}" if name else ""
            if stratum and not baseline.cumulative.any():
                continue
            shown = times[times <= baseline.end]
            alive = np.exp(-baseline.at(shown)).tolist()
            for t, share in zip(shown.tolist(), alive, strict=True):
                rows.append({"name": f"baseline survival{stratum}", "time": t, "value": share})
        return rows

    def proportional_hazards(self) -> list[Row]:
        """Return the tests of a constant effect, of each covariate and of all (``global``).

        Keys: covariate, chi2, df, p. A small p is evidence against proportional hazards.
        """
        names = (*self.features, "global")
        df = (*(1 for _ in self.features), len(self.features))
        return [
            {"covariate": name, "chi2": chi2, "df": k, "p": p_value(chi2, k)}
            for name, chi2, k in zip(names, self.ph_chi2.tolist(), df, strict=False)
        ]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        times = np.unique(np.concatenate([b.times for b in self.baselines]))
        by_stratum = np.array([b.at(times) for b in self.baselines])
        ends = np.array([b.end for b in self.baselines])
        return {
            "coefficients": self.coefficients,
            "covariance": self.covariance,
            "centre": self.centre,
            "times": times,
            "known_until": ends,
            "cumulative_hazard": by_stratum if self.strata else by_stratum[0],
            "ph_chi2": self.ph_chi2,
            "grid_error": self.grid_error,
        } | ({} if self.path is None else {f"path_{k}": v for k, v in vars(self.path).items()})

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        return {
            "features": list(self.features),
            "log_likelihood": self.log_likelihood,
            "null_log_likelihood": self.null_log_likelihood,
            "rows": self.rows,
            "level": self.level,
            "ph_transform": self.ph_transform,
            "strata": list(self.strata),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> CoxModel:
        """Build the model from saved arrays and values."""
        named = ("penalties", "coefficients", "held_out")
        tried = [arrays[f"path_{k}"] for k in named if f"path_{k}" in arrays]
        return cls(
            features=tuple(meta["features"]),
            coefficients=arrays["coefficients"],
            covariance=arrays["covariance"],
            centre=arrays["centre"],
            baselines=_baselines(arrays),
            log_likelihood=float(meta["log_likelihood"]),
            null_log_likelihood=float(meta["null_log_likelihood"]),
            rows=int(meta["rows"]),
            events=None,
            level=float(meta["level"]),
            ph_transform=str(meta.get("ph_transform", "none")),
            ph_chi2=arrays.get("ph_chi2", np.zeros(0)),
            grid_error=arrays.get("grid_error", np.zeros(0)),
            path=Path(*tried) if tried else None,
            strata=tuple(meta.get("strata", ())),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class BayesCoxModel(CoxModel):
    """Posterior of β, N(`coefficients`, `covariance`), of which `coefficients` are the mode too.

    Attributes
    ----------
    log_evidence : logarithm of the probability of the order of deaths under the prior, approximate.
    mean, scatter : mean (p,) and covariance (p, p) of the covariates of all records; (0,) and
        (0, p) of a fit at exact times.
    checks : rows of posterior predictive checks; most often none.
    """

    log_evidence: float
    mean: Array
    scatter: Array
    checks: tuple[Row, ...] = ()

    def intervals(self, x: Array, level: float) -> Array:
        """Return the interval (n, 2) that holds the log risk of rows x (n, p) with `level`."""
        z = self._covariates(x) - self.centre[: len(self.features)]
        spread = np.einsum("ij,jk,ik->i", z, self.covariance, z)
        half = float(ndtri(0.5 + level / 2)) * np.sqrt(spread)
        f = self.predict(x)
        return np.column_stack([f - half, f + half])

    def unlike_training(self, x: Array) -> Array:
        """Return how unlike the training rows each row of x (n, p) is (n,), from 0 to 1.

        The distribution function of χ² at the squared Mahalanobis distance from their mean
        (`numerics.mahalanobis`).

        Raises
        ------
        NotSupported : the fit is at exact times.
        """
        if not len(self.mean):
            raise NotSupported(
                "a fit with time_grid 'exact' keeps no mean and covariance of its covariates, "
                "which could tell of few records. Take the default grid."
            )
        return chi_squared(*squared_distance(self._covariates(x), self.mean, self.scatter))

    def _covariates(self, x: Array) -> Array:
        """Return x without the columns of an offset and of strata, (n, p)."""
        return self._parted(x)[0][:, : len(self.features)]

    def summary(self) -> list[Row]:
        """Return posterior mean, standard deviation and credible interval of each coefficient.

        ``above_0`` is the posterior probability that it is above 0. ``grid_error`` is in posterior
        standard deviations.
        """
        scale = self.standard_errors
        rows = credible_rows(self.features, self.coefficients, scale, self.level, "hazard_ratio")
        for row, error, unit in zip(rows, self.grid_error.tolist(), scale.tolist(), strict=False):
            row["grid_error"] = error / unit
        return rows

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        return super().arrays() | {"mean": self.mean, "scatter": self.scatter}

    def parameters(self, times: Array) -> list[Row]:
        """Return the rows of `CoxModel.parameters`, and checks."""
        return [*super().parameters(times), *self.checks]

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        return super().meta() | {"log_evidence": self.log_evidence, "checks": list(self.checks)}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> BayesCoxModel:
        """Build the model from saved arrays and values."""
        return cls(
            **of_cox(CoxModel.restore(arrays, meta)),
            log_evidence=float(meta["log_evidence"]),
            mean=arrays["mean"],
            scatter=arrays["scatter"],
            checks=tuple(meta.get("checks", ())),
        )


def of_cox(model: CoxModel) -> dict[str, Any]:
    """Return the attributes of a Cox model by name."""
    return dict(vars(model))


def _baselines(arrays: Mapping[str, Array]) -> tuple[Baseline, ...]:
    """Return each stratum's baseline, up to the last time at which it is known."""
    times, hazards = arrays["times"], np.atleast_2d(arrays["cumulative_hazard"])
    ends = arrays.get("known_until", np.full(len(hazards), times.max(initial=0.0)))
    inside = [times <= end for end in ends.tolist()]
    return tuple(Baseline(times[at], h[at]) for h, at in zip(hazards, inside, strict=True))
