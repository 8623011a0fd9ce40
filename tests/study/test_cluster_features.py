"""What sets a cluster apart equals other programs' numbers, and shows nothing of few patients."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import ttest_ind
from sklearn.decomposition import PCA
from statsmodels.stats.contingency_tables import Table2x2
from statsmodels.stats.multitest import multipletests

import fedcohort as fc
from examples import examples
from fedcohort.study.judge.shown.cluster_features import difference, feature_rows, odds
from fedcohort.study.judge.shown.cluster_map import components, map_rows, shape_of
from fedcohort.study.run.engine import Problem, fit_once
from grouping import METHOD


def test_an_odds_ratio_and_its_interval_are_those_of_statsmodels():
    found = odds(30, 50, 20, 120)
    want = Table2x2(np.array([[30, 20], [20, 100]]) + 0.5)
    assert_allclose(found["odds_ratio"], want.oddsratio)
    assert_allclose([found["low"], found["high"]], want.oddsratio_confint())
    assert_allclose([found["share"], found["rest"]], [30 / 50, 20 / 120])


def test_p_is_that_of_the_lady_tasting_tea():
    # Fisher, The Design of Experiments, 1935: 3 of 4 cups right has 34/70, on both sides.
    assert_allclose(odds(3, 4, 1, 4)["p"], 34 / 70)


def test_no_carrier_at_all_has_a_finite_interval():
    found = odds(0, 20, 30, 60)
    assert 0 < found["low"] < found["odds_ratio"] < found["high"] < 1


def test_a_difference_is_cohens_d_with_welchs_p():
    rng = np.random.default_rng(0)
    x, y = rng.normal(1, 1, 60), rng.normal(0, 2, 90)
    found = difference(np.r_[x, np.nan], y)
    s = np.sqrt((59 * x.var(ddof=1) + 89 * y.var(ddof=1)) / 148)
    d = (x.mean() - y.mean()) / s
    assert_allclose(found["difference"], d, atol=0.005)
    # Hedges & Olkin 1985, eq. 5.14, with 1.96 of its square root at either side.
    spread = 1.96 * np.sqrt(150 / (60 * 90) + d**2 / 300)
    assert_allclose([found["low"], found["high"]], [d - spread, d + spread], atol=0.006)
    assert_allclose(found["p"], ttest_ind(x, y, equal_var=False).pvalue, rtol=0.06)


def test_a_number_that_is_constant_has_no_difference():
    assert difference(np.ones(20), np.ones(30))["difference"] is None


# a table ----------------------------------------------------------------------------------


def cohort(n=300, k=3, seed=0, rare=0.3):
    """Return a fitted design, its table and clusters; level z of `kind` is as rare as told."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(["x", "y", "z"], n, p=[0.6 - rare, 0.4, rare]),
            "gene": (rng.random(n) < 0.2 + 0.2 * labels).astype(int),
            "age": rng.normal(60, 10, n).round(1) + 5 * labels,
        }
    )
    fed = fc.simulate({"a": frame})
    given = Problem(fed.frames, fed.dictionary, None).aside_of("clustering")
    design = fit_once(given, METHOD, {}, {"scale": "minmax"}, 0).design
    return design, frame, labels


def rows_of(k=3, min_cell=5, **options):
    design, frame, labels = cohort(k=k, **options)
    found = feature_rows(design, frame, labels, np.ones(k, bool), min_cell)
    return frame, labels, found


def carriers(frame, feature):
    """Return which rows have a feature; a level of too few joins others, which is all but x."""
    column, _, level = feature.partition("=")
    values = frame[column].astype(str).to_numpy()
    return values != "x" if level == "other" else values == (level or "1")


def test_shares_are_of_the_table_and_every_level_has_a_row():
    frame, labels, found = rows_of()
    names = {row["feature"] for row in found}
    assert names == {"kind=x", "kind=y", "kind=z", "gene", "age"}
    for row in found:
        inside = labels == row["cluster"]
        if row["kind"] == "share":
            hit = carriers(frame, row["feature"])
            want = [hit[inside].mean(), hit[~inside].mean()]
            assert_allclose([row["share"], row["rest"]], want)
        else:
            want = [frame["age"][inside].mean(), frame["age"][~inside].mean()]
            assert_allclose([row["share"], row["rest"]], want, atol=1.0)


def test_q_is_benjamini_hochbergs_of_all_tests():
    found = rows_of()[2]
    want = multipletests([row["p"] for row in found], method="fdr_bh")[1]
    assert_allclose([row["q"] for row in found], want)


