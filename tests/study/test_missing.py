"""Replies that were left out of a study's sums stand in its results and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.runtime.local import LocalTransport
from fedcohort.study.results.missing import stretches
from fedcohort.study.study import Study

CALLS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc")), unique=True).map(sorted)
STUDY = """\
study: liar
data: {source: 'sample:gbsg2', sites: {split: iid, n: 4}}
arms:
- {method: deepcox, name: net, title: Net, hidden: [], rounds: 4}
- {method: deepcox, name: other, strategy: sequential, hidden: [], rounds: 2}
bounds: [centralised]
evaluate: {repeats: 1, draws: 2}
quorum: 0.5
"""


@given(calls=CALLS, odd=st.sets(st.integers(0, 40)))
def test_the_stretches_name_every_call_once_with_its_reason(calls: Any, odd: set[int]):
    rejected = {call: f"why {call[1]}" for i, call in enumerate(calls) if i in odd}
    rows = list(stretches(calls, rejected, "fit"))
    told = [(n, r["site"]) for r in rows for n in range(r["first"], r["last"] + 1)]
    assert sorted(told) == calls
    assert sum(r["calls"] for r in rows) == len(calls)
    for row in rows:
        assert row["phase"] == "fit"
        assert row.get("rejected") == rejected.get((row["first"], row["site"]))


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch):
    """Let site 2 answer rounds of local training with numbers that are none."""
    asked = LocalTransport.ask

    def ask(self: Any, call: Any, to: Any) -> Any:
        for site, reply in asked(self, call, to):
            lies = call.step.name == "train_here" and site == sorted(to)[1] and len(to) == 4
            yield site, {k: a * np.nan for k, a in reply.items()} if lies else reply

    monkeypatch.setattr(LocalTransport, "ask", ask)


def test_a_simulated_study_names_the_site_the_arm_the_number_and_the_reason(
    tmp_path: Path, lying: None
):
    (tmp_path / "study.yaml").write_text(STUDY)
    Study.from_file(tmp_path / "study.yaml").run(tmp_path / "out")
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    row, final = found["missing"]
    assert final == {**row, "repeat": "final", "phase": "final"}
    assert (row["arm"], row["scenario"], row["repeat"], row["phase"]) == ("net", "iid", 0, "fit")
    assert row["calls"] == 4
    lines = [json.loads(x) for x in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    heard = {x["site"] for x in lines if x["arm"] == "net" and x["step"] == "train_here"}
    assert {row["site"]} == {x["site"] for x in lines if x["arm"] == "net"} - heard
    assert row["rejected"].startswith(f"site {row['site']!r} answered")
    report = (tmp_path / "out" / "report.html").read_text()
    assert f"8 replies of {row['site']} to “Net” were rejected and left out" in report


def test_a_study_in_which_all_answered_lists_none(tmp_path: Path):
    (tmp_path / "study.yaml").write_text(STUDY)
    Study.from_file(tmp_path / "study.yaml").run(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "results.json").read_text())["missing"] == []
    assert "rejected and left out" not in (tmp_path / "out" / "report.html").read_text()
