"""The terms of a study that are sent to sites: its content and its dictionary, without any data.

A study over a network is one text, canonical JSON (no spaces; keys in the order of the study's
files, since the order of columns is that of a model's coefficients), so equal studies give equal
text. A lead signs its SHA-256, a steward approves it and a coordinator runs it. Each site holds its
own rows, so sources of data (`data.source`, `query`, `sites`, `dictionary`) and `scenarios` are not
sent. The outcome is always sent, also if it comes from a sample or a dictionary.

Revealed: nothing of a row; of a sample, its packaged dictionary.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import pandas as pd

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Outcome, columns_of
from fedcohort.data.prepare import check_roles, classes_of, strata_levels
from fedcohort.data.read import sources
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.data.read.frames import without, without_marked
from fedcohort.protocol import DataError, InputError, StudyError, registry
from fedcohort.study.file import plan, yamlfile
from fedcohort.study.file.arms import check_learnt
from fedcohort.study.file.plan import Plan
from fedcohort.study.run import private
from fedcohort.study.run.engine import Problem

#: Format of the text; others are refused.
FORMAT = 1
#: Largest length of the text, in bytes.
LONGEST = 4 * 2**20
#: Keys of `data` that are not sent, or sent elsewhere.
AT_HOME = ("source", "query", "sites", "dictionary")


@dataclass(frozen=True)
class LeftOut:
    """An arm of the file that cannot run if rows stay at their sites, and why."""

    arm: str
    title: str
    reason: str


CENTRALISED = (
    "This bound needs all rows in one place, and here every row stays at its hospital. Run the "
    "study on a simulated copy to see it."
)


@dataclass(frozen=True, eq=False)
class Terms:
    """A study over a network.

    Attributes
    ----------
    content : of the study file, without keys that are not sent.
    dictionary_content : the dictionary as a mapping.
    """

    content: Mapping[str, Any]
    dictionary_content: Mapping[str, Any]

    @classmethod
    def of(cls, path: str | Path, overrides: Iterable[str] = (), seed: int | None = None) -> Self:
        """Read a study file and its dictionary; never the data of a path.

        Parameters
        ----------
        overrides : ``key.path=value`` assignments that replace the file's values.
        seed : replaces the file's.

        Raises
        ------
        StudyError : the file is wrong, or asks for something impossible over a network.
        DataError : the dictionary is missing or wrong, or lacks a column that the study names.
        """
        path = Path(path)
        doc = yamlfile.read(path)
        for assignment in overrides:
            doc = doc.with_override(assignment)
        if seed is not None:
            doc = doc.with_override(f"seed={seed}")
        checked = plan.check(doc, path.parent, network=True)
        dictionary, known = _dictionary(doc, path.parent, checked)
        marked = known or dictionary.outcome()
        if checked.kind.aside:
            outcome = checked.outcome
            dictionary = without_marked(dictionary, columns_of(marked), outcome)
        else:
            outcome = checked.outcome or marked
        if not checked.kind.aside and (outcome is None or outcome.kind != checked.task):
            raise doc.error(
                ("data",),
                f"no outcome for {checked.task} is known; name the 'outcome' here, or mark it in "
                f"the dictionary.",
            )
        found = cls(_travelling(doc.content, outcome), dictionary.to_dict())
        try:
            found.to_json()
            found.check()
        except InputError as error:
            raise doc.error((), str(error)) from None
        except ValueError:
            raise doc.error((), "a number is not finite. Give a finite one.") from None
        return found

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the text of `to_json`.

        Raises
        ------
        StudyError : the text is not such a study, or asks for something impossible.
        DataError : its dictionary is invalid, or lacks a column that the study names.
        """
        where = "the study that was sent"
        if len(text.encode()) > LONGEST:
            raise StudyError(f"{where} has more than {LONGEST} bytes, the most that is read.")
        try:
            found: Any = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise StudyError(f"{where} is no JSON ({type(error).__name__}).") from None
        if not isinstance(found, dict) or sorted(found) != ["content", "dictionary", "format"]:
            raise StudyError(f"{where} does not hold exactly content, dictionary and format.")
        parts = cast("dict[str, Any]", found)
        if parts["format"] != FORMAT:
            raise StudyError(f"{where} is of another format; this version reads {FORMAT}.")
        if not (isinstance(parts["content"], dict) and isinstance(parts["dictionary"], dict)):
            raise StudyError(f"{where}: content and dictionary are mappings.")
        terms = cls(parts["content"], parts["dictionary"])
        if terms.to_json() != text:
            raise StudyError(f"{where} is not in canonical form, so its hash is not valid.")
        terms.check()
        return terms

    def to_json(self) -> str:
        """Return the canonical text; equal studies give equal text."""
        parts = {
            "content": self.content, "dictionary": self.dictionary_content, "format": FORMAT,
        }  # fmt: skip
        return json.dumps(parts, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical text, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Terms) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    @cached_property
    def asked(self) -> Plan:
        """The study, checked, as in its file."""
        doc = yamlfile.Document(dict(self.content), "study")
        return plan.check(doc, Path(), network=True)

    @cached_property
    def plan(self) -> Plan:
        """The study, checked, with the arms and metrics that a network can run."""
        arms = tuple(a for a in self.asked.arms if a.scope != "centralised")
        return replace(self.asked, arms=arms, metrics=self.asked.kind.there(self.asked.metrics))

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Arms of the file that a network cannot run."""
        arms = (a for a in self.asked.arms if a.scope == "centralised")
        return tuple(LeftOut(a.name, a.title, CENTRALISED) for a in arms)

    @cached_property
    def dictionary(self) -> Dictionary:
        """Types and levels of the columns, the same at all sites."""
        return Dictionary.from_dict(self.dictionary_content, "the study's dictionary")

    @property
    def outcome(self) -> Outcome | None:
        """The outcome; for clusters and latent variables one for evaluation only, or None."""
        return self.plan.outcome

    @property
    def learnt(self) -> Outcome | None:
        """The outcome that fits see; None for clusters and latent variables."""
        return self.problem.outcome

    @property
    def seen(self) -> Dictionary:
        """The columns that fits may use: without those of an outcome for evaluation only."""
        return self.problem.dictionary

    def aside(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return rows without the columns of an outcome for evaluation only."""
        if self.learnt is not None or self.outcome is None or self.plan.kind.joint:
            return frame
        return frame.drop(columns=list(self.outcome.columns))

    @cached_property
    def problem(self) -> Problem:
        """The problem of a fit, without tables."""
        return replace(self.described.of(self.plan.kind).learnt(), dp=self.plan.privacy.dp)

    @property
    def described(self) -> Problem:
        """The problem of Table 1, with an outcome for evaluation only; without tables."""
        plan = self.plan
        return Problem(
            {}, self.dictionary, self.outcome, plan.min_cell, plan.quorum, task=plan.task
        )

    @property
    def horizon(self) -> float | None:
        """The time of predicted risks, in the unit of the outcome; None without.

        Raises
        ------
        DataError : the dictionary has no known unit for the time.
        """
        asked = self.plan.horizon
        return None if asked is None else asked.within(self.dictionary, self.outcome)

    def check(self) -> None:
        """Check the study and its dictionary, and that they fit together.

        Raises
        ------
        StudyError, DataError, SettingError : they do not, or something is not possible.
        """
        kind = self.asked.kind
        if self.asked.outcome is None and not kind.aside:
            raise StudyError("the study that was sent names no outcome.")
        kind.check(self.outcome)
        _ = self.horizon
        _check_outcome(self.dictionary, self.outcome)
        classes_of(self.dictionary, self.learnt)
        check_learnt(self.plan.arms, kind, self.outcome)
        self.plan.units.check(self.dictionary.variables)
        marked = self.dictionary.outcome()
        named = without_marked(self.dictionary, columns_of(marked), self.outcome)
        if kind.aside and len(named.variables) < len(self.dictionary.variables):
            raise DataError("the dictionary marks an outcome that the study does not name.")
        if not self.dictionary.features(self.outcome):
            raise DataError("the dictionary has no column to predict from beside the outcome.")
        for arm in self.plan.arms if kind.joint else ():
            if registry.find(arm.method).overrides("sample_outcome"):
                raise StudyError(
                    f"arm {arm.name!r}: over a network, virtual patients are drawn by methods that "
                    f"have the outcome among their columns, and {arm.method!r} has it apart. Run "
                    f"its study of task survival, and draw from the saved model."
                )
        for arm in self.plan.arms:
            roles = {role: str(arm.settings.get(role, "")) for role in ("offset", "weights")}
            try:
                check_roles(self.seen, self.learnt, **roles)
                strata_levels(self.seen, self.learnt, str(arm.settings.get("strata", "")))
                if self.plan.privacy.dp is not None and arm.scope == "sites":
                    private.check_dictionary(
                        registry.find(arm.method), arm.configured(), self.seen, self.learnt
                    )
            except InputError as error:
                raise DataError(f"arm {arm.name!r}: {error}") from None


def _no_number(_: str) -> float:
    raise ValueError("not finite")


def _dictionary(
    doc: yamlfile.Document, base: Path, checked: Plan
) -> tuple[Dictionary, Outcome | None]:
    """Return the study's dictionary without the column of sites, and a sample's outcome."""
    data = cast("Mapping[str, Any]", doc.content.get("data") or {})
    source = str(data.get("source") or "")
    sites: Any = data.get("sites")
    column = cast("dict[str, Any]", sites).get("column") if isinstance(sites, dict) else None
    if checked.dictionary:
        return without(read_dictionary(base / checked.dictionary), column), None
    if not source.startswith("sample:"):
        raise doc.error(
            ("data",),
            "the key 'dictionary' is missing: sites that hold their own rows agree on the columns "
            "beforehand.",
        )
    sample = sources.load(source, base)
    assert sample.dictionary is not None
    return without(sample.dictionary, column), sample.outcome


#: Keys of `data.sites` that each site applies to its own rows.
NEEDED = ("min_rows", "min_events")


def _travelling(content: Mapping[str, Any], outcome: Outcome | None) -> dict[str, Any]:
    """Return the part of a study file that is sent."""
    kept = {k: v for k, v in content.items() if k not in ("scenarios", "data") and v is not None}
    data = cast("Mapping[str, Any]", content.get("data") or {})
    sites: Any = data.get("sites") or {}
    needed = {k: sites[k] for k in NEEDED if isinstance(sites, dict) and sites.get(k) is not None}
    data = {k: v for k, v in data.items() if k not in AT_HOME and v is not None}
    data |= {"sites": needed} if needed else {}
    return kept | {"data": data if outcome is None else {**data, "outcome": _spoken(outcome)}}


def _spoken(outcome: Outcome) -> dict[str, str]:
    return outcome.to_dict()


def _check_outcome(dictionary: Dictionary, outcome: Outcome | None) -> None:
    """Check that the dictionary lists the classes of an outcome, so that all sites agree.

    Raises
    ------
    DataError : it does not.
    """
    if outcome is not None and outcome.has_classes:
        v = dictionary[outcome.label]
        levels = ("0", "1") if v.type == "binary" and not v.levels else v.levels
        if isinstance(outcome, Binary) and len(levels) != 2:
            raise DataError(
                f"the outcome {v.name!r} has {len(levels)} levels in the dictionary; list its two, "
                f"or set its type to category or ordinal."
            )
