"""Checks of a site's reply: the same for every verb and every runtime.

A site checks its own reply before it leaves (`Host.answer`), and the coordinator checks each
reply that it can see, before it adds anything:

* the declared fields, in their order, each an array of numbers of a type that may leave a site;
* only finite numbers;
* `rows`, in every message with that field: whole numbers from 0 to `MOST_ROWS` (a gathered
  description may hide a number, with `HIDDEN`);
* the message's own check against the call's arguments: its method ``fault(asked)``.

Between the sites of one call (`strangers`, `too_far`):

* in a sum, the shapes and types of most sites;
* if a message measures how far it moves a model (its method ``moved(asked)``): at most `FAR`
  times the median of those that move it at all, from `FEWEST` such sites up; with two measures,
  in at least one of them.

A site whose reply fails is missing for that call, with the reason. In a masked sum the coordinator
sees no single reply: there, only the checks of honest sites apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import ReplyRejected
from fedcohort.protocol.message import DTYPES, all_finite
from fedcohort.protocol.step import Step

#: Largest credible number of rows of a site.
MOST_ROWS = 10**9
#: Stands for a hidden number of rows.
HIDDEN = -1
#: Largest length of an update, in median lengths; and fewest sites for this check.
FAR, FEWEST = 6.0, 3

#: Shape and type of each field of a reply, in order; see `form`.
Form = tuple[tuple[tuple[int, ...], str], ...]


class Fit(dict[str, Array]):
    """A reply that a host of this process has checked, field by field; it is not checked again.

    A reply from a line, a store, or anything else is a plain dictionary.
    """


def check(
    site: str,
    number: int,
    step: Step[..., Any],
    arrays: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> None:
    """Refuse one reply that cannot be used.

    Parameters
    ----------
    number : of the call.
    arrays : the reply, by field.
    asked : the arguments of the call at this site.

    Raises
    ------
    ReplyRejected : the message names the site, the step and the field, and no number of the reply.
    """
    if why := _form_fault(step, arrays) or _finite_fault(arrays):
        raise rejected(site, number, step.name, why)
    check_sense(site, number, step, arrays, asked)


def check_sense(
    site: str,
    number: int,
    step: Step[..., Any],
    arrays: Mapping[str, Array],
    asked: Mapping[str, Any],
) -> None:
    """Refuse one reply of the right form with impossible numbers; see `check`."""
    why = ""
    if (rows := arrays.get("rows")) is not None:
        least = HIDDEN if step.verb == "gather" and rows.dtype.kind == "i" else 0
        why = count_fault("rows", rows, least)
    if not why and hasattr(step.reply, "fault"):
        why = step.reply(**arrays).fault(asked)
    if why:
        raise rejected(site, number, step.name, why)


def heeds(reply: type[Any]) -> bool:
    """Return whether the checks of this type of message need the call's arguments."""
    return hasattr(reply, "fault") or hasattr(reply, "moved")


def rejected(site: str, number: int, step: str, why: str) -> ReplyRejected:
    """Return the error for a reply that cannot be used."""
    return ReplyRejected(f"site {site!r} answered {step} (call {number}) with {why}")


def _form_fault(step: Step[..., Any], arrays: Mapping[str, Any]) -> str:
    """Return what is wrong with the fields or their types; "" for nothing."""
    declared = list(step.reply.__dataclass_fields__)
    if list(arrays) != declared:
        return (
            f"other fields than {', '.join(declared)}. Check that both ends run the same version "
            f"of fedcohort."
        )
    for name, a in arrays.items():
        if not isinstance(a, np.ndarray) or a.dtype not in DTYPES:
            kind = a.dtype if isinstance(a, np.ndarray) else type(a).__name__
            return f"type {kind} in field {name!r}; only numbers may leave a site."
        if step.verb == "sum" and a.dtype.kind != "f" and a.dtype.itemsize < 8:
            return f"type {a.dtype} in field {name!r}, which cannot be summed."
    return ""


