"""How sites differ, and feedback to each, where a study over a network asks for them.

Each is asked once, in a session of its own, after the sites were met and over the rows that Table 1
describes. How sites differ is told to the lead as on one computer (`study.shift`). What feedback
finds of a site's rows stays there: its node writes it down for the people at that site, and
tells whether the site had rows enough. Where one of them cannot be had, as of two sites, the study
goes on, and says why.

Revealed: what the two methods reveal, with the settings of `study.besides`, once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from fedcohort.data.describe_agreed import Agreed
from fedcohort.data.outcome import Binary, Category, Survival
from fedcohort.protocol import FedcohortError, registry
from fedcohort.report.words import AWAY
from fedcohort.study.besides import arm_of, asked_of
from fedcohort.study.counts import Shown
from fedcohort.study.deployed.cells import COHORT, ENDS, Workshop
from fedcohort.study.deployed.sessions import Session
from fedcohort.study.deployed.sites import Sites
from fedcohort.study.engine import Run, fit_over
from fedcohort.study.pieces import tagged
from fedcohort.study.shift import BLANK, told_of
from fedcohort.study.step_words import step_words

#: How a piece is called on screen.
LABELS = {"shift": "differences", "feedback": "feedback"}
#: What is said of each where it could not be had; of feedback, that sites keep it, in any case.
BLANKS: Mapping[str, Mapping[str, Any]] = {
    "shift": BLANK, "feedback": {"sites": [], "few": [], "remarks": [], "kept": True},
}  # fmt: skip


def ask(shop: Workshop, sites: Sites, kind: str) -> None:
    """Ask the sites for one of `study.besides.KINDS`, and keep what it came to.

    Raises
    ------
    SiteUnavailable, JournalMismatch, Refused, Unfit : the run cannot go on now.
    """
    plan, terms, arm = shop.plan, shop.terms, arm_of(kind)
    method, session = registry.find(arm.method), Session(kind)
    found: dict[str, Any] = {**BLANKS[kind], "left_out": {}, "note": ""}
    hidden = (shop.note(COHORT) or {}).get("agreed")
    agreed = None if hidden is None else Agreed.from_dict(hidden)
    problem = dataclasses.replace(terms.whole, agreed=agreed)
    with shop.session(session) as open_:
        try:
            run = fit_over(open_.fed, problem, method, arm.configured(), {}, plan.seed, open_.trail)
            found |= _shift(shop, run) if kind == "shift" else _feedback(run)
            known = {*found["sites"], *found["left_out"]}
            found["left_out"] |= {s: AWAY for s in sites.names if s not in known}
        except ENDS:
            raise
        except FedcohortError as error:
            found["note"] = str(error)
        lines = list(open_.trail.ledger.lines)
    steps = step_words(method.asked(method.configure(arm.configured())))
    scenario = plan.scenarios[0].name
    shop.keep(kind, {**found, "steps": steps}, tagged(lines, "", scenario, 0, {0: kind}))
    shop.forget(session)


def _shift(shop: Workshop, run: Run) -> dict[str, Any]:
    """Return how sites differ, without the outcome where any site hides its counts."""
    rows, events = (shop.note(COHORT) or {})["halves"][0]
    counted = isinstance(shop.terms.outcome, (Survival, Binary, Category))
    closed = frozenset(s for s, n in events.items() if counted and n is None)
    kind_of = registry.find("shift").model
    found = told_of(run.model, kind_of, Shown(rows, events, closed))
    return {**found, "left_out": run.model.meta()["left_out"]}


def _feedback(run: Run) -> dict[str, Any]:
    """Return who heard something, and nothing of what."""
    told = run.model.meta()
    return {"sites": told["sites"], "few": told["few"]}


def found_of(shop: Workshop) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """Yield of each kind that a study asked what it came to, and the ledger's lines."""
    for kind in asked_of(shop.plan):
        text = shop.lines(kind).read_text(encoding="utf-8")
        yield kind, dict(shop.note(kind) or {}), text.splitlines(keepends=True)
