"""What a deployed study publishes, under the attack of `published`: no hidden count is recovered.

Unlike in a simulated study, who divides rows is each site itself; the attacker is given that too.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import published
from deployed_cases import run_local
from fedcohort.study.at_site.table import SiteTable, Unfit
from fedcohort.study.file.terms import Terms

STUDY = """\
study: own
task: {task}
data: {{dictionary: d.yaml, outcome: {outcome}, exclude: [{exclude}]}}
arms: [{{method: {method}, scale: standard}}]
bounds: [isolated]
evaluate: {{repeats: 1}}
"""


def random_sites(seed, task):
    """Return sites of 20 rows or more by joining some of `published.random_table`."""
    parts = [published.random_table(seed + 100 * i, task) for i in range(3)]
    frame = pd.concat(parts, ignore_index=True)
    return {s: f.drop(columns="site").reset_index(drop=True) for s, f in frame.groupby("site")}


def publish(folder, seed, task):
    folder.mkdir(parents=True, exist_ok=True)
    columns = published.COLUMNS.replace("TARGET", published.TARGET[task])
    (folder / "d.yaml").write_text(columns)
    outcome, method = published.ASKED[task]
    reasons = published.REASONS if task == "survival" else published.REASONS[:1]
    exclude = ", ".join(reasons)
    text = STUDY.format(task=task, outcome=outcome, exclude=exclude, method=method)
    (folder / "s.yaml").write_text(text)
    terms = Terms.of(folder / "s.yaml")
    tables = []
    for name, frame in random_sites(seed, task).items():
        try:
            tables.append(SiteTable.of(terms, name, frame))
        except Unfit:
            continue
    assert len(tables) > 1
    run_local(terms, tables, folder / "out")
    return terms, tables


def attacked(monkeypatch, folder, terms, tables):
    """Return what the attack of simulated studies makes of a deployed one."""
    table = SimpleNamespace(
        frame=pd.concat([t.frame for t in tables], ignore_index=True),
        site=np.concatenate([np.full(len(t.frame), t.site, object) for t in tables]),
        outcome=terms.outcome,
        flow=[(stage, t.site, n, note) for t in tables for stage, _, n, note in t.flow],
    )
    blind = np.concatenate([t.blind(0) for t in tables])
    laid = SimpleNamespace(
        problem=SimpleNamespace(frames={t.site: t.halves(0).train for t in tables})
    )
    monkeypatch.setattr(published, "test_rows", lambda *_: blind)
    monkeypatch.setattr(published, "lay_out", lambda *_: laid)
    return published.attack(folder, SimpleNamespace(plan=terms.plan, table=table))


@pytest.mark.parametrize("task", ["survival", "classification", "regression"])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_no_hidden_count_of_a_site_can_be_recovered(monkeypatch, tmp_path, task, seed):
    terms, tables = publish(tmp_path, seed, task)
    found = attacked(monkeypatch, tmp_path, terms, tables)
    assert len(found.cells) > 5
    assert found.recovered() == []


def test_events_that_one_site_hides_are_hidden_at_each_site(tmp_path):
    """Only their total is told, which Table 1 of all sites has as well."""
    rng = np.random.default_rng(0)
    columns = published.COLUMNS.replace("TARGET", published.TARGET["survival"])
    (tmp_path / "d.yaml").write_text(columns)
    text = STUDY.format(
        task="survival", outcome="{time: time, event: event}", exclude="missing outcome",
        method="cox",
    )  # fmt: skip
    (tmp_path / "s.yaml").write_text(text)
    terms = Terms.of(tmp_path / "s.yaml")
    tables = []
    for name, events in (("a", 40), ("b", 50), ("c", 7)):
        n = 90
        frame = pd.DataFrame({
            "age": rng.integers(40, 80, n), "grade": rng.choice(list("abcd"), n),
            "smoker": rng.integers(0, 2, n), "time": rng.integers(1, 900, n),
            "event": np.arange(n) < events,
        })  # fmt: skip
        tables.append(SiteTable.of(terms, name, frame))
    found = run_local(terms, tables, tmp_path / "out")
    (total,) = (v for v in found["cohort"]["variables"] if v["name"] == "event" and not v["site"])
    assert found["data"]["events"] == total["counts"]["1"] == 97
    assert all(s["events"] is None for x in found["scenarios"] for s in x["sites"])
    assert all(c["events"] is None for c in found["by_centre"])
    by_site = [v for v in found["cohort"]["variables"] if v["name"] == "event" and v["site"]]
    assert len(by_site) == 3
    assert all(n is None for v in by_site for n in v["counts"].values())
    own = {c["site"]: c["value"] for c in found["by_centre"]}
    assert own["c"] is None and own["a"] is not None
    text = (tmp_path / "out" / "models" / "cox" / "model.json").read_text()
    assert "events" not in json.loads(text)["model"]
