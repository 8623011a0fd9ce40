"""Fitted regressions of several classes: coefficients by class, or thresholds; probabilities."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from scipy.special import chdtrc

from fedcohort.arrays import Array
from fedcohort.numerics.classes import ordered_probabilities, probabilities
from fedcohort.numerics.parameters import class_note
from fedcohort.numerics.wald import ratio_rows
from fedcohort.protocol import Fitted, Row

_TESTED = ("standard_error", "p", "low", "high")


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassesModel(Fitted):
    """Probabilities of K classes.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    levels : the classes, in the order of their numbers, (K,).
    there : numbers of the K' classes with records; a prediction of another is 0.
    binary : whether `predict` returns the probability of class 1 alone.
    coefficients : β, per unit of the covariate.
    covariance : of all parameters, intercepts or thresholds with β.
    log_likelihood, null_log_likelihood : at the fit, and without covariates; without the penalty.
    rows : records at all sites.
    rounds : number of rounds of the fit.
    level : coverage of the intervals in `summary`.
    l2 : ridge penalty; with one, standard errors are of the penalised fit.
    caution : a warning if sums of the fit tell of few records; "" in a model read from a file.
    """

    features: tuple[str, ...]
    levels: tuple[str, ...]
    there: tuple[int, ...]
    binary: bool
    coefficients: Array
    covariance: Array
    log_likelihood: float
    null_log_likelihood: float
    rows: int
    rounds: int
    level: float
    l2: float
    caution: str = ""

    @abstractmethod
    def _among(self, x: Array) -> Array:
        """Return the probabilities (n, K') of the classes with records, for x (n, p)."""

    @property
    def classes_(self) -> Array:
        """The classes (K,), under scikit-learn's name."""
        return np.array(self.levels)

    @property
    def standard_errors(self) -> Array:
        """Standard errors of all parameters, in the order of `covariance`."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def deviance(self) -> float:
        """−2 log-likelihood."""
        return -2.0 * self.log_likelihood

    @property
    def likelihood_ratio(self) -> tuple[float, float]:
        """χ² and p-value of the test that no covariate has an effect; without a ridge penalty."""
        statistic = 2.0 * (self.log_likelihood - self.null_log_likelihood)
        return statistic, float(chdtrc(self.coefficients.size, max(statistic, 0.0)))

    def predict_proba(self, x: Array) -> Array:
        """Return the probability (n, K) of each class, of each row of x (n, p)."""
        x = np.asarray(x, float)
        out = np.zeros((len(x), len(self.levels)))
        out[:, list(self.there)] = self._among(x)
        return out

    def predict(self, x: Array) -> Array:
        """Return the probabilities (n, K) of rows x (n, p); of a binary outcome of class 1 (n,)."""
        found = self.predict_proba(x)
        return found[:, 1] if self.binary else found

    def cautions(self) -> tuple[str, ...]:
        """Return what sums tell of few records, and classes without any."""
        absent = [name for k, name in enumerate(self.levels) if k not in self.there]
        said = f"no record is of class {', '.join(map(repr, absent))}: its probability is 0"
        return tuple(filter(None, (self.caution, said * bool(absent))))

    def meta(self) -> dict[str, Any]:
        """Return names, classes, rows, log-likelihoods and the level of the intervals."""
        return {
            "features": list(self.features),
            "levels": list(self.levels),
            "there": list(self.there),
            "binary": self.binary,
            "log_likelihood": self.log_likelihood,
            "null_log_likelihood": self.null_log_likelihood,
            "rows": self.rows,
            "rounds": self.rounds,
            "level": self.level,
            "l2": self.l2,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from the results of `arrays` and `meta`."""
        given: dict[str, Any] = dict(arrays)
        for name, value in meta.items():
            given[name] = tuple(value) if name in ("features", "levels", "there") else value
        return cls(**given)


@dataclass(frozen=True, kw_only=True, eq=False)
class MultinomialModel(ClassesModel):
    """log(p_c/p_r) = b_c + xᵀβ_c for each class c with records, against the reference r.

    Attributes
    ----------
    reference : number of the class r.
    intercepts : b (K' − 1,), of the classes with records except r.
    coefficients : β (K' − 1, p).
    covariance : of (b_c, β_c), class by class, ((K' − 1)(1 + p), ...).
    """

    reference: int
    intercepts: Array

    @classmethod
    def compared(
        cls, gamma: Array, covariance: Array, *, reference: int, there: tuple[int, ...], **rest: Any
    ) -> Self:
        """Return the model of parameters against the first class with records.

        Parameters
        ----------
        gamma, covariance : of (b_c, β_c) for each other class, ((K' − 1)(1 + p), ...).
        reference : number of the class to compare with.
        """
        m = len(there)
        apart = np.eye(m) - np.eye(m)[there.index(reference)]
        kept = [k for k, c in enumerate(there) if c != reference]
        turn = np.kron(apart[kept][:, 1:], np.eye(len(gamma) // (m - 1)))
        own = (turn @ gamma).reshape(m - 1, -1)
        return cls(
            reference=reference, there=there, intercepts=own[:, 0], coefficients=own[:, 1:],
            covariance=turn @ covariance @ turn.T, **rest,
        )  # fmt: skip

    @property
    def compared_classes(self) -> tuple[str, ...]:
        """The classes of the rows of β, (K' − 1,)."""
        return tuple(self.levels[c] for c in self.there if c != self.reference)

    def _all(self) -> tuple[Array, Array]:
        """Return b (K',) and β (K', p) of all classes with records, 0 of the reference."""
        at = self.there.index(self.reference)
        return np.insert(self.intercepts, at, 0.0), np.insert(self.coefficients, at, 0.0, axis=0)

    @property
    def coef_(self) -> Array:
        """β as in scikit-learn: of each class with records, less the mean; (1, p) of two."""
        each = self._all()[1]
        return each[1:] - each[:1] if len(each) == 2 else each - each.mean(axis=0)

    @property
    def intercept_(self) -> Array:
        """Intercepts as in scikit-learn, see `coef_`."""
        each = self._all()[0]
        return each[1:] - each[:1] if len(each) == 2 else each - each.mean()

    def _among(self, x: Array) -> Array:
        intercepts, beta = self._all()
        eta = intercepts + x @ beta.T
        return probabilities((eta - eta[:, :1])[:, 1:])

    def summary(self) -> list[Row]:
        """Return one row for each class and covariate, compared with the reference class.

        ``low`` and ``high`` are Wald's, of the coefficient; ``rrr_low`` and ``rrr_high`` of the
        relative-risk ratio: by how much p_c/p_r is multiplied per unit of the covariate.
        """
        errors = self.standard_errors.reshape(len(self.intercepts), -1)[:, 1:]
        versus = {"reference": self.levels[self.reference]}
        return [
            {"covariate": row.pop("covariate"), "class": name, **versus, **row}
            for name, beta, error in zip(
                self.compared_classes, self.coefficients, errors, strict=True
            )
            for row in ratio_rows(self.features, beta, error, self.level, "relative_risk_ratio")
        ]

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept of each class, with its test."""
        errors = self.standard_errors.reshape(len(self.intercepts), -1)[:, 0]
        names = [f"intercept, {name}" for name in self.compared_classes]
        versus = self.levels[self.reference]
        return _constants(names, self.intercepts, errors, self.level, class_note(versus))

    def arrays(self) -> dict[str, Array]:
        """Return b, β and their covariance."""
        return {
            "intercepts": self.intercepts,
            "coefficients": self.coefficients,
            "covariance": self.covariance,
        }

    def meta(self) -> dict[str, Any]:
        """Return what `ClassesModel` does, and the reference."""
        return {**super().meta(), "reference": self.reference}


@dataclass(frozen=True, kw_only=True, eq=False)
class OrdinalModel(ClassesModel):
    """P(y ≤ j) = 1/(1 + exp(−(θ_j − xᵀβ))): with β above 0, higher classes are more frequent.

    Attributes
    ----------
    thresholds : θ (K' − 1,), between neighbouring classes with records.
    coefficients : β (p,).
    covariance : of (θ, β).
    tests : χ² and degrees of freedom of the score test of proportional odds, of each covariate and
        of all, (p + 1, 2); (0, 2) without one.
    """

    thresholds: Array
    tests: Array

    @property
    def coef_(self) -> Array:
        """The coefficients β (p,), under scikit-learn's name."""
        return self.coefficients

    def _among(self, x: Array) -> Array:
        return ordered_probabilities(self.thresholds, x @ self.coefficients)

    def summary(self) -> list[Row]:
        """Return one row per covariate; the odds are those of a higher class, at any threshold.

        ``low`` and ``high`` are Wald's, of the coefficient.
        """
        errors = self.standard_errors[len(self.thresholds) :]
        return ratio_rows(self.features, self.coefficients, errors, self.level, "odds_ratio")

    def parameters(self, times: Array) -> list[Row]:
        """Return the thresholds, with their tests."""
        there = [self.levels[c] for c in self.there]
        names = [f"threshold, {a} | {b}" for a, b in pairwise(there)]
        note = (
            "f = sum of coefficient × covariate; the probability of a class up to the threshold is "
            "1/(1 + exp(f − threshold))"
        )
        errors = self.standard_errors[: len(names)]
        return _constants(names, self.thresholds, errors, self.level, note)

    def proportional_odds(self) -> list[Row]:
        """Return the tests of the same effect at all thresholds, of each covariate and ``global``.

        Keys: covariate, chi2, df, p. A small p is evidence against proportional odds.
        """
        names = (*self.features, "global")
        return [
            {"covariate": name, "chi2": chi2, "df": int(df), "p": _p(chi2, df)}
            for name, (chi2, df) in zip(names, self.tests.tolist(), strict=False)
        ]

    def arrays(self) -> dict[str, Array]:
        """Return θ, β, their covariance, and the test of proportional odds."""
        return {
            "thresholds": self.thresholds,
            "coefficients": self.coefficients,
            "covariance": self.covariance,
            "tests": self.tests,
        }


def _p(chi2: float, df: float) -> float:
    return float(chdtrc(df, max(chi2, 0.0))) if chi2 == chi2 else math.nan


def _constants(
    names: list[str], values: Array, errors: Array, level: float, note: str
) -> list[Row]:
    """Return rows of intercepts or thresholds with their tests; the first has the note."""
    found = ratio_rows(names, values, errors, level)
    rows: list[Row] = [
        {"name": r["covariate"], "value": r["coefficient"], **{k: r[k] for k in _TESTED}}
        for r in found
    ]
    return [{**rows[0], "note": note}, *rows[1:]]
