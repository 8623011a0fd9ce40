"""Outliers, ranks, rare levels and durations: what scipy, scikit-learn and pandas say of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import rankdata
from scipy.stats.mstats import winsorize
from sklearn.preprocessing import QuantileTransformer

from data_cases import federation, mixed, scatter
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Survival
from fedcohort.data.prepare import IMPUTES, SCALES, fit_design
from fedcohort.data.prepare.design import Design
from fedcohort.data.read.drafting import draft
from fedcohort.protocol import DataError, SettingError

OUTCOME = Survival("time", "event")


def designed(frame, n_sites=3, outcome=None, dictionary=None, **options):
    dictionary = dictionary or draft(frame, outcome)
    return fit_design(federation(scatter(frame, n_sites)), dictionary, outcome, **options)


def lognormal(n=3000, seed=0):
    return pd.DataFrame({"x": np.exp(1.5 * np.random.default_rng(seed).normal(size=n))})


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25])
def test_winsorised_values_equal_scipy_within_the_stated_error(share):
    frame = lognormal()
    design = designed(frame, scale="none", winsorise=share)
    truth = winsorize(frame["x"].to_numpy(), (share, share))
    assert_allclose(design.matrix(frame)[:, 0], truth, atol=design.columns[0].error)
    assert design.columns[0].error < 0.02 * frame["x"].max()


def test_standard_scaling_and_mean_imputation_are_of_what_remains_after_the_cut():
    frame = lognormal()
    frame.loc[:99, "x"] = np.nan
    design = designed(frame, scale="standard", impute="mean", winsorise=0.05)
    x = design.matrix(frame)[:, 0]
    assert_allclose(x[:100], 0, atol=1e-12)
    # rounded to a quarter of a standard error and up to 2.5 times that
    assert_allclose([x[100:].mean(), x[100:].std()], [0, 1], atol=1 / (3 * np.sqrt(2900)))


def test_the_median_is_the_same_before_and_after_the_cut():
    frame = lognormal()
    plain, cut = (designed(frame, winsorise=w).columns[0].fill for w in (0.0, 0.2))
    assert plain == cut


def test_minmax_uses_the_share_that_is_cut():
    frame = lognormal()
    c = designed(frame, scale="minmax", winsorise=0.1).columns[0]
    ordered = np.sort(frame["x"])
    assert_allclose([c.low, c.high], ordered[[299, -300]], atol=c.error)
    assert_allclose([c.shift, c.shift + c.scale], [c.low, c.high])


def test_a_column_whose_tails_are_one_value_is_cut_two_deviations_from_its_mean():
    x = np.r_[np.zeros(960), np.arange(1.0, 41.0)]
    c = designed(pd.DataFrame({"x": x}), scale="none", winsorise=0.1).columns[0]
    ends = [x.mean() - 2 * x.std(), x.mean() + 2 * x.std()]
    assert_allclose([c.low, c.high], ends, atol=x.std() / np.sqrt(1000))  # of rounded moments


@pytest.mark.parametrize("options", [{"scale": "minmax"}, {"scale": "none", "winsorise": 0.01}])
@pytest.mark.parametrize("n", [19, 20, 60, 200, 1500])
def test_five_rows_or_more_lie_at_or_beyond_each_limit_or_none_has_its_value(options, n):
    rng = np.random.default_rng(n)
    x = {
        "age": rng.normal(62, 11, n).round(),
        "stay": rng.poisson(4, n),
        "lab": rng.lognormal(1, 0.5, n),
    }
    frame = pd.DataFrame(x).astype(float)
    for c in designed(frame, dictionary=draft(frame), **options).columns:
        beyond = (frame[c.name] <= c.low).sum(), (frame[c.name] >= c.high).sum()
        if n < 20:  # half the rows would be cut: two deviations from the mean instead
            mean, sd = frame[c.name].mean(), frame[c.name].std(ddof=0)
            assert_allclose([c.low, c.high], [mean - 2 * sd, mean + 2 * sd], atol=sd / 2)
            continue
        assert min(beyond) >= 5
        k = max(int(np.ceil(n * (options.get("winsorise") or 0.005))), 5)
        ordered = np.sort(frame[c.name])
        assert_allclose([c.low, c.high], ordered[[k - 1, -k]], atol=c.error + 1e-12)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.normal(size=4000),
        lambda rng: np.exp(2 * rng.normal(size=4000)) * 1e-6,
        lambda rng: rng.poisson(1.2, 4000).astype(float),
        lambda rng: np.where(rng.random(4000) < 0.6, 0.0, rng.integers(1, 400, 4000)),
    ],
)
def test_ranks_equal_scikit_learn_within_the_share_between_knots(draw):
    x = draw(np.random.default_rng(0))
    frame = pd.DataFrame({"x": x})
    c = designed(frame, scale="quantile").columns[0]
    found = np.empty((len(x), 1))
    c.write(x, found)
    share = (rankdata(x) - 0.5) / len(x)
    assert_allclose(found[:, 0], np.clip(share, 0.005, 0.995), atol=0.006)
    inner = (x > x.min()) & (x < x.max())  # scikit-learn maps the ends to 0 and 1, ties or not
    reference = QuantileTransformer(n_quantiles=4000, subsample=None).fit_transform(frame[["x"]])
    assert_allclose(found[inner], np.clip(reference[inner], 0.005, 0.995), atol=0.006)
    assert found.min() >= 0.005
    assert found.max() <= 0.995


def test_few_rows_never_lie_between_two_knots_but_at_the_ends():
    frame = lognormal(400, 3)
    c = designed(frame, scale="quantile").columns[0]
    rows = np.diff(c.shares[1:-1]) * 400
    assert len(rows) > 20
    assert ((rows > 4.99) | (rows < 1e-9)).all()
    assert (np.diff(c.knots) >= 0).all()


def test_rare_levels_become_one_and_predict_maps_them_likewise():
    frame = pd.DataFrame(
        {
            "g": ["a"] * 40 + ["b"] * 30 + ["c"] * 4 + ["d"] * 3 + ["e"] * 5,
            "x": np.arange(82.0) // 2,
        }
    )
    plain = draft(frame).to_dict()
    plain["variables"]["g"]["levels"].append("never")
    design = designed(frame, dictionary=Dictionary.from_dict(plain), pool_levels=6)
    (c, _) = design.columns
    assert c.kept == ("a", "b", "other")
    assert c.pooled == ("c", "d", "e", "never")
    assert design.features == ("g=b", "g=other", "x")
    assert_array_equal(design.matrix(frame)[:, 1], frame["g"].isin(list("cde")))
    assert design.matrix(frame.iloc[:1].assign(g="never"))[0, 1] == 1
    again = Design.from_json(design.to_json())
    assert again == design
    with pytest.raises(DataError, match="a level outside the 6"):
        again.matrix(frame.iloc[:1].assign(g="Jane Doe"))


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        ({"a": 50, "b": 20, "c": 3}, ("a", "other")),
        ({"a": 50, "b": 20, "c": 3, "d": 9}, ("a", "b", "other")),
        ({"a": 6, "b": 4, "c": 50}, ("c", "other")),
        ({"other": 50, "b": 5, "c": 6, "d": 7}, ("other", "other levels")),
        ({"a": 50, "b": 20}, ("a", "b")),
    ],
)
def test_a_pool_has_as_many_rows_as_a_level_must_have(counts, kept):
    frame = pd.DataFrame({"g": [k for k, n in counts.items() for _ in range(n)]})
    assert designed(frame, pool_levels=10).columns[0].kept == kept


@pytest.mark.parametrize(
    ("min_cell", "kept"), [(5, ("a", "other")), (3, ("a", "b", "c")), (1, ("a", "b", "c"))]
)
def test_levels_of_fewer_rows_than_the_smallest_cell_are_always_pooled(min_cell, kept):
    frame = pd.DataFrame({"g": ["a"] * 50 + ["b"] * 20 + ["c"] * 3})
    assert designed(frame, min_cell=min_cell).columns[0].kept == kept


def test_a_category_of_one_level_and_rare_ones_is_dropped_with_the_reason():
    frame = pd.DataFrame({"g": ["a"] * 50 + ["b"] * 3, "x": np.arange(53.0) // 2})
    design = designed(frame, pool_levels=10)
    assert dict(design.dropped) == {"g": "fewer than 10 rows beside one level"}


@pytest.mark.parametrize(("unit", "days"), [("days", 1), ("months", 30.4375), ("years", 365.25)])
@pytest.mark.parametrize("since", ["birth", "1950-03-01"])
def test_dates_become_durations_in_the_unit_that_the_dictionary_names(unit, days, since):
    rng = np.random.default_rng(0)
    start = pd.Timestamp("1940-01-01") + pd.to_timedelta(rng.integers(0, 9999, 60), "D")
    frame = pd.DataFrame(
        {"birth": start, "visit": start + pd.to_timedelta(np.arange(60) * 50, "D")}
    )
    frame.loc[3, "visit"] = pd.NaT
    spec = {"birth": "date", "visit": {"type": "date", "since": since, "unit": unit}}
    design = designed(frame, dictionary=Dictionary.from_dict(spec), scale="none")
    assert design.features == ("visit",)
    assert dict(design.dropped) == {"birth": "date"}
    origin = frame["birth"] if since == "birth" else pd.Timestamp(since)
    truth = ((frame["visit"] - origin) / pd.Timedelta(days=1) / days).to_numpy()
    x = design.matrix(frame)[:, 0]
    assert_allclose(np.delete(x, 3), np.delete(truth, 3), rtol=1e-12, atol=1e-12)
    assert x[3] == design.columns[0].fill
    assert_array_equal(Design.from_json(design.to_json()).matrix(frame)[:, 0], x)


def test_what_is_no_date_is_named_by_row():
    spec = {"visit": {"type": "date", "since": "2001-01-01", "unit": "years"}}
    frame = pd.DataFrame({"visit": ["2003-04-05", "Jane Doe", None, "2004-01-01"]})
    with pytest.raises(DataError, match=r"column 'visit' holds no date in row 2\.") as error:
        designed(frame, n_sites=1, dictionary=Dictionary.from_dict(spec))
    assert "Jane" not in str(error.value)


@settings(max_examples=15)
@given(
    n_sites=st.integers(2, 5),
    seed=st.integers(0, 999),
    scale=st.sampled_from(SCALES),
    impute=st.sampled_from(sorted(set(IMPUTES) - {"iterative"})),
    winsorise=st.sampled_from([0.0, 0.02, 0.25]),
    pool_levels=st.sampled_from([0, 5, 20]),
)
def test_no_setting_depends_on_how_rows_are_split(n_sites, seed, scale, impute, **more):
    frame = mixed(70, seed)
    one, many = (
        designed(frame, n, OUTCOME, scale=scale, impute=impute, **more) for n in (1, n_sites)
    )
    assert many.features == one.features
    assert_allclose(many.matrix(frame), one.matrix(frame), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"winsorise": 0.3}, "expected the share of rows to cut at each tail, from 0 to 0.25."),
        ({"winsorise": True}, "expected the share of rows"),
        ({"winsorise": float("nan")}, "expected the share of rows"),
        ({"pool_levels": -1}, "expected a whole number of rows, from 0; rarer levels become one."),
        ({"pool_levels": 2.5}, "expected a whole number of rows"),
        ({"pool_levels": float("inf")}, "expected a whole number of rows"),
    ],
)
def test_impossible_numbers_are_refused(options, message):
    with pytest.raises(SettingError) as error:
        designed(mixed(20, 0), **options)
    assert message in str(error.value)


def images(n=400, side=3):
    """Return images of 3 × 3 pixels: the first never changes, the second has a missing value."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 256, (n, side**2)) * rng.integers(0, 2, (n, side**2))
    frame = pd.DataFrame(x.astype(float), columns=[f"p{j}" for j in range(side**2)])
    frame["p0"] = 0.0
    frame.loc[7, "p1"] = np.nan
    return frame


