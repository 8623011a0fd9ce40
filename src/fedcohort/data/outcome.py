"""What a study is about: the columns that hold the outcome, and of what kind they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True)
class Survival:
    """Right-censored time to an event: `time` > 0, `event` 1 where it was seen and 0 where not.

    `entry` < `time` is when a patient came under observation (left truncation): who had had the
    event before could not have come. "" where all were under observation from time 0.
    """

    time: str
    event: str
    entry: str = ""
    kind: ClassVar[str] = "survival"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the outcome's columns: time, event, and entry if there is one."""
        return (self.time, self.event, *((self.entry,) if self.entry else ()))


@dataclass(frozen=True)
class _Target:
    y: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the outcome's columns."""
        return (self.y,)


@dataclass(frozen=True)
class Binary(_Target):
    """A yes/no outcome: any two values; the one that sorts last counts as 1."""

    kind: ClassVar[str] = "classification"


@dataclass(frozen=True)
class Category(_Target):
    """An outcome with more than two unordered levels."""

    kind: ClassVar[str] = "classification"


@dataclass(frozen=True)
class Continuous(_Target):
    """A real-valued outcome."""

    kind: ClassVar[str] = "regression"


@dataclass(frozen=True)
class Count(_Target):
    """A non-negative whole number."""

    kind: ClassVar[str] = "regression"


Outcome: TypeAlias = Survival | Binary | Category | Continuous | Count
