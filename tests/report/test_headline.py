import json

import pytest

from fedcohort.algorithms.bayes_net.settings import BayesNetSettings
from fedcohort.report.run import Run, read
from fedcohort.report.sections.headline import by_scenario, caveats, facts
from fedcohort.report.sections.replies import _crowded
from fedcohort.report.verdict import answer, judge, leading
from report import synthetic

ALONE = [0.60, 0.62, 0.61, 0.63]
POOLED = [0.70, 0.71, 0.70, 0.71]
GOOD = [0.68, 0.69, 0.70, 0.69]


def run_of(tmp_path, arms, **results):
    """Return a run whose arms have these values, one scenario, a repeat each."""
    if not isinstance(next(iter(arms.values())), dict):
        arms = {a: {"iid": v} for a, v in arms.items()}
    rows = [
        {"arm": a, "scenario": s, "repeat": i, "site": None, "metrics": {"c_index": v},
         "status": "done"}
        for a, by in arms.items() for s, values in by.items() for i, v in enumerate(values)
    ]  # fmt: skip
    content = {
        "schema": 1,
        "arms": rows,
        "summary": synthetic.summarise(rows),
        "evaluate": {"test_fraction": 0.25, "metrics": ["c_index"]},
        **results,
    }
    return Run(content, tmp_path)


def test_headline_states_the_share_that_a_hand_calculation_gives(tmp_path):
    run = run_of(tmp_path, {"isolated": ALONE, "exact": GOOD, "centralised": POOLED})
    # mean gain 0.075 of mean gap 0.090 is 83 %; levels 0.615 and 0.705
    assert answer(run).startswith("Training together closed 83 % (95 % interval ")
    assert answer(run).endswith(
        "of the gap between a hospital alone (C-index 0.615) and all data in one place (0.705)."
    )


def test_more_than_the_gap_is_said_as_all_of_it(tmp_path):
    better = [v + 0.01 for v in POOLED]
    run = run_of(tmp_path, {"isolated": ALONE, "exact": better, "centralised": POOLED})
    assert "closed all" in answer(run)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.62, 0.60, 0.63, 0.61], "did not clearly beat a hospital alone."),
        ([0.50, 0.51, 0.50, 0.52], "did worse than a hospital alone."),
    ],
)
def test_an_arm_that_does_not_help_is_said_not_to(tmp_path, values, words):
    run = run_of(tmp_path, {"isolated": ALONE, "exact": values, "centralised": POOLED})
    assert answer(run) == f"Training together {words}"


def test_without_a_clear_gap_no_share_is_claimed(tmp_path):
    same = [0.61, 0.61, 0.62, 0.62]
    run = run_of(tmp_path, {"isolated": ALONE, "exact": same, "centralised": same})
    assert answer(run).startswith("There was no clear gap to close")


def test_two_runs_are_called_only_two(tmp_path):
    arms = {"isolated": [0.6, 0.61], "exact": [0.68, 0.67], "centralised": [0.7, 0.69]}
    assert answer(run_of(tmp_path, arms)).startswith("In only 2 runs, training together reached")


def test_one_run_is_called_one_run(tmp_path):
    run = run_of(tmp_path, {"isolated": [0.6], "exact": [0.68], "centralised": [0.7]})
    assert answer(run) == (
        "In a single run, training together reached a C-index of 0.680, a hospital alone 0.600, "
        "and all data in one place 0.700: too few runs to tell them apart."
    )
    assert "too few repeats" in by_scenario(run, leading(run))
    assert any("run once" in c for c in caveats(run, leading(run)))


def test_over_scenarios_the_range_and_their_number_are_given(tmp_path):
    arms = {
        "isolated": {"iid": ALONE, "by-outcome": ALONE},
        "exact": {"iid": GOOD, "by-outcome": [0.61, 0.61, 0.62, 0.62]},
        "centralised": {"iid": POOLED, "by-outcome": POOLED},
    }
    run = run_of(tmp_path, arms)
    assert answer(run).endswith(", in 1 of 2 settings.")
    text = by_scenario(run, leading(run))
    assert "not clearly better than a hospital alone" in text


def test_the_leading_arm_is_the_best_and_is_said_to_be_picked(tmp_path):
    arms = {"isolated": ALONE, "fedavg": [v - 0.03 for v in GOOD], "exact": GOOD,
            "centralised": POOLED}  # fmt: skip
    run = run_of(tmp_path, arms)
    arm = leading(run)
    assert arm.name == "exact"
    assert any("best, on average, of 2 ways" in c for c in caveats(run, arm))


