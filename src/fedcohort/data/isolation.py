"""Check for columns that single out few records, before anything is summed over covariates.

A sum over few records reveals these records, and a column can make any sum one over few: a number
that few records have, an outcome or offset that is huge in one, a weight that leaves the others
almost none. Analysts choose columns. So over several sites a program first asks for counts and
powers of each column, and refuses columns by these rules:

    rare    fewer than `min_cell` records, but some, differ from a public point (the fill of a
            covariate; 0 of an outcome or offset, 1 of a weight); or from their site's median, in
            a covariate whose (Σ d²)²/Σ d⁴ about the public point does not show more records;
            or between two covariates, or a covariate and the outcome; or, if both are 0 or 1,
            agree
    kinds   fewer, but some, are of a class, have the event or have it not, or count above 0; or, if
            all covariates are 0 or 1 (not for Cox's model, whose coefficients are not those
            counts), are so with one value of one of them
    lone    one record makes up nearly all of the d² about the sites' medians:
            (Σ d²)² < `LONE` · Σ d⁴, which holds from a share of `LONE`^-½ of Σ d² on           (1)
    given   others determine it in all but one record: eq. (1) for its residuals at each site
    heavy   (Σ ω)² < `min_cell` · Σ ω², Kish's number of records ("Survey Sampling", Wiley 1965),
            for a record's weight ω = w, or w times e^offset, and e^-offset, by the link;
            over all records, over those with and without a 0/1 covariate, and over those of
            each kind of outcome                                                                (2)

The outcome is a column like the covariates: if it equals a covariate in all but one record, score
and information at the model without covariates reveal that record, Σ (z_j − y) x. An outcome of
K > 2 classes is the 0/1 columns of classes 1 … K − 1, since sums are over the records of each
class; class 0 has the remaining records, and is compared with covariates like the others.
`data.differences` extends the rule "given" once the cross-products are known. Not checked: records
that alone have weight at the coefficients of a later round.

`data.exact` makes these checks. Revealed: `Isolation`, once, as a sum over all sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.classes import WORDS, Cells, Kind, check_each_class, check_kinds
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.numerics.residuals import own_powers
from fedcohort.privacy.disclosure.records import effective, lone, over_few
from fedcohort.protocol.errors import NothingToLearn
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed

#: Deviations, exponents and weights are cut to these, so that an exact sum
#: (`secure.arithmetic.ring`) can hold their powers over a thousand million records.
FARTHEST, STEEPEST, HEAVIEST = 1e16, 75.0, 1e33
#: Error bound of an exact sum of fourth powers over a thousand sites. A column, or weights, with
#: powers near it could hide a record, and are refused.
ROUNDED = 2.0**-119
_CLEAR = 2.0**10 * ROUNDED
#: Most comparisons of all pairs of columns that are made at once.
SMALL = 2**17
#: A caution names this many columns.
NAMED = 5
#: Links with which e^offset acts as a weight; and those with which it or its inverse does.
GROWS, TURNS = ("log",), ("logit", "probit", "cloglog")


@message
class Isolation:
    """Counts and powers of q columns: covariates, outcome, offset, weights.

    The outcome is m columns: m = 1, or K − 1 of K > 2 classes. ``rows`` (); ``away`` and ``odd``
    (q,), records that differ from the public point and from their site's median; ``squares`` and
    ``fourth`` (2, q), Σ d² and Σ d⁴ about the point and the median; ``differ`` (p, p), records in
    which two covariates differ; ``unlike`` (p,) or (p, K), in which a covariate and the outcome, or
    a class, do; ``cells`` (p,) or (p, K), records with an outcome above 0, or of a class, that are
    away in each covariate, if the outcome has kinds; ``rest`` (2, p + m), Σ r² and Σ r⁴ of the
    residuals of covariates and outcome on the others at their site; ``hold`` (·, 2, ·), Σ ω and
    Σ ω² of eq. (2) over all records, for each covariate times the d² about the point, at most 1,
    and if the outcome has kinds over those above 0, or of each of K classes.
    """

    rows: Array
    away: Array
    odd: Array
    squares: Array
    fourth: Array
    differ: Array
    unlike: Array
    cells: Array
    rest: Array
    hold: Array


class Columns(NamedTuple):
    """What is known of columns before any products are summed.

    Attributes
    ----------
    shown : (q,), (Σ d²)²/Σ d⁴ about the sites' medians.
    squares : (q,), Σ d².
    rest : (2, q), as in `Isolation`.
    """

    shown: Array
    squares: Array
    rest: Array


@summed(blocks="rows")
def isolation(
    site: Site[LabelledTable | SurvivalTable, None],
    *,
    origin: Array,
    link: str,
    offset: bool,
    kinds: bool,
    n_classes: int,
) -> Isolation:
    """Count the records that differ in each column, and sum the powers of their distances.

    origin : (q,), the public point. The last column of x may be an offset; weights come last of
        all.
    kinds : whether the outcome, for survival the event, has the kinds 0 and above.
    n_classes : K of an outcome of more than two classes; 0 for any other.
    """
    table = site.data
    n = len(table.x)
    weight = np.ones(n) if table.weight is None else table.weight
    shift = table.x[:, -1:] if offset else np.zeros((n, 0))
    outcome = np.asarray(table.y if isinstance(table, LabelledTable) else table.event, float)
    covariates = table.x[:, : table.x.shape[1] - offset]
    p = covariates.shape[1]
    steep = np.clip(shift[:, :1].sum(axis=1), -STEEPEST, STEEPEST)
    every = by_class(outcome, n_classes)
    told = every[:, 1:] if n_classes else every
    columns = np.column_stack([covariates, told, shift, weight]).astype(float, copy=False)
    left = (outcome - steep)[:, None] if link == "identity" and not n_classes else told
    away = (columns[:, :p] != origin[:p]).astype(np.int64)
    half = n // 2
    median = np.partition(columns, half, axis=0)[half] if n else origin
    apart = [np.clip(columns - point, -FARTHEST, FARTHEST) ** 2 for point in (origin, median)]
    kind = every if n_classes else (outcome[:, None] > 0) * 1.0
    held = np.column_stack(
        [np.ones(n), np.minimum(apart[0][:, :p], 1.0), kind[:, : len(kind.T) * kinds]]
    )
    trusted = np.minimum(weight, HEAVIEST)
    count = [
        np.minimum(trusted * np.exp(way * steep), HEAVIEST)
        for way in (ways(link) if offset else (0,))
    ]
    return Isolation(
        rows=np.array(n),
        away=(columns != origin).sum(axis=0),
        odd=(columns != median).sum(axis=0),
        squares=np.array([d.sum(axis=0) for d in apart]),
        fourth=np.array([(d * d).sum(axis=0) for d in apart]),
        differ=disagreements(covariates),
        unlike=_of_outcome(
            [(covariates != one[:, None]).sum(axis=0) for one in every.T], n_classes
        ),
        cells=_of_outcome([kinds * (one > 0) @ away for one in every.T], n_classes),
        rest=own_powers(np.column_stack([covariates, left])),
        hold=np.array([[c @ held, c**2 @ held**2] for c in count]),
    )


def by_class(outcome: Array, classes: int) -> Array:
    """Return an outcome (n,) as the 0/1 columns of its K classes, (n, K); without, as (n, 1)."""
    return (outcome[:, None] == np.arange(classes)) * 1.0 if classes else outcome[:, None]


def _of_outcome(columns: Sequence[Array], classes: int) -> Array:
    """Return counts of a covariate with each column of the outcome: (p, K), or (p,) of one."""
    return np.column_stack(columns) if classes else columns[0]


def check_isolation(
    found: Isolation,
    names: Sequence[str],
    covariates: int,
    least: int,
    kind: Kind,
    classes: Sequence[str] = (),
) -> str:
    """Refuse columns that single out fewer than `least` records, by the header's rules.

    Parameters
    ----------
    names : of the covariates and, if there is one, the offset.
    covariates : number of covariates among them.
    least : `min_cell`.
    classes : of an outcome of more than two.

    Returns
    -------
    caution : what sums, though not coefficients, reveal of few records; "" if nothing.

    Raises
    ------
    NothingToLearn : a column is refused; the message names the first.
    """
    if found.rows < least:
        return ""  # the program refuses it
    agree = "or lower min_cell, if all sites agree."
    weighty = heavy(found, covariates, least)
    if weighty[:, 0].any():
        raise NothingToLearn(_too_heavy("", least, agree))
    ends = [*(f"class {one!r} of the outcome" for one in classes)] or ["the outcome"]
    told = ends[1:] or ends
    called = [*map(repr, names[:covariates]), *told, *map(repr, names[covariates:])]
    called.append("the column of weights")
    for j in np.flatnonzero((found.odd > 0) & (found.squares[1] ** 2 < _CLEAR)):
        raise NothingToLearn(_too_small(called[j]))
    if (found.hold[:, 0, 0] ** 2 < _CLEAR).any():
        raise NothingToLearn(_too_small("the column of weights, or an offset,"))
    few = rare(found, covariates, least)
    alone = lone(found.squares[1], found.fourth[1]) & ~few
    if kind != "number":
        few[covariates : covariates + len(told)] = False
        if classes:
            check_each_class(_sizes(found, covariates, len(classes)), classes, least)
        else:
            check_kinds(int(found.rows), int(found.away[covariates]), kind, least)
    for j in np.flatnonzero(few):
        raise NothingToLearn(
            f"{called[j]} has the same value in all but a few records (fewer than min_cell, "
            f"{least}) at all sites together, so that sums are over those few. Leave it out, "
            f"{agree}"
        )
    others = [*called[:covariates], *ends]
    for j, i in np.argwhere(alike(found, covariates, least)):
        raise NothingToLearn(
            f"{called[j]} and {others[i]} agree in all but a few records, or in a few (fewer than "
            f"min_cell, {least}) at all sites together, so that sums are over those few. Leave "
            f"{called[j] if i >= covariates else 'one of them'} out, {agree}"
        )
    for j in np.flatnonzero(alone):
        raise NothingToLearn(too_far(called[j], "at all sites together"))
    if (given := lone(*found.rest)).any():
        blame = [called[j] for j in np.flatnonzero(given)]
        raise NothingToLearn(nearly_given(blame, "at all sites together", least))
    for j in np.flatnonzero(weighty[:, 1:].any(axis=0)):
        whose = f" that have {called[j]}, or have not" if j < covariates else f" {WORDS[kind]}"
        raise NothingToLearn(_too_heavy(whose.rstrip(","), least, agree))
    return "" if kind == "number" else _cells(found, names, covariates, least, kind)


def _sizes(found: Isolation, covariates: int, classes: int) -> list[int]:
    """Return the number of records of each class, (K,)."""
    rest = found.away[covariates : covariates + classes - 1].tolist()
    return [int(found.rows) - sum(rest), *rest]


def _cells(found: Isolation, names: Sequence[str], covariates: int, least: int, kind: Kind) -> str:
    """Refuse levels with few records of one kind of outcome, or return a caution about them."""
    level = levels(found, covariates)
    sizes, cells = [int(found.away[covariates])], found.cells[:, None]
    if found.cells.ndim > 1:
        sizes, cells = _sizes(found, covariates, found.cells.shape[1]), found.cells
    counted = [
        Cells(int(found.rows), some, found.away[:covariates], both).small(names, level, least)
        for some, both in zip(sizes, cells.T, strict=True)
    ]
    small = [n for n, s in zip(names, np.any(counted, axis=0), strict=False) if s]
    if not small:
        return ""
    named, more = ", ".join(map(repr, small[:NAMED])), len(small) - NAMED
    said = (
        f"fewer than {least} records (min_cell) {WORDS[kind]} have one value of {named}"
        f"{f' and {more} other columns' * (more > 0)}"
    )
    if kind != "event" and level.all() and len(names) == covariates:
        raise NothingToLearn(
            f"{said}, at all sites together. As all covariates are levels, coefficients reveal "
            f"how many. Join levels (pool_levels), leave it out, or lower min_cell, if all sites "
            f"agree."
        )
    return (
        f"{said}; sums show the coordinator how many, and coefficients show readers about how many"
    )


def _too_small(column: str) -> str:
    return (
        f"{column} has numbers so small that an exact sum of their powers loses them, and could "
        f"not show that one record stands alone. Give it in a smaller unit, or scale it."
    )


def _too_heavy(whose: str, least: int, agree: str) -> str:
    return (
        f"with these weights, or this offset, fewer than {least} records (min_cell) count for "
        f"nearly all{whose}, so that sums are over those few. Leave them out, cut them to a limit, "
        f"{agree}"
    )


def too_far(column: str, where: str) -> str:
    """Return the error text for a column in which one record is far from all others."""
    return (
        f"{column} has, {where}, one record so far from the others that sums with it reveal it. "
        f"Correct it, cut the column to a limit (winsorise), take its logarithm or leave it out; "
        f"or lower min_cell, if all sites agree."
    )


def nearly_given(columns: Sequence[str], where: str, least: int) -> str:
    """Return the error text for columns of which the others determine one except in few records."""
    one, named = ("one of " if len(columns) > 1 else ""), ", ".join(columns)
    return (
        f"{one}{named} follows from other columns, {where}, in all but a few records (fewer than "
        f"min_cell, {least}), so that sums reveal those. Leave one of them out; or lower min_cell, "
        f"if all sites agree."
    )


def ways(link: str) -> tuple[int, ...]:
    """Return the multiples of an offset whose exponential may be a record's weight."""
    return (0, 1) if link in GROWS else (0, 1, -1) if link in TURNS else (0,)


