"""Does the pieces of a study: a tuning, a fit with its judging, a final fit to all rows.

`local_fits` has those of tables in this process, `network_fits` those over sites that hold
their rows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import FedcohortError, Row, registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.results import saved
from fedcohort.study.results.kept import left_out_of, model_facts, notes_of
from fedcohort.study.results.missing import stretches, waits
from fedcohort.study.results.rows import row_of
from fedcohort.study.run import private, tune
from fedcohort.study.run.engine import Run, Trail
from fedcohort.study.run.pieces import JUDGED, Cell, Shelf, defect, has_final, tagged
from fedcohort.study.run.warnings import told_if_crowded, told_if_drowned

#: Called with (rounds done, rounds in all).
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Piece:
    """A cell that is being done, and what it gathers on the way.

    Attributes
    ----------
    lines : the ledger's lines so far, which are kept if it fails.
    missing : which replies its calls lacked so far, as results.json has it.
    waited : for how many rounds its calls waited for sites so far, as results.json has it.
    """

    cell: Cell
    arm: Arm
    on_progress: OnProgress = lambda done, of: None
    lines: list[str] = field(default_factory=list[str])
    missing: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    waited: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class Fitted(NamedTuple):
    """A fit over all rows of an arm, seconds that it took, and bytes from and to the sites."""

    run: Run
    seconds: float
    up: int
    down: int


@dataclass(frozen=True)
class Judged:
    """What judging one model gave.

    Attributes
    ----------
    row : `metrics`, and `within` where pairs of one site alone are told as well.
    sites : rows of single sites.
    more : by key of results.json, lists of rows.
    """

    row: Mapping[str, Any]
    sites: list[dict[str, Any]]
    more: Mapping[str, Any]


class Fits(Shelf, ABC):
    """Does pieces, in a folder that holds their results.

    Parameters
    ----------
    work : the run's folder for unfinished business.
    models : where models are written, of arms that learn from all sites, of the first repeat until
        the final one is there: those of the bounds tell of single hospitals, or of all rows in one
        place, and are not kept.
    known : the dictionary that goes with a model.
    horizon : the time for which risks are told, in the unit of the outcome; None without.
    noise : "seed" or "system": where noise of private fits comes from.
    debug : let an error that nobody foresaw end the run.
    """

    def __init__(
        self, plan: Plan, work: Path, models: Path, known: Dictionary, horizon: float | None,
        *, noise: str, debug: bool,
    ):  # fmt: skip
        super().__init__(plan, work)
        self._models = models
        self._dictionary = known
        self.horizon = horizon
        self._noise = noise
        self.debug = debug

    def do(self, cell: Cell, on_progress: OnProgress = lambda done, of: None) -> None:
        """Do one cell and write what it gave; a method's own failure is a result as well.

        So is a defect, that what is finished outlives it. A full disk or memory is not, nor is a
        lost worker: the cell can be done later.

        Raises
        ------
        FedcohortError : the run cannot go on now, and can be resumed.
        """
        piece = Piece(cell, self.plan.arms[cell.arm], on_progress)
        began = time.perf_counter()
        found: dict[str, Any]
        try:
            work = {"tune": self._tune, "fit": self._fit, "final": self._final}[cell.kind]
            found = work(piece) | {"status": "done"}
        except (OSError, MemoryError):
            raise
        except FedcohortError as error:
            found = {"status": f"failed: {self._why(piece, error)}"}
        except Exception as error:
            if self.debug:
                raise
            found = {"status": f"failed: {defect(error)}"}
        found |= {"missing": piece.missing, "waited": piece.waited}
        found["seconds"] = round(time.perf_counter() - began, 3)
        self.keep(cell.name, found, piece.lines)
        self._clear(piece)

    # where rows are -------------------------------------------------------------------

    @abstractmethod
    def _why(self, piece: Piece, error: FedcohortError) -> str:
        """Return why a piece failed, or raise the error where it can be done later."""

    @abstractmethod
    def _clear(self, piece: Piece) -> None:
        """Remove the journals of a piece that is done."""

    @abstractmethod
    def _searched(self, piece: Piece) -> tune.Tuned:
        """Choose an arm's settings on training rows."""

    @abstractmethod
    def _whole(self, piece: Piece, chosen: Mapping[str, Any]) -> Fitted:
        """Fit an arm to all rows that the piece is over."""

    @abstractmethod
    def _judged(self, piece: Piece, run: Run) -> Judged:
        """Judge a model of all sites on the blind rows."""

    @abstractmethod
    def _alone(self, piece: Piece) -> dict[str, Any]:
        """Let each site fit a model of its own, and judge these."""

    @abstractmethod
    def _rows_by_site(self, piece: Piece) -> list[int | None]:
        """Return the training rows of each site; None where they are not shown."""

    # what is done ---------------------------------------------------------------------

    def _tune(self, piece: Piece) -> dict[str, Any]:
        best = self._searched(piece)
        tried = [{"settings": s, "score": c} for s, c in best.tried]
        return {"chosen": best.chosen, "score": best.score, "tried": tried}

    def _fit(self, piece: Piece) -> dict[str, Any]:
        """Fit an arm and judge it."""
        cell, arm = piece.cell, piece.arm
        if arm.scope == "isolated":
            return self._alone(piece)
        first = cell.repeat == 0 and cell.scenario == 0
        chosen, rows = self.chosen(cell), self._rows_by_site(piece)
        dp = self.plan.privacy.dp if first else None  # it is said once
        noise = told_if_drowned(arm, chosen, dp, rows)
        made = self._whole(piece, chosen)
        judged = self._judged(piece, made.run)
        row = row_of(made.run, None, {}, made.seconds, made.up, made.down) | dict(judged.row)
        history: list[Row] = [{"site": None, **row} for row in made.run.history]
        found = {"rows": [row, *judged.sites], "history": history}
        found |= self._facts(piece, made.run, chosen) | dict(judged.more)
        if first:
            found |= left_out_of(made.run, arm, self.plan.min_cell, self.horizon)
            found["crowded"] = told_if_crowded(made.run, arm, chosen, rows)
            found["drowned"] = noise
            self._save(piece, made.run, chosen, arm.name)
            if has_final(self.plan, arm):
                self._save(piece, made.run, chosen, f"{arm.name}/{JUDGED}")
        return found

    def _final(self, piece: Piece) -> dict[str, Any]:
        """Fit an arm to all rows, and keep the model in place of the first repeat's."""
        chosen = self.chosen(piece.cell)
        made = self._whole(piece, chosen)
        found = row_of(made.run, None, {}, made.seconds, made.up, made.down)
        found |= self._facts(piece, made.run, chosen)
        found |= left_out_of(made.run, piece.arm, self.plan.min_cell, self.horizon)
        self._save(piece, made.run, chosen, piece.arm.name)
        return found

    def _tagged(self, piece: Piece, lines: list[str], phases: Mapping[int, str]) -> list[str]:
        scenario = self.plan.scenarios[piece.cell.scenario].name
        return tagged(lines, piece.arm.name, scenario, piece.cell.repeat, phases)

    def _heed(self, piece: Piece, trail: Trail, phases: Mapping[int, str], last: str) -> None:
        """Keep what left the sites in a phase, and which were missing from which of its calls."""
        piece.lines.extend(self._tagged(piece, trail.ledger.lines, phases))
        piece.missing.extend(stretches(trail.missing, trail.rejected, last))
        piece.waited.extend(waits(trail.waited, last))

    def _facts(self, piece: Piece, run: Run, chosen: Mapping[str, Any]) -> dict[str, list[Row]]:
        """Return coefficients, what else the model is, and the check of hazards."""
        method, kept = registry.find(piece.arm.method), piece.arm.scope == "sites"
        return model_facts(method, run, piece.arm.configured(chosen), self._dictionary, kept)

    def _save(self, piece: Piece, run: Run, chosen: Mapping[str, Any], folder: str) -> None:
        """Write a model of all sites: the first repeat's, or that of all rows."""
        arm = piece.arm
        if arm.scope != "sites":
            return
        notes = notes_of(self.plan, piece.cell, chosen, self.horizon)
        if (dp := self.plan.privacy.dp) is not None:
            method = registry.find(arm.method)
            config = method.configure(arm.configured())
            notes["privacy"] = private.told(method, config, dp, self._noise)
        parts = saved.Saved.of(arm.method, run.model, run.design, self._dictionary, notes)
        saved.write(self._models / folder, parts)
