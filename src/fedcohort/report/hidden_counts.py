"""Counts of a results file; null stands for a count that a site hid.

A hidden count says nothing: a site with few rows hides 0 as well. `Hidden` is a type of its own, so
that no comparison or sum takes it for a count.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from fedcohort.report import words


class Hidden(enum.Enum):
    """The type of `HIDDEN`, a count that a site hid.

    Its truth value, comparison with a number and addition raise `TypeError`.
    """

    HIDDEN = "hidden"

    def __bool__(self) -> NoReturn:
        raise TypeError("a hidden count is neither zero nor more")


#: Stands for a count that a site hid.
HIDDEN = Hidden.HIDDEN
#: What a results file says of a count.
Count = int | Hidden


def count_in(row: Mapping[str, Any], key: str) -> Count | None:
    """Return a count of a row of a results file; None if the row has none."""
    if key not in row:
        return None
    n = words.number(row[key])
    return int(n) if n == n else HIDDEN


class Holes(NamedTuple):
    """Columns of Table 1 with missing values, without any, and with hidden counts.

    A column has missing values if a count over all sites, or of one, shows some. It has none if the
    count over all sites is 0.
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
