"""Whether a sum that nobody can take apart agrees with what its sites told at the beginning.

A masked part is seen by nobody, so that one site could claim a million rows, or minus five, and
move whatever is divided by their number. The sum is checked instead, each time, in one place:

    counts      whole, and not below 0 (`COUNTS`); weights, and counts that are shares, not below 0
    rows        those that its sites told when they were counted, no more and no fewer; no more
                where its message says that it counts only some (``some_rows``: yes, or of what
                arguments)
    events      no more than its sites told
    sites       no more than are in the sum
    weights     the rows beside them, where none were asked for
    parts       such as those with an outcome above 0: no more than the rows beside them

Sums with noise are let be: noise may take a count below 0.

A wrong total does not say whose part is wrong, so its error names no site.

Revealed: nothing; this is the coordinator's.
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

#: Fields that hold counts, in whatever message; those that are some of its `rows`; weights.
COUNTS = ("rows", "deaths", "censored", "positive", "ones", "others", "takes", "sites")
PARTS = ("positive", "ones", "others")
WEIGHTS = ("weight", "counts")


@dataclass(frozen=True)
class Known:
    """What sites told of themselves before a fit.

    Attributes
    ----------
    rows, events : by site; None where it does not tell. Without a site's rows no sum with it is
        checked against them, and likewise of events.
    slack : rows by which each site may differ, as another repeat draws one more or one fewer.
    unit : whether all rows count alike: no column weighs them.
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
    """Refuse a sum whose counts cannot be.

    Parameters
    ----------
    number : of the call.
    total : the sum, by field.
    sites : those in it.
    asked : the call's arguments.

    Raises
    ------
    Refused : "counts": the field, what it adds up to, and what was told; no site.
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
    if dead is not None and (told := _told(known.events, sites)) is not None:
        most = told + known.slack * len(sites)
        if dead.sum() > most:
            raise _wrong(
                step, number, f"deaths add up to {dead.sum():g}, and the sites told {told}"
            )


def _check_rows(
    step: Step[..., Any], number: int, rows: Array, sites: Collection[str], known: Known, *,
    some: bool,
) -> None:  # fmt: skip
    if (told := _told(known.rows, sites)) is None:
        return
    room = known.slack * len(sites)
    fewer = not rows.shape and not some and rows < told - room
    if rows.max() > told + room or fewer:
        raise _wrong(step, number, f"rows add up to {rows.max():g}, and the sites told {told}")


def _alike(counts: Array, weight: Array) -> bool:
    """Return whether each weight is its count; true as well of others than these."""
    same = counts.shape == weight.shape
    return not same or bool(np.allclose(counts, weight, rtol=1e-9, atol=1e-6))


def _told(by_site: Mapping[str, int | None], sites: Collection[str]) -> int | None:
    """Return what the sites told together; None where one did not."""
    found = [by_site.get(site) for site in sites]
    return None if None in found else sum(n for n in found if n is not None)


def _number(a: Array, low: float) -> str:
    return f"{low:g}" if low < 0 else f"{math.nan if not a.size else float(a.ravel()[0]):g}"


def _wrong(step: Step[..., Any], number: int, why: str) -> Refused:
    return Refused(
        "counts",
        f"the sum of {step.name} (call {number}) cannot be: {why}. A site told other numbers than "
        f"it has, by a fault or on purpose; a masked sum does not say which, so none is blamed. "
        f"Let each site compare its rows with `fedcohort data check`, and run the same version.",
    )
