"""`fedcohort data check`: every fault of tables, for a person or a program.

A report names files, sites, columns, rules, rows and counts, never a cell's value. It may be sent
to whoever keeps the table.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcohort.apps.fit_findings import told_of_fits
from fedcohort.data.check import (
    ERROR,
    NOTHING,
    WARNING,
    Accepted,
    Finding,
    Sheet,
    errors,
    examine,
    with_outcome,
)
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Continuous, Outcome, Survival
from fedcohort.data.read import sources
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.data.read.frames import without
from fedcohort.data.read.sql import is_url, masked
from fedcohort.data.words import first_of, nearest
from fedcohort.protocol.errors import DataError, InputError, StudyError
from fedcohort.study.at_site.table import SiteTable, Unfit
from fedcohort.study.file import yamlfile
from fedcohort.study.file.plan import NETWORK
from fedcohort.study.file.plan import check as checked_plan
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.rehearsal import rehearsed
from fedcohort.study.sites.exclusion import stays
from fedcohort.study.sites.load import opened
from fedcohort.study.sites.site_rule import fates_text
from fedcohort.study.study import Study

#: Width of the report as text.
WIDTH = 80
#: So many files that are not read are named.
BESIDE_NAMED = 3
#: Findings in more tables than this are listed once.
MOST_ALIKE = 4
#: Files that are studies, not tables.
STUDIES = (".yaml", ".yml")
#: What is said where there is no outcome.
NO_OUTCOME = "no outcome was checked: mark time and event in the dictionary, or give --outcome"
#: Text on a study whose tables are at the sites of a network.
AT_SITES = (
    "The tables are at the sites. Each checks its own: fedcohort data check STUDY.yaml TABLE."
)
#: What can be done about a column without a unit.
UNIT = "Agree on one and write it there, such as unit: g/dL. A score has none."
#: What can be done about sites that are too small.
SMALL_SITES = "See data.sites: min_rows, min_events, and small: drop or join."


@dataclass
class Report:
    """Checked tables and their findings.

    Attributes
    ----------
    tables : name → rows and columns, or None for an unreadable table.
    findings : in the order of the tables.
    offsets : name → line of the file − data row, for CSV files whose rows are lines.
    left_out : name → rows excluded by the study's `data.exclude`, which are not judged.
    judged : an outcome was checked too.
    untried : arms of a study that were not fitted to their end, see `study.run.rehearsal`.
    at_sites : the tables are at the sites of a network, and none was at hand.
    """

    tables: dict[str, tuple[int, int] | None] = field(default_factory=dict[str, Any])
    findings: list[Finding] = field(default_factory=list[Finding])
    offsets: dict[str, int] = field(default_factory=dict[str, int])
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    judged: bool = True
    untried: list[str] = field(default_factory=list[str])
    at_sites: bool = False

    def add(
        self,
        sheets: Sequence[Sheet],
        dictionary: Dictionary,
        outcome: Outcome | None,
        base: Path,
        *,
        natural: bool = True,
        accepted: Accepted = NOTHING,
    ) -> None:
        """Check tables that could be read; relative paths of their names start at `base`.

        natural, accepted : see `quality.examine`.
        """
        found = examine(sheets, dictionary, outcome, natural=natural, accepted=accepted)
        self.findings += found
        for sheet in sheets:
            self.tables[sheet.name] = len(sheet.frame) + sheet.left_out, sheet.width
            self.left_out[sheet.name] = sheet.left_out
            if any(f.rows for f in found if f.file == sheet.name):
                rows = len(sheet.frame) + sheet.left_out
                if _rows_are_lines(base / sheet.name, rows):
                    self.offsets[sheet.name] = 1

    @property
    def counts(self) -> tuple[int, int]:
        """Return the numbers of errors and warnings."""
        wrong = len(errors(self.findings))
        return wrong, len(self.findings) - wrong

    def _shared(self, alike: Mapping[_Kind, Sequence[Finding]]) -> list[str]:
        """Return findings of many tables, each listed at the first of them."""
        lines = ["In several tables:"]
        for same in sorted(alike.values(), key=lambda same: same[0].severity):
            first = same[0]
            text = (
                f"{first.file} and {len(same) - 1} more: {first.text(self.offsets.get(first.file))}"
            )
            lines += _wrapped(first, None, text)
        return [*lines, "  --json has all of them, table by table.", ""]

    @property
    def _wrong(self) -> set[str]:
        """Return the rules with errors."""
        return {f.rule for f in errors(self.findings)}

    def to_json(self) -> str:
        """Return the report as JSON text; see `docs/data-check.md`."""
        wrong, strange = self.counts
        shapes = [
            {
                "name": name,
                "rows": shape and shape[0],
                "columns": shape and shape[1],
                "left_out": shape and self.left_out.get(name, 0),
            }
            for name, shape in self.tables.items()
        ]
        plain = {
            "schema": 1,
            "errors": wrong,
            "warnings": strange,
            "tables": shapes,
            "untried": self.untried,
            "findings": [f.to_dict(self.offsets.get(f.file)) for f in self.findings],
        }
        return json.dumps(plain, ensure_ascii=False, indent=1) + "\n"

    def to_text(self) -> str:
        """Return the report as text, table by table, at most `WIDTH` wide except for long names."""
        lines: list[str] = []
        alike = _alike(self.findings)
        shown = [f for f in self.findings if _kind(f) not in alike]
        names = [*dict.fromkeys([*self.tables, *(f.file for f in self.findings)])]
        sound = [n for n in names if n in self.tables and not any(f.file == n for f in shown)]
        if len(sound) > MOST_ALIKE:
            names = [name for name in names if name not in sound]
            besides = " besides" if alike else ""
            lines += [f"{len(sound)} tables: nothing found{besides}", ""]
        if alike:
            lines += self._shared(alike)
        for name in names:
            here = [f for f in shown if f.file == name]
            shape = self.tables.get(name)
            out = self.left_out.get(name, 0)
            but = f"; {_count(out, 'row')} left out of the study" if out else ""
            size = (
                f" ({_count(shape[0], 'row')}, {_count(shape[1], 'column')}{but})" if shape else ""
            )
            where = "the dictionary" if self.at_sites else "all tables"
            lines.append(f"{name or where}{size}: {_said(here)}")
            for f in sorted(_together(here), key=lambda f: f.severity):
                lines += _wrapped(f, self.offsets.get(name))
            lines.append("")
        verdict = (
            AT_SITES if self.at_sites
            else "An arm that cannot be fitted fails in the study." if {"fit"} == self._wrong
            else "A study does not run on tables with errors." if self.counts[0]
            else "Warnings do not stop a study." if self.findings
            else ""
        )  # fmt: skip
        where = "" if self.at_sites else f" in {_count(len(self.tables), 'table')}"
        total = f"{_said(self.findings)}{where}. {verdict}"
        lines += textwrap.wrap(total, WIDTH)
        if self.untried:
            said = f"Not fitted to the end, as it takes long: {', '.join(self.untried)}."
            lines += textwrap.wrap(said, WIDTH, break_on_hyphens=False)
        if not self.judged:
            lines += textwrap.wrap(NO_OUTCOME, WIDTH, break_on_hyphens=False)
        return "\n".join(lines) + "\n"


def inputs(files: Sequence[str], dictionary: Path | None) -> list[Path]:
    """Return the files that `check` reads, which must not be written.

    Raises
    ------
    StudyError : a study file is wrong.
    """
    found = [dictionary] if dictionary else []
    for file in files:
        found += sources.files_of(file, Path())
        if Path(file).suffix.lower() in STUDIES and not is_url(file):
            doc = yamlfile.read(Path(file))
            remote = _is_remote(doc, files)
            plan = checked_plan(doc, Path(file).parent, network=remote)
            found += [] if remote else sources.files_of(plan.source, plan.base)
            found += [plan.base / plan.dictionary] if plan.dictionary else []
    return found


def check(
    files: Sequence[str],
    dictionary: Path | None,
    *,
    outcome: str | None = None,
    sites: str | None = None,
    query: str = "",
) -> Report:
    """Check tables, or all tables of a study.

    Parameters
    ----------
    files : CSV and Parquet files, paths with {site}, URLs of a database; or one study file,
        followed by
        tables of sites that would take part in it over a network.
    dictionary : the data dictionary; a study file names its own.
    outcome : "TIME,EVENT" or "Y"; None for the dictionary's.
    sites : the column of the sites, if one table holds several.
    query : the query of a database.

    Raises
    ------
    StudyError : the options do not go together, or the study file is wrong.
    DataError : the dictionary is missing or wrong.
    """
    studies = [f for f in files if Path(f).suffix.lower() in STUDIES and not is_url(f)]
    if studies:
        given = {"--dictionary": dictionary, "--outcome": outcome, "--sites": sites}
        given |= {"--query": query} if len(files) == 1 else {}
        extra = [k for k, v in given.items() if v]
        if len(studies) > 1 or extra:
            what = extra[0] if extra else "a second one"
            raise StudyError(f"{studies[0]}: a study file names its own tables; leave out {what}.")
        study = Path(studies[0])
        if len(files) == 1 and not _is_remote(yamlfile.read(study), files):
            return _of_study(study)
        return _of_network(study, [f for f in files if f not in studies], query)
    if dictionary is None:
        raise StudyError(
            "name the data dictionary by --dictionary. `fedcohort init --data FILE` drafts one."
        )
    known = read_dictionary(dictionary)
    about = outcome_of(outcome, known) if outcome else known.outcome()
    known = with_outcome(without(known, sites), about)
    report = Report(judged=about is not None)
    report.add(_read(report, files, sites, query, known), known, about, Path())
    return report


def _read(
    report: Report, files: Sequence[str], sites: str | None, query: str, known: Dictionary
) -> list[Sheet]:
    """Return the tables of some files; the report notes unreadable ones."""
    sheets: list[Sheet] = []
    for file in files:
        alone = None if len(files) == 1 or sites else site_of(file, files)
        try:
            source = sources.load(
                file, Path(), query=query, dictionary=known, texts=[sites] if sites else ()
            )
            for sheet in _sheets(source, alone, sites, known):
                sheets.append(sheet)
                report.tables[sheet.name] = len(sheet.frame), sheet.width
        except DataError as error:
            name = masked(file)
            report.tables[name] = None
            report.findings.append(_plainly(name, "file", error))
    report.findings += [f for file in files for f in _beside(file, Path())]
    return sheets


def _beside(source: str, base: Path) -> list[Finding]:
    """Return a warning about unread tables beside those of a path with {site}."""
    names = sources.beside(source, base)
    if not names:
        return []
    shown = ", ".join(names[:BESIDE_NAMED]) + (", …" if len(names) > BESIDE_NAMED else "")
    what = f"{source} does not stand for {_count(len(names), 'file')} beside its tables: {shown}"
    remedy = "Are they hospitals' too? An asterisk stands for any end, as in {site}.*"
    return [Finding("", "file", WARNING, what, remedy)]


def _sheets(
    source: sources.Source, site: str | None, column: str | None, known: Dictionary
) -> list[Sheet]:
    """Return a source's tables in the form of the checks.

    site : the table's site; None if it is the only one, or holds several sites' in `column`.
    """
    frames = source.frames
    if isinstance(frames, dict):
        if column:
            raise DataError("its files are sites of their own; leave out --sites")
        return [
            Sheet(frame, sources.name_of(source.name, Path(), name), name)
            for name, frame in frames.items()
        ]
    if column is None or not len(frames):
        return [Sheet(frames, source.name, site)]
    return [Sheet.by_column(frames, source.name, column, known.variables)]


def site_of(file: str, files: Sequence[str]) -> str:
    """Return a file's site: the file's name, unless another file has it."""
    stems = [Path(f).stem for f in files]
    return Path(file).stem if stems.count(Path(file).stem) == 1 else file


def _plainly(file: str, rule: str, error: InputError) -> Finding:
    """Return an error as a finding."""
    text = " ".join(str(error).split()).removeprefix(f"{file}: ")
    what, _, remedy = text.rstrip(".").rpartition(". ")
    return Finding(file, rule, ERROR, what or remedy, _stopped(remedy) if what else "")


def _stopped(sentence: str) -> str:
    """Return a sentence with a stop, unless it is a question."""
    return sentence if sentence.endswith("?") else f"{sentence}."


def _of_study(path: Path) -> Report:
    """Check a study file and its tables, as `fedcohort run` does at its start."""
    plan = checked_plan(yamlfile.read(path), path.parent)
    report = Report()
    try:
        found = opened(plan)
    except DataError as error:
        report.tables[plan.source] = None
        report.findings.append(_plainly(plan.source, "file", error))
        return report
    known = with_outcome(found.dictionary, found.outcome)
    report.findings += _beside(plan.source, plan.base)
    report.add(
        found.sheets, known, found.outcome, plan.base, natural=found.natural, accepted=plan.units
    )
    if found.fates:
        what = f"{_count(len(found.fates), 'site')} will not take part as they are: "
        report.findings.append(
            Finding(
                plan.source, "small sites", WARNING, what + fates_text(found.fates), SMALL_SITES
            )
        )
    if not errors(report.findings):
        try:
            study = Study.from_file(path)
        except InputError as error:
            report.findings.append(_plainly(str(path), "study", error))
        else:
            tried = list(rehearsed(study.plan, study.table))
            report.findings += told_of_fits(str(path), study.plan, study.table, tried)
            report.untried = list(
                dict.fromkeys(t.arm.name for t in tried if t.run is None and not t.refused)
            )
    return report


def _is_remote(doc: yamlfile.Document, files: Sequence[str]) -> bool:
    """Return whether a study is checked as sites of a network see it.

    It is if its file names no table, or if tables of sites are given with it.
    """
    data = doc.content.get("data")
    source = data.get("source") if isinstance(data, dict) else None
    return len(files) > 1 or (isinstance(data, dict) and source in (None, NETWORK))


def _of_network(path: Path, files: Sequence[str], query: str) -> Report:
    """Check a study over a network, and tables of its sites, each as its node would.

    files : the tables at hand; none if all are at the sites.
    """
    terms = Terms.of(path)
    outcome, plan = terms.outcome, terms.plan
    known = with_outcome(terms.dictionary, outcome)
    report = Report(judged=outcome is not None or plan.kind.aside, at_sites=not files)
    sheets = [
        sheet.only(stays(sheet.frame, outcome, plan.exclude))
        for sheet in _read(report, files, None, query, known)
    ]
    report.add(sheets, known, outcome, Path(), natural=False, accepted=plan.units)
    if not files:
        report.findings += _of_dictionary(terms.dictionary, outcome)
    wrong = {f.file for f in errors(report.findings)}
    for sheet in (s for s in sheets if s.name not in wrong):
        try:
            SiteTable.of(terms, str(sheet.site or sheet.name), sheet.frame)
        except Unfit as error:
            report.findings.append(_plainly(sheet.name, "site rows", error))
    return report


def _of_dictionary(dictionary: Dictionary, outcome: Outcome | None) -> list[Finding]:
    """Return open agreements between sites: columns of the outcome, and units."""
    found: list[Finding] = []
    for name in (n for n in (outcome.columns if outcome else ()) if n not in dictionary):
        what = f"the outcome's column {name!r} is not in the dictionary"
        near = nearest(name, dictionary.variables).strip() or "Add it."
        found.append(Finding("", "missing column", WARNING, what, near, column=name))
    for v in dictionary.variables.values():
        if v.type in ("number", "time") and not v.unit and not v.identifier:
            what = f"column {v.name!r} has no unit in the dictionary, and sites may differ in it"
            found.append(Finding("", "unit", WARNING, what, UNIT, column=v.name))
    return found


def outcome_of(text: str, dictionary: Dictionary) -> Outcome:
    """Return the outcome of "TIME,EVENT", or of "Y" by its type in the dictionary."""
    names = [name.strip() for name in text.split(",")]
    if len(names) == 2 and all(names):
        return Survival(*names)
    if len(names) != 1 or not names[0]:
        raise StudyError(f"--outcome {text}: expected TIME,EVENT or the name of one column.")
    v = dictionary[names[0]]
    if v.type == "binary" or (v.coded and len(v.levels) == 2):
        return Binary(v.name)
    return Category(v.name) if v.coded else Continuous(v.name)


def _rows_are_lines(path: Path, n_rows: int) -> bool:
    """Return whether data row i of a CSV file is its line i + 1.

    It is not if cells hold line ends, or if there are empty lines.
    """
    if path.suffix.lower() not in (".csv", ".tsv", ".txt") or not path.is_file():
        return False
    lines, last = 0, b"\n"
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            lines, last = lines + part.count(b"\n"), part[-1:]
    return lines + (last != b"\n") == n_rows + 1


def _count(n: int, noun: str) -> str:
    return f"{f'{n:,}' if n else 'no'} {noun}{'' if n == 1 else 's'}"


def _said(findings: Sequence[Finding]) -> str:
    """Count errors and warnings in words."""
    if not findings:
        return "nothing found"
    wrong = len(errors(findings))
    strange = len(findings) - wrong
    parts = [_count(n, noun) for n, noun in ((wrong, "error"), (strange, "warning")) if n]
    return " and ".join(parts)


def _together(findings: Sequence[Finding]) -> list[Finding]:
    """Return a table's findings, equal ones of all columns merged into one."""
    alike: dict[tuple[str, ...], list[Finding]] = {}
    for i, f in enumerate(findings):
        called = f"column {f.column!r} "
        whole = f.column and not f.rows and f.what.startswith(called)
        key = (f.severity, f.rule, f.what.removeprefix(called), f.remedy) if whole else (str(i),)
        alike.setdefault(key, []).append(f)
    return [
        first
        if not rest
        else replace(
            first,
            column=None,
            what=f"each of {1 + len(rest)} columns {key[2]}: "
            + first_of([repr(f.column) for f in (first, *rest)]),
        )
        for key, (first, *rest) in alike.items()
    ]


#: What makes findings of several tables alike: severity, rule, column, and the words.
_Kind = tuple[str, str, str | None, str]


def _kind(finding: Finding) -> _Kind:
    site = "" if finding.site is None else finding.site
    words = re.sub(r"\d+", "", finding.what.replace(repr(site), "") if site else finding.what)
    return finding.severity, finding.rule, finding.column, words


def _alike(findings: Sequence[Finding]) -> dict[_Kind, list[Finding]]:
    """Return equal findings of many tables, apart from numbers and site."""
    found: dict[_Kind, list[Finding]] = {}
    for finding in findings:
        found.setdefault(_kind(finding), []).append(finding)
    return {kind: same for kind, same in found.items() if len({f.file for f in same}) > MOST_ALIKE}


def _wrapped(finding: Finding, offset: int | None, text: str = "") -> list[str]:
    return textwrap.wrap(
        text or finding.text(offset),
        WIDTH,
        initial_indent=f"  {finding.severity:<9}",
        subsequent_indent=" " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )
