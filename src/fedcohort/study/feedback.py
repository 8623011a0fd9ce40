"""Feedback to each site on its own data, once a study, where the study asks for it.

It is the method `feedback` over the rows that are analysed, at the sites that Table 1 describes.
Where it cannot be given, as of two sites, the study goes on, and says why.

Revealed: what the method reveals, once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedcohort.protocol import FedcohortError, registry
from fedcohort.protocol.ledger import Ledger
from fedcohort.study.engine import Problem, Trail, fit_once
from fedcohort.study.layout import Table
from fedcohort.study.plan import Plan
from fedcohort.study.step_words import step_words


def feedback(
    plan: Plan, table: Table, frames: Mapping[str, pd.DataFrame], scenario: str | None
) -> tuple[dict[str, Any], list[str]]:
    """Compare sites, and let each say what is off.

    Parameters
    ----------
    frames : by site, the rows that Table 1 describes.
    scenario : whose sites they are, where they are simulated.

    Returns
    -------
    found : sites, those with too few rows, remarks, a note where there is none of it, and what each
        step does.
    ledger : the lines of what left the sites for it, with the study's names in front.
    """
    method = registry.find("feedback")
    problem = Problem(
        frames, table.dictionary, table.outcome, plan.min_cell, secure=plan.privacy.secure,
        task=plan.task,
    )  # fmt: skip
    trail = Trail(Ledger(plan.min_cell))
    found: dict[str, Any] = {"sites": [], "few": [], "remarks": [], "note": ""}
    try:
        model = fit_once(problem, method, {}, {}, plan.seed, trail=trail).model
        told = model.meta()
        found |= {"sites": told["sites"], "few": told["few"], "remarks": model.summary()}
    except FedcohortError as error:
        found["note"] = str(error)
    head = f'{{"arm":"","scenario":{json.dumps(scenario)},"repeat":0,"phase":"feedback",'
    lines = [f"{head}{line[1:]}\n" for line in trail.ledger.lines]
    return {**found, "steps": step_words(method.steps)}, lines
