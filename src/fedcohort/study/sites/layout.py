"""From a study's table to the sites and the blind test rows of one repeat and scenario.

Rows of natural sites are ordered and drawn as over a network (`splits`), so both fit the same
models; simulated sites are drawn from one table.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check import check_sheets, with_outcome
from fedcohort.data.degrade import Given, degrade
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.on_disk import on_disk, selected, stacked, taken, without
from fedcohort.data.outcome import Ordered, Outcome, Survival, columns_of
from fedcohort.data.prepare import check_roles, classes_of, strata_levels
from fedcohort.data.read import sources
from fedcohort.data.read.canonical import site_names
from fedcohort.data.read.frames import without_marked
from fedcohort.data.split import partition
from fedcohort.data.variable import Variable, columns_by_view
from fedcohort.metrics import resampled
from fedcohort.privacy.disclosure.counts import fewest
from fedcohort.protocol import DataError, InputError, SettingError, registry
from fedcohort.study.file import horizon
from fedcohort.study.file.arms import check_learnt
from fedcohort.study.file.plan import Plan, Scenario
from fedcohort.study.file.privacy import check_visible, checked_secure
from fedcohort.study.file.reader import LONGEST_NAME
from fedcohort.study.run import private
from fedcohort.study.run.engine import Problem
from fedcohort.study.run.pieces import FINAL
from fedcohort.study.sites import own_rows
from fedcohort.study.sites.exclusion import Stage, exclude, moved_out
from fedcohort.study.sites.few_sites import check_sites
from fedcohort.study.sites.load import opened
from fedcohort.study.sites.own_rows import OwnFrames
from fedcohort.study.sites.site_rule import Fate
from fedcohort.study.sites.splits import digest, own_blind, own_order, strata, stratified

#: Most entries of the bootstrap draws of a table larger than memory.
DRAWN = 1 << 26


@dataclass(frozen=True)
class Table:
    """A study's data in one process.

    Attributes
    ----------
    frame : all rows, without the site column, with the columns of the dictionary and the outcome;
        those of natural sites in the study's order.
    site : each row's natural site, or None for simulated sites.
    n_sites : number of sites of a split.
    flow : from rows read to rows analysed, over all sites and at each natural one.
    fates : natural sites that do not take part under their own name.
    units : notes on accepted differences of units.
    digests : of each natural site's rows, for the draw of its blind rows.
    lacks : columns missing in the table of a natural site.
    own : rows of the coordinator, which are not among these; None without.
    """

    frame: pd.DataFrame
    site: Array | None
    dictionary: Dictionary
    outcome: Outcome | None
    n_sites: int
    description: str
    licence: str
    flow: tuple[Stage, ...] = ()
    fates: Mapping[str, Fate] = field(default_factory=dict[str, Fate])
    units: tuple[str, ...] = ()
    digests: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    lacks: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    own: OwnFrames | None = None

    def of_site(self, site: str) -> pd.DataFrame:
        """Return the rows of a natural site, with its own columns."""
        assert self.site is not None
        rows = taken(self.frame, self.site == site)
        return without(rows, self.lacks.get(site, ()))

    @property
    def mark(self) -> int:
        """A checksum of all rows, to detect other data when a run is resumed."""
        hashed = pd.util.hash_pandas_object(self.frame, index=False).to_numpy()
        mark = zlib.crc32(hashed.tobytes(), 0 if self.own is None else self.own.mark)
        sites = "" if self.site is None else "\n".join(map(str, self.site))
        return zlib.crc32(sites.encode(), mark)


def load(plan: Plan, data: Any = None) -> Table:
    """Read and check a study's data; `data` as in `opened`.

    Raises
    ------
    DataError : no such file or column, an impossible time or event, a site without events.
    """
    found = opened(plan, data)
    if plan.privacy.dp is not None and found.drafted:
        raise DataError(
            f"{plan.source}: a private fit scales by a dictionary's ranges and levels, and there "
            f"is none. Name one as data.dictionary; 'fedcohort init' drafts it. Then set "
            f"'usual: [low, high]' of each number."
        )
    source, dictionary, outcome = found.source, found.dictionary, found.outcome
    if found.drafted and isinstance(outcome, Ordered):
        outcome.check_drafted(dictionary)
    known = with_outcome(dictionary, outcome)
    aside = plan.kind.aside
    plan.units.check(known.variables)
    units = check_sheets(
        found.sheets, outcome, known, natural=found.natural, eventless=aside, accepted=plan.units
    )
    if aside:
        dictionary = without_marked(dictionary, found.marked, outcome)
    frame, site = _rows(plan, source)
    frame, site, flow = exclude(frame, site, outcome, plan.exclude, plan.source, found.fates)
    if not dictionary.features(outcome):
        raise DataError(
            f"{plan.source}: no column is left to predict from. Identifiers, dates, free text and "
            f"the outcome cannot be used; check the types in the dictionary."
        )
    check_learnt(plan.arms, plan.kind, outcome)
    _check_roles(plan, dictionary, outcome)
    frame, site, flow, own = _own_rows(plan, frame, site, flow, dictionary, outcome)
    natural = _natural(plan, site)
    n_sites = plan.n_sites or natural
    _enough(plan, frame, None if aside else outcome, n_sites, dictionary)
    if plan.horizon is not None and isinstance(outcome, Survival):
        times = np.asarray(frame[outcome.time], float)
        asked = plan.horizon.within(dictionary, outcome)
        horizon.check(asked, plan.horizon.text, times, plan.min_cell, plan.source)
    table = Table(
        frame, site, dictionary, outcome, n_sites, source.description, source.licence, flow,
        found.fates, tuple(units), own=own,
    )  # fmt: skip
    return table if site is None else _by_site(plan, table, source, found.fates)


def _own_rows(
    plan: Plan,
    frame: pd.DataFrame,
    site: Array | None,
    flow: tuple[Stage, ...],
    dictionary: Dictionary,
    outcome: Outcome | None,
) -> tuple[pd.DataFrame, Array | None, tuple[Stage, ...], OwnFrames | None]:
    """Return the sites' rows, and those of the coordinator, with the flow of rows."""
    asked = plan.coordinator_data
    if asked is None:
        return frame, site, flow, None
    learnt = None if plan.kind.aside else outcome
    if asked.source:
        own = own_rows.read(asked, plan.base, dictionary, outcome, plan.seed, plan.min_cell)
        return frame, site, flow, own
    mask = own_rows.taken(frame, site, learnt, asked.fraction, plan.seed)
    own = own_rows.parted(frame[mask], asked, learnt, plan.seed, plan.min_cell)
    flow = moved_out(flow, mask, site)
    return (
        taken(frame, ~mask), None if site is None else site[~mask], flow, own,
    )  # fmt: skip


