"""The leading metric of each task with a prediction: C-index, AUC or R².

AUC is computed as a C-index: cases have an event at time 1, others are censored later. Tuning
scores settings by pairs of rows of one site and fold (`Leading.sums`, `Leading.score`): a network
compares no rows of two sites, and natural sites of one process choose the same settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Continuous, Outcome, Survival
from fedcohort.metrics import classification, regression
from fedcohort.metrics.heterogeneity import (
    Pooled,
    pooled_r2,
    pooled_share,
    r2_interval,
    share_interval,
)
from fedcohort.metrics.intervals import Interval
from fedcohort.metrics.survival import concordance
from fedcohort.metrics.survival.concordance import Influence
from fedcohort.privacy.disclosure.counts import fewest
from fedcohort.protocol import Row
from fedcohort.study.results.rows import plain


class Outcomes(NamedTuple):
    """Outcomes of rows: ``time`` (n,) of survival; ``y`` (n,), the event, class or value."""

    time: Array
    y: Array

    @classmethod
    def of(cls, frame: pd.DataFrame, outcome: Outcome | None, dictionary: Dictionary) -> Outcomes:
        """Return the outcomes of a table's rows; zeros if the study has none."""
        nothing = np.zeros(len(frame))
        if outcome is None:
            return cls(nothing, nothing)
        return cls(*outcome.arrays(frame, outcome.levels(dictionary)))

    def at(self, rows: Array | slice) -> Outcomes:
        """Return some of the rows, by their numbers or a mask."""
        return Outcomes(self.time[rows], self.y[rows])


@dataclass(frozen=True)
class Leading:
    """A leading metric.

    Attributes
    ----------
    few : what the rows have too few of, if it is hidden.
    chance : its value for an uninformative model.
    count : outcomes (n,) → number of those that `few` names.
    value, influence : the metric of predictions (n,), and its derivative by rows.
    sums : concordant pairs, pairs and squared errors among rows of one site and fold.
    interval : value and standard error → interval.
    pooled : values and standard errors of several sites → pooled value.
    """

    metric: str
    few: str
    chance: float
    count: Callable[[Array], int]
    value: Callable[[Array, Outcomes], float]
    influence: Callable[[Array, Outcomes], Influence]
    sums: Callable[[Array, Outcomes], tuple[float, float, float]]
    interval: Callable[[float, float], Interval] = share_interval
    pooled: Callable[[Sequence[float], Sequence[float]], Pooled] = pooled_share

    def may_be_shown(self, y: Array, min_cell: int) -> bool:
        """Whether outcomes (n,) have enough rows, events or cases to publish the metric."""
        return self.count(y) >= fewest(min_cell)

    def score_of(self, said: Array, seen: Outcomes) -> float:
        """Return the metric; chance if it is not defined."""
        value = float(self.value(said, seen))
        return self.chance if math.isnan(value) else value

    def score(
        self, right: float, pairs: float, squares: float, rows: float, y: float, yy: float
    ) -> float:
        """Return the metric of `sums` over sites and folds; chance without pairs or spread.

        Parameters
        ----------
        rows, y, yy : number, sum, and sum of squares of the outcomes of all left-out rows.
        """
        if self.metric != "r2":
            return right / pairs if pairs else self.chance
        spread = yy - y**2 / max(1.0, rows)
        return 1.0 - squares / spread if spread > 0 else self.chance

    def row(
        self, site: str, found: tuple[float, float] | None, min_cell: int, **counts: int | None
    ) -> Row:
        """Return a site's row of `by_centre`.

        Parameters
        ----------
        found : value and standard error; None if the site has too few rows.
        """
        value, error = found or (math.nan, math.nan)
        low, high = (math.nan, math.nan) if found is None else self.interval(value, error)
        numbers = plain({"value": value, "se": error, "low": low, "high": high})
        note = f"fewer than {fewest(min_cell)} {self.few}" if found is None else None
        return {"metric": self.metric, "site": site, **numbers, **counts, "note": note}

    def heterogeneity(self, centres: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Return the random-effects mean over the centres that have an interval."""
        usable = [c for c in centres if c["low"] is not None]
        if len(usable) < 2:
            return []
        found = self.pooled([c["value"] for c in usable], [c["se"] for c in usable])._asdict()
        return [plain({"metric": self.metric, "pooled": found.pop("mean"), **found})]


def _events(y: Array) -> int:
    return int(np.count_nonzero(y))


def _pairs(risk: Array, seen: Outcomes) -> tuple[float, float, float]:
    if not len(risk):
        return 0.0, 0.0, 0.0
    found = concordance.comparable_pairs(risk, seen.time, np.asarray(seen.y, bool))
    return float((found.lower + 0.5 * found.tied).sum()), float(found.comparable.sum()), 0.0


def _of_classes(said: Array, seen: Outcomes) -> Influence:
    case = seen.y > 0
    ranks = np.unique(said, return_inverse=True)[1]
    return concordance.influence(ranks, np.where(case, 1.0, 2.0), case)


def _pairs_of_classes(said: Array, seen: Outcomes) -> tuple[float, float, float]:
    y = seen.y
    pairs = float(y.sum() * (len(y) - y.sum()))
    return (float(classification.auc(y, said)) * pairs if pairs else 0.0), pairs, 0.0


def _r2(said: Array, seen: Outcomes) -> float:
    """Return R²; −inf for predictions that are not finite."""
    return float(regression.r2(seen.y, said)) if np.isfinite(said).all() else -math.inf


C_INDEX = Leading(
    "c_index", "events", 0.5, _events,
    lambda risk, seen: concordance.harrell(risk, seen.time, seen.y),
    lambda risk, seen: concordance.influence(risk, seen.time, seen.y),
    _pairs,
)  # fmt: skip
AUC = Leading(
    "auc", "rows of a class", 0.5, lambda y: min(_events(y), len(y) - _events(y)),
    lambda said, seen: float(classification.auc(seen.y, said)), _of_classes, _pairs_of_classes,
)  # fmt: skip
R2 = Leading(
    "r2", "rows", 0.0, len, _r2,
    lambda said, seen: regression.influence(seen.y, said),
    lambda said, seen: (0.0, 0.0, float(((seen.y - said) ** 2).sum())),
    r2_interval, pooled_r2,
)  # fmt: skip
#: By kind of outcome.
LEADING: Mapping[str, Leading] = {
    Survival.kind: C_INDEX, Binary.kind: AUC, Continuous.kind: R2,
}  # fmt: skip
