"""Shift between sites: in features, in the outcome, in the outcome given a feature, in gradients.

Each pair of sites is compared by tables of counts on common cells (`metrics.shift`): the levels of
a category or a yes/no variable, and for a number about `CELLS` cells between edges computed from
Table 1 over all sites (`data.describe.bins`).

    feature       a feature's cells
    label         the outcome's cells; for survival, those of event and time
    conditional   the outcome's groups within the cells of each feature: its levels, the event, or
                  values up to and above the edge next to the median
    gradient      the cosine of the gradients of two sites at the common model without covariates:
                  the shares of levels, the mean, or a constant hazard (Sattler et al., IEEE Trans.
                  Neural Netw. Learn. Syst. 32(8), 2021, who compare gradients during training)

The gradient of site i at that model is, over its rows, with r = 1(y = l) − π_l, (y − m)/s, or
δ − λt, and standardised numbers and indicators of levels x (missing ones 0),

    g_i = mean of (1, x) r,   cos_ij = g_iᵀ g_j/(‖g_i‖ ‖g_j‖)                              (1)

over the parts that both sites show. If all sites have the gradient ḡ, and rows have the total
variance v, the expected cosine of two sites is about

    ‖ḡ‖²/√((‖ḡ‖² + v/n_i)(‖ḡ‖² + v/n_j)),   with v/n subtracted from the observed ‖ḡ‖²        (2)

p-values are of single tables, adjusted for all comparisons (Holm). A shift of the feature within
wide cells remains, and may look like a conditional one.

Revealed, once, of each site: its Table 1 (`SiteTable`), `SiteCells` and `Pull`, without anything of
few rows. Sums over sites are no alternative: those of pairs give each site's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from fedcohort.algorithms.shift.model import ShiftModel
from fedcohort.algorithms.shift.settings import ShiftSettings
from fedcohort.algorithms.shift.steps import Pull, SiteCells, check_edges, count_cells, pull_here
from fedcohort.arrays import Array
from fedcohort.data.describe import Reading, by_site, variables_of
from fedcohort.data.describe.agreed import Agreed
from fedcohort.data.describe.bins import edges_of
from fedcohort.data.describe.shown_number import HIDDEN
from fedcohort.data.describe.summary import Summary, over_all
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, Survival, columns_of
from fedcohort.metrics.shift import NONE, Divergence, divergence, divergence_within, together
from fedcohort.protocol import DataError, Federation, Refused, Row, Task
from fedcohort.training import disclosure

#: Approximate number of cells of a number.
CELLS = 8


def fit(fed: Federation, config: ShiftSettings, task: Task) -> ShiftModel:
    """Compare all pairs of sites.

    Raises
    ------
    DataError : no column that can be compared, or fewer than two sites with `min_cell` rows.
    """
    reading, outcome = reading_of(task), cast("Outcome | None", task.outcome_of)
    next(iter(fed.rounds(1)))
    asked = {} if task.agreed is None else cast("Agreed", task.agreed).asked
    tables = by_site(fed, reading.variables, min_cell=task.min_cell, asked=asked)
    shown = {s.site: s.rows for s in tables if s.site is not None}
    sites = tuple(sorted(s for s, rows in shown.items() if rows))
    if len(sites) < 2:
        raise DataError(
            f"{len(sites)} sites have {task.min_cell} rows or more (min_cell), and a shift needs "
            f"two. Join sites, or lower min_cell, if all agree."
        )
    few = sorted(shown.keys() - {*sites})
    overall = _over_shown(tables, task.min_cell)
    label, other = places_of(reading, outcome)
    view = fed.only(sites).through(reading.view)
    edges = _edges([overall[v.name] for v in reading.view.numeric])
    cut = _median(overall, reading, edges, label)
    crossed = label if config.conditional and math.isfinite(cut) else -1
    taken = columns_of(outcome)
    columns = (*reading.view.numeric, *reading.view.coded)
    within = np.array([crossed >= 0 and v.name not in taken for v in columns], bool)
    cells = view.gather(
        count_cells, edges=edges, n_levels=reading.n_levels,
        label=crossed, cut=np.array([cut if crossed >= 0 else 0.0]), within=within,
        min_cell=task.min_cell, **asked,
    )  # fmt: skip
    sites = tuple(s for s in sites if s in cells)
    counted = {site: _counted(tables, reading, site) for site in sites}
    groups: dict[str, Array | None] = dict.fromkeys(sites)
    if crossed >= 0:
        number = crossed < len(edges)
        inner = edges[crossed][np.isfinite(edges[crossed])] if number else np.zeros(0)
        groups = {s: _groups(cells[s], inner, crossed, cut, number) for s in sites}
    own = {s: cells[s] for s in sites}
    rows = _tables(reading, outcome, edges, own, counted, groups, crossed)
    left_out = dict.fromkeys(few, f"fewer than {task.min_cell} rows (min_cell)")
    null = _null(overall, reading, outcome, label, other)
    if config.gradients and label >= 0 and null is not None:
        pulls = _pulls(view.only(sites), reading, overall, outcome, (label, other), null, task)
        rows += _cosines({s: (int(cells[s].rows), pulls[s]) for s in sites if s in pulls})
    fed.record(sites=float(len(sites)), compared=float(len(rows)))
    return ShiftModel.of(sites, rows, config.level, left_out)


def reading_of(task: Task) -> Reading:
    """Return the variables that are compared: the outcome, then the features.

    Raises
    ------
    DataError : there are none.
    """
    dictionary = cast("Dictionary", task.dictionary)
    found = variables_of(dictionary, cast("Outcome | None", task.outcome_of))
    if not found:
        raise DataError(
            "no column can be compared: all are identifiers, dates or text. Correct their types in "
            "the dictionary."
        )
    return Reading(found)


def places_of(reading: Reading, outcome: Outcome | None) -> tuple[int, int]:
    """Return the places of the outcome, or of event and time, among the columns; else −1 and 0."""
    if outcome is None:
        return -1, 0
    if isinstance(outcome, Survival):
        return reading.place[outcome.event], reading.place[outcome.time]
    return reading.place[outcome.label], 0


def law_of(reading: Reading, outcome: Outcome | None) -> str:
    """Return the kind of outcome, one of `steps.LAWS`."""
    if outcome is None:
        return ""
    if isinstance(outcome, Survival):
        return "survival"
    return "levels" if reading.levels[outcome.label] else "number"


def _over_shown(tables: Sequence[Summary], min_cell: int) -> dict[str, Summary]:
    """Return each variable's summary over the sites that show most of it.

    With the other sites, small ones would hide it.
    """
    out: dict[str, Summary] = {}
    for name in dict.fromkeys(s.variable.name for s in tables):
        own = [s for s in tables if s.variable.name == name and s.site and s.rows]
        best = [s for s in own if s.quartiles is not None]
        best = best or [s for s in own if s.mean is not None]
        full = [s for s in own if s.levels and None not in s.counts]
        if kept := best or full or own:
            out[name] = over_all(kept, min_cell)
    return out


def _median(overall: Mapping[str, Summary], reading: Reading, edges: Array, label: int) -> float:
    """Return the edge next to the median of the outcome; 0 for levels, nan without an edge."""
    if not 0 <= label < len(reading.view.numeric):
        return 0.0
    one, own = overall[reading.view.numeric[label].name], edges[label][np.isfinite(edges[label])]
    middle = one.quartiles[1] if one.quartiles is not None else one.mean
    if middle is None or not len(own):
        return math.nan
    return float(own[np.argmin(np.abs(own - middle))])


def _edges(shown: Sequence[Summary]) -> Array:
    """Return the edges (c, b) of numbers, padded with inf."""
    limits = [edges_of(s, CELLS) for s in shown]
    limits = [e if _fit_for_cells(e) else e[:0] for e in limits]
    out = np.full((len(limits), max([1, *map(len, limits)])), np.inf)
    for j, e in enumerate(limits):
        out[j, : len(e)] = e
    return out


def _fit_for_cells(edges: Array) -> bool:
    """Return whether sites count between edges (b,)."""
    try:
        check_edges(edges)
    except Refused:
        return False
    return True


def _counted(tables: Sequence[Summary], reading: Reading, site: str) -> Array:
    """Return the number of a site's rows (v,) in the cells of each variable, −1 if not shown."""
    out = np.full(len(reading.variables), HIDDEN)
    for s in (s for s in tables if s.site == site and s.rows is not None):
        j = reading.place[s.variable.name]
        gone = 0 if s.levels else s.missing
        out[j] = HIDDEN if gone is None or s.rows is None else s.rows - gone
    return out


