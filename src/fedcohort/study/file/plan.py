"""A study file, checked: question, data, arms, evaluation.

All errors of a study file are found here, before anything is computed or written; each names the
file, the line, the key and the expected value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fedcohort.data.check import EVERY, NOTHING, Accepted
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.read.sources import OUTCOMES
from fedcohort.data.read.sql import is_url, problem_of_query, problem_of_url
from fedcohort.protocol import Dp, SettingError, registry
from fedcohort.runtime.absences import WAIT, Availability
from fedcohort.study.file import (
    coordinator_data,
    forget,
    governance,
    horizon,
    privacy,
    second_consent,
    umap,
)
from fedcohort.study.file.arms import (
    PREPROCESS,
    Arm,
    arms_of,
    check_scores,
    preprocess_value,
    tuning,
)
from fedcohort.study.file.coordinator_data import CoordinatorData
from fedcohort.study.file.forget import Forget
from fedcohort.study.file.horizon import Horizon
from fedcohort.study.file.privacy import Privacy
from fedcohort.study.file.reader import Reader
from fedcohort.study.file.scenarios import (
    CHANGES,
    OPTIONS,
    SPLITS,
    Scenario,
    check_thirds_of,
    options_of,
    scenarios_of,
)
from fedcohort.study.file.second_consent import SecondConsent
from fedcohort.study.file.yamlfile import Document, Where
from fedcohort.study.kinds import KINDS, Kind
from fedcohort.study.run.carbon import COUNTRY
from fedcohort.study.sites.exclusion import REASONS
from fedcohort.study.sites.site_rule import DROP, JOIN, SiteRule

#: `data.source` of a study whose rows are at the sites of a network; its only scenario.
NETWORK = "network"
TOP = (
    "study", "question", "task", "seed", "data", "preprocess", "scenarios", "arms", "bounds",
    "evaluate", "final", "tune", "privacy", "quorum", "availability", "feedback", "shift",
    "carbon", "governance", "units", "consent", "coordinator_data", "keep", "forget", *CHANGES,
)  # fmt: skip
EVALUATE = ("test_fraction", "repeats", "draws", "metrics", "horizon", "umap", "local", "left_out")
DATA = ("source", "query", "dictionary", "outcome", "exclude", "sites")
#: Conditions for a natural site to take part.
SITE_RULE = ("min_rows", "min_events", "small")
AVAILABILITY = ("away", "rounds", "always", "wait", "by_site", "fraction")
#: Larger numbers are typing errors.
MOST_REPEATS, MOST_DRAWS = 1_000, 10_000


@dataclass(frozen=True)
class Plan:
    """A checked study; `docs/study-file.md` explains each key."""

    study: str
    question: str
    task: str
    seed: int
    source: str
    query: str
    exclude: tuple[str, ...]
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
    umap: bool
    tune: Mapping[str, Any]
    min_cell: int
    privacy: Privacy
    quorum: float
    availability: Availability | None
    base: Path
    content: Mapping[str, Any]
    feedback: bool = False
    shift: bool = False
    carbon: str = ""
    sites: SiteRule = field(default_factory=SiteRule)
    final: bool = False
    horizon: Horizon | None = None
    units: Accepted = NOTHING
    governance: Mapping[str, str] = field(default_factory=dict[str, str])
    local: bool = False
    left_out: bool = False
    again: SecondConsent | None = None
    coordinator_data: CoordinatorData | None = None
    keep: bool = False
    forget: Forget | None = None

    @property
    def at_home(self) -> bool:
        """Whether an arm has a model for each site: ranks of all arms are then within sites."""
        return any(arm.every for arm in self.arms)

    @property
    def kind(self) -> Kind:
        """The kind of task."""
        return KINDS[self.task]

    def space(self, arm: Arm) -> dict[str, Any]:
        """Return Optuna's space for an arm: that of its method's settings."""
        known = registry.find(arm.method).settings.__dataclass_fields__
        return {k: v for k, v in self.tune.get("space", {}).items() if k in known}

    def drawn_of(self, repeat: int) -> int:
        """Return the repeat that gives a natural site's blind rows; in a private study the first.

        So a row that is evaluated exactly in one repeat is not trained on with noise in another.
        """
        return 0 if self.privacy.dp is not None else repeat

    @property
    def score(self) -> str:
        """The score without an outcome, to tune by; "" if the outcome gives it."""
        return str(self.tune.get("score", "")) or next(iter(self.kind.scores), "")

    def pooled_in(self, scenario: int) -> int:
        """Return the scenario whose pooled bound is a scenario's: the first with the same rows.

        With `local` the test rows lie over the sites by scenario, so each has its own.
        """

        def other(s: Scenario) -> bool:
            return s.changed or s.after_ranking

        if other(self.scenarios[scenario]) or self.local:
            return scenario
        return next(i for i, s in enumerate(self.scenarios) if not other(s))

    def is_tuned(self, arm: Arm) -> bool:
        """Return whether an arm has settings to tune."""
        return bool(arm.grid or self.space(arm))


def check(doc: Document, base: Path, *, network: bool = False) -> Plan:
    """Return the plan of a study file.

    Parameters
    ----------
    base : folder of relative paths in the file.
    network : whether each site holds its own rows. Then the keys about data sources, splits and
        scenarios are optional and ignored.

    Raises
    ------
    StudyError : an unknown key (the nearest known one is named) or an impossible value.
    """
    reader = Reader(doc)
    doc.known_only((), doc.content, TOP)
    study = reader.name(("study",))
    kind = KINDS[reader.choice(("task",), tuple(KINDS), "survival")]
    data = reader.mapping(("data",), DATA, required=() if network else ("source",))
    if network:
        source, query = NETWORK, ""
        named = reader.text(("data", "source"), NETWORK)
        outcome = _outcome(reader, kind, named)
        column, n_sites, default = None, None, Scenario(NETWORK, "natural", {})
    else:
        source, query = _source(reader)
        named = source
        outcome = _outcome(reader, kind, source)
        column, n_sites, default = _sites(reader, data, source)
    scenarios = _scenarios(reader, default, kind, network=network)
    check_thirds_of(reader, n_sites, scenarios)
    if isinstance(outcome, Survival) and outcome.entry:
        _check_entries(reader, outcome.entry)
    preprocess = {
        key: preprocess_value(doc, ("preprocess", key), key, value)
        for key, value in reader.mapping(("preprocess",), tuple(PREPROCESS)).items()
    }
    tune = tuning(reader)
    check_scores(reader, kind, tune)
    reader.mapping(("evaluate",), EVALUATE)
    found = privacy.read(reader)
    learnt = outcome or _of_sample(kind, named)
    arms = arms_of(reader, kind, learnt, preprocess, tune)
    if network and (several := [a for a in arms if a.preprocess.get("impute") == "multiple"]):
        raise doc.error(
            ("preprocess", "impute"),
            f"over a network a site takes one preprocessing a session, and 'multiple' of arm "
            f"{several[0].name!r} needs several. Give 'iterative' there.",
        )
    if found.dp is not None:
        _check_private(reader, found.dp, arms, tune)
    again = second_consent.read(reader, arms, network=network, private=found.dp is not None)
    if again is not None and not network:
        scenarios = second_consent.twice(reader, scenarios)
    metrics = _metrics(reader, kind, learnt, arms, private=found.dp is not None)
    if network and not kind.there(metrics):
        raise doc.error(
            ("evaluate", "metrics"),
            f"none of these can be computed if rows stay at their sites; ask for {kind.none_left}.",
        )
    return Plan(
        study=study,
        question=reader.text(("question",), ""),
        task=kind.name,
        seed=reader.whole(("seed",), 0, low=0),
        source=source,
        query=query,
        exclude=_exclude(reader, kind, outcome)[0],
        dictionary=reader.text(("data", "dictionary"), "") or None,
        outcome=outcome,
        site_column=column,
        n_sites=n_sites,
        scenarios=scenarios,
        arms=arms,
        test_fraction=reader.number(("evaluate", "test_fraction"), 0.25, 0.0, 1.0, open_ends=True),
        repeats=reader.whole(("evaluate", "repeats"), 5, low=1, high=MOST_REPEATS),
        draws=reader.whole(("evaluate", "draws"), 200, low=2, high=MOST_DRAWS),
        metrics=metrics,
        umap=umap.asked(reader, kind, arms, network),
        tune=tune,
        min_cell=found.min_cell,
        privacy=found,
        quorum=reader.number(("quorum",), 1.0, 0.0, 1.0),
        availability=_availability(reader, network),
        base=base,
        content=doc.content,
        feedback=_extra(reader, "feedback", private=found.dp is not None),
        shift=_extra(reader, "shift", private=found.dp is not None),
        carbon=_carbon(reader, network=network),
        sites=_site_rule(reader, kind, outcome, found.min_cell, column, network=network),
        horizon=horizon.read(reader, kind),
        governance=governance.read(reader),
        final=_final(reader, kind, scenarios[0], private=found.dp is not None),
        units=_units(reader),
        local=reader.flag(("evaluate", "local")),
        left_out=_left_out(reader, arms, scenarios, network=network, private=found.dp is not None),
        again=again,
        coordinator_data=coordinator_data.read(
            reader, arms, network=network, private=found.dp is not None
        ),
        keep=forget.read_keep(reader, arms, private=found.dp is not None),
        forget=forget.read_forget(reader, arms, network=network),
    )


def _scenarios(
    reader: Reader, default: Scenario, kind: Kind, *, network: bool
) -> tuple[Scenario, ...]:
    """Return the scenarios; of a network the one of its sites, whose rows nobody changes."""
    if not network:
        return scenarios_of(reader, default, kind)
    for key in CHANGES:
        if reader.get((key,)) not in (None, False):
            raise reader.doc.error(
                (key,), "over a network no site's rows are made worse; leave this key out."
            )
    return (default,)


def _final(reader: Reader, kind: Kind, first: Scenario, *, private: bool) -> bool:
    """Return whether arms are fitted to all rows at the end; default: unless something forbids it.

    A private fit would cost its ε again, so it must be requested. Of rows that were made worse on
    purpose no model for use is made.
    """
    if reader.get(("final",)) is None:
        return not (kind.aside or private or first.changed)
    asked = reader.flag(("final",))
    if asked and first.changed:
        raise reader.doc.error(
            ("final",),
            f"the first scenario, {first.name!r}, makes training rows worse, and no model for use "
            f"is fitted to such rows. Put another scenario first, or leave this key out.",
        )
    if asked and kind.aside:
        raise reader.doc.error(
            ("final",),
            f"a study of {kind.name} keeps the first repeat's model, which its report "
            f"describes; leave this key out.",
        )
    return asked


#: Value of the key `units` for all columns.
ACCEPTED = "accepted"


def _units(reader: Reader) -> Accepted:
    """Return the columns whose apparent differences of units are accepted."""
    asked = reader.get(("units",))
    if asked is None:
        return NOTHING
    if asked == ACCEPTED:
        return EVERY
    if not isinstance(asked, list):
        raise reader.doc.error(
            ("units",),
            f"expected {ACCEPTED!r} if all sites' numbers are right, or a list of the columns "
            f"whose numbers are right.",
        )
    names = cast("list[Any]", asked)
    return Accepted(tuple(reader.text(("units", i)) for i in range(len(names))))


def _carbon(reader: Reader, *, network: bool) -> str:
    """Return the country whose electricity mix is used; "" without measurement."""
    country = reader.text(("carbon",), "")
    if country and not COUNTRY.fullmatch(country):
        raise reader.doc.error(
            ("carbon",), "expected a country as its three letters of ISO 3166-1, such as CHE."
        )
    if country and network:
        raise reader.doc.error(
            ("carbon",),
            "only this computer would be measured, not the sites'; leave this key out over a "
            "network. The report has an estimate.",
        )
    return country


#: Exact results of an extra analysis.
EXTRAS = {"feedback": "findings", "shift": "differences"}


def _extra(reader: Reader, key: str, *, private: bool) -> bool:
    """Return whether an analysis of `EXTRAS` is requested; refuse it in a private study."""
    asked = reader.flag((key,))
    if asked and private:
        raise reader.doc.error(
            (key,),
            f"it reveals exact {EXTRAS[key]}, and this study is private. Leave one of them out.",
        )
    return asked


def _availability(reader: Reader, network: bool) -> Availability | None:
    """Return the law of absences; refuse it over a network, or with a full quorum."""
    where = ("availability",)
    if reader.get(where) is None:
        return None
    found = reader.mapping(where, AVAILABILITY)
    if network:
        raise reader.doc.error(
            where, "over a network absences are not simulated; leave this key out."
        )
    if not {"away", "by_site", "fraction"} & found.keys():
        raise reader.doc.error(where, "one of the keys 'away', 'by_site', 'fraction' is missing.")
    quorum = reader.number(("quorum",), 1.0, 0.0, 1.0)
    fraction = reader.number((*where, "fraction"), 1.0, 0.0, 1.0)
    if quorum == 1:
        raise reader.doc.error(where, "with sites that are away, 'quorum' must be below 1.")
    if quorum > fraction:
        raise reader.doc.error(
            (*where, "fraction"),
            f"only this share of the sites is asked, and the quorum is {quorum:g}; lower 'quorum'.",
        )
    always = reader.listed((*where, "always"), "of sites") if "always" in found else []
    rounds = reader.number((*where, "rounds"), 1.0, 0.0, math.inf) if "rounds" in found else None
    away = (
        reader.number((*where, "away"), 0.0, 0.0, 1.0, open_ends=True) if "away" in found else 0.0
    )
    by_site = _by_site(reader, (*where, "by_site")) if "by_site" in found else {}
    wait = reader.whole((*where, "wait"), WAIT, 0)
    try:
        return Availability(
            away=away,
            rounds=rounds,
            always=tuple(map(str, always)),
            wait=wait,
            by_site=by_site,
            fraction=fraction,
        )
    except SettingError as error:
        raise reader.doc.error(where, str(error)) from None


def _by_site(reader: Reader, where: Where) -> dict[str, float]:
    """Return the share of rounds that each named site is away; 0 is possible."""
    given = reader.get(where)
    if not isinstance(given, dict) or not given:
        raise reader.doc.error(where, "expected shares of rounds by site, such as {site-1: 0.5}.")
    shares = cast("dict[str, Any]", given)
    return {
        site: 0.0
        if shares[site] == 0
        else reader.number((*where, site), 0.0, 0.0, 1.0, open_ends=True)
        for site in shares
    }


def _left_out(
    reader: Reader, arms: tuple[Arm, ...], scenarios: tuple[Scenario, ...], *, network: bool,
    private: bool,
) -> bool:  # fmt: skip
    """Return `evaluate.left_out`, checked with the rest of the study."""
    where: Where = ("evaluate", "left_out")
    if not reader.flag(where):
        return False
    if network or private:
        why = "rows stay at their sites" if network else "each further fit would cost its epsilon"
        raise reader.doc.error(where, f"not possible where {why}. Leave it out.")
    if not any(s.rule == "natural" for s in scenarios):
        raise reader.doc.error(where, "it leaves out hospitals; name their column in data.sites.")
    if not any(registry.find(a.method).overrides("unlike_training") for a in arms):
        known = ", ".join(registry.those_which_give("unlike_training"))
        raise reader.doc.error(where, f"no arm tells how unlike a patient is. {known} do.")
    return True


def _check_private(reader: Reader, dp: Dp, arms: tuple[Arm, ...], tune: Mapping[str, Any]) -> None:
    """Refuse a study with an arm that has no private fit."""
    from fedcohort.data.prepare import check_options  # imports pandas
    from fedcohort.study.run import private

    if tune:
        raise reader.doc.error(
            ("tune",),
            "a private study tunes nothing: each tried fit would cost its epsilon again. Choose "
            "the settings beforehand.",
        )
    for arm in (a for a in arms if a.scope == "sites"):
        method = registry.find(arm.method)
        try:
            private.releases(method, method.configure(arm.configured()), dp)
            check_options(arm.preprocess, method.preprocess)
        except SettingError as error:
            raise reader.doc.error(("privacy", "dp"), f"arm {arm.name!r}: {error}") from None


def _outcome(reader: Reader, kind: Kind, source: str) -> Outcome | None:
    """Return the outcome that fits the task.

    None if it comes from the sample or the dictionary's column types, or there is none.
    """
    where: Where = ("data", "outcome")
    if reader.get(where) is None:
        marked = kind.timed and reader.get(("data", "dictionary")) is not None
        if not (kind.aside or marked) and not source.startswith("sample:"):
            raise reader.doc.error(("data",), "the key 'outcome' is missing.")
        return None
    any_ = ("time", "event", "y", "type")
    if kind.timed or (kind.aside and "time" in reader.mapping(where, any_)):
        known = ("time", "event", *(("entry",) if kind.timed else ()))
        reader.mapping(where, known, required=("time", "event"))
        entry = reader.text((*where, "entry"), "")
        return Survival(reader.text((*where, "time")), reader.text((*where, "event")), entry)
    reader.mapping(where, ("y", "type"), required=("y",))
    y, types = reader.text((*where, "y")), tuple(kind.types)
    return kind.types[reader.choice((*where, "type"), types, types[0])](y)


def _of_sample(kind: Kind, source: str) -> Outcome | None:
    """Return the outcome of a packaged sample, for a study file that names none."""
    found = OUTCOMES.get(source.removeprefix("sample:")) if source.startswith("sample:") else None
    return found if found is not None and found.kind == kind.name else None


def _check_entries(reader: Reader, entry: str) -> None:
    """Refuse arms whose method ignores entry times."""
    for i, item in enumerate(reader.listed(("arms",), "of arms, such as {method: cox}")):
        name = cast("dict[str, Any]", item).get("method") if isinstance(item, dict) else None
        if name in registry.names() and not registry.find(str(name)).entries:
            able = [m for m in registry.names() if registry.find(m).entries]
            raise reader.doc.error(
                ("arms", i, "method"),
                f"{name!r} does not support entry times, data.outcome.entry ({entry!r}). Use "
                f"{' or '.join(able)}, or leave it out if all patients were followed from time 0.",
            )


def _source(reader: Reader) -> tuple[str, str]:
    """Return the source, and the query of a database."""
    source, query = reader.text(("data", "source")), reader.text(("data", "query"), "")
    if source == NETWORK:
        raise reader.doc.error(
            ("data", "source"),
            "the rows of this study are at the sites of a network: run it there (--runtime flare "
            "--network KIT), or name a table.",
        )
    if not is_url(source):
        if query:
            raise reader.doc.error(
                ("data", "query"), "a query needs a database as 'source', such as sqlite:///a.db."
            )
        return source, ""
    if (wrong := problem_of_url(source)) is not None:
        raise reader.doc.error(("data", "source"), wrong)
    if not query:
        raise reader.doc.error(
            ("data",), "the key 'query' is missing: the SQL query of the database."
        )
    if (wrong := problem_of_query(query)) is not None:
        raise reader.doc.error(("data", "query"), wrong)
    return source, query


def _exclude(
    reader: Reader, kind: Kind, outcome: Outcome | None
) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Return the exclusions: reasons, in the order of `REASONS`, and sites by column."""
    where: Where = ("data", "exclude")
    if reader.get(where) is None:
        return (), {}
    timed = kind.timed or isinstance(outcome, Survival)
    known = REASONS if timed else REASONS[:1]
    items = reader.listed(where, f"with some of {', '.join(known)}, or {{site column: [names]}}")
    reasons: list[str] = []
    sites: dict[str, list[str]] = {}
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            reasons.append(reader.choice((*where, i), known))
            continue
        for column, named in cast("dict[str, Any]", item).items():
            here: Where = (*where, i, column)
            each = cast("list[Any]", named) if isinstance(named, list) else [named]
            if not each or any(isinstance(v, (dict, list)) or v is None for v in each):
                raise reader.doc.error(here, "expected the name of a site, or a list of names.")
            sites.setdefault(str(column), []).extend(str(v) for v in each)
    if len(set(reasons)) < len(reasons):
        raise reader.doc.error(where, "an item stands twice.")
    return tuple(reason for reason in known if reason in reasons), sites


