"""Does the pieces of a study whose tables are all in this process.

Journals let a killed piece resume.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.protocol import (
    FedcohortError,
    ReplyRejected,
    SiteUnavailable,
    registry,
)
from fedcohort.protocol.errors import QuorumLost
from fedcohort.protocol.host import Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.coordinator import Progress
from fedcohort.runtime.local import local
from fedcohort.study.at_site import asking
from fedcohort.study.at_site.keeping import KeptRows
from fedcohort.study.at_site.table import Halves
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.second_consent import check_left
from fedcohort.study.judge import evaluate
from fedcohort.study.judge.details import details, details_at_home
from fedcohort.study.judge.pooled.clusters import Grouped
from fedcohort.study.judge.shown.classes import EACH, class_rows
from fedcohort.study.judge.shown.posterior import unlike_rows
from fedcohort.study.judge.summed.evaluation import Found
from fedcohort.study.results.missing import drawn_away, waits
from fedcohort.study.results.rows import (
    ALL,
    LABELS,
    mean_draws,
    mean_row,
    no_model_draws,
    no_model_row,
    row_of,
    spent,
    traffic,
)
from fedcohort.study.run import tune
from fedcohort.study.run.engine import Problem, Run, Trail, fit_alone, fit_once
from fedcohort.study.run.fits import Fits, Fitted, Judged, OnProgress, Piece
from fedcohort.study.run.pieces import Cell
from fedcohort.study.sites.layout import Laid, Table, drawn, lay_out, seed_of


class LocalFits(Fits):
    """Does the pieces of a study of tables in this process."""

    def __init__(
        self,
        plan: Plan,
        table: Table,
        work: Path,
        models: Path,
        debug: bool = False,
        runtime: str = "local",
    ):
        asked = plan.horizon
        horizon = None if asked is None else asked.within(table.dictionary, table.outcome)
        super().__init__(plan, work, models, table.dictionary, horizon, noise="seed", debug=debug)
        self._table = table
        self._scratch = work / "scratch"
        self.runtime = runtime
        self.workers = 1
        self._last: tuple[tuple[int, int, int], Laid] | None = None

    def _why(self, piece: Piece, error: FedcohortError) -> str:
        """Return why a piece failed; raise the error if the piece can be done later.

        A site that the study's `availability` takes away is a result. A site in another process
        that did not answer is no result: the cell goes on with the failed call, or begins anew if
        its program could not go on. A rejected reply, as after too high a learning rate, is a
        result: it would be rejected again.
        """
        if not isinstance(error, SiteUnavailable) or isinstance(error, ReplyRejected):
            return str(error)
        if self.runtime != "local":
            if not isinstance(error, QuorumLost):
                self._clear(piece)
            raise error
        return str(error) if self.plan.availability is None else drawn_away(error)

    def _clear(self, piece: Piece) -> None:
        shutil.rmtree(self._scratch / piece.cell.name, ignore_errors=True)

    def withdrawn(self, scenario: int) -> dict[str, str]:
        """Return why each site of a scenario withdrew after its ranking.

        Raises
        ------
        FedcohortError : the ranking failed, or the study cannot go on without them.
        """
        plan = self.plan
        if plan.again is None or not plan.scenarios[scenario].after_ranking:
            return {}
        places = self.places(scenario - 1)  # the same scenario with all sites
        gone = plan.again.withdrawn(places)
        check_left(plan.arms, places, gone, plan.quorum, plan.privacy.secure)
        return gone

    def _laid(self, cell: Cell) -> Laid:
        rows = cell.scenario, cell.repeat, self.workers  # the same for all arms
        if self._last is None or self._last[0] != rows:
            gone = self.withdrawn(cell.scenario)
            laid = lay_out(self.plan, self._table, self.plan.scenarios[cell.scenario], cell.repeat)
            problem = laid.problem
            if gone:
                left = {s: f for s, f in problem.frames.items() if s not in gone}
                problem = problem.on(left)
            problem = replace(problem, runtime=self.runtime, workers=self.workers)
            self._last = rows, replace(laid, problem=problem)
        return self._last[1]

    def _rows_by_site(self, piece: Piece) -> list[int | None]:
        return [len(frame) for frame in self._laid(piece.cell).problem.frames.values()]

    def _names(self, piece: Piece) -> Sequence[str]:
        return sorted(self._laid(piece.cell).problem.frames)

    # fitting --------------------------------------------------------------------------

    def _searched(self, piece: Piece) -> tune.Tuned:
        laid = self._laid(piece.cell)
        work = self._scratch / piece.cell.name
        work.mkdir(parents=True, exist_ok=True)
        tuner = tune.Tuner(
            laid.problem, piece.arm, seed_of(self.plan, piece.cell.repeat), work, piece.on_progress,
            natural=laid.test_site is not None,
        )  # fmt: skip
        try:
            return tune.search(tuner, piece.arm, self.plan)
        finally:
            if piece.arm.scope == "sites":
                piece.lines.extend(self._tagged(piece, tuner.ledger, {0: "tune"}))
                piece.missing.extend(tuner.missing)
                piece.waited.extend(waits(tuner.waited, "tune"))

    def _fit_all(self, piece: Piece, chosen: Mapping[str, Any]) -> Fitted:
        problem, scope = self._laid(piece.cell).problem, piece.arm.scope
        return self._fitted(piece, problem.pooled() if scope == "centralised" else problem, chosen)

    def _again(self, piece: Piece, problem: Problem) -> Run:
        """Return a fit of a piece's arm on other tables, of which nothing else is kept."""
        return fit_once(
            problem, registry.find(piece.arm.method),
            piece.arm.configured(self.chosen(piece.cell)), piece.arm.preprocess,
            seed_of(self.plan, piece.cell.repeat),
        )  # fmt: skip

    def _fitted(
        self,
        piece: Piece,
        problem: Problem,
        chosen: Mapping[str, Any],
        part: int = 0,
        parts: int = 1,
    ) -> Fitted:
        """Fit one of a piece's problems; keep what left the sites, also if the fit fails."""
        arm, kind, began = piece.arm, piece.cell.kind, time.perf_counter()
        trail, scratch = Trail(Ledger(problem.min_cell)), self._scratch / piece.cell.name
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            run = fit_once(
                problem,
                registry.find(arm.method),
                arm.configured(chosen),
                arm.preprocess,
                seed_of(self.plan, piece.cell.repeat),
                journal=scratch / f"{part:04d}.journal",
                trail=trail,
                observer=_observer(piece.on_progress, part, parts),
                explained=piece.explained,
            )
        finally:
            if arm.scope == "sites":
                self._keep_trail(piece, trail, trail.phases, kind)
        return Fitted(run, time.perf_counter() - began, *traffic(run, problem, arm.scope))

    # judging --------------------------------------------------------------------------

    @cached_property
    def drawn(self) -> Array:
        """Count of each row of the table in each bootstrap draw, (B, rows)."""
        return drawn(self.plan, self._table)

    def _judged(self, piece: Piece, run: Run) -> Judged:
        """Evaluate a model on all blind rows, and on those of each site."""
        laid, wanted = self._laid(piece.cell), self.plan.metrics
        seed = seed_of(self.plan, piece.cell.repeat)
        judge = evaluate.judge_of(laid.problem, laid.test, seed, self.horizon)
        if piece.arm.every:
            return self._judged_each(piece, run, judge)
        pooled = piece.arm.scope == "centralised"
        mine = judge.taught(laid.problem.pooled()) if pooled else judge
        said = mine.predicted(run, wanted)
        draws = mine.draws(said, self.drawn[:, laid.test_rows], wanted)
        more: dict[str, Any] = {"draws": mean_draws([draws]), "calibration": judge.groups(run)}
        if isinstance(said, Grouped):
            more[LABELS] = {ALL: said.labels.tolist()}
        more |= {key: rows for key, rows in class_rows(run, judge).items() if key in EACH}
        if piece.cell.repeat == 0:
            more["decision"] = judge.decision(run)
            more |= details(run, laid, self.plan, seed, self.horizon)
            method, shown = registry.find(piece.arm.method), evaluate.JUDGING[self.plan.task].shown
            more |= shown(run, judge, laid, self.plan, method, seed)
            if self.plan.left_out and not pooled and method.overrides("unlike_training"):
                more["unlike"] = unlike_rows(laid, lambda part: self._again(piece, part))
        more |= self._first_model(piece, laid, judge)
        sites = [] if laid.own_site is None else list(map(str, np.unique(laid.own_site)))
        own = [{"site": s, "metrics": self._own(run, mine, laid, s)} | spent(run, s) for s in sites]
        row = {"metrics": mine.metrics(said, wanted)}
        if self._at_home(laid):
            row["metrics"] = self._with_all(
                row["metrics"], {**row["metrics"], **self._within(piece, laid, run)}
            )
            more["draws"] = {}
        return Judged(row, own, more)

    def _judged_each(self, piece: Piece, run: Run, judge: evaluate.Judge) -> Judged:
        """Evaluate each site's own model: on its own rows; if rows have no site, on all."""
        laid, wanted = self._laid(piece.cell), self.plan.metrics
        runs = {s: replace(run, model=model) for s, model in sorted(run.own.items())}
        rows: list[dict[str, Any]] = []
        if laid.own_site is None or self.plan.local:
            rows = [
                {"site": s, "metrics": judge.metrics(judge.predicted(one, wanted), wanted)}
                | {"rounds": run.rounds, "bytes_down": 0} | spent(run, s)
                for s, one in runs.items()
            ]  # fmt: skip
        first = self._first_model(piece, laid, judge)
        if laid.own_site is None:
            weights = self.drawn[:, laid.test_rows]
            draws = [
                judge.draws(judge.predicted(one, wanted), weights, wanted) for one in runs.values()
            ]
            return Judged(
                {"metrics": mean_row(rows)["metrics"]}, rows, {"draws": mean_draws(draws)} | first
            )
        found = self._found_there(piece, runs)
        all_rows = {row["site"]: row["metrics"] for row in rows}
        own = [
            {"site": s, "metrics": all_rows.get(s, {}) | self._own(one, judge, laid, s)}
            | spent(run, s)
            for s, one in runs.items()
        ]
        more = details_at_home(runs, laid, self.plan) if piece.cell.repeat == 0 else {}
        more |= first
        mean = mean_row(rows)["metrics"] if rows else {}
        return Judged({"metrics": self._with_all(mean, found.metrics)}, own, more)

    def _at_home(self, laid: Laid) -> bool:
        """Return whether all arms are compared on each site's own blind rows (`Plan.at_home`).

        Models of single sites are then evaluated there alone, as over a network; and ranks of all
        arms are within sites.
        """
        return laid.own_site is not None and self.plan.at_home

    def _within(self, piece: Piece, laid: Laid, run: Run) -> Mapping[str, float | None]:
        """Return a common model's metrics of ranks within each site's own blind rows."""
        sites = [*map(str, np.unique(np.asarray(laid.own_site)))]
        sites = [s for s in sites if s in laid.problem.frames]
        return self._found_there(piece, dict.fromkeys(sites, run)).within

    def _found_there(self, piece: Piece, runs: Mapping[str, Run | None]) -> Found:
        """Evaluate a model for each site on its own blind rows, by the sums of a network."""
        laid, outcome = self._laid(piece.cell), self._laid(piece.cell).problem.outcome
        steps = asking.of_alone(outcome, self.plan.task, self.plan.metrics)
        hosts = [
            Host(
                site,
                KeptRows(
                    Halves(laid.problem.frames[site], _of(laid, site)),
                    outcome, laid.problem.dictionary, piece.arm.method, self.plan.min_cell,
                    kept=None if run is None else (run.model, run.design),
                ),
                steps,
            )
            for site, run in runs.items()
        ]  # fmt: skip
        return evaluate.JUDGING[self.plan.task].alone(local(hosts), self.plan)

    def _first_model(
        self, piece: Piece, laid: Laid, judge: evaluate.Judge
    ) -> dict[str, list[dict[str, Any]]]:
        """Return metrics of a model of the coordinator's first rows alone, on all blind rows.

        It is fitted once a repeat, with the settings of the first arm over sites.
        """
        first = next(i for i, arm in enumerate(self.plan.arms) if arm.scope == "sites")
        problem = laid.problem.coordinators
        if problem is None or (piece.cell.arm, piece.cell.scenario) != (first, 0):
            return {}
        method = registry.find(piece.arm.method)
        given = {**piece.arm.configured(self.chosen(piece.cell)), **method.settings.alone}
        seed = seed_of(self.plan, piece.cell.repeat)
        table = piece.arm.preprocess
        run = fit_alone(problem, lambda p: fit_once(p, method, given, table, seed, explained=False))
        if run is None:
            return {"first_model": []}
        mine = judge.taught(problem)
        found = mine.metrics(mine.predicted(run, self.plan.metrics), self.plan.metrics)
        if self._at_home(laid):
            found = {**found, **self._within(piece, laid, run)}
        return {"first_model": [{"metric": m, "value": v} for m, v in found.items()]}

    def _alone(self, piece: Piece) -> dict[str, Any]:
        """Fit each site's own rows, and evaluate its model on all blind rows."""
        laid, wanted = self._laid(piece.cell), self.plan.metrics
        chosen, weights = self.chosen(piece.cell), self.drawn[:, laid.test_rows]
        seed = seed_of(self.plan, piece.cell.repeat)
        judge = evaluate.judge_of(laid.problem, laid.test, seed, self.horizon)
        rows: list[dict[str, Any]] = []
        runs: dict[str, Run | None] = {}
        draws: list[dict[str, Array]] = []
        labels: dict[str, list[int]] = {}
        names = sorted(laid.problem.frames)
        for i, site in enumerate(names):
            problem = laid.problem.on({site: laid.problem.frames[site]})
            learnt = any("note" not in row for row in rows)
            made = fit_alone(
                problem,
                lambda problem, i=i: self._fitted(piece, problem, chosen, i, len(names)),
                needed=i == len(names) - 1 and not learnt,
            )
            runs[site] = None if made is None else made.run
            if made is None:
                once = np.ones((1, len(laid.test)))  # no model: counts as chance
                rows.append(no_model_row(site, judge.unlearnt(once, wanted), wanted))
                draws.append(no_model_draws(len(weights), judge.unlearnt(weights, wanted), wanted))
                continue
            mine = judge.taught(problem)
            said = mine.predicted(made.run, wanted)
            metrics = mine.metrics(said, wanted)
            if laid.own_site is not None:
                metrics |= self._own(made.run, mine, laid, site)
            if isinstance(said, Grouped):
                labels[site] = said.labels.tolist()
            rows.append(row_of(made.run, site, metrics, made.seconds, made.up, made.down))
            draws.append(mine.draws(said, weights, wanted))
        if self._at_home(laid):
            return {"rows": self._lower(piece, rows, runs), "history": []}
        rows.append(mean_row(rows))
        found = {"rows": rows, "history": [], "draws": mean_draws(draws)}
        return found | ({LABELS: labels} if labels else {})

    def _lower(
        self, piece: Piece, rows: list[dict[str, Any]], runs: Mapping[str, Run | None]
    ) -> list[dict[str, Any]]:
        """Return the rows of isolated models that are evaluated at their sites."""
        found, mean = self._found_there(piece, runs), mean_row(rows)
        for row in () if self.plan.local else rows:
            row["metrics"] = {k: v for k, v in row["metrics"].items() if k.endswith("_own")}
        return [*rows, mean | {"metrics": self._with_all(mean["metrics"], found.metrics)}]

    def _with_all(
        self, on_all: Mapping[str, float | None], found: Mapping[str, float | None]
    ) -> dict[str, float | None]:
        """Return metrics of sites' own rows, and with `evaluate.local` those of all rows.

        Parameters
        ----------
        on_all : of a model, or the mean over sites of their own, on the rows of all sites.
        """
        named = {f"{m}_all": on_all.get(m) for m in self.plan.metrics if self.plan.local}
        return {**found, **named}

    def _own(
        self, run: Run, judge: evaluate.Judge, laid: Laid, site: str
    ) -> dict[str, float | None]:
        """Return metrics on one site's own test rows; None if these are too few.

        They are those of the study with `evaluate.local`, else the leading one.
        """
        wanted = self.plan.metrics if self.plan.local else (judge.leading,)
        some = judge.on(np.asarray(laid.own_site).astype(str) == site)
        found = some.metrics(some.predicted(run, wanted), wanted) if some.can_rank else {}
        return {f"{metric}_own": found.get(metric) for metric in wanted}


def _of(laid: Laid, site: str) -> pd.DataFrame:
    """Return one site's blind rows."""
    mask = np.asarray(laid.own_site).astype(str) == site
    return laid.test[mask].reset_index(drop=True)


def _observer(on_progress: OnProgress, part: int, parts: int) -> Callable[[Progress], None]:
    """Return an observer that reports a run's calls as (rounds done, rounds in all)."""
    last = [0.0]

    def observe(progress: Progress) -> None:
        now = time.monotonic()
        if now - last[0] > 0.2 and progress.rounds:
            last[0] = now
            on_progress(part * progress.rounds + progress.round + 1, parts * progress.rounds)

    return observe