def test_a_level_of_few_is_hidden_and_its_test_counts_as_no_finding():
    frame, labels, found = rows_of(rare=0.03, seed=4)
    rare = pd.crosstab(labels, frame["kind"])["z"]
    assert ((rare > 0) & (rare < 5)).any()
    hidden = [row for row in found if row["p"] is None]
    assert hidden
    for row in hidden:
        assert all(row[key] is None for key in ("share", "rest", "odds_ratio", "low", "high", "q"))
    p = [1.0 if row["p"] is None else row["p"] for row in found]
    want = multipletests(p, method="fdr_bh")[1]
    assert_allclose(
        [row["q"] for row in found if row["p"] is not None],
        [q for q, row in zip(want, found, strict=True) if row["p"] is not None],
    )


@settings(max_examples=examples(40), deadline=None)
@given(
    n=st.integers(20, 120),
    k=st.integers(2, 4),
    seed=st.integers(0, 2**16),
    rare=st.sampled_from([0.02, 0.1, 0.3]),
)
def test_no_share_is_of_one_to_four_patients_or_of_all_but_so_many(n, k, seed, rare):
    frame, labels, found = rows_of(n=n, k=k, seed=seed, rare=rare)
    for row in found:
        if row["kind"] != "share" or row["share"] is None:
            continue
        hit = carriers(frame, row["feature"])
        inside = labels == row["cluster"]
        for part in (hit & inside, ~hit & inside, hit & ~inside, ~hit & ~inside):
            assert not 0 < part.sum() < 5


# the map ----------------------------------------------------------------------------------


def test_axes_are_scikit_learns_principal_components():
    z = np.random.default_rng(1).normal(size=(200, 5)) @ np.diag([3, 2, 1, 1, 0.5])
    mean, axes = components(z)
    want = PCA(2).fit(z)
    assert_allclose(mean, want.mean_)
    assert_allclose(np.abs(axes.T), np.abs(want.components_), atol=1e-9)


def test_a_single_dimension_has_an_axis_and_one_of_zeros():
    axes = components(np.random.default_rng(1).normal(size=(50, 1)))[1]
    assert axes.tolist() == [[1.0, 0.0]]


def test_ellipses_have_the_spread_of_their_cluster_and_few_patients_have_none():
    rng = np.random.default_rng(2)
    z = np.r_[rng.normal(0, [4, 1], (400, 2)), rng.normal([0, 30], 1, (8, 2))]
    labels = np.r_[np.zeros(400, int), np.ones(8, int)]
    site = np.array(["a", "b"] * 204, object)
    found = map_rows(
        z, labels, (site, ["a", "b"]), np.array([True, True]), np.ones((2, 2), bool), 5
    )
    assert [(row["cluster"], row["site"]) for row in found] == [(0, None), (0, "a"), (0, "b")]
    mean, axes = components(z)
    values, turned = np.linalg.eigh(np.cov(((z[:400] - mean) @ axes).T))
    assert_allclose([found[0]["sy"], found[0]["sx"]], np.sqrt(values), rtol=0.06)
    angle = np.degrees(np.arctan2(turned[1, 1], turned[0, 1])) % 180
    assert abs((found[0]["angle"] - angle + 90) % 180 - 90) <= 0.5


def test_the_map_tells_how_much_of_the_variance_it_holds():
    z = np.random.default_rng(3).normal(0, [5, 3, 2, 1], (300, 4))
    labels, site = np.zeros(300, int), np.full(300, "a", object)
    (whole, own) = map_rows(z, labels, (site, ["a"]), np.ones(1, bool), np.ones((1, 1), bool), 5)
    want = PCA(2).fit(z).explained_variance_ratio_.sum()
    assert whole["explained"] == round(want, 2)
    assert "explained" not in own
    # one dimension is told in full, and of points that are all alike nothing
    for at, share in ((z[:, :1], 1.0), (np.ones((300, 2)), None)):
        (whole, _) = map_rows(at, labels, (site, ["a"]), np.ones(1, bool), np.ones((1, 1), bool), 5)
        assert whole["explained"] == share


@pytest.mark.parametrize(
    ("features", "shape"), [(54, (6, 9)), (9, (3, 3)), (7, (2, 4)), (1, (1, 1)), (12, (3, 4))]
)
def test_pictures_hold_all_features(features, shape):
    assert shape_of(features) == shape
