"""A study file, checked: what is asked, of which data, by which arms, and how it is judged.

Everything that can be wrong with a study is found here, before anything is computed or written;
each error names the file, the line, the key and what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fedcohort.data.outcome import Binary, Category, Continuous, Count, Outcome, Survival
from fedcohort.protocol import Method, SettingError, registry
from fedcohort.study.yamlfile import Document, Where, nearest

TASKS = (
    "survival", "classification", "regression", "clustering", "latent", "synthesis", "imputation",
)  # fmt: skip
BOUNDS = ("isolated", "centralised")
SPLITS = ("iid", "unbalanced", "by-outcome", "by-feature", "dirichlet", "groups")
METRICS = ("c_index", "uno_c", "ibs", "calibration_slope", "d_calibration_p")
FOLDS = ("centre-kfold", "row-kfold")
IMPUTE = ("mean", "median", "most_frequent", "indicator")
SCALE = ("none", "standard", "minmax")
TOP = (
    "study", "question", "task", "seed", "data", "preprocess", "scenarios", "arms", "bounds",
    "evaluate", "tune", "privacy", "quorum",
)  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """How the training rows are laid out over sites: a name, a rule, its options."""

    name: str
    rule: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Arm:
    """One way to fit the data.

    Attributes
    ----------
    name, title : the short name, and how tables and pictures call it.
    method : a method of the catalogue.
    settings : what the user set of the method's settings.
    preprocess : scale and impute.
    scope : "sites" (a federation), "isolated" (each site alone) or "centralised" (one table).
    grid : values to tune, by setting; empty where nothing is tuned.
    folds : one of `FOLDS`: what tuning leaves out at a time, a site or some rows of each.
    """

    name: str
    title: str
    method: str
    settings: Mapping[str, Any]
    preprocess: Mapping[str, str]
    scope: str
    grid: Mapping[str, Any]
    folds: str

    def configured(self, chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the settings for a fit, with what tuning chose, and the bounds' own overrides."""
        method = registry.find(self.method)
        alone = method.alone if self.scope != "sites" else {}
        return {**self.settings, **(chosen or {}), **alone}


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


def check(doc: Document, base: Path) -> Plan:
    """Return the plan of a study file.

    Parameters
    ----------
    base : the folder that relative paths in the file start from.

    Raises
    ------
    StudyError : an unknown key (the nearest known one is named) or an impossible value.
    """
    reader = _Reader(doc)
    reader.doc.check_keys((), TOP)
    study = reader.text(("study",))
    if not study or any(c in study for c in "/\\") or study.startswith("."):
        raise doc.error(("study",), "expected a name that can be a folder's, such as 'gbsg2-rfs'.")
    task = reader.choice(("task",), TASKS, "survival")
    data = reader.mapping(
        ("data",), ("source", "dictionary", "outcome", "sites"), required=("source",)
    )
    outcome = _outcome(reader, task)
    column, n_sites, default = _sites(reader, data)
    scenarios = _scenarios(reader, column, n_sites, default)
    preprocess = reader.mapping(("preprocess",), ("impute", "scale"))
    if "impute" in preprocess:
        reader.choice(("preprocess", "impute"), IMPUTE)
    if "scale" in preprocess:
        reader.choice(("preprocess", "scale"), SCALE)
    tune = _tune(reader)
    arms = _arms(reader, task, preprocess, tune)
    reader.mapping(("evaluate",), ("test_fraction", "repeats", "draws", "metrics"))
    metrics = reader.names(("evaluate", "metrics"), METRICS, METRICS)
    _privacy(reader)
    return Plan(
        study=study,
        question=reader.text(("question",), ""),
        task=task,
        seed=reader.whole(("seed",), 0, low=0),
        source=reader.text(("data", "source")),
        dictionary=reader.text(("data", "dictionary"), "") or None,
        outcome=outcome,
        site_column=column,
        n_sites=n_sites,
        scenarios=scenarios,
        arms=arms,
        test_fraction=reader.number(("evaluate", "test_fraction"), 0.25, 0.0, 1.0, open_ends=True),
        repeats=reader.whole(("evaluate", "repeats"), 5, low=1),
        draws=reader.whole(("evaluate", "draws"), 200, low=2),
        metrics=metrics,
        tune=tune,
        min_cell=reader.whole(("privacy", "min_cell"), 5, low=1),
        quorum=reader.number(("quorum",), 1.0, 0.0, 1.0),
        base=base,
        content=doc.content,
    )


