"""A hospital's rules: its node.toml, read strictly, and the check of each study against it.

    [data]      source, query (of a database), dictionary (the site's own), name (of the data set)
    [policy]    methods, columns, min_cell, min_rows, max_parameters, parameters_per_row,
                max_calls, differencing, secure_sum, secure_sum_sites, submitters, approval,
                approval_days, approval_runs
    [policy.privacy_budget]    epsilon, delta: for all studies of the data set together

An unknown key is an error that names the nearest known one. A study that exceeds the rules is
refused with one line: what it asks, what the site allows. Checks that need the data (rows, fit to
the dictionary) are `node`'s.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome
from fedcohort.data.read.sql import is_url, problem_of_query, problem_of_url
from fedcohort.network.state import decisions
from fedcohort.privacy.disclosure.models import ACTIONS
from fedcohort.protocol import registry
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.privacy import FEWEST
from fedcohort.study.file.yamlfile import nearest
from fedcohort.study.run.extras import asked_of

DATA = ("source", "query", "dictionary", "name")
POLICY = (
    "methods", "columns", "min_cell", "min_rows", "max_parameters", "max_calls", "secure_sum",
    "secure_sum_sites", "parameters_per_row", "differencing", "submitters", "approval",
    "approval_days", "approval_runs", "privacy_budget",
)  # fmt: skip
BUDGET = ("epsilon", "delta")
SUMS, APPROVALS = ("optional", "required"), ("steward", "automatic")
#: What a site does about studies of nearly the same patients as an earlier one's.
DIFFERENCING = ("refuse", "allow")
#: What a policy says of methods, columns or submitters to allow any.
ALL = "all"
#: Settings of methods that name a column of the table.
COLUMN_SETTINGS = ("offset", "weights", "strata", "by")
#: Replies that leave in one session, where node.toml does not say: room for a penalised path with
#: folds, and for several attempts at it.
MOST_CALLS = 100_000
#: Most allowed names in one line.
NAMED = 8


@dataclass(frozen=True)
class DataSource:
    """Where a site's table is; `name` is the data set's, which its privacy budget belongs to."""

    source: str
    query: str
    dictionary: str | None
    name: str
    base: Path


@dataclass(frozen=True)
class Allowance:
    """The privacy that all studies together may spend on one data set."""

    epsilon: Decimal
    delta: Decimal


@dataclass(frozen=True)
class Asked:
    """A study's requests, as far as a policy covers them.

    Attributes
    ----------
    methods : of its arms, comparisons and feedback.
    columns : all that its dictionary and outcome name; each is at least checked.
    secure_sum : the study lets sites mask their parts of sums.
    """

    methods: tuple[str, ...]
    columns: tuple[str, ...]
    min_cell: int
    secure_sum: bool

    @classmethod
    def of(cls, plan: Plan, dictionary: Dictionary, outcome: Outcome | None) -> Asked:
        """Return the requests of a checked study."""
        named = [*(outcome.columns if outcome is not None else ()), *dictionary.variables]
        for arm in plan.arms:
            given = arm.configured()
            named += [str(given[key]) for key in COLUMN_SETTINGS if given.get(key)]
        return cls(
            tuple(dict.fromkeys((*(arm.method for arm in plan.arms), *asked_of(plan)))),
            tuple(dict.fromkeys(named)),
            plan.min_cell,
            plan.privacy.secure != "false",
        )


@dataclass(frozen=True)
class Policy:
    """A site's rules; None in place of names allows all.

    Attributes
    ----------
    max_calls : replies of one session (such as one fit) in all attempts; of a private fit also
        failed
        calls.
    secure_sum_sites : smallest number of sites of a masked sum, whatever roster a coordinator
        names.
    parameters_per_row : refuse a model with more free parameters than a tenth of the site's rows,
        or
        let the report say so.
    approval_days, approval_runs : days and runs of an approval by default, and of the policy's own.
    differencing : rule for patients nearly those of an earlier study (`cohorts`).
    """

    methods: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    min_cell: int = 5
    min_rows: int = 50
    max_parameters: int = 1_000_000
    max_calls: int = MOST_CALLS
    secure_sum: str = SUMS[0]
    secure_sum_sites: int = FEWEST
    submitters: tuple[str, ...] | None = ()
    approval: str = APPROVALS[0]
    budget: Allowance | None = None
    parameters_per_row: str = ACTIONS[0]
    differencing: str = DIFFERENCING[0]
    approval_days: int = decisions.DAYS
    approval_runs: int = decisions.RUNS

    def check(self, asked: Asked, submitter: str) -> None:
        """Check what a study asks, and who asks it.

        Raises
        ------
        Refused : the first rule that is broken: what is asked, and what is allowed.
        """
        if problem := _beyond((submitter,), self.submitters):
            raise Refused(
                "submitter",
                f"the study was submitted by {problem[0]!r}; this site takes studies of "
                f"{_some(self.submitters)}.",
            )
        if problem := _beyond(asked.methods, self.methods):
            raise Refused(
                "method",
                f"the study asks for {_of('method', problem)}; this site allows "
                f"{_some(self.methods)}.",
            )
        for name in asked.methods:
            if lacking := registry.find(name).lacking:
                raise Refused("method", f"this site lacks what the study asks for: {lacking}")
        if problem := _beyond(asked.columns, self.columns):
            raise Refused(
                "column",
                f"the study asks for {_of('column', problem)}; this site allows "
                f"{_some(self.columns)}. Leave others out of the study's dictionary.",
            )
        if asked.min_cell < self.min_cell:
            raise Refused(
                "min_cell",
                f"the study asks for privacy.min_cell {asked.min_cell}; this site allows "
                f"{self.min_cell} or more.",
            )
        if self.secure_sum == "required" and not asked.secure_sum:
            raise Refused(
                "secure_sum",
                "the study switches masked sums off (privacy.secure_aggregation: false); this site "
                "requires them (policy.secure_sum).",
            )


@dataclass(frozen=True)
class Config:
    """A node's configuration."""

    data: DataSource
    policy: Policy

    @classmethod
    def read(cls, path: Path) -> Config:
        """Read a node.toml; relative paths in it start at its folder.

        Raises
        ------
        InputError : no such file, no TOML, an unknown key, or a value that a key cannot have.
        """
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise InputError(f"{path}: cannot read the file ({reason}).") from None
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path}: this is no TOML ({error}).") from None
        top = _Table(str(path), "", content, ("data", "policy"))
        policy = top.table("policy", POLICY)
        return cls(_data(top.table("data", DATA), path.parent), _policy(policy))


