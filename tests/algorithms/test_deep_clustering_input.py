"""Deep clustering of tables that are not as they should be: handled, or refused by name."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from algorithms.deep_clustering_cases import (
    SMALL,
    config_of,
    federation,
    fitted,
    groups,
    split,
    task_of,
)
from fedcohort.algorithms.deep_clustering import METHOD
from fedcohort.algorithms.deep_clustering.program import sharpen, within
from fedcohort.models.network import initial
from fedcohort.protocol import DataError, SettingError

X, GROUP = groups()
PARTS = split(X, np.arange(len(X)) % 3)


def changed(column, value, rows=slice(None), parts=PARTS):
    """Return the tables with some values of a column set at one site."""
    found = {site: x.copy() for site, x in parts.items()}
    found["site1"][rows, column] = value
    return found


def test_a_column_that_is_not_binary_is_named_in_binary_mode():
    odd = changed(4, 0.3, slice(0, 2))
    odd["site1"][0, 4] = 0.6
    with pytest.raises(DataError, match=r"column 'gene4' has other values than 0 and 1"):
        fitted(odd, binary=True)
    with pytest.raises(DataError, match=r"'gene5' has other values than 0 and 1, which noise"):
        fitted(changed(5, 2.0, 3), noise="flip")
    assert not fitted(odd).binary
    assert fitted(PARTS).binary


def test_a_column_whose_missing_entries_were_filled_with_a_frequency_is_still_binary():
    assert fitted(changed(4, 0.37, slice(0, 9)), binary=True).binary


def test_values_that_are_no_probabilities_are_named_where_the_loss_needs_them():
    with pytest.raises(DataError, match=r"column 'gene2' has values below 0 or above 1.*minmax"):
        fitted(changed(2, -0.5, 0), beta=0.5)
    assert fitted(changed(2, -0.5, 0)).counts.sum() == len(X)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_values_are_named_by_column(value):
    with pytest.raises(DataError, match=r"column 'gene7' has missing or infinite values"):
        fitted(changed(7, value, 2))


def test_a_constant_column_is_no_obstacle():
    flat = {site: np.column_stack([x, np.ones(len(x))]) for site, x in PARTS.items()}
    found = fitted(flat, noise="flip", beta=0.5, latent_scale="standard")
    assert np.isfinite(found.theta).all()
    assert len(found.counts) == 3


def test_no_columns_are_refused():
    with pytest.raises(DataError, match="no columns"):
        fitted({site: x[:, :0] for site, x in PARTS.items()})


@pytest.mark.parametrize("how", ["double_kmeans", "max_min", "lloyd"])
def test_more_clusters_than_a_site_has_distinct_rows_are_found_by_the_others(how):
    alike = {**PARTS, "same": np.tile(X[:2], (10, 1))}
    found = fitted(alike, n_clusters=4, centroids=how)
    assert 2 <= len(found.counts) <= 4
    assert found.counts.sum() == len(X) + 20
    assert found.dropped == 4 - len(found.counts)


@pytest.mark.parametrize("how", ["random", "lloyd"])
def test_more_clusters_than_places_in_all_are_counted_as_dropped(how):
    two = {site: np.tile(X[:2], (10, 1)) for site in PARTS}
    found = fitted(two, centroids=how)
    assert len(found.counts) <= 2
    assert found.dropped == 3 - len(found.counts)


def test_more_clusters_than_sites_clusters_or_rows_are_refused_by_number():
    with pytest.raises(SettingError, match=r"'n_clusters' is 31, and 150 rows make at most 30"):
        fitted(PARTS, n_clusters=31)
    one = {site: np.tile(X[:1], (20, 1)) for site in PARTS}
    with pytest.raises(SettingError, match="'n_clusters' is 4, and the sites found 3 clusters"):
        fitted(one, n_clusters=4, centroids="random")


def test_a_site_with_fewer_rows_than_a_cell_takes_part_and_shows_no_centroid():
    few = {**PARTS, "few": X[:3]}
    found = fitted(few, centroids="double_kmeans")
    assert found.counts.sum() == len(X) + 3
    empty = fitted({**PARTS, "none": X[:0]}, centroids="lloyd")
    assert empty.counts.sum() == len(X)


def test_too_few_rows_in_all_are_refused():
    with pytest.raises(DataError, match="4 rows in all are too few"):
        fitted({"a": X[:2], "b": X[2:4]})
    with pytest.raises(SettingError, match="9 rows make at most 1"):
        fitted({"a": X[:5], "b": X[5:9]})


def test_a_cluster_without_rows_is_given_up_at_the_end():
    config = config_of(cluster_rounds=2)
    theta = initial(config.plan(X.shape[1]).network, 3)
    far = np.array([[0.0, 0.0], [0.1, 0.1], [90.0, 90.0]])
    fed = federation(PARTS)
    theta, mu, _ = sharpen(fed, config, task_of(X), theta, far)
    last = within(fed, config, task_of(X), theta, mu)
    assert np.isfinite(theta).all()
    assert len(last.counts) == 2
    assert last.counts.sum() == len(X)
    assert_array_equal(last.counts, np.sort(last.counts)[::-1])


def test_clusters_of_few_rows_are_given_up_and_their_rows_go_to_others():
    lonely = {**PARTS, "odd": np.vstack([X[:20], 9.0 * np.ones((3, X.shape[1]))])}
    found = fitted(lonely, centroids="max_min", output="relu")
    assert (found.counts >= 5).all()
    assert found.counts.sum() == len(X) + 23


def test_one_site_alone_may_have_clusters_of_any_size():
    found = fitted({"a": np.vstack([X, 9.0 * np.ones((2, X.shape[1]))])}, output="relu")
    assert found.counts.sum() == len(X) + 2


BAD = {
    "n_clusters": [1, 0], "k_range": [(1, 3), (3, 2), (3,)], "architecture": ["deep", (), (3, 0)],
    "rounds": [0], "cluster_rounds": [-1], "internal_epochs": [0], "restarts": [0],
    "learning_rate": [0.0, np.inf], "batch_size": [-1], "gamma": [-1.0, np.inf], "dropout": [1.0],
    "beta": [1.5], "trim": [0.5], "patience": [0], "validation_fraction": [1.0],
    "alpha": [0.0, np.inf], "tol": [1.0], "noise_rate": [-0.1], "centroids": ["best"],
    "latent_scale": ["max"], "target": ["none"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in BAD.items() for v in vs])
def test_a_setting_out_of_bounds_is_refused_by_name(name, value):
    with pytest.raises(SettingError, match=f"setting '{name}' of method 'deep_clustering'"):
        METHOD.configure({**SMALL, name: value})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("output", {"beta": 0.5, "output": "relu"}),
        ("binary", {"noise": "flip", "binary": False}),
        ("noise_rate", {"noise": "corruption", "noise_rate": 1.5}),
    ],
    ids=["output", "binary", "noise_rate"],
)
def test_settings_that_contradict_each_other_are_refused(name, given):
    with pytest.raises(SettingError, match=f"setting '{name}'"):
        METHOD.configure(given)
