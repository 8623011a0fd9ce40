"""Sessions: the federations that a deployed study falls into, each named by a text.

    describe            Table 1, once
    count               rows and events of each site as they may be shown, once
    fit-r0003-a01       arm 1 of repeat 3: its steps see the training rows
    judge-r0003-a01     its model on the blind rows; for censoring, the training rows' outcome
    alone-r0003-a00     each site fits its own training rows by itself, and is judged on its own

A site makes the `Host` of a session from the study and its own table alone, so nothing but the
text need be sent; what a session may ask is the steps listed here, and no others.

Revealed: what these steps declare.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedcohort.data import describe, preprocess
from fedcohort.protocol import VerbRefused, registry
from fedcohort.protocol.host import Host
from fedcohort.study.deployed import counting, judging
from fedcohort.study.deployed.alone import Alone
from fedcohort.study.deployed.table import SiteTable
from fedcohort.study.deployed.terms import Terms
from fedcohort.study.layout import seed_of

#: Those that are asked once.
ONCE = ("describe", "count")
_TEXT = re.compile(r"(fit|judge|alone)-r([0-9]{4})-a([0-9]{2})")


@dataclass(frozen=True)
class Session:
    """One federation of a study.

    Attributes
    ----------
    kind : "describe", "count", "fit", "judge" or "alone".
    repeat, arm : which split, and which of the plan's arms.
    """

    kind: str
    repeat: int = 0
    arm: int = 0

    @property
    def text(self) -> str:
        """The name that sites know it by; possible as a file's."""
        once = self.kind in ONCE
        return self.kind if once else f"{self.kind}-r{self.repeat:04d}-a{self.arm:02d}"

    @classmethod
    def parse(cls, text: str, terms: Terms) -> Session:
        """Read a session's name.

        Raises
        ------
        VerbRefused : the study has no such session.
        """
        if text in ONCE:
            return cls(text)
        found = _TEXT.fullmatch(text)
        if found is not None:
            session = cls(found[1], int(found[2]), int(found[3]))
            if _is_of(session, terms):
                return session
        raise VerbRefused("the study has no session of that name; a site answers its own alone.")


def _is_of(session: Session, terms: Terms) -> bool:
    plan = terms.plan
    if session.repeat >= plan.repeats or session.arm >= len(plan.arms):
        return False
    return (session.kind == "alone") == (plan.arms[session.arm].scope == "isolated")


def open_session(terms: Terms, table: SiteTable, session: str, min_cell: int) -> Host:
    """Return one site's side of a session.

    Parameters
    ----------
    table : of the site, checked against the same terms.
    min_cell : the site's own least cell; the study's counts where that is larger.

    Raises
    ------
    VerbRefused : the study has no such session.
    """
    asked = Session.parse(session, terms)
    plan, least = terms.plan, max(min_cell, terms.plan.min_cell)
    if asked.kind == "describe":
        return Host(table.site, table.frame, describe.STEPS, plan.seed)
    if asked.kind == "count":
        return Host(table.site, table, counting.STEPS, plan.seed)
    seed, arm = seed_of(plan, asked.repeat), plan.arms[asked.arm]
    if asked.kind == "alone":
        return Host(table.site, Alone.of(table, asked.repeat, arm, least), judging.STEPS, seed)
    halves = table.halves(asked.repeat)
    if asked.kind == "fit":
        method = registry.find(arm.method)
        return Host(table.site, halves.train, (*preprocess.STEPS, *method.steps), seed)
    rows = judging.Rows(halves, terms.outcome, terms.dictionary, arm.method, least)
    return Host(table.site, rows, judging.STEPS, seed)
