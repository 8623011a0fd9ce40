"""How sites differ, and feedback to each, where a study over a network asks for them.

Each is asked once, in a session of its own, after the sites were met and over the rows that Table 1
describes. How sites differ is told to the lead as on one computer (`study.run.extras`). What
feedback finds of a site's rows stays there: its node writes it down for the people at that site,
and tells whether the site had rows enough. Where one of them cannot be had, as of two sites, the
study goes on, and says why.

Revealed: what the two methods reveal, with the settings of `study.run.extras`, once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from fedcohort.data.describe.agreed import Agreed
from fedcohort.protocol import FedcohortError, registry
from fedcohort.report.words import AWAY
from fedcohort.study.at_site.sessions import Session
from fedcohort.study.results.step_words import step_words
from fedcohort.study.run.engine import fit_over
from fedcohort.study.run.extras import BLANKS, arm_of, asked_of, told
from fedcohort.study.run.network_fits import COHORT, ENDS, NetworkFits
from fedcohort.study.run.pieces import tagged
from fedcohort.study.sites.counts import Shown
from fedcohort.study.sites.sites import Sites

#: How a piece is called on screen.
LABELS = {"shift": "differences", "feedback": "feedback"}
#: What is said besides, in any case: sites keep what feedback finds.
KEPT: Mapping[str, Mapping[str, Any]] = {"shift": {}, "feedback": {"kept": True}}


def ask(fits: NetworkFits, sites: Sites, kind: str) -> None:
    """Ask the sites for one of `study.run.extras.KINDS`, and keep what it came to.

    Raises
    ------
    SiteUnavailable, JournalMismatch, Refused, Unfit : the run cannot go on now.
    """
    plan, terms, arm = fits.plan, fits.terms, arm_of(kind)
    method, session = registry.find(arm.method), Session(kind)
    found: dict[str, Any] = {**BLANKS[kind], **KEPT[kind], "left_out": {}, "note": ""}
    hidden = (fits.note(COHORT) or {}).get("agreed")
    agreed = None if hidden is None else Agreed.from_dict(hidden)
    problem = dataclasses.replace(terms.whole, agreed=agreed)
    with fits.session(session) as open_:
        try:
            run = fit_over(open_.fed, problem, method, arm.configured(), {}, plan.seed, open_.trail)
            found |= told(kind, run, _shown(fits))
            known = {*found["sites"], *found["left_out"]}
            found["left_out"] |= {s: AWAY for s in sites.names if s not in known}
        except ENDS:
            raise
        except FedcohortError as error:
            found["note"] = str(error)
        lines = list(open_.trail.ledger.lines)
    steps = step_words(method.asked(method.configure(arm.configured())))
    scenario = plan.scenarios[0].name
    fits.keep(kind, {**found, "steps": steps}, tagged(lines, "", scenario, 0, {0: kind}))
    fits.forget(session)


def _shown(fits: NetworkFits) -> Shown:
    """Return what Table 1 shows of rows and events by site."""
    rows, events = (fits.note(COHORT) or {})["halves"][0]
    counted = fits.terms.outcome is not None and not fits.terms.outcome.is_number
    return Shown(rows, events, frozenset(s for s, n in events.items() if counted and n is None))


def found_of(fits: NetworkFits) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """Yield of each kind that a study asked what it came to, and the ledger's lines."""
    for kind in asked_of(fits.plan):
        text = fits.lines(kind).read_text(encoding="utf-8")
        yield kind, dict(fits.note(kind) or {}), text.splitlines(keepends=True)
