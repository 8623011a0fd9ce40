"""Scenarios of a study file: how training rows lie over the sites, and what is done to them.

`degrade` and `swap_outcome` stand in the study, for every scenario, or in one scenario, in place of
the study's. They change training rows only: test rows stay as they are, so that every arm and
scenario is judged on the same patients (`data.degrade`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from fedcohort.data.degrade import HOW, RANDOM, Degradation
from fedcohort.data.split import THIRDS, check_thirds
from fedcohort.protocol import StudyError
from fedcohort.study.file.reader import Reader, spelled
from fedcohort.study.file.yamlfile import Where
from fedcohort.study.kinds import Kind

#: The split with groups at several sites.
OVERLAP = "overlap"
#: Splits of one table into sites, and their options.
SPLITS: Mapping[str, tuple[str, ...]] = {
    "iid": (), "unbalanced": ("hub",), "by-outcome": (), "by-feature": ("feature",),
    "dirichlet": ("alpha",), "groups": ("group",), OVERLAP: ("group", "k"),
    "by-group": ("group",), "views": ("lacking", "group"),
}  # fmt: skip
OPTIONS = tuple(dict.fromkeys(option for options in SPLITS.values() for option in options))
#: Keys that change training rows, of the study or of one scenario.
CHANGES = ("degrade", "swap_outcome")
DEGRADE = ("sites", "rows", "missing", "flip", "noise", "replace", "units")
MISSING = ("share", "by", "columns")
#: Larger ones are typing errors.
MOST_NOISE, MOST_FACTOR = 1e3, 1e9


@dataclass(frozen=True)
class Scenario:
    """A layout of the training rows over sites: a name, a rule, its options.

    Attributes
    ----------
    degrade : what is done to the rows of some sites.
    swap_outcome : share of each site's rows whose outcomes are permuted.
    after_ranking : whether only the sites that consent after a ranking are left.
    """

    name: str
    rule: str
    options: Mapping[str, Any]
    degrade: tuple[Degradation, ...] = ()
    swap_outcome: float = 0.0
    after_ranking: bool = False

    @property
    def changed(self) -> bool:
        """Whether training rows differ from those that were read."""
        return bool(self.degrade or self.swap_outcome)


def scenarios_of(reader: Reader, default: Scenario, kind: Kind) -> tuple[Scenario, ...]:
    """Return the scenarios, with what is done to their rows; by default that of `data.sites`."""
    whole = _changed(reader, (), default, kind)
    if reader.get(("scenarios",)) is None:
        return (whole,)
    known = (*SPLITS, "natural") if default.rule == "natural" else tuple(SPLITS)
    found: list[Scenario] = []
    for i, item in enumerate(reader.listed(("scenarios",), f"with some of {', '.join(SPLITS)}")):
        where: Where = ("scenarios", i)
        if isinstance(item, dict):
            given = reader.mapping(where, ("name", "split", *OPTIONS, *CHANGES))
            rule = reader.choice((*where, "split"), known)
            name = reader.name((*where, "name"), rule)
            one = replace(
                whole, name=name, rule=rule, options=options_of(reader, where, rule, given)
            )
            one = _changed(reader, where, one, kind)
        else:
            rule = name = reader.choice(where, known)
            options = dict(default.options) if default.rule == rule else {}
            _check_needed(reader, where, rule, options)
            one = replace(whole, name=name, rule=rule, options=options)
        if any(s.name == name for s in found):
            raise reader.doc.error(where, f"the scenario {name!r} stands twice.")
        found.append(one)
    return tuple(found)


def _changed(reader: Reader, where: Where, scenario: Scenario, kind: Kind) -> Scenario:
    """Return a scenario with the keys of `CHANGES` that stand at `where`."""
    at = (*where, "degrade")
    if (asked := reader.get(at)) is not None:
        if asked is False:
            items: tuple[Degradation, ...] = ()
        elif isinstance(asked, list):
            listed = reader.listed(at, "of mappings, such as [{sites: 2, missing: 0.5}]")
            items = tuple(_degradation(reader, (*at, i), kind) for i in range(len(listed)))
        else:
            items = (_degradation(reader, at, kind),)
        scenario = replace(scenario, degrade=items)
    at = (*where, "swap_outcome")
    if reader.get(at) is not None:
        share = 0.0 if reader.get(at) in (0, False) else reader.number(at, 0.0, 0.0, 1.0)
        if share:
            _check_learnt(reader, at, kind)
        scenario = replace(scenario, swap_outcome=share)
    return scenario


def _check_learnt(reader: Reader, where: Where, kind: Kind) -> None:
    """Refuse to change an outcome that no fit sees."""
    if kind.aside:
        raise reader.doc.error(
            where, f"no fit of a study of {kind.name} sees the outcome; leave this key out."
        )


def _degradation(reader: Reader, where: Where, kind: Kind) -> Degradation:
    """Return one item of `degrade`."""
    given = reader.mapping(where, DEGRADE, required=("sites",))
    at = (*where, "sites")
    if isinstance(given["sites"], list):
        names = reader.listed(at, "of sites")
        sites: tuple[str, ...] | int = tuple(reader.text((*at, i)) for i in range(len(names)))
    else:
        sites = reader.whole(at, 1, low=1)
    if len(given) == 1:
        raise reader.doc.error(where, f"say what is done to them: {', '.join(DEGRADE[1:])}.")
    if "flip" in given:
        _check_learnt(reader, (*where, "flip"), kind)
    share, how, columns = 0.0, RANDOM, ()
    at = (*where, "missing")
    if isinstance(given.get("missing"), dict):
        more = reader.mapping(at, MISSING, required=("share",))
        share = reader.number((*at, "share"), 0.0, 0.0, 1.0)
        how = reader.choice((*at, "by"), HOW, RANDOM)
        listed = reader.listed((*at, "columns"), "of columns") if "columns" in more else []
        columns = tuple(reader.text((*at, "columns", i)) for i in range(len(listed)))
    elif "missing" in given:
        share = reader.number(at, 0.0, 0.0, 1.0)
    return Degradation(
        sites=sites,
        rows=_rows(reader, (*where, "rows")) if "rows" in given else None,
        missing=share,
        how=how,
        columns=columns,
        flip=reader.number((*where, "flip"), 0.0, 0.0, 1.0) if "flip" in given else 0.0,
        noise=reader.number((*where, "noise"), 0.0, 0.0, MOST_NOISE) if "noise" in given else 0.0,
        replace=reader.number((*where, "replace"), 0.0, 0.0, 1.0) if "replace" in given else 0.0,
        units=_factors(reader, (*where, "units")) if "units" in given else {},
    )


def _rows(reader: Reader, where: Where) -> float:
    """Return a number of rows, or a share of them."""
    value = spelled(reader.get(where))
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not (0 < value < 1 or (value >= 2 and value == int(value))):
        raise reader.doc.error(
            where, "expected a number of rows of at least 2, or a share of them below 1."
        )
    return float(value)


def _factors(reader: Reader, where: Where) -> dict[str, float]:
    """Return a factor for each column."""
    given = reader.get(where)
    if not isinstance(given, dict) or not given:
        raise reader.doc.error(where, "expected factors by column, such as {age: 12}.")
    names = cast("dict[str, Any]", given)
    return {name: reader.number((*where, name), 1.0, 0.0, MOST_FACTOR) for name in names}


def check_thirds_of(reader: Reader, n: int | None, scenarios: Sequence[Scenario]) -> None:
    """Refuse a number of sites that a scenario cannot divide in three."""
    for scenario in scenarios if n is not None else ():
        if scenario.rule in THIRDS and n is not None:
            try:
                check_thirds(scenario.rule, n)
            except StudyError as error:
                raise reader.doc.error(("data", "sites", "n"), str(error)) from None


def options_of(reader: Reader, where: Where, rule: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a split's options, checked; options of another split are errors."""
    options = {k: v for k, v in given.items() if k in OPTIONS}
    known = SPLITS.get(rule, ())
    found: dict[str, Any] = {}
    for key in options:
        here = (*where, key)
        if key not in known:
            has = f"its options are {', '.join(known)}" if known else "it has none"
            raise reader.doc.error(here, f"this is no option of split {rule!r}; {has}.")
        if key == "hub":
            found[key] = reader.number(here, 0.4, 0.0, 1.0, open_ends=True)
        elif key == "k":
            found[key] = reader.whole(here, 1, low=1)
        elif key == "alpha":
            found[key] = reader.number(here, 0.5, 0.0, 1e6)
        elif key == "lacking":
            names = reader.listed(here, "of two views, such as [mri, pet]")
            found[key] = [reader.text((*here, i)) for i in range(len(names))]
            if len(set(found[key])) != 2 or len(names) != 2:
                raise reader.doc.error(here, "expected a list of two views, such as [mri, pet].")
        else:
            found[key] = reader.text(here)
    _check_needed(reader, where, rule, found)
    return found


#: Options that a split cannot do without, in words.
_NEEDED = {"group": "the column of the groups", "k": "the number of groups of each site"}


def _check_needed(reader: Reader, where: Where, rule: str, found: Mapping[str, Any]) -> None:
    for key in SPLITS.get(rule, ()) if rule in ("groups", OVERLAP, "by-group") else ():
        if key not in found:
            raise reader.doc.error(where, f"the key {key!r} is missing: {_NEEDED[key]}.")
