"""What the coordinator gets of a fit of clusters, put together, tells of no few rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from algorithms.cluster_cases import blobs, federation, fit, scattered
from fedcohort.metrics.clusters import contingency
from fedcohort.numerics.centroids import least_difference
from fedcohort.protocol import SiteUnavailable, registry
from fedcohort.training.clusters import seeding
from fedcohort.training.clusters.partition import Cells, count, count_since, labels
from fedcohort.training.clusters.points import PLAIN, Space

STEPS = registry.find("kmeans").steps
#: Seeds of tables in which rounds would come back but for few rows.
SWAPPED = (1, 5, 6)


class Overheard:
    """A federation that keeps every call: its step's name, what was asked, and the answer."""

    def __init__(self, fed, heard=None):
        self.fed, self.heard = fed, [] if heard is None else heard

    def __getattr__(self, name):
        return getattr(self.fed, name)

    def only(self, sites):
        return Overheard(self.fed.only(sites), self.heard)

    def awaiting(self, fewest=None):
        return Overheard(self.fed.awaiting(fewest), self.heard)

    def sum(self, step, **asked):
        told = self.fed.sum(step, **asked)
        self.heard.append((step.name, asked, told))
        return told

    def gather(self, step, **asked):
        told = self.fed.gather(step, **asked)
        self.heard.append((step.name, asked, told))
        return told

    def all_of(self, name):
        return [(asked, told) for step, asked, told in self.heard if step == name]


def totals(fed):
    """Return Σ x and the rows of all sites, as first told, and as the first round's sums add up."""
    (_, whole), (asked, round_) = fed.all_of("sum_points")[0], fed.all_of("sum_near")[0]
    cells = round_.drift + round_.counts[:, None] * asked["about"]
    return (whole.drift, whole.rows), (cells.sum(axis=0), round_.counts.sum())


def test_between_sums_over_clusters_nothing_but_counts_is_told():
    """Σ of squared distances of rounds a few moves apart would be the distances of these rows."""
    fed = Overheard(federation(scattered(blobs(120, 3, 2, 1)[0], 3), STEPS))
    fit("kmeans", [np.zeros((0, 2))], fed=fed, n_clusters=3)
    told = {name: t for name, _, t in fed.heard if name not in ("sum_points", "sum_near")}
    assert {"count_near", "weigh_candidates"} <= set(told)
    for values in itertools.chain.from_iterable(vars(t).values() for t in told.values()):
        assert np.issubdtype(np.asarray(values).dtype, np.integer)


def test_the_row_of_a_site_too_small_to_send_centroids_is_in_every_sum():
    """Else all sites' total less the first round's sums would be that row."""
    x = blobs(120, 3, 2, 1)[0]
    parts = [x[:60], x[60:119], x[119:]]
    fed = Overheard(federation(parts, STEPS))
    found = fit("kmeans", parts, fed=fed, n_clusters=3, seeding="sites")
    first, cells = totals(fed)
    assert (first[1], cells[1], found.counts.sum()) == (120, 120, 120)
    assert_allclose(first[0], cells[0], atol=1e-9)


