"""Columns whose units a study file declares correct (`units`).

A study stops if a column seems to be in another unit at a site (`check.between`), unless the lead
accepts it. Nothing is revealed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError


@dataclass(frozen=True)
class Accepted:
    """Columns whose apparent differences of unit a study accepts: some, or every one."""

    columns: tuple[str, ...] = ()
    every: bool = False

    def __contains__(self, name: object) -> bool:
        return self.every or name in self.columns

    def check(self, known: Collection[str]) -> None:
        """Check that each column is in a dictionary.

        Raises
        ------
        DataError : it is not; the message gives the nearest name.
        """
        for name in self.columns:
            if name not in known:
                raise DataError(f"units: there is {known_name('column', name, known)}")


#: No column.
NOTHING = Accepted()
#: Every column.
EVERY = Accepted(every=True)
