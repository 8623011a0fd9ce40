"""Runs a deployed study: its sessions one after the other, so that it can be stopped at any time.

The files are those of a simulated study (`study.runner`). Until a study is complete, its folder
holds `.work/`: finished pieces, and the journal of every session that was under way, which a
resumed run replays. Where too few sites answer, the run ends with `SiteUnavailable`; what was done
is kept, and `resume` goes on with the call that failed.

A run is a pure function of the terms, the sites' tables and which sites were missing from which
calls; it gives the same bytes on every runtime, the keys named `seconds` aside.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedcohort
from fedcohort.protocol import FedcohortError
from fedcohort.runtime.coordinator import Progress
from fedcohort.study import arithmetic, cluster_umap, runner
from fedcohort.study.besides import asked_of
from fedcohort.study.deployed import besides, results
from fedcohort.study.deployed.cells import Workshop
from fedcohort.study.deployed.sites import Sites
from fedcohort.study.deployed.terms import Terms
from fedcohort.study.few_sites import check_sites
from fedcohort.study.lock import locked
from fedcohort.study.pieces import Cell, cells_of
from fedcohort.study.privacy import checked_secure
from fedcohort.study.results import versions
from fedcohort.study.runner import WORK


@dataclass(frozen=True)
class Event(runner.Event):
    """What a progress display is told: a piece began, moved, or ended.

    Attributes
    ----------
    session : the session that is under way; "" where a piece ended.
    call : its latest call: step, who answered and who is missing, seconds and bytes; None where a
        piece ended.
    """

    session: str = ""
    call: Progress | None = None


Tell = Callable[[Event], None]


def run(
    terms: Terms,
    sites: Sites,
    out: Path,
    *,
    resume: bool = False,
    tell: Tell | None = None,
    command: str = "",
    debug: bool = False,
) -> dict[str, Any]:
    """Do all pieces that are not done yet, and write the study's files; return results.json's.

    Parameters
    ----------
    tell : told of every call and every piece that ends. What it raises ends the run, which can be
        resumed, if it is no `Exception` but, say, a `KeyboardInterrupt`.
    debug : let an error that nobody foresaw end the run, rather than fail an arm.

    Raises
    ------
    StudyError : `out` cannot be written, holds another run, a finished one, or none to resume; or
        another process works there.
    SiteUnavailable : too few sites answered; bring them back and resume.
    NotSupported : a map by UMAP is asked for, and its package is missing here, or cannot be used.
    DataError : a site's table does not fit the study; nothing was computed.
    SettingError : sums shall be masked, and fewer than three sites take part; or a setting of an
        arm needs more sites than there are.
    FedcohortError : a site does not accept the study, or the disk is full; what was done is kept.
    """
    began = time.monotonic()
    checked_secure(terms.plan.privacy.secure, len(sites.names))
    check_sites(terms.plan, len(sites.names))
    if terms.plan.umap:
        cluster_umap.load()
    runner.open_folder(out, resume)
    with locked(out / WORK / "lock"):
        _claim(terms, sites, out, resume)
        try:
            return _finish(terms, sites, out, tell or (lambda event: None), command, began, debug)
        except OSError as error:
            raise FedcohortError(
                f"{error.filename or out}: {error.strerror or error}; what was finished is kept: "
                f"run the same command with --resume."
            ) from None


def _claim(terms: Terms, sites: Sites, out: Path, resume: bool) -> None:
    """Note whose run this is, or see that the one to resume is this study's, at these sites."""
    marks = {"fedcohort": fedcohort.__version__, "study": terms.hash, "sites": list(sites.names)}
    mark = json.dumps(marks, indent=1, sort_keys=True)
    runner.stake(out, mark, resume, "the study, its sites or the version")
    if arithmetic.note(out / WORK, arithmetic.here(versions())):
        arithmetic.go_on()


def _finish(
    terms: Terms,
    sites: Sites,
    out: Path,
    tell: Tell,
    command: str,
    began: float,
    debug: bool,
) -> dict[str, Any]:
    """Do the pieces that are left, and write the files that describe them all."""
    tunings, fits, finals = cells_of(terms.plan)
    arms = terms.plan.arms
    pieces = [c for c in tunings if arms[c.arm].scope == "sites"] + fits + finals
    asked = asked_of(terms.plan)
    total = 1 + len(asked) + len(pieces)
    now = ["cohort", 0]

    def heard(session: str, progress: Progress) -> None:
        rounds = (progress.round + 1, progress.rounds) if progress.rounds else None
        tell(Event(int(now[1]), total, str(now[0]), rounds, session, progress))

    shop = Workshop(terms, sites, out / WORK, out / "models", heard, debug)
    results.meet(shop, sites)
    tell(Event(1, total, "cohort", None))
    for done, kind in enumerate(asked, 1):
        if shop.note(kind) is None:
            now[:] = [besides.LABELS[kind], done]
            besides.ask(shop, sites, kind)
            tell(Event(done + 1, total, besides.LABELS[kind], None))
    for done, cell in enumerate(pieces, 1 + len(asked)):
        if shop.result(cell) is not None:
            continue
        now[:] = [label(terms, cell), done]
        shop.do(cell)
        tell(Event(done + 1, total, label(terms, cell), None))
    found = results.write(shop, sites, out, time.monotonic() - began, command)
    runner.claim(out).unlink()
    shutil.rmtree(out / WORK)
    return found


def label(terms: Terms, cell: Cell) -> str:
    """Return how a piece is called on screen."""
    kind = "tune " if cell.kind == "tune" else ""
    which = "all rows" if cell.kind == "final" else cell.repeat + 1
    return f"{kind}{terms.plan.arms[cell.arm].name} · {which}"
