"""What may leave a site, and how replies add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort.protocol import SiteFailed, message
from fedcohort.protocol.message import LARGE, Total, all_finite, checked, to_arrays


@message
class Pair:
    a: Any
    b: Any


@message
class Other:
    a: Any


def test_a_message_prints_as_shapes_and_types_alone():
    assert repr(Pair(np.array([4711.0]), np.array(3))) == "Pair(a: float64 (1,), b: int64 ())"


def test_a_message_cannot_be_changed():
    with pytest.raises(AttributeError):
        Pair(np.zeros(1), np.zeros(1)).a = np.ones(1)  # pyright: ignore


def test_arrays_of_a_message_share_no_memory_with_the_step_that_made_it():
    mine = np.zeros((2, 3), order="F")
    taken = to_arrays(Other(mine))["a"]
    mine += 1
    assert_array_equal(taken, 0)
    assert taken.flags.c_contiguous


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused_naming_site_step_and_field(value):
    reply = Pair(np.zeros(2), np.array([1.0, value]))
    with pytest.raises(SiteFailed, match=r"'north'.*fit.*not finite.*'b', shape \(2,\)"):
        checked(reply, Pair, "north", "fit")


@pytest.mark.parametrize(
    "value",
    [
        np.array(["Jane Doe"]),
        np.array([object()]),
        np.array([1 + 2j]),
        np.array([1.0], np.float16),
        np.array(["2024-01-01"], "datetime64[D]"),
        np.array([1.0], ">f8"),
        {"Jane": "Doe"},
        None,
    ],
    ids=["text", "objects", "complex", "half", "dates", "foreign bytes", "mapping", "nothing"],
)
def test_a_field_that_is_no_array_of_plain_numbers_is_refused_without_showing_it(value):
    with pytest.raises(SiteFailed, match=r"'north'.*field 'a'.*only numbers") as caught:
        checked(Other(value), Other, "north", "fit")
    assert "Jane" not in str(caught.value)
    assert "2024" not in str(caught.value)


def test_a_ragged_field_is_refused_without_showing_it():
    with pytest.raises(SiteFailed, match="no array") as caught:
        checked(Other([[4711.0], [1.0, 2.0]]), Other, "north", "fit")
    assert "4711" not in str(caught.value)


def test_another_message_type_than_the_declared_one_is_refused():
    with pytest.raises(SiteFailed, match=r"'north'.*Other; the step declares Pair"):
        checked(Other(np.zeros(1)), Pair, "north", "fit")


def test_something_that_is_no_message_is_refused():
    with pytest.raises(SiteFailed, match="ndarray"):
        checked(np.zeros(3), Pair, "north", "fit")


@message
class Summand:
    v: np.ndarray
    s: np.ndarray


def summand(v: np.ndarray, s: np.ndarray) -> dict[str, np.ndarray]:
    return checked(Summand(v, s), Summand, "north", "fit", widen=True)


@given(
    sites=st.lists(
        st.lists(st.integers(-1000, 1000), min_size=3, max_size=3), min_size=1, max_size=6
    ),
    dtype=st.sampled_from(["f8", "f4", "i8", "i4", "b1"]),
)
def test_a_total_is_the_plain_sum_of_its_replies(sites, dtype):
    replies = [summand(np.array(row, dtype), np.array(row[0], dtype)) for row in sites]
    total = Total()
    for i, reply in enumerate(replies):
        total.add(f"s{i}", reply, 1.0)
    as_sent = np.array(sites).astype(dtype).astype(float)
    assert_array_equal(total.arrays["v"], as_sent.sum(0))
    assert_array_equal(total.arrays["s"], as_sent[:, 0].sum())


def test_a_total_weighs_each_reply():
    total = Total()
    total.add("a", {"v": np.array([1, 2])}, 0.5)
    total.add("b", {"v": np.array([10, 20])}, 1.0)
    assert_array_equal(total.arrays["v"], [10.5, 21.0])


def test_a_total_leaves_the_replies_as_they_were():
    first = np.ones(3)
    total = Total()
    total.add("a", {"v": first}, 1.0)
    total.add("b", {"v": np.ones(3)}, 1.0)
    assert_array_equal(first, 1)


def test_counts_do_not_wrap_around():
    total = Total()
    big = np.array([2**31 - 1], np.int32)
    for site in "ab":
        total.add(site, summand(big, big[0]), 1.0)
    assert total.arrays["v"] == 2 * (2**31 - 1)


def test_unequal_shapes_are_refused_naming_the_site_even_where_numpy_would_broadcast():
    total = Total()
    total.add("a", {"v": np.zeros((2, 3))}, 1.0)
    with pytest.raises(SiteFailed, match=r"'v' has shape \(3,\) at site 'b' and \(2, 3\)"):
        total.add("b", {"v": np.zeros(3)}, 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_large_arrays_are_finite_unless_a_number_is_not_even_where_squares_are_beyond(bad, dtype):
    a = np.full((3, 5000), np.finfo(dtype).max, dtype)
    assert all_finite(a)
    assert all_finite(a.T)
    a[2, 4999] = bad
    assert not all_finite(a)
    assert not all_finite(a.T)


def test_of_what_is_lent_only_large_arrays_in_c_order_are_not_copied():
    rows, columns = np.zeros((3, LARGE)), np.zeros((3, LARGE), order="F")
    small = np.zeros(LARGE)
    for a, shared in ((rows, True), (columns, False), (small, False)):
        lent = to_arrays(Other(a), lent=True)["a"]
        assert lent.flags.c_contiguous
        assert np.shares_memory(lent, a) == shared
        assert not np.shares_memory(to_arrays(Other(a))["a"], a)
