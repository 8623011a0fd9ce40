"""The Gaussian copula recovers the normals behind mixed columns; its private sums are bounded."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr

from fedcohort.algorithms.copula import METHOD, CopulaModel, CopulaSettings, private, program
from fedcohort.algorithms.copula.layout import Layout
from fedcohort.data.prepare import Head
from fedcohort.data.tables import FeatureTable
from fedcohort.numerics.binormal import shrunk
from fedcohort.protocol import Dp, NothingToLearn, SettingError, Site, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

HEADS = (
    Head(name="a", kind="normal", at=(0,), low=0.0, high=1.0),
    Head(name="b", kind="normal", at=(1,), low=0.0, high=1.0),
    Head(name="c", kind="bernoulli", at=(2,), low=0.0, high=1.0),
    Head(name="d", kind="categorical", at=(3, 4)),
)
FEATURES = ("a", "b", "c", "d=II", "d=III")
R = np.array(
    [
        [1.0, 0.6, -0.5, 0.4, 0.2],
        [0.6, 1.0, -0.3, 0.1, 0.3],
        [-0.5, -0.3, 1.0, 0.2, -0.4],
        [0.4, 0.1, 0.2, 1.0, 0.0],
        [0.2, 0.3, -0.4, 0.0, 1.0],
    ]
)
SHARE = np.array([0.5, 0.5, 0.3, 0.25, 0.4])


def truth(**more) -> CopulaModel:
    layout = Layout.of(HEADS, ranks=True)
    ends = np.tile([0.0, 1.0], (2, 1))
    given_ = {
        "features": FEATURES, "place": layout.place, "first": layout.first,
        "number": layout.number.astype(int), "correlation": R, "share": SHARE,
        "missing": np.zeros(5), "edges": ends, "below": ends, "unknown": 0,
    }  # fmt: skip
    return CopulaModel(**{**given_, **more})


def fitted(x, sites=3, min_cell=1, dp=None) -> CopulaModel:
    parts = np.array_split(x, sites)
    hosts = [Host(f"s{i}", FeatureTable(part), METHOD.steps, 1) for i, part in enumerate(parts)]
    task = Task(kind="synthesis", features=FEATURES, heads=HEADS, min_cell=min_cell, dp=dp)
    return METHOD.fit(local(hosts), CopulaSettings(), task)


def test_a_fit_recovers_the_correlations_and_shares_that_drew_the_rows():
    """Of 40,000 rows a correlation has a standard error of at most 0.012 (that of two levels)."""
    x = truth().sample(40_000, np.random.default_rng(0))
    found = fitted(x)
    assert_allclose(found.correlation, R, atol=0.05)
    assert_allclose(found.share, SHARE, atol=0.02)
    assert_array_equal(found.missing, 0.0)


@settings(max_examples=3)
@given(st.integers(1, 6), st.integers(0, 100))
def test_a_fit_does_not_depend_on_how_rows_are_split(sites, seed):
    x = truth().sample(150, np.random.default_rng(seed))
    one, other = fitted(x, 1), fitted(x, sites)
    assert_allclose(other.correlation, one.correlation, atol=1e-9)
    assert_allclose(other.share, one.share, atol=1e-12)


def test_numbers_are_uniform_and_levels_have_their_shares():
    """A share of 20,000 rows has a standard error of at most 0.0036, and four are 0.015."""
    x = truth().sample(20_000, np.random.default_rng(1))
    assert_allclose(np.quantile(x[:, 0], [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.015)
    assert_allclose(x[:, 2].mean(), 0.3, atol=0.015)
    hot = x[:, 3:].sum(axis=1)
    assert set(np.unique(hot)) == {0.0, 1.0}
    assert_allclose(x[:, 3].mean(), 0.25, atol=0.015)
    assert x[:, 3].mean() + x[:, 4].mean() < 0.75


def test_missing_values_come_back_as_often_and_whole_columns_of_levels_at_once():
    rng = np.random.default_rng(2)
    x = truth().sample(4_000, rng)
    x[np.ix_(rng.random(4_000) < 0.3, [3, 4])] = np.nan
    x[rng.random(4_000) < 0.1, 0] = np.nan
    drawn = fitted(x).sample(20_000, np.random.default_rng(3))
    gone = np.isnan(drawn)
    assert_allclose(gone.mean(axis=0), [0.1, 0, 0, 0.3, 0.3], atol=0.03)
    assert_array_equal(gone[:, 3], gone[:, 4])


def test_counts_of_two_binary_columns_leave_a_site_as_multiples_of_min_cell():
    x = truth().sample(150, np.random.default_rng(4))
    layout = Layout.of(HEADS, ranks=True)
    site = Site("s", FeatureTable(x), None, (0,))
    told = program.sum_scores.run(site, layout=layout.text, min_cell=5)
    both = np.ix_([2, 3, 4], [2, 3, 4])
    off = ~np.eye(3, dtype=bool)
    for sums in (told.n, told.s, told.q, told.p):
        assert_array_equal(sums[both][off] % 5, 0)


@pytest.mark.parametrize("few", [1, 4])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_no_sum_is_of_the_few_rows_with_a_binary_value(few, value):
    """p of a number and a value that one row has was that row's score; s was the count."""
    x = truth().sample(60, np.random.default_rng(4))
    x[:, 2] = 1 - value
    x[:few, 2] = value
    layout = Layout.of(HEADS, ranks=True).text
    told = program.sum_scores.run(Site("s", FeatureTable(x), None, (0,)), layout=layout, min_cell=5)
    for sums in (told.n, told.s, told.q, told.p):
        assert not sums[2, :2].any()
        assert not sums[:2, 2].any()
    assert told.s[2, 2] in (0, 5, 55, 60)