def heavy(found: Isolation, covariates: int, least: int) -> Array:
    """Return which weights (m, ·) are over few records, by eq. (2): of all, by covariate, and by
    kind of outcome.
    """
    total, squares = found.hold[:, 0], found.hold[:, 1]
    few = over_few(total, squares + ROUNDED, least) & (total > 0)
    level = np.r_[levels(found, covariates), np.ones(total.shape[1] - 1 - covariates, bool)]
    rest, others = total[:, :1] - total[:, 1:], squares[:, :1] - squares[:, 1:]
    few[:, 1:] |= over_few(rest, others + ROUNDED, least) & (rest > 0)
    few[:, 1:] &= level
    return few


def rare(found: Isolation, covariates: int, least: int) -> Array:
    """Return the columns (q,) in which all but a few records share a value."""
    shown = np.where(found.fourth[0] > 0, effective(found.squares[0], found.fourth[0]), 0.0)
    odd = found.odd.astype(float)
    odd[:covariates] = np.maximum(odd, np.ceil(shown))[:covariates]
    few = np.minimum(found.away, np.where(odd > 0, odd, found.away))
    return (few > 0) & (few < least)


def alike(found: Isolation, covariates: int, least: int) -> Array:
    """Return the pairs of columns that differ, or if both are 0 or 1 agree, in few records.

    (p, p + 1), of covariates, and of covariates and outcome, above the diagonal; (p, p + K) with K
    > 2 classes, of which a covariate is compared with those that have records.
    """
    level = levels(found, covariates + 1)
    differ = np.column_stack([found.differ, found.unlike])
    if found.unlike.ndim > 1:
        there = np.array(_sizes(found, covariates, found.unlike.shape[1])) > 0
        level = np.r_[level[:covariates], there]
        differ[:, covariates:] *= there
    agree = np.where(np.outer(level[:covariates], level), found.rows - differ, 0)
    few = (differ > 0) & (differ < least)
    return np.triu(few | ((agree > 0) & (agree < least)), 1)


def levels(found: Isolation, columns: int) -> Array:
    """Return which of the first columns (p,) have two values, one of them the public point."""
    two: Array = (found.squares[0] == found.fourth[0]) & (found.away > 0)
    return two[:columns]


def disagreements(columns: Array) -> Array:
    """Return the number of rows of (n, p) in which two columns differ, (p, p)."""
    rows = np.ascontiguousarray(columns.T)
    if len(rows) * rows.size <= SMALL:
        return np.count_nonzero(rows[:, None] != rows, axis=2)
    out = np.zeros((len(rows), len(rows)), np.int64)
    for j, row in enumerate(rows):
        out[j, j + 1 :] = np.count_nonzero(rows[j + 1 :] != row, axis=1)
    return out + out.T