def _beyond(asked: Iterable[str], allowed: tuple[str, ...] | None) -> list[str]:
    """Return requests that are not allowed."""
    return [] if allowed is None else [name for name in asked if name not in allowed]


def _of(noun: str, names: list[str]) -> str:
    """Return ``column 'a'``, or ``columns 'a', 'b'``."""
    return f"{noun}{'s' if len(names) > 1 else ''} {_some(tuple(names))}"


def _some(names: tuple[str, ...] | None) -> str:
    """Return names for a line: some of them where they are many."""
    shown = ", ".join(repr(name) for name in (names or ())[:NAMED])
    more = len(names or ()) - NAMED
    return (f"{shown} and {more} more" if more > 0 else shown) or "none"


def _data(table: _Table, base: Path) -> DataSource:
    source, query = table.text("source"), table.text("query", "")
    if is_url(source):
        if not query:
            raise table.error("source", "a database needs a 'query' beside it: one SELECT.")
        for key, wrong in (
            ("source", problem_of_url(source)),
            ("query", problem_of_query(query)),
        ):
            if wrong is not None:
                raise table.error(key, wrong)
    elif query:
        raise table.error("query", "a query needs a database as 'source', as sqlite:///a.db.")
    elif "{site}" in source or source.startswith(("memory", "sample:")):
        raise table.error("source", "expected one table of this site: a file, or a database.")
    own = table.text("dictionary", "") or None
    return DataSource(source, query, own, table.text("name", "patients"), base)


