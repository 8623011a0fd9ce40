"""Runs a deployed study: its sessions one after the other, so that it can be stopped at any time.

The files are those of a simulated study (`study.run.runner`). Until a study is complete, its folder
holds `.work/`: finished pieces, and the journal of every session that was under way, which a
resumed run replays. Where too few sites answer, the run ends with `SiteUnavailable`; what was done
is kept, and `resume` goes on with the call that failed.

A run is a pure function of the terms, the sites' tables and which sites were missing from which
calls; it gives the same bytes on every runtime, the keys named `seconds` aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedcohort.runtime.coordinator import Progress
from fedcohort.study.file.privacy import checked_secure
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge.shown import cluster_umap
from fedcohort.study.results import network as results
from fedcohort.study.run import arithmetic, runner
from fedcohort.study.run.extras import LABELS, asked_of
from fedcohort.study.run.network_fits import NetworkFits
from fedcohort.study.run.pieces import cells_of
from fedcohort.study.run.runner import WORK
from fedcohort.study.sites.few_sites import check_sites
from fedcohort.study.sites.sites import Sites


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


OnEvent = Callable[[Event], None]


def run(
    terms: Terms,
    sites: Sites,
    out: Path,
    *,
    resume: bool = False,
    tell: OnEvent | None = None,
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
    plan = terms.plan
    checked_secure(plan.privacy.secure, len(sites.names))
    check_sites(plan, len(sites.names))
    if plan.umap:
        cluster_umap.load()
    tunings, every, finals = cells_of(plan)
    cells = [c for c in tunings if plan.arms[c.arm].scope == "sites"] + every + finals
    asked = asked_of(plan)
    total = 1 + len(asked) + len(cells)
    now = ["cohort", 0]

    def told(event: Event) -> None:
        if tell is not None:
            tell(event)

    def on_call(session: str, progress: Progress) -> None:
        rounds = (progress.round + 1, progress.rounds) if progress.rounds else None
        told(Event(int(now[1]), total, str(now[0]), rounds, session, progress))

    def work(began: float) -> dict[str, Any]:
        fits = NetworkFits(terms, sites, out / WORK, out / "models", on_call, debug)
        results.meet(fits, sites)
        told(Event(1, total, "cohort", None))
        pieces = [(LABELS[k], fits.note(k), partial(fits.ask, k))
                  for k in asked]  # fmt: skip
        pieces += [(runner.label(plan, c), fits.result(c), partial(fits.do, c)) for c in cells]
        for done, (name, found, do) in enumerate(pieces, 1):
            if found is None:
                now[:] = [name, done]
                do()
                told(Event(done + 1, total, name, None))
        return results.write(fits, sites, out, time.monotonic() - began, command)

    facts = {"study": terms.hash, "sites": list(sites.names)}
    return runner.in_folder(
        out, resume, facts, "the study, its sites or the version", arithmetic.go_on, work
    )
