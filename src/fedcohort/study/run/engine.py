"""One fit over sites in this process: preprocessing, then the method's program.

`fedcohort.fit`, every arm of a study and every candidate of its tuning use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data import prepare
from fedcohort.data.describe.agreed import Agreed
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.on_disk import stacked, without
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.prepare import Design
from fedcohort.privacy.guard import SiteGuard
from fedcohort.protocol import (
    DataError,
    Federation,
    Fitted,
    InputError,
    Method,
    NotConverged,
    NothingToLearn,
    NotSupported,
    OwnRows,
    SettingError,
    SingularInformation,
    Task,
    registry,
)
from fedcohort.protocol.host import Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.private import Dp
from fedcohort.protocol.totals import Known
from fedcohort.runtime.absences import Absences, Availability
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local, one_thread
from fedcohort.runtime.reply_store import StateStore
from fedcohort.secure import FEWEST, ThresholdRule
from fedcohort.study.file import coordinator_data
from fedcohort.study.file.privacy import check_visible, checked_secure
from fedcohort.study.kinds import KINDS, Kind
from fedcohort.study.results.own_models import OwnModels, keeper
from fedcohort.study.run import multiple, private
from fedcohort.study.sites.own_rows import OwnFrames

Frames = Mapping[str, pd.DataFrame]
#: Result of a fit.
Made = TypeVar("Made")


@dataclass(frozen=True)
class Problem:
    """The sites' tables and what is known about them; the same for all arms.

    Attributes
    ----------
    frames : one table a site.
    dictionary : types and levels of the columns.
    outcome : outcome to predict, or None.
    min_cell : smallest published count.
    quorum : fraction of sites that must answer each call.
    runtime : "local" or "flower-sim": connection to the sites of this process.
    secure : masking of sums; see `study.file.privacy`.
    dp : differential privacy of each fit; None without.
    patients : all rows of each site, with blind ones, where known.
    scenario : name of the layout of rows; private fits of two scenarios have different noise.
    noise : "seed" if noise follows from a fit's seed, "system" if nobody can draw it again.
    aside : outcome for evaluation only; no fit sees its columns.
    task : kind of task, if it does not follow from the outcome.
    workers : largest number of sites that compute at once, on threads.
    availability : law of the sites' absences from rounds; None: no absences.
    agreed : cells of Table 1 that sites hide beyond their own rules.
    own : rows of the coordinator; None without.
    bound : whether this is one table's own fit, or that of all rows, whose calls nobody sees.
    """

    frames: Frames
    dictionary: Dictionary
    outcome: Outcome | None
    min_cell: int = 5
    quorum: float = 1.0
    runtime: str = "local"
    secure: str = "auto"
    dp: Dp | None = None
    patients: Mapping[str, int] = field(default_factory=dict[str, int])
    scenario: str = ""
    noise: str = "seed"
    aside: Outcome | None = None
    task: str = ""
    workers: int = 1
    availability: Availability | None = None
    agreed: Agreed | None = None
    own: OwnFrames | None = None
    bound: bool = False

    @property
    def kind(self) -> str:
        """The kind of task."""
        if self.task:
            return self.task
        return "latent" if self.outcome is None else self.outcome.kind

    @property
    def can_teach(self) -> bool:
        """Whether there is a row to learn from: an event, or two values of another outcome."""
        if self.outcome is None:
            return any(len(f) for f in self.frames.values())
        return self.outcome.can_teach(self.frames.values())

    def on(self, frames: Frames) -> Problem:
        """Return the same problem on other tables.

        A pooled fit, or a site's own, is a bound: no required masks, no noise, no absences, and no
        coordinator.
        """
        if not len(frames) == 1 < len(self.frames):
            law = self.availability and self.availability.among(frames)
            return dataclasses.replace(self, frames=frames, availability=law)
        secure = "auto" if self.secure == "true" else self.secure
        return dataclasses.replace(
            self, frames=frames, secure=secure, dp=None, availability=None, own=None, bound=True
        )

    def of(self, kind: Kind) -> Problem:
        """Return the problem of a kind of task; without an outcome if it only evaluates."""
        return self.aside_of(kind.name) if kind.aside else self

    def aside_of(self, task: str) -> Problem:
        """Return the problem of a task without an outcome; an existing one only evaluates."""
        aside = self.outcome or self.aside
        return dataclasses.replace(self, task=task, outcome=None, aside=aside)

    def learnt(self, method: Method | None = None) -> Problem:
        """Return the problem as a fit sees it, without columns of an outcome for evaluation only.

        They are removed from every table and from the dictionary. In a joint task they are features
        instead, unless the method's model draws rows with their outcomes: then it has the outcome.

        Raises
        ------
        SettingError : it does, and there is no outcome that it learns.
        """
        if method is not None:
            KINDS[self.kind].check_drawn(method, self.outcome or self.aside)
        if self.aside is None:
            return self
        if KINDS[self.kind].joint:
            if method is not None and method.overrides("sample_outcome"):
                return dataclasses.replace(self, outcome=self.aside, aside=None)
            known = self.dictionary.with_features(self.aside)
            return dataclasses.replace(self, dictionary=known, aside=None)
        taken = list(self.aside.columns)

        def left(frame: pd.DataFrame) -> pd.DataFrame:
            return without(frame, taken)

        frames = {site: left(frame) for site, frame in self.frames.items()}
        known = {k: v for k, v in self.dictionary.variables.items() if k not in taken}
        dictionary = dataclasses.replace(self.dictionary, variables=known)
        own = self.own and OwnFrames(*self.own.each(left))
        return dataclasses.replace(self, frames=frames, dictionary=dictionary, aside=None, own=own)

    @property
    def coordinators(self) -> Problem | None:
        """The problem of the coordinator's rows of a first model alone; None without any."""
        if self.own is None or self.own.first is None:
            return None
        problem = self.on({"coordinator": self.own.first})
        own = None if self.own.validation is None else OwnFrames(None, self.own.validation)
        return dataclasses.replace(problem, own=own)

    @property
    def rows(self) -> pd.DataFrame:
        """All rows of the sites, in the order of their names, without those of the coordinator."""
        return stacked([self.frames[name] for name in sorted(self.frames)])

    def pooled(self) -> Problem:
        """Return the problem of one table with all rows.

        The coordinator's rows of a first model are among them, and the fit starts from that model,
        as those over sites do; the validation rows stay apart.
        """
        rows, own = [self.rows], self.own
        if own is not None and own.first is not None:
            rows.append(own.first)
        problem = self.on({"pooled": stacked(rows)})
        return dataclasses.replace(problem, own=own)


