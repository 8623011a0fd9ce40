"""The arms of a study, including its bounds: read and checked.

Settings are built for each arm and each value to tune, so that errors are found before anything is
computed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from fedcohort.data.outcome import Outcome
from fedcohort.data.prepare import OPTIONS, checked
from fedcohort.protocol import (
    DataError,
    InputError,
    Method,
    NotSupported,
    SettingError,
    registry,
)
from fedcohort.study.file.reader import Reader
from fedcohort.study.file.space import space_of
from fedcohort.study.file.yamlfile import Document, Where, nearest
from fedcohort.study.kinds import Kind

BOUNDS = ("isolated", "centralised")
FOLDS = ("centre-kfold", "row-kfold")
#: Options of the preprocessing, and their choices; none for a number.
PREPROCESS = OPTIONS
#: Largest number of trials.
MOST_TRIALS = 10_000


@dataclass(frozen=True)
class Arm:
    """One way to fit the data.

    Attributes
    ----------
    name, title : the short name, and the name in tables and figures.
    method : registered name of the method.
    settings : the user's settings of the method.
    preprocess : options of `PREPROCESS`.
    scope : "sites" (a federation), "isolated" (each site alone) or "centralised" (one table).
    grid : values to tune, by setting; empty without tuning.
    folds : one of `FOLDS`: tuning leaves out one site at a time, or some rows of each. A model for
        one site is tuned by rows: every fold needs that site.
    """

    name: str
    title: str
    method: str
    settings: Mapping[str, Any]
    preprocess: Mapping[str, Any]
    scope: str
    grid: Mapping[str, Any]
    folds: str

    def configured(self, chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the settings for a fit, with tuned ones, and the bounds' own overrides."""
        method = registry.find(self.method)
        alone = method.settings.alone if self.scope != "sites" else {}
        return {**self.settings, **(chosen or {}), **alone}

    @property
    def fields(self) -> Collection[str]:
        """Names of the method's settings."""
        return registry.find(self.method).settings.__dataclass_fields__.keys()

    @property
    def user(self) -> str:
        """The setting `user`, a site's name or "all"; "" without it, and for a bound."""
        return str(self.settings.get("user", "")) if self.scope == "sites" else ""

    @property
    def every(self) -> bool:
        """Whether each site gets a model of its own (`user: all`), which it keeps."""
        if self.scope != "sites":
            return False
        config = registry.find(self.method).configure(self.configured())
        return bool(getattr(config, "every", False))

    @property
    def apart(self) -> bool:
        """Whether each site's own model is evaluated there, instead of one of all sites."""
        return self.scope == "isolated" or self.every

    @property
    def ranks(self) -> bool:
        """Whether its predictions can differ between patients."""
        return registry.find(self.method).configure(self.configured()).ranks


def preprocess_value(doc: Document, where: Where, key: str, value: Any) -> Any:
    """Return an option of the preprocessing, checked.

    Raises
    ------
    StudyError : it is not a known choice, or not a valid number.
    """
    if PREPROCESS[key] and value not in PREPROCESS[key]:
        hint = nearest(value, PREPROCESS[key])
        raise doc.error(where, f"{value!r} is not possible; {hint}")
    try:
        return checked(key, value)
    except InputError as error:
        raise doc.error(where, str(error)) from None


def tuning(reader: Reader) -> Mapping[str, Any]:
    """Return the options of `tune`, or an empty mapping."""
    if reader.get(("tune",)) is None:
        return {}
    tune = reader.mapping(
        ("tune",), ("by", "score", "grid", "trials", "space", "arms", "each_repeat")
    )
    reader.choice(("tune", "by"), FOLDS, FOLDS[0])
    reader.flag(("tune", "each_repeat"))
    if ("space" in tune) != ("trials" in tune):
        raise reader.doc.error(("tune",), "'trials' and 'space' belong together (Optuna).")
    if not any(k in tune for k in ("grid", "space", "arms")):
        raise reader.doc.error(("tune",), "expected a 'grid', a 'space' with 'trials', or 'arms'.")
    if "trials" in tune:
        reader.whole(("tune", "trials"), 1, low=1, high=MOST_TRIALS)
        if importlib.util.find_spec("optuna") is None:
            raise reader.doc.error(
                ("tune", "trials"), "this needs Optuna: pip install 'fedcohort[tune]'."
            )
    for key in ("grid", "space", "arms"):
        if not isinstance(tune.get(key, {}), dict):
            inner = "arms" if key == "arms" else "settings"
            raise reader.doc.error(("tune", key), f"expected a mapping from {inner}.")
    return tune


