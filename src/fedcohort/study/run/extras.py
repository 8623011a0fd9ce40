"""Optional analyses of a study, done once: how its sites differ (`shift`), and feedback to each.

Both are methods without predictions, over the analysed rows, at the sites of Table 1. Each is made
an arm, so that sites agree to its steps as to any arm's. Over a network each has its own session,
after the sites' rows were counted. A site keeps its feedback for the people there, and reports only
whether it had enough rows. If an analysis fails, as with two sites, the study goes on and states
why.

A divergence of two tables, of which one is known, reveals the other. So `shift` leaves out sites
that hide their rows in Table 1 or the counts by site and, for everything about the outcome, sites
that hide its counts.

Revealed: what the two methods reveal, once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, cast

import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.describe.agreed import Agreed
from fedcohort.protocol import FedcohortError, Row, registry
from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.step import Step
from fedcohort.report.words import AWAY
from fedcohort.study.file.arms import FOLDS, Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.results.step_words import step_words
from fedcohort.study.run.engine import Problem, Run, Trail, fit_once
from fedcohort.study.run.pieces import tagged
from fedcohort.study.sites.counts import Shown
from fedcohort.study.sites.layout import Table

#: The analyses, in order; each is the name of a session and of a method.
KINDS = ("shift", "feedback")
#: Settings over a network.
SETTINGS: Mapping[str, Mapping[str, Any]] = {"shift": {}, "feedback": {"told": False}}
#: Result of an analysis that failed.
BLANKS: Mapping[str, Mapping[str, Any]] = {
    "shift": {"sites": [], "kinds": [], "clear": [], "compared": 0},
    "feedback": {"sites": [], "few": [], "remarks": []},
}
#: Names on screen.
LABELS = {"shift": "differences", "feedback": "feedback"}
#: Further facts over a network: sites keep their feedback.
KEPT: Mapping[str, Mapping[str, Any]] = {"shift": {}, "feedback": {"kept": True}}
#: Number of listed differences, the largest beyond chance first.
MOST = 60
#: Kinds of shift that use the outcome.
OF_OUTCOME = ("label", "conditional", "gradient")


def asked_of(plan: Plan) -> tuple[str, ...]:
    """Return which of `KINDS` a study asks."""
    return tuple(kind for kind, asked in zip(KINDS, (plan.shift, plan.feedback), strict=True)
                 if asked)  # fmt: skip


def arm_of(kind: str) -> Arm:
    """Return an arm for one of `KINDS` over a network."""
    return Arm(kind, kind, kind, SETTINGS[kind], {}, "sites", {}, FOLDS[1])


def ask(
    kind: str, fit: Callable[[], Run], trail: Trail, shown: Shown, steps: Iterable[Step[..., Any]],
    scenario: str | None, *, sites: Iterable[str] = (), ends: tuple[type[Exception], ...] = (),
    **more: Any,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """Ask sites of any kind for one of `KINDS`.

    Parameters
    ----------
    trail : what leaves the sites for it.
    shown : published rows and events by site.
    steps, scenario : the method's steps; the scenario, if sites are simulated.
    sites, ends : over a network, all sites, and the errors that end the run.
    more : facts known beforehand.

    Returns
    -------
    found : `published`, a note if there is nothing, and the purpose of each step.
    ledger : lines of what left the sites, tagged with the study's names.
    """
    found: dict[str, Any] = {**BLANKS[kind], "note": "", **more}
    try:
        new = published(kind, fit(), shown)
        if "left_out" in found:
            gone = found["left_out"] | new.get("left_out", {})
            known = {*new["sites"], *gone}
            new["left_out"] = gone | {s: AWAY for s in sites if s not in known}
        found |= new
    except ends:
        raise
    except FedcohortError as error:
        found["note"] = str(error)
    lines = tagged(trail.ledger.lines, "", scenario, 0, {0: kind})
    return {**found, "steps": step_words(steps)}, lines


def ask_here(
    kind: str, plan: Plan, table: Table, frames: Mapping[str, pd.DataFrame],
    scenario: str | None, shown: Shown, agreed: Agreed | None = None,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """Ask tables of this process for one of `KINDS`; see `ask`.

    Parameters
    ----------
    frames : by site, the rows of Table 1.
    agreed : cells of Table 1 that sites hide beyond their own rules.
    """
    method, trail = registry.find(kind), Trail(Ledger(plan.min_cell))
    more: dict[str, Any] = {}
    if kind == "shift":
        hidden = sorted(s for s in frames if shown.rows.get(s) is None)
        frames = {s: f for s, f in frames.items() if s not in hidden}
        more["left_out"] = dict.fromkeys(hidden, "its number of rows is hidden")
    problem = Problem(
        frames, table.dictionary, table.outcome, plan.min_cell, secure=plan.privacy.secure,
        task=plan.task, agreed=agreed if kind == "shift" else None,
    )  # fmt: skip
    fit = partial(fit_once, problem, method, {}, {}, plan.seed, trail=trail)
    return ask(kind, fit, trail, shown, method.steps, scenario, **more)


def published(kind: str, run: Run, shown: Shown) -> dict[str, Any]:
    """Return the published result of one of `KINDS`; no remarks if sites keep them."""
    if kind == "shift":
        found = published_shift(run.model, registry.find(kind).model, shown)
        return found | {"left_out": dict(cast(_Shifts, run.model).left_out)}
    meta = run.model.meta()
    return {"sites": meta["sites"], "few": meta["few"], "remarks": run.model.summary()}


class _Shifts(Protocol):
    """The parts of the method's model that are read here."""

    rows: list[Row]
    sites: tuple[str, ...]
    kinds: tuple[str, ...]
    left_out: Mapping[str, str]

    def matrix(self, kind: str, *, expected: bool = False) -> Array: ...
    def places(self, kind: str) -> tuple[tuple[str, ...], Array, float]: ...


def published_shift(found: Any, kind_of: Any, shown: Shown) -> dict[str, Any]:
    """Return the published result of a model, without the outcome of sites that hide its counts.

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
    # p-values are adjusted again, without the left-out rows
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
    """Return three significant digits."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.3g}") + 0.0
