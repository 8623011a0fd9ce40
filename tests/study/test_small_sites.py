"""A site of few patients shows no metric of them, in whichever file, arm or repeat."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.study.sites.layout import lay_out

STUDY = """\
study: small
task: {task}
data: {{source: t.csv, outcome: {outcome}, sites: {{column: site}}}}
arms: [{{method: {method}, l2: 0.1}}]
bounds: [isolated, centralised]
evaluate: {{repeats: 2, draws: 2}}
"""


def table() -> pd.DataFrame:
    """Return sites of which one has many of either class, one few events, one few of the others."""
    rng = np.random.default_rng(3)
    site = np.repeat(["many", "few", "most"], [120, 40, 40])
    x = rng.normal(size=200).round(3)
    chance = {"many": 0.5, "few": 0.1, "most": 0.95}
    event = rng.random(200) < [chance[s] for s in site]
    time = np.ceil(rng.exponential(300 * np.exp(-x))) + 1
    y = np.where(event, "yes", "no")
    return pd.DataFrame({"x": x, "time": time, "event": event * 1, "y": y, "site": site})


@pytest.mark.parametrize(
    ("task", "outcome", "method", "leading", "shown"),
    [
        ("survival", "{time: time, event: event}", "cox", "c_index", {"many", "most"}),
        ("classification", "{y: y}", "logistic", "auc", {"many"}),
    ],
)
def test_only_sites_with_enough_have_a_metric_of_their_own(
    tmp_path, task, outcome, method, leading, shown
):
    frame = table().drop(columns=["y"] if task == "survival" else ["time", "event"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    text = STUDY.format(task=task, outcome=outcome, method=method)
    (tmp_path / "s.yaml").write_text(text)
    study = fc.Study.from_file(tmp_path / "s.yaml")
    results = study.run(tmp_path / "out")
    own = results.metrics.query(f"metric == '{leading}_own' and site.notna()")
    assert len(own) == 3 * 3 * 2, "a line for each arm, site and repeat, with a value or without"
    for repeat in (0, 1):
        laid = lay_out(study.plan, study.table, study.plan.scenarios[0], repeat)
        case = laid.test["event"] > 0 if task == "survival" else laid.test["y"] == "yes"
        events = case.groupby(laid.test_site).sum()
        assert 0 < events["few"] < 5 <= events["most"]
        found = own[own.repeat == repeat].groupby("site").value.agg(["count", "size"])
        assert set(found.index[found["count"] > 0]) == shown
        assert set(found.index[found["count"] == found["size"]]) == shown
    by_centre = {r["site"] for r in results.content["by_centre"] if r["value"] is not None}
    assert by_centre == shown
