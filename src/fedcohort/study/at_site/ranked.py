"""What a hospital is told of its own place in a ranking, as one text that its people approve.

The text is canonical JSON: the study's hash, the site, and for each arm that ranks the site's place
(`Fitted.place_of`). The second consent is a decision on `mark_of` the text, as the first one is on
the study's hash: another ranking needs another consent.

Revealed: to a site its own place; of the user's site mean losses over its rows, with three
significant digits. Nothing of a third site.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fedcohort.protocol import Refused
from fedcohort.study.file.second_consent import ranks
from fedcohort.study.file.terms import Terms

#: Largest length of the text, and of one of its words or sentences, in characters.
LONGEST, SENTENCE = 20_000, 400
_PURPOSE = b"fedcohort ranking 1\0"
_NUMBERS = ("value", "loss_without", "loss_with")
_COUNTS = ("of", "n_chosen")
_FLAGS = ("least", "chosen", "user")
_TEXTS = ("arm", "measure", "reason")
_KEYS = {*_NUMBERS, *_COUNTS, *_FLAGS, *_TEXTS, "rank"}


def text_of(study: str, site: str, places: Sequence[Mapping[str, Any]]) -> str:
    """Return the text that a site is told."""
    said = {"arms": [dict(place) for place in places], "site": site, "study": study}
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def mark_of(text: str) -> str:
    """Return the SHA-256 of a text, in hex, which a steward approves."""
    return hashlib.sha256(_PURPOSE + text.encode()).hexdigest()


def read(text: object, terms: Terms, site: str) -> list[dict[str, Any]]:
    """Return a site's places, by arm, from a text.

    Raises
    ------
    Refused : "malformed": the text is no such ranking of this study and site.
    """
    wrong = Refused("malformed", "the ranking that was sent is none of this study and site.")
    if not isinstance(text, str) or len(text) > LONGEST:
        raise wrong
    try:
        found: Any = json.loads(text)
        places = cast("list[dict[str, Any]]", found["arms"])
        fine = text_of(terms.hash, site, places) == text and found["site"] == site
        arms = [arm.name for arm in terms.plan.arms if ranks(arm)]
        fine &= [place["arm"] for place in places] == arms
        fine &= all(map(_is_place, places))
    except (ValueError, TypeError, LookupError, RecursionError, AttributeError):
        raise wrong from None
    if not fine:
        raise wrong
    return places


def _is_place(place: Mapping[str, Any]) -> bool:
    def count(value: object) -> bool:
        return type(value) is int and 0 <= value < 1_000_000

    def number(value: object) -> bool:
        return value is None or (type(value) in (int, float) and math.isfinite(cast(float, value)))

    return (
        set(place) == _KEYS
        and all(isinstance(place[k], str) and place[k].isprintable() for k in _TEXTS)
        and all(len(place[k]) <= SENTENCE for k in _TEXTS)
        and all(type(place[k]) is bool for k in _FLAGS)
        and all(count(place[k]) for k in _COUNTS)
        and all(number(place[k]) for k in _NUMBERS)
        and (place["rank"] is None or (count(place["rank"]) and place["rank"] <= place["of"]))
        and (place["rank"] is None or place["value"] is not None)
    )


def in_words(place: Mapping[str, Any], title: str, user: str) -> list[str]:
    """Return a site's place in one arm's ranking, as its people read it."""
    others = f"{place['n_chosen']} of {place['of']} ranked hospitals would train with {user}"
    if place["user"]:
        loss = place["loss_without"]
        lines = [f"{title}: the model is for your patients. {others}."]
        if loss is not None:
            lines.append(f"Your own model alone has the loss {loss:.3g}, cross-validated.")
        return lines
    if place["rank"] is None:
        return [f"{title}: your hospital is not ranked: {place['reason']}. {others}."]
    less = "less is better" if place["least"] else "more is better"
    lines = [
        f"{title}: your hospital has rank {place['rank']} of {place['of']} "
        f"({place['measure']} {place['value']:.3g}; {less}). "
        f"{'It would be trained with.' if place['chosen'] else 'It would not be trained with.'} "
        f"{others}."
    ]
    with_, without = place["loss_with"], place["loss_without"]
    if with_ is not None and without is not None:
        gain = without - with_
        verdict = f"a gain of {gain:.3g}" if gain > 0 else "no gain"
        lines.append(
            f"What the model would gain: on {user}'s patients the loss is {without:.3g} without "
            f"another hospital, and {with_:.3g} by your hospital's model: {verdict}."
        )
    return lines
