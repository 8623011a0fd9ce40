"""The leading metric of each task with a prediction: C-index, AUC or R².

AUC is computed as a C-index: cases have an event at time 1, others are censored later. Of several
classes it is the mean over classes of one against the rest. Tuning
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
from fedcohort.protocol import DataError, Row
from fedcohort.study.results.rows import plain


class Outcomes(NamedTuple):
    """Outcomes of rows: ``time`` (n,) of survival; ``y`` (n,), the event, class or value.

    ``classes`` : number of classes; 0 without.
    """

    time: Array
    y: Array
    classes: int = 0

    @classmethod
    def of(cls, frame: pd.DataFrame, outcome: Outcome | None, dictionary: Dictionary) -> Outcomes:
        """Return the outcomes of a table's rows; zeros if the study has none."""
        nothing = np.zeros(len(frame))
        if outcome is None:
            return cls(nothing, nothing)
        levels = outcome.levels(dictionary)
        return cls(*outcome.arrays(frame, levels), len(levels))

    def at(self, rows: Array | slice) -> Outcomes:
        """Return some of the rows, by their numbers or a mask."""
        return Outcomes(self.time[rows], self.y[rows], self.classes)

    @property
    def several(self) -> bool:
        """Whether there are more than two classes."""
        return self.classes > 2

    def fits(self, said: Array) -> Array:
        """Return a model's predictions; (n,), or of several classes (n, K).

        Raises
        ------
        DataError : they have another form.
        """
        wanted = (len(self.y), self.classes) if self.several else (len(self.y),)
        if np.shape(said) != wanted:
            raise DataError(
                f"the model predicts an array of shape {np.shape(said)}, and this outcome needs "
                f"{wanted}. The method's `predict` must "
                f"give one value a row, or of several classes one probability a class."
            )
        return said


@dataclass(frozen=True)
class Leading:
    """A leading metric.

    Attributes
    ----------
    few : what the rows have too few of, if it is hidden.
    chance : its value for an uninformative model.
    count : outcomes → number of those that `few` names.
    value, influence : the metric of predictions (n,) or (n, K), and its derivative by rows.
    sums : concordant pairs, pairs (K,) and squared errors among rows of one site and fold, as one
        array (2 K + 1,); K is 1 but of several classes.
    interval : value and standard error → interval.
    pooled : values and standard errors of several sites → pooled value.
    """

    metric: str
    few: str
    chance: float
    count: Callable[[Outcomes], int]
    value: Callable[[Array, Outcomes], float]
    influence: Callable[[Array, Outcomes], Influence]
    sums: Callable[[Array, Outcomes], Array]
    interval: Callable[[float, float], Interval] = share_interval
    pooled: Callable[[Sequence[float], Sequence[float]], Pooled] = pooled_share

    def may_be_shown(self, seen: Outcomes, min_cell: int) -> bool:
        """Whether outcomes have enough rows, events or rows of a class to publish the metric."""
        return self.count(seen) >= fewest(min_cell)

    def score_of(self, said: Array, seen: Outcomes) -> float:
        """Return the metric; chance if it is not defined."""
        value = float(self.value(said, seen))
        return self.chance if math.isnan(value) else value

    def score(self, sums: Array, rows: float, y: float, yy: float) -> float:
        """Return the metric of `sums` over sites and folds; chance without pairs or spread.

        Parameters
        ----------
        rows, y, yy : number, sum, and sum of squares of the outcomes of all left-out rows.
        """
        if self.metric != "r2":
            right, pairs = sums[:-1].reshape(2, -1)
            some = pairs > 0
            return float(np.mean(right[some] / pairs[some])) if some.any() else self.chance
        spread = yy - y**2 / max(1.0, rows)
        return 1.0 - float(sums[-1]) / spread if spread > 0 else self.chance

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


def _events(seen: Outcomes) -> int:
    return int(np.count_nonzero(seen.y))


def _rarest(seen: Outcomes) -> int:
    """Return the number of rows of the rarest class."""
    if not seen.several:
        return min(_events(seen), len(seen.y) - _events(seen))
    return int(np.bincount(np.asarray(seen.y, np.int64), minlength=seen.classes).min())


def _pairs(risk: Array, seen: Outcomes) -> Array:
    if not len(risk):
        return np.zeros(3)
    found = concordance.comparable_pairs(risk, seen.time, np.asarray(seen.y, bool))
    return np.array([(found.lower + 0.5 * found.tied).sum(), found.comparable.sum(), 0.0])


def _each(said: Array, seen: Outcomes) -> list[tuple[Array, Array]]:
    """Return predictions and cases (n,), or those of each class against the rest."""
    if not seen.several:
        return [(said, seen.y > 0)]
    return [(said[:, k], seen.y == k) for k in range(seen.classes)]


def _auc(said: Array, seen: Outcomes) -> float:
    each = [classification.auc(case.astype(float), p) for p, case in _each(said, seen)]
    return float(np.mean(each))


def of_case(said: Array, case: Array) -> Influence:
    """Return the AUC of predictions (n,) for one class (n,) bool, and its derivative by rows."""
    ranks = np.unique(said, return_inverse=True)[1]
    return concordance.influence(ranks, np.where(case, 1.0, 2.0), case)


def _of_classes(said: Array, seen: Outcomes) -> Influence:
    each = [of_case(p, case) for p, case in _each(said, seen)]
    return Influence(
        float(np.mean([one.value for one in each])), np.mean([one.slope for one in each], axis=0)
    )


def _pairs_of_classes(said: Array, seen: Outcomes) -> Array:
    found: list[tuple[float, float]] = []
    for p, case in _each(said, seen):
        y = case.astype(float)
        pairs = float(y.sum() * (len(y) - y.sum()))
        found.append((float(classification.auc(y, p)) * pairs if pairs else 0.0, pairs))
    return np.append(np.array(found).T.ravel(), 0.0)


def _r2(said: Array, seen: Outcomes) -> float:
    """Return R²; −inf for predictions that are not finite."""
    return float(regression.r2(seen.y, said)) if np.isfinite(said).all() else -math.inf


C_INDEX = Leading(
    "c_index", "events", 0.5, _events,
    lambda risk, seen: concordance.harrell(risk, seen.time, seen.y),
    lambda risk, seen: concordance.influence(risk, seen.time, seen.y),
    _pairs,
)  # fmt: skip
AUC = Leading("auc", "rows of a class", 0.5, _rarest, _auc, _of_classes, _pairs_of_classes)
R2 = Leading(
    "r2", "rows", 0.0, lambda seen: len(seen.y), _r2,
    lambda said, seen: regression.influence(seen.y, said),
    lambda said, seen: np.array([0.0, 0.0, ((seen.y - said) ** 2).sum()]),
    r2_interval, pooled_r2,
)  # fmt: skip
#: By kind of outcome.
LEADING: Mapping[str, Leading] = {
    Survival.kind: C_INDEX, Binary.kind: AUC, Continuous.kind: R2,
}  # fmt: skip
