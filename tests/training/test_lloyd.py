"""Lloyd's rounds over sites are scikit-learn's on the pooled table, and no sum is over few rows."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

from algorithms.cluster_cases import blobs, federation, scattered
from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.network import initial, network
from fedcohort.numerics.centroids import AGGREGATIONS
from fedcohort.protocol import DataError, SettingError, SiteUnavailable
from fedcohort.training.clusters import partition, seeding
from fedcohort.training.clusters.candidates import from_candidates
from fedcohort.training.clusters.lloyd import lloyd, unscaled
from fedcohort.training.clusters.points import Space


def rng():
    return np.random.default_rng(0)


def pooled(x, start, rounds=300):
    """Return scikit-learn's clusters, and its labels."""
    given = {"init": start, "n_init": 1, "algorithm": "lloyd", "tol": 0.0, "max_iter": rounds}
    return KMeans(len(start), **given).fit(x)


@given(
    seed=st.integers(0, 2**16), sites=st.integers(1, 6), k=st.integers(1, 5), p=st.integers(1, 4),
)  # fmt: skip
def test_without_a_least_count_the_centroids_are_scikit_learns_however_rows_are_split(
    seed, sites, k, p
):
    draws = np.random.default_rng(seed)
    x = blobs(80, k, p, seed, apart=2.0)[0]
    start = x[draws.choice(80, k, replace=False)]
    theirs = pooled(x, start)
    found = lloyd(federation(scattered(x, sites, seed)), start, rng=rng(), least=1)
    assert_allclose(found.centroids, theirs.cluster_centers_, rtol=0, atol=1e-8)
    assert_array_equal(found.counts, np.bincount(theirs.labels_, minlength=k))
    assert_allclose(found.inertia, theirs.inertia_, rtol=1e-8)
    assert found.converged
    assert (found.moving, found.dropped) == (0, 0)


@given(seed=st.integers(0, 2**16), sites=st.integers(2, 5))
def test_the_order_of_sites_and_of_rows_changes_nothing(seed, sites):
    x = blobs(60, 3, 2, seed, apart=2.0)[0]
    parts = scattered(x, sites, seed)
    turned = [part[::-1] for part in parts[::-1]]
    one, other = (lloyd(federation(p), x[:3], rng=rng()) for p in (parts, turned))
    assert_allclose(one.centroids, other.centroids, rtol=0, atol=1e-10)
    assert_array_equal(one.counts, other.counts)


def test_ties_go_to_the_first_cluster_at_every_site():
    x = np.array([[-1.0], [0.0], [1.0]] * 8)
    found = lloyd(federation([x[:9], x[9:15], x[15:]]), np.array([[-1.0], [1.0]]), rng=rng())
    # rows at 0 are as near to both: they are the first's, whose mean is then −1/2
    assert_array_equal(found.counts, [16, 8])
    assert_allclose(found.centroids, [[-0.5], [1.0]], atol=1e-12)


@pytest.mark.parametrize("call", range(3))
def test_a_site_that_is_away_before_the_first_sums_ends_the_fit_by_name(call):
    x = blobs(120, 3, 2, 1)[0]
    parts = scattered(x, 3)
    gone = federation(parts, quorum=0.6, absent=lambda n, site: (n, site) == (call, "site-1"))
    with pytest.raises(SiteUnavailable, match="site-1 left"):
        lloyd(gone, x[:3], rng=rng())


@pytest.mark.parametrize("call", [3, 4, 5])
def test_a_site_that_leaves_after_a_rounds_sums_ends_the_rounds_with_these(call):
    """All sites are in what is found; no later sum is asked for, as it would tell the leaver's."""
    x = blobs(200, 4, 2, 1, apart=1.0)[0]
    parts, away = scattered(x, 3), lambda n, site: n >= call and site == "site-1"
    fed = Overheard(federation(parts, quorum=0.6, absent=away))
    found = lloyd(fed, x[:4], rng=rng())
    # who leaves between a count and its sum is missed in that sum alone
    assert len(fed.asked) == found.rounds + (call == 4)
    whole = lloyd(federation(parts), x[:4], rng=rng(), rounds=found.rounds)
    assert (found.left, found.converged) == (("site-1",), False)
    assert_array_equal(found.centroids, whole.centroids)
    assert found.counts.sum() == len(x)
    with pytest.raises(SiteUnavailable, match="quorum is 1"):
        lloyd(federation(parts, absent=away), x[:4], rng=rng())


def memberships(parts, fed):
    """Return, of each call for sums, which cluster each row was in."""
    return [
        np.concatenate([partition.labels(np.array(x, float), a["path"], a["moves"]) for x in parts])
        for a in fed.asked
    ]


