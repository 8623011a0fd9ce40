"""What a program sees of a site's records, once a design has turned columns into numbers."""

from __future__ import annotations

from typing import NamedTuple

from fedcohort.arrays import Array


class SurvivalTable(NamedTuple):
    """Right-censored records: ``x`` (n, p), ``time`` (n,) > 0, ``event`` (n,) bool.

    ``weight`` (n,) > 0 is how much each record counts; None where all count alike. ``entry`` (n,)
    < time is when each record came under observation; None where all were from the start.
    ``stratum`` (n,) is the number of the level that says which baseline hazard is theirs; None
    where one is.
    """

    x: Array
    time: Array
    event: Array
    weight: Array | None = None
    entry: Array | None = None
    stratum: Array | None = None


class LabelledTable(NamedTuple):
    """Records with a target: ``x`` (n, p), ``y`` (n,): 0/1, a class number, a value or a count.

    ``weight`` (n,) > 0 is how much each record counts; None where all count alike.
    """

    x: Array
    y: Array
    weight: Array | None = None


class FeatureTable(NamedTuple):
    """Records without an outcome: ``x`` (n, p)."""

    x: Array
