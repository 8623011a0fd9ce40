"""Ratios for steps of a covariate, and how effects of penalised fits are called."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.report import page
from fedcohort.report.clock import Clock, said
from fedcohort.report.modelling import round_step, stepped
from fedcohort.report.run import read
from report import synthetic

TABLE_ONE = [
    {"name": "age", "site": None, "sd": 12.1, "type": "integer"},
    {"name": "age", "site": "a", "sd": 90.0, "type": "integer"},
    {"name": "children", "site": None, "sd": 0.4, "type": "integer"},
    {"name": "marker", "site": None, "sd": 0.04, "type": "number"},
    {"name": "hidden", "site": None, "sd": None, "type": "number"},
]


def row(name, b=0.02, **more):
    return {"covariate": name, "coefficient": b, "hazard_ratio": math.exp(b), **more}


@pytest.mark.parametrize(
    ("given_", "scale", "step", "factor"),
    [
        (row("age", scale=1.0, unit="years"), "none", "per 10 years", 10.0),
        (row("age", scale=1.0, unit="years", per=5), "none", "per 5 years", 5.0),
        (row("age", scale=12.0, unit="years", per=5), "standard", "per 5 years", 5 / 12),
        (row("age", scale=12.0, unit="years"), "standard", "per SD (12 years)", 1.0),
        (row("age", scale=60.0, unit="years"), "minmax", "per 10 years", 1 / 6),
        (row("children", scale=1.0), "none", "per 1", 1.0),
        (row("wbc", scale=1.0, unit="10^9/L", per=10), "none", "per 10 × 10^9/L", 10.0),
        (row("marker", scale=1.0, unit="g/l"), "none", "per 0.05 g/l", 0.05),
        (row("hidden", scale=4.0, unit="g/l"), "minmax", "per 4 g/l", 1.0),
    ],
)
def test_the_step_is_what_the_dictionary_asks_for_or_a_round_number_near_the_sd(
    given_, scale, step, factor
):
    (found,) = stepped([given_], scale, TABLE_ONE)
    assert found["step"] == step
    assert found["factor"] == pytest.approx(factor)
    assert found["hazard_ratio"] == pytest.approx(math.exp(0.02 * factor))
    assert found["coefficient"] == 0.02  # with the constant it writes the model down


def test_a_number_whose_sd_is_hidden_has_the_step_that_its_standard_error_suggests():
    """Standard errors of a fit are about in proportion to 1 / sd: 0.001 is as of an sd of 121."""
    rows = [row("age", scale=1.0, standard_error=0.01), row("hidden", scale=1.0)]
    assert stepped(rows, "none", TABLE_ONE)[1]["step"] == "per 1"
    rows[1]["standard_error"] = 0.001
    rows.append(rows[1] | {"standard_error": 0.1})  # of a further fit: the first tells the step
    found = stepped(rows, "none", TABLE_ONE)
    assert [r["step"] for r in found] == ["per 10", "per 100", "per 100"]


def test_levels_and_coefficients_that_are_no_ratios_stay_as_they_are():
    level = row("sex=m")
    assert stepped([level], "none", TABLE_ONE) == [level]
    plain = {"covariate": "age", "coefficient": 2.0, "scale": 1.0, "unit": "years"}
    assert stepped([plain], "none", TABLE_ONE) == [plain | {"step": "per 1 years", "factor": 1.0}]


@given(st.floats(1e-6, 1e9))
def test_a_round_step_is_1_2_or_5_times_a_power_of_ten_and_no_other_is_nearer(spread):
    step = round_step(spread)
    digit = f"{step:.3e}"[0]
    assert f"{step:.3e}"[1:5] == ".000" and digit in "125"
    others = [k * 10.0**e for k in (1, 2, 5) for e in range(-8, 11)]
    gap = abs(math.log(step / spread))
    assert all(gap <= abs(math.log(o / spread)) + 1e-9 for o in others)


def html_of(tmp_path, **more):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    for c in content["coefficients"]:
        c.update(more)
    (folder / "results.json").write_text(json.dumps(content))
    return page.render(read(folder))


def test_effects_of_a_penalised_fit_are_called_shrunken_wherever_they_stand(tmp_path):
    html = html_of(tmp_path, shrunken="l2 0.01")
    block = html[html.index('<section id="coefficients"') :]
    block = block[: block.index("</section>")]
    assert "Shrunken HR (± 1.96 SE, no CI)" in block
    assert "Hazard ratio, log scale, shrunken" in block
    assert "Shrunken coefficients, under a penalty (l2 0.01): no estimates of the effects" in block
    assert "shrunken towards 1 by a penalty (l2 0.01)" in block
    assert "are no estimates of the effects" in block
    assert "95 %" not in block and ">p<" not in block
    paper = html[html.index('<section id="paper"') :]
    assert "penalised: coefficients are shrunken towards no effect, and no confidence" in paper


def test_effects_without_a_penalty_keep_their_intervals(tmp_path):
    html = html_of(tmp_path)
    assert "HR (95 % CI)" in html
    assert "hrunken" not in html


@pytest.mark.parametrize(
    ("time", "unit", "text"),
    [
        (365, "days", "365 days (1 year)"), (730.5, "days", "730.5 days (2 years)"),
        (90, "days", "90 days"), (18, "months", "18 months (1.5 years)"), (5, "years", "5 years"),
        (400, "", "400"), (400, "cycles", "400 cycles"), (104, "weeks", "104 weeks (2 years)"),
    ],
)  # fmt: skip
def test_a_time_is_said_with_its_unit_and_in_years_where_it_is_long(time, unit, text):
    assert said(time, unit) == text


def test_a_long_follow_up_is_shown_in_years_and_a_short_one_as_it_is():
    long = Clock.of("days", 3652.5)
    assert (long.axis, long.at(3652.5)) == ("time since start, years", 10.0)
    assert Clock.of("days", 700.0).axis == "time since start, days"
    assert Clock.of("months", 60.0).at(60.0) == pytest.approx(5.0)
    assert Clock.of("", 1e6).axis == "time since start"
