"""Bounds are honest where a site cannot learn anything alone."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.protocol import DataError, NothingToLearn
from fedcohort.study.run import local_fits

STUDY = """\
study: bounds
data:
  source: t.csv
  outcome: {time: time, event: event}
  sites: {split: by-outcome, n: 4}
arms: [{method: deepcox, strategy: exact, rounds: 10}]
bounds: [isolated, centralised]
evaluate: {repeats: 2, metrics: [c_index, ibs]}
tune: {arms: {isolated: {rounds: [2, 4]}}}
"""


def test_a_site_without_events_counts_as_chance_in_the_lower_bound(tmp_path):
    rng = np.random.default_rng(5)
    x = rng.normal(size=240)
    time = np.ceil(100 * rng.exponential(np.exp(-x))) + 1
    table = pd.DataFrame({"x": x, "time": time, "event": (time < np.quantile(time, 0.6)) * 1})
    table.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "s.yaml").write_text(STUDY)
    results = fc.Study.from_file(tmp_path / "s.yaml").run(tmp_path / "out")
    assert not results.failures
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["arms"]
    last = [r for r in rows if r["arm"] == "isolated" and r["site"] == "site-4"]
    assert len(last) == 2
    for row in last:
        assert row["metrics"]["c_index"] == 0.5
        assert row["metrics"]["ibs"] is None
        assert row["note"] == "its own rows give no model"
    assert {p.name for p in (tmp_path / "out" / "models").iterdir()} == {"exact"}
    history = pd.read_csv(tmp_path / "out" / "history.csv")
    assert set(history["arm"]) == {"exact", "centralised"}
    assert history["site"].isna().all()
    summary = results.summary.set_index(["arm", "metric"])
    own = [r["metrics"]["c_index"] for r in rows if r["arm"] == "isolated" and r["site"]]
    assert summary.loc[("isolated", "c_index"), "mean"] == np.mean(own)
    for arm in ("isolated", "exact", "centralised"):
        assert summary.loc[(arm, "c_index"), "low"] < summary.loc[(arm, "c_index"), "high"]


@pytest.mark.parametrize("error", [DataError, NothingToLearn])
def test_bad_data_at_a_site_fails_the_bound_and_rows_without_a_model_do_not(
    tmp_path, monkeypatch, error
):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"x": rng.normal(size=80), "time": rng.exponential(9, 80) + 1})
    frame.assign(event=np.arange(80) % 2).to_csv(tmp_path / "t.csv", index=False)
    text = STUDY.replace("by-outcome, n: 4", "iid, n: 2").replace("repeats: 2", "repeats: 1")
    text = text.partition("tune:")[0].replace("deepcox, strategy: exact, rounds: 10", "cox")
    (tmp_path / "s.yaml").write_text(text)
    fit = local_fits.fit_once

    def broken(problem, *given, **more):
        if list(problem.frames) == ["site-1"]:
            raise error("column 'x' is not as it should be.")
        return fit(problem, *given, **more)

    monkeypatch.setattr(local_fits, "fit_once", broken)
    results = fc.Study.from_file(tmp_path / "s.yaml").run(tmp_path / "out")
    rows = [r for r in results.content["arms"] if r["arm"] == "isolated"]
    failed = [r for r in rows if r["status"].startswith("failed: column 'x'")]
    chance = [r for r in rows if r.get("note")]
    assert bool(failed) == (error is DataError)
    assert [r["site"] for r in chance] == ([] if error is DataError else ["site-1"])
