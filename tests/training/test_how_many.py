"""How many clusters there are: what the gap's reference tables are drawn by, and what it finds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from algorithms.cluster_cases import STEPS, federation, fit, scattered
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.clusters.how_many import multiply_sums
from fedcohort.training.clusters.points import PLAIN


def multiplied(x, least, seed=0):
    """Return what one site's points (n, d) add up to, about 0."""
    fed = local([Host("s", FeatureTable(x), STEPS, seed)])
    return fed.sum(multiply_sums, middle=np.zeros(x.shape[1]), least=least, **PLAIN.given).inner


@given(n=st.integers(3, 40), least=st.integers(1, 8), seed=st.integers(0, 2**16))
def test_every_row_is_in_one_sum_of_as_many_rows_as_the_least_or_more(n, least, seed):
    # row i has a 1 in column i: the products are then 1 for two rows of one group
    x = np.eye(n) + 1e-9 * np.random.default_rng(seed).random((n, n))
    together = np.rint(multiplied(x, least, seed))
    if n < least:
        assert not together.any()
        return
    assert_array_equal(np.diag(together), 1)
    assert_array_equal(together @ together, together * together.sum(axis=1))  # disjoint groups
    assert together.sum(axis=1).min() >= least
    assert together.sum(axis=1).max() < 2 * least


def test_products_of_sums_are_those_of_rows_in_the_mean():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3)) @ [[1.0, 0.8, 0.0], [0.0, 0.6, -0.5], [0.0, 0.0, 1.0]]
    x -= x.mean(axis=0)
    assert_allclose(multiplied(x, 1), x.T @ x)
    mean = np.mean([multiplied(x, 5, seed) for seed in range(600)], axis=0)
    # about their mean, sums of rows drawn without replacement vary by (n − g)/(n − 1) less
    assert_allclose(mean, x.T @ x * (60 - 5) / 59, rtol=0.05, atol=2.0)


@pytest.mark.parametrize("scaled", [False, True])
def test_columns_in_which_half_of_the_rows_are_alike_have_no_part(scaled):
    """Two mutations of one patient are not seen, nor what else the patient has."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 5))
    x[:, 0] = rng.permutation(np.arange(40) % 2)
    x[:, 1] = x[:, 2] = np.arange(40) == 7
    x[:21, 3] = 0.25
    if scaled:
        x = (x - x.mean(axis=0)) / x.std(axis=0)
    found = multiplied(x, 5)
    assert found[4, 4] > 0
    found[4, 4] = 0.0
    assert not found.any()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", ["factors", "neighbours"])
def test_columns_that_go_together_are_no_clusters(kind, seed):
    """With independent columns for a reference the gap finds 7 or 8 in each of these."""
    rng = np.random.default_rng(seed)
    if kind == "factors":
        x = rng.standard_normal((240, 3)) @ rng.standard_normal((3, 10)) * 1.5
        x += rng.standard_normal((240, 10))
    else:
        near = 0.9 ** np.abs(np.subtract.outer(range(10), range(10)))
        x = rng.multivariate_normal(np.zeros(10), near, 240)
    parts = scattered(x, 3)
    found = fit("kmeans", parts, seed=seed, n_clusters="auto", k_range=[1, 4], restarts=2)
    assert [len(found.centroids), len(found.numbers)] == [1, 4]


@pytest.mark.parametrize("given", [{}, {"n_clusters": "auto", "k_range": [1, 3]}])
def test_no_product_of_zeros_and_ones_is_asked_for(given):
    x = (np.random.default_rng(2).random((120, 12)) < 0.1).astype(float)
    for method in ("kmeans",) if given else ("kmeans", "kmodes"):
        fed = federation(scattered(x, 3))
        fit(method, [x], fed, restarts=2, **given)
        replies = [json.loads(line) for line in fed.ledger.lines]
        assert {e["step"] for e in replies} == {
            "sum_points", "weigh_candidates", "count_near", "sum_near"
        }  # fmt: skip
        shapes = [
            a["shape"] for e in replies if e["step"] == "sum_points" for a in e["fields"].values()
        ]
        assert shapes
        assert max(map(len, shapes)) == 1
