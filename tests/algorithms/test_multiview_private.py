"""Private multi-view PPCA: what one row can change, what noise leaves, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import subspace_angles
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import fedcohort as fc
from fedcohort.algorithms.multiview_ppca.maths import em, start
from fedcohort.algorithms.multiview_ppca.maths.model import Prior, Views
from fedcohort.algorithms.multiview_ppca.maths.moments import patterns
from fedcohort.algorithms.multiview_ppca.private import (
    marked,
    moments,
    products,
    read,
    sets,
)
from fedcohort.data.read.simulated_views import multiview
from fedcohort.privacy.statistics import cross_products
from fedcohort.training.linear.private_products import unpacked

OF = np.repeat([0, 1, 2], [4, 2, 3])
values = st.floats(-1e6, 1e6) | st.just(float("nan"))


@settings(max_examples=60)
@given(st.lists(values, min_size=9, max_size=9), st.sampled_from([0.5, 1.5, 4.0]))
def test_a_row_changes_the_sum_by_no_more_than_its_stated_sensitivity(row, clip):
    x = np.array([row])
    # the sum over a table with the row less that without it is the row's own part
    for found in (products(x, OF, clip), cross_products(marked(x, OF), clip)):
        assert np.linalg.norm(found.value) <= found.l2 * (1 + 1e-12)
        assert np.abs(found.value).sum() <= found.l1 * (1 + 1e-12)
        assert found.l2 == clip**2


@settings(max_examples=25)
@given(st.lists(st.lists(values, min_size=9, max_size=9), min_size=2, max_size=5))
def test_sums_of_two_sites_are_the_sum_of_all_rows_and_each_row_is_in_one_set_of_views(rows):
    x = np.array(rows)
    a, b, both = (products(part, OF, 2.0).value for part in (x[:1], x[1:], x))
    assert_allclose(a + b, both, atol=1e-9)
    mine = products(x[:1], OF, 2.0).value
    at = np.split(mine, np.cumsum([(len(c) + 1) * (len(c) + 2) // 2 for c in sets(OF)])[:-1])
    complete = [not np.isnan(x[0, k == OF]).any() for k in range(3)]
    wanted = [code for code in range(1, 8) if complete == [bool(code >> k & 1) for k in range(3)]]
    assert [code for code, part in enumerate(at, 1) if part.any()] == wanted


def test_without_noise_or_cuts_the_sets_of_views_are_the_patterns_of_the_table():
    x = np.random.default_rng(1).normal(size=(90, 9)) @ np.diag(np.linspace(0.2, 0.4, 9))
    x[:30, 4:6] = np.nan
    x[25:50, 6:] = np.nan
    told = read(products(x, OF, 100.0).value, OF, 0.0)
    for one in told:
        (same,) = (p for p in patterns(x) if np.array_equal(p.columns, one.columns))
        assert one.rows == same.rows
        assert_allclose(one.mean, same.mean)
        if one.rows > 10:
            assert_allclose(one.factor.T @ one.factor, same.factor.T @ same.factor, atol=1e-12)
    assert sum(one.rows for one in told) == 90


def test_many_views_are_told_of_by_one_sum_and_a_few_wide_ones_too():
    assert len(sets(np.arange(4))) == 15
    assert sets(np.arange(9)) == []
    assert sets(np.repeat([0, 1, 2], 400)) == []
    x = np.random.default_rng(0).normal(size=(50, 9)) / 4
    upper = products(x, np.arange(9), 100.0).value
    (one,) = read(upper, np.arange(9), 0.0)
    assert_allclose(one.mean, x.mean(axis=0))


def test_a_set_of_views_that_the_noise_can_have_made_is_left_out():
    x = np.random.default_rng(0).normal(size=(60, 9)) / 4
    x[:9, 4:] = np.nan
    upper = products(x, OF, 100.0).value
    assert len(read(upper, OF, 1.0)) == 2
    assert [one.rows for one in read(upper, OF, 10.0)] == [51]
    with pytest.raises(fc.FedcohortError, match="3 of 3 views cannot be told from the noise"):
        read(upper, OF, 40.0)


def test_views_that_some_groups_lack_are_filled_in_as_without_noise():
    # one site of both groups, one of each with a view less (the paper's G/K)
    frame, views = multiview(n=3000, shifted=1500, seed=5)
    group = frame.pop("group").to_numpy()
    words = {
        c: {"type": "number", "view": v, "usual": [-20, 20]}
        for v, columns in views.items() for c in columns
    }  # fmt: skip
    test, rows = frame[:600], frame[600:]
    first = group[600:] == "1"
    parts = {
        "a": rows[:800], "b": rows[800:][first[800:]].drop(columns=views["v2"]),
        "c": rows[800:][~first[800:]].drop(columns=views["v3"]),
    }  # fmt: skip
    fed = fc.simulate(parts, dictionary={"variables": words}, seed=1)
    few = test.copy()
    few[views["v3"]] = np.nan

    def off(fit):
        filled = fit.reconstruct(few)[views["v3"]].to_numpy()
        seen = np.asarray(fit.parts.design.matrix(test))[:, -len(views["v3"]) :]
        return np.abs(filled - seen).mean() / seen.std()

    plain = off(fc.fit("multiview_ppca", fed, q=5, draws=0))
    asked = {"q": 5, "seed": 0, "dp": {"epsilon": 100, "delta": 1e-4}}
    assert off(fc.fit("multiview_ppca", fed, **asked)) < plain + 0.05


def test_without_noise_or_cuts_the_moments_are_those_of_the_table():
    x = np.random.default_rng(0).normal(size=(50, 9)) @ np.diag(np.linspace(0.05, 0.3, 9))
    told = moments(unpacked(cross_products(marked(x, OF), 100.0).value), OF, 0.0)
    assert told.rows == 50
    assert_allclose(told.mean, x.mean(axis=0))
    covariance = np.cov(x.T, bias=True)
    values, vectors = np.linalg.eigh(covariance)
    raised = (vectors * np.maximum(values, 1e-4)) @ vectors.T
    assert_allclose(told.factor.T @ told.factor / 50, raised, atol=1e-12)


def test_of_two_views_the_rows_that_have_both_tell_their_covariance():
    x = np.random.default_rng(1).normal(size=(80, 9)) @ np.diag(np.linspace(0.3, 0.5, 9))
    x[:, 4:6] += x[:, :2]
    x[:30, 4:6] = np.nan
    x[25:50, 6:] = np.nan
    told = moments(unpacked(cross_products(marked(x, OF), 100.0).value), OF, 0.0)
    together = told.factor.T @ told.factor / told.rows
    columns = [np.flatnonzero(view == OF) for view in range(3)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        at = np.ix_(columns[a], columns[b])
        rows = ~np.isnan(x[:, [*columns[a], *columns[b]]]).any(axis=1)
        assert_allclose(together[at], np.cov(x[rows].T, bias=True)[at], atol=1e-10)
    assert_allclose(told.mean, np.nanmean(x, axis=0))


def test_a_row_that_lacks_an_entry_of_a_view_is_without_that_view():
    x = np.full((1, 9), 0.5)
    x[0, 4] = np.nan
    assert_allclose(marked(x, OF), [[1, 0, 1, 0.5, 0.5, 0.5, 0.5, 0, 0, 0.5, 0.5, 0.5]])


@pytest.fixture(scope="module")
def cohort():
    frame, views = multiview(n=900, shifted=500, seed=2, distance=2.5)
    group = frame.pop("group").to_numpy()
    mean, sd = frame.mean(), frame.std()
    words = {
        c: {"type": "number", "view": v, "usual": [mean[c] - 3 * sd[c], mean[c] + 3 * sd[c]]}
        for v, columns in views.items() for c in columns
    }  # fmt: skip
    parts = {s: frame.iloc[i * 200 : i * 200 + 200] for i, s in enumerate("abc")}
    parts["b"] = parts["b"].drop(columns=views["v2"])
    parts["c"] = parts["c"].drop(columns=views["v3"])
    return fc.simulate(parts, dictionary={"variables": words}, seed=1), frame, group


def accuracy(fit, frame, group):
    z = fit.transform(frame)
    return LinearDiscriminantAnalysis().fit(z[:600], group[:600]).score(z[600:], group[600:])


def test_at_epsilon_one_the_latent_space_tells_groups_apart_as_without_noise(cohort):
    fed, frame, group = cohort
    plain = accuracy(fc.fit("multiview_ppca", fed, q=5, draws=0), frame, group)
    found = [
        accuracy(fc.fit("multiview_ppca", fed, q=5, seed=s, dp={"epsilon": 1}), frame, group)
        for s in range(3)
    ]
    assert np.mean(found) > plain - 0.03
    spent = fc.fit("multiview_ppca", fed, q=5, seed=0, dp={"epsilon": 1}).run.epsilon
    assert spent is not None
    assert spent <= 1


def test_with_little_noise_the_fit_is_that_of_the_pooled_rows():
    frame, views = multiview(n=6000, dims=(6, 5), q=2, shifted=0, seed=4, noise=(0.4, 0.5))
    del frame["group"]
    words = {
        c: {"type": "number", "view": v, "usual": [-8, 8]}
        for v, columns in views.items() for c in columns
    }  # fmt: skip
    parts = {s: frame.iloc[i::3] for i, s in enumerate("abc")}
    fed = fc.simulate(parts, dictionary={"variables": words}, seed=1)
    asked = {"q": 2, "noise": "view", "seed": 1, "dp": {"epsilon": 500, "clip": 3}}
    fit = fc.fit("multiview_ppca", fed, **asked)
    x, shape = frame.to_numpy() / 8, Views(fit.model.of, 2)  # the design's [-1, 1]
    found = patterns(x)
    theta = start.principal(found, shape)
    for _ in range(200):
        theta = em.step(found, theta, Prior.flat(shape), shape, em.floors(found, shape))
    assert subspace_angles(fit.model.prior.w, theta.w).max() < 0.01
    # noise of 0.1 C² on a sum of 6,000 squares: 1.5e-4, a twentieth of the variance
    assert_allclose(fit.model.theta.variance, theta.variance, atol=6e-4)
    assert_allclose(fit.model.prior.mu, theta.mu, atol=0.01)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"q": "auto"}, "'q' is 'auto'"), ({"compare": True}, "'compare' is true"),
     ({"dp": {"epsilon": 1, "unit": "site"}}, "protects only records"),
     ({"dp": {"epsilon": 0.001}}, "cannot be told from the noise")],
)  # fmt: skip
def test_what_a_private_fit_cannot_do_is_refused_in_one_line(cohort, change, said):
    asked = {"q": 3, "dp": {"epsilon": 1}, "seed": 0, **change}
    with pytest.raises(fc.FedcohortError, match=said) as told:
        fc.fit("multiview_ppca", cohort[0], **asked)
    assert "\n" not in str(told.value)
