"""A site looks at a deal of folds before it adds up its rows in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.data.split.folds import BY_ROW, HIDDEN, check_rows, own_fold
from fedcohort.protocol import Refused


def test_a_site_finds_its_own_fold_among_all():
    whole = {"a": 0, "b": 1, "c": 0, "d": 1}
    assert [own_fold(s, whole, 2, 5) for s in whole] == [0, 1, 0, 1]
    assert own_fold("b", dict.fromkeys("abc", BY_ROW), 4, 5) == BY_ROW


@pytest.mark.parametrize(
    "dealt",
    [
        {"b": 0, "c": 0},
        {"a": BY_ROW, "b": 0, "c": 0},
        {"a": 0, "b": 0, "c": BY_ROW},
        {"a": 2, "b": 2},
        {"a": -2, "b": -2},
        {"a": 0.0, "b": 0.0},
        {"a": True, "b": True},
        {},
    ],
    ids=str,
)
def test_a_deal_that_is_not_one_for_all_sites_is_refused(dealt):
    with pytest.raises(Refused, match="is not divided as the other sites are"):
        own_fold("a", dealt, 2, 1)


@pytest.mark.parametrize("dealt", [{"a": 0, "b": 1, "c": 1}, {"a": 1, "b": 0, "c": 1}], ids=str)
def test_no_site_is_alone_in_a_fold_its_own_or_another(dealt):
    with pytest.raises(Refused, match="a fold of a single site") as error:
        own_fold("a", dealt, 2, 5)
    assert error.value.code == "folds"
    assert own_fold("a", dealt, 2, 1) == dealt["a"]  # nothing is to be hidden


@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    sites=st.integers(1, 5),
    least=st.integers(1, 8),
)
def test_few_rows_of_a_fold_or_outside_of_it_are_told_only_among_three(counts, sites, least):
    at = np.repeat(np.arange(len(counts)), counts)
    dealt = {f"s{k}": BY_ROW for k in range(sites)}
    left = [len(at) - n for n in counts if n]
    few = any(0 < n < least for n in [*counts, *left])
    if few and sites < HIDDEN:
        with pytest.raises(Refused, match=f"fewer than {least} records"):
            check_rows("s0", at, dealt, least)
    else:
        check_rows("s0", at, dealt, least)


def test_sites_that_share_a_fold_count_and_no_others():
    dealt = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
    few = np.zeros(3, int)
    with pytest.raises(Refused, match="fewer than 3 sites share the folds"):
        check_rows("a", few, dealt, 5)
    check_rows("c", few + 1, dealt, 5)
