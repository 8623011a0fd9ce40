"""Who was studied: the flow from rows read to rows analysed, and every variable by site.

The flow's counts keep to the rules of `data.suppression`. Where a site left out 1 … min_cell − 1
rows for a reason, the rows that it read are hidden as well, since they less those analysed tell;
its rows for training and test add up to those analysed, and are hidden together. A total over
sites is hidden where a part of it is.

Revealed: what `data.describe` asks each site for, once, over the rows that are analysed; where
sites are simulated, over the training rows of the first scenario's sites in the first repeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.data import describe
from fedcohort.data.suppression import hidden
from fedcohort.protocol.host import Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.local import local
from fedcohort.study.exclusion import Stage
from fedcohort.study.layout import Laid, Table, lay_out
from fedcohort.study.plan import Plan

#: Stages after those of `Table.flow`.
TRAINING, TEST = "training (first repeat)", "test (first repeat)"

#: Rows at a stage by site, None for all of them.
Rows = dict[str | None, int]


def cohort(plan: Plan, table: Table) -> tuple[dict[str, Any], list[str]]:
    """Describe a study's patients.

    Returns
    -------
    found : flow, variables, suppressed (how many counts are hidden), min_cell, note, and what each
        step does.
    ledger : the lines of what left the sites for it, with the study's names in front.
    """
    laid = _laid(plan, table)
    if table.site is not None:
        names = np.unique(table.site)
        frames = {str(s): table.frame[table.site == s].reset_index(drop=True) for s in names}
        scenario, note = None, "All rows that are analysed, at the sites of the data."
    else:
        frames, scenario = laid.problem.frames, plan.scenarios[0].name
        note = (
            f"Sites are simulated: the training rows of the first repeat, as scenario "
            f"{scenario!r} lays them out."
        )
    summaries, ledger = _described(plan, table, frames, scenario)
    flow = shown_flow(_stages(table, laid, plan), plan.min_cell)
    n_hidden = sum(s.n_hidden for s in summaries) + sum(r["rows"] is None for r in flow)
    found = {
        "flow": flow,
        "variables": [s.to_dict() for s in summaries],
        "suppressed": n_hidden,
        "min_cell": plan.min_cell,
        "note": note,
        "steps": {s.name: (s.run.__doc__ or "").partition("\n")[0] for s in describe.STEPS},
    }
    return found, ledger


def _laid(plan: Plan, table: Table) -> Laid:
    """Return the first repeat of natural sites, or where none are asked for of the first split."""
    natural = [s for s in plan.scenarios if s.rule == "natural"]
    return lay_out(plan, table, (natural or list(plan.scenarios))[0], 0)


def _described(
    plan: Plan, table: Table, frames: Mapping[str, pd.DataFrame], scenario: str | None
) -> tuple[list[describe.Summary], list[str]]:
    """Ask the sites, and return what they show with the ledger's lines."""
    ledger = Ledger(plan.min_cell)
    hosts = [Host(name, frame, describe.STEPS, plan.seed) for name, frame in frames.items()]
    variables = describe.variables_of(table.dictionary, table.outcome)
    fed = local(hosts, ledger=ledger)
    summaries = describe.describe(fed, variables, min_cell=plan.min_cell)
    head = f'{{"arm":"","scenario":{json.dumps(scenario)},"repeat":0,"phase":"describe",'
    return summaries, [f"{head}{line[1:]}\n" for line in ledger.lines]


# the flow -----------------------------------------------------------------------------


def _stages(table: Table, laid: Laid, plan: Plan) -> list[Stage]:
    """Return the stages of the table, then how the first repeat divides its rows."""
    out = list(table.flow) or _counted("analysed", table.site, len(table.frame))
    n_test = len(laid.test)
    out += _counted(TRAINING, None, len(table.frame) - n_test)
    if laid.test_site is not None:
        out += [(TRAINING, s, len(f), "") for s, f in sorted(laid.problem.frames.items())]
    return out + _counted(TEST, laid.test_site, n_test)


def _counted(stage: str, site: Any, total: int) -> list[Stage]:
    """Return the rows over all sites, and at each where `site` (n,) is known."""
    names, rows = ([], []) if site is None else np.unique(site, return_counts=True)
    by_site = ((stage, str(s), int(n), "") for s, n in zip(names, rows, strict=True))
    return [(stage, None, total, ""), *by_site]


def shown_flow(stages: Iterable[Stage], min_cell: int) -> list[dict[str, Any]]:
    """Return the flow's rows as they may be shown, with None for what is hidden."""
    stages = list(stages)
    counts: dict[str, Rows] = {}
    for stage, site, n, _ in stages:
        counts.setdefault(stage, {})[site] = n
    secret = {
        (stage, site)
        for stage, rows in counts.items()
        for site, n in rows.items()
        if 0 < n < min_cell
    }
    secret |= {("read", site) for stage, site in secret if stage.startswith("excluded")}
    for site in counts.get(TRAINING, {}):
        both = np.array([counts[stage].get(site, 0) for stage in (TRAINING, TEST)])
        if hidden(both, min_cell).any() or ("analysed", site) in secret:
            secret |= {(TRAINING, site), (TEST, site)}
    secret |= {(stage, None) for stage, _ in secret}
    return [
        {
            "stage": stage,
            "site": site,
            "rows": None if (stage, site) in secret else n,
            "note": note,
        }
        for stage, site, n, note in stages
    ]
