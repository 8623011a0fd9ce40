"""A site's own table, made canonical and checked against the study's dictionary before training.

The order of rows depends only on their values and the study's seed. So a study gives the same
arrays for any order of a hospital's export, and nobody else knows a patient's position. Training
and blind rows are drawn from (seed, repeat, site, all rows), stratified by outcome. With
independent draws, the training rows of as many repeats as a site has rows would give enough
equations to solve for them.

A table that does not fit is refused with its faults: pairs of a column of the study's dictionary
and a rule of `docs/data-check.md` (or `ROWS`). They hold no value, no count, and no name from
outside the study.

Revealed: the faults, if there are any.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check import Sheet, errors, examine, with_outcome
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.on_disk import selected, taken
from fedcohort.data.outcome import Outcome
from fedcohort.data.read.canonical import canonical
from fedcohort.data.read.frames import as_pandas
from fedcohort.protocol import DataError
from fedcohort.study.file.terms import Terms
from fedcohort.study.sites.exclusion import Stage, exclude, stays
from fedcohort.study.sites.site_rule import counts
from fedcohort.study.sites.splits import digest, own_blind, own_order

#: The rule that a site has enough training and blind rows.
ROWS = "rows"
#: The rule that a site has as many events as the study asks of each (`data.sites.min_events`).
EVENTS = "min_events"
#: The rule that cells are single values.
CELLS = "cells"
#: Rules that a site may break: other sites have events.
ALLOWED = ("events",)


class Unfit(DataError):
    """A site's table does not fit the study.

    Attributes
    ----------
    faults : (column, rule) each; the column is "" for a rule about the whole table.
    """

    def __init__(self, site: str, faults: Sequence[tuple[str, str]]):
        self.site = site
        self.faults = list(dict.fromkeys(faults))
        said = ", ".join(f"column {c!r}: {rule}" if c else rule for c, rule in self.faults)
        if {rule for _, rule in self.faults} <= {ROWS, EVENTS}:
            super().__init__(
                f"site {site!r} has too few rows or events for this study ({said}). Go on without "
                f"this site, or lower data.sites.min_rows or min_events and submit the study again."
            )
            return
        super().__init__(
            f"site {site!r}: its table does not fit the study's dictionary ({said}). Correct the "
            f"table there; `fedcohort data check` shows which rows."
        )


class Halves(NamedTuple):
    """One repeat's training and blind rows at one site."""

    train: pd.DataFrame
    blind: pd.DataFrame


@dataclass(frozen=True)
class SiteTable:
    """One site's rows, checked for a study.

    Attributes
    ----------
    frame : the analysed rows, in the study's own order.
    flow : number of rows read, excluded for each reason, and analysed; they stay here.
    places : (n,) position of each row in the table that was read.
    marks : (n,) digests by which a node recognises the rows; empty if not needed.
    """

    terms: Terms
    site: str
    frame: pd.DataFrame
    flow: tuple[Stage, ...]
    places: Array = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    marks: tuple[bytes, ...] = field(default=(), repr=False)
    _halves: dict[int, Halves] = field(default_factory=dict[int, Halves], repr=False)

    @classmethod
    def of(cls, terms: Terms, site: str, frame: Any) -> Self:
        """Check a table and make it canonical.

        Parameters
        ----------
        frame : a pandas or Polars frame, or a pyarrow table.

        Raises
        ------
        Unfit : a column is missing or holds invalid values, or there are too few rows or events.
        """
        outcome, plan = terms.outcome, terms.plan
        known = with_outcome(terms.dictionary, outcome)
        table = _formed(site, as_pandas(frame), known)
        sheet = Sheet(table, f"site {site!r}", site).only(stays(table, outcome, plan.exclude))
        wrong = errors(examine([sheet], known, outcome, natural=False, warnings=False))
        faults = [
            (f.column if f.column and f.column in known else "", f.rule)
            for f in wrong
            if f.rule not in ALLOWED
        ]
        if faults:
            raise Unfit(site, faults)
        table = selected(table, [c for c in known.variables if c in table.columns])
        kept = np.flatnonzero(stays(table, outcome, plan.exclude))
        try:
            table, _, flow = exclude(table, None, outcome, plan.exclude, f"site {site!r}")
        except DataError:
            raise Unfit(site, [("", ROWS)]) from None
        order = own_order(table, plan.seed)
        made = cls(terms, site, taken(table, order), flow, kept[order])
        least = max(plan.min_cell, 2)
        share = min(plan.test_fraction, 1 - plan.test_fraction)
        if math.floor(share * len(table)) < least or len(table) < plan.sites.min_rows:
            raise Unfit(site, [("", ROWS)])
        if plan.sites.why(*counts(table, outcome)):
            raise Unfit(site, [("", EVENTS)])
        return made

    def blind(self, repeat: int) -> Array:
        """Return whether each row (n,) is blind in a repeat; in a private study, in all repeats."""
        plan = self.terms.plan
        return own_blind(
            self.frame,
            self.terms.learnt,  # clusters do not depend on an outcome for evaluation
            site=self.site,
            digest=digest(self.frame, plan.seed),
            seed=plan.seed,
            repeat=plan.drawn_of(repeat),
            fraction=plan.test_fraction,
        )

    def halves(self, repeat: int) -> Halves:
        """Return one repeat's training and blind rows."""
        if repeat not in self._halves:
            mask = self.blind(repeat)
            self._halves.clear()
            self._halves[repeat] = Halves(taken(self.frame, ~mask), taken(self.frame, mask))
        return self._halves[repeat]

    @property
    def outcome(self) -> Outcome | None:
        """The outcome; for clusters, the one that evaluates them, or None."""
        return self.terms.outcome


def _formed(site: str, frame: pd.DataFrame, known: Dictionary) -> pd.DataFrame:
    """Return a table in the form of its dictionary.

    Raises
    ------
    Unfit : cells that are not single values.
    """
    try:
        return canonical(frame, known)
    except DataError:
        return _raise(site, frame, known)


def _raise(site: str, frame: pd.DataFrame, known: Dictionary) -> pd.DataFrame:
    """Raise `Unfit` with the columns that cannot be made canonical."""
    bad: list[tuple[str, str]] = []
    for name in map(str, dict.fromkeys(frame.columns)):
        try:
            canonical(frame.loc[:, [name]], known)
        except (DataError, LookupError):
            bad.append((name if name in known else "", CELLS))
    raise Unfit(site, bad or [("", CELLS)])
