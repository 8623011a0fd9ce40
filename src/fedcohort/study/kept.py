"""What is told of a fitted model in results.json, and what goes with one on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedcohort.data.columns import LevelColumn
from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import Method
from fedcohort.study.arms import Arm
from fedcohort.study.cautions import filled_rows
from fedcohort.study.effects import coefficients, penalty_of
from fedcohort.study.engine import Run
from fedcohort.study.parameters import parameters
from fedcohort.study.plan import Plan
from fedcohort.study.rows import plain

if TYPE_CHECKING:
    from fedcohort.study.cells import Cell


def notes_of(
    plan: Plan, cell: Cell, chosen: Mapping[str, Any], horizon: float | None
) -> dict[str, Any]:
    """Return what goes with a model: whose it is, its rows, horizon and penalty.

    Parameters
    ----------
    chosen : what tuning chose. horizon : of `plan`, in the unit of the outcome.
    """
    arm, scenario = plan.arms[cell.arm], plan.scenarios[cell.scenario].name
    notes: dict[str, Any] = {"study": plan.study, "arm": arm.name, "scenario": scenario}
    if penalty := penalty_of(arm.method, arm.configured(chosen)):
        notes["shrunken"] = penalty
    if plan.horizon is not None:
        notes["horizon"] = {"time": horizon, "text": plan.horizon.text}
    if cell.kind == "final":
        return notes | {"final": True, "trained_on": "all rows"}
    return notes | {"repeat": 0, "trained_on": f"{1 - plan.test_fraction:.0%} of the rows"}


def left_out_of(run: Run, arm: Arm, min_cell: int) -> dict[str, list[dict[str, Any]]]:
    """Return which levels a fit pooled, and which columns it dropped or filled in often."""
    dropped = [{"column": c, "reason": why} for c, why in run.design.dropped.items()]
    return {
        "pooled": pooled_levels(run, arm, min_cell),
        "dropped": dropped,
        "filled": filled_rows(run.design),
    }


def model_facts(
    method: Method, run: Run, settings: Mapping[str, Any], dictionary: Dictionary, kept: bool
) -> dict[str, list[dict[str, Any]]]:
    """Return coefficients, what else a fitted model is, and the check of hazards.

    Parameters
    ----------
    settings : of the fit, with what tuning chose.
    kept : whether the model is written to disk as well.
    """
    found: dict[str, Any] = {}
    if "summary" in method.gives:
        found["coefficients"] = coefficients(method, run, settings, dictionary)
    if "parameters" in method.gives:
        found["parameters"] = parameters(run, dictionary, kept)
    if "others" in method.gives:
        found["others"] = [plain(row) for row in run.model.others()]
    if "proportional_hazards" in method.gives:
        checked = run.model.proportional_hazards()
        found["proportional_hazards"] = [plain(row) for row in checked]
    return found


def pooled_levels(run: Run, arm: Arm, min_cell: int) -> list[dict[str, Any]]:
    """Return which levels of each category became one, and below how many rows levels do."""
    least = max(int(arm.preprocess.get("pool_levels") or 0), min_cell)
    return [
        {"column": c.name, "levels": list(c.pooled), "least": least}
        for c in run.design.columns
        if isinstance(c, LevelColumn) and c.pooled
    ]
