"""A first study file and data dictionary, for a person to read, correct and run.

Both load as they are. What was guessed from the table stands there with a comment "check: …".
Everything stays on this machine; the dictionary is meant to travel, so it holds the names and
levels of columns, and no other value of the table.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedcohort.apps.one_source import check_is_one
from fedcohort.apps.penalising import copies, few_alone, why_penalised
from fedcohort.data.check import check_column
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.outcome import Binary, Category, Continuous, Outcome, Survival
from fedcohort.data.read import dictionaries, drafting, sources
from fedcohort.data.read.canonical import canonical
from fedcohort.data.read.dictionaries import flow
from fedcohort.data.read.pixels import VALUES, pixels_of
from fedcohort.data.read.sql import database_file, is_url
from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError, StudyError
from fedcohort.study.file.plan import NETWORK
from fedcohort.study.kinds import KINDS, TASKS
from fedcohort.study.sites.exclusion import REASONS, stays
from fedcohort.study.sites.site_rule import SiteRule, counts

#: Said of the model that is kept.
FINAL = "final: true  # the model that is kept is fitted to all rows, when all is judged"
#: Sites that rows are dealt to where there are no natural ones.
N_SITES = 4

#: A count of fewer rows than this is not written down.
MIN_CELL = 5

ABOUT = """\
The data dictionary: what each column means, the same at every site. Types, levels and units were
guessed; where a line says "check", they may well be wrong. What also helps:
  range: [18, 110]     values outside are faults that `fedcohort data check` names
  missing: [-9]        codes that stand for a missing value
  feature: false       no model may use the column, such as what is known only later
  per: 10              the report shows effects for 10 units of a number
  description: text    for the report"""


@dataclass(frozen=True)
class _TaskDraft:
    """What the draft of one kind of task says.

    Attributes
    ----------
    question : of the report; {} stands for what is predicted.
    arms : where {own} stands for the settings of a penalty, and {why} for its reason.
    look : tables → the outcome that names and cells suggest, or None.
    lacking : what to do where an outcome is needed and none is found.
    outcome : what is predicted; None where an outcome, if there is one, only judges.
    ends : the columns of the outcome, without a table.
    plain : `own` and `why` without a penalty.
    ridge : the setting of the penalty. few : what is few where a site needs one.
    levels : the arms where all features are levels, if these are others.
    several : the arms of an outcome of more than two classes.
    network : the method that learns images; "" without.
    horizon : the comment behind `evaluate`.
    """

    question: str
    arms: tuple[str, ...]
    look: Callable[[list[pd.DataFrame]], Outcome | None] = drafting.survival_outcome
    lacking: str = ""
    outcome: type[Outcome] | None = None
    ends: tuple[Variable, ...] = ()
    plain: tuple[str, str] = ("", "")
    ridge: str = "l2"
    few: str = "events"
    levels: tuple[str, ...] = ()
    several: tuple[str, ...] = ()
    network: str = ""
    horizon: str = ""


def _class(tables: list[pd.DataFrame]) -> Outcome | None:
    column = drafting.class_column(tables)
    return None if column is None else Binary(column)


def _value(tables: list[pd.DataFrame]) -> Outcome | None:
    column = drafting.value_column(tables)
    return None if column is None else Continuous(column)


_GROUPS = "  # check: how many groups; n_clusters: auto chooses"
DRAFTS: Mapping[str, _TaskDraft] = {
    "survival": _TaskDraft(
        "How long do patients live after the diagnosis?",
        (
            "{method: cox{own}}{why}",
            "{method: deepcox, strategy: fedavg, rounds: 30, internal_epochs: 5}",
        ),
        lacking="no columns look like time and event (0 or 1). Name them by --outcome TIME,EVENT.",
        outcome=Survival,
        ends=(Variable("time", "time", unit="days"), Variable("event", "event")),
        horizon="  # horizon: 2 years, for risks",
    ),
    "classification": _TaskDraft(
        "Who has the disease, by what is known at admission?",
        ("{method: logistic{own}}{why}",),
        several=("{method: multinomial{own}}{why}",),
        network="classifier",
        look=_class,
        lacking="no column looks like a class to predict. Name it by --outcome Y.",
        outcome=Binary,
        ends=(Variable("y", "category", ("no", "yes")),),
    ),
    "regression": _TaskDraft(
        "What will {} be, by what is known of a patient before?",
        (
            "{method: ridge{own}}{why}",
            "{method: lasso, scale: standard}  # chooses its penalty, and leaves columns out",
        ),
        look=_value,
        lacking="no column looks like a value to predict. Name it by --outcome Y.",
        outcome=Continuous,
        ends=(Variable("days", "number", unit="days"),),
        network="regressor",
        plain=(", penalty: 0", "  # least squares"),
        ridge="penalty",
        few="rows",
    ),
    "clustering": _TaskDraft(
        "Which groups of patients are there?",
        (
            "{method: kmeans, n_clusters: 3}" + _GROUPS,
            "{method: deep_clustering, n_clusters: 3, rounds: 30}",
        ),
        levels=("{method: kmodes, n_clusters: 3}" + _GROUPS,),
    ),
    "latent": _TaskDraft(
        "Which few numbers say what the measurements of a patient have in common?",
        (
            "{method: multiview_ppca, q: 2}  # check: how many latent numbers; q: auto chooses",
            "{method: vae, q: 2, rounds: 20}",
        ),
    ),
    "imputation": _TaskDraft(
        "How far off are missing values that are imputed from the others?",
        ("{method: mice}", "{method: joint_normal}"),
    ),
    "synthesis": _TaskDraft(
        "Can virtual patients stand for the real ones?",
        ("{method: copula}", "{method: multiview_ppca, q: 5}"),
    ),
}

#: How a study over a network is checked and run.
_RUN_NETWORK = (
    "#   fedcohort data check study.yaml",
    "#   fedcohort data check study.yaml TABLE (each site its own)",
    "#   fedcohort run study.yaml --runtime flare --network KIT",
)


@dataclass(frozen=True)
class Draft:
    """What the two files say.

    Attributes
    ----------
    study : the name. source, query : as in the study file.
    outcome, sites : the values of these keys of `data`, and the comments behind them; no outcome
        where there is none, no sites where every site has a file.
    exclude : the reasons in `data.exclude`, and the comment behind them.
    dictionary, notes : the variables, and the comments behind them.
    penalised : why the first model has a penalty; "" where it has none.
    alone : whether some site by itself has few events for the number of coefficients.
    side : of the square image whose pixels the features are; 0 if they are none.
    """

    study: str
    source: str
    query: str
    outcome: tuple[Mapping[str, Any], str] | None
    sites: tuple[Mapping[str, Any], str] | None
    exclude: tuple[Sequence[str], str]
    dictionary: Dictionary
    notes: Mapping[str, str]
    penalised: str = ""
    alone: bool = False
    side: int = 0


def write(
    task: str,
    data: str | None,
    out: Path,
    *,
    sites: str | None = None,
    outcome: str | None = None,
    query: str = "",
    force: bool = False,
    more: Sequence[str] = (),
) -> tuple[Path, Path]:
    """Write study.yaml and dictionary.yaml into a folder; return their paths.

    Parameters
    ----------
    data : as a study's source, from the current folder; None for a template.
    sites : the column of the hospitals; looked for where it is None.
    outcome : "time,event" or "y"; looked for where it is None.
    query : what to ask a database.
    force : whether to replace files that exist.
    more : what stood behind `data`, as where a shell put files in the place of an asterisk.

    Raises
    ------
    StudyError : an unknown task, more than one table, a folder in place of it, a file that exists,
        or an outcome that cannot be told.
    DataError : no such table or column.
    """
    check_task(task)
    check_is_one(data, more)
    check_new(out, force=force)
    if data is None:
        for option, value in (("--sites", sites), ("--outcome", outcome), ("--query", query)):
            if value:
                raise StudyError(f"{option} needs --data, the table that it is about.")
        draft = _template(task)
    else:
        draft = _draft(task, data, out, sites, outcome, query)
    return save(task, draft, out, ABOUT)


def check_task(task: str) -> None:
    """Check that there is such a task.

    Raises
    ------
    StudyError : there is none; the nearest is named.
    """
    if task not in TASKS:
        raise StudyError(f"--task {task}: there is {known_name('task', task, TASKS)}")


def check_new(out: Path, *, force: bool) -> None:
    """Check that neither of the two files would be replaced.

    Raises
    ------
    StudyError : one of them exists already, and must not be replaced.
    """
    for path in (out / "study.yaml", out / "dictionary.yaml"):
        if path.exists() and not force:
            raise StudyError(f"{path} exists. Name another folder by --out, or replace by --force.")


def save(task: str, draft: Draft, out: Path, about: str) -> tuple[Path, Path]:
    """Write both files; return their paths.

    about : what stands above the dictionary.

    Raises
    ------
    StudyError : the folder cannot be written.
    """
    study, dictionary = out / "study.yaml", out / "dictionary.yaml"
    try:
        out.mkdir(parents=True, exist_ok=True)
        study.write_text(_study(task, draft), encoding="utf-8")
        text = dictionaries.text(draft.dictionary, draft.notes, about)
        dictionary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StudyError(f"--out {out}: cannot write there ({error.strerror}).") from None
    return study, dictionary


def _draft(
    task: str, data: str, out: Path, sites: str | None, outcome: str | None, query: str
) -> Draft:
    """Return what a table suggests."""
    if query and not is_url(data):
        raise StudyError("--query needs a database as --data, such as sqlite:///registry.db.")
    source = sources.load(data, Path(), query=query, texts=[sites] if sites else [])
    by_file = isinstance(source.frames, dict)
    tables = drafting.as_tables(source.frames)
    if sites and by_file:
        raise StudyError(f"--sites {sites}: {data} has one file a site already; leave it out.")
    column = sites or (None if by_file else drafting.site_column(tables[0]))
    if column:
        check_column(tables[0], column, data)
    predicted = DRAFTS[task].outcome is not None
    fits = source.outcome is not None and source.outcome.kind == task
    about = source.outcome if fits or not predicted else None
    found = _named(task, outcome, tables, data) or about or _guessed(task, tables, data)
    dictionary, notes = source.dictionary, dict[str, str]()
    if dictionary is None:
        guesses = drafting.guesses(
            source.frames, found, [column] if column else [], everywhere=True,
            away=_away(source.frames, found),
        )  # fmt: skip
        variables = {g.variable.name: g.variable for g in guesses}
        if column:
            place = Variable(column, "text", description="the site", identifier=True)
            variables = {column: place, **variables}
        dictionary = Dictionary(variables)
        notes = {g.variable.name: g.comment for g in guesses}
    pixels = pixels_of(tables, _taken(found, column)) if DRAFTS[task].network else ()
    images = {n: Variable(n, "integer", range=VALUES) for n in pixels}
    if source.dictionary is not None:
        images = {}
    drafted = Dictionary({**dictionary.variables, **images})
    if pixels and {v.name for v in drafted.features(found)} == {*pixels}:
        dictionary = drafted
        notes |= dict.fromkeys(images, "")
    else:
        pixels = ()
    formed = [canonical(t, dictionary) for t in tables]
    if source.dictionary is None and predicted and not pixels:
        variables = dict(dictionary.variables)
        for name, other in copies(formed, dictionary, found).items():
            variables[name] = replace(variables[name], feature=False)
            notes[name] = (
                f"{f'{notes[name]};' if notes[name] else 'check:'} says the same as {other!r}"
            )
        dictionary = Dictionary(variables)
    return Draft(
        _name(data),
        _from(out, data),
        query,
        found
        and (
            columns_of(found),
            about_outcome(task, found, dictionary, sure=bool(outcome or about)),
        ),
        None if by_file else _sites(column, sure=sites is not None),
        _exclude(formed, found),
        dictionary,
        notes,
        why_penalised(formed, dictionary, found) if found and predicted and not pixels else "",
        bool(found) and not pixels and few_alone(formed, column, dictionary, found, N_SITES),
        math.isqrt(len(pixels)),
    )


def _taken(outcome: Outcome | None, site: str | None) -> set[str]:
    """Return the columns that are the outcome, or name the site."""
    return {*(() if outcome is None else outcome.columns), *([site] if site else [])}


def _away(frames: drafting.Tables, outcome: Outcome | None) -> list[str]:
    """Return the sites, of a file each, that the drafted study leaves out as too small."""
    if not isinstance(frames, Mapping):
        return []
    rule = SiteRule(MIN_CELL, 1 if isinstance(outcome, Survival) else 0)
    named = () if outcome is None else outcome.columns
    whole = {s: t for s, t in frames.items() if set(named) <= set(t.columns)}
    away = [str(s) for s, t in whole.items() if rule.why(*counts(t, outcome))]
    return away if len(away) < len(frames) else []


def _from(out: Path, data: str) -> str:
    """Return a source as a study file in `out` names it."""
    name = database_file(data) if is_url(data) else data
    if data.startswith("sample:") or name is None or Path(name).is_absolute():
        return data
    start = data.index(":///") + 4 if is_url(data) else 0
    return data[:start] + Path(os.path.relpath(name, out)).as_posix() + data[start + len(name) :]


def asked_columns(task: str, outcome: str) -> tuple[list[str], bool]:
    """Return the columns of an outcome as it is written, and whether they are time and event.

    Raises
    ------
    StudyError : too many for the task, or too few.
    """
    names = [name.strip() for name in outcome.split(",")]
    wanted = DRAFTS[task].outcome
    timed = wanted is Survival or (wanted is None and len(names) == 2)
    if len(names) != (2 if timed else 1):
        columns = "time,event" if timed else "y, one column"
        raise StudyError(f"--outcome {outcome}: expected {columns}.")
    return names, timed


def _named(task: str, outcome: str | None, tables: list[pd.DataFrame], data: str) -> Outcome | None:
    """Return the outcome that the user names, if so."""
    if outcome is None:
        return None
    names, timed = asked_columns(task, outcome)
    for name in names:
        check_column(tables[0], name, data)
    if timed:
        return Survival(*names)
    cells = pd.concat([t[names[0]] for t in tables if names[0] in t.columns])
    n = cells.nunique()
    if DRAFTS[task].outcome is Continuous:
        if cells.dtype.kind not in "iuf" or n < 2:
            raise DataError(
                f"{data}: column {names[0]!r} does not hold two numbers or more; a value to "
                f"predict is a number."
            )
        return Continuous(names[0])
    if n > 2 and (DRAFTS[task].outcome is None or n <= drafting.MOST_LEVELS):
        return Category(names[0])
    if n != 2:
        raise DataError(
            f"{data}: column {names[0]!r} has {n} values; a class to predict has 2 to "
            f"{drafting.MOST_LEVELS}."
        )
    return Binary(names[0])


def _guessed(task: str, tables: list[pd.DataFrame], data: str) -> Outcome | None:
    """Return the outcome that the columns' names and cells suggest; None where none is needed."""
    kind = DRAFTS[task]
    found = kind.look(tables)
    if found is None and kind.outcome is not None:
        raise StudyError(f"{data}: {kind.lacking}")
    return found


