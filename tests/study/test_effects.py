"""A fit's summary in a notebook: units of covariates, steps of the dictionary, penalties."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.protocol import DataError
from fedcohort.study.results.effects import penalty_of

DICTIONARY = {
    "variables": {
        "age": {"type": "integer", "unit": "years", "per": 10},
        "marker": {"type": "number", "unit": "g/l"},
        "old": {"type": "binary"},
        "y": {"type": "binary"},
    }
}


@pytest.fixture(scope="module")
def fed():
    rng = np.random.default_rng(1)
    frames = {}
    for site in "abc":
        age, marker = rng.integers(30, 90, 120), rng.normal(5, 2, 120)
        p = 1 / (1 + np.exp(-(age - 60) / 20 - (marker - 5) / 4))
        frames[site] = pd.DataFrame(
            {"age": age, "marker": marker, "old": rng.integers(0, 2, 120),
             "y": (rng.random(120) < p).astype(int)}
        )  # fmt: skip
    return fc.simulate(frames, outcome=fc.Binary("y"), dictionary=DICTIONARY)


def test_numbers_have_their_unit_and_the_ratio_for_the_step_of_the_dictionary(fed):
    found = fc.fit("logistic", fed).summary.set_index("covariate")
    assert found.loc["age", "unit"] == "1 years"
    assert found.loc["marker", "unit"] == "1 g/l"
    assert found.loc["age", "per"] == "10 years"
    expected = np.exp(10 * found.loc["age", "coefficient"])
    np.testing.assert_allclose(found.loc["age", "odds_ratio_per"], expected)
    assert found.loc[["marker", "old"], "per"].isna().all()
    assert pd.isna(found.loc["old", "unit"])
    assert "shrunken" not in found


def test_scaled_numbers_say_what_one_standard_deviation_is_and_the_step_stays(fed):
    plain = fc.fit("logistic", fed).summary.set_index("covariate")
    found = fc.fit("logistic", fed, scale="standard").summary.set_index("covariate")
    assert found.loc["age", "unit"].startswith("1 SD, 1")
    np.testing.assert_allclose(
        found.loc["age", "odds_ratio_per"], plain.loc["age", "odds_ratio_per"], rtol=1e-6
    )


def test_a_penalised_fit_says_so_in_each_row_also_when_it_is_read_again(fed, tmp_path):
    fit = fc.fit("logistic", fed, l2=0.5)
    assert set(fit.summary.shrunken) == {"l2 0.5"}
    fit.save(tmp_path / "m")
    assert set(fc.load(tmp_path / "m").summary.shrunken) == {"l2 0.5"}


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("cox", {}, ""), ("cox", {"l2": 0.01}, "l2 0.01"), ("cox", {"l1": 0.1}, "l1 0.1"),
        ("cox", {"penalty": "auto"}, "penalty chosen by the data"),
        ("ridge", {}, ""), ("ridge", {"penalty": 2}, "penalty 2"),
        ("lasso", {}, "penalty chosen by the data"), ("logistic", {"penalty": 0.1}, "penalty 0.1"),
        ("elastic_net", {"l1": 0.1, "l2": 0.2}, "l1 0.1, l2 0.2"), ("glm", {}, ""),
    ],
)  # fmt: skip
def test_a_penalty_is_read_from_the_settings_of_every_method_that_has_one(method, settings, said):
    assert penalty_of(method, settings) == said


@pytest.mark.parametrize("spec", [{"type": "number", "per": 0}, {"type": "category", "per": 2}])
def test_a_step_is_a_number_above_0_of_a_number(spec):
    with pytest.raises(DataError, match="'per'"):
        fc.simulate(
            {"a": pd.DataFrame({"x": [1.0, 2.0]})},
            dictionary={
                "variables": {"x": {**spec, **({"levels": ["a"]} if "cat" in spec["type"] else {})}}
            },
        )
