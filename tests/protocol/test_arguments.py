"""What a call may tell a site, its copy there, its size, and its checksum."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort.protocol import per_site
from fedcohort.protocol.arguments import DEPTH, Arguments, Parcel
from fedcohort.protocol.wire import Malformed, decode, encode

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=plain)
def test_numbers_text_lists_and_maps_arrive_as_they_were(value):
    arrived = Parcel.of({"v": value}).open()["v"]
    assert arrived == value
    assert type(arrived) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.array(2.5),
        np.zeros((0, 3)),
        np.arange(6.0).reshape(2, 3).T,
        np.array([True, False]),
        np.arange(4, dtype=np.int32)[::-1],
    ],
    ids=["0-d", "empty", "transposed", "bool", "reversed"],
)
def test_arrays_arrive_equal_in_c_order_and_apart_from_the_coordinators(array):
    (arrived,) = Parcel.of({"v": array}).open().values()
    assert_array_equal(arrived, array)
    assert (arrived.shape, arrived.dtype) == (array.shape, array.dtype)
    assert arrived.flags.c_contiguous
    assert arrived.flags.writeable
    assert not np.shares_memory(arrived, array)


def test_numpy_scalars_arrive_as_numbers():
    arrived = Parcel.of({"a": np.int64(3), "b": np.float64(0.1)}).open()
    assert arrived == {"a": 3, "b": 0.1}


@pytest.mark.parametrize(
    "value",
    [np.array([object()]), np.array(["x"]), date(2024, 1, 1), {1, 2}, [lambda: 0], {"k": b"x"}],
    ids=["objects", "text array", "date", "set", "function", "bytes"],
)
def test_what_cannot_be_sent_is_refused_naming_the_argument(value):
    with pytest.raises(TypeError, match=r"argument beta.* cannot be sent"):
        Arguments({"beta": value}, ["a"])


def test_each_site_receives_its_own_value_of_a_per_site_argument():
    given_ = {"x": per_site({"a": 1.0, "b": 2.0}), "y": np.ones(1)}
    arguments = Arguments(given_, ["a", "b"])
    assert [arguments.at(s)["x"] for s in "ab"] == [1.0, 2.0]
    assert_array_equal(arguments.at("b")["y"], 1.0)


def test_a_per_site_argument_without_a_value_for_a_site_is_refused_naming_it():
    with pytest.raises(ValueError, match=r"'x' has no value for site 'b', only for \['a'\]"):
        Arguments({"x": per_site({"a": 1.0})}, ["a", "b"])


def test_the_size_counts_every_byte_of_the_arrays():
    small, large = (Arguments({"v": np.zeros(n)}, ["a"]).nbytes("a") for n in (10, 110))
    assert large - small == 800


def mark(value: Any) -> int:
    return Arguments({"v": value}, ["a", "b"]).checksum(0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(2000), np.r_[np.zeros(1000), 1e-300, np.zeros(999)]),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.zeros(2), np.zeros(2, np.int64)),
        (0.0, 0),
        (0.1, np.nextafter(0.1, 1)),
        ([np.zeros(2000)], [np.r_[np.zeros(1999), 1.0]]),
        ({"k": np.zeros(2000)}, {"k": np.r_[np.ones(1), np.zeros(1999)]}),
        (per_site({"a": 1, "b": 2}), per_site({"a": 2, "b": 1})),
        ((1, 2), [1, 2]),
        (None, "None"),
    ],
)
def test_the_checksum_sees_every_difference(one, other):
    assert mark(one) == mark(one)
    assert mark(one) != mark(other)


# over a network -----------------------------------------------------------------------------


def over_bytes(parcel: Parcel) -> Parcel:
    named = {str(i): a for i, a in enumerate(parcel.arrays)}
    arrays, meta = decode(encode(named, {"tree": parcel.tree}), own=False)
    return Parcel.read(meta["tree"], list(arrays.values()))


@given(value=plain, n=st.integers(0, 3))
def test_a_parcel_that_came_as_bytes_opens_to_the_same_and_has_the_same_checksum(value, n):
    sent = Parcel.of({"v": value, "x": [np.arange(i + 1.0) for i in range(n)], "y": np.eye(2)})
    came = over_bytes(sent)
    assert came.checksum(0) == sent.checksum(0)
    opened = came.open()
    assert opened["v"] == value
    assert [a.tobytes() for a in opened["x"]] == [np.arange(i + 1.0).tobytes() for i in range(n)]
    assert opened["y"].flags.owndata
    assert opened["y"].flags.writeable
    assert opened["y"].flags.aligned


ONE = [np.zeros(1)]


@pytest.mark.parametrize(
    ("tree", "arrays"),
    [
        (None, []),
        ([], []),
        ({"v": [1]}, []),
        ({"v": {}}, []),
        ({"v": {"list": [], "tuple": []}}, []),
        ({"v": {"list": {}}}, []),
        ({"v": {"map": []}}, []),
        ({"v": {"set": []}}, []),
        ({"v": {"array": 0}}, []),
        ({"v": {"array": "0"}}, ONE),
        ({"v": {"array": False}}, ONE),
        ({"v": {"array": 1}}, ONE),
        ({"v": {"array": -1}}, ONE),
        ({"v": {"list": [{"array": 0}, {"array": 0}]}}, ONE),
        ({"v": {"list": [{"array": 1}, {"array": 0}]}}, [*ONE, *ONE]),
        ({"v": 1}, ONE),
        ({"v": b"x"}, []),
    ],
)
def test_a_tree_that_no_parcel_has_is_malformed(tree, arrays):
    with pytest.raises(Malformed):
        Parcel.read(tree, arrays)


def test_a_tree_may_be_deep_but_not_too_deep():
    def nested(n: int) -> Any:
        return {"list": [nested(n - 1)]} if n else 1

    Parcel.read({"v": nested(DEPTH)}, [])
    with pytest.raises(Malformed, match="too deep"):
        Parcel.read({"v": nested(DEPTH + 1)}, [])