def _by_site(plan: Plan, table: Table, source: sources.Source, fates: Mapping[str, Fate]) -> Table:
    """Return a table of natural sites, site by site, each with its rows in the study's order."""
    site = table.site
    assert site is not None
    known = with_outcome(table.dictionary, table.outcome).variables
    names = [str(s) for s in np.unique(site)]
    had = {s: set(table.frame.columns) for s in names}
    if isinstance(source.frames, dict):
        became = {s: fate.to for s, fate in fates.items()}
        had = {
            s: set().union(*(f.columns for t, f in source.frames.items() if became.get(t, t) == s))
            for s in names
        }
    frame = selected(table.frame, [c for c in known if c in table.frame.columns])
    table = replace(
        table, frame=frame, lacks={s: frozenset({*frame.columns} - had[s]) for s in names}
    )
    order: list[Array] = []
    digests: dict[str, bytes] = {}
    for name in names:
        own = table.of_site(name)
        at = own_order(own, plan.seed)
        order.append(np.flatnonzero(site == name)[at])
        digests[name] = digest(taken(own, at), plan.seed)
    rows = np.concatenate(order)
    ordered = taken(table.frame, rows)
    return replace(table, frame=ordered, site=site[rows], digests=digests)


def _check_roles(plan: Plan, dictionary: Dictionary, outcome: Outcome | None) -> None:
    """Check the columns that arms name as settings.

    Raises
    ------
    DataError : an arm's offset or weights is not a column of numbers, or its strata not one of
        levels.
    """
    for arm in plan.arms:
        roles = {role: str(arm.settings.get(role, "")) for role in ("offset", "weights")}
        try:
            check_roles(dictionary, outcome, **roles)
            strata_levels(dictionary, outcome, str(arm.settings.get("strata", "")))
        except SettingError as error:
            raise DataError(f"arm {arm.name!r}: {error}") from None


