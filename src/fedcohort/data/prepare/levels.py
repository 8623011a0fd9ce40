"""Design of a category: levels that are kept, and rare levels that are pooled into one.

Levels with fewer than `min_rows` rows over all sites are pooled, so that no feature and no
coefficient belongs to fewer. If the pool itself has fewer rows, the rarest of the other levels join
it until it has enough; otherwise the pool would show a rare level. A column that indicates a
missing level needs as many rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Variable
from fedcohort.data.prepare.columns import LevelColumn

#: Reasons for dropping a column: it is missing everywhere, or has one value.
NO_VALUES = "no values"
CONSTANT = "constant"


@dataclass(frozen=True)
class Dropped:
    """A column that gives no feature, and the reason."""

    name: str
    reason: str


def level_column(
    v: Variable, counts: Array, rows: int, *, min_rows: int, indicator: bool
) -> LevelColumn | Dropped:
    """Return the design of one category.

    Parameters
    ----------
    counts : (at least as many as levels,) rows of each level at all sites.
    rows : of all sites.
    min_rows : a level with fewer rows is pooled.
    indicator : whether to add a column that indicates a missing level.
    """
    number = dict(zip(v.levels, counts.tolist(), strict=False))
    kept = [level for level in v.levels if number[level] > 0]
    if len(kept) < 2:
        return Dropped(v.name, CONSTANT if kept else NO_VALUES)
    pooled = _pooled(kept, number, min_rows)
    if pooled:
        kept = [level for level in kept if level not in pooled]
        if not kept:
            return Dropped(v.name, f"fewer than {min_rows} rows beside one level")
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
        indicator=indicator and rows - sum(number[k] for k in kept) >= max(min_rows, 1),
        view=v.view,
    )


def _pooled(kept: list[str], number: dict[str, int], min_rows: int) -> set[str]:
    """Return the levels with fewer than `min_rows` rows, and those that must join them."""
    by_rows = sorted(kept, key=lambda level: number[level])
    pooled = [level for level in by_rows if number[level] < min_rows]
    while pooled and len(pooled) < len(by_rows) and sum(map(number.__getitem__, pooled)) < min_rows:
        pooled.append(by_rows[len(pooled)])
    return set(pooled)


def _other(v: Variable) -> str:
    """Return a name for the pooled levels that no level of the column has."""
    name = "other"
    while name in v.levels:
        name += " levels"
    return name