@dataclass(frozen=True)
class Run:
    """A finished fit.

    Attributes
    ----------
    design : fitted preprocessing, from a table to the model's x; without columns if the method is
        raw.
    history : one row per `record` of the program.
    ledger : what left each site.
    epsilon : ε spent for each record (or site); None without noise.
    worked : processor seconds at each site; empty if sites are in other processes.
    own : by site, the model that it keeps, if each site has one; over a network it stays there.
    kept : by site, what the last step left there, of a method that can forget sites; empty if sites
        are in other processes.
    """

    model: Fitted
    design: Design
    history: list[dict[str, float]]
    ledger: Ledger
    epsilon: float | None = None
    worked: Mapping[str, float] = field(default_factory=dict[str, float])
    own: Mapping[str, Fitted] = field(default_factory=dict[str, Fitted])
    kept: Mapping[str, Mapping[str, Array]] = field(
        default_factory=dict[str, Mapping[str, Array]], repr=False
    )

    @property
    def rounds(self) -> int:
        """Number of recorded rounds."""
        return int(max((row["round"] for row in self.history), default=-1.0)) + 1


@dataclass(frozen=True)
class Before:
    """A fit of more sites, some of which are to be forgotten (`Method.forget`).

    Attributes
    ----------
    kept : `Run.kept` of that fit.
    """

    model: Fitted
    kept: Mapping[str, Mapping[str, Array]]


