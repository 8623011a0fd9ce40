"""Check of masked sums against the counts that the sites gave at the beginning.

Nobody sees a masked part, so one site could claim a million rows, or minus five, and
shift every quotient by their number. So each sum is checked:

    counts      whole, and not below 0 (`COUNTS`); weights, and counts that are shares, not below 0
    rows        as many as the sites gave; or at most as many, if the message
                counts only some (``some_rows``: true, or a function of the arguments)
    events      at most as many as the sites gave
    sites       at most as many as are in the sum
    weights     equal to the rows beside them, if no column weighs the rows
    parts       such as rows with an outcome above 0: at most as many as the rows beside them

Sums with noise are not checked: noise may make a count negative.

A wrong total does not show whose part is wrong, so its error names no site.

Revealed: nothing; the coordinator runs this check.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused
from fedcohort.protocol.step import Step

#: Names of fields with counts, in every message; of parts of its `rows`; of weights.
COUNTS = ("rows", "deaths", "censored", "positive", "ones", "others", "takes", "sites")
PARTS = ("positive", "ones", "others")
WEIGHTS = ("weight", "counts")


@dataclass(frozen=True)
class Known:
    """Counts that sites gave before a fit.

    Attributes
    ----------
    rows, events : by site; None if a site does not give them. Then no sum with that site is checked
        against them.
    slack : rows by which each site may differ, because another repeat draws one more or one fewer.
    unit : whether all rows have weight 1.
    some : whether rows may be fewer: a session leaves out those of a fold, or a method those
        without an entry (`Method.gaps`).
    """

    rows: Mapping[str, int | None] = field(default_factory=dict[str, int | None])
    events: Mapping[str, int | None] = field(default_factory=dict[str, int | None])
    slack: int = 0
    unit: bool = False
    some: bool = False


def check_total(
    step: Step[..., Any], number: int, total: Mapping[str, Array], sites: Collection[str],
    known: Known, asked: Mapping[str, Any],
) -> None:  # fmt: skip
    """Refuse a sum with impossible counts.

    Parameters
    ----------
    number : of the call.
    total : the sum, by field.
    sites : those in it.
    asked : the call's arguments.

    Raises
    ------
    Refused : "counts"; the message has the field, its total and the expected count, but no site.
    """
    if step.private:
        return
    for name in (*COUNTS, *WEIGHTS):
        a = total.get(name)
        if a is None or not a.size:
            continue
        low = float(a.min())
        whole = a.dtype.kind != "f" or name in WEIGHTS or bool((a == np.floor(a)).all())
        if low < 0 or not whole:
            raise _wrong(step, number, f"{name!r} adds up to {_number(a, low)}, no count there is")
    if (a := total.get("sites")) is not None and a.size and a.max() > len(sites):
        raise _wrong(step, number, f"'sites' is {a.max():g}, and {len(sites)} are in the sum")
    if (rows := total.get("rows")) is not None and rows.size:
        some = getattr(step.reply, "some_rows", False)
        some = known.some or (some(asked) if callable(some) else some)
        _check_rows(step, number, rows, sites, known, some=bool(some))
        for name in PARTS:
            if (a := total.get(name)) is not None and a.size and a.max() > rows.max():
                raise _wrong(step, number, f"{name!r} is {a.max():g} of {rows.max():g} rows")
    dead, weight = total.get("deaths"), total.get("weight")
    if known.unit and rows is not None and weight is not None and not _alike(rows, weight):
        raise _wrong(step, number, "weights add up to other numbers than the rows they weigh")
    if dead is not None and (given := _given(known.events, sites)) is not None:
        most = given + known.slack * len(sites)
        if dead.sum() > most:
            raise _wrong(
                step, number, f"deaths add up to {dead.sum():g}, and the sites gave {given}"
            )


def _check_rows(
    step: Step[..., Any], number: int, rows: Array, sites: Collection[str], known: Known, *,
    some: bool,
) -> None:  # fmt: skip
    if (given := _given(known.rows, sites)) is None:
        return
    room = known.slack * len(sites)
    fewer = not rows.shape and not some and rows < given - room
    if rows.max() > given + room or fewer:
        raise _wrong(step, number, f"rows add up to {rows.max():g}, and the sites gave {given}")


def _alike(counts: Array, weight: Array) -> bool:
    """Return whether each weight equals its count; true if the shapes differ."""
    same = counts.shape == weight.shape
    return not same or bool(np.allclose(counts, weight, rtol=1e-9, atol=1e-6))


def _given(by_site: Mapping[str, int | None], sites: Collection[str]) -> int | None:
    """Return the sum of the sites' counts; None if a site gave none."""
    found = [by_site.get(site) for site in sites]
    return None if None in found else sum(n for n in found if n is not None)


def _number(a: Array, low: float) -> str:
    return f"{low:g}" if low < 0 else f"{math.nan if not a.size else float(a.ravel()[0]):g}"


def _wrong(step: Step[..., Any], number: int, why: str) -> Refused:
    return Refused(
        "counts",
        f"the sum of {step.name} (call {number}) cannot be: {why}. A site sent wrong numbers, by a "
        f"fault or on purpose. A masked sum does not show which site, so none is blamed. "
        f"Let each site compare its rows with `fedcohort data check`, and run the same version.",
    )