def _rows(plan: Plan, source: sources.Source) -> tuple[pd.DataFrame, Array | None]:
    """Return all rows in one table without its site column, and each row's natural site."""
    frames = source.frames
    if isinstance(frames, dict):
        names = np.array(sorted(frames), object)
        site = np.repeat(names, [len(frames[s]) for s in names])
        return stacked([frames[s] for s in names]), site
    if plan.site_column is None:
        return frames, None
    site = site_names(frames, plan.site_column, plan.source)
    return without(frames, [plan.site_column]), site


def _natural(plan: Plan, site: Array | None) -> int:
    """Return the number of natural sites; check each one's name and training rows."""
    if site is None:
        return 0
    names, rows = np.unique(site, return_counts=True)
    for name, n in zip(names, rows, strict=True):
        if not (0 < len(name) <= LONGEST_NAME and str(name).isprintable()):
            raise DataError(
                f"{plan.source}: a site's name must be text of 1 to {LONGEST_NAME} printable "
                f"characters. Correct the site's column or file name."
            )
        if n * (1 - plan.test_fraction) < 1:
            raise DataError(
                f"{plan.source}: site {str(name)!r} may be left without rows to train on, after "
                f"{plan.test_fraction:.0%} of {n} were set aside; raise data.sites.min_rows."
            )
    return len(names)


def _enough(
    plan: Plan,
    frame: pd.DataFrame,
    outcome: Outcome | None,
    n_sites: int,
    dictionary: Dictionary,
) -> None:
    """Check for enough training rows at every site, and enough test rows with events.

    Raises
    ------
    DataError : too few rows, or events, or rows of a class, or equal values only.
    """
    n, aside = len(frame), f"{plan.test_fraction:.0%}"
    if n * (1 - plan.test_fraction) < 2 * n_sites:
        raise DataError(
            f"{plan.source}: {n} rows are too few for {n_sites} sites after {aside} were set aside "
            f"for the test. Use fewer sites."
        )
    if isinstance(outcome, Survival):
        events = outcome.fewest(frame)
        if min(plan.test_fraction, 1 - plan.test_fraction) * events < 1:
            raise DataError(
                f"{plan.source}: {events} events are too few to have one among the training rows "
                f"and one among the test rows ({aside})."
            )
    if outcome is not None and outcome.has_classes:
        counts = frame[outcome.label].value_counts()
        if len(counts) < 2:
            raise DataError(
                f"{plan.source}: column {outcome.label!r} has one level in all {n} rows; an "
                f"outcome needs two. Check its coding, or name another 'outcome'."
            )
        levels = classes_of(dictionary, outcome)
        if len(counts) < len(levels):
            raise DataError(
                f"{plan.source}: {len(levels) - len(counts)} of the {len(levels)} classes of "
                f"{outcome.label!r} in the dictionary have no row, so no model learns them. Take "
                f"them out of the dictionary."
            )
        if min(plan.test_fraction, 1 - plan.test_fraction) * counts.min() < 1:
            raise DataError(
                f"{plan.source}: {counts.min()} rows of one level of {outcome.label!r} are too few "
                f"to have one among the training rows and one among the test rows ({aside})."
            )
    if outcome is not None and outcome.is_number:
        if not outcome.can_teach([frame]):
            raise DataError(
                f"{plan.source}: column {outcome.label!r} has one value in all {n} rows, so there "
                f"is nothing to predict. Name another 'outcome'."
            )
        if n * plan.test_fraction < (least := fewest(plan.min_cell)):
            raise DataError(
                f"{plan.source}: {aside} of {n} rows are fewer than {least} test rows, too few to "
                f"evaluate predictions. Raise evaluate.test_fraction."
            )


