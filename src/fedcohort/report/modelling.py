"""What was particular about an arm's model, in words: columns with a role, penalties, tuning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fedcohort.report import words

Row = Mapping[str, Any]

#: Settings that are the size of a penalty; 0 is none.
_PENALTIES = ("penalty", "l1", "l2")


def tuned(choices: Iterable[Row]) -> dict[str, str]:
    """Return what tuning chose of each setting: the most frequent choice, and how others differ.

    Parameters
    ----------
    choices : rows of `tuning` in results.json, of one arm; those that failed chose nothing.
    """
    made = [dict(row.get("chosen") or {}) for row in choices]
    return {
        name: _most([chosen[name] for chosen in made if name in chosen])
        for name in dict.fromkeys(name for chosen in made for name in chosen)
    }


def _most(values: list[Any]) -> str:
    """Return ``0.1 (tuned)``, or ``0.1 (tuned; in 3 of 5 choices, which go from 0.01 to 1)``."""
    (first, times), *rest = Counter(map(words.value, values)).most_common()
    if not rest:
        return f"{first} (tuned)"
    numbers = [v for v in values if words.number(v) == words.number(v)]
    if len(numbers) == len(values):
        others = f"which go from {words.value(min(numbers))} to {words.value(max(numbers))}"
    else:
        others = f"the others being {words.listed([text for text, _ in rest])}"
    return f"{first} (tuned; in {times} of {len(values)} choices, {others})"


def particulars(settings: Mapping[str, Any], chosen: Mapping[str, str]) -> list[str]:
    """Return what a methods paragraph says of an arm besides its method's name.

    Parameters
    ----------
    settings : the arm's, with defaults.
    chosen : what tuning chose, as `tuned` says it.
    """
    said = [
        text.format(settings[key])
        for key, text in (
            ("offset", "offset {}"),
            ("weights", "rows weighted by {}"),
            ("strata", "a baseline hazard for each level of {}"),
        )
        if settings.get(key)
    ]
    if settings.get("baseline") == "stratified":
        said.append("a baseline hazard for each site")
    for name in _PENALTIES:
        if name not in chosen and (text := _penalty(name, settings)):
            said.append(text)
    return [*said, *(f"{words.spaced(name)} {text}" for name, text in chosen.items())]


def _penalty(name: str, settings: Mapping[str, Any]) -> str:
    """Return how a penalty was set; "" where there is none."""
    value = settings.get(name)
    if value == "auto" and (settings.get("l1") or settings.get("l2")):
        return ""
    if value == "auto":
        if settings.get("rule") == "bic":
            return "penalty chosen by the Bayesian information criterion"
        held = (
            "rows" if settings.get("folds") == "rows" else "sites, or of rows where these are few"
        )
        within = ", the largest within one standard error" * (settings.get("rule") == "1se")
        return f"penalty chosen by cross-validation over folds of {held}{within}"
    size = words.number(value)
    return f"{words.spaced(name)} {words.value(value)}" if size == size and size else ""
