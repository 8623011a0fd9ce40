"""Facts of a fitted model in results.json, and its notes on disk.

The coefficients and the rows of `parameters` determine a model. The upper bound's model is not
kept, since it has all rows in one place; so its baseline and scaling are omitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.prepare import Design, LevelColumn
from fedcohort.protocol import Method, registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import NETWORK, Plan
from fedcohort.study.results.effects import coefficients, penalty_of
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Run
from fedcohort.study.run.warnings import filled_rows

if TYPE_CHECKING:
    from fedcohort.study.run.pieces import Cell
from collections.abc import Iterator

from fedcohort.data.outcome import Survival
from fedcohort.data.prepare import NumberColumn
from fedcohort.protocol import Row
from fedcohort.study.results import saved
from fedcohort.study.results.saved import round_times


def notes_of(
    plan: Plan, cell: Cell, chosen: Mapping[str, Any], horizon: float | None
) -> dict[str, Any]:
    """Return a model's notes: study and arm, training rows, horizon and penalty.

    Parameters
    ----------
    chosen : tuned settings.
    horizon : of `plan`, in the unit of the outcome.
    """
    arm, scenario = plan.arms[cell.arm], plan.scenarios[cell.scenario]
    # over a network the only scenario has another name
    name = scenario.rule if scenario.name == NETWORK else scenario.name
    notes: dict[str, Any] = {"study": plan.study, "arm": arm.name, "scenario": name}
    if penalty := penalty_of(arm.method, arm.configured(chosen)):
        notes["shrunken"] = penalty
    if plan.horizon is not None:
        notes["horizon"] = {"time": horizon, "text": plan.horizon.text}
    notes |= saved.outcome_note(plan.kind, plan.outcome)
    if cell.kind == "final":
        return notes | {"final": True, "trained_on": "all rows"}
    return notes | {"repeat": 0, "trained_on": f"{1 - plan.test_fraction:.0%} of the rows"}


def left_out_of(
    run: Run, arm: Arm, min_cell: int, horizon: float | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return pooled levels, dropped columns, and columns with many imputed values.

    If the model does not reach the study's `horizon`, in the unit of the outcome, also return the
    time until which it predicts survival.
    """
    dropped = [{"column": c, "reason": why} for c, why in run.design.dropped.items()]
    return {
        "pooled": pooled_levels(run, arm, min_cell),
        "dropped": dropped,
        "filled": filled_rows(run.design),
        "unknown_at_horizon": _unknown_at(run, arm, horizon),
    }


def _unknown_at(run: Run, arm: Arm, horizon: float | None) -> list[dict[str, Any]]:
    """Return the last time of predicted survival of each stratum, if before the horizon."""
    if horizon is None or "predict_survival" not in registry.find(arm.method).gives:
        return []
    strata = run.design.strata_levels
    x = np.zeros((max(1, len(strata)), len(run.design.features) + bool(strata)))
    if strata:
        x[:, -1] = np.arange(len(strata))
    known = run.model.known_until(x).tolist()
    names = strata or (None,)
    return [
        {"known_until": float(f"{t:.6g}"), "stratum": name}
        for t, name in zip(known, names, strict=True)
        if t < horizon
    ]


def model_facts(
    method: Method, run: Run, settings: Mapping[str, Any], dictionary: Dictionary, kept: bool
) -> dict[str, list[dict[str, Any]]]:
    """Return coefficients, splits, other facts of a fitted model, and tests of its effects.

    Maps of columns, and means that explain a model, are those of models that are kept.

    Parameters
    ----------
    settings : of the fit, with tuned ones.
    kept : whether the model is written to disk.
    """
    found: dict[str, Any] = {}
    if "summary" in method.gives:
        found["coefficients"] = coefficients(method, run, settings, dictionary)
    if "parameters" in method.gives:
        found["parameters"] = parameters(run, dictionary, kept)
    if "splits" in method.gives:
        found["splits"] = [plain(row) for row in run.model.splits()]
    if "others" in method.gives:
        found["others"] = [plain(row) for row in run.model.others()]
    for test in ("proportional_hazards", "proportional_odds"):
        if test in method.gives:
            found[test] = [plain(row) for row in getattr(run.model, test)()]
    if kept and (rows := run.model.explained()):
        found["explained"] = [plain(row) for row in _in_units(rows, run.design)]
    if kept and (maps := run.model.maps()):
        found["maps"] = [plain(row) for row in maps]
    return found


def _in_units(rows: Sequence[Row], design: Design) -> Iterator[Row]:
    """Yield rows of `Fitted.explained` with a number's values in the column's unit.

    Those scaled by quantiles stay ranks.
    """
    scaled = {c.name: c for c in design.columns if isinstance(c, NumberColumn) and not c.knots}
    for row in rows:
        column = scaled.get(str(row.get("covariate")))
        if column is None or (column.shift, column.scale) == (0.0, 1.0):
            yield row
            continue
        places = {k: row[k] for k in ("at", "low", "high") if row.get(k) is not None}
        yield row | {k: column.shift + column.scale * v for k, v in places.items()}


def pooled_levels(run: Run, arm: Arm, min_cell: int) -> list[dict[str, Any]]:
    """Return the pooled levels of each category, and the rows below which levels are pooled."""
    least = max(int(arm.preprocess.get("pool_levels") or 0), min_cell)
    return [
        {"column": c.name, "levels": list(c.pooled), "least": least}
        for c in run.design.columns
        if isinstance(c, LevelColumn) and c.pooled
    ]


def parameters(run: Run, dictionary: Dictionary, kept: bool) -> list[dict[str, Any]]:
    """Return the model's parameters, times with their unit, and the scaling of numbers.

    Parameters
    ----------
    dictionary : of the table, for the unit of time.
    kept : whether the model is written to disk.
    """
    outcome, unit, times = run.design.outcome, "", np.zeros(0)
    if kept and isinstance(outcome, Survival) and "times" in (arrays := run.model.arrays()):
        unit = outcome.time_unit(dictionary)
        times = np.array(round_times(arrays["times"], unit))
    rows = [plain(row) for row in run.model.parameters(times)]
    rows = [row | ({"unit": unit} if unit and "time" in row else {}) for row in rows]
    return [*rows, *(_scaling(run) if kept else ())]


def _scaling(run: Run) -> Iterator[Row]:
    """Yield how each number becomes a covariate, if it is transformed."""
    for c in run.design.columns:
        if not isinstance(c, NumberColumn):
            continue
        cut = [f"{word} {limit:.6g}" for word, limit in (("at least", c.low), ("at most", c.high))
               if limit is not None]  # fmt: skip
        limited = f"{c.name} is taken as {' and '.join(cut)}" if cut else ""
        if c.knots:
            how = f"the share of rows below it; model.json has its {len(c.knots)} knots"
        elif (c.shift, c.scale) != (0.0, 1.0):
            how = f"({c.name} − {c.shift:.6g}) / {c.scale:.6g}".replace("− -", "+ ")
            how += f", where {limited}" * bool(cut)
        elif cut:
            how = limited
        else:
            continue
        yield {"name": f"covariate {c.name}", "value": None, "note": how}
