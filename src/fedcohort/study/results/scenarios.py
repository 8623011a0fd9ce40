"""Scenarios for results.json: rows of each site, and what was done to them, in the first repeat.

Revealed: counts that `study.sites.counts` publishes; shares of rows and entries that the study file
states; of split `overlap`, which groups a site has, without counts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fedcohort.data.words import sorted_levels
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.scenarios import OVERLAP, Scenario
from fedcohort.study.file.second_consent import CONSENTED
from fedcohort.study.run.engine import absences_of
from fedcohort.study.sites.counts import Shown, hidden_rows
from fedcohort.study.sites.layout import Table, lay_out, seed_of

#: Rounds of absences that are told.
ROUNDS = 40
#: Counts of `Given`; those of a site that hides its rows are hidden.
_COUNTS = (
    "laid", "rows", "known", "intact", "entries", "removed", "replaced", "noisy", "swapped",
    "flipped",
)  # fmt: skip


def scenario_row(scenario: Scenario, counts: Shown, gone: Collection[str] = ()) -> dict[str, Any]:
    """Return the layout of the first repeat's training rows, without the sites that withdrew."""
    return {
        "scenario": scenario.name,
        "title": scenario.name.removesuffix(CONSENTED).replace("-", " ")
        + ", after the ranking" * scenario.after_ranking,
        "rule": scenario.rule,
        "options": dict(scenario.options),
        "sites": [
            {"site": s, "rows": n, "events": counts.events[s]}
            for s, n in sorted(counts.rows.items())
            if s not in gone
        ],
    }


def given_row(plan: Plan, table: Table, scenario: Scenario, counts: Shown) -> dict[str, Any]:
    """Return what a scenario gave each site, in the first repeat.

    ``given`` says what was done to its rows, ``groups`` which groups it has, ``rounds`` when it was
    asked, in the first `ROUNDS` rounds of a fit: 0 away, 1 present and not asked, 2 asked. Each key
    is absent where the scenario has nothing of the kind.
    """
    told: dict[str, Any] = {}
    if not scenario.changed and scenario.rule != OVERLAP and plan.availability is None:
        return told
    laid = lay_out(plan, table, scenario, 0)
    if (absences := absences_of(laid.problem, seed_of(plan, 0))) is not None:
        told["rounds"] = [
            {
                "site": s,
                "away": absences.law.away_of(s),
                "rounds": [
                    0 if s in absences.away(r) else 1 if s in absences.undrawn(r) else 2
                    for r in range(ROUNDS)
                ],
            }
            for s in sorted(absences.sites)
        ]
    if laid.given:
        few = hidden_rows({s: one.laid for s, one in laid.given.items()}, plan.min_cell)
        few |= {s for s, n in counts.rows.items() if n is None}
        told["given"] = [
            {"site": s} | one.to_dict() | (dict.fromkeys(_COUNTS) if s in few else {})
            for s, one in sorted(laid.given.items())
        ]
    if scenario.rule == OVERLAP:
        column = str(scenario.options["group"])
        frames = sorted(laid.problem.frames.items())
        told["groups"] = {
            "column": column,
            "names": list(sorted_levels(table.frame[column].unique())),
            "sites": [
                {"site": s, "groups": list(sorted_levels(frame[column].dropna().unique()))}
                for s, frame in frames
            ],
        }
    return told