def _site_rule(
    reader: Reader,
    kind: Kind,
    outcome: Outcome | None,
    min_cell: int,
    column: str | None,
    *,
    network: bool,
) -> SiteRule:
    """Return the conditions for a natural site to take part."""
    where: Where = ("data", "sites")
    natural = column is not None or network or "{site}" in reader.text(("data", "source"), "")
    excluded: list[str] = []
    for name, sites in _exclude(reader, kind, outcome)[1].items():
        if network or not natural or name != (column or "site"):
            able = f"the site column, {column!r}" if column else "'site', one file a site"
            if network or not natural:
                able = "natural sites of a table; here there are none"
            raise reader.doc.error(
                ("data", "exclude"), f"{name!r} is not possible; rows are left out by {able}."
            )
        excluded += sites
    if "split" in (reader.get(where) or {}):
        return SiteRule()
    events = outcome.has_events if outcome is not None else kind.events
    if reader.get((*where, "min_events")) is not None and not events:
        raise reader.doc.error((*where, "min_events"), "this outcome has no events; leave it out.")
    least = 1 if kind.timed and not network else 0
    small = reader.choice((*where, "small"), (DROP, JOIN), DROP)
    if network and small == JOIN:
        raise reader.doc.error(
            (*where, "small"), "over a network no rows can be joined; small sites are dropped."
        )
    return SiteRule(
        min_rows=reader.whole((*where, "min_rows"), max(min_cell, 2), low=2),
        min_events=reader.whole((*where, "min_events"), least, low=0),
        small=small,
        excluded=tuple(dict.fromkeys(excluded)),
    )


