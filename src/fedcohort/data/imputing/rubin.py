"""Estimates of several imputed tables as one, with intervals that account for what is missing.

Rubin, "Multiple Imputation for Nonresponse in Surveys", 1987; Barnard, Rubin, Biometrika 86(4),
1999. Of M tables, with estimates Q_m, variances U_m, and ν_c degrees of freedom without missing
values:

    Q = mean Q_m,  W = mean U_m,  B = Σ (Q_m − Q)²/(M − 1),  T = W + (1 + 1/M) B           (1)
    λ = (1 + 1/M) B/T,   ν_1 = (M − 1)/λ²,   ν_2 = (ν_c + 1)/(ν_c + 3) ν_c (1 − λ)
    ν = 1/(1/ν_1 + 1/ν_2)                                                                  (2)
    r = (1 + 1/M) B/W,   fraction of missing information  (r + 2/(ν + 3))/(r + 1)          (3)

The estimate less the truth, over √T, has Student's distribution with ν degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.wald import ratio_rows
from fedcohort.protocol import Estimates, Row


@dataclass(frozen=True, eq=False)
class Rubin:
    """Eqs. (1) to (3) for k coefficients.

    Attributes
    ----------
    names, level, ratio : as in `Estimates`.
    values, within, between, total : Q, W, B and T (k,).
    freedom, missing : ν and the fraction of missing information (k,).
    tables : M.
    """

    names: tuple[str, ...]
    level: float
    ratio: str
    values: Array
    within: Array
    between: Array
    total: Array
    freedom: Array
    missing: Array
    tables: int

    @classmethod
    def of(cls, found: Sequence[Estimates]) -> Rubin:
        """Pool the estimates of M ≥ 2 tables."""
        m, first = len(found), found[0]
        each = np.array([e.values for e in found])
        within = np.mean([np.diag(e.covariance) for e in found], axis=0)
        between = each.var(axis=0, ddof=1)
        more = (1 + 1 / m) * between
        total = within + more
        share = np.divide(more, total, out=np.zeros_like(total), where=total > 0)
        complete = min(e.freedom for e in found)
        with np.errstate(divide="ignore", invalid="ignore"):
            one = np.divide(m - 1, share**2)
            two = np.full(len(share), np.inf)
            if np.isfinite(complete):
                two = (complete + 1) / (complete + 3) * complete * (1 - share)
            freedom = 1 / (1 / one + 1 / two)
            r = more / within
            missing = (r + 2 / (freedom + 3)) / (r + 1)
        return cls(
            first.names, first.level, first.ratio, each.mean(axis=0), within, between, total,
            freedom, np.where(between > 0, missing, 0.0), m,
        )  # fmt: skip

    def rows(self) -> list[Row]:
        """Return a row for each coefficient, as `numerics.wald` does, with df and fmi (3)."""
        rows: list[Row] = []
        for j, name in enumerate(self.names):
            value, error = self.values[j : j + 1], np.sqrt(self.total[j : j + 1])
            freedom = float(self.freedom[j])
            row = ratio_rows([name], value, error, self.level, self.ratio, freedom)[0]
            rows.append({**row, "df": freedom, "fmi": float(self.missing[j])})
        return rows
