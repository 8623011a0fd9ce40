"""One lying site under masks: a sum of counts that cannot be ends the fit, and names no site."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import toys
from conformance.cases import KINDS, RUNTIMES, Case, cases, hosts_of, tables, task_of
from fedcohort.protocol import Refused
from fedcohort.protocol.host import Answer, Host
from fedcohort.protocol.totals import COUNTS, Known, check_total

#: Small fits of every method, one of each kind of task.
CASES = [case for kind in KINDS for case in cases(kind) if not case.settings]


def weighed(case: Case) -> bool:
    """Whether a sum of the method's has a number of rows."""
    replies = [s.reply for s in case.entry.steps if s.verb == "sum" and not s.private]
    return any("rows" in {f.name for f in dataclasses.fields(r)} for r in replies)


def fitted(case: Case) -> None:
    """Fit a case under masks, over sites whose rows were told."""
    rows = {name: len(table.x) for name, table in tables(case.kind).items()}
    fed = RUNTIMES["local, masked"](hosts_of(case, tables(case.kind)), None)
    fed.expecting(Known(rows, unit=True))
    case.entry.fit(fed, case.config, task_of(case, 3))


@pytest.mark.parametrize("lie", [10.0**6, 10.0**9, -5.0, -160.0, 0.5], ids=str)
@pytest.mark.parametrize("case", [c for c in CASES if weighed(c)], ids=str)
def test_no_site_claims_rows_that_it_has_not(case: Case, lie: float, monkeypatch):
    """Of every method where a summed count weighs the model: one site with 10⁶ rows is not heard.

    Before, one such site moved a model anywhere.
    """
    honest, lies = Host.answer, []

    def lying(host: Host, call: Any, arguments: Any, **more: Any) -> Answer:
        found = honest(host, call, arguments, **more)
        rows = found.reply.get("rows")
        if host.name != "b" or call.verb != "sum" or rows is None or not rows.size:
            return found
        lies.append(call.step.name)
        reply = type(found.reply)({**found.reply, "rows": np.full(rows.shape, lie)})
        return dataclasses.replace(found, reply=reply)

    monkeypatch.setattr(Host, "answer", lying)
    monkeypatch.setattr(Host, "answers", lambda *_: None)  # no site by a twin: each lies or not
    try:
        fitted(case)
    except Refused as error:
        assert error.code == "counts"
        assert "none is blamed" in str(error)
        assert "\n" not in str(error)
        assert not any(f"site {name!r}" in str(error) for name in "abc")
        assert len(lies) == 1, "the first such sum is the last"
    else:
        assert not lies


@pytest.mark.parametrize("case", [c for c in CASES if weighed(c)], ids=str)
def test_an_honest_fit_agrees_with_what_its_sites_told(case: Case):
    fitted(case)


def total(**fields: Any) -> dict[str, Any]:
    return {name: np.asarray(value) for name, value in fields.items()}


STEP = toys.means
SITES = ("a", "b", "c")


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": -1.0}, {"rows": 9.0}, {"rows": 29.0}, {"rows": 31.0}, {"rows": 30.5},
        {"deaths": [4, -1]}, {"deaths": [4, 12]}, {"weight": -0.5}, {"sites": [3, 4]},
        {"rows": 30.0, "weight": 1e6},
        {"rows": 30, "positive": 31}, {"counts": [1, -2]}, {"rows": [30, 31]},
    ],
    ids=str,
)  # fmt: skip
def test_counts_that_cannot_be_are_refused(wrong):
    known = Known(dict.fromkeys(SITES, 10), dict.fromkeys(SITES, 5), unit=True)
    with pytest.raises(Refused, match="cannot be"):
        check_total(STEP, 0, total(**wrong), SITES, known, {})


def test_counts_that_can_be_pass():
    known = Known(dict.fromkeys(SITES, 10), dict.fromkeys(SITES, 5))
    fine = total(rows=30.0, deaths=[10, 5], weight=[0.5], sites=[3, 0], positive=30, counts=[30])
    check_total(STEP, 0, fine, SITES, known, {})
    check_total(STEP, 0, total(rows=20), SITES[:2], known, {})
    check_total(STEP, 0, total(rows=29), SITES, dataclasses.replace(known, some=True), {})
    check_total(STEP, 0, total(rows=33), SITES, dataclasses.replace(known, slack=1), {})
    hidden = Known({**known.rows, "a": None}, {**known.events, "a": None})
    check_total(STEP, 0, total(rows=99, deaths=[99]), SITES, hidden, {})
    assert "rows" in COUNTS
