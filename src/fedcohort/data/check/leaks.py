"""Search for columns that predict the outcome too well: they may be known only after it.

Each covariate is judged by itself over all rows:

AUC    of the event, or the class: by a number's ranks, by a level's share of events, and by
       missing values, since a measurement made with the outcome is missing without it; of several
       classes the mean over pairs of them (Hand & Till, Machine Learning 45, 2001), and by missing
       values the largest of one class against the rest
C      Harrell's concordance with the time, of a survival outcome
ρ      Spearman's rank correlation with a value

A column is reported if AUC reaches `AUC`, C reaches `C` or |ρ| reaches `RHO`, or if its name
suggests that it is known late. H2O Driverless AI also reports leakage from an AUC of 0.95 on. Good
predictors that doctors know beforehand stay well below. A finding shows one statistic, to two
digits, of at least `FEWEST` rows, `EACH` of them with the outcome and without; no cell and no row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check.findings import WARNING, Finding
from fedcohort.data.check.rules import is_numeric, numbers
from fedcohort.data.check.sheets import Sheet
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.read import hints
from fedcohort.data.variable import Variable
from fedcohort.data.words import level_text

#: Limits that a covariate known beforehand hardly reaches.
AUC, C, RHO = 0.95, 0.9, 0.98
#: Fewest rows, and fewest with the outcome and without, for a finding.
FEWEST, EACH = 50, 10
#: Most classes that are compared in pairs.
CLASSES = 20
#: Most rows for ranks, and for pairs; of more rows every k-th is taken.
ROWS, PAIRED = 10_000, 1_000
#: Fewest rows of a level for its share of events.
LEVEL = 5

_REMEDY = (
    "Is it known only after the outcome, or made from it? Then give it feature: false in the "
    "dictionary."
)


def check_leaks(
    sheets: Sequence[Sheet], dictionary: Dictionary, outcome: Outcome | None
) -> list[Finding]:
    """Return a warning for each covariate that predicts the outcome too well, or has a late name.

    sheets : none if the tables are elsewhere; then only names are judged.
    """
    if outcome is None:
        return []
    found: list[Finding] = []
    file = sheets[0].name if len(sheets) == 1 else ""
    names = list(dictionary.variables)
    whole = _outcome(sheets, outcome) if sheets else None
    for v in dictionary.features(outcome):
        having = [s for s in sheets if v.name in s.frame.columns]
        y = whole if len(having) == len(sheets) else _outcome(having, outcome) if having else None
        reason = "" if y is None else next(_reasons(having, v, y, outcome), "")
        if not reason and (late := hints.late(v.name, outcome, names)):
            reason = f"has a name that suggests it is known late: {late}"
        if reason:
            what = f"column {v.name!r} {reason}"
            found.append(Finding(file, "leak", WARNING, what, _REMEDY, column=v.name))
    return found


def _outcome(sheets: Sequence[Sheet], outcome: Outcome) -> dict[str, Array] | None:
    """Return the outcome of all rows of some tables; None if it is unfit.

    `y` is the event, the class as 0 and 1, or the value; a survival outcome also has `time`.
    """
    if not all({*outcome.columns} <= {*s.frame.columns} for s in sheets):
        return None
    if isinstance(outcome, Survival):
        both = {"y": outcome.event, "time": outcome.time}
        found = {k: np.concatenate([numbers(s.frame[c]) for s in sheets]) for k, c in both.items()}
        return found if np.isin(found["y"], (0.0, 1.0, np.nan)).all() else None
    if outcome.is_number:
        return {"y": np.concatenate([numbers(s.frame[outcome.label]) for s in sheets])}
    codes, distinct = pd.factorize(pd.concat([s.frame[outcome.label] for s in sheets]), sort=False)
    if (len(distinct) != 2) if outcome.has_events else not 2 <= len(distinct) <= CLASSES:
        return None
    return {"y": np.where(codes < 0, np.nan, codes.astype(float))}


def _reasons(
    having: Sequence[Sheet], v: Variable, y: dict[str, Array], outcome: Outcome
) -> Iterator[str]:
    """Yield the reasons to report one column; the first is enough.

    having : tables with the column.
    y : outcome of their rows.
    """
    step = max(1, -(-len(y["y"]) // ROWS))
    columns = [s.frame[v.name] for s in having]
    column = columns[0] if len(columns) == 1 else pd.concat(columns, ignore_index=True)
    cells, part = column.iloc[::step], {k: values[::step] for k, values in y.items()}
    known = ~np.isnan(part["y"])
    cells, part = cells[known], {k: values[known] for k, values in part.items()}
    x = numbers(cells) if is_numeric(v) else None
    if outcome.is_number:
        if x is not None and (rho := _rank_correlation(x, part["y"])) >= RHO:
            yield f"alone predicts the outcome: rank correlation {rho:.2f} over {len(cells):,} rows"
        return
    empty = cells.isna().to_numpy()
    if not outcome.has_events:
        yield from _of_several(cells, x, empty, part["y"], v)
        return
    event = part["y"] == 1
    if empty.any() and (area := _auc(empty.astype(float), event)) >= AUC:
        yield (
            f"is empty where the outcome is absent, or the other way round: AUC {area:.2f} over "
            f"{len(cells):,} rows"
        )
    scores = x if x is not None else _shares(cells, event) if v.coded else None
    if scores is None:
        return
    if (area := _auc(scores, event)) >= AUC:
        yield f"alone predicts the outcome: AUC {area:.2f} over {len(cells):,} rows"
    if "time" in part and (c := _concordance(scores, part["time"], event)) >= C:
        yield f"alone predicts the time of the outcome: C-index {c:.2f} over {len(cells):,} rows"


def _of_several(
    cells: pd.Series, x: Array | None, empty: Array, y: Array, v: Variable
) -> Iterator[str]:
    """Yield the reasons to report one column where there are several classes, y (n,)."""
    classes = np.unique(y)
    over = f"over {len(cells):,} rows"
    if empty.any():
        area = max(_auc(empty.astype(float), y == k) for k in classes)
        if area >= AUC:
            yield f"is empty for one class of the outcome, or for all others: AUC {area:.2f} {over}"
    if x is None and not v.coded:
        return
    areas = _areas(x, y) if x is not None else _areas_of_levels(cells, y)
    if (area := float(np.mean(areas))) >= AUC:
        yield f"alone predicts the outcome: AUC {area:.2f} of two classes on average, {over}"


def _areas(x: Array, y: Array) -> list[float]:
    """Return `_auc` of a number x (n,) for each pair of classes y (n,), from one table of counts.

    With n_ku rows of class k at the u-th smallest value, the concordant pairs of classes k and l
    are Σ_u n_ku (Σ_{v<u} n_lv + n_lu / 2).
    """
    classes, at = np.unique(y, return_inverse=True)
    kept = ~np.isnan(x)
    values, place = np.unique(x[kept], return_inverse=True)
    shape = len(classes), len(values)
    counts = np.bincount(at[kept] * shape[1] + place, minlength=math.prod(shape)).reshape(shape)
    right = counts @ (np.cumsum(counts, axis=1) - counts / 2).T
    n = counts.sum(axis=1).tolist()
    pairs = itertools.combinations(range(len(classes)), 2)
    return [_area(float(right[k, other]), n[k], n[other]) for k, other in pairs]


def _areas_of_levels(cells: pd.Series, y: Array) -> list[float]:
    """Return `_auc` of a column of levels for each pair of classes y (n,), by shares in it."""
    found: list[float] = []
    for k, other in itertools.combinations(np.unique(y), 2):
        pair = (y == k) | (y == other)
        event = y[pair] == k
        found.append(_auc(_shares(cells[pair], event), event))
    return found


def _auc(x: Array, event: Array) -> float:
    """Return the area under the ROC curve of x (n,), in the better direction; 0 for too few
    rows.
    """
    kept = ~np.isnan(x)
    x, event = x[kept], event[kept]
    ones = int(event.sum())
    right = float(_ranks(x)[event].sum()) - ones * (ones + 1) / 2
    return _area(right, ones, len(x) - ones)


def _area(right: float, ones: int, zeros: int) -> float:
    """Return the share of concordant pairs, in the better direction; 0 for too few rows."""
    if ones + zeros < FEWEST or min(ones, zeros) < EACH:
        return 0.0
    area = right / (ones * zeros)
    return max(area, 1 - area)


def _ranks(x: Array) -> Array:
    _, at, n = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(n) - (n - 1) / 2)[at]


def _rank_correlation(x: Array, y: Array) -> float:
    """Return |ρ| of two columns (n,); 0 for too few rows."""
    kept = ~(np.isnan(x) | np.isnan(y))
    if kept.sum() < FEWEST:
        return 0.0
    a, b = (_ranks(values[kept]) for values in (x, y))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(abs(np.corrcoef(a, b)[0, 1]))


def _concordance(x: Array, time: Array, event: Array) -> float:
    """Return Harrell's C of x (n,), in the better direction; 0 for too few rows."""
    kept = np.flatnonzero(~(np.isnan(x) | np.isnan(time)))
    if len(kept) < FEWEST or event[kept].sum() < EACH:
        return 0.0
    kept = kept[:: max(1, -(-len(kept) // PAIRED))]
    x, time, event = x[kept], time[kept], event[kept]
    first = np.flatnonzero(event)
    later = time[first, None] < time[None, :]
    pairs = int(later.sum())
    if not pairs or len(first) < EACH:
        return 0.0
    higher = (x[first, None] > x[None, :]) & later
    tied = (x[first, None] == x[None, :]) & later
    c = (int(higher.sum()) + int(tied.sum()) / 2) / pairs
    return float(max(c, 1 - c))


def _shares(cells: pd.Series, event: Array) -> Array:
    """Return the share of events among the rows of each row's level (n,), NaN for rare levels."""
    found, values = pd.factorize(cells)
    texts, distinct = pd.factorize(np.array([level_text(v) for v in values], object))
    codes = np.append(texts, -1)[found]
    n = np.bincount(codes[codes >= 0], minlength=len(distinct))
    ones = np.bincount(codes[codes >= 0], event[codes >= 0], minlength=len(distinct))
    share = np.where(n >= LEVEL, ones / np.maximum(n, 1), np.nan)
    return np.where(codes >= 0, np.append(share, np.nan)[codes], np.nan)