def _tables(
    reading: Reading,
    outcome: Outcome | None,
    edges: Array,
    cells: Mapping[str, SiteCells],
    counted: Mapping[str, Array],
    groups: Mapping[str, Array | None],
    label: int,
) -> list[Row]:
    """Return a row for each pair of sites and table that both show."""
    taken = columns_of(outcome)
    out: list[Row] = []
    c = len(reading.view.numeric)
    for v in reading.variables:
        j = reading.place[v.name]
        k = int(np.isfinite(edges[j]).sum()) + 1 if j < c else int(reading.n_levels[j - c]) + 1
        if j < c and k < 2:
            continue
        kind = "label" if v.name in taken else "feature"
        for one, two in itertools.combinations(cells, 2):
            pair, rows = (cells[one], cells[two]), (int(counted[one][j]), int(counted[two][j]))
            found = _compared(pair[0].cells[j, :k], pair[1].cells[j, :k], rows)
            out.append(_row(kind, v.name, one, two, found))
            if kind == "feature" and label >= 0:
                both = (_Crossed(s.crossed[j, : k + (j < c)], groups[n]) for n, s in cells.items()
                        if n in (one, two))  # fmt: skip
                out.append(_row("conditional", v.name, one, two, _within(*both)))
    return [r for r in out if not math.isnan(r["value"])]


