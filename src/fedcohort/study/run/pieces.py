"""The pieces of a study, and the folder that keeps their results.

A piece is one arm in one scenario and repeat, or one tuning: a pure function of the study and its
name. Its result is one JSON file, written when it is complete, beside its ledger lines.

A final fit is one more fit of an arm, to all rows, after its evaluation: for use, without metrics.
Its rows lie over the sites as in the first scenario; its settings are those tuned on the first
repeat.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcohort import version
from fedcohort.protocol import FedcohortError, registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.second_consent import ranks


@dataclass(frozen=True)
class Cell:
    """One piece of a study.

    Attributes
    ----------
    kind : "rank", "tune", "fit", or "final": a fit to all rows.
    scenario : index into the plan's scenarios; of the centralised bound the first with the same
        rows, `Plan.pooled_in`.
    repeat : number of the split into training and test rows; `FINAL` for a final fit.
    arm : index into the plan's arms.
    """

    kind: str
    scenario: int
    repeat: int
    arm: int

    @property
    def name(self) -> str:
        """A name that is unique in the study and valid as a file name."""
        return f"{self.kind}-s{self.scenario:02d}-r{self.repeat:04d}-a{self.arm:02d}"


def cells_of(plan: Plan) -> tuple[list[Cell], list[Cell], list[Cell]]:
    """Return the tunings, the fits that follow them, and the final fits, in a fixed order."""
    tunings: list[Cell] = []
    fits: list[Cell] = []
    each = bool(plan.tune.get("each_repeat"))
    for repeat in range(plan.repeats):
        for s in range(len(plan.scenarios)):
            for a, arm in enumerate(plan.arms):
                if arm.scope == "centralised" and plan.pooled_in(s) != s:
                    continue
                if plan.is_tuned(arm) and (each or not repeat):
                    tunings.append(Cell("tune", s, repeat, a))
                fits.append(Cell("fit", s, repeat, a))
    finals = [Cell("final", 0, FINAL, a) for a, arm in enumerate(plan.arms) if has_final(plan, arm)]
    return tunings, fits, finals


def rankings_of(plan: Plan) -> list[Cell]:
    """Return the rankings of sites before a second consent, in the first repeat."""
    if plan.again is None:
        return []
    return [
        Cell("rank", s, 0, a)
        for s, scenario in enumerate(plan.scenarios)
        for a, arm in enumerate(plan.arms)
        if ranks(arm) and not scenario.after_ranking
    ]


def tuning_of(plan: Plan, cell: Cell) -> Cell | None:
    """Return the tuning that chose a fit's settings; None if the arm is not tuned."""
    if not plan.is_tuned(plan.arms[cell.arm]):
        return None
    repeat = cell.repeat if plan.tune.get("each_repeat") and cell.kind != "final" else 0
    return Cell("tune", cell.scenario, repeat, cell.arm)


class Shelf:
    """The finished pieces of a study."""

    def __init__(self, plan: Plan, work: Path):
        self.plan = plan
        self._cells = work / "cells"

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """Return a cell's result, or None if it is not complete."""
        return self.note(cell.name)

    def note(self, name: str) -> dict[str, Any] | None:
        """Return the result of the piece `name`, or None if it is not complete."""
        path = self._cells / f"{name}.json"
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except ValueError:  # damaged file: the piece is done again
            return None

    def places(self, scenario: int) -> dict[str, list[dict[str, Any]]]:
        """Return each site's place in the ranking of each arm, by site; the arm's name is in it.

        Raises
        ------
        FedcohortError : a ranking failed.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for cell in (c for c in rankings_of(self.plan) if c.scenario == scenario):
            made, arm = self.result(cell) or {}, self.plan.arms[cell.arm].name
            if "ranking" not in made:
                why = made.get("status", "not run")
                raise FedcohortError(f"the ranking of arm {arm!r} {why}")
            for site, place in made["ranking"].items():
                found.setdefault(site, []).append({"arm": arm, **place})
        return found

    def ledger(self, cell: Cell) -> Path:
        """Return the file with a cell's ledger lines."""
        return self.lines(cell.name)

    def lines(self, name: str) -> Path:
        """Return the file with the ledger lines of the piece `name`."""
        return self._cells / f"{name}.ledger"

    def keep(self, name: str, found: Mapping[str, Any], lines: list[str]) -> None:
        """Write a piece's result and ledger lines, each file completely or not at all."""
        self._cells.mkdir(parents=True, exist_ok=True)
        write_text(self.lines(name), "".join(lines))
        write_text(self._cells / f"{name}.json", json.dumps(found, allow_nan=False))

    def chosen(self, cell: Cell) -> Mapping[str, Any]:
        """Return the tuned settings of a fit; nothing for an arm that is not tuned.

        Raises
        ------
        FedcohortError : its tuning failed.
        """
        tuning = tuning_of(self.plan, cell)
        if tuning is None:
            return {}
        found = self.result(tuning) or {}
        if "chosen" not in found:
            raise FedcohortError("its tuning failed; " + found.get("status", ""))
        return found["chosen"]


def defect(error: Exception) -> str:
    """Return type and place of an unexpected error, without its text (it may hold patient data)."""
    package = Path(version.__file__).parent
    places = [
        f"{Path(frame.filename).relative_to(package)}, line {frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(package)
    ]
    return (
        f"an unexpected {type(error).__name__} in {places[-1]}; this is a defect of fedcohort: "
        f"please report it. Run again with --debug for the full error."
    )


def tagged(
    lines: list[str], arm: str, scenario: str | None, repeat: int, phases: Mapping[int, str]
) -> list[str]:
    """Put the study's names in front of ledger lines; `phases` begin at line numbers.

    The repeat of a final fit is "final".
    """
    number = '"final"' if repeat == FINAL else repeat
    head = f'{{"arm":{json.dumps(arm)},"scenario":{json.dumps(scenario)},"repeat":{number},'
    out: list[str] = []
    phase = ""
    for i, line in enumerate(lines):
        phase = phases.get(i, phase)
        out.append(f'{head}"phase":"{phase}",{line[1:]}\n')
    return out


def write_text(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)


#: The repeat of a final fit; no study has so many repeats.
FINAL = 1_000_000
#: Facts of the final model, as of a repeat's.
TOLD = (
    "coefficients", "parameters", "splits", "proportional_hazards", "proportional_odds", "pooled",
    "dropped", "unknown_at_horizon", "maps", "explained",
)  # fmt: skip
#: Status and cost of a fit.
SPENT = ("status", "rounds", "seconds", "bytes_up", "bytes_down", "epsilon")
#: Subfolder of the first repeat's model, which was evaluated, beside the final model.
JUDGED = "first-repeat"


def has_final(plan: Plan, arm: Arm) -> bool:
    """Return whether an arm is fitted to all rows at the end.

    That holds for arms over sites, and for the pooled bound if it has coefficients: they stand
    beside those of the other arms.
    """
    if not plan.final or arm.scope == "isolated":
        return False
    return arm.scope == "sites" or "summary" in registry.find(arm.method).gives


def row_of_final(plan: Plan, arm: Arm, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a final fit in results.json: its cost, and facts of the model."""
    row = {"arm": arm.name, "method": arm.method, "scenario": plan.scenarios[0].name}
    row |= {key: found.get(key) for key in SPENT}
    return row | {key: found.get(key) or [] for key in TOLD}