def seed_of(plan: Plan, repeat: int) -> int:
    """Return the seed of all draws of one repeat."""
    return int(np.random.SeedSequence((plan.seed, repeat)).generate_state(1)[0])


@dataclass(frozen=True)
class Laid:
    """The training tables of the sites, and the blind test rows, of one repeat and scenario.

    Attributes
    ----------
    test_rows : indices of the test rows in the study's table.
    test_site : each test row's natural site, or None.
    own_site : the site that each test row belongs to; None if they belong to none.
    given : changes that the scenario made to the rows of each site; empty without.
    """

    problem: Problem
    test: pd.DataFrame
    test_rows: Array
    test_site: Array | None
    own_site: Array | None = None
    given: Mapping[str, Given] = field(default_factory=dict[str, Given])


def test_rows(plan: Plan, table: Table, repeat: int) -> Array:
    """Return whether each row of the table (n,) is blind in one repeat; none in `FINAL`."""
    if repeat == FINAL:
        return np.zeros(len(table.frame), bool)
    by = None if plan.kind.aside else table.outcome  # fits do not depend on it
    if table.site is None:
        rng = np.random.default_rng((plan.seed, repeat, 0x7465))
        return stratified(strata(table.frame, by), plan.test_fraction, rng)
    mask = np.zeros(len(table.frame), bool)
    for name, rows in table.digests.items():
        mask[table.site == name] = own_blind(
            table.of_site(name),
            by,
            site=name,
            digest=rows,
            seed=plan.seed,
            repeat=plan.drawn_of(repeat),
            fraction=plan.test_fraction,
        )
    return mask


