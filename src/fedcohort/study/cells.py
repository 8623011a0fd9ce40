"""The pieces that a study falls into: one arm in one scenario and repeat, or one tuning.

A piece is a pure function of the study and its name. Its outcome is one JSON file, written when
it is complete; until then, its journals let a killed piece go on where it was.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import fedcohort
from fedcohort.arrays import Array
from fedcohort.protocol import (
    FedcohortError,
    InputError,
    NotConverged,
    NothingToLearn,
    ReplyRejected,
    SingularInformation,
    SiteUnavailable,
    registry,
)
from fedcohort.protocol.errors import QuorumLost
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.coordinator import Progress
from fedcohort.study import evaluate, private, saved, tune
from fedcohort.study.arms import Arm
from fedcohort.study.cautions import told_if_crowded, told_if_drowned
from fedcohort.study.clusters import cluster_rows
from fedcohort.study.details import details
from fedcohort.study.engine import Problem, Run, Trail, fit_once
from fedcohort.study.final import FINAL, JUDGED, has_final
from fedcohort.study.judges.clusters import Clusters, Grouped
from fedcohort.study.judges.latent import Latent
from fedcohort.study.kept import left_out_of, model_facts, notes_of
from fedcohort.study.latent_rows import latent_rows
from fedcohort.study.layout import Laid, Table, drawn, lay_out, seed_of
from fedcohort.study.missing import drawn_away, stretches, waits
from fedcohort.study.plan import Plan, Scenario
from fedcohort.study.rows import (
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

#: Called with (rounds done, rounds in all).
Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Cell:
    """One piece of a study.

    Attributes
    ----------
    kind : "tune", "fit", or "final": a fit to all rows.
    scenario : index into the plan's scenarios. The centralised bound does not depend on it.
    repeat : number of the split into training and test rows; of a final fit `final.FINAL`.
    arm : index into the plan's arms.
    """

    kind: str
    scenario: int
    repeat: int
    arm: int

    @property
    def name(self) -> str:
        """A name that is unique in the study and possible as a file's."""
        return f"{self.kind}-s{self.scenario:02d}-r{self.repeat:04d}-a{self.arm:02d}"


def cells_of(plan: Plan) -> tuple[list[Cell], list[Cell], list[Cell]]:
    """Return the tunings, the fits that follow them, and the final fits, in a fixed order."""
    tunings: list[Cell] = []
    fits: list[Cell] = []
    each = bool(plan.tune.get("each_repeat"))
    for repeat in range(plan.repeats):
        for s in range(len(plan.scenarios)):
            for a, arm in enumerate(plan.arms):
                if arm.scope == "centralised" and s:
                    continue
                if plan.is_tuned(arm) and (each or not repeat):
                    tunings.append(Cell("tune", s, repeat, a))
                fits.append(Cell("fit", s, repeat, a))
    finals = [Cell("final", 0, FINAL, a) for a, arm in enumerate(plan.arms) if has_final(plan, arm)]
    return tunings, fits, finals


def tuning_of(plan: Plan, cell: Cell) -> Cell | None:
    """Return the tuning whose choice a fit uses."""
    if not plan.is_tuned(plan.arms[cell.arm]):
        return None
    repeat = cell.repeat if plan.tune.get("each_repeat") and cell.kind != "final" else 0
    return Cell("tune", cell.scenario, repeat, cell.arm)


@dataclass(frozen=True)
class _Job:
    """A cell that is being done.

    Attributes
    ----------
    laid : its sites and test rows.
    scratch : where its journals are.
    lines : the ledger's lines so far, which are kept if it fails.
    missing : which replies its calls lacked so far, as results.json has it.
    waited : for how many rounds its calls waited for sites so far, as results.json has it.
    """

    cell: Cell
    arm: Arm
    scenario: Scenario
    laid: Laid
    scratch: Path
    lines: list[str]
    missing: list[dict[str, Any]]
    waited: list[dict[str, Any]]
    tell: Tell