def _policy(table: _Table) -> Policy:
    methods = table.names("methods")
    for name in methods or ():
        if name not in registry.names():
            wrong = f"there is no method {name!r}; {nearest(name, registry.names())}"
            raise table.error("methods", wrong)
    given = table.content.get("privacy_budget")
    budget = None
    if given is not None:
        limits = table.table("privacy_budget", BUDGET)
        budget = Allowance(limits.real("epsilon", 1e6), limits.real("delta", 1.0))
    return Policy(
        methods=methods,
        columns=table.names("columns"),
        min_cell=table.whole_number("min_cell", 5, low=1),
        min_rows=table.whole_number("min_rows", 50, low=2),
        max_parameters=table.whole_number("max_parameters", 1_000_000, low=1),
        max_calls=table.whole_number("max_calls", MOST_CALLS, low=1),
        secure_sum=table.choice("secure_sum", SUMS),
        secure_sum_sites=table.whole_number("secure_sum_sites", FEWEST, low=FEWEST),
        submitters=table.names("submitters"),
        approval=table.choice("approval", APPROVALS),
        budget=budget,
        parameters_per_row=table.choice("parameters_per_row", ACTIONS),
        differencing=table.choice("differencing", DIFFERENCING),
        approval_days=table.whole_number("approval_days", decisions.DAYS, 1, decisions.MOST_DAYS),
        approval_runs=table.whole_number("approval_runs", decisions.RUNS, 1, decisions.MOST_RUNS),
    )


class _Table:
    """Typed access to one table of a TOML file, whose errors name file, key and expectation."""

    def __init__(self, file: str, path: str, content: Any, known: Iterable[str]):
        self.file, self.path = file, path
        if not isinstance(content, dict):
            raise self.error("", "expected a table.")
        self.content = cast("dict[str, Any]", content)
        for key in self.content:
            if key not in known:
                raise self.error(key, f"unknown key {key!r}; {nearest(key, known)}")

    def error(self, key: str, problem: str) -> InputError:
        """Return the error that says `problem` about a key."""
        place = ".".join(p for p in (self.path, key) if p)
        return InputError(f"{', '.join(p for p in (self.file, place) if p)}: {problem}")

    def table(self, key: str, known: Iterable[str]) -> _Table:
        """Return a table within."""
        if key not in self.content:
            raise self.error("", f"the table [{key}] is missing.")
        path = f"{self.path}.{key}" if self.path else key
        return _Table(self.file, path, self.content[key], tuple(known))

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text; required without a default."""
        value = self.content.get(key, default)
        if value is None:
            raise self.error("", f"the key {key!r} is missing.")
        if not isinstance(value, str) or not value.isprintable() or (not value and default is None):
            raise self.error(key, "expected text.")
        return value

    def names(self, key: str) -> tuple[str, ...] | None:
        """Return a list of names, or None for "all"; nothing is allowed by being left out."""
        value = self.content.get(key)
        if value is None:
            raise self.error("", f'the key {key!r} is missing: a list of names, or "{ALL}".')
        if value == ALL:
            return None
        items = cast("list[Any]", value) if isinstance(value, list) else [None]
        if not all(isinstance(item, str) and item for item in items):
            raise self.error(key, f'expected a list of names, or "{ALL}".')
        return tuple(dict.fromkeys(cast("list[str]", items)))

    def whole_number(self, key: str, default: int, low: int, high: int | None = None) -> int:
        """Return a whole number of at least `low`, and up to `high`."""
        value = self.content.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise self.error(key, f"expected a whole number of at least {low}.")
        if high is not None and value > high:
            raise self.error(key, f"expected a whole number from {low} to {high}.")
        return value

    def choice(self, key: str, known: tuple[str, ...]) -> str:
        """Return one of the known words; the first by default."""
        value = self.content.get(key, known[0])
        if value not in known:
            raise self.error(key, f"{value!r} is not possible; {nearest(value, known)}")
        return cast("str", value)

    def real(self, key: str, high: float) -> Decimal:
        """Return a number above 0 and up to `high`, as it is written."""
        value = self.content.get(key)
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or not 0 < cast("float", value) <= high:
            raise self.error(key, f"expected a number above 0, at most {high:g}.")
        return Decimal(repr(value))
