import json
import math
import re

from fedcohort.report.run import read
from fedcohort.report.sections import coefficients
from report import synthetic


def section(folder):
    made = coefficients.section(read(folder))
    return f"{made.intro}{made.body}"


def test_hazard_ratios_and_intervals_are_exponentials_of_the_coefficients(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=2)
    page = section(folder)
    row = json.loads((folder / "results.json").read_text())["coefficients"][2]
    hr, low, high = (math.exp(row[k]) for k in ("coefficient", "low", "high"))
    assert f"horTh=yes: hazard ratio {hr:.2f} ({low:.2f}–{high:.2f})" in page


def test_separated_covariates_do_not_break_the_picture(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    content["coefficients"][0].update(coefficient=40.0, low=-2000.0, high=2000.0)
    content["coefficients"][1].update(coefficient=None, low=None, high=None)
    (folder / "results.json").write_text(json.dumps(content))
    page = section(folder)
    assert "age: hazard ratio 2.4e+17" in page
    assert "estrogen_receptor: hazard ratio –" in page


def test_logistic_rows_are_odds_ratios(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    for row in content["coefficients"]:
        row["odds_ratio"] = row.pop("hazard_ratio")
    (folder / "results.json").write_text(json.dumps(content))
    page = section(folder)
    assert "age: odds ratio" in page
    assert "Odds ratio, log scale" in page
    assert "OR (95 % CI)" in page
    assert "hazard ratio" not in page.lower()


def test_levels_that_became_one_are_named(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    head = {k: content["coefficients"][0][k] for k in ("arm", "scenario", "repeat")}
    content["pooled"] = [{**head, "column": "stage", "levels": ["III", "IVa"], "least": 5}]
    (folder / "results.json").write_text(json.dumps(content))
    assert "stage, other levels: III, IVa (fewer than 5 rows each" in section(folder)


def changed(tmp_path, change):
    """Return the section of a run whose results were changed."""
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    change(content)
    (folder / "results.json").write_text(json.dumps(content))
    return section(folder)


def test_the_rest_of_the_model_stands_below_its_coefficients(tmp_path):
    head = {"arm": "cox", "scenario": "iid", "repeat": 0}

    def change(content):
        content["parameters"] = [
            {**head, "name": "constant", "value": -2.5, "standard_error": 0.25, "low": -2.99,
             "high": -2.01, "p": 0.0001, "note": "added to all"},
            {**head, "name": "baseline survival", "time": 365.0, "unit": "days", "value": 0.71},
            {**head, "name": "covariate age", "value": None, "note": "(age − 60) / 10"},
            {**head, "repeat": 1, "name": "of another repeat", "value": 1.0},
        ]  # fmt: skip

    page = changed(tmp_path, change).partition("Rest of the model")[2]
    assert "−2.500" in page
    assert "−2.990 to −2.010" in page
    assert "&lt; 0.001" in page
    assert "baseline survival at 365 days" in page
    assert "<b>covariate age</b>: (age − 60) / 10." in page
    assert "another repeat" not in page


def test_an_effect_per_large_unit_is_not_rounded_to_nothing(tmp_path):
    def change(content):
        row = content["coefficients"][0]
        row.update(coefficient=2.1e-6, standard_error=4e-7, low=1.3e-6, high=2.9e-6)

    page = changed(tmp_path, change)
    assert "age: hazard ratio 1.0000021 (1.0000013–1.0000029)" in page
    assert ">2.10e−06<" in page
    assert ">4.00e−07<" in page


def test_the_table_says_which_level_its_intervals_have(tmp_path):
    def change(content):
        for one in content["declared"]:
            one["settings"]["level"] = 0.9

    page = changed(tmp_path, change)
    assert "HR (90 % CI)" in page
    assert "Bars are 90 % intervals" in page
    assert "95 %" not in page


def test_pooled_coefficients_say_how_sites_differ(tmp_path):
    def change(content):
        content["coefficients"][0].update(
            tau2=0.04, i2=0.37, prediction_low=-0.5, prediction_high=0.3
        )

    page = changed(tmp_path, change).partition("Differences between sites")[2]
    assert "37 %" in page
    assert "HR at a new site" in page
    assert f"{math.exp(-0.5):.2f}–{math.exp(0.3):.2f}" in page


def many(se):
    """Return what makes 40 coefficients of one arm, the last two of which are the strongest."""

    def change(content):
        first = content["coefficients"][0]
        content["coefficients"] = [
            {**first, "covariate": f"x{i}", "coefficient": 0.01 * (i + 1), "hazard_ratio": 1.0,
             "standard_error": se(i)}
            for i in range(40)
        ]  # fmt: skip

    return change


def test_of_more_coefficients_than_a_page_holds_the_strongest_stand_in_the_open_figure(tmp_path):
    """The first 36 columns stood there, and the strongest effect behind a fold."""
    page = changed(tmp_path / "z", many(lambda i: 0.1 if i < 39 else 4.0))
    first, rest = page.split("part 2 of 2", 1)
    assert "x38: hazard ratio" in first
    assert first.index("x38: hazard ratio") < first.index("x37: hazard ratio")
    assert "x39: hazard ratio" in rest and "x39: hazard ratio" not in first  # z = 0.1
    assert "40 effects, the strongest first, by |z|, a coefficient over its standard error" in page
    page = changed(tmp_path / "plain", many(lambda i: None))
    first = page.split("part 2 of 2", 1)[0]
    assert first.index("x39: hazard ratio") < first.index("x38: hazard ratio")
    assert "x0: hazard ratio" not in first
    assert "by the size of the effect for the step that is named" in page


def test_a_posterior_has_a_credible_interval_and_a_probability_but_no_p_and_no_ci(tmp_path):
    def change(content):
        for row in content["coefficients"]:
            del row["p"]
            row["above_0"] = 0.9876
        head = {k: content["coefficients"][0][k] for k in ("arm", "scenario", "repeat")}
        constant = {"name": "intercept", "value": 1.0, "standard_error": 0.5, "low": 0.1}
        content["parameters"] = [{**head, **constant, "high": 1.9}]

    page = changed(tmp_path, change)
    for said in ("Posterior mean", "Posterior SD", "95 % credible interval", "P(&gt; 0)", "0.988"):
        assert said in page
    assert "an interval that holds the effect with probability 95 %" in page
    assert not re.search(r"\bCI\b|\bSE\b|>p<|&quot;p&quot;|confidence|leave the direction", page)
