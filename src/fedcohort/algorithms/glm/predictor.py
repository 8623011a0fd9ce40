"""What every fitted generalised linear model has: a linear predictor, and its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Fitted, NotSupported


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor(Fitted):
    """η = b₀ + xᵀβ, plus the offset if there is one.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    offset : name of the offset, which is the last column of x; "" without.
    intercept : b₀, the linear predictor at x = 0.
    coefficients : β (p,), per unit of the covariate.
    spread : covariance of (b₀, β), (p + 1, p + 1); None where the solver gives none.
    rows : records at all sites; 0 of a private fit, which does not tell.
    rounds : how many the fit took.
    level : coverage of the intervals in `summary`.
    caution : what sums of the fit told of few records; "" of a model that was read from a file.
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
        NotSupported : the solver gives none.
        """
        if self.spread is None:
            if not self.rows:
                raise NotSupported(
                    "a differentially private fit has no standard errors: those of the records' "
                    "spread would leave out the noise."
                )
            raise NotSupported("a fit by ADMM has no standard errors; solver 'exact' has them.")
        return self.spread

    @property
    def standard_errors(self) -> Array:
        """Standard errors of (b₀, β), (p + 1,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def coef_(self) -> Array:
        """β (p,); of a classifier (1, p), as in scikit-learn."""
        return self.coefficients

    @property
    def intercept_(self) -> Array:
        """b₀ (1,), as in scikit-learn."""
        return np.array([self.intercept])

    @property
    def n_iter_(self) -> int:
        """How many rounds the fit took."""
        return self.rounds

    def cautions(self) -> tuple[str, ...]:
        """Return what sums of the fit told of few records, if anything."""
        return (self.caution,) if self.caution else ()

    def predictor(self, x: Array) -> Array:
        """Return η of each row of x (n, p), or (n, p + 1) with the offset last: (n,)."""
        x = np.asarray(x, float)
        p = len(self.features)
        eta = self.intercept + x[:, :p] @ self.coefficients
        return eta + x[:, p] if self.offset else eta
