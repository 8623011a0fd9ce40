"""What a study file says of units: the columns of which sites' numbers are right as they are.

A study stops where a column seems to be in another unit at a site (`quality.between`), unless the
lead said so. Nothing is revealed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError


@dataclass(frozen=True)
class Accepted:
    """The columns of which a study accepts that units seem to differ: some, or every one."""

    columns: tuple[str, ...] = ()
    every: bool = False

    def __contains__(self, name: object) -> bool:
        return self.every or name in self.columns

    def check(self, known: Collection[str]) -> None:
        """Check that each column is among those of a dictionary.

        Raises
        ------
        DataError : it is not; the nearest is named.
        """
        for name in self.columns:
            if name not in known:
                raise DataError(f"units: there is {known_name('column', name, known)}")


#: No column's.
NOTHING = Accepted()
#: Every column's.
EVERY = Accepted(every=True)
