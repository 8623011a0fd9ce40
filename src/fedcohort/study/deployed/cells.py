"""The pieces of a deployed study: one arm in one repeat, which is a fit and its judging.

A piece is done in sessions, each with a journal; what it gave is one JSON file, written when it is
complete. A method's own failure is a result, as in a simulated study. Sites that are away are not:
they end the run, and it goes on from its journals when they are back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fedcohort
from fedcohort.data.outcome import Binary, Continuous, Count
from fedcohort.metrics.heterogeneity import pooled_r2, pooled_share, r2_interval, share_interval
from fedcohort.privacy.disclosure.counts import fewest
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
from fedcohort.study import private, saved, tune
from fedcohort.study.arms import Arm
from fedcohort.study.cautions import told_if_crowded, told_if_drowned
from fedcohort.study.cells import Cell, defect, tagged, tuning_of, write_text
from fedcohort.study.deployed import (
    cluster_judging,
    cluster_shown,
    evaluation,
    latent_judging,
    latent_shown,
)
from fedcohort.study.deployed.coding import names_of
from fedcohort.study.deployed.evaluation import Found
from fedcohort.study.deployed.judging import Own, Said
from fedcohort.study.deployed.sessions import Session
from fedcohort.study.deployed.sites import Sites, noise_of
from fedcohort.study.deployed.table import Unfit
from fedcohort.study.deployed.terms import CLUSTERING, LATENT, Terms
from fedcohort.study.deployed.tuning import NetworkTuner
from fedcohort.study.engine import Run, Trail, fit_over
from fedcohort.study.final import JUDGED, has_final
from fedcohort.study.judges.latent import Latent
from fedcohort.study.kept import left_out_of, model_facts, notes_of
from fedcohort.study.layout import seed_of
from fedcohort.study.missing import stretches
from fedcohort.study.plan import ASIDE
from fedcohort.study.rows import plain, row_of

#: The name of the piece that meets the sites.
COHORT = "cohort"
#: What ends a run, so that it can go on later, rather than fail an arm.
ENDS = (SiteUnavailable, JournalMismatch, Refused, Unfit)
#: Called after each call of a session with the session's name.
Heard = Callable[[str, Progress], None]


@dataclass
class Open:
    """A session that is under way.

    Attributes
    ----------
    fed : its federation.
    trail : its ledger.
    """

    fed: Coordinator
    trail: Trail


@dataclass
class _Made:
    """What a cell gathers before it is written."""

    lines: list[str] = field(default_factory=list[str])
    missing: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sessions: list[Session] = field(default_factory=list[Session])


def _together(
    train: Mapping[str, int | None], blind: Mapping[str, int | None]
) -> dict[str, int | None]:
    """Return the rows of both halves by site; None where a site does not tell those of one."""
    return {
        site: None if n is None or (m := blind.get(site)) is None else n + m
        for site, n in train.items()
    }


class Workshop:
    """Does the pieces of a deployed study, in a folder that holds their results and journals.

    Parameters
    ----------
    work : the run's folder for unfinished business.
    models : where models are written, of arms that learn from all sites: of the first repeat until
        the final one is there.
    heard : told of every call.
    debug : let an error that nobody foresaw end the run.
    """

    def __init__(
        self,
        terms: Terms,
        sites: Sites,
        work: Path,
        models: Path,
        heard: Heard,
        debug: bool = False,
    ):
        self.terms = terms
        self.plan = terms.plan
        self._sites = sites
        self._cells = work / "cells"
        self._journals = work / "journals"
        self._models = models
        self._heard = heard
        self._debug = debug

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """Return what a cell gave, or None if it is not complete."""
        return self.note(cell.name)

    def note(self, name: str) -> dict[str, Any] | None:
        """Return what a piece of that name gave, or None if it is not complete."""
        path = self._cells / f"{name}.json"
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except ValueError:  # damaged on the disk: it is done again
            return None

    def ledger(self, cell: Cell) -> Path:
        """Return where the ledger's lines of a cell are."""
        return self.lines(cell.name)

    def lines(self, name: str) -> Path:
        """Return where the ledger's lines of a piece are."""
        return self._cells / f"{name}.ledger"

    def keep(self, name: str, found: Mapping[str, Any], lines: list[str]) -> None:
        """Write what a piece gave, so that it is there as a whole or not at all."""
        self._cells.mkdir(parents=True, exist_ok=True)
        write_text(self.lines(name), "".join(lines))
        write_text(self._cells / f"{name}.json", json.dumps(found, allow_nan=False))

    # sessions -------------------------------------------------------------------------

    @contextmanager
    def session(self, session: Session) -> Generator[Open]:
        """Open a session with its journal.

        Where a program itself could not go on without a site, the session begins anew when the
        run is resumed; where a call found no quorum, or not all the sites that it waits for, it
        goes on with that call.
        """
        self._journals.mkdir(parents=True, exist_ok=True)
        path = self._journals / f"{session.text}.journal"
        mark = f"{self.terms.hash} {session.text} {fedcohort.__version__} {self._sites.names}"
        book = Journal(path, mark)
        trail = Trail(Ledger(self.plan.min_cell))
        try:
            fed = self._sites.federation(
                session.text,
                quorum=self.plan.quorum,
                ledger=trail.ledger,
                journal=book,
                observer=lambda progress: self._heard(session.text, progress),
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
        """Return what sites told of the rows that a session is over, when they were counted.

        Of each repeat but the first a site draws about as many rows, one more or fewer.
        """
        halves = (self.note(COHORT) or {}).get("halves")
        if halves is None or session.kind not in ("fit", "final", "tune", "judge"):
            return Known()
        rows, events = halves[session.kind == "judge"]
        if session.kind == "final":  # over both
            rows, events = (_together(*both) for both in zip(*halves, strict=True))
        tried = session.kind == "tune" and self.plan.arms[session.arm].folds == "row-kfold"
        if session.kind == "judge":  # of deaths, those of training rows are counted, too
            events = dict[str, int | None]()
        arm = self.plan.arms[session.arm]
        named = {**arm.settings, **arm.grid, **self.plan.space(arm)}
        some = tried or registry.find(arm.method).gaps
        return Known(
            rows, events, slack=int(session.repeat > 0), unit=not named.get("weights"), some=some
        )

    def forget(self, session: Session) -> None:
        """Remove a session's journal, and what sites keep of it."""
        (self._journals / f"{session.text}.journal").unlink(missing_ok=True)
        self._sites.close(session.text)

    # cells ----------------------------------------------------------------------------

    def do(self, cell: Cell) -> None:
        """Do one cell and write what it gave.

        Raises
        ------
        SiteUnavailable, JournalMismatch, Refused, Unfit : the run cannot go on now.
        """
        arm = self.plan.arms[cell.arm]
        began = time.perf_counter()
        made = _Made()
        found: dict[str, Any]
        try:
            work = self._alone if arm.scope == "isolated" else self._fit
            work = {"tune": self._tune, "final": self._final}.get(cell.kind, work)
            found = work(cell, arm, made)
            found["status"] = "done"
        except ENDS:
            raise
        except FedcohortError as error:
            found = {"status": f"failed: {error}"}
        except (OSError, MemoryError):
            raise
        except Exception as error:
            if self._debug:
                raise
            found = {"status": f"failed: {defect(error)}"}
        found["missing"] = made.missing
        found["seconds"] = round(time.perf_counter() - began, 3)
        self.keep(cell.name, found, made.lines)
        for session in made.sessions:
            self.forget(session)

    def _tune(self, cell: Cell, arm: Arm, made: _Made) -> dict[str, Any]:
        """Choose an arm's settings, on the training rows."""

        @contextmanager
        def opens(session: Session) -> Generator[Coordinator]:
            made.sessions.append(session)
            with self.session(session) as open_:
                try:
                    yield open_.fed
                finally:
                    self._heed(open_, cell, {0: "tune"}, made)

        tuner = NetworkTuner(self.terms, self._sites.names, cell.arm, cell.repeat, opens)
        best = tune.search(tuner, arm, self.plan)
        tried = [{"settings": s, "score": c} for s, c in best.tried]
        return {"chosen": best.chosen, "score": best.score, "tried": tried}

    def _chosen(self, cell: Cell) -> Mapping[str, Any]:
        """Return what tuning chose for a fit."""
        tuning = tuning_of(self.plan, cell)
        if tuning is None:
            return {}
        found = self.result(tuning) or {}
        if "chosen" not in found:
            raise FedcohortError("its tuning failed; " + found.get("status", ""))
        return found["chosen"]

    def _rows(self) -> list[int | None]:
        """Return the first repeat's training rows of each site; None where they are not shown."""
        met = self.note(COHORT) or {}
        rows: dict[str, int | None] = met.get("halves", [[{}, {}]])[0][0]
        return [rows.get(site) for site in self._sites.names]

    def _fit(self, cell: Cell, arm: Arm, made: _Made) -> dict[str, Any]:
        """Fit an arm over the sites and judge it."""
        made.sessions += [Session(kind, cell.repeat, cell.arm) for kind in ("fit", "judge")]
        plan, terms = self.plan, self.terms
        method = registry.find(arm.method)
        chosen, rows_by_site = self._chosen(cell), self._rows()
        dp = plan.privacy.dp if cell.repeat == 0 else None  # it is said once
        noise = told_if_drowned(arm, chosen, dp, rows_by_site)
        began = time.perf_counter()
        run = self._fitted(made.sessions[0], cell, arm, chosen, made)
        seconds = time.perf_counter() - began
        more: dict[str, list[Row]] = {}
        with self.session(Session("judge", cell.repeat, cell.arm)) as open_:
            try:
                said = Said.by(run, arm.method)
                if plan.task == CLUSTERING:
                    judged, more = self._grouped(open_.fed, cell, run, said)
                elif plan.task == LATENT:
                    judged, more = self._coded(open_.fed, cell, run, said)
                else:
                    judged = evaluation.judge(open_.fed, plan, terms.outcome, said, terms.horizon)
            finally:
                self._heed(open_, cell, {0: "evaluate"}, made)
        up, down = sum(run.ledger.bytes_up.values()), run.ledger.bytes_down
        rows = [row_of(run, None, dict(judged.metrics), seconds, up, down)]
        rows[0]["within"] = dict(judged.within)
        rows += [{"site": s, "metrics": m} for s, m in self._own_metrics(judged).items()]
        found: dict[str, Any] = {
            "rows": rows,
            "history": [{"site": None, **row} for row in run.history],
            "calibration": judged.groups,
        }
        settings = arm.configured(chosen)
        found |= model_facts(method, run, settings, terms.seen, kept=True) | more
        if cell.repeat == 0:
            found["decision"] = judged.decision
            found |= self._centres(judged)
            found |= left_out_of(run, arm, plan.min_cell, terms.horizon)
            found["crowded"] = told_if_crowded(run, arm, chosen, rows_by_site)
            found["drowned"] = noise
            self._save(cell, run, chosen, arm.name)
            if has_final(plan, arm):
                self._save(cell, run, chosen, f"{arm.name}/{JUDGED}")
        return found

    def _fitted(
        self, session: Session, cell: Cell, arm: Arm, chosen: Mapping[str, Any], made: _Made
    ) -> Run:
        """Fit an arm over the sites in a session; keep what left them, also where it fails."""
        with self.session(session) as open_:
            try:
                return fit_over(
                    open_.fed,
                    self.terms.problem,
                    registry.find(arm.method),
                    arm.configured(chosen),
                    arm.preprocess,
                    seed_of(self.plan, cell.repeat),
                    open_.trail,
                    every=True,
                )
            finally:
                self._heed(open_, cell, open_.trail.phases, made)

    def _final(self, cell: Cell, arm: Arm, made: _Made) -> dict[str, Any]:
        """Fit an arm to all rows, and keep the model in place of the first repeat's."""
        made.sessions.append(Session("final", 0, cell.arm))
        began = time.perf_counter()
        chosen = self._chosen(cell)
        run = self._fitted(made.sessions[0], cell, arm, chosen, made)
        up, down = sum(run.ledger.bytes_up.values()), run.ledger.bytes_down
        found = row_of(run, None, {}, time.perf_counter() - began, up, down)
        method, settings = registry.find(arm.method), arm.configured(chosen)
        found |= model_facts(method, run, settings, self.terms.seen, kept=True)
        found |= left_out_of(run, arm, self.plan.min_cell, self.terms.horizon)
        self._save(cell, run, chosen, arm.name)
        return found

    def _grouped(
        self, fed: Coordinator, cell: Cell, run: Run, said: Said
    ) -> tuple[Found, dict[str, list[Row]]]:
        """Judge clusters; of the first repeat, return what is shown of them as well."""
        own = self._cells / f"{cell.name}.said"
        before = [self._cells / f"{replace(cell, arm=a).name}.said" for a in range(cell.arm)]
        earlier = [path.read_text(encoding="ascii") for path in before if path.exists()]
        write_text(own, said.model)
        sums = cluster_judging.Sums.of(fed, said.model, earlier, self.plan.min_cell)
        judged, times = cluster_judging.judge(sums, self.plan, self.terms.outcome)
        if cell.repeat:
            return judged, {}
        seed, terms = seed_of(self.plan, cell.repeat), self.terms
        return judged, cluster_shown.shown_rows(
            sums, run, terms.outcome, terms.dictionary, times, seed, umap=self.plan.umap
        )

    def _coded(
        self, fed: Coordinator, cell: Cell, run: Run, said: Said
    ) -> tuple[Found, dict[str, list[Row]]]:
        """Judge latent coordinates; of the first repeat, return what is shown of them as well."""
        plan, method = self.plan, registry.find(self.plan.arms[cell.arm].method)
        named = names_of(run.design, self.terms.seen.features())
        judge = latent_judging.Judge.of(
            fed, said.model, named, plan.min_cell, fills="impute" in method.gives
        )
        judged = judge.metrics(plan)
        if cell.repeat:
            return judged, {}
        order = sum(arm.scope == "sites" for arm in plan.arms[: cell.arm + 1])
        return judged, latent_shown.shown_rows(judge, method, run, order)

    def _alone(self, cell: Cell, arm: Arm, made: _Made) -> dict[str, Any]:
        """Let each site fit and judge a model of its own."""
        made.sessions.append(Session("alone", cell.repeat, cell.arm))
        with self.session(made.sessions[0]) as open_:
            try:
                if self.plan.task == CLUSTERING:
                    judged = cluster_judging.judge_alone(open_.fed, self.plan)
                elif self.plan.task == LATENT:
                    judged = latent_judging.judge_alone(open_.fed, self.plan)
                else:
                    judged = evaluation.judge(open_.fed, self.plan, self.terms.outcome, Own())
            finally:
                self._heed(open_, cell, {0: "evaluate"}, made)
        blank = {"rounds": 0, "seconds": 0.0, "bytes_up": 0, "bytes_down": 0, "epsilon": None}
        rows = [
            {"site": site, "metrics": metrics, **blank}
            for site, metrics in self._own_metrics(judged).items()
        ]
        rows.append(
            {"site": None, "metrics": dict(judged.metrics), "within": dict(judged.within), **blank}
        )
        return {"rows": rows, "history": []}

    def _heed(self, open_: Open, cell: Cell, phases: Mapping[int, str], made: _Made) -> None:
        """Keep a session's ledger, and which sites were missing from which of its calls."""
        arm, scenario = self.plan.arms[cell.arm], self.plan.scenarios[0].name
        made.lines += tagged(open_.trail.ledger.lines, arm.name, scenario, cell.repeat, phases)
        phase = list(phases.values())[-1]
        made.missing += stretches(open_.fed.missing, open_.fed.rejected, phase)

    # what is kept ---------------------------------------------------------------------

    @property
    def _leading(self) -> str:
        outcome = self.terms.outcome
        if self.plan.task == CLUSTERING:
            return "silhouette"
        if self.plan.task == LATENT:
            return Latent.leading
        if isinstance(outcome, Binary):
            return "auc"
        return "r2" if isinstance(outcome, (Continuous, Count)) else "c_index"

    def _own_metrics(self, judged: Found) -> dict[str, dict[str, float | None]]:
        """Return the leading metric on each site's own rows; None where the site keeps it."""
        name = f"{self._leading}_own"
        return {s: {name: None if v is None else v[0]} for s, v in sorted(judged.own.items())}

    def _centres(self, judged: Found) -> dict[str, list[Row]]:
        """Return the metric by centre with its interval, and what the centres say together."""
        metric, least = self._leading, fewest(self.plan.min_cell)
        if self.plan.task in ASIDE:  # a site tells no error of it
            return {"by_centre": [], "heterogeneity": []}
        values = metric == "r2"
        interval, pool = (r2_interval, pooled_r2) if values else (share_interval, pooled_share)
        few = {"auc": "rows of a class", "r2": "rows"}.get(metric, "events")
        rows: list[Row] = []
        for site, found in sorted(judged.own.items()):
            blank = dict.fromkeys(("value", "se", "low", "high"), None)
            numbers: Row = {**blank, "note": f"fewer than {least} {few}"}
            if found is not None:
                low, high = interval(*found)
                parts = {"value": found[0], "se": found[1], "low": low, "high": high}
                numbers = plain({**parts, "note": None})
            rows.append({"metric": metric, "site": site, **numbers})
        usable = [r for r in rows if r["low"] is not None]
        if len(usable) < 2:
            return {"by_centre": rows, "heterogeneity": []}
        p = pool([r["value"] for r in usable], [r["se"] for r in usable])._asdict()
        mean = {"metric": metric, "pooled": p.pop("mean"), **p}
        return {"by_centre": rows, "heterogeneity": [plain(mean)]}

    def _save(self, cell: Cell, run: Run, chosen: Mapping[str, Any], folder: str) -> None:
        """Write the first repeat's model, or that of all rows."""
        arm = self.plan.arms[cell.arm]
        notes = notes_of(self.plan, cell, chosen, self.terms.horizon)
        if (dp := self.plan.privacy.dp) is not None:
            method = registry.find(arm.method)
            config = method.configure(arm.configured())
            notes["privacy"] = private.told(method, config, dp, noise_of(self._sites))
        parts = saved.Saved.of(arm.method, run.model, run.design, self.terms.seen, notes)
        saved.write(self._models / folder, parts)
