"""Guesses from names: units, identifiers, sites, outcomes, late columns, and misspelt names.

They serve a draft that a person reads; they are never rules. Nothing is revealed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.words import first_of, near_name

_UNITS: Mapping[str, str] = {
    "years": "years", "year": "years", "yrs": "years", "age": "years", "months": "months",
    "weeks": "weeks", "days": "days", "day": "days", "hours": "hours", "pct": "%", "percent": "%",
    "kg": "kg", "cm": "cm", "mm": "mm", "mmhg": "mmHg", "mm hg": "mmHg",
    "bpm": "beats/min", "bmi": "kg/m²", "kg m2": "kg/m²",
    "g dl": "g/dL", "g l": "g/L", "mg dl": "mg/dL", "mg l": "mg/L", "ng ml": "ng/mL",
    "pg ml": "pg/mL", "ug l": "µg/L", "mmol l": "mmol/L", "umol l": "µmol/L", "u l": "U/L",
    "iu l": "IU/L", "mg": "mg", "ml": "mL",
}  # fmt: skip
#: Possible range of a unit, by general knowledge and not from any table.
LIMITS: Mapping[str, tuple[float, float]] = {"%": (0.0, 100.0)}
_AGES = (0.0, 120.0)

_IDENTIFIER = {
    "id", "pid", "mrn", "uuid", "identifier", "surname", "firstname", "lastname", "patid", "patno",
    "patnr", "caseno", "subjid", "usubjid",
}  # fmt: skip
_PERSON = {"patient", "pat", "subject", "case", "record", "participant", "person"}
_SITE = {"site", "centre", "center", "hospital", "clinic", "institution"}
_SITE_WHOLE = {"redcap_data_access_group"}
_TAIL = {"id", "name", "code", "no", "nr", "number"}
_SPLIT = {"train", "training", "test", "testing", "valid", "validation", "val", "dev"}

_DEATH = {"death", "dead", "died", "deceased"}
_EVENT = _DEATH | {
    "event", "status", "cens", "censor", "censored", "relapse", "recurrence", "progression",
}  # fmt: skip
_TIME = {
    "time", "survival", "duration", "followup", "futime", "fu", "tte", "os", "pfs", "dfs", "rfs",
    "efs", "lfs",
}  # fmt: skip
_SPAN = {"days", "weeks", "months", "years"}
_LABEL = (
    "y", "outcome", "target", "label", "class", "response", "event", "dead", "death", "died",
    "deceased", "status", "disease", "diagnosis",
)  # fmt: skip
_LATE = {"followup", "fu"} | _DEATH
#: Beginnings of names of values that are known at the end of a stay, or after death.
_AFTER = (
    "charge", "cost", "totcst", "discharge", "length of stay", "autopsy",
    "cause of death",
)  # fmt: skip
#: Beginnings of names of events after the start of follow-up.
_LATER = (
    "hsct", "sct", "hct", "transplant", "remission", "relapse", "recurr", "progress", "respon",
    "engraft", "gvhd", "dli", "metast", "readmi", "discharge", "reoperation", "reintervention",
)  # fmt: skip
#: Whole words that name such events.
_LATER_WHOLE = {"cr", "cri", "pr", "bmt", "tx", "aml"}
#: Last words of names of times.
_WHEN = {"day", "days", "weeks", "months", "years", "date", "time"}
#: Words before "day" that are no later event: days of the start itself, and amounts per day.
_NO_EVENT = {
    "birth", "week", "work", "admission", "diagnosis", "diag", "dx", "index", "baseline", "visit",
    "study", "symptom", "symptoms", "onset", "per", "a", "mg", "g", "kg", "ml", "l", "kcal",
    "units", "packs", "drinks", "cigarettes", "hours", "times", "one", "first", "since", "prior",
    "previous", "prev", "before", "last",
}  # fmt: skip
#: A comment names this many sites and counts the others.
_SITES_NAMED = 3


def words(name: str) -> list[str]:
    """Return the words of a column's name: "osDays", "OS_days" and "os.days" have the same."""
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return [w for w in re.split(r"[\W_]+", parted.lower()) if w]


def unit(name: str) -> str:
    """Return the unit at the end of a name, as in hb_g_dl or "hb (g/dL)"; or nothing."""
    bracket = re.search(r"[\[(]([^\[\]()]{1,12})[\])]\s*$", name)
    if bracket:
        return bracket[1].strip()
    parts = words(name)
    for n in (2, 1):
        if len(parts) >= n and (found := _UNITS.get(" ".join(parts[-n:]))):
            return found
    return ""


def limits(name: str, unit: str, low: float, high: float) -> tuple[float | None, float | None]:
    """Return the range of a unit, if it holds from `low` to `high`; or no range."""
    known = _AGES if unit == "years" and "age" in words(name) else LIMITS.get(unit)
    return known if known and known[0] <= low and high <= known[1] else (None, None)


def is_identifier(name: str) -> bool:
    """Return whether a name is that of a person's or a record's identifier."""
    parts = words(name)
    if not parts:
        return False
    return parts[-1] in _IDENTIFIER or (parts[0] in _PERSON and set(parts[1:]) <= _TAIL)


def is_technical(name: str) -> bool:
    """Return whether a name is that of a row number or a part of an identifier."""
    return words(name)[:1] in (["id"], ["unnamed"], ["index"], ["row"])


def is_site(name: str) -> bool:
    """Return whether a name is that of the site column."""
    parts = words(name)
    if name.lower() in _SITE_WHOLE:
        return True
    return bool(parts) and parts[0] in _SITE and set(parts[1:]) <= _TAIL


