"""Runs the pieces of a study, so that it can be stopped at any time and resumed (`run.folder`).

In one process pieces run in parallel if cores allow, and on a cluster at its workers
(`run.cluster`). Over a network they run one after the other, each in sessions with a journal that a
resumed run replays. If too few sites answer, the run ends with `SiteUnavailable`, and `resume` goes
on with the failed call. Such a run is a pure function of the terms, the sites' tables and the
missing replies: it gives the same bytes on every runtime, except the keys named `seconds`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort.protocol import DataError, NotSupported, registry
from fedcohort.runtime.coordinator import Progress
from fedcohort.study.at_site import ranked
from fedcohort.study.file.plan import NETWORK, Plan
from fedcohort.study.file.privacy import checked_secure
from fedcohort.study.file.second_consent import check_left
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge.shown import cluster_umap
from fedcohort.study.results import files as results
from fedcohort.study.results import network
from fedcohort.study.run import arithmetic, carbon, folder
from fedcohort.study.run.extras import LABELS, asked_of
from fedcohort.study.run.local_fits import LocalFits
from fedcohort.study.run.network_fits import NetworkFits
from fedcohort.study.run.pieces import Cell, cells_of, rankings_of
from fedcohort.study.run.workers import Told, Workers
from fedcohort.study.sites import own_rows
from fedcohort.study.sites.few_sites import check_sites
from fedcohort.study.sites.layout import Table
from fedcohort.study.sites.own_rows import OwnFrames
from fedcohort.study.sites.sites import Sites

if TYPE_CHECKING:
    from fedcohort.study.run.cluster.client import Cluster


@dataclass(frozen=True)
class Event:
    """Message to a progress display: a piece began, moved, or ended.

    Attributes
    ----------
    done, total : finished pieces, and all pieces.
    name : the piece, such as "fedavg · iid · 3".
    rounds : rounds done and in all within the piece, if known.
    session, call : over a network, the current session and its latest call; none when a piece
        ended.
    """

    done: int
    total: int
    name: str
    rounds: tuple[int, int] | None
    session: str = ""
    call: Progress | None = None


OnEvent = Callable[[Event], None]


def run(
    plan: Plan,
    table: Table,
    out: Path,
    *,
    resume: bool,
    workers: int | None,
    tell: OnEvent,
    command: str,
    debug: bool = False,
    runtime: str = "local",
    cluster: str = "",
) -> dict[str, Any]:
    """Do all unfinished pieces, and write the study's files.

    Parameters
    ----------
    workers : processes, or with Slurm jobs at once; None: one process.
    cluster : address of a Dask scheduler, or "slurm"; "" for processes of this machine.
    debug : let an unexpected error end the run; otherwise it fails the piece.

    Raises
    ------
    StudyError : `out` cannot be written, holds another run, a finished one, or none to resume; or
        another process works there.
    NotSupported : the package of a method, or of a UMAP figure, cannot be used; a worker of a
        cluster cannot do the study.
    FedcohortError : a worker process died, or the disk is full; finished pieces are kept.
    """
    if plan.availability is not None and runtime != "local":
        raise NotSupported(
            f"availability simulates sites of one process; runtime is {runtime!r}. Use "
            f"runtime 'local'."
        )
    for arm in plan.arms:
        if lacking := registry.find(arm.method).lacking:
            raise NotSupported(f"arm {arm.name!r}: {lacking}")
    if plan.umap:
        cluster_umap.load()
    if plan.carbon:
        carbon.check(plan.carbon)
    facts: dict[str, Any] = {"study": plan.content, "seed": plan.seed, "data": table.mark}
    facts |= {} if runtime == "local" else {"runtime": runtime}

    def work(began: float) -> dict[str, Any]:
        fits = LocalFits(plan, table, out / folder.WORK, out / "models", debug, runtime)
        stages = (rankings_of(plan), *cells_of(plan))
        total, done, most = sum(map(len, stages)), 0, max(map(len, stages))
        means = _means(fits, table, out, workers or 1, most, there)
        with carbon.measured(plan.carbon) as spent, means as do:
            for stage in stages:
                open_ = [cell for cell in stage if fits.result(cell) is None]
                done += len(stage) - len(open_)
                for name, rounds in do(open_):
                    done += rounds is None
                    tell(Event(done, total, name, rounds))
        if spent and resume:
            spent["resumed"] = True  # earlier work is not measured
        return results.write(fits, table, out, time.monotonic() - began, command, spent)

    with _cluster(cluster, plan, out, workers, runtime) as there:
        return folder.in_folder(
            out, resume, facts, "the study, its data, the runtime or the version",
            lambda: arithmetic.begin_anew(out / folder.WORK / "scratch"), work,
        )  # fmt: skip


def run_over(
    terms: Terms,
    sites: Sites,
    out: Path,
    *,
    resume: bool = False,
    tell: OnEvent | None = None,
    command: str = "",
    debug: bool = False,
    data: Path | None = None,
) -> dict[str, Any]:
    """Do all pieces of a study over a network; parameters and errors as in `run`.

    Parameters
    ----------
    data : folder of the coordinator's own rows; None without.
    tell : called with every call and every piece that ends. An interrupt that it raises, such as
        `KeyboardInterrupt`, ends the run, which can be resumed.

    Raises
    ------
    SiteUnavailable : too few sites answered; bring them back and resume.
    DataError : a site's table does not fit the study; nothing was computed.
    SettingError : masked sums with fewer than three sites, or a setting of an arm that needs more
        sites.
    FedcohortError : a site does not accept the study, or the disk is full; finished pieces are
        kept.
    """
    plan = terms.plan
    checked_secure(plan.privacy.secure, len(sites.names))
    check_sites(plan, len(sites.names))
    own = own_of(terms, data)
    if plan.umap:
        cluster_umap.load()
    tunings, every, finals = cells_of(plan)
    rankings = rankings_of(plan)
    cells = [c for c in tunings if plan.arms[c.arm].scope == "sites"] + every + finals
    asked = asked_of(plan)
    total = 1 + len(asked) + len(rankings) + len(cells)
    now = ["cohort", 0]

    def told(event: Event) -> None:
        if tell is not None:
            tell(event)

    def on_call(session: str, progress: Progress) -> None:
        rounds = (progress.round + 1, progress.rounds) if progress.rounds else None
        told(Event(int(now[1]), total, str(now[0]), rounds, session, progress))

    def work(began: float) -> dict[str, Any]:
        fits = NetworkFits(terms, sites, out / folder.WORK, out / "models", on_call, debug, own)
        network.meet(fits, sites)
        told(Event(1, total, "cohort", None))
        pieces = [(LABELS[k], fits.note(k), partial(fits.ask, k))
                  for k in asked]  # fmt: skip
        pieces += [(label(plan, c), fits.result(c), partial(fits.do, c)) for c in rankings]
        _in_turn(pieces, 1)
        left = second_consent(fits, sites)
        rest = [(label(plan, c), fits.result(c), partial(fits.do, c)) for c in cells]
        _in_turn(rest, 1 + len(pieces))
        return network.write(fits, left, out, time.monotonic() - began, command)

    def _in_turn(pieces: list[tuple[str, Any, Callable[[], None]]], first: int) -> None:
        for done, (name, found, do) in enumerate(pieces, first):
            if found is None:
                now[:] = [name, done]
                do()
                told(Event(done + 1, total, name, None))

    facts: dict[str, Any] = {"study": terms.hash, "sites": list(sites.names)}
    facts |= {} if own is None else {"own": own.mark}
    return folder.in_folder(
        out, resume, facts, "the study, its sites or the version", arithmetic.go_on, work
    )


#: Name of the sites' answers after the ranking.
CONSENTS = "consents"


def second_consent(fits: NetworkFits, sites: Sites) -> Sites:
    """Return the sites that consent after the ranking; all if the study asks once.

    Their answers are kept, so that a resumed run asks nobody again.

    Raises
    ------
    Unanswered : the sites' people have to be asked first.
    FedcohortError : a ranking failed, or too few sites are left.
    """
    plan = fits.plan
    if plan.again is None:
        return sites
    places = fits.places(0)
    kept = fits.note(CONSENTS)
    if kept is None:
        told = {s: ranked.text_of(fits.terms.hash, s, places[s]) for s in sites.names}
        gone = dict(sites.consents(told))
        check_left(plan.arms, sites.names, gone, plan.quorum, plan.privacy.secure)
        check_sites(plan, len(sites.names) - len(gone))
        fits.keep(CONSENTS, {"withdrew": gone}, [])
        kept = {"withdrew": gone}
    left = sites.without(kept["withdrew"])
    fits.go_on_over(left)
    return left


def own_of(terms: Terms, data: Path | None) -> OwnFrames | None:
    """Return the coordinator's own rows of a study over a network; None if it asks for none.

    Raises
    ------
    DataError : there is no such file.
    """
    asked = terms.plan.coordinator_data
    if asked is None:
        return None
    if data is None:
        raise DataError(
            f"coordinator_data: the coordinator of this network has no rows of its own; the study "
            f"asks for its file {asked.source!r}."
        )
    plan = terms.plan
    return own_rows.read(asked, data, terms.seen, terms.learnt, plan.seed, plan.min_cell)


def label(plan: Plan, cell: Cell) -> str:
    """Return the name of a piece on screen."""
    arm, scenario = plan.arms[cell.arm], plan.scenarios[cell.scenario]
    where = "pooled" if arm.scope == "centralised" else scenario.name
    where = "" if plan.source == NETWORK else f" · {where}"
    kind = {"tune": "tune ", "rank": "rank "}.get(cell.kind, "")
    which = "all rows" if cell.kind == "final" else cell.repeat + 1
    return f"{kind}{arm.name}{where} · {which}"


Do = Callable[[list[Cell]], Iterator[Told]]


@contextmanager
def _cluster(
    address: str, plan: Plan, out: Path, jobs: int | None, runtime: str
) -> Generator[Cluster | None]:
    """Yield a connection to a cluster; None without one."""
    if not address:
        yield None
        return
    from fedcohort.study.run import cluster

    cluster.check_study(plan, runtime)
    with closing(cluster.opened(address, out, jobs)) as there:
        yield there


@contextmanager
def _means(
    fits: LocalFits, table: Table, out: Path, workers: int, most: int, there: Cluster | None
) -> Generator[Do]:
    """Yield a function that does cells, here or on a cluster.

    It yields (name, rounds) on the way and (name, None) when a cell is complete.

    Parameters
    ----------
    most : number of cells that can be done at once.
    """
    plan = fits.plan
    if there is None:
        made = partial(
            LocalFits, plan, table, out / folder.WORK, out / "models", fits.debug, fits.runtime
        )
        methods = {arm.method for arm in plan.arms}
        with Workers(min(workers, most), made, methods, out) as pool:
            yield partial(_do, fits, workers=workers, pool=pool)
        return
    from fedcohort.study.run.cluster import OnCluster

    with closing(OnCluster(there, fits, table, out)) as run:
        yield lambda cells: ((label(plan, cell), rounds) for cell, rounds in run.do(cells))


def _do(fits: LocalFits, cells: list[Cell], *, workers: int, pool: Workers) -> Iterator[Told]:
    """Do cells of this machine."""
    if not cells:
        return
    named = [(label(fits.plan, cell), cell) for cell in cells]
    spare = 1 if fits.debug else max(1, workers // len(cells))
    if workers > 1 and len(cells) > 1:
        yield from pool.do(named, spare)
        return
    fits.workers = spare
    for name, cell in named:
        fits.do(cell, lambda done, of: None)
        yield name, None