@dataclass
class Trail:
    """What left the sites during a fit, kept also if the fit fails.

    Attributes
    ----------
    n_preprocess : number of lines of the preprocessing; None until it is done.
    missing, rejected : missing replies as (call, site); reasons of rejected ones.
    waited : rounds of waiting for sites.
    """

    ledger: Ledger
    n_preprocess: int | None = None
    missing: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    rejected: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])

    waited: int = 0

    def note(self, fed: Coordinator) -> None:
        """Keep the missing replies of a federation's calls so far."""
        self.missing, self.rejected = list(fed.missing), dict(fed.rejected)
        self.waited = fed.waited

    @property
    def phases(self) -> dict[int, str]:
        """Phase that begins at each line."""
        fit = {} if self.n_preprocess is None else {self.n_preprocess: "fit"}
        return {0: "preprocess", **fit}


def fit_once(
    problem: Problem,
    method: Method,
    settings: Mapping[str, Any],
    table: Mapping[str, Any],
    seed: int,
    *,
    journal: Path | None = None,
    trail: Trail | None = None,
    observer: Callable[[Progress], None] | None = None,
    explained: bool = True,
    before: Before | None = None,
) -> Run:
    """Fit one method to one problem, with every site in this process.

    Parameters
    ----------
    table : options of the preprocessing; see `prepare.OPTIONS`.
    seed : seed of every draw of this fit.
    journal : file that makes the fit resumable; its calls are replayed.
    trail : keeps what left the sites, for a caller that goes on after a failed fit.
    explained : whether the model is to be explained (`Task.explained`).
    before : fit whose further sites this one forgets; None for a new fit.

    Raises
    ------
    SettingError : a setting that the method does not know or cannot use.
    FedcohortError : any error that the method raises on purpose.
    """
    problem = problem.learnt(method)
    config = method.configure(settings)
    checked_secure(problem.secure, len(problem.frames))
    check_visible(problem.secure, method, config)
    config.check_sites(len(problem.frames))
    config.check_task(problem.kind)
    _check_own(problem, method, config)
    _check_outcome(problem, method)
    if problem.dp is not None:
        private.releases(method, config, problem.dp)
        rows = {name: len(frame) for name, frame in problem.frames.items()}
        private.check_tables(
            method, settings, problem.dp, problem.dictionary, problem.outcome, rows,
            problem.patients,
        )  # fmt: skip
    several = None if method.raw else multiple.Asked.of(table)
    steps = (*prepare.STEPS, *(several.steps if several else ()), *method.steps)
    own = OwnModels(journal and journal.with_suffix(".own"))
    place = {name: name.encode().hex() for name in problem.frames}
    hosts = [
        Host(
            name, frame, steps, seed, guard=guard,
            kept=keeper(method, name, problem.dictionary, {}, partial(own.keep, place[name])),
        )
        for (name, frame), guard in zip(
            problem.frames.items(), _guards(problem, method, config, seed), strict=True
        )
    ]  # fmt: skip
    if before is not None:
        for host in hosts:
            host.first = {k: a.copy() for k, a in before.kept.get(host.name, {}).items()} or None
    trail = trail or Trail(Ledger(problem.min_cell))
    if journal:
        journal.parent.mkdir(parents=True, exist_ok=True)
    mark = repr((method.name, config, sorted(table.items()), seed, problem.quorum, problem.secure))
    mark += repr(problem.dp) if problem.dp else ""
    mark += repr(problem.availability) if problem.availability else ""
    mark += str(problem.own.mark) if problem.own else ""
    book = Journal(journal, mark) if journal else None
    states = journal.with_suffix(".states") if journal else None
    try:
        with _reached(problem, hosts, seed, trail.ledger, book, states, observer) as fed:
            rows = {name: len(frame) for name, frame in problem.frames.items()}
            unit = not getattr(config, "weights", "")
            fed.expecting(Known(rows, unit=unit, some=method.gaps))
            try:
                run = fit_over(
                    fed, problem, method, settings, table, seed, trail, explained=explained,
                    before=before and before.model,
                )  # fmt: skip
                here = problem.runtime == "local"
                worked = {host.name: host.seconds for host in hosts if here}
                every = getattr(config, "every", False)
                kept = {name: own.find(place[name]) for name in place if every}
                models = {name: parts.model for name, parts in kept.items() if parts is not None}
                keeps = here and method.forget is not None
                left = {host.name: host.state for host in hosts if keeps and host.state}
                return dataclasses.replace(run, worked=worked, own=models, kept=left)
            finally:
                trail.note(fed)
    finally:
        if book:
            book.close()


