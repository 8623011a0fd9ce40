"""How different the sites of a study are, where the study asks for it.

It is the method `shift` over the rows that are analysed, at the sites that Table 1 describes. A
divergence of two tables of which one is known tells the other. So what Table 1 or the counts by
site hide has no part: sites that hide their rows, and, in all that is about the outcome, sites that
hide its counts. Where nothing can be compared, the study goes on, and says why.

Revealed: what the method reveals, once.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol, cast

import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.describe.agreed import Agreed
from fedcohort.protocol import FedcohortError, Row, registry
from fedcohort.protocol.ledger import Ledger
from fedcohort.study.counts import Shown
from fedcohort.study.engine import Problem, Trail, fit_once
from fedcohort.study.layout import Table
from fedcohort.study.plan import Plan
from fedcohort.study.step_words import step_words

#: So many differences are listed, the largest beyond chance first.
MOST = 60
#: What is said where nothing was compared.
BLANK: Mapping[str, Any] = {"sites": [], "kinds": [], "clear": [], "compared": 0}
#: Kinds that the outcome has a part in.
OF_OUTCOME = ("label", "conditional", "gradient")


class _Shifts(Protocol):
    """What is read of the method's model."""

    rows: list[Row]
    sites: tuple[str, ...]
    kinds: tuple[str, ...]
    left_out: Mapping[str, str]

    def matrix(self, kind: str, *, expected: bool = False) -> Array: ...
    def places(self, kind: str) -> tuple[tuple[str, ...], Array, float]: ...


def shift(
    plan: Plan, table: Table, frames: Mapping[str, pd.DataFrame], scenario: str | None,
    shown: Shown, agreed: Agreed | None = None,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """Compare all pairs of sites.

    Parameters
    ----------
    frames : by site, the rows that Table 1 describes.
    scenario : whose sites they are, where they are simulated.
    shown : what Table 1 shows of rows and events by site.
    agreed : what sites hide of Table 1 beyond their own rules.

    Returns
    -------
    found : sites, those left out, kinds with their matrices and maps, the clear differences, how
        many were looked at, in how many of the clear ones each site has a part, a note where there
        is nothing, and what each step does.
    ledger : the lines of what left the sites for it, with the study's names in front.
    """
    method = registry.find("shift")
    hidden = sorted(s for s in frames if shown.rows.get(s) is None)
    open_ = {s: f for s, f in frames.items() if s not in hidden}
    trail = Trail(Ledger(plan.min_cell))
    found: dict[str, Any] = {**BLANK, "note": ""}
    found["left_out"] = dict.fromkeys(hidden, "its number of rows is hidden")
    try:
        problem = Problem(
            open_, table.dictionary, table.outcome, plan.min_cell, secure=plan.privacy.secure,
            task=plan.task, agreed=agreed,
        )  # fmt: skip
        model = fit_once(problem, method, {}, {}, plan.seed, trail=trail).model
        found |= told_of(model, method.model, shown)
        found["left_out"] |= dict(cast(_Shifts, model).left_out)
    except FedcohortError as error:
        found["note"] = str(error)
    head = f'{{"arm":"","scenario":{json.dumps(scenario)},"repeat":0,"phase":"shift",'
    lines = [f"{head}{line[1:]}\n" for line in trail.ledger.lines]
    return {**found, "steps": step_words(method.steps)}, lines


def told_of(found: Any, kind_of: Any, shown: Shown) -> dict[str, Any]:
    """Return what is published of a model: without the outcome of sites that hide its counts.

    Parameters
    ----------
    found, kind_of : the method's fitted model, and its class.
    """
    model = cast(_Shifts, found)
    kept = [
        r
        for r in model.rows
        if r["kind"] not in OF_OUTCOME or not {r["site"], r["other"]} & shown.closed
    ]
    # adjusted anew: a value that is left out would count in those of others
    again = [
        {**r, **{k: math.nan if r[k] is None else r[k] for k in ("p", "expected")}} for r in kept
    ]
    level = getattr(model, "level")  # noqa: B009
    model = cast(_Shifts, kind_of.of(model.sites, again, level, model.left_out))
    kept = model.rows
    clear = sorted((r for r in kept if r["clear"]), key=_beyond, reverse=True)
    return {
        "sites": list(model.sites),
        "kinds": [_kind(model, kind) for kind in model.kinds],
        "clear": [_plain(r) for r in clear[:MOST]],
        "n_clear": len(clear),
        "parts": dict(sorted(Counter(s for r in clear for s in (r["site"], r["other"])).items())),
        "compared": len([r for r in kept if r["p"] is not None]),
        "outcome_hidden": sorted(shown.closed & set(model.sites)),
    }


def _kind(model: _Shifts, kind: str) -> dict[str, Any]:
    names, at, share = model.places(kind)
    return {
        "kind": kind,
        "matrix": _rounded(model.matrix(kind)),
        "expected": _rounded(model.matrix(kind, expected=True)),
        "map": {
            "sites": list(names),
            "x": [_digits(v) for v in at[:, 0].tolist()],
            "y": [_digits(v) for v in at[:, 1].tolist()],
            "share": _digits(share),
        },
    }


def _beyond(r: Row) -> float:
    return float(r["value"]) - float(r["expected"] or 0.0)


def _plain(r: Row) -> Row:
    numbers = {k: _digits(r[k]) for k in ("value", "expected", "p_adjusted")}
    return {**{k: r[k] for k in ("kind", "variable", "site", "other")}, **numbers}


def _rounded(matrix: Array) -> list[list[float | None]]:
    return [[_digits(v) for v in row] for row in matrix.tolist()]


def _digits(value: float | None) -> float | None:
    """Return three digits that matter: what is told is no finer."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.3g}") + 0.0