class Workshop:
    """Does cells, in a folder that holds their results and journals.

    Parameters
    ----------
    work : the run's folder for unfinished business.
    models : where models are written, of arms that learn from all sites, of the first repeat until
        the final one is there: those of the bounds tell of single hospitals, or of all rows in one
        place, and are not kept.
    debug : let an error that nobody foresaw end the run.
    runtime : how the sites are reached; see `Problem`.
    """

    def __init__(
        self,
        plan: Plan,
        table: Table,
        work: Path,
        models: Path,
        debug: bool = False,
        runtime: str = "local",
    ):
        self.plan = plan
        self._table = table
        self._cells = work / "cells"
        self._scratch = work / "scratch"
        self._models = models
        self.debug = debug
        self.runtime = runtime
        self.workers = 1

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """Return what a cell gave, or None if it is not complete."""
        path = self._cells / f"{cell.name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def ledger(self, cell: Cell) -> Path:
        """Return where the ledger's lines of a cell are."""
        return self._cells / f"{cell.name}.ledger"

    def do(self, cell: Cell, tell: Tell) -> None:
        """Do one cell and write what it gave; a method's own failure is a result as well.

        So is a defect, that what is finished outlives it. A full disk or memory is not, nor is a
        lost worker: the cell can be done later. Sites that a study's `availability` takes away are
        a result; those of other processes that did not answer are none, and the cell goes on with
        the call that failed, or begins anew where its program could not go on. Replies that were
        not fit, as of a learning rate that is too high, would not be another time either.

        Raises
        ------
        SiteUnavailable : too few sites of other processes answered; the run can be resumed.
        """
        plan = self.plan
        arm, scenario = plan.arms[cell.arm], plan.scenarios[cell.scenario]
        scratch = self._scratch / cell.name
        scratch.mkdir(parents=True, exist_ok=True)
        self._cells.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        lines: list[str] = []
        missing: list[dict[str, Any]] = []
        waited: list[dict[str, Any]] = []
        found: dict[str, Any]
        try:
            laid = self._lay_out(scenario, cell.repeat)
            work = {"tune": self._tune, "fit": self._fit, "final": self._final}[cell.kind]
            found = work(_Job(cell, arm, scenario, laid, scratch, lines, missing, waited, tell))
            found["status"] = "done"
        except (OSError, MemoryError):
            raise
        except SiteUnavailable as error:
            came = isinstance(error, ReplyRejected)
            if self.runtime != "local" and not came:
                if not isinstance(error, QuorumLost):
                    shutil.rmtree(scratch, ignore_errors=True)
                raise
            drawn = plan.availability is not None and not came
            why = drawn_away(error) if drawn else str(error)
            found = {"status": f"failed: {why}"}
        except FedcohortError as error:
            found = {"status": f"failed: {error}"}
        except Exception as error:
            if self.debug:
                raise
            found = {"status": f"failed: {defect(error)}"}
        found |= {"missing": missing, "waited": waited}
        found["seconds"] = round(time.perf_counter() - began, 3)
        write_text(self.ledger(cell), "".join(lines))
        write_text(self._cells / f"{cell.name}.json", json.dumps(found, allow_nan=False))
        shutil.rmtree(scratch, ignore_errors=True)

    def _lay_out(self, scenario: Scenario, repeat: int) -> Laid:
        laid = lay_out(self.plan, self._table, scenario, repeat)
        return replace(
            laid, problem=replace(laid.problem, runtime=self.runtime, workers=self.workers)
        )

    # tuning ---------------------------------------------------------------------------

    def _tune(self, job: _Job) -> dict[str, Any]:
        cell, arm = job.cell, job.arm
        tuner = tune.Tuner(
            job.laid.problem, arm, seed_of(self.plan, cell.repeat), job.scratch, job.tell,
            natural=job.laid.test_site is not None,
        )  # fmt: skip
        try:
            best = tune.search(tuner, arm, self.plan)
        finally:
            if arm.scope == "sites":
                job.lines.extend(_tagged(job, tuner.ledger, {0: "tune"}))
                job.missing.extend(tuner.missing)
                job.waited.extend(waits(tuner.waited, "tune"))
        tried = [{"settings": s, "score": c} for s, c in best.tried]
        return {"chosen": best.chosen, "score": best.score, "tried": tried}

    # fitting --------------------------------------------------------------------------

    def _fit(self, job: _Job) -> dict[str, Any]:
        cell, arm, laid = job.cell, job.arm, job.laid
        chosen = self._chosen(cell)
        seed = seed_of(self.plan, cell.repeat)
        judge = evaluate.judge_of(laid.problem, laid.test, seed, self.horizon)
        parts = _parts(laid.problem, arm.scope)
        first = cell.repeat == 0 and cell.scenario == 0
        rows_by_site = [len(frame) for frame in laid.problem.frames.values()]
        noise = told_if_drowned(arm, chosen, laid.problem.dp, rows_by_site) if first else []
        runs: dict[str, Run] = {}
        weights = self.drawn[:, laid.test_rows]
        draws: list[dict[str, Array]] = []
        rows: list[dict[str, Any]] = []
        history: list[dict[str, Any]] = []
        labels: dict[str, list[int]] = {}

        def unlearnt(own: str) -> None:
            """Count a site as chance: its own rows give no model."""
            wanted, once = self.plan.metrics, np.ones((1, len(laid.test)))
            rows.append(no_model_row(own, judge.unlearnt(once, wanted), wanted))
            known = judge.unlearnt(weights, wanted)
            draws.append(no_model_draws(len(weights), known, wanted))

        for i, (site, problem) in enumerate(parts.items()):
            last = i == len(parts) - 1
            started = time.perf_counter()
            own = site if arm.scope == "isolated" else None
            if own is not None and not judge.can_learn(problem):
                unlearnt(own)
                continue
            try:
                run = self._fitted(job, problem, chosen, i, len(parts))
            except (NothingToLearn, SingularInformation, NotConverged):
                if own is None:
                    raise
                unlearnt(own)
                continue
            except InputError:  # such as more groups than a small hospital's rows can make
                unseen = isinstance(judge, (Clusters, Latent))
                if own is None or not unseen or (last and not runs):
                    raise
                unlearnt(own)
                continue
            runs[site] = run
            mine = evaluate.taught(judge, problem)
            said = mine.predicted(run, self.plan.metrics)
            metrics = mine.metrics(said, self.plan.metrics)
            if own and laid.test_site is not None:
                metrics |= _own(run, mine, laid.test_site, own)
            if isinstance(said, Grouped):
                labels[own or ALL] = said.labels.tolist()
            seconds = time.perf_counter() - started
            rows.append(row_of(run, own, metrics, seconds, *traffic(run, problem, arm.scope)))
            draws.append(mine.draws(said, weights, self.plan.metrics))
            if own is None:
                history += [{"site": None, **row} for row in run.history]
        found: dict[str, Any] = {"rows": rows, "history": history, "draws": mean_draws(draws)}
        if labels:
            found[LABELS] = labels
        if arm.scope == "isolated":
            rows.append(mean_row(rows))
        else:
            run = next(iter(runs.values()))
            rows += self._site_rows(run, judge, laid)
            found |= self._details(cell, run, judge, chosen)
            if first:
                found |= left_out_of(run, arm, self.plan.min_cell, self.horizon)
                found["crowded"] = told_if_crowded(run, arm, chosen, rows_by_site)
                found["drowned"] = noise
            if cell.repeat == 0:
                found["decision"] = judge.decision(run)
                found |= details(run, laid, self.plan, seed, self.horizon)
                if isinstance(judge, Clusters):
                    found |= cluster_rows(run, judge, laid, seed, umap=self.plan.umap)
                if isinstance(judge, Latent):
                    found |= latent_rows(registry.find(arm.method), run, judge)
        if arm.scope == "sites" and first:
            self._save(job, runs["all"], chosen, arm.name)
            if has_final(self.plan, arm):
                self._save(job, runs["all"], chosen, f"{arm.name}/{JUDGED}")
        return found

    def _fitted(
        self, job: _Job, problem: Problem, chosen: Mapping[str, Any], part: int, parts: int
    ) -> Run:
        """Fit one of a cell's problems; keep what left the sites, also where the fit fails."""
        arm, kind = job.arm, job.cell.kind
        trail = Trail(Ledger(problem.min_cell))
        try:
            return fit_once(
                problem,
                registry.find(arm.method),
                arm.configured(chosen),
                arm.preprocess,
                seed_of(self.plan, job.cell.repeat),
                journal=job.scratch / f"{part:04d}.journal",
                trail=trail,
                observer=_observer(job.tell, part, parts),
            )
        finally:
            if arm.scope == "sites":
                job.lines.extend(_tagged(job, trail.ledger.lines, trail.phases))
                job.missing.extend(stretches(trail.missing, trail.rejected, kind))
                job.waited.extend(waits(trail.waited, kind))

    def _final(self, job: _Job) -> dict[str, Any]:
        """Fit an arm to all rows, and keep the model in place of the first repeat's."""
        arm, began = job.arm, time.perf_counter()
        (problem,) = _parts(job.laid.problem, arm.scope).values()
        chosen = self._chosen(job.cell)
        run = self._fitted(job, problem, chosen, 0, 1)
        seconds = time.perf_counter() - began
        found = row_of(run, None, {}, seconds, *traffic(run, problem, arm.scope))
        kept = arm.scope == "sites"
        method = registry.find(arm.method)
        found |= model_facts(method, run, arm.configured(chosen), self._table.dictionary, kept)
        found |= left_out_of(run, arm, self.plan.min_cell, self.horizon)
        if kept:
            self._save(job, run, chosen, arm.name)
        return found

    def _chosen(self, cell: Cell) -> Mapping[str, Any]:
        tuning = tuning_of(self.plan, cell)
        if tuning is None:
            return {}
        found = self.result(tuning)
        if found is None or "chosen" not in found:
            raise FedcohortError("its tuning failed; " + (found or {}).get("status", ""))
        return found["chosen"]

    @cached_property
    def drawn(self) -> Array:
        """How often each row of the table occurs in each draw of the bootstrap, (B, rows)."""
        return drawn(self.plan, self._table)

    @cached_property
    def horizon(self) -> float | None:
        """The time for which risks are told, in the unit of the outcome; None without."""
        asked, table = self.plan.horizon, self._table
        return None if asked is None else asked.within(table.dictionary, table.outcome)

    def _site_rows(self, run: Run, judge: evaluate.Judge, laid: Laid) -> list[dict[str, Any]]:
        """Return the fit's metrics on each natural site's own test rows."""
        if laid.test_site is None:
            return []
        return [
            {"site": str(s), "metrics": _own(run, judge, laid.test_site, str(s))}
            | spent(run, str(s))
            for s in np.unique(laid.test_site)
        ]

    def _details(
        self, cell: Cell, run: Run, judge: evaluate.Judge, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return coefficients, what else the model is, the check of hazards, and calibration."""
        arm = self.plan.arms[cell.arm]
        found: dict[str, Any] = {"calibration": judge.groups(run)}
        method = registry.find(arm.method)
        kept, settings = arm.scope == "sites", arm.configured(chosen)
        return found | model_facts(method, run, settings, self._table.dictionary, kept)

    def _save(self, job: _Job, run: Run, chosen: Mapping[str, Any], folder: str) -> None:
        """Write a model of the first scenario: the first repeat's, or that of all rows."""
        arm = job.arm
        notes = notes_of(self.plan, job.cell, chosen, self.horizon)
        if arm.scope == "sites" and (dp := self.plan.privacy.dp) is not None:
            method = registry.find(arm.method)
            config = method.configure(arm.configured())
            notes["privacy"] = private.told(method, config, dp, "seed")
        parts = saved.Saved.of(arm.method, run.model, run.design, self._table.dictionary, notes)
        saved.write(self._models / folder, parts)


def defect(error: Exception) -> str:
    """Return what broke and where; not the error's own words, which may be of a patient."""
    package = Path(fedcohort.__file__).parent
    places = [
        f"{Path(frame.filename).relative_to(package)}, line {frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(package)
    ]
    return (
        f"an unexpected {type(error).__name__} in {places[-1]}; this is a defect of fedcohort: "
        f"please report it, and run again with --debug to see all of it."
    )


def _parts(problem: Problem, scope: str) -> dict[str, Problem]:
    """Return the problems that an arm fits: one, or one a site."""
    if scope == "isolated":
        return {s: problem.on({s: frame}) for s, frame in sorted(problem.frames.items())}
    return {"all": problem.pooled() if scope == "centralised" else problem}


def _own(run: Run, judge: evaluate.Judge, test_site: Any, site: str) -> dict[str, float | None]:
    """Return the leading metric on one site's own test rows; None where they are too few."""
    some, wanted = judge.on(np.asarray(test_site).astype(str) == site), (judge.leading,)
    found = some.metrics(some.predicted(run, wanted), wanted) if some.can_rank else {}
    return {f"{judge.leading}_own": found.get(judge.leading)}


def tagged(
    lines: list[str], arm: str, scenario: str, repeat: int, phases: Mapping[int, str]
) -> list[str]:
    """Put the study's names in front of a ledger's lines; `phases` begin at line numbers.

    A final fit has "final" for the number of its repeat.
    """
    number = '"final"' if repeat == FINAL else repeat
    head = f'{{"arm":{json.dumps(arm)},"scenario":{json.dumps(scenario)},"repeat":{number},'
    out: list[str] = []
    phase = ""
    for i, line in enumerate(lines):
        phase = phases.get(i, phase)
        out.append(f'{head}"phase":"{phase}",{line[1:]}\n')
    return out


def _tagged(job: _Job, lines: list[str], phases: Mapping[int, str]) -> list[str]:
    return tagged(lines, job.arm.name, job.scenario.name, job.cell.repeat, phases)


def _observer(tell: Tell, part: int, parts: int) -> Callable[[Progress], None]:
    """Return what turns a run's calls into (rounds done, rounds in all)."""
    last = [0.0]

    def observe(progress: Progress) -> None:
        now = time.monotonic()
        if now - last[0] > 0.2 and progress.rounds:
            last[0] = now
            tell(part * progress.rounds + progress.round + 1, parts * progress.rounds)

    return observe


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is there as a whole or not at all."""
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