def test_a_site_answers_no_layout_but_that_of_the_study():
    """By places of its own a coordinator cuts rows out, and takes the difference of two sums."""
    task = Task(kind="synthesis", features=tuple("abcde"), heads=HEADS)
    (allowed,) = METHOD.bounds(METHOD.configure({}), task)["layout"]
    fine = Layout.of(HEADS, ranks=True)
    assert allowed == fine.text
    forged = Layout(np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([True, True, True]))
    assert forged.text != allowed
    x = np.array([[0.2, 0.3]] * 9 + [[0.7, 0.3]])
    assert np.isnan(forged.scores(x)[9, 1])  # the row that the first column cuts out
    assert Layout.read(allowed).text == allowed


def test_a_saved_model_draws_the_same_rows():
    model = truth(missing=np.full(5, 0.1))
    again = CopulaModel.restore(model.arrays(), model.meta())
    one, other = (m.sample(50, np.random.default_rng(5)) for m in (model, again))
    assert_array_equal(one, other)


def test_few_rows_another_scale_and_a_column_without_values_are_refused():
    x = truth().sample(60, np.random.default_rng(6))
    with pytest.raises(NothingToLearn, match="have 15 rows; a copula needs 20"):
        fitted(x[:15], min_cell=5)
    x[4:, 2] = np.nan
    with pytest.raises(NothingToLearn, match="fewer than 5 rows have a value of 'c'"):
        fitted(x, min_cell=5)
    odd = (Head(name="a", kind="normal", at=(0,), shift=3.0, scale=2.0),)
    with pytest.raises(SettingError, match="reads numbers as shares of rows"):
        Layout.of(odd, ranks=True)


# private fits -------------------------------------------------------------------------