def fit_alone(
    problem: Problem, fit: Callable[[Problem], Made], *, needed: bool = False
) -> Made | None:
    """Fit one site's rows alone; return None if they give no model.

    Fewer than `min_cell` numeric values give no model: its errors would reveal them. Clusters and
    latent variables need twice as many rows.

    Parameters
    ----------
    needed : raise if a setting needs more rows than the site has, as when no other site has a
        model.
    """
    rows, unseen = sum(map(len, problem.frames.values())), problem.outcome is None
    values = problem.outcome is not None and problem.outcome.is_number
    if rows < problem.min_cell * (2 if unseen else values):
        return None
    try:
        return fit(problem)
    except (NothingToLearn, SingularInformation, NotConverged):
        return None
    except InputError:  # such as more clusters than rows
        if needed or not unseen:
            raise
        return None


def absences_of(problem: Problem, seed: int) -> Absences | None:
    """Return the absences of a problem's sites in the fit of a seed; None without a law."""
    names = list(problem.frames)
    fewest = max(FEWEST, ThresholdRule().of(len(names))) if problem.secure == "true" else 1
    law = problem.availability
    return None if law is None else law.of(names, problem.quorum, seed, fewest)


@contextmanager
def _reached(
    problem: Problem,
    hosts: Sequence[Host],
    seed: int,
    ledger: Ledger,
    journal: Journal | None,
    states: Path | None,
    observer: Callable[[Progress], None] | None,
) -> Generator[Coordinator]:
    """Yield the federation of a problem's sites, on its runtime."""
    absent = absences_of(problem, seed)
    if problem.runtime == "flower-sim":
        from fedcohort.engines.flower import flower_local

        with flower_local(
            hosts,
            quorum=problem.quorum,
            ledger=ledger,
            journal=journal,
            states=states,
            observer=observer,
            secure=problem.secure,
        ) as fed:
            yield fed
        return
    with one_thread():
        yield local(
            hosts,
            threads=problem.workers,
            quorum=problem.quorum,
            ledger=ledger,
            journal=journal,
            store=None if states is None else StateStore(states),
            observer=observer,
            absent=absent,
            secure=problem.secure,
            alone=problem.bound,
        )


def fit_over(
    fed: Coordinator,
    problem: Problem,
    method: Method,
    settings: Mapping[str, Any],
    table: Mapping[str, Any],
    seed: int,
    trail: Trail | None = None,
    *,
    every: bool = False,
    explained: bool = True,
    before: Fitted | None = None,
) -> Run:
    """Fit one method over a federation of any kind; parameters and errors as in `fit_once`.

    Parameters
    ----------
    problem : what is known about the sites' tables; its own tables are not read.
    before : model whose further sites this fit forgets; None for a new fit.
    every : whether these are all sites of a study; then a view without a value at any site is a
        DataError (for local tables `data.check.checks` finds it before).
    """
    config = method.configure(settings)
    method.check_gaps(table)
    check_visible(problem.secure, method, config)
    config.check_sites(len(fed.sites))
    _check_own(problem, method, config)
    _check_outcome(problem, method)
    trail = trail or Trail(fed.ledger)
    several = None if method.raw else multiple.Asked.of(table)
    if several is not None:
        multiple.check(config, private=problem.dp is not None)
    account = None
    if problem.dp is not None:
        private.check_sites(problem.dp, len(fed.sites))
        account = private.Account(private.releases(method, config, problem.dp), problem.dp)
        fed.accounted(account)
    design = _designed(fed, problem, method, config, table)
    trail.n_preprocess = len(trail.ledger.lines)
    if every and (nowhere := prepare.empty_views(design, problem.dictionary)):
        raise DataError(
            f"no site has a value of the view {nowhere[0]!r}. Remove the view from the "
            f"dictionary, or ask the sites for their tables' headers."
        )
    task = Task(
        kind=problem.kind,
        features=design.features,
        views=design.views,
        pairs=design.pairs,
        heads=design.heads,
        seed=seed,
        min_cell=problem.min_cell,
        offset=bool(design.offset),
        strata=design.strata_levels,
        outcome=problem.outcome.type if problem.outcome else "",
        levels=design.classes,
        origin=design.origin,
        dictionary=problem.dictionary if method.raw else None,
        outcome_of=problem.outcome if method.raw else None,
        agreed=problem.agreed if method.raw else None,
        dp=None if problem.dp is None else problem.dp.clipped(method.clips),
        reach=None if problem.dp is None else private.reach_of(problem.dictionary, problem.outcome),
        own=problem.own and OwnRows(*problem.own.each(design)),
        explained=explained,
    )
    there = fed if method.raw else fed.through(design)
    if several is not None:
        model = multiple.fit_tables(
            fed, several, design, problem.dictionary, task,
            lambda completed: method.fit(completed, config, task),
        )  # fmt: skip
    elif before is None:
        model = method.fit(there, config, task)
    elif method.forget is None:
        raise NotSupported(f"method {method.name!r} keeps nothing of single sites")
    else:
        model = method.forget(there, config, task, before)
    return Run(model, design, fed.history, trail.ledger, private.epsilon_of(account))