def _compared(a: Array, b: Array, rows: tuple[int, int]) -> Divergence:
    """Return the divergence of two sites' cells (k,), with these total numbers of rows."""
    if min(rows) <= 0:
        return NONE
    return divergence(together(a, b, (a == HIDDEN) | (b == HIDDEN), *rows))


class _Crossed(NamedTuple):
    """A site's table by the outcome's groups (k, g), and its rows in each group (g,), if shown."""

    table: Array
    groups: Array | None


def _within(one: _Crossed, two: _Crossed) -> Divergence:
    """Return the divergence of groups within cells that both sites show; the others are one."""
    pair = (one, two)
    shown = np.all([(p.table != HIDDEN).all(axis=1) for p in pair], axis=0)
    if not shown.any():
        return NONE
    tables = [p.table[shown] for p in pair]
    if not shown.all():
        rest = [None if p.groups is None else p.groups - t.sum(axis=0)
                for p, t in zip(pair, tables, strict=True)]  # fmt: skip
        tables = [t if r is None or rest[0] is None or rest[1] is None else np.vstack([t, r])
                  for t, r in zip(tables, rest, strict=True)]  # fmt: skip
    return divergence_within(np.stack(tables))


def _groups(one: SiteCells, own: Array, label: int, cut: float, number: bool) -> Array | None:
    """Return a site's rows in the outcome's groups (g,), from its cells; None if not shown.

    `own` are the edges of an outcome that is a `number`.
    """
    g = one.crossed.shape[2]
    if not number:
        counts = one.cells[label, 1 : 1 + g]
        return None if (counts == HIDDEN).any() else counts
    counts = one.cells[label, : len(own) + 1]
    if (counts == HIDDEN).any():
        return None
    below = int(np.searchsorted(own, cut)) + 1
    return np.array([counts[:below].sum(), counts[below:].sum()])


