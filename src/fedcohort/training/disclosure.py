"""Check whether a result of one site's rows alone tells about few of them.

A site that shows its own coefficients, or the sums behind them, is not protected by other sites'
rows. With m = `min_cell`, it tells only the reason if

    few         there are fewer than m rows more than coefficients
    kinds       the outcome has kinds, and fewer than m rows are of one kind; if the result does not
                need rows of each kind, 1 to m − 1 rows are
    rare        1 to m − 1 rows do not have the most common value of a covariate or the outcome
    cells       1 to m − 1 rows of one kind have one value of a covariate of two values. For k
                coefficients only if all covariates have two values, and at most k (k + 3)/2
                patterns, which they could tell; then also if so few rows have one pattern
    crossed     1 to m − 1 rows have one pair of values of two such covariates; for sums alone
    alone       one row has nearly all of the squares of a column about its median
    near        other columns give a covariate, or the outcome, in all but few rows
                (`data.differences`)

A covariate that does not vary is none of these: a penalty leaves it out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.differences import own_differences
from fedcohort.data.isolation import by_class
from fedcohort.numerics.collinearity import quoted
from fedcohort.privacy.disclosure.records import lone

#: Reasons to hide a result.
FINE, FEW, KINDS, RARE, CELLS, CROSSED, ALONE, NEAR, SAME = range(9)


class Hidden(NamedTuple):
    """A reason, `FINE` for none, and its covariates (p,)."""

    reason: int
    blame: Array


def hidden(
    x: Array, y: Array, coefficients: int, least: int, *, kinds: int, crossed: bool, every: bool
) -> Hidden:
    """Return why a site must hide its result, or `FINE`.

    Parameters
    ----------
    x, y : (n, p), (n,).
    coefficients : k.
    kinds : number of kinds of y, 0, 1, …; 0 if it has none.
    crossed : whether sums of products of covariates are told as well.
    every : whether rows of every kind are needed.
    """
    nobody = np.zeros(x.shape[1], bool)
    if len(x) - coefficients < max(least, 1):
        return Hidden(FEW, nobody)
    kind = np.asarray(y, int) if kinds else np.zeros(len(y), int)
    of_kind = np.bincount(kind, minlength=kinds)
    if kinds and (of_kind[of_kind >= (not every)] < max(least, 1)).any():
        return Hidden(KINDS, nobody)
    if least < 2:
        return Hidden(FINE, nobody)
    told = by_class(y, kinds)[:, 1:] if kinds else y[:, None]
    columns = np.column_stack([x, y])
    squares = (columns - np.median(columns, axis=0)) ** 2
    far = lone(squares.sum(axis=0), (squares**2).sum(axis=0))
    if far[-1] and not kinds:
        return Hidden(ALONE, nobody)
    if 0 < len(y) - np.unique(y, return_counts=True)[1].max() < least:
        return Hidden(SAME, nobody)
    rarer = np.array([len(x) - np.unique(c, return_counts=True)[1].max() for c in x.T], int)
    places = [np.unique(c, return_inverse=True)[1] for c in x.T]
    two = [i for i, place in enumerate(places) if place.max() == 1]
    pattern = np.unique(x, axis=0, return_inverse=True)[1].reshape(-1)
    varied = np.flatnonzero(rarer)
    tellable = coefficients * (coefficients + 3) // 2
    patterned = len(two) == len(varied) and pattern.max() < tellable
    cells = [i for i in two if kinds and _few(places[i], kind, least)]
    small = kinds and patterned and not crossed and _few(pattern, kind, least)
    pairs = [(i, j) for i in two for j in two if i < j and _few(places[i], places[j], least)]
    near = nobody.copy()
    if len(varied):
        # each column more raises a record's leverage, which hides it among residuals
        for others in (told, told[:, :0]):
            found = own_differences(np.column_stack([x[:, varied], others]), least)
            near[varied] |= found[: len(varied)]
    tried = (
        Hidden(RARE, (rarer > 0) & (rarer < least)),
        Hidden(CELLS, _marked(nobody, [(i,) for i in cells] if crossed or patterned else [])),
        Hidden(CELLS, _marked(nobody, [(i,) for i in two] if small else [])),
        Hidden(CROSSED, _marked(nobody, pairs if crossed else [])),
        Hidden(ALONE, far[:-1]),
        Hidden(NEAR, near),
    )
    return next((one for one in tried if one.blame.any()), Hidden(FINE, nobody))


def why(found: Hidden, names: tuple[str, ...], least: int) -> str:
    """Return the text of the reason, with a remedy."""
    blame = quoted([n for n, b in zip(names, found.blame.tolist(), strict=True) if b])
    also = " and the outcome" if found.blame.sum() == 1 else ""
    return {
        FEW: f"fewer than {least} rows more than coefficients (min_cell); join it with another",
        KINDS: f"fewer than {least} rows of one kind of outcome (min_cell); join it with another",
        RARE: f"fewer than {least} rows differ from the most common value of {blame} (min_cell); "
        f"drop it, or join rare levels (pool_levels)",
        SAME: f"fewer than {least} rows differ from the most common value of the outcome "
        f"(min_cell); join it with another",
        CELLS: f"fewer than {least} rows of one kind of outcome have one value of {blame} "
        f"(min_cell); drop it, or join rare levels (pool_levels)",
        CROSSED: f"fewer than {least} rows have one pair of values of {blame} (min_cell); drop "
        f"one, or join rare levels (pool_levels)",
        ALONE: f"one row is so far from the others in {blame or 'the outcome'} that sums tell "
        f"it; correct it, or cut the column to a limit (winsorise)",
        NEAR: f"{blame}{also}: the others give one of them in all but fewer than {least} rows "
        f"(min_cell); drop one",
    }[int(found.reason)]


def _few(one: Array, other: Array, least: int) -> bool:
    counts = np.bincount((int(other.max(initial=0)) + 1) * one + other)
    return bool(((counts > 0) & (counts < least)).any())


def _marked(nobody: Array, groups: list[tuple[int, ...]]) -> Array:
    out = nobody.copy()
    for group in groups:
        out[list(group)] = True
    return out