class _Reader:
    """Typed access to a document's values, with defaults and errors that point to the place."""

    def __init__(self, doc: Document):
        self.doc = doc

    def get(self, where: Where, default: Any = None) -> Any:
        value: Any = self.doc.content
        for part in where:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return default
        return default if value is None else value

    def mapping(
        self, where: Where, known: Sequence[str], required: Sequence[str] = ()
    ) -> dict[str, Any]:
        value = self.get(where, {})
        if not isinstance(value, dict):
            raise self.doc.error(where, f"expected a mapping with keys {', '.join(known)}.")
        self.doc.known_only(where, cast("dict[str, Any]", value), known)
        for key in required:
            if key not in value:
                raise self.doc.error(where, f"the key {key!r} is missing.")
        return cast("dict[str, Any]", value)

    def text(self, where: Where, default: str | None = None) -> str:
        value = self.get(where, default)
        if value is None:
            raise self.doc.error(where[:-1], f"the key {where[-1]!r} is missing.")
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise self.doc.error(where, "expected text.")
        return str(value)

    def choice(self, where: Where, known: Sequence[str], default: str | None = None) -> str:
        value = self.get(where, default)
        if value not in known:
            raise self.doc.error(where, f"{value!r} is not possible; {nearest(value, known)}")
        return cast(str, value)

    def names(self, where: Where, known: Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
        value = self.get(where, list(default))
        if not isinstance(value, list) or not value:
            raise self.doc.error(where, f"expected a list with some of {', '.join(known)}.")
        items = cast("list[Any]", value)
        for i, item in enumerate(items):
            if item not in known:
                raise self.doc.error(
                    (*where, i), f"{item!r} is not possible; {nearest(item, known)}"
                )
        if len(set(items)) < len(items):
            raise self.doc.error(where, "an item stands twice.")
        return tuple(items)

    def whole(self, where: Where, default: int, low: int) -> int:
        value = self.get(where, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise self.doc.error(where, f"expected a whole number of at least {low}.")
        return value

    def number(
        self, where: Where, default: float, low: float, high: float, open_ends: bool = False
    ) -> float:
        value = self.get(where, default)
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or not (low < value < high if open_ends else low < value <= high):
            raise self.doc.error(where, f"expected a number between {low:g} and {high:g}.")
        return float(value)


def _outcome(reader: _Reader, task: str) -> Outcome | None:
    """Return the outcome that fits the task."""
    where: Where = ("data", "outcome")
    if reader.get(where) is None:
        if task in ("survival", "classification", "regression"):
            source = str(reader.get(("data", "source"), ""))
            if source.startswith("sample:"):
                return None
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
    reader: _Reader, data: Mapping[str, Any]
) -> tuple[str | None, int | None, Scenario | None]:
    """Return the natural site column, the number of simulated sites, and the default scenario."""
    where: Where = ("data", "sites")
    if "sites" not in data:
        if "{site}" in str(data["source"]):
            return None, None, Scenario("natural", "natural", {})
        raise reader.doc.error(
            ("data",), "the key 'sites' is missing: name a site column, or a split and n."
        )
    known = ("column", "split", "n", "hub", "feature", "alpha", "group")
    sites = reader.mapping(where, known)
    if ("column" in sites) == ("split" in sites):
        raise reader.doc.error(
            where, "expected either 'column' (natural sites) or 'split' and 'n'."
        )
    if "column" in sites:
        return reader.text((*where, "column")), None, Scenario("natural", "natural", {})
    rule = reader.choice((*where, "split"), SPLITS)
    if "n" not in sites:
        raise reader.doc.error(where, "the key 'n' is missing: into how many sites?")
    n = reader.whole((*where, "n"), 1, low=1)
    options = {k: v for k, v in sites.items() if k not in ("split", "n")}
    return None, n, Scenario(rule, rule, options)


def _scenarios(
    reader: _Reader, column: str | None, n_sites: int | None, default: Scenario | None
) -> tuple[Scenario, ...]:
    """Return the scenarios; by default the one that `data.sites` describes."""
    listed = reader.get(("scenarios",))
    if listed is None:
        assert default is not None
        return (default,)
    if not isinstance(listed, list) or not listed:
        raise reader.doc.error(("scenarios",), f"expected a list with some of {', '.join(SPLITS)}.")
    known = (*SPLITS, "natural") if default is not None and default.rule == "natural" else SPLITS
    found: list[Scenario] = []
    for i, item in enumerate(cast("list[Any]", listed)):
        where: Where = ("scenarios", i)
        if isinstance(item, dict):
            options = reader.mapping(where, ("name", "split", "hub", "feature", "alpha", "group"))
            rule = reader.choice((*where, "split"), known)
            name = reader.text((*where, "name"), rule)
            options = {k: v for k, v in options.items() if k not in ("name", "split")}
        else:
            rule = name = reader.choice(where, known)
            same = default is not None and default.rule == rule
            options = dict(default.options) if same and default else {}
        if any(s.name == name for s in found):
            raise reader.doc.error(where, f"the scenario {name!r} stands twice.")
        found.append(Scenario(name, rule, options))
    return tuple(found)


def _tune(reader: _Reader) -> Mapping[str, Any]:
    """Return the tuning options, or an empty mapping."""
    if reader.get(("tune",)) is None:
        return {}
    tune = reader.mapping(("tune",), ("by", "grid", "trials", "space", "arms", "each_repeat"))
    reader.choice(("tune", "by"), FOLDS, FOLDS[0])
    if ("space" in tune) != ("trials" in tune):
        raise reader.doc.error(("tune",), "'trials' and 'space' belong together (Optuna).")
    if not any(k in tune for k in ("grid", "space", "arms")):
        raise reader.doc.error(("tune",), "expected a 'grid', a 'space' with 'trials', or 'arms'.")
    if "trials" in tune:
        reader.whole(("tune", "trials"), 1, low=1)
    if not isinstance(tune.get("each_repeat", False), bool):
        raise reader.doc.error(("tune", "each_repeat"), "expected true or false.")
    return tune


def _grid(reader: _Reader, where: Where, method: Method, strict: bool) -> dict[str, Any]:
    """Return the part of a grid that the method has settings for, each value checked."""
    grid = reader.get(where, {})
    if not isinstance(grid, dict):
        raise reader.doc.error(where, "expected a mapping from settings to lists of values.")
    known = set(method.settings.__dataclass_fields__)
    chosen: dict[str, Any] = {}
    for key, values in cast("dict[str, Any]", grid).items():
        if strict and key == "by":
            continue
        if key not in known:
            if strict:
                raise reader.doc.error((*where, key), f"unknown setting; {nearest(key, known)}")
            continue
        if not isinstance(values, list) or not values:
            raise reader.doc.error((*where, key), "expected a list of values to try.")
        for value in cast("list[Any]", values):
            _configure(reader, (*where, key), method, {key: value})
        chosen[key] = values
    return chosen


def _configure(reader: _Reader, where: Where, method: Method, settings: Mapping[str, Any]) -> None:
    """Build a method's settings once, so that what is wrong with them is found now."""
    try:
        method.configure(settings)
    except SettingError as error:
        raise reader.doc.error(where, str(error)) from None


def _arms(
    reader: _Reader, task: str, preprocess: Mapping[str, str], tune: Mapping[str, Any]
) -> tuple[Arm, ...]:
    """Return the arms and bounds, bounds around the arms: isolated first, centralised last."""
    listed = reader.get(("arms",))
    if not isinstance(listed, list) or not listed:
        raise reader.doc.error(("arms",), "expected a list of arms, such as {method: cox}.")
    arms: list[Arm] = []
    for i, item in enumerate(cast("list[Any]", listed)):
        where: Where = ("arms", i)
        if not isinstance(item, dict) or "method" not in item:
            raise reader.doc.error(where, "expected a mapping with at least 'method'.")
        arms.append(_arm(reader, where, cast("dict[str, Any]", item), task, preprocess, tune, arms))
    bounds = reader.get(("bounds",), [])
    if isinstance(bounds, dict):
        own = cast("dict[str, Any]", bounds)
    else:
        own = {name: {} for name in reader.names(("bounds",), BOUNDS, [])} if bounds else {}
    reader.doc.known_only(("bounds",), own, BOUNDS)
    first = cast("dict[str, Any]", listed[0])
    inherited = {k: v for k, v in first.items() if k not in ("name", "title", "strategy")}
    made = {
        name: _arm(
            reader,
            ("bounds", name) if isinstance(bounds, dict) else ("bounds",),
            {**inherited, **(settings or {}), "name": name, "strategy": name},
            task,
            preprocess,
            tune,
            arms,
        )
        for name, settings in own.items()
    }
    lower = [made["isolated"]] if "isolated" in made else []
    upper = [made["centralised"]] if "centralised" in made else []
    everything = (*lower, *arms, *upper)
    if isinstance(tune.get("arms"), dict):
        reader.doc.known_only(("tune", "arms"), tune["arms"], [a.name for a in everything])
    return everything


def _arm(
    reader: _Reader,
    where: Where,
    item: dict[str, Any],
    task: str,
    preprocess: Mapping[str, str],
    tune: Mapping[str, Any],
    before: Sequence[Arm],
) -> Arm:
    """Return one arm, its settings checked against the method's."""
    try:
        method = registry.find(str(item["method"]))
    except SettingError as error:
        raise reader.doc.error((*where, "method"), str(error)) from None
    if task not in method.tasks:
        raise reader.doc.error(
            (*where, "method"), f"{method.name!r} serves {', '.join(method.tasks)}, not {task}."
        )
    settings = {k: v for k, v in item.items() if k not in ("method", "name", "title")}
    scope = settings.get("strategy") if settings.get("strategy") in BOUNDS else "sites"
    if scope != "sites":
        settings.pop("strategy")
    table = {**method.preprocess, **preprocess}
    for key, known in (("scale", SCALE), ("impute", IMPUTE)):
        if key in settings:
            table[key] = settings.pop(key)
            if table[key] not in known:
                raise reader.doc.error(
                    (*where, key), f"{table[key]!r} is not possible; {nearest(table[key], known)}"
                )
    name = str(item.get("name") or settings.get("strategy") or method.name)
    if any(a.name == name for a in before):
        raise reader.doc.error(where, f"two arms are called {name!r}; give one of them a 'name'.")
    if "/" in name or "\\" in name or name.startswith("."):
        raise reader.doc.error(where, "an arm's name must be possible as a folder's.")
    own: Where = ("tune", "arms", name)
    has_own = reader.get(own) is not None
    grid = _grid(reader, own if has_own else ("tune", "grid"), method, strict=has_own)
    folds = reader.choice((*own, "by"), FOLDS, str(tune.get("by", FOLDS[0])))
    arm = Arm(
        name=name,
        title=str(item.get("title") or name.replace("-", " ").replace("_", " ")),
        method=method.name,
        settings=settings,
        preprocess={k: str(v) for k, v in table.items()},
        scope=cast(str, scope),
        grid=grid,
        folds=folds if scope == "sites" else "row-kfold",
    )
    _configure(reader, where, method, arm.configured())
    return arm


def _privacy(reader: _Reader) -> None:
    """Refuse what this version cannot protect, instead of leaving it out in silence."""
    privacy = reader.mapping(("privacy",), ("secure_aggregation", "min_cell", "dp"))
    for key in ("secure_aggregation", "dp"):
        if privacy.get(key):
            raise reader.doc.error(
                ("privacy", key), "this version cannot do that; remove the key or set it to false."
            )
