"""`describe` over sites against pandas on the pooled table, and what its numbers keep back."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import fedcohort as fc
from fedcohort.data.describe.bins import safe_bins
from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import DataError, InputError, NotSupported, SettingError
from fedcohort.study.api import Cohort

LEVELS = ("I", "II", "III")
SPEC = {
    "age": {"type": "integer", "unit": "years"},
    "marker": {"type": "number"},
    "sex": {"type": "category", "levels": ["f", "m"]},
    "stage": {"type": "category", "levels": list(LEVELS)},
    "smoker": {"type": "binary"},
}


def patients(n, seed=0, missing=0.08):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    age = (60 + 5 * (sex == "m") + rng.normal(0, 10, n)).round()
    marker = rng.lognormal(0.02 * age, 0.5).round(2)
    frame = pd.DataFrame(
        {
            "age": age,
            "marker": marker,
            "sex": sex.astype(object),
            "stage": rng.choice(np.array(LEVELS, object), n, p=[0.5, 0.3, 0.2]),
            "smoker": (rng.random(n) < 0.2 + 0.2 * (sex == "m")).astype(float),
        }
    )
    for name in ("age", "marker", "stage", "smoker"):
        frame.loc[rng.random(n) < missing, name] = None
    return frame


FRAMES = {"a": patients(160, 1), "b": patients(90, 2), "c": patients(120, 3)}
POOLED = pd.concat(FRAMES.values(), ignore_index=True)


def cohort(frames, spec=SPEC, outcome=None):
    return Cohort(frames, Dictionary.from_dict(spec), outcome, 0)


def described(frames=FRAMES, **options):
    return fc.fit("describe", cohort(frames), **options)


def exact(frames=FRAMES, **options):
    return described(frames, min_cell=1, rounding=False, **options)


def lines(fit, **where):
    found = fit.summary
    for key, value in where.items():
        found = found[found[key].isna() if value is None else found[key] == value]
    return found


# equal to pandas ----------------------------------------------------------------------------


@pytest.mark.parametrize("group", [None, "f", "m"])
def test_with_nothing_to_hide_means_sds_counts_and_shares_are_those_of_pandas(group):
    fit = exact(by="sex")
    for site, frame in {**FRAMES, None: POOLED}.items():
        own = frame if group is None else frame[frame.sex == group]
        for name in ("age", "marker"):
            (one,) = lines(fit, site=site, group=group, variable=name).to_dict("records")
            assert (one["n"], one["missing"]) == (len(own), own[name].isna().sum())
            assert_allclose(
                [one["mean"], one["sd"]], [own[name].mean(), own[name].std()], rtol=1e-9
            )
        for name, level in (
            *itertools.product(["stage"], LEVELS),
            ("smoker", "0"),
            ("smoker", "1"),
        ):
            (one,) = lines(fit, site=site, group=group, variable=name, level=level).to_dict(
                "records"
            )
            values = own[name].dropna()
            where = values == (level if name == "stage" else float(level))
            assert (one["count"], one["missing"]) == (where.sum(), own[name].isna().sum())
            assert one["share"] == pytest.approx(where.mean())


def test_with_nothing_to_hide_a_sites_quantiles_are_those_of_pandas():
    fit = exact(quantiles=(0.1, 0.9))
    for site, frame in FRAMES.items():
        (one,) = lines(fit, site=site, variable="marker").to_dict("records")
        found = [one[k] for k in ("q10", "q25", "median", "q75", "q90")]
        assert_allclose(found, frame.marker.quantile([0.1, 0.25, 0.5, 0.75, 0.9]), rtol=1e-9)


def test_with_nothing_to_hide_correlations_are_those_of_pandas():
    found = exact().model.correlation
    table = POOLED.assign(sex=(POOLED.sex == "m") * 1.0)[list(found.names)]
    assert found.names == ("age", "marker", "sex", "smoker")
    assert_allclose(found.r, table.corr().to_numpy(), atol=1e-9)


def test_with_nothing_to_hide_differences_are_those_of_the_pooled_table():
    fit = exact(by="sex")
    f, m = (POOLED[POOLED.sex == s] for s in "fm")
    for name in ("age", "smoker"):
        spread = math.sqrt((f[name].var(ddof=name == "age") + m[name].var(ddof=name == "age")) / 2)
        expected = abs(f[name].mean() - m[name].mean()) / spread
        found = lines(fit, site=None, group=None, variable=name).smd
        assert_allclose(found, expected, rtol=1e-9)


def test_by_three_groups_the_difference_is_the_largest_of_a_pair():
    fit = exact(by="stage")
    groups = [POOLED[POOLED.stage == s].age for s in LEVELS]
    expected = max(
        abs(x.mean() - y.mean()) / math.sqrt((x.var() + y.var()) / 2)
        for x, y in itertools.combinations(groups, 2)
    )
    assert_allclose(lines(fit, site=None, group=None, variable="age").smd, expected, rtol=1e-9)


def test_histograms_count_every_value_where_nothing_is_hidden():
    for bars in exact().model.histograms:
        values = POOLED[bars.name].dropna()
        cells = pd.cut(values, [-np.inf, *bars.edges, np.inf])
        assert list(bars.counts) == cells.value_counts(sort=False).tolist()


def test_by_default_numbers_are_those_of_pandas_up_to_their_rounding():
    fit = described(by="sex")
    for group, own in ((None, POOLED), ("f", POOLED[POOLED.sex == "f"])):
        (one,) = lines(fit, site=None, group=group, variable="age").to_dict("records")
        error = own.age.std() / math.sqrt(own.age.count())
        # three sites round theirs to less than a third of their standard errors, then the whole
        assert_allclose([one["mean"], one["sd"]], [own.age.mean(), own.age.std()], atol=error)
        quartiles = [one[k] for k in ("q25", "median", "q75")]
        assert_allclose(quartiles, own.age.quantile([0.25, 0.5, 0.75]), atol=0.15 * own.age.std())
    found = fit.model.correlation
    r = POOLED.assign(sex=(POOLED.sex == "m") * 1.0)[list(found.names)].corr().to_numpy()
    shown = ~np.isnan(found.r)
    assert shown.sum() >= 12
    step = 0.05  # the next of 1, 2, 5 from 1 / (4 √300); complete pairs of hidden counts add to it
    assert_allclose(found.r[shown], r[shown], atol=step / 2 + 2e-3)
    for bars in fit.model.histograms:
        known = POOLED[bars.name].count()
        assert abs(sum(bars.counts) - known) <= 2 * len(FRAMES)
        assert all(n == 0 or n >= 5 for n in bars.counts)


@settings(max_examples=8)
@given(seed=st.integers(0, 999), sites=st.integers(1, 5))
def test_exact_numbers_do_not_depend_on_how_rows_are_split_nor_on_the_order_of_sites(seed, sites):
    rng = np.random.default_rng(seed)
    part = rng.integers(sites, size=len(POOLED))
    names = rng.permutation(sites)
    frames = {f"s{names[i]}": POOLED[part == i].reset_index(drop=True) for i in range(sites)}
    one, other = exact(frames, by="sex"), exact({"all": POOLED}, by="sex")
    keys = ["n", "missing", "count", "share", "mean", "sd", "smd"]
    found, expected = (lines(f, site=None)[keys].to_numpy(float) for f in (one, other))
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert_allclose(one.model.correlation.r, other.model.correlation.r, atol=1e-9)


def test_the_same_rows_in_another_order_give_the_same_description():
    mixed = {k: f.sample(frac=1, random_state=1).reset_index(drop=True) for k, f in FRAMES.items()}
    one, other = (described(f, by="sex").model for f in (FRAMES, mixed))
    assert one.table == other.table
    assert one.histograms == other.histograms
    assert one.refusals == other.refusals


# what is kept back --------------------------------------------------------------------------


def test_a_group_that_only_sites_left_out_have_is_no_group_of_nobody():
    frames = {name: frame[frame.sex == "f"] for name, frame in FRAMES.items()}
    few = patients(60, 5)
    few["sex"] = ["m"] * 3 + ["f"] * 57
    both = described({**frames, "few": few}, by="sex").summary
    rows = both[both.site.isna() & (both.group == "m") & (both.variable == "age")]
    assert len(rows) == 1
    assert rows.n.isna().all()


def test_a_site_with_a_small_group_is_left_out_of_the_groups_of_all_and_named():
    few = patients(60, 5)
    few.loc[3:, "sex"] = "f"
    few.loc[:2, "sex"] = "m"
    fit = described({**FRAMES, "few": few}, by="sex")
    assert lines(fit, site="few", group="f").n.isna().all()
    both = fit.summary[fit.summary.site.isna() & (fit.summary.group == "f")]
    named = [r for r in fit.model.refusals if r["what"] == "groups over all sites"]
    assert len(named) == 2, "with it one other, whose count would be the rest of all"
    assert ("sex", "few") in [(r["variable"], r["site"]) for r in named]
    rest = [f for s, f in FRAMES.items() if s not in [r["site"] for r in named]]
    assert set(both.n) == {sum((f.sex == "f").sum() for f in rest)}
    assert "1 to 4" in named[0]["rule"]


def test_a_mean_is_hidden_with_another_so_that_no_group_is_what_the_rest_leaves():
    # 12 of group m, of whom 3 know their age: the mean of f would tell theirs
    frame = patients(80, 4, missing=0)
    frame.loc[:11, "sex"], frame.loc[12:, "sex"] = "m", "f"
    frame.loc[:8, "age"] = None
    age = lines(described({"a": frame}, by="sex"), site="a", variable="age")
    assert age[age.group.isna()]["mean"].notna().all()
    assert age[age.group.notna()]["mean"].isna().all()


@pytest.mark.parametrize("few", [1, 2, 3, 4])
def test_a_pair_of_binaries_whose_table_has_a_small_count_has_no_correlation(few):
    x = np.r_[np.ones(30), np.zeros(30)]
    y = np.r_[np.ones(few), np.zeros(30 - few), np.ones(20), np.zeros(10)]
    spec = {"x": "binary", "y": "binary", "z": "binary"}
    frames = {"a": pd.DataFrame({"x": x, "y": y, "z": np.arange(60) % 2.0})}
    fit = fc.fit("describe", cohort(frames, spec))
    assert ("x", "y") in fit.model.correlation.refused
    assert ("x", "z") not in fit.model.correlation.refused
    (named,) = [r for r in fit.model.refusals if r["variable"] == "x × y"]
    assert "the correlation would tell it" in named["rule"]


@settings(max_examples=25)
@given(seed=st.integers(0, 9999), sites=st.integers(1, 3))
def test_no_correlation_is_shown_that_would_give_a_small_count_of_a_site(seed, sites):
    rng = np.random.default_rng(seed)
    names = ["x", "y", "z"]
    frames = {}
    for s in range(sites):
        n = int(rng.integers(20, 120))
        p = rng.choice([0.1, 0.3, 0.5], 3)
        frame = pd.DataFrame((rng.random((n, 3)) < p).astype(float), columns=names)
        frames[f"s{s}"] = frame.mask(rng.random((n, 3)) < rng.choice([0.0, 0.1]))
    found = fc.fit("describe", cohort(frames, dict.fromkeys(names, "binary"))).model.correlation
    for i, j in itertools.combinations(range(3), 2):
        if not np.isnan(found.r[i, j]):
            for frame in frames.values():
                pairs = frame[[names[i], names[j]]].fillna(-1)
                assert pairs.value_counts().min() >= 5


def test_a_number_of_which_one_patient_makes_the_spread_has_no_correlation():
    frame = patients(100, 6)
    frame.loc[0, "marker"] = 1e6
    found = described({"a": frame}).model.correlation
    pairs = itertools.combinations(found.names, 2)
    refused = {pair for pair in found.refused if "marker" in pair}
    assert refused == {pair for pair in pairs if "marker" in pair}


@given(counts=st.lists(st.integers(0, 12), min_size=3, max_size=9), lost=st.integers(0, 9))
def test_a_site_tells_no_small_cell_of_a_histogram_nor_how_many_values_it_lacks(counts, lost):
    known = sum(counts)
    found = safe_bins(np.array(counts), known + lost, 5)
    assert not ((found > 0) & (found < 5)).any()
    if known < 10:
        assert not found.any()
    elif 0 < lost < 5:
        assert found.sum() == known + lost - 2
    else:
        assert found.sum() == known


def test_no_histogram_reaches_the_smallest_or_largest_value():
    frame = patients(300, 7)
    frame.loc[0, "age"], frame.loc[1, "age"] = 999, -999
    (bars,) = [h for h in described({"a": frame}).model.histograms if h.name == "age"]
    assert bars.edges[0] > 0
    assert bars.edges[-1] < 120


# what is asked wrongly ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": "sx"}, "by: the dictionary has no variable 'sx'. Did you mean 'sex'?"),
        ({"by": "age"}, "by: 'age' is a number. Name a column with levels"),
        ({"quantiles": (0.5,)}, "holds 0.5; give shares between 0 and 1 other than the quartiles"),
        ({"quantiles": (0.1, 0.1)}, "names a share twice"),
        ({"rounding": False}, "min_cell is 5: exact means tell small counts"),
        ({"scale": "standard"}, "reads tables as they are; leave out 'scale'"),
    ],
)
def test_a_wrong_question_says_what_is_wrong_on_one_line(options, said):
    with pytest.raises(SettingError) as error:
        described(**options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_nothing_to_describe_is_said_and_a_study_refuses_the_method_as_an_arm(tmp_path):
    spec = {"id": {"type": "text"}, "age": {"type": "number"}, "s": "binary"}
    with pytest.raises(DataError, match="no column is left to describe"):
        fc.fit("describe", cohort({"a": pd.DataFrame({"id": ["x"]})}, {"id": "text"}))
    with pytest.raises(DataError, match="no column besides 's'"):
        only = {"id": spec["id"], "s": "binary"}
        fc.fit("describe", cohort({"a": pd.DataFrame({"id": ["x"], "s": [1.0]})}, only), by="s")
    (tmp_path / "s.yaml").write_text(
        "study: s\ndata: {source: 'sample:gbsg2', sites: {split: iid, n: 3}}\n"
        "arms: [{method: describe}]\n"
    )
    with pytest.raises(InputError, match="predicts nothing"):
        fc.Study.from_file(tmp_path / "s.yaml")


def test_a_description_is_saved_and_read_again_and_predicts_nothing(tmp_path):
    fit = described(by="sex", quantiles=(0.05, 0.95))
    fit.save(tmp_path / "m")
    back = fc.load(tmp_path / "m")
    assert repr(back.model.summary()) == repr(fit.model.summary())
    assert back.model.histograms == fit.model.histograms
    assert back.model.refusals == fit.model.refusals
    with pytest.raises(NotSupported):
        back.predict(POOLED)


@pytest.mark.parametrize(
    "outcome", [None, fc.Binary("smoker"), fc.Continuous("age"), fc.Category("stage")], ids=str
)
def test_it_serves_every_kind_of_task(outcome):
    found = fc.fit("describe", cohort(FRAMES, outcome=outcome)).summary
    assert set(found.variable) == set(SPEC)


def test_sites_without_rows_or_values_stop_nothing():
    frames = {**FRAMES, "none": FRAMES["a"][:0], "blank": FRAMES["b"].assign(age=np.nan)}
    fit = described(frames, by="sex")
    assert (lines(fit, site="none", group=None).n == 0).all()
    assert lines(fit, site=None, group=None, variable="age")["mean"].notna().all()
