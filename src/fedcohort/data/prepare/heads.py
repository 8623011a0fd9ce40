"""Heads: the distribution of each source column of x, by the dictionary.

A head says where a column's features stand in x, how x becomes the column's value, and which
distribution a generative model (`models.likelihoods`) gives it:

normal        a number; a whole number is rounded where it is drawn
lognormal     a number whose range in the dictionary begins above 0
negbinomial   a count: an integer whose range begins at 0 or above. With standard scales, only where
              its variance is above its mean; otherwise normal, as no distribution of counts here
              has a smaller variance
poisson       a count, on request: the limit of the negative binomial without overdispersion
bernoulli     a binary column with values 0 and 1, or an indicator of missing values
categorical   levels; also two named ones
ordinal       levels in the order of the dictionary, on request

A column with a quantile scale is normal in x, with limits 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedcohort.data.prepare.columns import Column, LevelColumn, NumberColumn
from fedcohort.data.words import known_name
from fedcohort.protocol.errors import SettingError

#: Kinds of a head, by the kind of column that can have them.
NUMBERS = ("normal", "lognormal", "poisson", "negbinomial")
LEVELS = ("categorical", "ordinal")
KINDS = (*NUMBERS, "bernoulli", *LEVELS)


@dataclass(frozen=True, kw_only=True)
class Head:
    """Distribution of one source column of x.

    Attributes
    ----------
    name : source column; of an indicator of missing values "<name> missing".
    kind : one of `KINDS`.
    at : places in x. A category of K levels has K − 1; the reference level is 0 in all of them.
    shift, scale : value = shift + scale · x, of a number or binary column.
    low, high : the dictionary's range, in the column's unit; ±inf without a limit.
    whole : whether values are whole numbers.
    """

    name: str
    kind: str
    at: tuple[int, ...]
    shift: float = 0.0
    scale: float = 1.0
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False


def heads_of(columns: Sequence[Column], scale: str) -> tuple[Head, ...]:
    """Return the head of each column, in order, with that of its indicator after it.

    Parameters
    ----------
    scale : the design's, one of `prepare.SCALES`.
    """
    found: list[Head] = []
    at = 0
    for c in columns:
        places = (*range(at, at + c.raw_width),)
        if isinstance(c, LevelColumn):
            found.append(Head(name=c.name, kind="categorical", at=places))
        else:
            found.append(_number(c, places, standard=scale == "standard"))
        at += len(c.features)
        if c.indicator:
            found.append(Head(name=c.features[-1], kind="bernoulli", at=(at - 1,)))
    return tuple(found)


def _number(c: NumberColumn, at: tuple[int, ...], *, standard: bool) -> Head:
    """Return the head of a number.

    Parameters
    ----------
    standard : whether shift and scale are mean and standard deviation.
    """
    if c.knots:
        return Head(name=c.name, kind="normal", at=at, low=0.0, high=1.0)
    if c.type == "binary":
        return Head(
            name=c.name, kind="bernoulli", at=at, shift=c.shift, scale=c.scale, low=0.0, high=1.0
        )
    low = -math.inf if c.least is None else c.least
    high = math.inf if c.most is None else c.most
    whole, kind = c.type == "integer", "normal"
    if whole and low >= 0 and not (standard and c.scale**2 <= c.shift):
        kind = "negbinomial"
    elif not whole and low > 0:
        kind = "lognormal"
    return Head(
        name=c.name, kind=kind, at=at, shift=c.shift, scale=c.scale, low=low, high=high,
        whole=whole,
    )  # fmt: skip


def chosen(heads: Sequence[Head], asked: str | Sequence[str]) -> tuple[Head, ...]:
    """Return heads with the kinds that a setting `likelihoods` asks for.

    Parameters
    ----------
    asked : one item, or several: "dictionary": as they are; "normal" alone: () for a model whose
        entries are all normal; otherwise "column=kind" for some columns.

    Raises
    ------
    SettingError : an item is none of these, names no column, or a kind that its column cannot have.
    """
    asked = (asked,) if isinstance(asked, str) else asked
    if tuple(asked) == ("normal",):
        return ()
    named: dict[str, Head] = {head.name: head for head in heads}
    for item in asked:
        if item == "dictionary":
            continue
        name, equals, kind = item.rpartition("=")
        if not equals:
            raise SettingError(
                f"likelihoods has {item!r}; give 'dictionary', 'normal' alone, or 'column=kind'."
            )
        if name not in named:
            raise SettingError(f"likelihoods has {known_name('column', name, named)}")
        if kind not in KINDS:
            raise SettingError(f"likelihoods of {name!r} has {known_name('kind', kind, KINDS)}")
        named[name] = _as(named[name], kind)
    return tuple(named.values())


def heads_asked(heads: Sequence[Head], asked: str | Sequence[str]) -> tuple[Head, ...]:
    """Return the heads of a fit by its setting `likelihoods`.

    () where all are normal, without limits and not whole, too.

    Raises
    ------
    SettingError : see `chosen`.
    """
    found = chosen(heads, asked) if heads else ()
    return found if any(map(_not_plain, found)) else ()


def _not_plain(head: Head) -> bool:
    limited = math.isfinite(head.low) or math.isfinite(head.high)
    return head.kind != "normal" or head.whole or limited


def _as(head: Head, kind: str) -> Head:
    """Return a head with another kind.

    Raises
    ------
    SettingError : its column cannot have it.
    """
    possible = _possible(head)
    if kind not in possible:
        what = "has levels" if head.kind in LEVELS else "is binary"
        if head.kind in NUMBERS and not head.whole and kind in ("poisson", "negbinomial"):
            what = "is of type 'number', not 'integer'"
        elif head.kind in NUMBERS:
            what = "has no lowest value of 0 or above in the dictionary"
        raise SettingError(
            f"likelihoods makes {head.name!r} {kind}, but the column {what}; it can be "
            f"{' or '.join(possible)}."
        )
    return replace(head, kind=kind)


def _possible(head: Head) -> tuple[str, ...]:
    if head.kind in LEVELS:
        return LEVELS
    if head.kind == "bernoulli":
        return ("bernoulli", "normal")
    if head.whole:
        return ("normal", "poisson", "negbinomial") if head.low >= 0 else ("normal",)
    return ("normal", "lognormal") if head.low >= 0 else ("normal",)


def plain_heads(heads: Sequence[Head]) -> list[list[Any]]:
    """Return heads as JSON-able lists, for a network's spec, without their names."""
    return [
        [h.kind, list(h.at), h.shift, h.scale, *map(_finite, (h.low, h.high)), h.whole]
        for h in heads
    ]


def heads_from(plain: Sequence[Sequence[Any]]) -> tuple[Head, ...]:
    """Return the heads of `plain_heads`, also after JSON; their names are ""."""
    return tuple(
        Head(
            name="", kind=kind, at=tuple(at), shift=shift, scale=scale,
            low=-math.inf if low is None else low, high=math.inf if high is None else high,
            whole=whole,
        )
        for kind, at, shift, scale, low, high, whole in plain
    )  # fmt: skip


def _finite(end: float) -> float | None:
    return end if math.isfinite(end) else None
