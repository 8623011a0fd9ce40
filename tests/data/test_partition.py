"""Partitions put every row at one site, reproducibly, and in the way that their rule says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from data_cases import mixed
from fedcohort.data.outcome import Binary, Continuous, Survival
from fedcohort.data.read.sources import load
from fedcohort.data.split.importance import importance, most_predictive
from fedcohort.data.split.rules import RULES, partition
from fedcohort.data.split.thirds import THIRDS
from fedcohort.protocol import DataError, StudyError

OUTCOME = Survival("time", "event")
OPTIONS = {"groups": {"group": "ward"}, "natural": {"column": "ward"}}


def with_wards(n, seed):
    wards = np.random.default_rng(seed).integers(0, 12, n)
    wards[:12] = np.arange(12)[:n]
    return mixed(n, seed).assign(ward=wards)


@given(
    rule=st.sampled_from(sorted({*RULES} - {*THIRDS})),  # these are in `test_thirds`
    n=st.integers(1, 10),
    rows=st.integers(12, 90),
    seed=st.integers(0, 99),
)
def test_every_row_is_at_one_site_and_the_same_seed_gives_the_same_sites(rule, n, rows, seed):
    frame = with_wards(rows, seed)
    options = OPTIONS.get(rule, {})
    sites = partition(frame, rule, n, seed, OUTCOME, **options)
    assert list(sites) == sorted(sites)
    assert rule == "natural" or len(sites) == n
    assert all(len(f) for f in sites.values())
    assert all(f.index.is_monotonic_increasing for f in sites.values())
    kept = frame.drop(columns="ward") if rule == "natural" else frame
    if rule != "natural":
        assert_frame_equal(pd.concat(sites.values()).sort_index(), kept)
    assert sum(map(len, sites.values())) == rows
    again = partition(frame, rule, n, seed, OUTCOME, **options)
    for site, part in sites.items():
        assert_frame_equal(part, again[site])


@pytest.mark.parametrize("rule", ["iid", "by-outcome", "by-feature"])
def test_equal_sites_differ_by_one_row_at_most(rule):
    sizes = [len(f) for f in partition(mixed(101, 0), rule, 8, 1, OUTCOME).values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("hub", [0.4, 0.7])
def test_the_hub_holds_its_share(hub):
    sizes = [
        len(f) for f in partition(mixed(200, 0), "unbalanced", 5, 1, OUTCOME, hub=hub).values()
    ]
    assert sizes[0] == 200 * hub
    assert max(sizes[1:]) - min(sizes[1:]) <= 1


def test_sites_by_outcome_do_not_overlap_in_time():
    sites = list(partition(mixed(120, 0), "by-outcome", 4, 1, OUTCOME).values())
    for earlier, later in pairwise(sites):
        assert earlier["time"].max() <= later["time"].min()


def test_sites_by_a_named_feature_do_not_overlap_and_missing_values_come_last():
    sites = list(partition(mixed(120, 0), "by-feature", 4, 1, OUTCOME, feature="marker").values())
    for earlier, later in pairwise(sites):
        assert not earlier["marker"].max() > later["marker"].min()
        assert not earlier["marker"].isna().any()
    assert sites[-1]["marker"].isna().any()


def test_ties_at_a_threshold_are_dealt_by_the_seed():
    frame = mixed(100, 0).assign(time=5)
    one, other = (partition(frame, "by-outcome", 2, s, OUTCOME)["site-1"].index for s in (1, 2))
    assert list(one) != list(other)


def test_a_small_alpha_separates_classes_and_a_large_one_mixes_them():
    frame = pd.DataFrame({"x": range(2000), "y": [0, 1] * 1000})

    def spread(alpha):
        sites = partition(frame, "dirichlet", 5, 3, Binary("y"), alpha=alpha)
        return np.std([f["y"].mean() for f in sites.values()])

    assert spread(1000.0) < 0.05 < 0.2 < spread(0.1)


def test_groups_stay_together_and_sizes_are_near():
    sites = partition(with_wards(600, 0), "groups", 3, 0, OUTCOME, group="ward")
    wards = [set(f["ward"]) for f in sites.values()]
    assert sum(map(len, wards)) == len(set.union(*wards)) == 12
    assert max(map(len, sites.values())) - min(map(len, sites.values())) < 60


def test_natural_sites_are_named_by_their_column_which_is_left_out():
    frame = mixed(30, 0).assign(hospital=["b", "a", "c"] * 10)
    sites = partition(frame, "natural", column="hospital")
    assert list(sites) == ["a", "b", "c"]
    assert all("hospital" not in f and len(f) == 10 for f in sites.values())


def test_names_of_many_sites_sort():
    names = list(partition(mixed(30, 0), "iid", 12, 0, OUTCOME))
    assert names == sorted(names)
    assert names[0] == "site-01"


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        (("idd", 3), {}, StudyError, "no split 'idd'. Did you mean 'iid'?"),
        (("unbalanced", 3), {"hbu": 0.4}, StudyError, "no option 'hbu'. Did you mean 'hub'?"),
        (("iid", 3), {"hub": 0.4}, StudyError, "no option 'hub'; there are none"),
        (("unbalanced", 3), {"hub": 1.4}, StudyError, "give a share between 0 and 1"),
        (("unbalanced", 3), {"hub": "big"}, StudyError, "give a number"),
        (("dirichlet", 3), {"alpha": 0}, StudyError, "give a number above 0"),
        (("groups", 3), {}, StudyError, "name the column"),
        (("groups", 20), {"group": "ward"}, DataError, "12 groups, too few for 20 sites"),
        (("groups", 3), {"group": "age"}, DataError, "column 'age' names no group in row"),
        (("by-feature", 3), {"feature": "aeg"}, DataError, "Did you mean 'age'?"),
        (("iid", 61), {}, DataError, "60 rows cannot make 61 sites"),
        (("iid", None), {}, DataError, "cannot make any number of sites"),
        (("natural",), {"column": "wrad"}, DataError, "Did you mean 'ward'?"),
    ],
)
def test_an_impossible_split_is_one_clear_line(args, options, error, message):
    rule, n = (*args, None)[:2]
    with pytest.raises(error) as caught:
        partition(with_wards(60, 0), rule, n, 0, OUTCOME, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rule", ["by-outcome", "by-feature", "dirichlet"])
def test_rules_that_look_at_an_outcome_ask_for_one(rule):
    with pytest.raises(StudyError, match="outcome"):
        partition(mixed(20, 0), rule, 2)


def test_positive_nodes_predict_recurrence_best_in_gbsg2():
    source = load("sample:gbsg2", None)
    assert most_predictive(source.frames, source.outcome) == "pnodes"


def test_the_planted_column_is_the_most_predictive_whatever_the_outcome():
    rng = np.random.default_rng(0)
    frame = mixed(300, 0).drop(columns=["time", "event"]).assign(key=rng.normal(size=300))
    hazard = np.exp(1.5 * frame["key"])
    survival = frame.assign(time=rng.exponential(1 / hazard), event=1)
    assert most_predictive(survival, OUTCOME) == "key"
    noise = 0.5 * rng.normal(size=300)
    assert most_predictive(frame.assign(y=frame["key"] + noise), Continuous("y")) == "key"
    assert most_predictive(frame.assign(y=frame["key"] > noise), Binary("y")) == "key"


def test_importance_depends_neither_on_units_nor_on_the_order_of_columns():
    frame = mixed(200, 5)
    found = importance(frame, OUTCOME)
    other = importance(frame.assign(marker=frame["marker"] * 1e6)[frame.columns[::-1]], OUTCOME)
    for name, value in found.items():
        assert other[name] == pytest.approx(value, rel=1e-6)


def test_a_table_where_nothing_varies_has_no_best_column():
    frame = mixed(20, 0)[["time", "event"]].assign(x=1)
    with pytest.raises(DataError, match="no column varies"):
        most_predictive(frame, OUTCOME)
