"""The cohort: the flow from rows read to rows analysed, and Table 1, every variable by site.

`counts` decides which analysed rows and outcomes are published by site. A site with hidden rows has
no line in Table 1. If a site excluded 1 … min_cell − 1 rows for a reason, or hides its analysed
rows, its rows read are hidden too, since the difference reveals the count. With excluded rows, the
totals of that stage and of the rows read are also hidden. Total rows analysed, for training and for
test are always published.

Revealed: what `data.describe` asks of each site, once, over the analysed rows; for simulated sites,
over the training rows of the first scenario in the first repeat.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data import describe
from fedcohort.data.describe.agreed import Agreed
from fedcohort.data.outcome import columns_of
from fedcohort.protocol.host import Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.local import local
from fedcohort.study.file.plan import Plan
from fedcohort.study.results.step_words import step_words
from fedcohort.study.sites.counts import Counts, Shown
from fedcohort.study.sites.exclusion import Stage
from fedcohort.study.sites.layout import Table, lay_out, test_rows

#: Stages after those of `Table.flow`.
TRAINING, TEST = "training (first repeat)", "test (first repeat)"


def cohort(
    plan: Plan, table: Table, counts: Counts
) -> tuple[dict[str, Any], list[str], Agreed | None]:
    """Describe a study's patients.

    Returns
    -------
    found : flow, variables, suppressed (number of hidden counts), min_cell, note, and the purpose
        of each step.
    ledger : lines of what left the sites, tagged with the study's names.
    agreed : cells of Table 1 that sites hide beyond their own rules.
    """
    frames, scenario = described_rows(plan, table)
    note = "All rows that are analysed, at the sites of the data."
    if scenario is not None:
        note = (
            f"Sites are simulated: the training rows of the first repeat, as scenario "
            f"{scenario!r} lays them out{' and makes them worse' * plan.scenarios[0].changed}."
        )
    elif any(s.changed for s in plan.scenarios):
        note += " They are told as they were read, before a scenario makes training rows worse."
    described, ledger = _described(plan, table, frames, scenario)
    summaries = described.summaries
    alone = frozenset(s.site for s in summaries if s.site)
    summaries = [_shown(s, table, counts.described, alone) for s in summaries]
    flow = shown_flow(_stages(plan, table), plan.min_cell, _hidden(counts))
    n_hidden = sum(s.n_hidden for s in summaries) + sum(r["rows"] is None for r in flow)
    found = {
        "flow": flow,
        "variables": [s.to_dict() for s in summaries],
        "suppressed": n_hidden,
        "min_cell": plan.min_cell,
        "note": f"{note} {described.note}".strip(),
        "steps": step_words(describe.STEPS),
    }
    return found, ledger, described.agreed


def described_rows(plan: Plan, table: Table) -> tuple[Mapping[str, pd.DataFrame], str | None]:
    """Return the rows of Table 1 by site, and the scenario of simulated sites; None for others."""
    if table.site is not None:
        names = np.unique(table.site)
        frames = {str(s): table.of_site(str(s)) for s in names}
        return frames, None
    first = plan.scenarios[0]
    return lay_out(plan, table, first, 0).problem.frames, first.name


def _described(
    plan: Plan, table: Table, frames: Mapping[str, pd.DataFrame], scenario: str | None
) -> tuple[describe.TableOne, list[str]]:
    """Ask the sites; return their replies with the ledger's lines."""
    ledger = Ledger(plan.min_cell)
    hosts = [Host(name, frame, describe.STEPS, plan.seed) for name, frame in frames.items()]
    variables = describe.variables_of(table.dictionary, table.outcome)
    fed = local(hosts, ledger=ledger)
    found = describe.describe(fed, variables, min_cell=plan.min_cell)
    head = f'{{"arm":"","scenario":{json.dumps(scenario)},"repeat":0,"phase":"describe",'
    return found, [f"{head}{line[1:]}\n" for line in ledger.lines]