@pytest.mark.parametrize("seeding", ["candidates", "sites"])
@pytest.mark.parametrize("call", range(1, 9))
def test_all_sites_total_less_a_rounds_sums_is_never_the_total_of_one_that_left(call, seeding):
    parts = scattered(blobs(120, 3, 2, 1)[0], 3)
    away = federation(parts, STEPS, quorum=0.6, absent=lambda n, s: n >= call and s == "site-1")
    fed = Overheard(away)
    try:
        fit("kmeans", parts, fed=fed, n_clusters=3, seeding=seeding)
    except SiteUnavailable:
        later = fed.all_of("sum_near")
        assert all(told.counts.sum() != 120 - len(parts[1]) for _, told in later[:-1])
        return
    assert_allclose(*(part[0] for part in totals(fed)), atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_points_that_have_one_row_each_are_no_nearer_to_it_than_rows_are_to_each_other(seed):
    """In few columns and few rows, where counts would otherwise be the table."""
    x = np.random.default_rng(seed).standard_normal((30, 2))
    fed = Overheard(federation(scattered(x, 3), STEPS))
    fit("kmeans", [x], fed=fed, n_clusters=3, seed=seed)
    asked, told = fed.all_of("weigh_candidates")[-1]
    lone = asked["candidates"][told.counts == 1]
    near = np.linalg.norm(x[:, None] - lone, axis=2).min(axis=0)
    other = np.sort(np.linalg.norm(x[:, None] - x, axis=2), axis=0)[1]
    assert np.median(near) > 0.5 * np.median(other)


@pytest.mark.parametrize("seed", SWAPPED)
def test_rounds_after_a_swap_that_come_back_differ_by_no_few_rows_from_those_before(seed):
    """Union by union, of any two rounds: one is often what another was, but for a row or two."""
    parts = scattered(blobs(600, 6, 10, seed, apart=1.0)[0], 3, seed)
    fed = Overheard(federation(parts, STEPS))
    fit("kmeans", parts, fed=fed, n_clusters=6)
    found = [
        np.concatenate([labels(x, asked["path"], asked["moves"]) for x in parts])
        for asked, _ in fed.all_of("sum_near")
    ]
    assert len(found) > 3
    for before, now in itertools.combinations(found, 2):
        assert least_difference(contingency(before, now).astype(float)) >= 5


def test_flows_from_several_partitions_are_those_from_each():
    parts = scattered(blobs(60, 3, 2, 4)[0], 3)
    fed, x = federation(parts), np.vstack(parts)
    one, two = Cells.around(x[:3]), Cells.around(x[5:7])
    three = one.then(x[8:11], np.eye(3, dtype=bool) | (np.arange(3) == 1))
    now = Cells.around(x[20:24])
    flows = count_since(fed, now, [one, two, three], PLAIN)
    assert flows.shape == (3, 3, 4)
    for flow, cells in zip(flows, (one, two, three), strict=True):
        want = count(fed, now, cells, PLAIN).flow
        assert_array_equal(flow, np.pad(want, ((0, 3 - cells.clusters), (0, 0))))


@pytest.mark.parametrize("method", ["kmeans", "kmodes"])
def test_where_one_of_two_sites_is_left_sums_are_over_min_cell_rows_as_before(method):
    x = (blobs(60, 3, 4, 1)[0] > 0).astype(float)
    x[0] = 1.0 - x[0]
    parts = [x[:30], x[30:]]
    steps = registry.find(method).steps
    fed = Overheard(federation(parts, steps, quorum=0.5, absent=lambda n, s: s == "site-1"))
    fit(method, parts, fed=fed, n_clusters=6)
    assert min(told.counts.min() for _, told in fed.all_of("sum_near")) >= 5


def test_where_one_of_two_sites_is_left_its_topics_are_of_min_cell_rows_as_before():
    pytest.importorskip("tomotopy")
    x = (np.random.default_rng(0).random((40, 6)) < 0.4).astype(float)
    steps = registry.find("hdp").steps
    fed = Overheard(federation([x, x], steps, quorum=0.5, absent=lambda n, s: s == "site-1"))
    fit("hdp", [x, x], fed=fed, iterations=10)
    ((asked, told),) = fed.all_of("own_topics")
    assert asked["least"] == 5
    assert all((own.sizes >= 5).all() for own in told.values())


def test_moments_on_the_standard_scale_follow_from_those_before():
    x = np.column_stack([blobs(90, 3, 2, 2)[0] * [3.0, 0.1] + 7.0, np.full(90, 4.0)])
    fed = federation(scattered(x, 3))
    space, there = seeding.standard(fed, Space(), least=5)
    again = seeding.cloud(fed, space, least=5)  # asked for on that scale
    for name in ("rows", "mean", "variance"):
        assert_allclose(getattr(there, name), getattr(again, name), atol=1e-9)


@pytest.mark.parametrize("more", [{}, {"n_clusters": "auto", "k_range": (2, 3)}])
def test_moments_of_latent_points_are_asked_for_on_one_scale_alone(more):
    """A site that left between two scales would have its total told by their difference."""
    parts = scattered(blobs(60, 2, 3, 3)[0], 3)
    fed = Overheard(federation(parts, registry.find("deep_clustering").steps))
    few = {"architecture": (2,), "output": "linear", "rounds": 1, "cluster_rounds": 1}
    given = {"n_clusters": 2, "latent_scale": "standard", **few, **more}
    fit("deep_clustering", parts, fed=fed, **given)
    assert len({asked["space"] for asked, _ in fed.all_of("sum_points")}) == 1