def check_scores(reader: Reader, kind: Kind, tune: Mapping[str, Any]) -> None:
    """Check the options of `tune` that depend on whether an outcome scores settings.

    Raises
    ------
    StudyError : a score for a study with an outcome, or an unknown one.
    """
    if kind.aside and not kind.scores and tune:
        raise reader.doc.error(
            ("tune",),
            f"a study of {kind.name} has no score to choose settings by; leave 'tune' out.",
        )
    if kind.scores:
        reader.choice(("tune", "score"), kind.scores, kind.scores[0])
    elif "score" in tune:
        raise reader.doc.error(
            ("tune", "score"), f"the outcome scores settings of {kind.name}; leave 'score' out."
        )


def arms_of(
    reader: Reader,
    kind: Kind,
    outcome: Outcome | None,
    preprocess: Mapping[str, Any],
    tune: Mapping[str, Any],
) -> tuple[Arm, ...]:
    """Return the arms with the bounds around them: isolated first, centralised last.

    The bounds copy the first arm whose predictions can differ between patients.

    Parameters
    ----------
    outcome : None if the file does not name it; then `check_learnt` checks the arms.

    Raises
    ------
    StudyError : no arm, an unknown method or setting, a method that does not learn the outcome, an
        impossible value, two arms with one name.
    """
    shop = _ArmReader(reader, kind, outcome, preprocess, tune)
    arms: list[Arm] = []
    for i in range(len(reader.listed(("arms",), "of arms, such as {method: cox}"))):
        arm = shop.arm(i)
        if any(a.name == arm.name for a in arms):
            raise reader.doc.error(
                ("arms", i), f"two arms are called {arm.name!r}; give one of them a 'name'."
            )
        arms.append(arm)
    like = next((i for i, arm in enumerate(arms) if arm.ranks), 0)
    bounds = {arm.scope: arm for arm in shop.bounds({arm.name for arm in arms}, like)}
    lower, upper = ([bounds[b]] if b in bounds else [] for b in BOUNDS)
    everything = (*lower, *arms, *upper)
    own = cast("dict[str, Any]", tune.get("arms", {}))
    reader.doc.known_only(("tune", "arms"), own, [a.name for a in everything])
    known = {s for a in everything for s in a.fields}
    for table in ("grid", "space"):
        for key in tune.get(table, {}):
            if key not in known:
                named = next((a.name for a in everything if key in (a.name, a.method)), "")
                if named:
                    raise reader.doc.error(
                        ("tune", table, key),
                        f"{key!r} is no setting; give values for the arm {named!r} alone as "
                        f"tune.arms: {{{named}: {{SETTING: [VALUE, …]}}}}.",
                    )
                hint = _hint(key, known, (registry.find(a.method) for a in everything))
                raise reader.doc.error(("tune", table, key), f"no arm has this setting; {hint}")
    return everything


def _hint(key: str, known: Collection[str], methods: Iterable[Method]) -> str:
    """Return a hint for a setting that is not among those `known` of methods."""
    meant = next(filter(None, (method.settings.meant(key) for method in methods)), "")
    return f"did you mean {meant!r}?" if meant else nearest(key, known)