PIXELS = Dictionary.from_dict({f"p{j}": {"type": "integer"} for j in range(9)})


def test_pixels_have_the_mean_and_deviation_of_all_pixels_of_all_rows():
    frame = images()
    design = designed(frame, dictionary=PIXELS, pixels=True)
    values = frame.to_numpy().ravel()
    values = values[~np.isnan(values)]
    shifts, scales = ({getattr(c, k) for c in design.columns} for k in ("shift", "scale"))
    assert len(shifts) == len(scales) == 1
    # rounded to a quarter of a standard error of 400 rows and up to 2.5 times that
    error = values.std() / (3 * np.sqrt(len(frame)))
    assert_allclose([*shifts, *scales], [values.mean(), values.std()], atol=error)
    x = design.matrix(frame)
    assert_allclose(x[7, 1], 0, atol=1e-12)  # a missing pixel has the mean
    expected = (frame.to_numpy() - [*shifts]) / [*scales]
    assert_allclose(x[np.arange(len(x)) != 7], expected[np.arange(len(x)) != 7])


def test_all_pixels_stay_in_their_order_also_one_that_never_changes():
    frame = images()
    design = designed(frame, dictionary=PIXELS, pixels=True)
    assert design.features == tuple(frame.columns)
    assert design.dropped == {}
    assert "p0" in designed(frame, dictionary=PIXELS).dropped


