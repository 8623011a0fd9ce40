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
from fedcohort.algorithms.multiview_ppca.private import marked, moments
from fedcohort.data.simulated_views import multiview
from fedcohort.numerics.multiview import em, start
from fedcohort.numerics.multiview.model import Prior, Views
from fedcohort.numerics.multiview.moments import patterns
from fedcohort.privacy.statistics import crossed
from fedcohort.training.crossed import unpacked

OF = np.repeat([0, 1, 2], [4, 2, 3])
values = st.floats(-1e6, 1e6) | st.just(float("nan"))


@settings(max_examples=60)
@given(st.lists(values, min_size=9, max_size=9), st.sampled_from([0.5, 1.5, 4.0]))
def test_a_row_changes_the_sum_by_no_more_than_its_stated_sensitivity(row, clip):
    found = crossed(marked(np.array([row]), OF), clip)
    # the sum over a table with the row less that without it is the row's own part
    assert np.linalg.norm(found.value) <= found.l2 * (1 + 1e-12)
    assert found.l2 == clip**2


def test_without_noise_or_cuts_the_moments_are_those_of_the_table():
    x = np.random.default_rng(0).normal(size=(50, 9)) @ np.diag(np.linspace(0.05, 0.3, 9))
    told = moments(unpacked(crossed(marked(x, OF), 100.0).value), OF, 0.0)
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
    told = moments(unpacked(crossed(marked(x, OF), 100.0).value), OF, 0.0)
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
    fit = fc.fit("multiview_ppca", fed, q=2, seed=1, dp={"epsilon": 500, "clip": 3})
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
     ({"dp": {"epsilon": 1, "unit": "site"}}, "protects records"),
     ({"dp": {"epsilon": 0.001}}, "cannot be told from the noise")],
)  # fmt: skip
def test_what_a_private_fit_cannot_do_is_refused_in_one_line(cohort, change, said):
    asked = {"q": 3, "dp": {"epsilon": 1}, "seed": 0, **change}
    with pytest.raises(fc.FedcohortError, match=said) as told:
        fc.fit("multiview_ppca", cohort[0], **asked)
    assert "\n" not in str(told.value)
