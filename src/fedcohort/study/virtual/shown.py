"""What a page shows of virtual rows beside real ones: lists of rows, as results.json has them.

virtual_marginals     column, bin (low, high, or level) → shares of real and of virtual rows; the
                      first row of a column has its error
virtual_correlations  two features → correlation among real and among virtual rows
virtual_curves        real or virtual rows, time → survival with its interval
virtual_scores        rows that a model of the outcome learnt from → its score on the blind rows
virtual_privacy       measure → value, interval, and the same of blind rows

These rows may leave the place of the real rows: a bin holds none or `min_cell` of these, a rare
level is joined with others, correlations have two decimals, and curves are those of
`metrics.survival.published_curves`. Bins end at round numbers between the virtual rows' outer ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.metrics import virtual as metrics
from fedcohort.metrics.survival.published_curves import published_curve
from fedcohort.metrics.virtual import Columns
from fedcohort.privacy.disclosure.rounding import round_number
from fedcohort.protocol import Row
from fedcohort.study.virtual.comparing import Comparison, columns_of, compared

KEYS = (
    "virtual_marginals", "virtual_correlations", "virtual_curves", "virtual_scores",
    "virtual_privacy",
)  # fmt: skip
#: Bins of a number; features with correlations.
BINS, PAIRED = 12, 30
#: Name of the bin of levels with few real rows.
OTHERS = "other levels"
_Z = 1.959963984540054


def shown(
    c: Comparison, min_cell: int, *, learnt_from: str = "virtual rows", private: bool = False
) -> dict[str, list[Row]]:
    """Return all lists of a comparison, by key.

    Parameters
    ----------
    learnt_from : name of the compared rows in the list of scores.
    private : nothing is shown of training rows.
    """
    real = [*_curve("real", c.blind, c.outcome, min_cell)]
    end = real[-1]["time"] if real else math.inf
    return {
        "virtual_marginals": [*_marginals(c.variables, c.drawn, c.real, c, min_cell)],
        "virtual_correlations": [*_correlations(c.variables, c.drawn, c.real)],
        "virtual_curves": [
            *real,
            *_curve("virtual", c.virtual, c.outcome, 1, float(end)),
        ],
        "virtual_scores": [*_scores(c, learnt_from, private=private)],
        "virtual_privacy": [*([] if private else _privacy(c, min_cell)), *_log_rank(c)],
    }


def shown_alone(
    frame: pd.DataFrame, dictionary: Dictionary, outcome: Outcome | None
) -> dict[str, list[Row]]:
    """Return the lists of virtual rows without real ones."""
    full = [name for name in dictionary.variables if frame[name].notna().any()]
    variables = compared(dictionary, full)
    drawn = columns_of(frame, variables)
    return {
        "virtual_marginals": [*_marginals(variables, drawn, None, None, 1)],
        "virtual_correlations": [*_correlations(variables, drawn, None)],
        "virtual_curves": [*_curve("virtual", frame, outcome, 1)],
        "virtual_scores": [],
        "virtual_privacy": [],
    }


def _marginals(
    variables: tuple[Variable, ...],
    drawn: Columns,
    real: Columns | None,
    c: Comparison | None,
    min_cell: int,
) -> Iterator[Row]:
    encoding = Encoding(variables)
    errors = None if c is None else c.marginal_errors()[0]
    for j, v in enumerate(encoding.numeric):
        other = None if real is None else real.numbers[:, j]
        rows = _number_bins(drawn.numbers[:, j], other, v.type == "binary", min_cell)
        yield from _headed(v, rows, None if errors is None else errors[j])
    a = len(encoding.numeric)
    for j, v in enumerate(encoding.coded):
        other = None if real is None else real.codes[:, j]
        rows = _level_bins(v, drawn.codes[:, j], other, min_cell)
        yield from _headed(v, rows, None if errors is None else errors[a + j])


def _headed(v: Variable, rows: list[Row], error: float | None) -> Iterator[Row]:
    for i, row in enumerate(rows):
        found = None if i or error is None else round(float(error), 3)
        yield {"column": v.name, "unit": v.unit, **row, "error": found}


def _number_bins(drawn: Array, real: Array | None, binary: bool, min_cell: int) -> list[Row]:
    """Return bins of a number with the shares of rows in each; missing values are left out."""
    x = drawn[~np.isnan(drawn)]
    if not len(x):
        return []
    edges = _edges(x, binary)
    counts = [np.bincount(np.searchsorted(edges, x, side="right"), minlength=len(edges) + 1)]
    if real is not None:
        y = real[~np.isnan(real)]
        counts.append(
            np.bincount(np.searchsorted(edges, y, side="right"), minlength=len(edges) + 1)
        )
        keep = _joint(counts[1], min_cell)
        edges = edges[keep]
        ends = np.r_[np.flatnonzero(keep), len(counts[0]) - 1]
        counts = [np.diff(np.r_[0, np.cumsum(n)[ends]]) for n in counts]
    share = [n / max(n.sum(), 1) for n in counts]
    limits = [None, *edges.tolist(), None]
    return [
        {
            "low": limits[i], "high": limits[i + 1], "level": None,
            "virtual": _share(share[0][i]),
            "real": None if real is None else _share(share[1][i]),
        }
        for i in range(len(limits) - 1)
    ]  # fmt: skip


def _edges(x: Array, binary: bool) -> Array:
    """Return inner edges of bins, ascending: round numbers, or between few distinct values."""
    distinct = np.unique(x)
    if binary:
        return np.array([0.5])
    if len(distinct) <= BINS:
        return (distinct[1:] + distinct[:-1]) / 2
    low, high = np.quantile(x, [0.01, 0.99])
    step = round_number(max(float(high - low), 1e-12) / (BINS - 2))
    first = math.ceil(low / step)
    return step * np.arange(first, math.floor(high / step) + 1)


def _joint(counts: Array, min_cell: int) -> Array:
    """Return which inner edges (k − 1,) stay, so that a bin holds none or `min_cell` of (k,)."""
    ends: list[int] = []
    sizes: list[int] = []
    held = 0
    for i, n in enumerate(counts.tolist()):
        held += n
        if held == 0 or held >= min_cell:
            ends.append(i)
            sizes.append(held)
            held = 0
    while 0 < held < min_cell and ends:
        held += sizes.pop()
        ends.pop()
    return np.isin(np.arange(len(counts) - 1), ends)


def _level_bins(v: Variable, drawn: Array, real: Array | None, min_cell: int) -> list[Row]:
    """Return the share of each level among rows that have one; rare ones together."""
    k = len(v.levels)
    counts = [np.bincount(np.asarray(drawn[drawn >= 0], int), minlength=k)]
    if real is not None:
        counts.append(np.bincount(np.asarray(real[real >= 0], int), minlength=k))
    few = np.zeros(k, bool)
    if real is not None:
        few = (counts[1] > 0) & (counts[1] < min_cell)
        while few.any() and counts[1][few].sum() < min_cell and not few.all():
            rest = np.where(few, np.iinfo(np.int64).max, counts[1])
            few[int(np.argmin(rest))] = True
    groups = [(level, np.arange(k) == i) for i, level in enumerate(v.levels) if not few[i]]
    groups += [(OTHERS, few)] if few.any() else []
    share = [n / max(n.sum(), 1) for n in counts]
    return [
        {
            "low": None, "high": None, "level": name,
            "virtual": _share(share[0][at].sum()),
            "real": None if real is None else _share(share[1][at].sum()),
        }
        for name, at in groups
    ]  # fmt: skip


def _share(value: float) -> float:
    return round(float(value), 3)


def _correlations(
    variables: tuple[Variable, ...], drawn: Columns, real: Columns | None
) -> Iterator[Row]:
    """Yield pairs of two columns' features, of at most `PAIRED` features."""
    x, of = metrics.features(drawn)
    names = _feature_names(variables)
    base = x if real is None else metrics.features(real)[0]
    spread = np.array([c[~np.isnan(c)].var() if (~np.isnan(c)).any() else 0.0 for c in base.T])
    kept = np.sort(np.argsort(-spread, kind="stable")[:PAIRED])
    mine = metrics.correlations(x[:, kept])
    theirs = None if real is None else metrics.correlations(base[:, kept])
    for i in range(len(kept)):
        for j in range(i):
            if of[kept[i]] == of[kept[j]]:
                continue
            yield {
                "one": names[kept[j]], "other": names[kept[i]], "virtual": _r(mine[i, j]),
                "real": None if theirs is None else _r(theirs[i, j]),
            }  # fmt: skip


