"""What a study can ask besides its arms, once: how its sites differ, and feedback to each.

Both are methods of the catalogue that predict nothing, so they are no arms that a file names; here
each is made one, so that sites agree to its steps, and hold them to bounds, as to any arm's. Over a
network each site keeps what feedback finds of it; on one computer the report has all.

Revealed: nothing; this follows from a study's text alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.study.arms import FOLDS, Arm
from fedcohort.study.plan import Plan

#: What can be asked, in the order in which it is; each is a session's name and a method's.
KINDS = ("shift", "feedback")
#: What each is asked with over a network.
SETTINGS: Mapping[str, Mapping[str, Any]] = {"shift": {}, "feedback": {"told": False}}


def asked_of(plan: Plan) -> tuple[str, ...]:
    """Return which of `KINDS` a study asks."""
    return tuple(kind for kind, asked in zip(KINDS, (plan.shift, plan.feedback), strict=True)
                 if asked)  # fmt: skip


def arm_of(kind: str) -> Arm:
    """Return what a network's sites are asked for one of `KINDS`, as an arm."""
    return Arm(kind, kind, kind, SETTINGS[kind], {}, "sites", {}, FOLDS[1])
