"""What a study shows of imputation: the error of each column, by way of hiding; first repeat.

imputation_errors   hidden (random, value, view), view, column, measure (rmse, in standard
deviations, or wrong, a share), error, constant (the error of the best constant), coverage of
intervals from draws, None without
"""

from __future__ import annotations

from fedcohort.protocol import Row
from fedcohort.study.judge.pooled.imputed import Imputed
from fedcohort.study.run.engine import Run

KEYS = ("imputation_errors",)


def imputed_rows(run: Run, judge: Imputed) -> dict[str, list[Row]]:
    """Return the lists of one fit, by key of results.json."""
    return {KEYS[0]: list(judge.by_column(run))}
