"""The final model of an arm: fitted once more, to all rows, when a study has been judged.

A repeat trains on the rows that are not held back, and tells how good such a model is. The final
model is for use: no row is held back from it, so no metric is of it. Its rows lie over the sites as
in the study's first scenario, and its settings are those that tuning chose on the first repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.protocol import registry
from fedcohort.study.arms import Arm
from fedcohort.study.plan import Plan

#: The number that stands for all rows where repeats have theirs; no study has so many repeats.
FINAL = 1_000_000
#: What is told of the final model itself, as of that of a repeat.
TOLD = (
    "coefficients", "parameters", "proportional_hazards", "pooled", "dropped", "unknown_at_horizon",
)  # fmt: skip
#: What a fit took, and how it ended.
SPENT = ("status", "rounds", "seconds", "bytes_up", "bytes_down", "epsilon")
#: The folder, in that of a final model, of the first repeat's model: the one that was judged.
JUDGED = "first-repeat"


def has_final(plan: Plan, arm: Arm) -> bool:
    """Return whether an arm is fitted to all rows at the end.

    Of the bounds, whose models are not kept, that of all rows in one place is, where it has
    coefficients: they stand beside those of the other arms.
    """
    if not plan.final or arm.scope == "isolated":
        return False
    return arm.scope == "sites" or "summary" in registry.find(arm.method).gives


def row_of_final(plan: Plan, arm: Arm, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what results.json has of a final fit: what it took, and what is told of the model."""
    row = {"arm": arm.name, "method": arm.method, "scenario": plan.scenarios[0].name}
    row |= {key: found.get(key) for key in SPENT}
    return row | {key: found.get(key) or [] for key in TOLD}