class Overheard:
    """A federation that keeps what is asked with `sum_near`."""

    def __init__(self, fed, asked=None):
        self.fed, self.asked = fed, [] if asked is None else asked

    def __getattr__(self, name):
        return getattr(self.fed, name)

    def only(self, sites):
        return Overheard(self.fed.only(sites), self.asked)

    def awaiting(self, fewest=None):
        return Overheard(self.fed.awaiting(fewest), self.asked)

    def sum(self, step, **arguments):
        if step.name == "sum_near":
            self.asked.append(arguments)
        return self.fed.sum(step, **arguments)


@given(
    seed=st.integers(0, 2**16), n=st.integers(10, 60), k=st.integers(1, 7), least=st.integers(2, 8),
)  # fmt: skip
def test_no_sum_and_no_difference_of_two_rounds_is_over_fewer_rows_than_the_least(
    seed, n, k, least
):
    """Every union of clusters of a round against every one of the next, by brute force."""
    draws = np.random.default_rng(seed)
    x = draws.standard_normal((n, 2)) * draws.choice([0.1, 1.0, 10.0], (n, 1))
    parts = scattered(x, 3, seed)
    fed = Overheard(federation(parts))
    found = lloyd(fed, x[draws.choice(n, k)], rng=draws, least=least)
    asked = memberships(parts, fed)
    assert len(asked) == found.rounds
    for label in asked:
        assert np.bincount(label).min() >= least
    for before, now in itertools.pairwise(asked):
        flow = np.zeros((before.max() + 1, now.max() + 1))
        np.add.at(flow, (before, now), 1)
        for a in range(1 << len(flow)):
            for b in range(1 << flow.shape[1]):
                u = (a >> np.arange(len(flow))) & 1
                v = (b >> np.arange(flow.shape[1])) & 1
                apart = flow[u[:, None] != v].sum()
                assert apart == 0 or apart >= least
    assert found.counts.min() >= least
    assert found.counts.sum() == n


def test_few_rows_that_would_move_stay_and_cost_little():
    x = blobs(400, 4, 3, 2, apart=1.5)[0]
    parts = scattered(x, 4)
    exact, held = (lloyd(federation(parts), x[:4], rng=rng(), least=m) for m in (1, 5))
    assert held.converged
    assert held.inertia <= 1.01 * exact.inertia


def test_an_empty_cluster_is_made_of_a_wide_one():
    x = blobs(200, 4, 2, 3)[0]
    start = np.vstack([x[:3], [[1e4, 1e4]]])
    found = lloyd(federation(scattered(x, 3)), start, rng=rng())
    best = KMeans(4, n_init=20, random_state=0).fit(x).inertia_
    assert (len(found.centroids), found.dropped) == (4, 0)
    assert found.inertia <= 1.02 * best


def test_clusters_that_rows_are_too_few_for_are_dropped():
    x = np.repeat([[0.0], [10.0]], 6, axis=0)
    start = np.array([[0.0], [10.0], [20.0], [30.0]])
    found = lloyd(federation([x[:4], x[4:8], x[8:]]), start, rng=rng())
    assert_allclose(np.sort(found.centroids[:, 0]), [0.0, 10.0])
    assert found.dropped == 2


def test_too_few_rows_in_all_and_missing_values_are_refused():
    with pytest.raises(DataError, match="4 rows in all are too few"):
        lloyd(federation([np.zeros((2, 1)), np.ones((2, 1))]), np.zeros((1, 1)), rng=rng())
    x = np.array([[1.0, np.nan]] * 10)
    with pytest.raises(DataError, match="column 2 of the features has missing"):
        lloyd(federation([x, x]), np.zeros((1, 2)), rng=rng())


def test_one_site_one_cluster_and_a_constant_column_are_no_obstacle():
    x = np.column_stack([blobs(50, 2, 1, 4)[0], np.full(50, 7.0)])
    found = lloyd(federation([x]), x[:1], rng=rng())
    assert_allclose(found.centroids[0], x.mean(axis=0))
    assert_allclose(found.variance[0], x.var(axis=0), atol=1e-12)
    assert found.rounds == 1


@pytest.mark.parametrize("scale", ["standard", "l1", "l2"])
def test_scaled_clusters_are_those_of_a_scaled_table_and_their_means_are_unscaled(scale):
    x = blobs(150, 3, 3, 5)[0] + 5.0
    if scale == "standard":
        z = (x - x.mean(axis=0)) / x.std(axis=0)
    else:
        z = x / np.linalg.norm(x, ord={"l1": 1, "l2": 2}[scale], axis=1, keepdims=True)
    fed = federation(scattered(x, 3))
    space = Space(scale=scale)
    if scale == "standard":
        space, _ = seeding.standard(fed, Space(), least=5)
    found = lloyd(fed, z[:3], space, rng=rng(), least=1)
    theirs = pooled(z, z[:3])
    assert_allclose(found.centroids, theirs.cluster_centers_, atol=1e-8)
    means, variances = unscaled(fed, found, space)
    for j in range(3):
        assert_allclose(means[j], x[theirs.labels_ == j].mean(axis=0), atol=1e-8)
        assert_allclose(variances[j], x[theirs.labels_ == j].var(axis=0), atol=1e-8)


