"""What becomes of a category: which levels are kept, and which become one.

Levels with fewer than `least` rows at all sites together are pooled, so that no feature, and no
coefficient, belongs to fewer; a column that says where a level is missing needs as many. Where the
pool itself has fewer, the rarest of the others joins it, until it has as many: what is pooled
because it is rare is not shown by being alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Variable
from fedcohort.data.prepare.columns import LevelColumn

#: Why a column gives no feature that is missing everywhere.
NO_VALUES = "no values"


@dataclass(frozen=True)
class Dropped:
    """A column that gives no feature, and why."""

    name: str
    reason: str


def level_column(
    v: Variable, counts: Array, rows: int, *, least: int, indicator: bool
) -> LevelColumn | Dropped:
    """Return what becomes of one category.

    Parameters
    ----------
    counts : (at least as many as levels,) rows of each level at all sites.
    rows : of all sites.
    least : rows below which a level is pooled.
    indicator : whether a column shall say where the level is missing.
    """
    number = dict(zip(v.levels, counts.tolist(), strict=False))
    kept = [level for level in v.levels if number[level] > 0]
    if len(kept) < 2:
        return Dropped(v.name, "constant" if kept else NO_VALUES)
    pooled = _pooled(kept, number, least)
    if pooled:
        kept = [level for level in kept if level not in pooled]
        if not kept:
            return Dropped(v.name, f"fewer than {least} rows beside one level")
        number[other := _other(v)] = sum(number[level] for level in pooled)
        kept.append(other)
        pooled = {level for level in v.levels if level not in kept}
    return LevelColumn(
        name=v.name,
        type=v.type,
        levels=v.levels,
        kept=tuple(kept),
        pooled=tuple(level for level in v.levels if level in pooled),
        fill=max(kept, key=lambda level: number[level]),
        indicator=indicator and rows - sum(number[k] for k in kept) >= max(least, 1),
        view=v.view,
    )


def _pooled(kept: list[str], number: dict[str, int], least: int) -> set[str]:
    """Return the levels of fewer than `least` rows, and those that must join them."""
    by_rows = sorted(kept, key=lambda level: number[level])
    pooled = [level for level in by_rows if number[level] < least]
    while pooled and len(pooled) < len(by_rows) and sum(map(number.__getitem__, pooled)) < least:
        pooled.append(by_rows[len(pooled)])
    return set(pooled)


def _other(v: Variable) -> str:
    """Return a name for the pooled levels that is none of the column's own."""
    name = "other"
    while name in v.levels:
        name += " levels"
    return name
