"""A design's origin lies near the middle of each feature, and is each column's own fill."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from data_cases import federation, scatter
from fedcohort.data.prepare import IMPUTES, SCALES, fit_design
from fedcohort.data.prepare.design import Design
from fedcohort.data.read.drafting import draft


def mixed(n=900, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "year": 2015.0 + rng.integers(-5, 6, n),
            "far": 1e8 + rng.normal(size=n),
            "skewed": np.exp(rng.normal(size=n)),
            "count": rng.poisson(0.2, n).astype(float),
            "yes": (rng.random(n) < 0.7).astype(float),
            "level": rng.choice(["a", "b", "c"], n),
            "offset": rng.normal(size=n) + 9,
        }
    )
    frame.loc[rng.random(n) < 0.1, ["skewed", "level"]] = np.nan
    return frame


def designed(frame, **options):
    return fit_design(federation(scatter(frame, 3)), draft(frame), None, **options)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("impute", IMPUTES)
def test_squares_about_the_origin_are_few_times_those_about_the_mean(scale, impute):
    frame = mixed()
    design = designed(frame, scale=scale, impute=impute)
    x = design.matrix(frame)
    assert design.origin.shape == (x.shape[1],)
    about = np.nanmean((x - design.origin) ** 2, axis=0)
    numbers = [j for j, name in enumerate(design.features) if "=" not in name]
    numbers = [j for j in numbers if "missing" not in design.features[j]]
    assert (about[numbers] < 4 * np.nanvar(x[:, numbers], axis=0)).all()
    others = np.setdiff1d(np.arange(x.shape[1]), numbers)
    assert len(others) >= 2
    assert not design.origin[others].any()


def test_a_value_that_is_missing_becomes_the_origin_bit_for_bit():
    frame = mixed()
    for scale in SCALES:
        design = designed(frame, scale=scale)
        j = design.features.index("skewed")
        missing = frame["skewed"].isna().to_numpy()
        np.testing.assert_array_equal(design.matrix(frame)[missing, j], design.origin[j])


def test_an_offset_has_the_origin_zero_and_a_saved_design_keeps_its_own():
    frame = mixed()
    design = designed(frame, offset="offset")
    assert design.features[-1] == "offset"
    assert design.origin[-1] == 0
    again = Design.from_json(design.to_json())
    np.testing.assert_array_equal(again.origin, design.origin)


def test_a_program_is_told_the_origin():
    frame = mixed().drop(columns=["offset"]).assign(y=1.0, site=np.arange(900) % 3)
    frame["y"] = np.random.default_rng(1).normal(size=900)
    fed = fc.simulate(frame, sites="site", outcome=fc.Continuous("y"))
    found = fc.fit("ridge", fed)
    steps = found.ledger.step.tolist()
    assert steps.count("products") == 3  # one sum: no digits were lost at 1e8