def columns_of(outcome: Outcome) -> dict[str, str]:
    """Return the outcome as a study file has it."""
    told = outcome.to_dict()
    return told if told.get("type") in (None, "category") else {"y": outcome.label}


def about_outcome(task: str, outcome: Outcome, dictionary: Dictionary, *, sure: bool) -> str:
    """Return the comment behind the outcome."""
    guessed = [] if sure else ["guessed from names"]
    if DRAFTS[task].outcome is None:
        use = (
            "its columns are drawn, too" if KINDS[task].joint else "it only judges, no fit sees it"
        )
        return f"{'check: guessed from names; ' * (not sure)}{use}"
    if isinstance(outcome, Binary) and (levels := dictionary[outcome.y].levels):
        guessed.append(f"{levels[-1]!r} counts as 1, the class to predict")
    if isinstance(outcome, Category):
        guessed.append("type: ordinal, and method: ordinal, if the classes have an order")
    if isinstance(outcome, Continuous) and dictionary[outcome.y].type == "integer":
        guessed.append("add type: count if it counts something")
    return f"check: {'; '.join(guessed)}" if guessed else ""


def _sites(column: str | None, *, sure: bool) -> tuple[Mapping[str, Any], str]:
    """Return where the sites come from, with the comment behind it."""
    if column is not None:
        return {"column": column}, "" if sure else "check: guessed from its name"
    return {"split": "iid", "n": N_SITES}, "check: made-up sites; {column: NAME} for natural ones"


