"""Metrics of K classes over sites: one sum has all but the AUC.

Accuracy, balanced accuracy, Brier score and log loss, eqs. (1), (2), (5) and (6) of `classes`,
equal those of the pooled records to rounding. The AUC of a class against the rest is that of a
yes/no outcome (`values.federated_auc`), of records whose y is 1(y = k) and whose f is p_k.

The step reads `y` (n,), `f` (n, K) and `lost` (), the number of rows without a finite prediction.

Revealed: `ClassSums`, only as a sum over sites.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics import classes
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed


@message
class ClassSums:
    """Eqs. (5), (6) and (7) of `classes`: rows and those lost (), errors (), ``table`` (K, K).

    ``predicted`` (K,) : Σ of the probabilities of each class.
    """

    rows: Array
    lost: Array
    squares: Array
    logs: Array
    table: Array
    predicted: Array


@summed
def sum_classes(site: Site[Any, None]) -> ClassSums:
    """Rows by class and by likeliest class, and errors of predicted probabilities."""
    y, p = site.data.y, site.data.f
    return ClassSums(
        np.array(float(len(y))),
        np.array(float(site.data.lost)),
        np.array(classes.squares(y, p).sum()),
        np.array(classes.losses(y, p).sum()),
        classes.confusion(y, p),
        p.sum(axis=0),
    )


STEPS = (sum_classes,)


def metrics_of(sums: ClassSums) -> dict[str, float]:
    """Return the metrics of sums over sites; nan where there is none."""
    rows, table = float(sums.rows), np.asarray(sums.table, float)
    if not rows or sums.lost:
        names = ("accuracy", "balanced_accuracy", "brier", "log_loss")
        return dict.fromkeys(names, math.nan)
    return {
        "accuracy": float(np.trace(table)) / rows,
        "balanced_accuracy": float(classes.of_recalls(np.diag(table), table.sum(axis=1))),
        "brier": float(sums.squares) / rows,
        "log_loss": float(sums.logs) / rows,
    }
