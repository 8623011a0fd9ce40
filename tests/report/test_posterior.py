import json
import re

from fedcohort.report.run import read
from fedcohort.report.sections import posterior
from fedcohort.report.sections.parameters import parameters
from report import synthetic


def section(tmp_path, rows, unlike=()):
    """Return the words of the section of a run with these rows; None without one."""
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    head = {"arm": content["arms"][0]["arm"], "scenario": "iid", "repeat": 0, "n": 110}
    content["posterior"] = [{**head, "level": 0.9, **row} for row in rows]
    content["unlike"] = [{**head, **row} for row in unlike]
    (folder / "results.json").write_text(json.dumps(content))
    made = posterior.section(read(folder))
    return made and re.sub(r"<[^>]+>|\s", " ", f"{made.intro}{made.body}")


def test_the_share_of_the_model_stands_beside_the_coverage_with_its_interval(tmp_path):
    row = {"epistemic": 0.0353, "covered": 100 / 110, "low": 0.8392, "high": 0.9561}
    said = section(tmp_path, [row])
    for words in ("110", "3.5 %", "90.9 % (83.9 % to 95.6 %)", "An interval of 90 % should hold"):
        assert words in said


def test_a_study_without_judged_intervals_has_no_column_of_coverage(tmp_path):
    said = section(tmp_path, [{"epistemic": 0.2, "covered": None}])
    assert "20.0 %" in said
    assert "interval" not in said


def test_a_study_without_a_posterior_has_no_such_section(tmp_path):
    assert section(tmp_path, []) is None


def test_hospitals_that_were_left_out_stand_below_with_their_auc_or_a_note(tmp_path):
    known = {"site": "oslo", "value": 0.8604, "low": 0.8011, "high": 0.9043, "note": None}
    few = {"site": "bergen", "value": None, "low": None, "high": None, "note": "no fit without it"}
    said = section(tmp_path, [{"nlpd": 5.4121, "covered": None}], [known, few])
    for words in ("5.412", "oslo", "0.860", "0.801–0.904", "bergen", "no fit without it"):
        assert words in said
    assert "Share due to the model" not in said


def test_predictive_checks_have_a_table_of_their_own_without_words_of_credible_intervals(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    head = {"arm": content["arms"][0]["arm"], "scenario": "iid", "repeat": 0}
    row = {"name": "skewness", "value": 0.4, "low": -0.2, "high": 0.3, "share_above": 0.004}
    content["parameters"] = [{**head, "name": "intercept", "value": 1.5}, {**head, **row}]
    (folder / "results.json").write_text(json.dumps(content))
    run = read(folder)
    first, second = re.findall(r"<table.*?</table>", str(parameters(run, run.arms[0], "95 %")))
    assert "skewness" not in first
    assert "intercept" not in second
    for words in ("skewness", "−0.2", "0.3", "0.004", "Share drawn above"):
        assert words in second