def test_points_far_from_the_origin_keep_their_digits():
    x = blobs(120, 3, 2, 6)[0]
    far = x + 1e7
    fed = federation(scattered(far, 3))
    found = lloyd(fed, far[:3], rng=rng(), least=1)
    theirs = lloyd(federation(scattered(x, 3)), x[:3], rng=rng(), least=1)
    assert_allclose(found.centroids - 1e7, theirs.centroids, atol=1e-6)
    whole = seeding.cloud(federation(scattered(far, 3)), least=5)
    assert_allclose(whole.variance, x.var(axis=0), rtol=1e-6)


@pytest.mark.parametrize("k", [3, 6])
@pytest.mark.parametrize("p", [2, 20])
def test_candidates_lead_to_clusters_as_good_as_those_of_25_starts(k, p):
    for seed in range(3):
        x = blobs(400, k, p, seed)[0]
        whole = seeding.cloud(federation(scattered(x, 3, seed)), least=5)
        draws = np.random.default_rng(seed)
        start = from_candidates(whole, k, rng=draws, least=5)
        found = lloyd(whole.fed, start, rng=draws)
        best = KMeans(k, n_init=25, random_state=0).fit(x).inertia_
        assert found.inertia <= 1.03 * best


def test_sites_send_no_centroid_of_few_rows_and_fewer_where_rows_are_alike():
    apart = np.vstack([blobs(30, 2, 2, 0, apart=20.0)[0], [[500.0, 500.0]]])
    alike = np.repeat([[0.0, 0.0], [50.0, 0.0]], 8, axis=0)
    parts = [apart, alike, np.zeros((3, 2))]
    fed = federation(parts)
    told = fed.gather(seeding.own_centroids, k=4, restarts=5, least=5, **Space().given)
    sizes = {site: own.sizes for site, own in told.items()}
    assert all((s >= 5).all() for s in sizes.values())
    assert sizes["site-0"].sum() == 31  # the row far away is counted with others
    assert_array_equal(np.sort(sizes["site-1"]), [8, 8])
    assert len(sizes["site-2"]) == 0
    start, left = seeding.from_sites(fed, 3, rng=rng(), least=5)
    assert left.sites == ("site-0", "site-1", "site-2")
    assert start.shape == (3, 2)
    with pytest.raises(SettingError, match="sites found 4 clusters of 5 rows or more"):
        seeding.from_sites(federation([alike, alike + 1.0]), 9, rng=rng(), least=5)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_place_that_sites_share_is_taken_once(aggregation):
    """As of patients without a mutation, who are in one point at every site."""
    common = np.zeros((9, 2))
    parts = [np.vstack([common, np.full((6, 2), far)]) for far in (10.0, 20.0, 31.0, 43.0)]
    for k, seed in itertools.product((5, 6), range(5)):
        start, _ = seeding.from_sites(
            federation(parts), k, rng=np.random.default_rng(seed), least=5, aggregation=aggregation
        )
        assert_array_equal(np.sort(start[:, 0]), [0.0, 10.0, 20.0, 31.0, 43.0])


def test_the_ledger_names_sums_alone():
    x = blobs(100, 3, 2, 8)[0]
    fed = federation(scattered(x, 3))
    whole = seeding.cloud(fed, least=5)
    lloyd(whole.fed, from_candidates(whole, 3, rng=rng(), least=5), rng=rng())
    asked = {(e["step"], e["verb"]) for e in map(json.loads, fed.ledger.lines)}
    assert asked == {
        (step, "sum") for step in ("sum_points", "weigh_candidates", "count_near", "sum_near")
    }


def test_the_plain_space_needs_no_torch():
    code = (
        "import sys, fedcohort.training.clusters.lloyd, fedcohort.training.clusters.seeding, "
        "fedcohort.algorithms.kmeans; assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("scale", ["none", "l2"])
def test_latent_clusters_are_those_of_the_encoded_table(scale):
    x = blobs(90, 3, 5, 9)[0]
    spec = Autoencoder(inputs=5, widths=(4, 2), output="linear").spec
    theta = initial(spec, 3)
    net = network(spec)
    net.load(theta)
    with torch.no_grad():
        z = net.module.encode(torch.from_numpy(x)).numpy()
    if scale == "l2":
        z = z / np.linalg.norm(z, axis=1, keepdims=True)
    space = Space(network=spec, theta=theta, scale=scale)
    found = lloyd(federation(scattered(x, 3)), z[:3], space, rng=rng(), least=1)
    theirs = pooled(z, z[:3])
    assert_allclose(found.centroids, theirs.cluster_centers_, atol=1e-8)
    assert_array_equal(found.counts, np.bincount(theirs.labels_, minlength=3))
