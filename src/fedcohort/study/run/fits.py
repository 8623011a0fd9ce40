"""Does the pieces of a study: a tuning, a fit with its evaluation, a final fit to all rows.

`local_fits` has those for tables in this process, `network_fits` those for sites that keep their
rows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import FedcohortError, Row, registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.second_consent import ranking_of
from fedcohort.study.results import forgetting, saved
from fedcohort.study.results.kept import left_out_of, model_facts, notes_of
from fedcohort.study.results.missing import stretches, waits
from fedcohort.study.results.own_models import OF_SITES, folder_of
from fedcohort.study.results.rows import row_of
from fedcohort.study.run import private, tune
from fedcohort.study.run.engine import Run, Trail
from fedcohort.study.run.pieces import FINAL, JUDGED, Cell, Shelf, defect, has_final, tagged
from fedcohort.study.run.warnings import crowded_notes, drowned_notes

#: Called with (rounds done, rounds in all).
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Piece:
    """A cell in progress.

    Attributes
    ----------
    lines : ledger lines so far; kept if the piece fails.
    missing, waited : missing replies, and rounds of waiting for sites, as in results.json.
    """

    cell: Cell
    arm: Arm
    on_progress: OnProgress = lambda done, of: None
    lines: list[str] = field(default_factory=list[str])
    missing: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    waited: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def explained(self) -> bool:
        """Whether the report shows this model, so that its fit explains it."""
        return self.arm.scope == "sites" and self.cell.repeat in (0, FINAL)


class Fitted(NamedTuple):
    """One fit of an arm, with its time in seconds and the bytes sent from the sites and to them."""

    run: Run
    seconds: float
    up: int
    down: int


@dataclass(frozen=True)
class Judged:
    """Evaluation of one model.

    Attributes
    ----------
    row : `metrics`; also `within` if pairs within one site are reported too.
    sites : rows of single sites.
    more : lists of rows, by key of results.json.
    """

    row: Mapping[str, Any]
    sites: list[dict[str, Any]]
    more: Mapping[str, Any]


class Fits(Shelf, ABC):
    """Does pieces, in a folder that keeps their results.

    Parameters
    ----------
    work : folder of the unfinished run.
    models : folder of models over sites: the first repeat's, then the final one. Models of the
        bounds are not kept: they describe single hospitals or pooled rows.
    known : dictionary that is saved with a model.
    horizon : time of predicted risks, in the unit of the outcome; None without.
    noise : source of the noise of private fits, "seed" or "system".
    debug : let an unexpected error end the run.
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
        """Do one cell and write its result.

        A method's own failure is a result. An unexpected error fails only this cell; finished cells
        are kept. A full disk, lack of memory or a lost worker is no result: the cell can be done
        later.

        Raises
        ------
        FedcohortError : the run cannot go on now, and can be resumed.
        """
        piece = Piece(cell, self.plan.arms[cell.arm], on_progress)
        began = time.perf_counter()
        found: dict[str, Any]
        try:
            work = {
                "rank": self._rank, "tune": self._tune, "fit": self._fit, "final": self._final,
            }[cell.kind]  # fmt: skip
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
        """Return why a piece failed; raise the error if the piece can be done later."""

    @abstractmethod
    def _clear(self, piece: Piece) -> None:
        """Remove the journals of a finished piece."""

    @abstractmethod
    def _searched(self, piece: Piece) -> tune.Tuned:
        """Choose an arm's settings on training rows."""

    @abstractmethod
    def _fit_all(self, piece: Piece, chosen: Mapping[str, Any]) -> Fitted:
        """Fit an arm to all rows of the piece."""

    @abstractmethod
    def _judged(self, piece: Piece, run: Run) -> Judged:
        """Evaluate a model of all sites on the blind rows."""

    @abstractmethod
    def _alone(self, piece: Piece) -> dict[str, Any]:
        """Let each site fit its own model, and evaluate these models."""

    @abstractmethod
    def _rows_by_site(self, piece: Piece) -> list[int | None]:
        """Return the training rows of each site; None if hidden."""

    @abstractmethod
    def _names(self, piece: Piece) -> Sequence[str]:
        """Return the names of the piece's sites."""

    # what is done ---------------------------------------------------------------------

    def _rank(self, piece: Piece) -> dict[str, Any]:
        """Rank the sites, and train nothing together."""
        made = self._fit_all(piece, ranking_of(piece.arm).settings)
        return {"ranking": {site: made.run.model.place_of(site) for site in self._names(piece)}}

    def _tune(self, piece: Piece) -> dict[str, Any]:
        best = self._searched(piece)
        tried = [{"settings": s, "score": c} for s, c in best.tried]
        return {"chosen": best.chosen, "score": best.score, "tried": tried}

    def _fit(self, piece: Piece) -> dict[str, Any]:
        cell, arm = piece.cell, piece.arm
        if arm.scope == "isolated":
            return self._alone(piece)
        first = cell.repeat == 0 and cell.scenario == 0
        chosen, rows = self.chosen(cell), self._rows_by_site(piece)
        dp = self.plan.privacy.dp if first else None  # one note for all repeats
        noise = drowned_notes(arm, chosen, dp, rows)
        made = self._fit_all(piece, chosen)
        judged = self._judged(piece, made.run)
        row = row_of(made.run, None, {}, made.seconds, made.up, made.down) | dict(judged.row)
        history: list[Row] = [{"site": None, **row} for row in made.run.history]
        found = {"rows": [row, *judged.sites], "history": history}
        found |= self._facts(piece, made.run, chosen) | dict(judged.more)
        if first:
            found |= left_out_of(made.run, arm, self.plan.min_cell, self.horizon)
            found["crowded"] = crowded_notes(made.run, arm, chosen, rows)
            found["drowned"] = noise
            self._save(piece, made.run, chosen, arm.name)
            if has_final(self.plan, arm):
                self._save(piece, made.run, chosen, f"{arm.name}/{JUDGED}")
        return found

    def _final(self, piece: Piece) -> dict[str, Any]:
        """Fit an arm to all rows, and keep the model in place of the first repeat's."""
        chosen = self.chosen(piece.cell)
        made = self._fit_all(piece, chosen)
        found = row_of(made.run, None, {}, made.seconds, made.up, made.down)
        found |= self._facts(piece, made.run, chosen)
        found |= left_out_of(made.run, piece.arm, self.plan.min_cell, self.horizon)
        self._save(piece, made.run, chosen, piece.arm.name)
        return found

    def _tagged(self, piece: Piece, lines: list[str], phases: Mapping[int, str]) -> list[str]:
        scenario = self.plan.scenarios[piece.cell.scenario].name
        return tagged(lines, piece.arm.name, scenario, piece.cell.repeat, phases)

    def _keep_trail(self, piece: Piece, trail: Trail, phases: Mapping[int, str], last: str) -> None:
        """Keep the ledger lines and the missing replies of a phase."""
        if piece.cell.kind == "rank":  # nothing is fitted together
            phases = {n: "rank" if phase == "fit" else phase for n, phase in phases.items()}
            last = "rank"
        piece.lines.extend(self._tagged(piece, trail.ledger.lines, phases))
        piece.missing.extend(stretches(trail.missing, trail.rejected, last))
        piece.waited.extend(waits(trail.waited, last))

    def _facts(self, piece: Piece, run: Run, chosen: Mapping[str, Any]) -> dict[str, list[Row]]:
        """Return coefficients, other facts of the model, and tests of proportional effects."""
        method, kept = registry.find(piece.arm.method), piece.arm.scope == "sites"
        return model_facts(method, run, piece.arm.configured(chosen), self._dictionary, kept)

    def _save(self, piece: Piece, run: Run, chosen: Mapping[str, Any], folder: str) -> None:
        """Write a model of all sites: the first repeat's or the final one."""
        arm = piece.arm
        if arm.scope != "sites":
            return
        notes = notes_of(self.plan, piece.cell, chosen, self.horizon)
        if (dp := self.plan.privacy.dp) is not None:
            method = registry.find(arm.method)
            config = method.configure(arm.configured())
            notes["privacy"] = private.noise_note(method, config, dp, self._noise)
        for site, model in run.own.items():
            about = {**notes, "site": site}
            own = saved.Saved.of(arm.method, model, run.design, self._dictionary, about)
            saved.write(self._models / folder / OF_SITES / folder_of(site), own)
        parts = saved.Saved.of(arm.method, run.model, run.design, self._dictionary, notes)
        saved.write(self._models / folder, parts)
        if run.kept:
            forgetting.keep(self._models.parent, folder, run.kept)