def _exclude(tables: list[pd.DataFrame], outcome: Outcome | None) -> tuple[Sequence[str], str]:
    """Return the reasons for which some row cannot be used, and how many rows each leaves out.

    tables : in the form of the dictionary.
    """
    reasons, said = list[str](), list[str]()
    left = n_rows = sum(map(len, tables))
    for reason in REASONS if isinstance(outcome, Survival) else REASONS[:1]:
        stay = sum(int(stays(t, outcome, [*reasons, reason]).sum()) for t in tables)
        if stay < left:
            n = left - stay
            reasons.append(reason)
            said.append(f"{n if n >= MIN_CELL else f'fewer than {MIN_CELL}'} ({reason})")
            left = stay
    if not reasons:
        return (), ""
    return reasons, f"check: leaves out {' and '.join(said)} of {n_rows} rows. Should it?"


def _name(data: str) -> str:
    """Return a name for the study by that of its data."""
    plain = data.removeprefix("sample:").split("?")[0]
    parts = [p for p in Path(plain).parts if "{site}" not in p and p not in ("..", ".", "/")]
    stem = parts[-1].split(".")[0] if parts else ""
    return re.sub(r"[^\w-]+", "-", stem).strip("-_")[:60] or "study"


def _template(task: str) -> Draft:
    """Return what stands in the files without a table."""
    centre = Variable("centre", "text", description="the site", identifier=True)
    plain = [
        Variable("age", "integer", unit="years", range=(0.0, 120.0)),
        Variable("grade", "category", ("low", "high")),
        Variable("smoker", "binary", missing=("-9",)),
    ]
    ends = DRAFTS[task].ends
    told = {("time" if len(ends) == 2 else "y"): v.name for v in ends[:1]}
    told |= {v.type: v.name for v in ends[1:]}
    dictionary = Dictionary({v.name: v for v in (centre, *plain, *ends)})
    notes = {v.name: "replace by your columns" for v in plain}
    where = ({"column": "centre"}, "the column of the hospitals")
    outcome = (told, "") if told else None
    return Draft("study", "data.csv", "", outcome, where, ((), ""), dictionary, notes)


