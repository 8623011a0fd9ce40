"""A site may lack a view as a whole; its rows are missing there, and nowhere else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from data_cases import federation, mixed, scatter
from fedcohort.data.check import Sheet, examine
from fedcohort.data.check.checks import check_sites
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Survival
from fedcohort.data.prepare import IMPUTES, SCALES, bounded_design, fit_design
from fedcohort.data.prepare.design import Design
from fedcohort.data.prepare.iterative import IncompleteView
from fedcohort.data.read.drafting import draft
from fedcohort.protocol import DataError

OUTCOME = Survival("time", "event")
VIEWS = {"blood": ["marker", "count"], "clinic": ["smoker", "grade"]}


def dictionary_of(frame):
    return draft(frame, OUTCOME).with_views(VIEWS)


def sites_of(frame, seed=0):
    """Return three sites: one with all views, one without blood, one without clinic."""
    all_, second, third = scatter(frame, 3, seed).values()
    return {
        "all": all_,
        "no blood": second.drop(columns=VIEWS["blood"]),
        "no clinic": third.drop(columns=VIEWS["clinic"]),
    }


def holed(sites, frame):
    """Return the same sites with empty columns in place of those that are not there."""
    return {s: f.reindex(columns=frame.columns) for s, f in sites.items()}


def designed(frames, dictionary, **options):
    return fit_design(federation(frames), dictionary, OUTCOME, **options)


# what is read -------------------------------------------------------------------------


def test_a_view_that_a_table_lacks_is_missing_in_every_row():
    frame = mixed(20, 0, missing=0)
    encoding = Encoding(dictionary_of(frame).features(OUTCOME))
    found = encoding(frame.drop(columns=VIEWS["clinic"]))
    number = dict(zip([v.name for v in encoding.numeric], found.numbers, strict=True))
    assert_array_equal(number["smoker"], np.full(20, np.nan))
    assert_array_equal(number["marker"], frame["marker"])
    assert_array_equal(found.codes, [np.full(20, -1)])


def test_a_column_without_a_view_or_of_one_that_is_partly_there_is_an_error():
    frame = mixed(20, 0)
    encoding = Encoding(dictionary_of(frame).features(OUTCOME))
    for name in ("age", "marker", "grade"):
        with pytest.raises(DataError, match=f"no column {name!r}"):
            encoding(frame.drop(columns=name))
    assert not encoding.unfit(frame.drop(columns=VIEWS["blood"]))


def test_a_views_text_says_the_view_of_a_column_and_comes_back():
    dictionary = Dictionary.from_dict(
        {
            "a": {"type": "number", "view": "blood"},
            "born": {"type": "date", "since": "2014-01-01", "view": "clinic"},
            "b": "number",
        }
    )
    encoding = Encoding(dictionary.features())
    again = Encoding.from_spec(encoding.spec)
    assert again.spec == encoding.spec
    assert [v.view for v in again.variables] == ["blood", "clinic", ""]
    assert [v.unit for v in again.variables] == ["", "days", ""]


#: As version 0.1 wrote them before columns had views, from the same table.
BEFORE = (
    '{"encoding":[["a","number",[]],["g","category",["x","y"]],'
    '["born","date",[],"2014-01-01","days"]]}',
    '{"columns":[{"name":"a","type":"number","since":"","unit":"","fill":2.0,"shift":2.0,'
    '"scale":1.0,"low":null,"high":null,"knots":[],"shares":[],"indicator":false,"error":0.0},'
    '{"name":"g","type":"category","levels":["x","y"],"kept":["x","y"],"pooled":[],"fill":"x",'
    '"indicator":false},{"name":"born","type":"date","since":"2014-01-01","unit":"days",'
    '"fill":424.0,"shift":424.0,"scale":30.0,"low":null,"high":null,"knots":[],"shares":[],'
    '"indicator":false,"error":0.0}],"outcome":null,"classes":[],"scale":"standard",'
    '"impute":"mean","winsorise":0.0,"pool_levels":0,"joint":null,"dropped":{},"offset":"",'
    '"weights":"","strata":"","strata_levels":[]}',
)


def test_without_views_the_text_of_views_and_designs_is_what_it_was_byte_for_byte():
    born = ["2015-01-31"] * 10 + ["2015-03-31"] * 10
    frame = pd.DataFrame({"a": np.arange(20.0) % 4, "g": ["x", "y"] * 10, "born": born})
    dictionary = Dictionary.from_dict(
        {
            "a": "number",
            "g": {"type": "category", "levels": ["x", "y"]},
            "born": {"type": "date", "since": "2014-01-01"},
        }
    )
    fed = federation({"s": frame.iloc[:9], "t": frame.iloc[9:]})
    found = Encoding(dictionary.features()).spec, fit_design(fed, dictionary, None, impute="mean")
    assert (found[0], found[1].spec) == BEFORE
    iterative = fit_design(fed, dictionary, None, impute="iterative")
    view = IncompleteView(iterative.columns, (0.0,) * 3, (1.0,) * 3)
    assert '"view"' not in view.spec


# what is fitted -----------------------------------------------------------------------


@given(
    seed=st.integers(0, 999),
    scale=st.sampled_from(SCALES),
    impute=st.sampled_from(sorted(set(IMPUTES) - {"iterative"})),
    winsorise=st.sampled_from((0.0, 0.1)),
    pool_levels=st.sampled_from((0, 12)),
)
def test_a_site_without_a_view_gives_the_fit_of_one_whose_columns_are_empty(
    seed, scale, impute, winsorise, pool_levels
):
    frame = mixed(60, seed)
    sites, known = sites_of(frame, seed), dictionary_of(frame)
    options = {
        "scale": scale, "impute": impute, "winsorise": winsorise, "pool_levels": pool_levels,
    }  # fmt: skip
    one, other = (designed(f, known, **options) for f in (sites, holed(sites, frame)))
    assert one.spec == other.spec
    for site, table in sites.items():
        assert_array_equal(one.matrix(table), one.matrix(holed(sites, frame)[site]))


def test_iterative_imputation_fills_a_view_that_a_site_lacks():
    frame = mixed(120, 3)
    sites = sites_of(frame)
    one, other = (
        designed(f, dictionary_of(frame), impute="iterative") for f in (sites, holed(sites, frame))
    )
    assert one.spec == other.spec
    assert np.isfinite(one.matrix(sites["no blood"])).all()


@given(
    seed=st.integers(0, 999),
    scale=st.sampled_from(SCALES),
    winsorise=st.sampled_from((0.0, 0.1)),
    pool_levels=st.sampled_from((0, 12)),
)
def test_none_leaves_nan_where_a_value_is_missing_and_nowhere_else(
    seed, scale, winsorise, pool_levels
):
    frame = mixed(60, seed)
    sites, known = sites_of(frame, seed), dictionary_of(frame)
    options = {"scale": scale, "winsorise": winsorise, "pool_levels": pool_levels}
    none, mean = (designed(sites, known, impute=i, **options) for i in ("none", "mean"))
    assert none.features == mean.features
    for table in holed(sites, frame).values():
        missing = np.column_stack([table[name.partition("=")[0]].isna() for name in none.features])
        x = none.matrix(table)
        assert_array_equal(np.isnan(x), missing)
        assert_array_equal(x[~missing], mean.matrix(table)[~missing])


def test_standard_scaling_with_gaps_equals_that_of_scikit_learn_on_what_is_there():
    frame = mixed(300, 1)
    sites = sites_of(frame)
    pooled = pd.concat(holed(sites, frame).values())
    names = ["age", "marker", "count"]
    truth = StandardScaler().fit(pooled[names])  # it skips NaN, and passes it on
    known = dictionary_of(frame)
    design = designed(sites, known, scale="standard", impute="none", min_cell=1)
    at = [design.features.index(name) for name in names]
    z = design.matrix(pooled)[:, at]
    n = pooled[names].notna().sum().to_numpy()
    # the two numbers of a scale are rounded to a quarter of a standard error
    slack = (1 + 4) / (3 * np.sqrt(n.min()))
    assert_allclose(z, truth.transform(pooled[names]), atol=slack)
    for c, mean, sd, k in zip(design.columns[:3], truth.mean_, truth.scale_, n, strict=True):
        assert_allclose([c.shift, c.scale, c.fill], [mean, sd, mean], atol=sd / np.sqrt(k) / 3)


@given(seed=st.integers(0, 999), scale=st.sampled_from(SCALES), impute=st.sampled_from(IMPUTES))
def test_views_follow_the_features_and_a_saved_design_keeps_them(seed, scale, impute):
    frame = mixed(60, seed)
    design = designed(sites_of(frame, seed), dictionary_of(frame), scale=scale, impute=impute)
    view_of = {name: view for view, names in VIEWS.items() for name in names}
    names = [f.partition("=")[0].removesuffix(" missing") for f in design.features]
    assert design.views == tuple(view_of.get(name, "") for name in names)
    again = Design.from_json(design.to_json())
    assert again == design
    lacking = frame.drop(columns=VIEWS["blood"])
    assert_array_equal(again.matrix(lacking), design.matrix(lacking))


def test_an_offset_has_no_view():
    frame = mixed(60, 0).assign(offset=0.5)
    design = designed({"s": frame}, dictionary_of(frame), offset="offset", impute="none")
    assert design.features[-1] == "offset"
    assert len(design.views) == len(design.features)
    assert design.views[-1] == ""


def test_a_column_that_is_missing_everywhere_is_dropped_with_the_reason():
    frame = mixed(60, 0).assign(marker=np.nan)
    design = designed(sites_of(frame), dictionary_of(frame), impute="none")
    assert design.dropped["marker"] == "no values"
    assert "count" in design.features


def test_a_private_design_leaves_gaps_where_it_is_asked_to_and_else_fills_them():
    spec = {
        "a": {"type": "number", "usual": [0, 4], "view": "blood"},
        "b": {"type": "binary", "view": "clinic"},
        "g": {"type": "category", "levels": ["x", "y", "z"], "view": "clinic"},
    }
    dictionary = Dictionary.from_dict(spec)
    frame = pd.DataFrame({"a": [0.0, np.nan, 4.0], "b": [1, 0, 1], "g": ["x", "z", None]})
    design = bounded_design(dictionary, None, impute="none")
    nan = np.nan
    assert_array_equal(design.matrix(frame), [[-1, 1, 0, 0], [nan, 0, 0, 1], [1, 1, nan, nan]])
    assert design.views == ("blood", "clinic", "clinic", "clinic")
    assert_array_equal(design.matrix(frame[["a"]])[:, 1:], np.full((3, 3), nan))
    filled = bounded_design(dictionary, None)
    assert_array_equal(filled.matrix(frame[["a"]])[0], [-1, 0.5, 0, 0])


# what is checked ----------------------------------------------------------------------


def test_a_site_may_lack_a_view_and_data_check_says_so():
    frame = mixed(60, 0)
    sites, known = sites_of(frame), dictionary_of(frame)
    check_sites(sites, OUTCOME, known)
    sheets = [Sheet(f, f"site {s!r}", s) for s, f in sites.items()]
    said = [f for f in examine(sheets, known, OUTCOME) if f.rule == "missing view"]
    assert [(f.site, f.severity, f.what) for f in said] == [
        ("no blood", "warning", "there is no column of the view 'blood', which has 2"),
        ("no clinic", "warning", "there is no column of the view 'clinic', which has 2"),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="marker"), "site 'all': there is no column 'marker'"),
        (lambda f: f.drop(columns="age"), "site 'all': there is no column 'age'"),
        (
            lambda f: f.drop(columns="count").rename(columns={"marker": "markers"}),
            "no column 'marker' among 6 columns. Did you mean 'markers'?",
        ),
        (lambda f: f.drop(columns=["event"]), "there is no column 'event'"),
    ],
    ids=["part of a view", "no view", "a slip", "the outcome"],
)
def test_what_may_not_be_lacking_is_named(change, message):
    frame = mixed(60, 0)
    sites = sites_of(frame)
    with pytest.raises(DataError) as caught:
        check_sites(sites | {"all": change(sites["all"])}, OUTCOME, dictionary_of(frame))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_view_of_the_outcome_and_one_that_dates_count_from_must_be_there():
    spec = {
        "x": "number",
        "start": {"type": "date", "view": "visit"},
        "end": {"type": "date", "since": "start", "view": "lab"},
        "time": {"type": "time", "view": "follow-up"},
        "late": {"type": "number", "view": "follow-up"},
        "event": "event",
    }
    dictionary = Dictionary.from_dict(spec)
    n = 20
    whole = pd.DataFrame(
        {
            "x": np.arange(n), "start": pd.Timestamp("2020-01-01"),
            "end": pd.Timestamp("2020-02-01"), "time": 3.0, "late": 1.0, "event": [0, 1] * 10,
        }
    )  # fmt: skip
    check_sites({"a": whole, "b": whole.drop(columns=["end"])}, OUTCOME, dictionary)
    check_sites({"a": whole, "b": whole.drop(columns=["late"])}, OUTCOME, dictionary)
    for name in ("start", "time"):
        with pytest.raises(DataError, match=f"site 'b': there is no column {name!r}"):
            check_sites({"a": whole, "b": whole.drop(columns=[name])}, OUTCOME, dictionary)


def test_a_site_without_any_feature_is_refused():
    frame = mixed(60, 0)[["marker", "count", "time", "event"]]
    known = draft(frame, OUTCOME).with_views({"blood": ["marker", "count"]})
    with pytest.raises(DataError, match="site 'b': there is no column 'marker'"):
        check_sites({"a": frame, "b": frame[["time", "event"]]}, OUTCOME, known)


def test_a_view_that_no_site_has_is_named():
    frame = mixed(60, 0)
    sites = {s: f.drop(columns=VIEWS["blood"]) for s, f in scatter(frame, 3).items()}
    with pytest.raises(DataError, match=r"all 3 sites: no table has a column of the view 'blood'"):
        check_sites(sites, OUTCOME, dictionary_of(frame))


def test_a_dictionary_without_views_asks_for_every_column():
    frame = mixed(60, 0)
    plain = draft(frame, OUTCOME)
    assert not any(v.view for v in plain.variables.values())
    with pytest.raises(DataError, match="no column 'marker'"):
        check_sites(sites_of(frame), OUTCOME, plain)
