"""A design's features go back to the columns of the table that they were made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcohort as fc

WORDS = {
    "variables": {
        "age": {"type": "number", "unit": "years"},
        "sex": {"type": "binary"},
        "stage": {"type": "category", "levels": ["I", "II", "III"]},
    }
}


def table(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": rng.normal(60, 10, n).round(1),
        "sex": np.resize([0, 1], n),
        "stage": np.resize(["I", "II", "III"], n),
    })  # fmt: skip


def design(frame, **table_settings):
    fed = fc.simulate({"a": frame}, dictionary=WORDS)
    return fc.fit("vae", fed, q=1, rounds=1, internal_epochs=1, **table_settings).parts.design


@pytest.mark.parametrize("scale", ["none", "standard", "minmax"])
def test_what_was_written_comes_back(scale):
    frame = table(60, 0)
    made = design(frame, scale=scale)
    inside = frame[frame.age.between(*frame.age.quantile([0.1, 0.9]))]  # minmax cuts the tails
    again = made.table(made.matrix(inside))
    np.testing.assert_allclose(again.age, inside.age, atol=1e-9)
    assert (again.sex == inside.sex.to_numpy()).all()
    assert (again.stage == inside.stage.to_numpy()).all()


def test_a_quantile_scale_comes_back_between_its_knots():
    frame = table(200, 1)
    made = design(frame, scale="quantile")
    inside = frame[frame.age.between(*frame.age.quantile([0.05, 0.95]))]
    again = made.table(made.matrix(inside))
    assert np.abs(again.age - inside.age.to_numpy()).max() < 0.5


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4))
def test_any_features_are_some_levels(z):
    made = design(table(30, 2))
    (row,) = made.table(np.array([z])).to_dict("records")
    assert row["sex"] in (0, 1)
    assert row["stage"] in ("I", "II", "III")