def _shown(
    summary: describe.Summary, table: Table, sites: Shown, alone: frozenset[str]
) -> describe.Summary:
    """Return one line of Table 1 without what `sites` hides.

    alone : sites with their own line. If none of them is closed, the outcome of the sites shown
    together is the known total minus these.
    """
    site = summary.site
    if site is None:
        return summary
    secret = (None,) * len(summary.levels)
    others = site == describe.OTHERS  # each one's numbers are shown elsewhere, or closed
    if sites.rows.get(site) is None and not (others and None not in sites.rows.values()):
        return describe.Summary(summary.variable, summary.levels, site, None, None, counts=secret)
    taken = columns_of(table.outcome)
    if summary.variable.name in taken and (
        site in sites.closed or (others and sites.closed & alone)
    ):
        return replace(summary, counts=secret)
    return summary


# the flow -----------------------------------------------------------------------------


def _stages(plan: Plan, table: Table) -> list[Stage]:
    """Return the stages of the table, then the first repeat's split of its rows."""
    out = list(table.flow) or _counted("analysed", table.site, np.ones(len(table.frame), bool))
    blind = test_rows(plan, table, 0)
    natural = table.site if any(s.rule == "natural" for s in plan.scenarios) else None
    return out + _counted(TRAINING, natural, ~blind) + _counted(TEST, natural, blind)


def _counted(stage: str, site: Array | None, rows: Array) -> list[Stage]:
    """Return the number of `rows` (n,) over all sites, and at each known site."""
    names = () if site is None else np.unique(site)
    by_site = ((stage, str(s), int(rows[site == s].sum()), "") for s in names)
    return [(stage, None, int(rows.sum()), ""), *by_site]


def _hidden(counts: Counts) -> frozenset[str]:
    """Return the natural sites that hide their number of analysed rows."""
    rows = counts.described.rows if counts.natural else {}
    return frozenset(s for s, n in rows.items() if n is None)


def shown_flow(
    stages: Iterable[Stage], min_cell: int, few: Collection[str]
) -> list[dict[str, Any]]:
    """Return the publishable rows of the flow, with None for hidden counts.

    The total of a reason is published if every hidden count keeps all its possible values, if
    needed with one larger count hidden too.

    Parameters
    ----------
    few : sites that hide their number of analysed rows.
    """
    stages = list(stages)
    secret: set[tuple[str, str | None]] = set()
    for stage in dict.fromkeys(s for s, *_ in stages if s.startswith("excluded")):
        here = {site: n for s, site, n, _ in stages if s == stage}
        secret |= {(stage, site) for site in _hidden_with(here, min_cell)}
    secret |= {("read", site) for _, site in secret}
    secret |= {(stage, site) for stage in ("read", "analysed") for site in few}
    if few:
        secret |= {(stage, s) for stage, s, _, _ in stages if s and stage in (TRAINING, TEST)}
    return [
        {
            "stage": stage,
            "site": site,
            "rows": None if (stage, site) in secret else n,
            "note": note,
        }
        for stage, site, n, note in stages
    ]


def _hidden_with(here: Mapping[str | None, int], min_cell: int) -> set[str | None]:
    """Return the sites (None: the total) whose counts of one exclusion reason are hidden.

    k counts of 1 to m − 1 with the sum s may each be any of these if k + m − 2 ≤ s and s ≤ (k − 1)
    (m − 1) + 1; with a count c ≥ m hidden beside them, if s + c ≥ k + 2 m − 2.
    """
    small = {site: n for site, n in here.items() if 0 < n < min_cell}
    named = [n for site, n in small.items() if site is not None]
    if None in small or not named:
        return {*small, None} if small else set()
    k, total = len(named), sum(named)
    if k + min_cell - 2 <= total <= (k - 1) * (min_cell - 1) + 1:
        return {*small}
    larger = sorted(
        (n, site)
        for site, n in here.items()
        if site is not None and n >= max(min_cell, k + 2 * min_cell - 2 - total)
    )
    return {*small, larger[0][1] if larger else None}
