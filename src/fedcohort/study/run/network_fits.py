"""Does the pieces of a study over a network: tunings, fits with their evaluation, final fits.

A piece is done in sessions, each with a journal. Its result is one JSON file, written when it is
complete. A method's own failure is a result, as in a simulated study. Absent sites are no result:
they end the run, and it resumes from its journals when they are back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedcohort.data.describe.agreed import Agreed
from fedcohort.protocol import (
    FedcohortError,
    JournalMismatch,
    Refused,
    Row,
    SiteUnavailable,
    registry,
)
from fedcohort.protocol.errors import QuorumLost
from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.totals import Known
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Journal
from fedcohort.study.at_site.forgetting import FORGETS
from fedcohort.study.at_site.judging import Said
from fedcohort.study.at_site.sessions import Session
from fedcohort.study.at_site.table import Unfit
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge.evaluate import JUDGING, Model
from fedcohort.study.judge.leading import LEADING
from fedcohort.study.judge.shown.classes import EACH
from fedcohort.study.judge.summed.evaluation import Found
from fedcohort.study.run import extras, tune
from fedcohort.study.run.engine import Run, Trail, fit_over
from fedcohort.study.run.fits import Fits, Fitted, Judged, Piece
from fedcohort.study.run.network_tune import NetworkTuner
from fedcohort.study.run.pieces import Cell, write_text
from fedcohort.study.sites.counts import Shown
from fedcohort.study.sites.layout import seed_of
from fedcohort.study.sites.own_rows import OwnFrames
from fedcohort.study.sites.sites import Sites
from fedcohort.version import VERSION

#: Name of the piece that opens the study at the sites and counts their rows.
COHORT = "cohort"
#: Errors that end the run, so that it can be resumed; others fail the arm.
ENDS = (SiteUnavailable, JournalMismatch, Refused, Unfit)
#: Called after each call of a session with the session's name.
OnCall = Callable[[str, Progress], None]


@dataclass
class Open:
    """An open session."""

    fed: Coordinator
    trail: Trail


def _together(
    train: Mapping[str, int | None], blind: Mapping[str, int | None]
) -> dict[str, int | None]:
    """Return the rows of both halves by site; None if a site hides those of one half."""
    return {
        site: None if n is None or (m := blind.get(site)) is None else n + m
        for site, n in train.items()
    }


class NetworkFits(Fits):
    """Does the pieces of a study over a network, in a folder of their results and journals."""

    def __init__(
        self,
        terms: Terms,
        sites: Sites,
        work: Path,
        models: Path,
        on_call: OnCall,
        debug: bool = False,
        own: OwnFrames | None = None,
    ):
        super().__init__(
            terms.plan, work, models, terms.seen, terms.horizon,
            noise=sites.noise, debug=debug,
        )  # fmt: skip
        self.terms = terms
        self._sites = sites
        self._journals = work / "journals"
        self._on_call = on_call
        self.own = own
        self._opened: list[Session] = []
        self._judging = JUDGING[self.plan.task]

    # sessions -------------------------------------------------------------------------

    @contextmanager
    def session(self, session: Session) -> Generator[Open]:
        """Open a session with its journal.

        If a program could not go on without a site, the session begins anew when the run is
        resumed. If a call found no quorum, or not all sites that it waits for, the session goes on
        with that call.
        """
        self._journals.mkdir(parents=True, exist_ok=True)
        path = self._journals / f"{session.text}.journal"
        mark = f"{self.terms.hash} {session.text} {VERSION} {self._sites.names}"
        book = Journal(path, mark)
        trail = Trail(Ledger(self.plan.min_cell))
        try:
            fed = self._sites.federation(
                session.text,
                quorum=1.0 if session.kind in FORGETS else self.plan.quorum,
                ledger=trail.ledger,
                journal=book,
                observer=lambda progress: self._on_call(session.text, progress),
                secure=self.plan.privacy.secure,
            )
            fed.expecting(self._known(session))
            yield Open(fed, trail)
        except QuorumLost:
            raise
        except SiteUnavailable:
            book.close()
            self.forget(session)
            raise
        finally:
            book.close()

    def _known(self, session: Session) -> Known:
        """Return the published counts of a session's rows and events.

        In later repeats a site's count may differ by one.
        """
        halves = (self.note(COHORT) or {}).get("halves")
        if halves is None or session.kind not in ("rank", "fit", "final", "tune", "judge"):
            return Known()
        rows, events = halves[session.kind == "judge"]
        if session.kind == "final":  # over both
            rows, events = (_together(*both) for both in zip(*halves, strict=True))
        tried = session.kind == "tune" and self.plan.arms[session.arm].folds == "row-kfold"
        if session.kind == "judge":  # its sums over events include the training rows'
            events = dict[str, int | None]()
        arm = self.plan.arms[session.arm]
        named = {**arm.settings, **arm.grid, **self.plan.space(arm)}
        some = tried or registry.find(arm.method).gaps
        return Known(
            rows, events, slack=int(session.repeat > 0), unit=not named.get("weights"), some=some
        )

    def forget(self, session: Session) -> None:
        """Remove a session's journal, and the sites' state of it."""
        (self._journals / f"{session.text}.journal").unlink(missing_ok=True)
        self._sites.close(session.text)

    def ask(self, kind: str) -> None:
        """Ask the sites for one of `extras.KINDS`, and keep the result.

        Raises
        ------
        SiteUnavailable, JournalMismatch, Refused, Unfit : the run cannot go on now.
        """
        plan, arm, met = self.plan, extras.arm_of(kind), self.note(COHORT) or {}
        method, given = registry.find(arm.method), arm.configured()
        hidden = met.get("agreed")
        agreed = None if hidden is None else Agreed.from_dict(hidden)
        problem = replace(self.terms.described, agreed=agreed)
        rows, events = met["halves"][0]
        counted = self.terms.outcome is not None and not self.terms.outcome.is_number
        closed = frozenset(s for s, n in events.items() if counted and n is None)
        with self.session(Session(kind)) as o:
            found = extras.ask(
                kind, partial(fit_over, o.fed, problem, method, given, {}, plan.seed, o.trail),
                o.trail, Shown(rows, events, closed), method.asked(method.configure(given)),
                plan.scenarios[0].name, sites=self._sites.names, ends=ENDS, left_out={},
                **extras.KEPT[kind],
            )  # fmt: skip
        self.keep(kind, *found)
        self.forget(Session(kind))

    # cells ----------------------------------------------------------------------------

    def _why(self, piece: Piece, error: FedcohortError) -> str:
        if isinstance(error, ENDS):
            raise error
        return str(error)

    def _clear(self, piece: Piece) -> None:
        while self._opened:
            self.forget(self._opened.pop(0))

    @contextmanager
    def _during(
        self, piece: Piece, session: Session, phases: Mapping[int, str] | None = None
    ) -> Generator[Open]:
        """Open a session of a piece; keep what left the sites in it, also if it fails."""
        self._opened.append(session)
        with self.session(session) as open_:
            try:
                yield open_
            finally:
                trail, phases = open_.trail, phases or open_.trail.phases
                trail.note(open_.fed)
                self._keep_trail(piece, trail, phases, list(phases.values())[-1])

    def _searched(self, piece: Piece) -> tune.Tuned:
        cell = piece.cell

        @contextmanager
        def opens(session: Session) -> Generator[Coordinator]:
            with self._during(piece, session, {0: "tune"}) as open_:
                yield open_.fed

        tuner = NetworkTuner(self.terms, self._sites.names, cell.arm, cell.repeat, opens, self.own)
        return tune.search(tuner, piece.arm, self.plan)

    def _names(self, piece: Piece) -> Sequence[str]:
        return self._sites.names

    def go_on_over(self, sites: Sites) -> None:
        """Do the further pieces over these sites."""
        self._sites = sites

    def _rows_by_site(self, piece: Piece) -> list[int | None]:
        """Return the first repeat's training rows of each site; None if they are hidden."""
        met = self.note(COHORT) or {}
        rows: dict[str, int | None] = met.get("halves", [[{}, {}]])[0][0]
        return [rows.get(site) for site in self._sites.names]

    def _fit_all(self, piece: Piece, chosen: Mapping[str, Any]) -> Fitted:
        cell, arm, began = piece.cell, piece.arm, time.perf_counter()
        final = cell.kind == "final"
        with self._during(piece, Session(cell.kind, 0 if final else cell.repeat, cell.arm)) as o:
            run = fit_over(
                o.fed,
                replace(self.terms.problem, own=self.own),
                registry.find(arm.method),
                arm.configured(chosen),
                arm.preprocess,
                seed_of(self.plan, cell.repeat),
                o.trail,
                every=True,
                explained=piece.explained,
            )
        up, down = sum(run.ledger.bytes_up.values()), run.ledger.bytes_down
        return Fitted(run, time.perf_counter() - began, up, down)

    def _judged(self, piece: Piece, run: Run) -> Judged:
        cell = piece.cell
        if piece.arm.every:
            found = self._by_own(piece)
            return self._told(piece, found)
        session = Session("judge", cell.repeat, cell.arm)
        with self._during(piece, session, {0: "evaluate"}) as open_:
            said = Said.by(run, piece.arm.method)
            earlier = partial(self._earlier, cell, said.model)
            found = self._judging.summed(Model(open_.fed, self.terms, cell, run, said, earlier))
        return self._told(piece, found)

    def _told(self, piece: Piece, found: Found) -> Judged:
        """Return an evaluation in the form of results."""
        cell = piece.cell
        more: dict[str, Any] = {"calibration": found.groups}
        more |= {key: rows for key, rows in found.more.items() if key in EACH}
        if cell.repeat == 0:
            more |= {"decision": found.decision, **self._centres(found), **found.more}
        own = [{"site": s, "metrics": m} for s, m in self._own_metrics(found).items()]
        metrics = dict(found.metrics) | (dict(found.within) if self.plan.at_home else {})
        return Judged({"metrics": metrics, "within": dict(found.within)}, own, more)

    def _earlier(self, cell: Cell, model: str) -> list[str]:
        """Keep a model in its sent form; return those of earlier arms of the repeat."""
        before = [self._cells / f"{replace(cell, arm=a).name}.said" for a in range(cell.arm)]
        write_text(self._cells / f"{cell.name}.said", model)
        return [path.read_text(encoding="ascii") for path in before if path.exists()]

    def _by_own(self, piece: Piece) -> Found:
        """Let each site evaluate its own model: one of its rows alone, or one that it keeps."""
        session = Session("alone", piece.cell.repeat, piece.cell.arm)
        with self._during(piece, session, {0: "evaluate"}) as open_:
            return self._judging.alone(open_.fed, self.plan)

    def _alone(self, piece: Piece) -> dict[str, Any]:
        """Let each site fit and evaluate its own model."""
        judged = self._by_own(piece)
        blank = {"rounds": 0, "seconds": 0.0, "bytes_up": 0, "bytes_down": 0, "epsilon": None}
        rows = [
            {"site": site, "metrics": metrics, **blank}
            for site, metrics in self._own_metrics(judged).items()
        ]
        rows.append(
            {"site": None, "metrics": dict(judged.metrics), "within": dict(judged.within), **blank}
        )
        return {"rows": rows, "history": []}

    # what is kept ---------------------------------------------------------------------

    def _own_metrics(self, judged: Found) -> dict[str, dict[str, float | None]]:
        """Return the leading metric on each site's own rows; None if the site hides it."""
        name = f"{self._judging.judge.leading}_own"
        return {s: {name: None if v is None else v[0]} for s, v in sorted(judged.own.items())}

    def _centres(self, judged: Found) -> dict[str, list[Row]]:
        """Return the metric of each centre with its interval, and their heterogeneity."""
        leading = LEADING.get(self.plan.task)
        if leading is None:  # no metric of single sites is published
            return {"by_centre": [], "heterogeneity": []}
        least = self.plan.min_cell
        rows = [leading.row(site, found, least) for site, found in sorted(judged.own.items())]
        return {"by_centre": rows, "heterogeneity": leading.heterogeneity(rows)}
