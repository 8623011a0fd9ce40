"""From a study's table to the sites and the blind test rows of one repeat and scenario."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data import checks, sources
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.frames import by_column
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.partition import partition
from fedcohort.protocol import DataError
from fedcohort.study.engine import Problem
from fedcohort.study.plan import Plan, Scenario
from fedcohort.study.reader import LONGEST_NAME
from fedcohort.study.splits import strata, stratified


@dataclass(frozen=True)
class Table:
    """A study's data in one process.

    Attributes
    ----------
    frame : all rows, without the site column.
    site : each row's natural site, or None where sites are made by a split.
    dictionary, outcome : what is known about the columns.
    n_sites : into how many sites a split divides the rows.
    description, licence : of the source, for the report.
    """

    frame: pd.DataFrame
    site: Array | None
    dictionary: Dictionary
    outcome: Outcome | None
    n_sites: int
    description: str
    licence: str

    @property
    def mark(self) -> int:
        """A checksum of all rows, so that a resumed run notices other data."""
        hashed = pd.util.hash_pandas_object(self.frame, index=False).to_numpy()
        mark = zlib.crc32(hashed.tobytes())
        sites = "" if self.site is None else "\n".join(map(str, self.site))
        return zlib.crc32(sites.encode(), mark)


def load(plan: Plan) -> Table:
    """Read and check a study's data.

    Raises
    ------
    DataError : no such file or column, an impossible time or event, a site without events.
    """
    source = sources.load(plan.source, plan.base)
    outcome = plan.outcome or source.outcome
    if outcome is not None and outcome.kind != plan.task:
        raise DataError(
            f"{plan.source} has an outcome for {outcome.kind}, and the study's task is "
            f"{plan.task}; name another task, or the 'outcome'."
        )
    site: Array | None = None
    if isinstance(source.frames, dict):
        named = source.frames
        names = sorted(named)
        frame = pd.concat([named[s] for s in names], ignore_index=True)
        site = np.repeat(names, [len(named[s]) for s in names])
    else:
        named = {}
        frame = source.frames
        if not len(frame):
            raise DataError(f"{plan.source}: there are no rows under the header.")
        if plan.site_column is not None:
            named = by_column(frame, plan.site_column, plan.source)
            site = frame[plan.site_column].astype(str).to_numpy()
            frame = frame.drop(columns=[plan.site_column])
    dictionary = source.dictionary
    if plan.dictionary is not None:
        dictionary = _without(Dictionary.from_file(plan.base / plan.dictionary), plan.site_column)
    if dictionary is None:
        dictionary = Dictionary.draft(frame, outcome)
    if named:
        checks.check_sites(named, outcome, dictionary)
    else:
        checks.check_table(frame, outcome, plan.source, dictionary)
    if not dictionary.features(outcome):
        raise DataError(
            f"{plan.source}: no column is left to predict from; identifiers, dates, free text and "
            f"the outcome cannot be used."
        )
    natural = _natural(plan, site)
    n_sites = plan.n_sites or natural
    _enough(plan, frame, outcome, n_sites)
    return Table(
        frame.reset_index(drop=True), site, dictionary, outcome, n_sites,
        source.description, source.licence,
    )  # fmt: skip


def _without(dictionary: Dictionary, column: str | None) -> Dictionary:
    """Return a dictionary without the site's column, which is no part of the sites' tables."""
    variables = {k: v for k, v in dictionary.variables.items() if k != column}
    return replace(dictionary, variables=variables)


def _natural(plan: Plan, site: Array | None) -> int:
    """Return the number of natural sites, each of which has a name and rows to train on."""
    if site is None:
        return 0
    names, rows = np.unique(site, return_counts=True)
    for name, n in zip(names, rows, strict=True):
        if not (0 < len(name) <= LONGEST_NAME and str(name).isprintable()):
            raise DataError(
                f"{plan.source}: a site's name must be text of 1 to {LONGEST_NAME} printable "
                f"characters; look at the site's column or files."
            )
        if n * (1 - plan.test_fraction) < 1:
            raise DataError(
                f"{plan.source}: site {name!r} may be left without rows to train on, after "
                f"{plan.test_fraction:.0%} of {n} were set aside; join it with another site."
            )
    return len(names)


def _enough(plan: Plan, frame: pd.DataFrame, outcome: Outcome | None, n_sites: int) -> None:
    """Check that there are rows and events for training at every site, and for the test."""
    n, aside = len(frame), f"{plan.test_fraction:.0%}"
    if n * (1 - plan.test_fraction) < 2 * n_sites:
        raise DataError(
            f"{plan.source}: {n} rows are too few for {n_sites} sites after {aside} were set aside "
            f"for the test; use fewer sites."
        )
    if isinstance(outcome, Survival):
        events = int((np.asarray(frame[outcome.event], float) > 0).sum())
        if min(plan.test_fraction, 1 - plan.test_fraction) * events < 1:
            raise DataError(
                f"{plan.source}: {events} events are too few to have one among the training rows "
                f"and one among the test rows, when {aside} are set aside."
            )


def seed_of(plan: Plan, repeat: int) -> int:
    """Return the seed that all draws of one repeat derive from."""
    return int(np.random.SeedSequence((plan.seed, repeat)).generate_state(1)[0])


@dataclass(frozen=True)
class Laid:
    """One repeat of one scenario: the sites' training tables, and the blind test rows.

    Attributes
    ----------
    test_rows : where the test rows stand in the study's table.
    test_site : each test row's natural site, or None.
    """

    problem: Problem
    test: pd.DataFrame
    test_rows: Array
    test_site: Array | None


def lay_out(plan: Plan, table: Table, scenario: Scenario, repeat: int) -> Laid:
    """Divide the rows of one repeat: test rows first, the training rows over the sites."""
    rng = np.random.default_rng((plan.seed, repeat, 0x7465))
    mask = stratified(strata(table.frame, table.outcome, table.site), plan.test_fraction, rng)
    train = table.frame[~mask].reset_index(drop=True)
    if scenario.rule == "natural":
        assert table.site is not None
        site = table.site[~mask]
        frames = {str(s): train[site == s].reset_index(drop=True) for s in np.unique(site)}
    else:
        frames = partition(
            train,
            scenario.rule,
            table.n_sites,
            seed_of(plan, repeat),
            table.outcome,
            **scenario.options,
        )
    problem = Problem(frames, table.dictionary, table.outcome, plan.min_cell, plan.quorum)
    natural = scenario.rule == "natural" and table.site is not None
    return Laid(
        problem,
        table.frame[mask].reset_index(drop=True),
        np.flatnonzero(mask),
        table.site[mask] if natural and table.site is not None else None,
    )
