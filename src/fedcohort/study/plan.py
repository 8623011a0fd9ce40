"""A study file, checked: what is asked, of which data, by which arms, and how it is judged.

Everything that can be wrong with a study is found here, before anything is computed or written;
each error names the file, the line, the key and what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcohort.data.outcome import Binary, Category, Continuous, Count, Outcome, Survival
from fedcohort.protocol import registry
from fedcohort.study.arms import PREPROCESS, Arm, arms_of, tuning
from fedcohort.study.reader import Reader
from fedcohort.study.yamlfile import Document, Where

TASKS = (
    "survival", "classification", "regression", "clustering", "latent", "synthesis", "imputation",
)  # fmt: skip
#: Ways to make sites of one table, and the options that each one has.
SPLITS: Mapping[str, tuple[str, ...]] = {
    "iid": (), "unbalanced": ("hub",), "by-outcome": (), "by-feature": ("feature",),
    "dirichlet": ("alpha",), "groups": ("group",),
}  # fmt: skip
OPTIONS = tuple(option for options in SPLITS.values() for option in options)
METRICS = ("c_index", "uno_c", "ibs", "calibration_slope", "d_calibration_p")
TOP = (
    "study", "question", "task", "seed", "data", "preprocess", "scenarios", "arms", "bounds",
    "evaluate", "tune", "privacy", "quorum",
)  # fmt: skip
#: Larger numbers are slips of the keyboard.
MOST_REPEATS, MOST_DRAWS = 1_000, 10_000


@dataclass(frozen=True)
class Scenario:
    """How the training rows are laid out over sites: a name, a rule, its options."""

    name: str
    rule: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """A checked study; see `docs/study-file.md` for the meaning of each key."""

    study: str
    question: str
    task: str
    seed: int
    source: str
    dictionary: str | None
    outcome: Outcome | None
    site_column: str | None
    n_sites: int | None
    scenarios: tuple[Scenario, ...]
    arms: tuple[Arm, ...]
    test_fraction: float
    repeats: int
    draws: int
    metrics: tuple[str, ...]
    tune: Mapping[str, Any]
    min_cell: int
    quorum: float
    base: Path
    content: Mapping[str, Any]

    def space(self, arm: Arm) -> dict[str, Any]:
        """Return what Optuna may propose for an arm: the settings that its method has."""
        known = registry.find(arm.method).settings.__dataclass_fields__
        return {k: v for k, v in self.tune.get("space", {}).items() if k in known}

    def is_tuned(self, arm: Arm) -> bool:
        """Return whether an arm has settings to choose."""
        return bool(arm.grid or self.space(arm))


def check(doc: Document, base: Path) -> Plan:
    """Return the plan of a study file.

    Parameters
    ----------
    base : the folder that relative paths in the file start from.

    Raises
    ------
    StudyError : an unknown key (the nearest known one is named) or an impossible value.
    """
    reader = Reader(doc)
    doc.known_only((), doc.content, TOP)
    study = reader.name(("study",))
    task = reader.choice(("task",), TASKS, "survival")
    data = reader.mapping(
        ("data",), ("source", "dictionary", "outcome", "sites"), required=("source",)
    )
    source = reader.text(("data", "source"))
    outcome = _outcome(reader, task, source)
    column, n_sites, default = _sites(reader, data, source)
    preprocess = reader.mapping(("preprocess",), tuple(PREPROCESS))
    for key in preprocess:
        reader.choice(("preprocess", key), PREPROCESS[key])
    tune = tuning(reader)
    reader.mapping(("evaluate",), ("test_fraction", "repeats", "draws", "metrics"))
    asked = reader.get(("evaluate", "metrics")) is not None
    _privacy(reader)
    return Plan(
        study=study,
        question=reader.text(("question",), ""),
        task=task,
        seed=reader.whole(("seed",), 0, low=0),
        source=source,
        dictionary=reader.text(("data", "dictionary"), "") or None,
        outcome=outcome,
        site_column=column,
        n_sites=n_sites,
        scenarios=_scenarios(reader, default),
        arms=arms_of(reader, task, preprocess, tune),
        test_fraction=reader.number(("evaluate", "test_fraction"), 0.25, 0.0, 1.0, open_ends=True),
        repeats=reader.whole(("evaluate", "repeats"), 5, low=1, high=MOST_REPEATS),
        draws=reader.whole(("evaluate", "draws"), 200, low=2, high=MOST_DRAWS),
        metrics=reader.names(("evaluate", "metrics"), METRICS) if asked else METRICS,
        tune=tune,
        min_cell=reader.whole(("privacy", "min_cell"), 5, low=1),
        quorum=reader.number(("quorum",), 1.0, 0.0, 1.0),
        base=base,
        content=doc.content,
    )


def _outcome(reader: Reader, task: str, source: str) -> Outcome | None:
    """Return the outcome that fits the task; None where the sample knows it, or there is none."""
    where: Where = ("data", "outcome")
    if reader.get(where) is None:
        needed = task in ("survival", "classification", "regression")
        if needed and not source.startswith("sample:"):
            raise reader.doc.error(("data",), "the key 'outcome' is missing.")
        return None
    if task == "survival":
        reader.mapping(where, ("time", "event"), required=("time", "event"))
        return Survival(reader.text((*where, "time")), reader.text((*where, "event")))
    reader.mapping(where, ("y", "type"), required=("y",))
    y = reader.text((*where, "y"))
    if task == "classification":
        kind = reader.choice((*where, "type"), ("binary", "category"), "binary")
        return Binary(y) if kind == "binary" else Category(y)
    kind = reader.choice((*where, "type"), ("continuous", "count"), "continuous")
    return Continuous(y) if kind == "continuous" else Count(y)


def _sites(
    reader: Reader, data: Mapping[str, Any], source: str
) -> tuple[str | None, int | None, Scenario]:
    """Return the natural site column, the number of simulated sites, and the default scenario."""
    where: Where = ("data", "sites")
    natural = Scenario("natural", "natural", {})
    by_file = "{site}" in source
    if "sites" not in data:
        if by_file:
            return None, None, natural
        raise reader.doc.error(
            ("data",), "the key 'sites' is missing: name a site column, or a split and n."
        )
    sites = reader.mapping(where, ("column", "split", "n", *OPTIONS))
    if ("column" in sites) == ("split" in sites):
        raise reader.doc.error(
            where, "expected either 'column' (natural sites) or 'split' and 'n'."
        )
    if "column" in sites:
        if by_file:
            raise reader.doc.error(
                (*where, "column"), "the source has one file a site already; leave 'sites' out."
            )
        reader.doc.known_only(where, sites, ("column",))
        return reader.text((*where, "column")), None, natural
    rule = reader.choice((*where, "split"), tuple(SPLITS))
    if "n" not in sites:
        raise reader.doc.error(where, "the key 'n' is missing: into how many sites?")
    n = reader.whole((*where, "n"), 1, low=1)
    return None, n, Scenario(rule, rule, _options(reader, where, rule, sites))


def _scenarios(reader: Reader, default: Scenario) -> tuple[Scenario, ...]:
    """Return the scenarios; by default the one that `data.sites` describes."""
    if reader.get(("scenarios",)) is None:
        return (default,)
    known = (*SPLITS, "natural") if default.rule == "natural" else tuple(SPLITS)
    found: list[Scenario] = []
    for i, item in enumerate(reader.listed(("scenarios",), f"with some of {', '.join(SPLITS)}")):
        where: Where = ("scenarios", i)
        if isinstance(item, dict):
            given = reader.mapping(where, ("name", "split", *OPTIONS))
            rule = reader.choice((*where, "split"), known)
            name = reader.name((*where, "name"), rule)
            options = _options(reader, where, rule, given)
        else:
            rule = name = reader.choice(where, known)
            options = dict(default.options) if default.rule == rule else {}
        if any(s.name == name for s in found):
            raise reader.doc.error(where, f"the scenario {name!r} stands twice.")
        found.append(Scenario(name, rule, options))
    return tuple(found)


def _options(
    reader: Reader, where: Where, rule: str, given: Mapping[str, Any]
) -> dict[str, float | str]:
    """Return a split's options, checked; those of another split are errors."""
    options = {k: v for k, v in given.items() if k in OPTIONS}
    known = SPLITS.get(rule, ())
    found: dict[str, float | str] = {}
    for key in options:
        here = (*where, key)
        if key not in known:
            has = f"its options are {', '.join(known)}" if known else "it has none"
            raise reader.doc.error(here, f"this is no option of split {rule!r}; {has}.")
        if key == "hub":
            found[key] = reader.number(here, 0.4, 0.0, 1.0, open_ends=True)
        elif key == "alpha":
            found[key] = reader.number(here, 0.5, 0.0, 1e6)
        else:
            found[key] = reader.text(here)
    if rule == "groups" and "group" not in found:
        raise reader.doc.error(where, "the key 'group' is missing: the column of the groups.")
    return found


def _privacy(reader: Reader) -> None:
    """Refuse what this version cannot protect, instead of leaving it out in silence."""
    privacy = reader.mapping(("privacy",), ("secure_aggregation", "min_cell", "dp"))
    for key in ("secure_aggregation", "dp"):
        if privacy.get(key, False) is not False:
            raise reader.doc.error(
                ("privacy", key), "this version cannot do that; remove the key or set it to false."
            )
