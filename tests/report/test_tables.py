import json

from fedcohort.report import summary_table
from report import synthetic


def test_table_has_an_arm_a_row_and_a_scenario_a_column(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid", "unbalanced"], repeats=3)
    results = json.loads((folder / "results.json").read_text())
    head, *body = summary_table(results)
    assert head == ["C-index", "iid", "unbalanced"]
    assert [r[0] for r in body] == list(synthetic.LEVELS)
    found = next(
        s for s in results["summary"]
        if (s["arm"], s["scenario"], s["metric"]) == ("cox", "iid", "c_index")
    )  # fmt: skip
    assert body[3][1] == f"{found['mean']:.3f} ± {found['sd']:.3f}"


def test_other_metrics_single_repeats_and_failures_have_their_cells(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    results = json.loads((folder / "results.json").read_text())
    for row in results["arms"]:
        if row["arm"] == "cox":
            row.update(status="failed: no events", metrics={})
    results["summary"] = synthetic.summarise([r for r in results["arms"] if r["metrics"]])
    rows = summary_table(results, "ibs")
    assert rows[0][0] == "Brier score"
    assert rows[4] == ["cox", "failed"]
    assert "±" not in rows[1][1]
