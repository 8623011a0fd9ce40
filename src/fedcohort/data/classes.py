"""Smallest number of records of each kind of outcome, over all sites.

The kinds are the two classes of a yes/no outcome, survival with the event and without, and counts
of 0 and above. If a covariate has only the values 0 and 1, its coefficient is a logarithm of the
numbers of records of each kind with either value, so these must be large enough too.
Nothing is revealed: the checks use counts over all sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import few
from fedcohort.protocol.errors import NothingToLearn

#: How records of an outcome divide into kinds; "number" if they do not.
Kind = Literal["number", "class", "count", "event"]
#: The records of one kind, in words.
WORDS = {"class": "of one class", "count": "with a count above 0, or of 0,",
         "event": "with the event, or without it,"}  # fmt: skip


def check_classes(rows: int, ones: int, least: int) -> None:
    """Refuse an outcome with one class only, or with few records of a class.

    Parameters
    ----------
    rows, ones : records, and those of class 1, at all sites.
    least : records that each class must have.

    Raises
    ------
    NothingToLearn : the outcome is refused.
    """
    if ones in (0, rows):
        raise NothingToLearn(
            f"all {rows} records are of class {ones // rows}, and a fit needs both. Add a site "
            f"that has the other one, or check how the outcome is coded."
        )
    if min(ones, rows - ones) < least:
        raise NothingToLearn(
            f"class {int(ones < rows - ones)} has fewer than {least} records at all sites together "
            f"(min_cell). Add sites or records; or lower min_cell, if all sites agree."
        )


def check_each_class(sizes: Sequence[int], classes: Sequence[str], least: int) -> None:
    """Refuse an outcome of several classes with few records of one; a class may have none.

    Parameters
    ----------
    sizes : (K,), records of each class at all sites.
    least : records that a class must have.

    Raises
    ------
    NothingToLearn : a class is refused, or the records are of one class only; it is named.
    """
    there = [name for name, n in zip(classes, sizes, strict=True) if n]
    if len(there) == 1:
        raise NothingToLearn(
            f"all {sum(sizes)} records are of class {there[0]!r}, and a fit needs two. Add a site "
            f"that has another one, or check how the outcome is coded."
        )
    for name, n in zip(classes, sizes, strict=True):
        if 0 < n < least:
            raise NothingToLearn(
                f"class {name!r} has fewer than {least} records at all sites together (min_cell). "
                f"Join it with another class, add sites or records; or lower min_cell, if all "
                f"sites agree."
            )


def check_kinds(rows: int, some: int, kind: Kind, least: int) -> None:
    """Refuse an outcome with few records of one kind; the program checks that there are any.

    Parameters
    ----------
    rows, some : records, and those of class 1, with the event, or with a count above 0.

    Raises
    ------
    NothingToLearn : the outcome is refused.
    """
    if kind == "class":
        if 0 < some < rows:
            check_classes(rows, some, least)
        return
    parts = {"count": {"counts above 0": some}}.get(
        kind, {"deaths": some, "censored records": rows - some}
    )
    for what, number in parts.items():
        if 0 < number < least:
            raise NothingToLearn(
                f"there are fewer than {least} {what} at all sites together (min_cell). Add sites "
                f"or records; or lower min_cell, if all sites agree."
            )


@dataclass(frozen=True)
class Cells:
    """Records by the value of each covariate and by kind of outcome.

    Attributes
    ----------
    rows, some : records, and those with an outcome above 0.
    away, both : (p,) records that differ from the public point in a covariate, and those of them
        with an outcome above 0.
    """

    rows: int
    some: int
    away: Array
    both: Array

    def small(self, names: Sequence[str], level: Array, least: int) -> Array:
        """Return which covariates (p,) have a value with few records of one kind.

        The first level of a variable with columns "variable=level" has the remaining records.

        Parameters
        ----------
        level : (p,), covariates with two values.
        """
        found = level & self._few(self.away, self.both, least)
        variables = [name.partition("=")[0] if "=" in name else "" for name in names[: len(level)]]
        for variable in dict.fromkeys(variables):
            mine = np.array([v == variable for v in variables]) & level
            if variable and mine.sum() > 1:
                rest = np.asarray(self.rows - self.away[mine].sum())
                some = np.asarray(self.some - self.both[mine].sum())
                found |= mine & self._few(rest, some, least)
        return found

    def _few(self, rows: Array, some: Array, least: int) -> Array:
        others, without = self.rows - rows, self.some - some
        parts = (some, rows - some, without, others - without)
        out: Array = np.any([few(part, least) for part in parts], axis=0)
        return out