def test_an_arm_can_beat_a_hospital_alone_where_pooling_does_not(tmp_path):
    noisy = [0.70, 0.55, 0.72, 0.58]
    run = run_of(tmp_path, {"isolated": ALONE, "exact": GOOD, "centralised": noisy})
    assert judge(run, leading(run), "iid").kind == "ahead"
    assert answer(run) == (
        "Training together beat a hospital alone (C-index 0.690 against 0.615); all data in one "
        "place did not clearly do so."
    )


def test_a_lower_is_better_metric_is_turned_round(tmp_path):
    arms = {"isolated": ALONE, "exact": GOOD, "centralised": POOLED}
    run = run_of(tmp_path, arms)
    flipped = [{**r, "metrics": {"ibs": 1 - r["metrics"]["c_index"]}} for r in run.rows("arms")]
    other = Run(
        {**run.results, "arms": flipped, "summary": synthetic.summarise(flipped),
         "evaluate": {"test_fraction": 0.25, "metrics": ["ibs"]}},
        tmp_path,
    )  # fmt: skip
    assert answer(other).startswith("Training together closed 83 %")
    assert judge(other, leading(other), "iid").share.low == pytest.approx(
        judge(run, leading(run), "iid").share.low
    )


def test_without_bounds_only_the_level_is_reported(tmp_path):
    run = run_of(tmp_path, {"exact": GOOD})
    assert answer(run) == "Training together reached a C-index of 0.690."


def test_failed_fits_are_counted_with_their_reason(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=2)
    content = json.loads((folder / "results.json").read_text())
    for row in content["arms"]:
        if row["arm"] == "cox":
            row.update(status="failed: covariates are collinear", metrics={})
    (folder / "results.json").write_text(json.dumps(content))
    run = read(folder)
    said = caveats(run, leading(run))
    assert "2 fits of “Cox regression” failed: covariates are collinear." in said


def test_hospitals_that_count_as_chance_are_named(tmp_path):
    run = run_of(tmp_path, {"isolated": ALONE, "exact": GOOD, "centralised": POOLED})
    title = run.lower.title
    note = {"arm": "isolated", "scenario": "iid", "repeat": 0, "metrics": {"c_index": 0.5},
            "status": "done", "note": "its own rows give no model"}  # fmt: skip
    assert not any("chance:" in c for c in caveats(run, leading(run)))
    run.results["arms"].append({**note, "site": "north"})
    said = caveats(run, leading(run))
    assert f"In “{title}”, north counts as chance: its own rows give no model." in said
    run.results["arms"].append({**note, "site": "south"})
    (line,) = [c for c in caveats(run, leading(run)) if "chance:" in c]
    assert line.startswith(f"In “{title}”, north and south count as chance: their own rows")
    sites = [{"site": s} for s in ("north", "south", "west")]
    run.results["scenarios"] = [{"scenario": "iid", "title": "alike", "sites": sites}]
    (line,) = [c for c in caveats(run, leading(run)) if "chance:" in c]
    assert line.endswith(" These are 2 of 3 hospitals.")


def test_a_fit_that_ended_too_early_is_said_before_it_is_quoted(tmp_path):
    """Such as bayes_net with many hospitals and few rounds; not among what left each hospital."""
    note = BayesNetSettings(rounds=5).unfinished(4)
    crowd = [{"arm": "exact", "note": note, "about": "fit"}, {"arm": "exact", "note": "60 free"}]
    run = run_of(tmp_path, {"isolated": ALONE, "exact": GOOD, "centralised": POOLED}, crowded=crowd)
    told = [c for c in caveats(run, leading(run)) if "rounds are too few" in c]
    assert len(told) == 1
    assert told[0].startswith("“")
    assert told[0].endswith(".")
    assert "with 4 sites, 5 rounds are too few" in told[0]
    assert _crowded(run) == " exact: 60 free."


def test_a_reason_that_ends_with_a_full_stop_gets_no_second_one(tmp_path):
    run = run_of(tmp_path, {"isolated": ALONE, "exact": GOOD, "centralised": POOLED})
    run.results["arms"][0]["status"] = "failed: a column is empty. Drop it."
    said = caveats(run, leading(run))
    assert any(c.endswith("failed: a column is empty. Drop it.") for c in said)