def labels(names: Iterable[str]) -> list[str]:
    """Return the names that suggest a class to be predicted, the likeliest first."""
    found = {n: _LABEL.index(w) for n in names for w in words(n)[-1:] if w in _LABEL}
    return sorted(found, key=lambda n: found[n])


def is_split(levels: Iterable[object]) -> bool:
    """Return whether a column's levels divide the rows into training and test sets."""
    found = {str(level).lower() for level in levels}
    return len(found) > 1 and found <= _SPLIT


def too_late(name: str, outcome: Survival, names: Collection[str]) -> str:
    """Return why a column may be known only after the start of follow-up; or nothing.

    Parameters
    ----------
    names : of all columns; os_years with os_event makes aml_years with aml_event an outcome too.
    """
    parts = words(name)
    if not parts or not words(outcome.time) or not words(outcome.event):
        return ""
    if len(parts) > 2 and parts[0] in _SPAN | {"time"} and parts[1] == "to":
        return "is it a time to something later"
    if _LATE & set(parts):
        return "is it known at the end of follow-up only"
    time, event = words(outcome.time), words(outcome.event)
    if (
        len(time) > 1
        and len(event) > 1
        and time[0] == event[0]
        and parts[1:] in (time[1:], event[1:])
    ):
        both = {" ".join((parts[0], *end)) for end in (time[1:], event[1:])}
        if both <= {" ".join(words(n)) for n in names}:
            return "is it another outcome"
    return ""


def late(name: str, outcome: Outcome, names: Collection[str]) -> str:
    """Return why a column's name suggests that it is known with or after the outcome; or nothing.

    names : of all columns; see `too_late`.
    """
    said = too_late(name, outcome, names) if isinstance(outcome, Survival) else ""
    return said or _after(name) or _later(name, names)


def _later(name: str, names: Collection[str]) -> str:
    """Return why a name suggests an event after the start of follow-up, or the time of one.

    names : of all columns; `hsct` beside `hsct_day` is such an event.
    """
    if _event_of(name):
        return "is it the time of something later"
    parts = words(name)
    if not _is_later(parts):
        return ""
    if other := next((other for other in names if _event_of(other) == parts), ""):
        return f"is it known only later, as {other!r} is"
    return ""


def _event_of(name: str) -> list[str]:
    """Return the words of a later event whose time a column holds; [] for other names.

    For hsct_day, day_of_hsct, hsctDate and time_to_hsct_days they are [hsct]. Any other words
    before "day" count too, because a day is counted from some start.
    """
    event = parts = words(name)
    if len(event) > 1 and event[-1] in _WHEN:
        event = event[:-1]
    if len(event) > 1 and event[0] in _WHEN:
        event = event[2:] if event[1] in ("of", "to") else event[1:]
    if event == parts or {*event} & _NO_EVENT or any(word.isdigit() for word in event):
        return []
    counted = parts[-1] == "day" and event == parts[:-1]
    return event if counted or _is_later(event) else []


def _is_later(event: list[str]) -> bool:
    """Return whether words name an event after the start of follow-up."""
    return any(word in _LATER_WHOLE or word.startswith(_LATER) for word in event)


def _after(name: str) -> str:
    parts = words(name)
    whole = " ".join(parts)
    if (
        _DEATH & set(parts)
        or parts[:1] == ["los"]
        or any(whole.startswith(word) for word in _AFTER)
    ):
        return "is it known at the end of a stay, or of follow-up"
    return ""


def lacking(name: str, columns: Mapping[str, Collection[str]]) -> str:
    """Return which sites lack a column, and what it may be called there; or nothing.

    columns : names of each site's columns.
    """
    have = [site for site, here in columns.items() if name in here]
    if len(have) == len(columns):
        return ""
    few = 2 * len(have) <= len(columns)
    places = have if few else [site for site in columns if site not in have]
    where = first_of(places, _SITES_NAMED)
    theirs = {other for site in columns if site not in have for other in columns[site]}
    near = near_name(name, sorted(theirs.difference(*(columns[site] for site in have))))
    if few:
        return f"only at {where}" + (f"; did they mean {near!r}?" if near else "")
    return f"not at {where}" + (f"; is it {near!r} there?" if near else "")


def spellings(levels: Iterable[str]) -> str:
    """Return which levels differ only in capitals or blanks; or nothing."""
    alike: dict[str, list[str]] = {}
    for level in levels:
        alike.setdefault("".join(level.casefold().split()), []).append(level)
    twice = [" and ".join(map(repr, same)) for same in alike.values() if len(same) > 1]
    return f"{', '.join(twice)} differ in capitals or blanks alone" if twice else ""


def survival(times: Iterable[str], events: Iterable[str]) -> Survival | None:
    """Return the likeliest survival outcome, or None.

    Parameters
    ----------
    times : columns of positive numbers, in the table's order.
    events : columns of 0 and 1, in the table's order.
    """
    pairs = [
        (score, Survival(t, e))
        for t in times
        for e in events
        if (score := _score(words(t), words(e))) > 0
    ]
    return max(pairs, key=lambda pair: pair[0])[1] if pairs else None


def _score(time: list[str], event: list[str]) -> int:
    """Return a score of two names as time and event; 0 if they do not fit."""
    kinds, said = set(time), set(event)
    if not time or not event or "age" in kinds or not said & _EVENT or not kinds & (_TIME | _SPAN):
        return 0
    to_other = len(time) > 2 and time[1] == "to" and not kinds & _EVENT
    return (
        2
        + (kinds & _TIME != set())
        + 2 * (time[0] == event[0])
        + (bool(said & _DEATH) or event[0] == "os")
        - 2 * to_other
    )
