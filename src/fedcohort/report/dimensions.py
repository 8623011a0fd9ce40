"""Arms that differ in the number of latent dimensions alone, and the number that each had.

More dimensions give rows back better whether or not they mean anything. So of such arms, one that
chose its number by itself leads the page; their errors by number stand beside the criterion.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from fedcohort.report import courses
from fedcohort.report.run import Arm, Run
from fedcohort.report.words import number

#: Settings in which arms of one family differ: how many dimensions, and what is told beside a fit.
FREE = ("q", "q_range", "draws", "compare")
#: What a setting of q says of an arm that chooses.
AUTO = "auto"


def family(arm: Arm) -> str:
    """Return what arms have in common that differ in q alone; arms without q are alone."""
    if "q" not in arm.settings:
        return arm.name
    rest = {k: v for k, v in arm.settings.items() if k not in FREE}
    return f"{arm.role}/{arm.method}/{json.dumps(rest, sort_keys=True, default=str)}"


def relatives(run: Run, arm: Arm) -> list[Arm]:
    """Return the arms of an arm's family, itself among them, in declared order."""
    return [a for a in run.arms if family(a) == family(arm)]


def heads(arms: Sequence[Arm]) -> list[Arm]:
    """Return one arm of each family: the first that chose its number, else every one of them."""
    choose = {family(a): a for a in reversed(arms) if a.settings.get("q") == AUTO}
    return [a for a in arms if choose.get(family(a), a) is a]


def apart(run: Run, arms: Sequence[Arm]) -> list[Arm]:
    """Return arms without those that a head of their family stands for, of a study of latents."""
    return heads(arms) if run.task == "latent" else list(arms)


def of(run: Run, arm: Arm, scenario: str) -> int | None:
    """Return how many dimensions an arm had; of one that chose, those of the first repeat."""
    q = number(arm.settings.get("q"))
    q = courses.taken(run).get((arm.name, scenario), q) if q != q else q
    return int(q) if q == q else None