def drawn(plan: Plan, table: Table) -> Array:
    """Return the count of each row of the table in each bootstrap draw, (B, rows).

    The draws are the same for every arm, scenario and repeat, so that differences are paired.
    """
    rng = np.random.default_rng((plan.seed, 0x626F6F74))
    draws = plan.draws
    if on_disk(table.frame) and (most := max(2, DRAWN // len(table.frame))) < draws:
        warnings.warn(
            f"evaluate.draws is {draws}, and {most} draws of {len(table.frame):,} rows fit into "
            f"memory; intervals of metrics are from these.",
            stacklevel=2,
        )
        draws = most
    return resampled.multiplicities(len(table.frame), draws, rng)


def _views(table: Table) -> dict[str, list[str]]:
    """Return the columns of each view, in order, without the outcome's, which every site has."""
    taken = columns_of(table.outcome)
    known = table.dictionary.variables.values()
    return columns_by_view(v for v in known if v.name not in taken)


def lay_out(plan: Plan, table: Table, scenario: Scenario, repeat: int) -> Laid:
    """Return the test rows and the sites' training rows of one repeat and scenario.

    A scenario may degrade training rows; all its fits see the same rows.
    """
    mask = test_rows(plan, table, repeat)
    train = taken(table.frame, ~mask)
    own_site = None
    if scenario.rule == "natural":
        assert table.site is not None
        site = table.site[~mask]
        frames = {
            str(s): without(taken(train, site == s), table.lacks[str(s)]) for s in np.unique(site)
        }
        patients = {str(s): int((table.site == s).sum()) for s in np.unique(site)}
    else:
        patients = {}
        frames = partition(
            table.frame if plan.local else train,
            scenario.rule,
            table.n_sites,
            seed_of(plan, repeat),
            table.outcome,
            views=_views(table),
            **scenario.options,
        )
        if plan.local:
            frames, own_site = _without_blind(plan, frames, mask)
    given: Mapping[str, Given] = {}
    if scenario.changed:
        frames, given = degrade(
            frames,
            scenario.degrade,
            scenario.swap_outcome,
            _changeable(plan, table),
            table.outcome,
            seed=seed_of(plan, repeat),
            sites_seed=plan.seed,
        )
    if any(arm.scope == "sites" for arm in plan.arms):
        checked_secure(plan.privacy.secure, len(frames))
    check_sites(plan, len(frames))
    for arm in (arm for arm in plan.arms if arm.scope == "sites"):
        method = registry.find(arm.method)
        config = method.configure(arm.configured())
        check_visible(plan.privacy.secure, method, config)
        indicators = arm.preprocess.get("impute") == "indicator"
        config.check_columns(*_columns(plan, table, indicators))
        if plan.privacy.dp is not None:
            rows = {name: len(frame) for name, frame in frames.items()}
            try:
                private.check_tables(
                    method, arm.configured(), plan.privacy.dp, table.dictionary, table.outcome,
                    rows, patients,
                )  # fmt: skip
            except InputError as error:
                raise DataError(f"arm {arm.name!r}: {error}") from None
    law = None if plan.availability is None else plan.availability.among(frames)
    problem = Problem(
        frames,
        table.dictionary,
        table.outcome,
        plan.min_cell,
        plan.quorum,
        secure=plan.privacy.secure,
        dp=plan.privacy.dp,
        patients=patients,
        scenario=scenario.name,
        availability=law,
        own=table.own,
    )
    natural = scenario.rule == "natural" and table.site is not None
    test_site = table.site[mask] if natural and table.site is not None else None
    return Laid(
        problem.of(plan.kind),
        taken(table.frame, mask),
        np.flatnonzero(mask),
        test_site,
        test_site if own_site is None else own_site,
        given,
    )


def _without_blind(
    plan: Plan, frames: Mapping[str, pd.DataFrame], mask: Array
) -> tuple[dict[str, pd.DataFrame], Array]:
    """Return the sites' training rows, and the site of each blind row of the table.

    Parameters
    ----------
    frames : all rows by site, numbered as in the table.
    mask : whether each row of the table (n,) is blind.

    Raises
    ------
    DataError : a site has fewer than two training rows.
    """
    site = np.empty(len(mask), object)
    kept: dict[str, pd.DataFrame] = {}
    for name, frame in frames.items():
        site[frame.index] = name
        kept[name] = taken(frame, ~mask[frame.index])
    if few := [name for name, frame in kept.items() if len(frame) < 2]:
        raise DataError(
            f"{plan.source}: with evaluate.local the test rows are drawn from the sites' rows, and "
            f"too few rows to train on are left at {few[0]!r}. Use fewer sites, or a smaller "
            f"evaluate.test_fraction."
        )
    return kept, site[mask]


def _columns(plan: Plan, table: Table, indicators: bool) -> tuple[int, int]:
    """Return the fewest and most columns of a model's x, by the dictionary.

    indicators : whether a column for missing values may stand beside each.
    """
    columns = [max(1, len(v.levels) - 1) for v in _changeable(plan, table)]
    return len(columns), sum(columns) + len(columns) * indicators


def _changeable(plan: Plan, table: Table) -> list[Variable]:
    """Return the features, without columns that an arm names as offset, weights or strata."""
    roles = {str(a.settings.get(r, "")) for a in plan.arms for r in ("offset", "weights", "strata")}
    return [v for v in table.dictionary.features(table.outcome) if v.name not in roles]
