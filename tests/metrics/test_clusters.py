"""Scores of clusters equal scikit-learn's, of all bootstrap draws at once as well."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import (
    adjusted_rand_score,
    calinski_harabasz_score,
    normalized_mutual_info_score,
    pairwise_distances,
    silhouette_samples,
    silhouette_score,
)

from fedcohort.metrics import clusters, resampled
from fedcohort.metrics.clusters import matching


def cohort(n, k, seed, binary=False):
    """Return rows x, their clusters and a reference that agrees with them in part."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    labels[:k] = np.arange(k)
    x = rng.normal(size=(n, 4)) + labels[:, None]
    x = (x > 1.0).astype(float) if binary else x
    reference = np.where(rng.random(n) < 0.6, labels, rng.integers(0, 3, n))
    return x, labels, reference


AGAINST = {
    "ari": (clusters.adjusted_rand, adjusted_rand_score),
    "nmi": (clusters.normalised_mutual_information, normalized_mutual_info_score),
}
against = pytest.mark.parametrize("name", AGAINST)
sizes = given(n=st.integers(12, 60), k=st.integers(2, 5), seed=st.integers(0, 2**16))


@against
@settings(max_examples=25)
@sizes
def test_agreement_with_classes_equals_scikit_learns(name, n, k, seed):
    ours, theirs = AGAINST[name]
    _, labels, reference = cohort(n, k, seed)
    found = ours(clusters.contingency(labels, reference))
    assert_allclose(found, theirs(reference, labels), atol=1e-12)


@against
def test_draws_of_agreement_are_of_rows_that_are_repeated(name):
    ours, theirs = AGAINST[name]
    _, labels, reference = cohort(40, 3, 2)
    weights = resampled.multiplicities(40, 9, np.random.default_rng(3))
    found = ours(clusters.contingency(labels, reference, weights))
    for w, value in zip(weights, found, strict=True):
        assert_allclose(value, theirs(np.repeat(reference, w), np.repeat(labels, w)), atol=1e-12)


@pytest.mark.parametrize("name", AGAINST)
def test_one_cluster_and_one_class_agree_and_one_cluster_tells_nothing_of_two(name):
    ours, theirs = AGAINST[name]
    one, two = np.zeros(6, int), np.array([0, 0, 0, 1, 1, 1])
    for labels, reference in ((one, one), (one, two), (two, one), (two, 1 - two)):
        found = ours(clusters.contingency(labels, reference))
        assert_allclose(found, theirs(reference, labels), atol=1e-12)


@settings(max_examples=25)
@given(n=st.integers(10, 50), k=st.integers(2, 4), seed=st.integers(0, 2**16))
def test_accuracy_is_the_share_that_is_right_after_renaming_and_forgets_names(n, k, seed):
    _, labels, reference = cohort(n, k, seed)
    table = clusters.contingency(labels, reference)
    partner = matching(table)
    assert_allclose(clusters.accuracy(table), np.mean(partner[labels] == reference))
    renamed = np.random.default_rng(seed).permutation(k)[labels]
    again = clusters.accuracy(clusters.contingency(renamed, reference))
    assert_allclose(again, clusters.accuracy(table))


def test_tables_of_sites_add_up():
    _, labels, reference = cohort(60, 4, 8)
    whole = clusters.contingency(labels, reference)
    parts = np.zeros_like(whole)
    for rows in np.split(np.arange(60), 3):
        part = clusters.contingency(labels[rows], reference[rows])
        parts[: part.shape[0], : part.shape[1]] += part
    assert (parts == whole).all()


# by itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", clusters.DISTANCES)
@settings(max_examples=15)
@sizes
def test_the_silhouette_equals_scikit_learns(distance, n, k, seed):
    x, labels, _ = cohort(n, k, seed, binary=distance == "cosine")
    found = clusters.silhouette(x, labels, distance)
    assert_allclose(found, silhouette_score(x, labels, metric=distance), atol=1e-9)


@pytest.mark.parametrize("distance", clusters.DISTANCES)
def test_draws_of_the_silhouette_are_of_rows_that_are_repeated_but_are_none_of_their_own_rest(
    distance, monkeypatch
):
    monkeypatch.setattr(clusters, "BLOCK", 500)  # several blocks of draws
    x, labels, _ = cohort(30, 3, 4, binary=distance == "cosine")
    x[:, 0] = 1.0  # scikit-learn has copies of a row of zeros apart, by the cosine
    weights = resampled.multiplicities(30, 8, np.random.default_rng(6))
    found = clusters.silhouette(x, labels, distance, weights)
    apart = pairwise_distances(x, metric=distance)
    for w, value in zip(weights, found, strict=True):
        each = [_of_one(i, apart, labels, w) for i in np.flatnonzero(w)]
        assert_allclose(value, np.average(each, weights=w[w > 0]), atol=1e-9)