def _feature_names(variables: tuple[Variable, ...]) -> list[str]:
    encoding = Encoding(variables)
    levels = [f"{v.name}={level}" for v in encoding.coded for level in v.levels[1:]]
    return [*(v.name for v in encoding.numeric), *levels]


def _r(value: float) -> float | None:
    return round(float(value), 2) if math.isfinite(value) else None


def _curve(
    which: str, frame: pd.DataFrame, outcome: Outcome | None, min_cell: int, until: float = math.inf
) -> Iterator[Row]:
    """Yield a curve up to a time, and its last row: the width of its steps follows from `until`."""
    if not isinstance(outcome, Survival):
        return
    time, event = outcome.arrays(frame)
    late = time > until
    points = [*zip(*published_curve(time, event, min_cell), strict=True)]
    if late.any():
        early = published_curve(np.minimum(time, until), np.where(late, 0, event), min_cell)
        points = [*zip(*early, strict=True), *points[-1:]]
    for time, s, low, high in points:
        yield {
            "rows": which, "time": float(time), "survival": round(float(s), 4),
            "low": _finite(low), "high": _finite(high),
        }  # fmt: skip


def _finite(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None


def _scores(c: Comparison, learnt_from: str, *, private: bool) -> Iterator[Row]:
    """Yield the scores of models on the blind rows, with 95 % intervals."""
    if c.outcome is None:
        return
    models = {learnt_from: c.virtual_model}
    if not private:
        models["training rows"] = c.training_model
    for name, run in models.items():
        s = c.score(run)
        yield {
            "learnt_from": name, "metric": s.metric, "value": _finite(s.value),
            "low": _finite(s.value - _Z * s.error), "high": _finite(s.value + _Z * s.error),
        }  # fmt: skip


def _measure(
    measure: str, value: float, blind: float | None = None, low: float | None = None,
    high: float | None = None,
) -> Row:  # fmt: skip
    found = {"value": value, "blind": blind, "low": low, "high": high}
    return {"measure": measure} | {
        k: None if v is None or not math.isfinite(v) else round(float(v), 4)
        for k, v in found.items()
    }


def _log_rank(c: Comparison) -> Iterator[Row]:
    if (test := c.log_rank) is not None:
        yield _measure("log-rank test of survival: p", test.p)


def _privacy(c: Comparison, min_cell: int) -> Iterator[Row]:
    p = c.privacy

    yield _measure("median distance to the nearest training row", p.near, p.usual)
    alike = p.alike / max(p.blind, 1) if p.alike == 0 or p.alike >= min_cell else math.nan
    yield _measure("share of rows that equal a training row", p.copied / max(p.rows, 1), alike)
    for name, auc in p.attacks.items():
        yield _measure(f"membership: {name}", auc.value, 0.5, auc.low, auc.high)
