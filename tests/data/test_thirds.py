"""Sites in thirds: of two groups, and without a view, as in table 1 of Balelli et al. (2022)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from fedcohort.data.read.simulated_views import multiview
from fedcohort.data.split import partition
from fedcohort.data.split.thirds import SHARE
from fedcohort.protocol import DataError, StudyError

VIEWS = {"v1": ["a", "b"], "v2": ["c"], "v3": ["d", "e"], "v4": ["f"]}


def table(sizes, seed=0):
    """Return rows of two groups, in random order."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(["ad", "nl"], sizes))
    columns = {name: rng.normal(size=len(group)) for names in VIEWS.values() for name in names}
    return pd.DataFrame({**columns, "group": group})


def counts(frame):
    return [int((frame["group"] == g).sum()) for g in ("ad", "nl")]


sizes = st.tuples(st.integers(2, 300), st.integers(2, 300))


@given(sizes=sizes, m=st.integers(1, 5), seed=st.integers(0, 99))
def test_by_group_a_third_has_both_groups_and_the_others_one_each(sizes, m, seed):
    assume(min(sizes) >= 2 * m)
    frame = table(sizes, seed)
    sites = list(partition(frame, "by-group", 3 * m, seed, group="group").values())
    assert_frame_equal(pd.concat(sites).sort_index(), frame)
    both, first, second = sites[:m], sites[m : 2 * m], sites[2 * m :]
    assert all(min(counts(f)) >= 1 for f in both)
    assert all(counts(f)[0] >= 1 and counts(f)[1] == 0 for f in first)
    assert all(counts(f)[1] >= 1 and counts(f)[0] == 0 for f in second)
    assert all(f.index.is_monotonic_increasing for f in sites)


@given(sizes=sizes, m=st.integers(1, 5), seed=st.integers(0, 99))
def test_sites_by_group_are_equal_in_size_where_the_groups_allow_it(sizes, m, seed):
    third = sum(sizes) / 3
    assume(min(sizes) >= (1 + SHARE) * third + m + 1)
    sites = partition(table(sizes, seed), "by-group", 3 * m, seed, group="group").values()
    held = [len(f) for f in sites]
    assert max(held) - min(held) <= 1
    mixed = np.sum([counts(f) for f in list(sites)[:m]], axis=0)
    assert mixed.min() >= np.floor(SHARE * third)


def test_a_small_group_leaves_smaller_sites_of_its_own_and_the_others_equal():
    # 90 of 600 rows: 20 of them, a tenth of a third, stay with both; 70 are alone
    sites = partition(table((90, 510)), "by-group", 3, 0, group="group").values()
    assert [counts(f) for f in sites] == [[20, 245], [70, 0], [0, 265]]


def test_the_papers_cohort_of_two_diagnoses_is_divided_by_hand():
    # 207 AD and 104 NL: a third of 311 is 103.7; 10 NL of 104 stay with both
    sites = partition(table((207, 104)), "by-group", 3, 0, group="group").values()
    assert [counts(f) for f in sites] == [[99, 10], [108, 0], [0, 94]]


def test_groups_are_told_apart_as_levels_are():
    frame = table((30, 30)).assign(group=np.where(table((30, 30))["group"] == "ad", 10.0, 9.0))
    first = partition(frame, "by-group", 3, 0, group="group")["site-2"]
    assert set(first["group"]) == {9.0}  # numbers by size, not by alphabet


@given(n=st.sampled_from((3, 6, 9)), seed=st.integers(0, 99), grouped=st.booleans())
def test_by_views_a_third_has_all_a_third_lacks_the_second_and_a_third_the_third(n, seed, grouped):
    frame = table((60, 60), seed)
    rule = {"group": "group"} if grouped else {}
    sites = partition(frame, "views", n, seed, views=VIEWS, **rule)
    lacked = [set(frame.columns) - set(f.columns) for f in sites.values()]
    m = n // 3
    assert lacked == [set()] * m + [{"c"}] * m + [{"d", "e"}] * m
    like = partition(frame, "by-group" if grouped else "iid", n, seed, **rule)
    for site, part in like.items():
        assert_frame_equal(sites[site], part[sites[site].columns])


def test_the_views_that_sites_lack_can_be_named():
    sites = partition(table((30, 30)), "views", 3, 0, views=VIEWS, lacking=["v4", "v1"])
    assert ["f" in f and "a" in f for f in sites.values()] == [True, False, False]
    assert "f" not in sites["site-2"]
    assert not {"a", "b"} & set(sites["site-3"])
    two = {k: VIEWS[k] for k in ("v1", "v2")}
    assert (
        "c" not in partition(table((9, 9)), "views", 3, views=two, lacking=("v2", "v1"))["site-2"]
    )


def test_the_papers_synthetic_rows_make_equal_sites():
    frame, views = multiview()
    for n in (3, 6):
        for rule in ("by-group", "views"):
            sites = partition(frame, rule, n, 0, group="group", views=views).values()
            held = [len(f) for f in sites]
            assert max(held) - min(held) <= 1
            assert sum(held) == 400


@pytest.mark.parametrize(
    ("rule", "n", "options", "error", "message"),
    [
        ("by-group", 4, {"group": "group"}, StudyError, "4 is no multiple of 3"),
        ("views", 5, {}, StudyError, "5 is no multiple of 3"),
        ("by-group", 3, {}, StudyError, "name the column that holds the two groups"),
        ("by-group", 3, {"group": "grp"}, DataError, "Did you mean 'group'?"),
        ("by-group", 3, {"group": "three"}, DataError, "column 'three' has 3 values"),
        ("by-group", 3, {"group": "one"}, DataError, "column 'one' has 1 value;"),
        ("by-group", 3, {"group": "holes"}, DataError, "names no group in rows 2, 4"),
        ("by-group", 18, {"group": "group"}, DataError, "the smaller group has 10 rows, and 12"),
        ("views", 3, {"lacking": ["v1"]}, StudyError, "a list of two views"),
        ("views", 3, {"lacking": ["v1", "v1"]}, StudyError, "a list of two views"),
        ("views", 3, {"lacking": "v1"}, StudyError, "a list of two views"),
        ("views", 3, {"lacking": ["v1", "v9"]}, StudyError, "there is no view 'v9'"),
        ("views", 3, {"views": {"v1": ["a"]}}, StudyError, "the dictionary has 1"),
        ("views", 3, {"views": None}, StudyError, "the dictionary has 0"),
    ],
)
def test_an_impossible_split_is_one_clear_line(rule, n, options, error, message):
    frame = table((10, 50)).assign(three=[1, 2, 3] * 20, one="x", holes=[1.0, None] * 30)
    with pytest.raises(error) as caught:
        partition(frame, rule, n, 0, **{"views": VIEWS, **options})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