def _finite_fault(arrays: Mapping[str, Array]) -> str:
    """Return which field holds numbers that are not finite; "" for none."""
    for name, a in arrays.items():
        if a.dtype.kind == "f" and not all_finite(a):
            return (
                f"numbers that are not finite in field {name!r}, shape {a.shape}. Check the scale "
                f"of that site's data, or lower the learning rate."
            )
    return ""


def count_fault(name: str, a: Array, least: int = 0) -> str:
    """Return what is wrong with a field of counts; "" if all are whole, least…`MOST_ROWS`."""
    if not a.shape:
        one = a.item()
        whole, low, high = one == one // 1, one, one  # NaN and infinity are not
    else:
        whole = a.dtype.kind != "f" or not (a != np.floor(a)).any()
        low, high = (a.min(), a.max()) if a.size else (least, least)
    if not (whole and low >= least and high <= MOST_ROWS):
        return f"no number of rows in field {name!r}: it must be whole, 0 to {MOST_ROWS}."
    return ""


# between sites --------------------------------------------------------------------------


def form(arrays: Mapping[str, Array]) -> Form:
    """Return shape and type of each field; types with the same result in a sum are one.

    Whole and real numbers of 64 bits are one type: a site without rows may count in integers.
    """
    return tuple((a.shape, "f4" if a.dtype.str == "<f4" else "f8") for a in arrays.values())


def strangers(
    forms: Mapping[str, Form], number: int, step: Step[..., Any]
) -> dict[str, ReplyRejected]:
    """Return the sites whose replies have another form than those of most sites.

    Parameters
    ----------
    forms : by site.

    Raises
    ------
    ReplyRejected : two forms are equally frequent.
    """
    held: dict[Form, list[str]] = {}
    for site, found in forms.items():
        held.setdefault(found, []).append(site)
    if len(held) < 2:
        return {}
    first, second = sorted(held, key=lambda f: -len(held[f]))[:2]
    if len(held[first]) == len(held[second]):
        raise _stranger(held[second][0], number, step, second, first, f"site {held[first][0]!r}")
    return {
        site: _stranger(site, number, step, found, first, "most sites")
        for site, found in forms.items()
        if found != first
    }


def _stranger(
    site: str, number: int, step: Step[..., Any], own: Form, other: Form, where: str
) -> ReplyRejected:
    """Return the error for a reply of another form."""
    names = list(step.reply.__dataclass_fields__)
    name, (shape, kind), (usual, type_) = next(
        (n, a, b) for n, a, b in zip(names, own, other, strict=True) if a != b
    )
    what, there = (f"shape {shape}", f"{usual}")
    if shape == usual:
        what, there = f"type {np.dtype(kind)}", f"{np.dtype(type_)}"
    return rejected(
        site, number, step.name,
        f"a field that does not fit: {name!r} has {what} at site {site!r} and {there} at {where}; "
        f"a sum needs equal shapes and types. Check that all sites hold the same columns.",
    )  # fmt: skip


def too_far(
    moved: Mapping[str, float | tuple[float, ...]], number: int, step: Step[..., Any]
) -> dict[str, ReplyRejected]:
    """Return the sites whose updates are much longer than the others'.

    Parameters
    ----------
    moved : by site, the length of its update; with several measures, the same at all sites, an
        update is too long if it is so in each.
    """
    lengths = {site: m if isinstance(m, tuple) else (m,) for site, m in moved.items()}
    some = [m for m in lengths.values() if any(one > 0 for one in m)]
    if len(some) < FEWEST:
        return {}
    most = FAR * np.median(some, axis=0)
    return {
        site: rejected(
            site, number, step.name,
            f"an update more than {FAR:g} times as long as the median of {len(some)} sites'. "
            f"Check the scale of that site's data.",
        )
        for site, m in lengths.items()
        if not (np.array(m) <= most).any()
    }  # fmt: skip


def told(names: Sequence[str], why: Mapping[str, str]) -> str:
    """Return the names, each with its reason if there is one."""
    return ", ".join(f"{n} ({why[n]})" if n in why else n for n in names)
