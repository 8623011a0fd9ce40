"""Published rows of classes, beyond their metrics.

reliability  calibration error and parts of the Brier score (`metrics.reliability`), of several
             classes of each against the rest; of every repeat. They follow from the published
             groups and the Brier score

Of several classes also:

by_class   of each class against the rest: blind rows, their share, the mean predicted probability,
           the AUC with its interval, and the calibration slope; of every repeat
confusion  blind rows by class and by likeliest class
roc        the ROC curve of each class against the rest

A class with few rows, or of which few are left out, has no AUC and no slope. Counts are hidden so
that no cell of 1 to m − 1 patients is published or follows from the others, with m the `min_cell`
(`disclosure.groups`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics import classes, classification
from fedcohort.metrics.heterogeneity import share_interval
from fedcohort.metrics.reliability import reliability
from fedcohort.metrics.roc import roc_points
from fedcohort.privacy.disclosure.counts import can_rank, published_parts
from fedcohort.privacy.disclosure.groups import hidden_confusion
from fedcohort.protocol import Row
from fedcohort.study.judge.leading import of_case
from fedcohort.study.judge.pooled.base import Judge
from fedcohort.study.judge.pooled.classification import GROUPS, Classes, Labels
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Run

#: Keys of results.json: of all classes, and of several only; others have no such key.
OF_ALL = ("reliability",)
KEYS = ("by_class", "confusion")
#: Of these, every repeat has rows; of the others, the first.
EACH = (*OF_ALL, "by_class")


def class_rows(run: Run, judge: Judge) -> dict[str, list[Row]]:
    """Return lists of rows by key of results.json."""
    if not isinstance(judge, Labels):
        return {}
    said, y, m = judge.predicted(run, ()), np.asarray(judge.y, np.int64), judge.min_cell
    if not (len(y) and np.isfinite(said).all()):
        return {}
    if not isinstance(judge, Classes):
        groups = classification.calibration_groups(judge.y, said, GROUPS, m)
        return {"reliability": reliability_rows(groups, float(classification.brier(y, said)))}
    table = classes.confusion(y, said)
    ranks: list[Row] = []
    roc: list[Row] = []
    parts: list[Row] = []
    for k, level in enumerate(judge.levels):
        p, case = said[:, k], y == k
        found, slope = of_case(p, case), classification.calibration_slope(case * 1.0, p)
        low, high = share_interval(found.value, found.error)
        ranks.append({"auc": found.value, "low": low, "high": high, "slope": float(slope)})
        groups = classification.calibration_groups(case * 1.0, p, GROUPS, m)
        parts += reliability_rows(groups, float(classification.brier(case * 1.0, p)), level)
        if len(points := roc_points(p, case, m)):
            roc.append({"class": level, "points": points.tolist()})
    shown = shown_rows(table, said.sum(axis=0), ranks, judge.levels, m)
    return shown | {"roc": roc, "reliability": parts}


def reliability_rows(
    groups: classification.Groups, brier: float, level: str | None = None
) -> list[Row]:
    """Return the row of `reliability`; none without groups or Brier score.

    Parameters
    ----------
    groups, brier : of the same records.
    level : the class that is judged against the rest; None of a yes/no outcome.
    """
    if not len(groups.n) or math.isnan(brier):
        return []
    head: Row = {} if level is None else {"class": level}
    numbers = plain(reliability(groups, brier)._asdict())
    return [{**head, "groups": len(groups.n), "n": int(groups.n.sum()), **numbers}]


def shown_rows(
    table: Array, predicted: Array, ranks: Sequence[Row], levels: Sequence[str], min_cell: int
) -> dict[str, list[Row]]:
    """Return the rows of `KEYS` of sums over all blind rows.

    Parameters
    ----------
    table : (K, K), rows by class and by likeliest class.
    predicted : (K,), sums of the probabilities.
    ranks : auc, low, high and slope of each class, as known.
    """
    table = np.asarray(table, np.int64)
    rows, n = table.sum(axis=1), int(table.sum())
    gone = hidden_confusion(table, min_cell)
    by_class: list[Row] = []
    for k, told in enumerate(published_parts(rows, min_cell)):
        ranked = can_rank(np.arange(n) < rows[k], min_cell, both=True)
        share = math.nan if told is None else told / n
        numbers = {"observed": share, "predicted": float(predicted[k]) / n}
        numbers |= {name: v if ranked else math.nan for name, v in ranks[k].items()}
        by_class.append({"class": levels[k], "n": told, **plain(numbers)})
    confusion = [
        {"class": level, "predicted": other, "n": None if gone[k, j] else int(table[k, j])}
        for k, level in enumerate(levels)
        for j, other in enumerate(levels)
    ]
    return {"by_class": by_class, "confusion": confusion}