def check_learnt(arms: Iterable[Arm], kind: Kind, outcome: Outcome | None) -> None:
    """Check that the arms' methods learn an outcome that the study file may not name.

    Raises
    ------
    DataError : a method does not.
    """
    learnt = "" if outcome is None or kind.aside else outcome.type
    for arm in arms:
        try:
            registry.check_outcome(registry.find(arm.method), kind.name, learnt)
            kind.check_drawn(registry.find(arm.method), outcome)
        except SettingError as error:
            raise DataError(f"arm {arm.name!r}: {error}") from None


class _ArmReader:
    def __init__(
        self,
        reader: Reader,
        kind: Kind,
        outcome: Outcome | None,
        preprocess: Mapping[str, Any],
        tune: Mapping[str, Any],
    ):
        self._reader = reader
        self._kind = kind
        self._learnt = "" if outcome is None or kind.aside else outcome.type
        self._preprocess = preprocess
        self._tune = tune

    def arm(self, index: int) -> Arm:
        """Return the arm at an index of the list."""
        where: Where = ("arms", index)
        item = self._reader.get(where)
        if not isinstance(item, dict) or "method" not in item:
            raise self._reader.doc.error(where, "expected a mapping with at least 'method'.")
        given = cast("dict[str, Any]", item)
        strategy = given.get("strategy")
        default = strategy if isinstance(strategy, str) else str(given["method"])
        name = self._reader.name((*where, "name"), default)
        if name in BOUNDS and name != strategy:
            raise self._reader.doc.error((*where, "name"), f"{name!r} is the name of a bound.")
        title = self._reader.text((*where, "title"), name.replace("-", " ").replace("_", " "))
        return self._arm(where, given, name, title)

    def bounds(self, taken: set[str], like: int) -> Iterator[Arm]:
        """Yield the bounds: the settings of arm number `like`, replaced by their own.

        With another method, only those settings that it has, too.
        """
        where: Where = ("bounds",)
        doc = self._reader.doc
        listed = self._reader.get(where)
        if isinstance(listed, dict):
            own = cast("dict[str, Any]", listed)
            doc.known_only(where, own, BOUNDS)
        else:
            names = self._reader.names(where, BOUNDS) if listed not in (None, []) else ()
            own = dict.fromkeys(names)
        first = cast("dict[str, Any]", self._reader.get(("arms", like)))
        inherited = {k: v for k, v in first.items() if k not in ("name", "title", "strategy")}
        for name, settings in own.items():
            here: Where = (*where, name) if isinstance(listed, dict) else where
            if not isinstance(settings, dict | None):
                raise doc.error(here, "expected a mapping of settings, or nothing.")
            given = cast("dict[str, Any]", settings or {})
            for key in ("name", "strategy"):
                if key in given:
                    raise doc.error((*here, key), f"a bound has no {key!r} of its own.")
            if name in taken:
                raise doc.error(here, f"an arm is called {name!r} as well; give it another 'name'.")
            title = self._reader.text((*here, "title"), name) if given else name
            taken_over = self._of_method(inherited, given)
            yield self._arm(here, {**taken_over, **given, "strategy": name}, name, title)

    @staticmethod
    def _of_method(inherited: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the inherited settings that a bound's own method has, if it names another one."""
        name = str(given.get("method", inherited.get("method")))
        if name == inherited.get("method") or name not in registry.names():
            return inherited
        known = {*registry.find(name).settings.__dataclass_fields__, *PREPROCESS, "method"}
        return {k: v for k, v in inherited.items() if k in known}

    def _arm(self, where: Where, item: Mapping[str, Any], name: str, title: str) -> Arm:
        """Return one arm, its settings checked against the method's."""
        doc = self._reader.doc
        try:
            method = registry.find(str(item["method"]))
        except (InputError, NotSupported) as error:
            raise doc.error((*where, "method"), str(error)) from None
        if self._kind.name not in method.tasks:
            raise doc.error(
                (*where, "method"),
                f"{method.name!r} serves {', '.join(method.tasks)}, not {self._kind.name}."
                f"{method.why_not(self._kind.name)}",
            )
        try:
            registry.check_outcome(method, self._kind.name, self._learnt)
        except InputError as error:
            raise doc.error((*where, "method"), str(error)) from None
        if lacking := [why for what, why in self._kind.gives.items() if what not in method.gives]:
            raise doc.error(
                (*where, "method"),
                f"{method.name!r} {lacking[0]}; use fedcohort.fit({method.name!r}, …).",
            )
        settings = {k: v for k, v in item.items() if k not in ("method", "name", "title")}
        scope = settings.get("strategy") if settings.get("strategy") in BOUNDS else "sites"
        if scope != "sites":
            settings.pop("strategy")
        table = {**method.preprocess, **self._preprocess}
        for key in PREPROCESS:
            value = settings.pop(key, None)
            if value is not None:
                table[key] = preprocess_value(doc, (*where, key), key, value)
        try:
            method.check_gaps(table)
        except InputError as error:
            at = (*where, "impute") if item.get("impute") else ("preprocess", "impute")
            raise doc.error(at, str(error)) from None
        if "impute" in self._kind.gives and (fills := table.get("impute", "none")) != "none":
            at = (*where, "impute") if item.get("impute") else ("preprocess", "impute")
            raise doc.error(
                at,
                f"{fills!r} fills the missing values before arm {name!r} could impute them. Leave "
                f"impute out: the arms of this task fill them.",
            )
        own: Where = ("tune", "arms", name)
        given = self._reader.get(own)
        has_own = given is not None and not (isinstance(given, dict) and [*given] == ["by"])
        by = self._tune.get("by", FOLDS[0])
        folds = self._reader.choice((*own, "by"), FOLDS, by)
        user = settings.get("user") if "user" in method.settings.__dataclass_fields__ else ""
        if user and self._reader.get((*own, "by")) == FOLDS[0]:
            whose = "each site, and" if user == "all" else f"{user!r}, and"
            raise doc.error(
                (*own, "by"),
                f"the arm is a model for {whose} {FOLDS[0]} leaves that site out of one "
                f"fold. Give {FOLDS[1]}.",
            )
        arm = Arm(
            name=name,
            title=title,
            method=method.name,
            settings=settings,
            preprocess=table,
            scope=cast(str, scope),
            grid=self._grid(own if has_own else ("tune", "grid"), method, strict=has_own),
            folds=folds if scope == "sites" and not user else FOLDS[1],
        )
        self._configure(where, method, arm.configured(), self._kind.name)
        self._space(method)
        return arm

    def _grid(self, where: Where, method: Method, strict: bool) -> dict[str, Any]:
        """Return the grid of the method's settings, each value checked."""
        grid = self._reader.get(where, {})
        if not isinstance(grid, dict):
            raise self._reader.doc.error(where, "expected a mapping from settings to lists.")
        known = set(method.settings.__dataclass_fields__)
        chosen: dict[str, Any] = {}
        for key in cast("dict[str, Any]", grid):
            here = (*where, key)
            if strict and key == "by":
                continue
            if key in known:
                chosen[key] = self._reader.listed(here, "of values to try")
                for value in chosen[key]:
                    self._configure(here, method, {key: value})
            elif strict:
                hint = _hint(key, known, [method])
                raise self._reader.doc.error(here, f"unknown setting; {hint}")
        return chosen

    def _space(self, method: Method) -> None:
        """Check the space of the method's settings."""
        for key, spec in self._tune.get("space", {}).items():
            here: Where = ("tune", "space", key)
            if key not in method.settings.__dataclass_fields__:
                continue
            try:
                values = space_of(key, spec).values
            except InputError as error:
                raise self._reader.doc.error(here, str(error)) from None
            for value in values:
                self._configure(here, method, {key: value})

    def _configure(
        self, where: Where, method: Method, settings: Mapping[str, Any], task: str = ""
    ) -> None:
        """Build a method's settings once, and check that they serve the kind of task, if given."""
        try:
            config = method.configure(settings)
            if task:
                config.check_task(task)
        except InputError as error:
            raise self._reader.doc.error(where, str(error)) from None