def _metrics(
    reader: Reader, kind: Kind, outcome: Outcome | None, arms: tuple[Arm, ...], *, private: bool
) -> tuple[str, ...]:
    """Return the requested metrics; by default all of the outcome's, but those to be named."""
    where: Where = ("evaluate", "metrics")
    asked = reader.get(where)
    gives = {what for arm in arms for what in registry.find(arm.method).gives}
    pooled = any(arm.scope == "centralised" for arm in arms)
    known = kind.metrics_of(outcome, gives, pooled=pooled, private=private)
    if asked is None:
        return tuple(m for m in known if not kind.metrics[m].asked)
    for i, metric in enumerate(cast("list[Any]", asked) if isinstance(asked, list) else ()):
        if metric in tuple(kind.metrics) and metric not in known and not kind.aside:
            needed = kind.metrics[metric].outcome
            types = [name for name, cls in kind.types.items() if issubclass(cls, needed)]
            raise reader.doc.error(
                (*where, i),
                f"{metric!r} needs an outcome of type {' or '.join(types)} (data.outcome.type).",
            )
        others = [k.name for k in KINDS.values() if metric in tuple(k.metrics)]
        if others and kind.name not in others:
            raise reader.doc.error(
                (*where, i),
                f"{metric!r} is not possible in a study of {kind.name}, it evaluates {others[0]}; "
                f"known are {', '.join(known)}.",
            )
    return reader.names(where, known)


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
    sites = reader.mapping(where, ("column", "split", "n", *OPTIONS, *SITE_RULE))
    if by_file and "split" not in sites:
        if "column" in sites:
            raise reader.doc.error(
                (*where, "column"), "the source has one file a site already; leave 'column' out."
            )
        reader.doc.known_only(where, sites, SITE_RULE)
        return None, None, natural
    if ("column" in sites) == ("split" in sites):
        raise reader.doc.error(
            where, "expected either 'column' (natural sites) or 'split' and 'n'."
        )
    if "column" in sites:
        reader.doc.known_only(where, sites, ("column", *SITE_RULE))
        return reader.text((*where, "column")), None, natural
    reader.doc.known_only(where, sites, ("split", "n", *OPTIONS))
    rule = reader.choice((*where, "split"), tuple(SPLITS))
    if "n" not in sites:
        raise reader.doc.error(where, "the key 'n' is missing: the number of sites.")
    n = reader.whole((*where, "n"), 1, low=1)
    return None, n, Scenario(rule, rule, options_of(reader, where, rule, sites))
