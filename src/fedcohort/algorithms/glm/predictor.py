"""Base class of fitted generalised linear models: the linear predictor and its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Estimates, Fitted, NotSupported


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor(Fitted):
    """η = b₀ + xᵀβ, plus the offset if there is one.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    offset : name of the offset, the last column of x; "" without.
    intercept : b₀, the linear predictor at x = 0.
    coefficients : β (p,), per unit of the covariate.
    spread : covariance of (b₀, β), (p + 1, p + 1); None with ADMM and in a private fit.
    rows : records at all sites; 0 in a private fit.
    rounds : number of rounds of the fit.
    level : coverage of the intervals in `summary`.
    caution : a warning if sums of the fit tell of few records; "" in a model read from a file.
    """

    features: tuple[str, ...]
    intercept: float
    coefficients: Array
    spread: Array | None
    rows: int
    level: float
    offset: str = ""
    rounds: int = 0
    caution: str = ""

    @property
    def covariance(self) -> Array:
        """The covariance of (b₀, β), (p + 1, p + 1).

        Raises
        ------
        NotSupported : `spread` is None.
        """
        if self.spread is None:
            if not self.rows:
                raise NotSupported(
                    "a differentially private fit has no standard errors: they would leave out the "
                    "noise."
                )
            raise NotSupported("a fit by ADMM has no standard errors; solver 'exact' has them.")
        return self.spread

    @property
    def standard_errors(self) -> Array:
        """Standard errors of (b₀, β), (p + 1,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def coef_(self) -> Array:
        """β (p,), as in scikit-learn; (1, p) in a classifier."""
        return self.coefficients

    @property
    def intercept_(self) -> Array:
        """b₀ (1,), as in scikit-learn."""
        return np.array([self.intercept])

    @property
    def n_iter_(self) -> int:
        """Number of rounds of the fit."""
        return self.rounds

    def cautions(self) -> tuple[str, ...]:
        """Return the warning about sums that tell of few records, if there is one."""
        return (self.caution,) if self.caution else ()

    def _estimates(self, ratio: str) -> Estimates:
        """Return (b₀, β) with their covariance; `ratio` is the name of exp(β)."""
        return Estimates(
            ("intercept", *self.features),
            np.r_[self.intercept, self.coefficients],
            self.covariance,
            max(self.rows - len(self.features) - 1, 1),
            self.level,
            ratio,
        )

    def predictor(self, x: Array) -> Array:
        """Return η (n,) of each row of x (n, p), or (n, p + 1) with the offset last."""
        x = np.asarray(x, float)
        p = len(self.features)
        eta = self.intercept + x[:, :p] @ self.coefficients
        return eta + x[:, p] if self.offset else eta
