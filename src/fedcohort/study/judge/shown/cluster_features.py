"""Differences between clusters: each feature in the cluster against all other patients.

For a level, or a 0/1 column, with a of n patients in the cluster and c of r in the rest, the odds
ratio with 0.5 added to every cell, and its interval by the logit (Haldane, Ann. Hum. Genet. 20,
1956; Gart, Biometrika 53, 1966); p is by Fisher's exact test, so it and the interval may disagree
near 0.05:

    log OR ± z √(1/(a+½) + 1/(n−a+½) + 1/(c+½) + 1/(r−c+½)),  OR = (a+½)(r−c+½)/((n−a+½)(c+½))  (1)

For a number, the standardised mean difference d with its interval (Hedges & Olkin, Statistical
Methods for Meta-Analysis, 1985, ch. 5), and Welch's p:

    d = (x̄ − ȳ)/s,  s² the pooled variance,   d ± z √((n + r)/(n r) + d²/(2(n + r)))           (2)

q is p by Benjamini & Hochberg (J. R. Stat. Soc. B 57, 1995) over all tests, clusters times
features; a hidden test counts there as p = 1, so that no q reveals it.

**The clusters were made from these features.** So p and q order the features and measure the
difference from noise; they do not prove that there are clusters. They would be small for random
groups cut from the same rows, too.

Revealed: nothing of the training rows that the disclosure rules hide. A level is published for all
clusters where `hidden_levels` allows it, a number where both means are (`ShownNumber`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from fedcohort.arrays import Array
from fedcohort.data.describe.shown_number import ShownNumber
from fedcohort.data.prepare import Design, NumberColumn
from fedcohort.privacy.disclosure.groups import hidden_levels
from fedcohort.protocol import Row

#: 97.5 % quantile of the normal distribution.
Z = float(ndtri(0.975))
#: Digits of statistics of numbers: more would reveal their count.
DIGITS = 2


class Levels(NamedTuple):
    """A column of levels: its ``features``' names, and each row's level (n,), −1 if missing.

    Feature i is that of level i; the first of two levels has none.
    """

    features: tuple[str | None, ...]
    codes: Array


class Number(NamedTuple):
    """A numeric column: its ``feature`` and values (n,), NaN if missing."""

    feature: str
    values: Array


def columns(design: Design, frame: pd.DataFrame) -> Iterator[Levels | Number]:
    """Yield a table's columns, neither imputed nor scaled."""
    encoded = design.encoding(frame)
    numbers, codes = iter(encoded.numbers), iter(encoded.codes)
    for column in design.columns:
        if not isinstance(column, NumberColumn):
            names = [f"{column.name}={level}" for level in column.kept]
            shown = (None, names[1]) if len(names) == 2 else tuple(names)
            yield Levels(shown, column.read(next(codes)))
        elif column.type == "binary":
            value = next(numbers)
            code = np.where(np.isnan(value), -1, value > 0.5).astype(np.int64)
            yield Levels((None, column.name), code)
        else:
            yield Number(column.name, next(numbers))


def feature_rows(
    design: Design, frame: pd.DataFrame, labels: Array, shown: Array, min_cell: int
) -> list[Row]:
    """Return a row for each cluster and feature; hidden numbers are None.

    Parameters
    ----------
    labels : (n,) clusters, integers in [0, k).
    shown : (k,) bool, clusters with a published size.
    """
    rows: list[Row] = []
    for column in columns(design, frame):
        if isinstance(column, Levels):
            rows += _of_levels(column, labels, shown, min_cell)
        else:
            rows += _of_number(column, labels, shown, min_cell)
    return adjusted(rows)


def adjusted(rows: list[Row]) -> list[Row]:
    """Return rows by cluster, with q over all of them."""
    from scipy.stats import false_discovery_control  # slow to load, as all of scipy.stats

    rows.sort(key=lambda row: row["cluster"])
    if rows:
        p = [1.0 if row["p"] is None else float(row["p"]) for row in rows]
        for row, q in zip(rows, false_discovery_control(p), strict=True):
            row["q"] = None if row["p"] is None else float(q)
    return rows


