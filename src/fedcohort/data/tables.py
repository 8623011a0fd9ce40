"""What a program sees of a site's records, once a design has turned columns into numbers."""

from __future__ import annotations

from typing import NamedTuple

from fedcohort.arrays import Array


class SurvivalTable(NamedTuple):
    """Right-censored records: ``x`` (n, p), ``time`` (n,) > 0, ``event`` (n,) bool."""

    x: Array
    time: Array
    event: Array


class LabelledTable(NamedTuple):
    """Records with a target: ``x`` (n, p), ``y`` (n,): 0/1, a class number, a value or a count."""

    x: Array
    y: Array


class FeatureTable(NamedTuple):
    """Records without an outcome: ``x`` (n, p)."""

    x: Array
