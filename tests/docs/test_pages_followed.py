"""What a page shows agrees with what is printed on any machine, and with nothing else.

docs/network-tutorial.md is followed by a slow test. Here its lead's terminal prints what it would
print if the sites answered in another order, or later.
"""

from __future__ import annotations

import io
import itertools
import re
from dataclasses import replace

import pytest
from rich.console import Console

from doc_pages import DOCS, agree, blocks, steps
from fedcohort.apps.deploying import Lines
from fedcohort.network.coordinator.lead import Status

SITES = ("north", "south", "west")
LEAD = [
    block.body
    for block in blocks((DOCS / "network-tutorial.md").read_text(encoding="utf-8"))
    if block.name == "lead"
]
#: All that the page shows in the lead's terminal, as `network.terminals` compares it.
SHOWN = "…".join([steps(LEAD[0])[0][1], *LEAD[1:]]) + "…"
RUN = re.findall(r"recurrence \((\w+)\): asking", SHOWN)[0]
RESULTS = SHOWN.partition("done after …\n")[2].replace("…", "folder")


def printed(*looks, later=(), answered=3):
    """Return what the lead's terminal prints.

    Parameters
    ----------
    looks : the sites that approved, at each look at the run before it starts. Until north does, it
        waits for its steward; the others have not answered yet.
    later : further states of the run between these looks and its start.
    answered : number of sites that answered the current call, at each look at the running study.
    """
    away = dict.fromkeys(SITES, "away")
    asked = [{**away, "north": "waiting", **dict.fromkeys(look, "approved")} for look in looks]
    seen = []
    for states in (away, *asked):
        sites = {site: {"state": state, "connected": True} for site, state in states.items()}
        seen.append(Status(run=RUN, study="recurrence", state="waiting", sites=sites))
    traffic = {"asked": 3, "answered": answered, "step": "pull", "calls": 8, "up": 100, "down": 200}
    run = replace(seen[-1], total=6, traffic=traffic)
    seen += [replace(run, state=state) for state in later]
    seen += [replace(run, state="running", done=done) for done in range(6)]
    seen.append(replace(run, state="done", done=6))
    out = io.StringIO()
    lines = Lines(Console(file=out, width=80))
    for status in seen:
        lines(status)
    return out.getvalue() + RESULTS


@pytest.mark.parametrize("order", [*itertools.permutations(SITES)], ids="-".join)
def test_the_tutorial_holds_in_whichever_order_the_sites_approve(order):
    so_far = [order[:n] for n in range(4)]
    assert agree(SHOWN, printed(*so_far))
    assert agree(SHOWN, printed(*so_far, later=["queued"], answered=1))
    waits = [one for one in so_far if "north" not in one]
    assert agree(SHOWN, printed(waits[-1], SITES))  # the lead looks less often than sites answer


def test_the_tutorial_does_not_hold_if_a_line_that_matters_is_another():
    right, approved = printed((), SITES), "  north: approved\n"
    assert agree(SHOWN, right)
    progress = [line for line in right.splitlines(keepends=True) if "fits done" in line]
    early = right.replace(approved, "").replace(progress[0], progress[0] + approved)
    for wrong in (
        printed((), ("south", "west")),  # north never approved
        early,  # the run began before north approved
        right.replace("".join(progress), ""),
        right.replace("done after", "failed after"),
        right.replace("0.660", "0.661"),
    ):
        assert wrong != right
        assert not agree(SHOWN, wrong), wrong