def _of_one(i, apart, labels, w):
    """Rousseeuw's s(i), with each other row as often as it was drawn."""
    rest = [j for j in range(len(w)) if labels[j] == labels[i] and j != i and w[j]]
    if not rest:
        return 0.0
    a = np.average(apart[i, rest], weights=w[rest])
    others = [l for l in set(labels[w > 0]) if l != labels[i]]
    b = min(np.average(apart[i, labels == l], weights=w[labels == l]) for l in others)
    return (b - a) / max(a, b)


def test_draws_of_the_silhouette_are_about_that_of_the_rows_drawn_from():
    x, labels, _ = cohort(60, 3, 1)
    weights = resampled.multiplicities(60, 400, np.random.default_rng(0))
    draws = clusters.silhouette(x, labels, "euclidean", weights)
    assert abs(np.mean(draws) - clusters.silhouette(x, labels)) < 3 * np.std(draws) / 20 + 0.01


def test_a_draw_without_a_second_cluster_has_no_silhouette():
    x, labels = np.arange(4.0)[:, None], np.array([0, 0, 1, 1])
    weights = np.array([[2, 2, 0, 0], [1, 1, 1, 1]])
    found = clusters.silhouette(x, labels, weights=weights)
    assert np.isnan(found[0])
    assert_allclose(found[1], silhouette_score(x, labels))
    assert np.isnan(clusters.silhouette(x, np.zeros(4, int)))
    assert np.isnan(clusters.calinski_harabasz(clusters.scatter(x, np.zeros(4, int), 2, x[0])))


@settings(max_examples=25)
@given(
    n=st.integers(12, 60), k=st.integers(2, 5), seed=st.integers(0, 2**16), parts=st.integers(1, 4)
)
def test_calinski_harabasz_from_sums_over_sites_equals_scikit_learns(n, k, seed, parts):
    x, labels, _ = cohort(n, k, seed)
    x += 1e6  # far from 0, as the origin is for
    origin = np.round(x.mean(axis=0))
    found = [
        clusters.scatter(x[rows], labels[rows], k, origin)
        for rows in np.array_split(np.arange(n), parts)
    ]
    sums = clusters.Scatter(
        sum(f.rows for f in found), sum(f.total for f in found), sum(f.squares for f in found)
    )
    want = calinski_harabasz_score(x - origin, labels)
    assert_allclose(clusters.calinski_harabasz(sums), want, rtol=1e-7)


def test_draws_of_calinski_harabasz_are_of_rows_that_are_repeated():
    x, labels, _ = cohort(30, 3, 4)
    weights = resampled.multiplicities(30, 8, np.random.default_rng(6))
    found = clusters.calinski_harabasz(clusters.scatter(x, labels, 3, x.mean(axis=0), weights))
    for w, value in zip(weights, found, strict=True):
        rows = np.repeat(np.arange(30), w)
        assert_allclose(value, calinski_harabasz_score(x[rows], labels[rows]), rtol=1e-9)


def test_the_simplified_silhouette_is_that_of_rows_against_centroids_and_adds_up():
    x, labels, _ = cohort(40, 3, 7)
    centroids = np.stack([x[labels == c].mean(axis=0) for c in range(3)])
    parts = [
        clusters.simplified_silhouette(x[rows], labels[rows], centroids)
        for rows in np.split(np.arange(40), 4)
    ]
    total, rows = (np.sum(p, axis=0) for p in zip(*parts, strict=True))
    # With one row in every cluster but the own, each mean distance is one to a centroid: add the
    # row itself and the centroids, and scikit-learn's silhouette of that row is eq. (6).
    want = np.zeros(3)
    for row, own in zip(x, labels, strict=True):
        few = np.vstack([row, centroids])
        want[own] += silhouette_samples(few, np.r_[own, np.arange(3)])[0]
    assert_allclose(total, want, atol=1e-9)
    assert (rows == np.bincount(labels)).all()


def test_cycle_accuracy_is_the_share_of_labels_that_come_back():
    labels, again = np.array([0, 1, 2, 0]), np.array([0, 1, 1, 1])
    assert clusters.cycle_accuracy(labels, again) == 0.5
    weights = np.array([[4, 0, 0, 0], [1, 1, 2, 0]])
    assert clusters.cycle_accuracy(labels, again, weights).tolist() == [1.0, 0.5]


def test_a_hazard_is_events_per_person_time_and_that_of_all_where_nobody_is():
    # 2 events in 10 + 20 days, 1 in 60; all together 3 in 90.
    labels = np.array([0, 0, 2, 2])
    found = clusters.hazards(labels, np.array([10.0, 20, 25, 35]), np.array([1, 1, 1, 0]), 3)
    assert_allclose(found, [2 / 30, 3 / 90, 1 / 60])
