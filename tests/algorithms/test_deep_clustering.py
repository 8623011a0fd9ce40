"""Deep clustering: what a fit gives, and what it is indifferent to."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from algorithms.deep_clustering_cases import config_of, federation, fitted, groups, split, task_of
from fedcohort.algorithms.deep_clustering import METHOD, DeepClusters
from fedcohort.algorithms.deep_clustering.program import centroids, latent, reconstruct, sharpen
from fedcohort.algorithms.deep_clustering.steps import look_at_columns
from fedcohort.models.network import initial
from fedcohort.numerics.centroids import nearest
from fedcohort.protocol import DataError, SiteUnavailable
from fedcohort.training.clusters.lloyd import lloyd
from fedcohort.training.clusters.points import placed

X, GROUP = groups()
PARTS = split(X, np.arange(len(X)) % 3)
AGGREGATIONS = ("max_min", "random", "random_weighted", "double_kmeans")


@pytest.fixture(scope="module")
def model() -> DeepClusters:
    return fitted(PARTS)


def accuracy(labels, classes):
    """Return the share of rows in the class that their cluster is matched with."""
    table = np.zeros((labels.max() + 1, classes.max() + 1))
    np.add.at(table, (labels, classes), 1)
    return table[linear_sum_assignment(-table)].sum() / len(labels)


@pytest.mark.parametrize("strategy", ["fedavg", "fedprox", "fedadam", "fedyogi"])
def test_groups_of_patients_are_found_by_every_strategy(strategy):
    adaptive = strategy in ("fedadam", "fedyogi")
    rate = {"learning_rate": 0.03, "server_learning_rate": 0.03} if adaptive else {}
    found = fitted(PARTS, strategy=strategy, **rate)
    assert adjusted_rand_score(GROUP, found.predict(X)) > 0.7


@pytest.mark.parametrize("how", [*AGGREGATIONS, "lloyd"])
def test_centroids_start_in_every_way_and_clusters_are_as_many_as_asked_for(how):
    found = fitted(PARTS, centroids=how)
    assert len(found.counts) == 3
    assert found.dropped == 0
    assert found.counts.sum() == len(X)
    assert_array_equal(np.bincount(found.predict(X)), found.counts)


@pytest.mark.parametrize("scale", ["standard", "l1", "l2"])
@pytest.mark.parametrize("how", ["double_kmeans", "lloyd"])
def test_centroids_are_in_the_latent_space_as_it_is_whatever_k_means_was_scaled_by(scale, how):
    found = fitted(
        PARTS, latent_scale=scale, centroids=how, cluster_rounds=1,
        cluster_learning_rate=1e-9,
    )  # fmt: skip
    z, near = found.transform(X), found.predict(X)
    means = np.array([z[near == j].mean(axis=0) for j in range(3)])
    assert np.abs(found.centroids - means).max() < 0.4 * z.std(axis=0).max()
    assert adjusted_rand_score(GROUP, near) > 0.6


#: Phase 1 alone, all rows in a step, and nothing drawn.
WHOLE = {"cluster_rounds": 0, "batch_size": 0, "dtype": "float64"}


@pytest.mark.parametrize("state", ["kept", "averaged"])
def test_with_an_optimiser_that_goes_on_rounds_of_one_site_are_one_long_visit(state):
    once = fitted({"a": X}, **WHOLE, rounds=1, internal_epochs=12)
    rounds = fitted({"a": X}, **WHOLE, rounds=6, internal_epochs=2, optimiser_state=state)
    fresh = fitted({"a": X}, **WHOLE, rounds=6, internal_epochs=2)
    size = len(once.theta) - once.centroids.size
    assert_allclose(rounds.theta[:size], once.theta[:size], atol=1e-6)
    assert abs(fresh.theta[:size] - once.theta[:size]).max() > 1e-3


@pytest.mark.parametrize("state", ["kept", "averaged"])
def test_in_phase_two_labels_and_the_optimiser_are_kept_beside_each_other(state):
    """Without its labels of the round before, a site would call all of them changed."""
    fed, config = federation(PARTS), config_of(tol=0.0, optimiser_state=state, cluster_rounds=5)
    found = METHOD.fit(fed, config, task_of(X))
    changed = [row["changed"] for row in fed.history if "changed" in row]
    assert len(changed) == 4
    assert max(changed) < 0.5
    assert adjusted_rand_score(GROUP, found.predict(X)) > 0.6


@pytest.mark.parametrize("compression", ["random_k", "int8", "top_k"])
def test_groups_are_found_with_compressed_updates_in_both_phases(compression):
    found = fitted(PARTS, compression=compression, compression_share=0.3, optimiser_state="kept")
    assert adjusted_rand_score(GROUP, found.predict(X)) > 0.6


def test_pairs_of_layers_of_one_shape_begin_with_new_optimisers():
    """The second pair of widths (6, 6, 6, 6) has the plan of the third."""
    settings = {**WHOLE, "architecture": (6, 6, 6, 6), "rounds": 3, "pretrain": "layerwise"}
    kept = fitted({"a": X}, **settings, internal_epochs=1, optimiser_state="kept")
    once = fitted({"a": X}, **settings | {"rounds": 1}, internal_epochs=3)
    size = len(once.theta) - once.centroids.size
    assert_allclose(kept.theta[:size], once.theta[:size], atol=1e-6)


def test_without_phase_two_it_is_k_means_of_latent_points():
    found = fitted(PARTS, cluster_rounds=0)
    assert not found.settled
    z = found.transform(X)
    want = KMeans(3, init=found.centroids, n_init=1).fit(z)  # nothing is left to improve
    assert_array_equal(found.predict(X), want.labels_)
    assert_allclose(found.centroids, want.cluster_centers_, atol=1e-4)  # float32


def test_on_digits_clusters_are_the_digits_for_most_and_phase_two_betters_its_start():
    """k-means of the pixels, `KMeans(10, n_init=25)`, has 0.79; no fit has seen a digit's name.

    Which digits a fit confuses hangs on its last bits, and so on the processor. Over seeds 0 to 11
    the accuracy was 0.772 with a standard deviation of 0.030 (least 0.723), the gain 0.017 with
    0.011; so the means of six seeds are 4.2 and 3.8 of their deviations above what is asked here.
    """
    x, digit = load_digits(return_X_y=True)
    x = x / 16.0
    config = config_of(
        n_clusters=10, architecture=(256, 10), rounds=20, learning_rate=0.003, batch_size=32,
        cluster_batch_size=32, cluster_learning_rate=0.001, centroids="double_kmeans",
    )  # fmt: skip
    starts, found = [], []
    for seed in range(6):
        fed = federation(split(x, np.random.default_rng(seed).integers(4, size=len(x))), seed)
        task = task_of(x, seed)
        theta, _ = reconstruct(fed, config, task, fed.sum(look_at_columns))
        mu, _, _ = centroids(fed, config, task, theta)
        starts.append(accuracy(nearest(latent(config, task, theta).points(x), mu), digit))
        theta, mu, _ = sharpen(fed, config, task, theta, mu)
        found.append(accuracy(nearest(latent(config, task, theta).points(x), mu), digit))
    assert np.mean(found) > 0.72
    assert np.mean(found) > np.mean(starts)


@given(order=st.permutations(sorted(PARTS)), seed=st.integers(0, 9))
@settings(max_examples=3, deadline=None)
def test_neither_the_order_of_sites_nor_that_of_rows_changes_full_batch_fits(order, seed):
    full = {"batch_size": 0, "cluster_batch_size": 0, "dtype": "float64", "rounds": 5}
    plain = fitted(PARTS, **full)
    mixed = {s: np.random.default_rng(seed).permutation(PARTS[s]) for s in order}
    found = fitted(mixed, **full)
    assert_allclose(found.theta, plain.theta, rtol=0, atol=1e-7)
    assert_array_equal(found.counts, plain.counts)


def test_the_numbers_that_clusters_had_at_the_start_decide_no_cluster():
    config = config_of(dtype="float64", cluster_batch_size=0)
    theta = initial(config.plan(X.shape[1]).network, 3)
    mu = np.random.default_rng(0).standard_normal((3, 2))
    one = sharpen(federation(PARTS), config, task_of(X), theta, mu)
    other = sharpen(federation(PARTS), config, task_of(X), theta, mu[[2, 0, 1]])
    assert_allclose(other[0], one[0], rtol=0, atol=1e-9)
    assert_allclose(other[1], one[1][[2, 0, 1]], rtol=0, atol=1e-9)


def test_points_that_sites_keep_lead_where_points_made_anew_do():
    config = config_of(dtype="float64")
    space = latent(config, task_of(X), initial(config.plan(X.shape[1]).network, 3))
    fed = federation(PARTS)
    there, kept = placed(fed, space)
    mu = np.random.default_rng(0).standard_normal((3, 2))
    for scale in ("none", "l2"):
        found = [
            lloyd(sites, mu, replace(where, scale=scale), rng=np.random.default_rng(0))
            for sites, where in ((fed, space), (there, kept))
        ]
        assert_array_equal(found[0].centroids, found[1].centroids)
        assert_array_equal(found[0].counts, found[1].counts)
    with pytest.raises(DataError, match="has not placed its rows"):
        lloyd(federation(PARTS), mu, kept, rng=np.random.default_rng(0))


def test_clusters_are_numbered_by_size(model):
    assert (np.diff(model.counts) <= 0).all()
    assert [row["n"] for row in model.summary()] == model.counts.tolist()
    assert sum(row["share"] for row in model.summary()) == pytest.approx(1.0)


def test_a_site_that_is_missing_in_some_rounds_ends_no_fit_with_a_quorum():
    away = lambda call, site: site == "site2" and 10 <= call < 20  # noqa: E731
    fed = federation(PARTS, quorum=0.6, absent=away)
    found = METHOD.fit(fed, config_of(), task_of(X))
    assert adjusted_rand_score(GROUP, found.predict(X)) > 0.7
    with pytest.raises(SiteUnavailable):
        METHOD.fit(federation(PARTS, absent=away), config_of(), task_of(X))


@pytest.mark.parametrize("step", ["soft_frequencies", "refine"])
def test_a_site_that_is_missing_while_clusters_sharpen_misses_these_rounds_alone(step):
    plain = federation(PARTS)
    METHOD.fit(plain, config_of(tol=0.0), task_of(X))
    lines = [json.loads(line) for line in plain.ledger.lines]
    calls = sorted({e["call"] for e in lines if e["step"] == step})[2:4]
    fed = federation(PARTS, quorum=0.6, absent=lambda call, site: site == "site2" and call in calls)
    found = METHOD.fit(fed, config_of(tol=0.0), task_of(X))
    told = [json.loads(line) for line in fed.ledger.lines]
    there = {(e["site"], e["call"]) for e in told if e["step"] == step}
    assert not {("site2", call) for call in calls} & there
    assert ("site2", max(e["call"] for e in told if e["step"] == step)) in there
    assert adjusted_rand_score(GROUP, found.predict(X)) > 0.7


@pytest.mark.parametrize("aggregation", ["median", "trimmed_mean", "krum", "norm_bound"])
def test_aggregations_that_withstand_lies_find_the_groups(aggregation):
    parts = split(X, np.arange(len(X)) % 5)
    found = fitted(parts, aggregation=aggregation)
    assert adjusted_rand_score(GROUP, found.predict(X)) > 0.6


@pytest.mark.parametrize("noise", ["corruption", "flip", "gaussian"])
def test_inputs_may_be_disturbed_in_phase_one(noise):
    found = fitted(PARTS, noise=noise, noise_rate=0.15, beta=0.3, dropout=0.1)
    assert adjusted_rand_score(GROUP, found.predict(X)) > 0.6


@pytest.mark.parametrize("tied", [True, False])
def test_pairs_of_layers_may_be_trained_first(tied):
    found = fitted(PARTS, pretrain="layerwise", tied=tied, rounds=20, noise="flip")
    assert adjusted_rand_score(GROUP, found.predict(X)) > 0.6


@pytest.mark.parametrize("choose", ["gap", "consensus"])
def test_the_number_of_clusters_may_be_chosen_in_the_latent_space(choose):
    x, own = groups(180)
    parts = split(x, np.arange(len(x)) % 3)
    found = fitted(parts, n_clusters="auto", choose=choose, k_range=(2, 4))
    assert len(found.counts) == 3
    assert [row["k"] for row in found.numbers] == [2, 3, 4]
    assert adjusted_rand_score(own, found.predict(x)) > 0.7


def test_phase_one_ends_early_where_held_out_rows_get_no_better():
    fed = federation(PARTS)
    METHOD.fit(fed, config_of(rounds=500, patience=3, learning_rate=0.05), task_of(X))
    assert 3 < sum("held_out_loss" in row for row in fed.history) < 400


def test_phase_two_ends_when_labels_settle_and_says_so():
    fed = federation(PARTS)
    found = METHOD.fit(fed, config_of(cluster_rounds=200, tol=0.01), task_of(X))
    changed = [row["changed"] for row in fed.history if "changed" in row]
    assert found.settled
    assert changed[-1] < 0.01 <= min(changed[:-1], default=1.0)
    assert len(changed) < 199
    assert not fitted(PARTS, cluster_rounds=1).settled


# what a model gives -----------------------------------------------------------------------


def test_memberships_add_to_one_and_labels_are_the_largest(model):
    new, _ = groups(40, seed=9)
    q = model.memberships(new)
    assert q.shape == (40, 3)
    assert_allclose(q.sum(axis=1), 1.0, rtol=1e-12)
    assert (q >= 0).all()
    assert_array_equal(q.argmax(axis=1), model.predict(new))


def test_memberships_follow_students_t(model):
    """Xie et al. (2016), eq. 1, with one degree of freedom."""
    z = model.transform(X)
    kernel = 1.0 / (1.0 + ((z[:, None] - model.centroids) ** 2).sum(axis=2))
    assert_allclose(model.memberships(X), kernel / kernel.sum(axis=1, keepdims=True), atol=1e-5)


def test_reconstructions_are_probabilities_near_the_rows(model):
    y = model.reconstruct(X)
    assert y.shape == X.shape
    assert ((y >= 0) & (y <= 1)).all()
    kept = fitted(PARTS, gamma=1.0)
    base = ((X - X.mean(axis=0)) ** 2).mean()
    assert ((kept.reconstruct(X) - X) ** 2).mean() < 0.8 * base


def test_means_and_variances_within_clusters_are_those_of_the_latent_rows(model):
    z, near = model.transform(X), model.predict(X)
    for j in range(3):
        assert_allclose(model.means[j], z[near == j].mean(axis=0), rtol=1e-4, atol=1e-5)
        assert_allclose(model.variances[j], z[near == j].var(axis=0), rtol=1e-3, atol=1e-6)


def test_samples_of_binary_columns_are_binary_and_as_frequent_as_in_the_clusters():
    kept = fitted(PARTS, gamma=1.0, rounds=80)
    rng = np.random.default_rng(0)
    near = kept.predict(X)
    for j in range(3):
        drawn = kept.sample_of(np.full(2000, j), rng)
        assert drawn.shape == (2000, X.shape[1])
        assert set(np.unique(drawn)) == {0.0, 1.0}
        assert np.abs(drawn.mean(axis=0) - X[near == j].mean(axis=0)).mean() < 0.1
    assert_array_equal(
        kept.sample(7, np.random.default_rng(1)), kept.sample(7, np.random.default_rng(1))
    )
    assert kept.sample(0, rng).shape == (0, X.shape[1])


def test_samples_of_other_columns_are_numbers():
    found = fitted({s: 0.8 * x + 0.1 for s, x in PARTS.items()}, unit_norm=True)
    assert not found.binary
    drawn = found.sample(50, np.random.default_rng(0))
    assert len(np.unique(drawn)) > 100
    assert_allclose(np.linalg.norm(found.transform(X), axis=1), 1.0, rtol=1e-5)


def test_a_saved_model_gives_the_same(model):
    meta = json.loads(json.dumps(model.meta()))
    back = DeepClusters.restore({k: a.copy() for k, a in model.arrays().items()}, meta)
    assert_array_equal(back.memberships(X), model.memberships(X))
    assert_array_equal(back.reconstruct(X), model.reconstruct(X))
    draws = [m.sample(20, np.random.default_rng(3)) for m in (back, model)]
    assert_array_equal(*draws)
    assert back.summary() == model.summary()