@given(st.integers(0, 200))
def test_one_row_changes_noisy_sums_by_no_more_than_their_sensitivity(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (12, 5)) ** 3
    x[:, 2] = rng.integers(0, 2, 12)
    level = rng.integers(0, 3, 12)
    x[:, 3], x[:, 4] = level == 1, level == 2
    x[rng.random(x.shape) < 0.2] = np.nan
    task = Task(kind="synthesis", features=FEATURES, heads=HEADS)
    layout = Layout.of(HEADS, ranks=False)
    below = np.tile(np.sort(np.r_[0, rng.random(7), 1]), (2, 1))
    asked = {
        private.count_cells_privately: private.asked_of(task, 8),
        private.sum_scores_privately: {
            "place": layout.place, "first": layout.first, "number": layout.number.astype(int),
            "below": below, "share": rng.random(5), "clip": 1.1,
        },
    }  # fmt: skip
    for step, arguments in asked.items():
        full, less = (
            step.run(Site("s", FeatureTable(rows), None, (0,)), **arguments) for rows in (x, x[1:])
        )
        name, bound = next(iter(full.sensitivity.items()))
        change = np.linalg.norm(getattr(full.reply, name) - getattr(less.reply, name))
        assert change <= bound * (1 + 1e-12)


def test_both_releases_of_a_private_fit_spend_its_epsilon_together():
    from fedcohort.privacy import accounting

    dp = Dp(epsilon=3.0, delta=1e-5)
    listed = private.releases(CopulaSettings(), dp)
    assert [r.step for r in listed] == ["count_cells_privately", "sum_scores_privately"]
    assert 2.97 < accounting.epsilon(tuple(listed), 1e-5) <= 3.0
    total = sum(1 / r.noise**2 for r in listed)
    assert_allclose([1 / r.noise**2 / total for r in listed], private.PARTS)
    with pytest.raises(SettingError, match="protects only records"):
        private.releases(CopulaSettings(), Dp(epsilon=3.0, delta=1e-5, unit="site"))


def test_correlations_of_noisy_products_are_those_of_the_normals_without_noise():
    """Scores are cut and clipped: a correlation is off by at most 0.08 here."""
    x = truth().sample(30_000, np.random.default_rng(7))
    layout = Layout.of(HEADS, ranks=False)
    wide = x.copy()
    wide[:, :2] = 2 * x[:, :2] - 1
    below = np.tile(np.linspace(0, 1, 17), (2, 1))
    v = private.scores_of(wide, layout, below, SHARE)
    seen = private._seen(layout, SHARE, np.zeros(5))
    found = private.correlations(v.T @ v, layout, SHARE, seen, 0.0)
    assert_allclose(found, R, atol=0.08)


def test_noisy_correlations_are_shrunk_to_their_mean_given_the_noise():
    # True correlations N(0, 0.1²), noise of 0.05 to 0.3 by pair: the mean of the truth given the
    # observation is r τ²/(τ² + sd²), of squared error 1/(1/τ² + 1/sd²) (normal with normal prior).
    rng = np.random.default_rng(0)
    truth, sd = 0.1 * rng.standard_normal((100, 100)), rng.uniform(0.05, 0.3, (100, 100))
    seen = truth + sd * rng.standard_normal(truth.shape)
    pairs = np.ones(truth.shape, bool)
    found = shrunk(seen, sd, pairs)
    best = np.mean(1 / (1 / 0.1**2 + 1 / sd**2))
    assert_allclose(np.mean((found - truth) ** 2), best, rtol=0.05)
    assert np.mean((found - truth) ** 2) < np.mean((seen * (abs(seen) > sd) - truth) ** 2) / 2
    assert_array_equal(shrunk(seen, 0 * sd, pairs), seen)
    assert_array_equal(shrunk(seen, sd, ~pairs), seen)


def test_a_score_is_the_normal_quantile_of_the_share_below():
    layout = Layout.of(HEADS[:1], ranks=False)
    below = np.array([[0.0, 0.2, 0.5, 0.9, 1.0]])
    x = np.array([[-0.5], [0.0], [0.25], [np.nan]])
    v = private.scores_of(x, layout, below, np.array([0.5]))
    assert_allclose(ndtr(v[:3, 0]), [0.2, 0.5, 0.7])
    assert v[3, 0] == 0.0
    assert math.isclose(float(np.abs(private.scores_of(
        np.array([[9.0]]), layout, below, np.array([0.5]))).max()), private.MOST
    )  # fmt: skip