def _guards(problem: Problem, method: Method, config: Any, seed: int) -> Sequence[SiteGuard | None]:
    """Return the guard of each site in a private fit."""
    if problem.dp is None:
        return [None] * len(problem.frames)
    held = private.held(method, config, problem.dp, problem.dictionary, problem.outcome)
    return [
        private.simulated_guard(
            site, len(frame), method, config, problem.dp,
            seed if problem.noise == "seed" else None,
            patients=problem.patients.get(site, 0), demanded=held, scenario=problem.scenario,
        )
        for site, frame in problem.frames.items()
    ]  # fmt: skip


def noise_notes(
    method: Method, settings: Mapping[str, Any], problem: Problem
) -> dict[str, dict[str, Any]]:
    """Return the note on noise for a fit's model; empty without noise."""
    if problem.dp is None:
        return {}
    config = method.configure(settings)
    return {"privacy": private.noise_note(method, config, problem.dp, problem.noise)}


def _check_own(problem: Problem, method: Method, config: Any) -> None:
    """Check that the method can use the coordinator's rows, or needs none."""
    own = problem.own
    validates = own is not None and own.validation is not None
    begins = (own is not None and own.first is not None) or len(problem.frames) < 2
    coordinator_data.check(
        method, config, there=own is not None, validates=validates, begins=begins
    )


def _check_outcome(problem: Problem, method: Method) -> None:
    """Refuse an outcome, or an entry time, that the method does not support."""
    outcome = problem.outcome
    registry.check_outcome(method, problem.kind, outcome.type if outcome else "")
    entry = outcome.entry if isinstance(outcome, Survival) else ""
    if entry and not (method.entries or method.raw):
        raise SettingError(
            f"method {method.name!r} does not support entry times (column {entry!r}). Remove the "
            f"column from the outcome if all patients were followed from time 0, or use 'cox'."
        )


def _designed(
    fed: Federation, problem: Problem, method: Method, config: Any, table: Mapping[str, Any]
) -> Design:
    """Return the fitted preprocessing, or the method's own design.

    No site is asked for the latter. The design of a raw method has no columns.
    """
    if method.raw:
        return Design(columns=(), dropped={})
    if method.design is not None:
        return method.design(config, problem.dictionary, problem.outcome)
    if problem.dp is not None:
        prepare.check_options(table, method.preprocess)
        impute = table.get("impute", "mean")
        return private.design(config, problem.dictionary, problem.outcome, impute)
    several = multiple.Asked.of(table) is not None
    design = prepare.fit_design(
        fed,
        problem.dictionary,
        problem.outcome,
        scale=table.get("scale", "none"),
        impute="median" if several else table.get("impute", "median"),
        winsorise=table.get("winsorise", 0.0),
        pool_levels=table.get("pool_levels", 0),
        min_cell=problem.min_cell,
        offset=getattr(config, "offset", ""),
        weights=getattr(config, "weights", ""),
        strata=getattr(config, "strata", ""),
        pixels=bool(getattr(config, "image", ())),
    )
    return dataclasses.replace(design, impute="multiple", filled={}) if several else design
