"""Federated preprocessing equals pandas and scikit-learn on the pooled table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from data_cases import federation, mixed, scatter
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Continuous, Count, Ordered, Survival
from fedcohort.data.prepare import IMPUTES, SCALES, fit_design
from fedcohort.data.prepare.design import Design
from fedcohort.data.read.drafting import draft
from fedcohort.protocol import DataError, SettingError

OUTCOME = Survival("time", "event")


def designed(frame, n_sites=3, outcome=OUTCOME, seed=0, **options):
    dictionary = options.pop("dictionary", None) or draft(frame, outcome)
    return fit_design(federation(scatter(frame, n_sites, seed)), dictionary, outcome, **options)


def column(design, frame, feature):
    return design.matrix(frame)[:, design.features.index(feature)]


def test_standard_scaling_equals_scikit_learn_up_to_the_rounding_of_its_two_numbers():
    frame = mixed(150, 0, missing=0)
    names = ["age", "marker", "count"]
    truth = StandardScaler().fit(frame[names])
    design = designed(frame)
    for c, mean, sd in zip(design.columns[:3], truth.mean_, truth.scale_, strict=True):
        error = sd / np.sqrt(150)
        assert_allclose([c.shift, c.scale], [mean, sd], atol=error / 3)
        z = column(design, frame, c.name)
        assert_allclose(z, (frame[c.name] - c.shift) / c.scale, rtol=1e-12)
        assert_allclose([z.mean(), z.std()], [0, 1], atol=1 / (3 * np.sqrt(150)))


@pytest.mark.parametrize("known", ["pooled", "split"])
def test_nothing_saved_tells_how_many_of_four_values_are_missing(known):
    # an exact mean of whole numbers, times n, is whole for the true n alone
    told = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(40, 300)), int(rng.integers(1, 5))
        frame = pd.DataFrame({"x": np.r_[rng.normal(60, 11, n - k).round(), [np.nan] * k]})
        c = designed(frame, 1 if known == "pooled" else 3, None, seed, impute="mean").columns[0]
        for value in (c.shift, c.fill):
            sums = [value * (n - j) for j in range(10)]
            told += [abs(s - round(s)) < 1e-7 for s in sums] == [j == k for j in range(10)]
            # each number of missing values has a sum whose mean rounds to what is shown
            step = 10.0 ** np.floor(np.log10(frame["x"].std() / np.sqrt(n) / 4))
            assert all(abs(round(s) / (n - j) - value) < step / 2 for j, s in enumerate(sums))
    assert told == 0


def test_a_rare_value_of_whole_numbers_has_the_same_scale_whatever_its_rows():
    # 0/1 typed as integers: 1 to 4 ones among 100 rows would be sd²·n, and mean·n, exactly
    def saved(ones):
        frame = pd.DataFrame({"x": np.r_[np.ones(ones), np.zeros(100 - ones)]})
        dictionary = Dictionary.from_dict({"x": "integer"})
        c = designed(frame, 2, None, dictionary=dictionary).columns[0]
        return c.shift, c.scale, c.fill

    assert len({saved(ones) for ones in range(1, 5)}) == 1
    assert saved(40) != saved(4)


@pytest.mark.parametrize(("ones", "kept"), [(4, False), (5, True), (55, True), (56, False)])
def test_no_feature_belongs_to_fewer_rows_than_the_smallest_cell(ones, kept):
    frame = pd.DataFrame({"x": np.arange(60.0) // 2, "b": np.arange(60) < ones})
    dictionary = Dictionary.from_dict({"x": "number", "b": "binary"})
    design = designed(frame.astype(float), 2, None, dictionary=dictionary)
    assert ("b" in design.features) == kept
    if not kept:
        assert design.dropped["b"] == "fewer than 5 rows beside one value"
    frame.loc[: ones - 1 if ones < 10 else 3, "x"] = np.nan
    design = designed(frame.astype(float), 2, None, dictionary=dictionary, impute="indicator")
    assert ("x missing" in design.features) == (ones == 5)


def test_a_column_of_few_values_is_left_out_since_its_mean_would_be_theirs():
    frame = mixed(60, 0, missing=0)
    frame.loc[4:, "marker"] = np.nan
    assert designed(frame).dropped["marker"] == "fewer than 5 values"


def test_values_too_large_to_be_squared_are_refused_by_the_column_s_name():
    frame = mixed(60, 0).assign(marker=np.r_[1e200, np.linspace(0, 1, 59)])
    with pytest.raises(DataError, match=r"column 'marker' holds values beyond ±1e\+120") as error:
        designed(frame)
    assert "1e+200" not in str(error.value)


@pytest.mark.parametrize("impute", ["mean", "median", "indicator"])
def test_imputation_equals_pandas_within_the_stated_error(impute):
    frame = mixed(200, 1)
    design = designed(frame, scale="none", impute=impute)
    for c in design.columns[:3]:
        pooled = frame[c.name].dropna()
        truth = pooled.mean() if impute == "mean" else pooled.quantile(interpolation="lower")
        # to a quarter of a standard error or 10/n whole units, and up to 2.5 times that
        step = 2.5 * max(pooled.std() / np.sqrt(len(pooled)) / 4, 10 / len(pooled))
        assert abs(c.fill - truth) <= c.error + (step / 2 if impute == "mean" else 1e-12)
        expected = frame[c.name].fillna(c.fill)
        assert_allclose(column(design, frame, c.name), expected, rtol=1e-12)


def test_most_frequent_equals_the_mode_of_levels_and_of_small_counts():
    frame = mixed(300, 2)
    design = designed(frame, impute="most_frequent", scale="none")
    fills = {c.name: c.fill for c in design.columns}
    for name in ("count", "smoker", "grade"):
        assert fills[name] == frame[name].mode()[0]


def test_indicators_say_where_values_were_missing_and_only_where_some_were():
    frame = mixed(100, 3)
    frame["count"] = frame["count"].fillna(0)
    design = designed(frame, impute="indicator")
    for name in ("age", "marker", "smoker", "grade"):
        assert_array_equal(column(design, frame, f"{name} missing"), frame[name].isna())
    assert "count missing" not in design.features
    assert not any("missing" in f for f in designed(frame, impute="median").features)


def test_minmax_maps_the_pooled_winsorised_range_to_zero_and_one():
    frame = mixed(2000, 4, missing=0)
    design = designed(frame, scale="minmax")
    x = design.matrix(frame)
    assert x.min() == 0
    assert x.max() == 1
    c = next(c for c in design.columns if c.name == "marker")
    low, high = np.quantile(frame["marker"], [0.005, 0.995], method="inverted_cdf")
    assert abs(c.shift - low) <= c.error
    assert abs(c.shift + c.scale - high) <= c.error


def test_one_hot_drops_the_first_level_and_equals_pandas():
    frame = mixed(80, 5, missing=0)
    design = designed(frame)
    assert design.features[-2:] == ("grade=II", "grade=III")
    dummies = pd.get_dummies(frame["grade"], drop_first=True).to_numpy(float)
    assert_array_equal(design.matrix(frame)[:, -2:], dummies)
    assert set(np.unique(column(design, frame, "smoker"))) == {0.0, 1.0}


def test_levels_that_occur_nowhere_give_no_column_and_count_as_missing_later():
    frame = mixed(60, 6, missing=0)
    plain = draft(frame, OUTCOME).to_dict()
    plain["variables"]["grade"]["levels"] = ["0", "I", "II", "III", "IV"]
    design = designed(frame, dictionary=Dictionary.from_dict(plain))
    assert design.features[-2:] == ("grade=II", "grade=III")
    other = frame.iloc[:2].assign(grade=["IV", frame["grade"].mode()[0]])
    assert_array_equal(*design.matrix(other)[:, -2:])


def test_constant_and_empty_columns_are_dropped_with_the_reason():
    frame = mixed(50, 7, missing=0).assign(
        same=3.7, empty=np.nan, one="x", flag=1, pid=range(50), when=pd.Timestamp("2021-02-03")
    )
    design = designed(frame)
    assert dict(design.dropped) == {
        "same": "constant", "empty": "no values", "one": "constant", "flag": "constant",
        "pid": "identifier", "when": "date",
    }  # fmt: skip
    assert not {"same", "empty", "one", "flag", "pid"} & set(design.features)


@given(
    n_sites=st.integers(2, 5),
    seed=st.integers(0, 999),
    scale=st.sampled_from(SCALES),
    impute=st.sampled_from(IMPUTES),
)
def test_a_design_does_not_depend_on_how_rows_are_split(n_sites, seed, scale, impute):
    frame = mixed(60, seed)
    pooled, split = (
        designed(frame, n, seed=seed, scale=scale, impute=impute) for n in (1, n_sites)
    )
    assert split.features == pooled.features
    assert_allclose(split.matrix(frame), pooled.matrix(frame), rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 999), scale=st.sampled_from(SCALES), impute=st.sampled_from(IMPUTES))
def test_a_design_does_not_depend_on_the_order_of_sites(seed, scale, impute):
    frames = scatter(mixed(60, seed), 4, seed)
    dictionary = draft(frames, OUTCOME)
    one, other = (
        fit_design(federation(f), dictionary, OUTCOME, scale=scale, impute=impute)
        for f in (frames, dict(reversed(frames.items())))
    )
    assert one.to_json() == other.to_json()


@given(seed=st.integers(0, 999), scale=st.sampled_from(SCALES), impute=st.sampled_from(IMPUTES))
def test_json_and_back_gives_the_same_design_and_the_same_bytes(seed, scale, impute):
    frame = mixed(40, seed)
    design = designed(frame, scale=scale, impute=impute)
    again = Design.from_json(design.to_json())
    assert again == design
    assert again.to_json() == design.to_json()
    assert_array_equal(again.matrix(frame), design.matrix(frame))


@given(seed=st.integers(0, 999), scale=st.sampled_from(SCALES), impute=st.sampled_from(IMPUTES))
def test_rows_are_designed_one_by_one(seed, scale, impute):
    frame = mixed(40, seed)
    design = designed(frame, scale=scale, impute=impute)
    x = design.matrix(frame)
    assert impute == "none" or np.isfinite(x).all()
    apart = np.vstack([design.matrix(frame.iloc[:7]), design.matrix(frame.iloc[7:])])
    # a product of matrices may differ in its last bit with the number of their rows
    assert_allclose(apart, x, rtol=1e-13 if impute == "iterative" else 0, atol=1e-15)


def test_sums_are_all_that_leaves_a_site():
    fed = federation(scatter(mixed(90, 0), 3))
    fit_design(fed, draft(mixed(90, 0), OUTCOME), OUTCOME, scale="minmax")
    assert fed.ledger.lines
    assert all('"verb":"sum"' in line for line in fed.ledger.lines)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Binary("y"), ("1", "2")),
        (Category("y"), ("1", "2", "3")),
        (Continuous("y"), ()),
        (Count("y"), ()),
        (None, ()),
    ],
)
def test_every_kind_of_outcome_gets_its_table(outcome, expected):
    y = [2, 1, 3, 1] if len(expected) > 2 else [2, 1, 1, 2]
    frame = mixed(40, 0).drop(columns=["time", "event"]).assign(y=y * 10)
    design = designed(frame, outcome=outcome)
    assert design.classes == expected
    table = design(frame)
    if outcome is None:
        assert table._fields == ("x",)
    else:
        assert_array_equal(table.y, frame["y"] - 1 if expected else frame["y"])
        assert "y" not in design.features


def test_a_survival_table_holds_times_and_events():
    frame = mixed(30, 0)
    table = designed(frame)(frame)
    assert_array_equal(table.time, frame["time"])
    assert_array_equal(table.event, frame["event"] == 1)
    assert table.event.dtype == bool


def test_a_level_that_the_dictionary_does_not_know_is_named_by_row():
    frame = mixed(30, 0)
    design = designed(frame)
    with pytest.raises(DataError, match=r"column 'grade' has a level outside .*in row 2\."):
        design.matrix(frame.iloc[:3].assign(grade=["I", "Jane Doe", None]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "standrd"}, "no scale 'standrd'. Did you mean 'standard'?"),
        ({"impute": "medium"}, "no impute 'medium'. Did you mean 'median'?"),
    ],
)
def test_unknown_settings_name_the_nearest(options, message):
    with pytest.raises(SettingError) as error:
        designed(mixed(20, 0), **options)
    assert message in str(error.value)


def test_a_table_without_features_is_refused():
    frame = mixed(20, 0)[["time", "event"]]
    with pytest.raises(DataError, match="no column is left as a feature"):
        designed(frame)
    with pytest.raises(DataError, match="none of the 1 columns varies among the 20 rows"):
        designed(frame.assign(x=1.0))


def test_a_binary_outcome_needs_two_levels_and_a_category_its_levels():
    frame = mixed(30, 0).assign(y=[1, 2, 3] * 10)
    with pytest.raises(DataError, match="binary outcome 'y' has 3 levels"):
        designed(frame, outcome=Binary("y"))
    with pytest.raises(DataError, match="of type ordinal, and has 2 levels"):
        designed(frame[frame.y < 3], outcome=Ordered("y"))
    with pytest.raises(DataError, match="outcome 'y' is of type 'integer'"):
        designed(frame, outcome=Category("y"), dictionary=draft(frame))


def test_text_that_is_no_design_is_refused():
    for text in ("{}", "no", '{"columns": [{"name": 1, "price": 2}]}'):
        with pytest.raises(DataError, match="this is no saved design"):
            Design.from_json(text)