def _of_levels(column: Levels, labels: Array, shown: Array, min_cell: int) -> list[Row]:
    """Count levels, and return eq. (1) for each level and cluster."""
    table = np.zeros((len(shown), len(column.features) + 1), np.int64)
    np.add.at(table, (labels, column.codes), 1)  # −1, a missing level, is the last
    return level_rows(column.features, table, shown, min_cell)


def level_rows(
    features: tuple[str | None, ...], table: Array, shown: Array, min_cell: int
) -> list[Row]:
    """Return eq. (1) for each level and cluster.

    Parameters
    ----------
    features : (l,), as in `Levels`.
    table : (k, l + 1) rows by cluster and level, missing last.
    """
    k, last = len(shown), len(features)
    rows_hidden, levels_hidden = hidden_levels(table, min_cell)
    known = table[:, :last].sum(axis=1)
    found: list[Row] = []
    for level, feature in enumerate(features):
        if feature is None:
            continue
        total = int(table[:, level].sum())
        for c in range(k):
            told = shown[c] and not (rows_hidden[c] or levels_hidden.any())
            a, n = int(table[c, level]), int(known[c])
            rest = total - a, int(known.sum()) - n
            told = told and n > 0 and rest[1] > 0
            numbers: Row = odds(a, n, *rest) if told else dict.fromkeys(ODDS)
            found.append({"cluster": c, "feature": feature, "kind": "share", **numbers})
    return found


#: Keys of a row besides its names and q.
ODDS = ("share", "rest", "odds_ratio", "difference", "low", "high", "p")


def odds(a: int, n: int, c: int, r: int) -> Row:
    """Return eq. (1) for a of n in the cluster and c of r in the rest, n and r above 0."""
    from scipy.stats import fisher_exact

    cells = np.array([a, n - a, c, r - c]) + 0.5
    middle = float(np.log(cells[0] * cells[3] / (cells[1] * cells[2])))
    spread = Z * math.sqrt(float((1 / cells).sum()))
    return {
        "share": a / n,
        "rest": c / r,
        "odds_ratio": math.exp(middle),
        "difference": None,
        "low": math.exp(middle - spread),
        "high": math.exp(middle + spread),
        "p": float(fisher_exact(np.array([[a, n - a], [c, r - c]])).pvalue),
    }


def _of_number(column: Number, labels: Array, shown: Array, min_cell: int) -> list[Row]:
    """Return eq. (2) for each cluster."""
    found: list[Row] = []
    for c in range(len(shown)):
        parts = [column.values[labels == c], column.values[labels != c]]
        means = [ShownNumber.of(part, min_cell).mean for part in parts]
        numbers: Row = dict.fromkeys(ODDS)
        if shown[c] and None not in means:
            numbers = {"share": means[0], "rest": means[1], **difference(*parts)}
        found.append({"cluster": c, "feature": column.feature, "kind": "mean", **numbers})
    return found


def difference(inside: Array, outside: Array) -> Row:
    """Return eq. (2) for values in the cluster and in the rest, NaN if missing."""
    parts = (v[~np.isnan(v)] for v in (inside, outside))
    return mean_difference(*(Summary(len(v), float(v.mean()), float(v.std(ddof=1))) for v in parts))


class Summary(NamedTuple):
    """Number of values, their mean, and their sd with n − 1."""

    n: int
    mean: float
    sd: float


def mean_difference(x: Summary, y: Summary) -> Row:
    """Return eq. (2) from summaries of the values in the cluster and in the rest."""
    from scipy.stats import ttest_ind_from_stats

    n, r = x.n, y.n
    pooled = ((n - 1) * x.sd**2 + (r - 1) * y.sd**2) / (n + r - 2)
    numbers: Row = dict.fromkeys(("odds_ratio", "difference", "low", "high", "p"))
    if not pooled > 0:
        return numbers
    d = (x.mean - y.mean) / math.sqrt(pooled)
    spread = Z * math.sqrt((n + r) / (n * r) + d * d / (2 * (n + r)))
    test = ttest_ind_from_stats(x.mean, x.sd, n, y.mean, y.sd, r, equal_var=False)
    p = float(test.pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    return numbers | {
        "difference": round(d, DIGITS),
        "low": round(d - spread, DIGITS),
        "high": round(d + spread, DIGITS),
        "p": float(f"{p:.{DIGITS}g}"),
    }
