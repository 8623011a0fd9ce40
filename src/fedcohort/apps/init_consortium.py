"""A first study over a network: its dictionary is merged from the sites' own drafts.

Each site drafts a dictionary of its own table (`fedcohort init --data`), reads it, and sends it to
the lead: names, levels and units of columns, and no patient. No table is read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedcohort.apps.init import (
    DRAFTS,
    Draft,
    about_outcome,
    asked_columns,
    check_new,
    check_task,
    columns_of,
    save,
)
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Continuous, Outcome, Survival
from fedcohort.data.read import merging, sources
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError, StudyError
from fedcohort.study.file.plan import NETWORK

ABOUT = """\
The data dictionary: what each column means, the same at every site. It was merged from the sites'
own drafts; where a line says "check", they differ. Agree on each before the study."""


def write(
    task: str, drafts: str, out: Path, *, outcome: str | None = None, force: bool = False
) -> tuple[Path, Path, tuple[str, ...]]:
    """Write study.yaml and dictionary.yaml into a folder.

    Parameters
    ----------
    drafts : a path with {site}, of two dictionaries or more.
    outcome : "time,event" or "y"; what most drafts mark where it is None.
    force : whether to replace files that exist.

    Returns
    -------
    study, dictionary : their paths. conflicts : what the sites have to settle.

    Raises
    ------
    StudyError : a path without {site}, a file that exists, or an outcome that cannot be told.
    DataError : fewer than two dictionaries, or one that is wrong.
    """
    check_task(task)
    check_new(out, force=force)
    draft, conflicts = _merged(task, drafts, outcome)
    return (*save(task, draft, out, ABOUT), conflicts)


def _merged(task: str, drafts: str, outcome: str | None) -> tuple[Draft, tuple[str, ...]]:
    """Return what the dictionaries suggest that sites drafted, and their conflicts."""
    if "{site}" not in drafts:
        raise StudyError(
            f"--drafts {drafts}: {{site}} stands for the part of the path that names the site, as "
            f"in 'drafts/{{site}}.yaml'."
        )
    files = sources.by_site(drafts, Path())
    if len(files) < 2:
        n = "one dictionary" if files else "no dictionary"
        raise DataError(f"--drafts {drafts}: {n}; two sites or more have to draft one.")
    known = {site: read_dictionary(path) for site, path in files.items()}
    names = list(dict.fromkeys(name for d in known.values() for name in d.variables))
    about = _outcome_of_drafts(task, outcome, list(known.values()), names)
    merged = merging.merge(known, about)
    judges = bool(outcome) and DRAFTS[task].outcome is None
    if isinstance(about, Binary) and not _two(merged.dictionary, about):
        coded = merged.dictionary[about.y].coded  # of numbers the study's check says what to do
        about = Category(about.y) if judges or coded else about
    made = Draft(
        "study",
        NETWORK,
        "",
        about and (columns_of(about), about_outcome(task, about, merged.dictionary, sure=True)),
        None,
        ((), ""),
        merged.dictionary,
        merged.notes,
    )
    return made, merged.conflicts


def _two(dictionary: Dictionary, outcome: Binary) -> bool:
    v = dictionary[outcome.y]
    return v.type == "binary" or len(v.levels) == 2


def _outcome_of_drafts(
    task: str, outcome: str | None, drafts: Sequence[Dictionary], names: Sequence[str]
) -> Outcome | None:
    """Return the outcome that the user names, or that drafts mark; None where none is needed."""
    wanted = DRAFTS[task].outcome
    if outcome is None:
        pair = merging.marked(drafts)
        if wanted is Survival and pair is None:
            raise StudyError("no draft marks time and event. Name them by --outcome TIME,EVENT.")
        if wanted in (None, Survival):
            return pair
        raise StudyError(f"--task {task}: name the column to predict by --outcome Y.")
    columns, timed = asked_columns(task, outcome)
    for name in columns:
        if name not in names:
            raise StudyError(f"--outcome {outcome}: there is {known_name('column', name, names)}")
    if timed:
        return Survival(*columns)
    return Continuous(columns[0]) if wanted is Continuous else Binary(columns[0])