def _study(task: str, draft: Draft) -> str:
    """Return the text of the study file."""
    kind = DRAFTS[task]
    several = bool(draft.outcome) and draft.outcome[0].get("type") == "category"
    ridge, (own, why) = f"{kind.ridge}: 0.01, scale: standard", kind.plain
    if draft.penalised:
        own, why = f", {ridge}", f"  # ridge: {draft.penalised}; effects are shrunken"
    features = [v for v in draft.dictionary.variables.values() if v.type != "text" and v.feature]
    coded = bool(features) and all(v.coded for v in features)
    arms = [
        arm.replace("{own}", own).replace("{why}", why)
        for arm in (coded and kind.levels) or (several and kind.several) or kind.arms
    ]
    if draft.side:
        arms = [
            f"{{method: {kind.network}, image: [{draft.side}, {draft.side}], hidden: [32], "
            f"rounds: 20}}  # check: {draft.side**2} columns taken as pixels, row by row"
        ]
    remote = draft.source == NETWORK
    bounds = "[isolated, centralised]  # each site alone, and all rows in one table"
    bounds = "[isolated]  # each site alone" if remote else bounds
    if kind.outcome is not None and draft.alone and not draft.penalised:
        bounds = f"{{isolated: {{{ridge}}}, centralised: {{}}}}  # ridge: few {kind.few} at a site"
    natural = draft.sites is None or "column" in draft.sites[0]
    question = kind.question.format(draft.outcome[0].get("y", "") if draft.outcome else "")
    options = [] if "impute" in KINDS[task].gives else ["impute: median"]
    options += ["scale: standard"] if kind.outcome is None else []
    prepared = f"preprocess: {{{', '.join(options)}}}  # fitted over the sites, by sums only"
    made_up = ["iid", "unbalanced", *(["by-outcome"] if draft.outcome else [])]
    lines = [
        "# A study to start from. Lines that say \"check\" were guessed. Then, in this folder:",
        *(
            _RUN_NETWORK
            if remote
            else ["#   fedcohort data check study.yaml && fedcohort run study.yaml"]
        ),
        f"study: {flow(draft.study)}",
        f"# question: {flow(question)}  # heads the report",
        f"task: {task}",
        "seed: 1  # every random draw derives from it",
        "",
        "data:",
        f"  source: {flow(draft.source)}" + "  # rows stay at the sites" * remote,
        *([f"  query: {flow(draft.query)}"] if draft.query else []),
        "  dictionary: dictionary.yaml",
        *([_key("outcome", draft.outcome)] if draft.outcome else []),
        *([_key("exclude", draft.exclude)] if draft.exclude[0] else []),
        *([_key("sites", draft.sites)] if draft.sites else []),
        "",
        *([prepared] if not KINDS[task].joint else []),
        "arms:",
        *(f"  - {arm}" for arm in arms),
        f"bounds: {bounds}",
        "evaluate: {test_fraction: 0.25, repeats: 5}" + kind.horizon,
        *([] if kind.outcome is None else [FINAL]),
        "privacy: {min_cell: 5}  # no count of 1 to 4 leaves a site",
    ]  # fmt: skip
    if not natural:
        lines.insert(lines.index("arms:"), f"scenarios: {flow(made_up)}")
    return "\n".join(lines) + "\n"


def _key(name: str, value: tuple[Any, str]) -> str:
    """Return one key of `data` with its comment."""
    return f"  {name}: {flow(value[0])}" + (f"  # {value[1]}" if value[1] else "")