def test_a_model_for_one_hospital_is_said_to_be_judged_on_all(tmp_path):
    arms = {"isolated": ALONE, "ditto": GOOD, "fedavg": GOOD}
    declared = [
        {"arm": a, "title": a, "method": "deepcox", "role": r, "settings": {"user": user}}
        for a, r, user in (
            ("isolated", "lower bound", ""), ("ditto", "arm", "north"), ("fedavg", "arm", ""),
        )
    ]  # fmt: skip
    run = run_of(tmp_path, arms, declared=declared)
    said = " ".join(caveats(run, leading(run)))
    assert "“ditto” is a model for north, judged here on the patients of all hospitals." in said
    assert said.count("is a model for") == 1


def compared(arm, against, low, high, value, **more):
    row = {"scenario": "iid", "metric": "c_index", "arm": arm, "against": against}
    return row | {"difference": value, "low": low, "high": high, "n": 2, "by": "patients", **more}


def test_two_runs_tell_arms_apart_where_patients_were_drawn_again(tmp_path):
    arms = {"isolated": [0.566, 0.566], "exact": [0.702, 0.702], "centralised": [0.71, 0.71]}
    rows = [
        compared("exact", "isolated", 0.11, 0.16, 0.136, share={"low": 0.9, "high": 1.02}),
        compared("centralised", "isolated", 0.12, 0.17, 0.144),
        compared("centralised", "exact", -0.002, 0.018, 0.008),
    ]
    run = run_of(tmp_path, arms, comparisons=rows)
    assert answer(run).startswith(
        "Training together closed 94 % (95 % interval 90–102 %) of the gap"
    )
    text = by_scenario(run, leading(run))
    assert "what remains to all data in one place is within chance" in text
    back = run.difference("exact", "centralised", "iid")
    assert (back.value, back.low, back.high) == (-0.008, -0.018, 0.002)
    assert any("by the same draws for both" in c for c in caveats(run, leading(run)))


def test_two_runs_over_a_network_say_why_they_tell_too_little(tmp_path):
    arms = {"isolated": [0.6, 0.61], "exact": [0.68, 0.67], "centralised": [0.7, 0.69]}
    run = run_of(tmp_path, arms, network={"sites": ["a"]})
    assert answer(run).endswith(
        "too few runs to tell them apart, since patients cannot be drawn again over a network."
    )


def test_a_final_fit_without_a_hospital_is_said_in_the_headline_as_in_the_card(tmp_path):
    """The headline said that the model is of all rows, and the card whose rows its sums lack."""
    final = {"arm": "exact", "scenario": "iid", "status": "done"}
    lack = {"arm": "exact", "scenario": "iid", "site": "oslo", "repeat": "final", "calls": 3}
    arms = {"isolated": ALONE, "exact": GOOD}
    (tmp_path / "a").mkdir()
    said = " ".join(caveats(run_of(tmp_path / "a", arms, final=[final], missing=[lack]), None))
    assert "is not over all hospitals: some or all of its sums lack the rows of oslo" in said
    (tmp_path / "b").mkdir()
    other = {**lack, "repeat": 0}
    said = " ".join(caveats(run_of(tmp_path / "b", arms, final=[final], missing=[other]), None))
    assert "final fits to all rows" in said
    assert "not over all hospitals" not in said


def test_a_horizon_that_a_model_does_not_reach_is_said_with_the_time_that_it_reaches(tmp_path):
    row = {"arm": "exact", "scenario": "iid", "repeat": 0, "known_until": 700.0, "stratum": None}
    asked = {"evaluate": {"test_fraction": 0.25, "metrics": ["c_index"], "horizon": "2 years"}}
    run = run_of(
        tmp_path, {"isolated": ALONE, "exact": GOOD}, unknown_at_horizon=[row],
        **asked,
    )  # fmt: skip
    (said,) = [c for c in caveats(run, None) if "asks for risks" in c]
    assert "knows survival up to 700 only" in said
    assert "its risk by 2 years stays empty" in said


def test_columns_that_no_model_uses_are_no_features(tmp_path):
    def dropped(*pairs):
        return [
            {"arm": arm, "column": column, "reason": "constant", "scenario": "iid", "repeat": 0}
            for arm, column in pairs
        ]

    data = {"features": ["age", "flat", "size", "empty"], "rows": 10}
    arms = {"isolated": ALONE, "exact": GOOD, "fedavg": GOOD, "centralised": POOLED}
    every = dropped(("exact", "flat"), ("fedavg", "flat"), ("exact", "empty"), ("fedavg", "empty"))
    for rows, count in (([], 4), (dropped(("exact", "flat"), ("fedavg", "size")), 4), (every, 2)):
        said = str(facts(run_of(tmp_path, arms, data=data, dropped=rows)))
        assert f"<dt>features per patient</dt><dd>{count}</dd>" in said