def _row(kind: str, variable: str, one: str, two: str, found: Divergence) -> Row:
    return {
        "kind": kind,
        "variable": variable,
        "site": one,
        "other": two,
        "value": found.js,
        "expected": found.expected,
        "p": found.p,
    }


# gradients ----------------------------------------------------------------------------


def _null(
    overall: Mapping[str, Summary],
    reading: Reading,
    outcome: Outcome | None,
    label: int,
    other: int,
) -> Array | None:
    """Return the model without covariates, as in `steps.pull_here`; None if it is hidden."""
    law = law_of(reading, outcome)
    if not law:
        return None
    c = len(reading.view.numeric)
    columns = (*reading.view.numeric, *reading.view.coded)
    one = overall[columns[label].name]
    if law == "number":
        return None if one.mean is None or not one.sd else np.array([one.mean, one.sd])
    counts = [n for n in one.counts if n is not None]
    if len(counts) < len(one.levels) or not sum(counts):
        return None
    shares = np.array(counts) / sum(counts)
    if law == "levels":
        return shares
    time = overall[columns[other].name].mean if other < c else None
    return None if not time else np.array([shares[1] / time])


def _pulls(
    fed: Federation,
    reading: Reading,
    overall: Mapping[str, Summary],
    outcome: Outcome | None,
    places: tuple[int, int],
    null: Array,
    task: Task,
) -> dict[str, Pull]:
    """Return the gradients of the sites that show theirs."""
    taken = columns_of(outcome)
    numbers = [overall[v.name] for v in reading.view.numeric]
    used = [s.mean is not None and bool(s.sd) and s.variable.name not in taken for s in numbers]
    n_levels = [
        0 if v.name in taken else int(n)
        for v, n in zip(reading.view.coded, reading.n_levels, strict=True)
    ]
    replies = fed.gather(
        pull_here,
        centre=np.array([s.mean if u else 0.0 for s, u in zip(numbers, used, strict=True)], float),
        spread=np.array([s.sd if u else 0.0 for s, u in zip(numbers, used, strict=True)], float),
        n_levels=np.array(n_levels, np.int64), label=places[0], other=places[1],
        law=law_of(reading, outcome), null=null, min_cell=task.min_cell,
        **({} if task.agreed is None else cast("Agreed", task.agreed).asked),
    )  # fmt: skip
    return {site: one for site, one in replies.items() if int(one.reason) == disclosure.FINE}


def _cosines(pulls: Mapping[str, tuple[int, Pull]]) -> list[Row]:
    """Return eqs. (1) and (2) of each pair, from rows and gradients by site."""
    out: list[Row] = []
    if len(pulls) < 2:
        return out
    n = np.array([rows for rows, _ in pulls.values()], float)
    shown = np.stack([one.shown for _, one in pulls.values()]).astype(float)
    mean = np.stack([one.mean for _, one in pulls.values()])
    square = np.stack([one.sd for _, one in pulls.values()]) ** 2
    weight = n[:, None] * shown
    total = np.maximum(weight.sum(axis=0), 1.0)
    common, spread = (weight * mean).sum(axis=0) / total, (weight * square).sum(axis=0) / total
    for (i, one), (j, two) in itertools.combinations(enumerate(pulls), 2):
        both = (shown[i] * shown[j]).astype(bool)
        a, b = mean[i, both], mean[j, both]
        size = math.sqrt(float(a @ a) * float(b @ b))
        if size <= 0:
            continue
        v = float(spread[both].sum())
        g = max(0.0, float((common[both] ** 2 - spread[both] / total[both]).sum()))
        least = math.sqrt((g + v / n[i]) * (g + v / n[j]))
        found = Divergence(float(a @ b) / size, g / least if least > 0 else math.nan, math.nan, 0)
        out.append(_row("gradient", "", one, two, found))
    return out
