"""Counts of a results file, where null stands for a count that a site hid.

A hidden count is no number and says nothing of one: 0 is hidden as well where a site has few rows.
`Hidden` is a type of its own, so that no comparison or sum takes it for a count by mistake.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from fedcohort.report import words


class Hidden(enum.Enum):
    """The type of `HIDDEN`, which stands for a count that a site hid.

    Asking whether it is true, comparing it with a number, or adding it raises `TypeError`.
    """

    HIDDEN = "hidden"

    def __bool__(self) -> NoReturn:
        raise TypeError("a hidden count is neither zero nor more")


#: Stands for a count that a site hid.
HIDDEN = Hidden.HIDDEN
#: What a results file says of a count.
Count = int | Hidden


def count_in(row: Mapping[str, Any], key: str) -> Count | None:
    """Return a count of a row of a results file; None where the file says nothing of it."""
    if key not in row:
        return None
    n = words.number(row[key])
    return int(n) if n == n else HIDDEN


class Holes(NamedTuple):
    """Columns of Table 1 with missing values, without any, and those where the counts are hidden.

    A column has missing values where a count over all sites, or of one, shows some. It has none
    where the count over all sites is 0.
    """

    some: int
    none: int
    hidden: int

    @property
    def columns(self) -> int:
        """All columns."""
        return sum(self)


def holes(variables: Iterable[Mapping[str, Any]]) -> Holes:
    """Count the columns of Table 1, the ``cohort.variables`` of a results file, by missing values.

    Columns without a line over all sites are left out.
    """
    told: dict[str, list[Count | None]] = defaultdict(list)
    whole: dict[str, Count | None] = {}
    for v in variables:
        name, missing = str(v.get("name")), count_in(v, "missing")
        told[name].append(missing)
        if v.get("site") is None:
            whole[name] = missing
    some = {n for n in whole if any(isinstance(x, int) and x > 0 for x in told[n])}
    none = {n for n, x in whole.items() if isinstance(x, int) and x == 0} - some
    return Holes(len(some), len(none), len(whole) - len(some) - len(none))