def test_pixels_without_a_scale_are_those_of_the_table():
    frame = images()
    design = designed(frame, dictionary=PIXELS, pixels=True, scale="none")
    filled = frame.fillna(design.columns[1].fill)
    assert_array_equal(design.matrix(frame), filled)


@pytest.mark.parametrize("n_sites", [1, 2, 5])
def test_the_scale_of_pixels_is_the_same_however_rows_are_divided(n_sites):
    frame = images()
    one = designed(frame, 3, dictionary=PIXELS, pixels=True)
    other = designed(frame, n_sites, dictionary=PIXELS, pixels=True)
    assert other.spec == one.spec


def test_binary_pixels_stay_zero_and_one():
    frame = (images() > 0).astype(float)
    dictionary = Dictionary.from_dict({name: {"type": "binary"} for name in frame})
    design = designed(frame, dictionary=dictionary, pixels=True)
    assert_array_equal(design.matrix(frame), frame)


@pytest.mark.parametrize(
    "option", [{"scale": "minmax"}, {"scale": "quantile"}, {"winsorise": 0.1},
               {"impute": "indicator"}, {"impute": "iterative"}],
)  # fmt: skip
def test_options_that_treat_pixels_one_by_one_are_refused_in_one_line(option):
    ((key, value),) = option.items()
    with pytest.raises(SettingError, match=f"{key} is {value!r}, but the columns are the pixels"):
        designed(images(), dictionary=PIXELS, pixels=True, **option)
