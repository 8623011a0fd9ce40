"""Replies added in one process have the bits of their masked sum, whatever way they are added."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.protocol.errors import Refused
from fedcohort.runtime.exact import SMALL, ExactTotal
from fedcohort.secure.layout import WIDE_FIELD, Layout
from fedcohort.secure.ring import add, decode, encode, zeros

TINY_TO_HUGE = st.floats(-(2.0**230), 2.0**230)
MODEST = st.floats(-1e6, 1e6)


def by_the_ring(replies, n, weights, coarse):
    """The sum of encoded replies, word by word."""
    layout = Layout.of(replies[0], weighted=weights is not None, coarse=coarse)
    total = zeros(layout)
    for i, reply in enumerate(replies):
        weight = 1.0 if weights is None else weights[i]
        add(total, encode(reply, layout, n=n, weight=weight), layout)
    return decode(total, layout)


def added(replies, n, weights, coarse):
    total = ExactTotal(n, weighted=weights is not None, coarse=coarse)
    for i, reply in enumerate(replies):
        total.add(f"site{i}", reply, 1.0 if weights is None else weights[i])
    return total.arrays


def assert_same_bits(found, wanted):
    assert list(found) == list(wanted)
    for name, a in wanted.items():
        assert type(found[name]) is np.ndarray
        assert (found[name].dtype, found[name].shape) == (a.dtype, a.shape)
        assert found[name].tobytes() == a.tobytes()


@st.composite
def replies(draw):
    k = draw(st.integers(1, 9))
    reals = draw(st.sampled_from([TINY_TO_HUGE, MODEST, st.just(0.0)]))
    many = [
        {
            "n": np.array(draw(st.integers(-9, 10**6))),
            "x": np.array(draw(st.lists(reals, min_size=3, max_size=3))),
            "theta": np.array([draw(st.lists(MODEST, min_size=2, max_size=2))]),
            "y": np.array(draw(st.floats(-1e3, 1e3, width=32)), np.float32),
        }
        for _ in range(k)
    ]
    weights = draw(st.none() | st.lists(st.integers(1, 500), min_size=k, max_size=k))
    coarse = draw(st.sampled_from([(), ("theta",)]))
    return many, k + draw(st.integers(0, 3)), weights and [float(w) for w in weights], coarse


@given(given=replies())
def test_small_replies_together_give_the_bits_of_the_ring(given):
    assert_same_bits(added(*given), by_the_ring(*given))


@pytest.mark.parametrize("coarse", [(), ("theta",)])
def test_large_replies_one_by_one_give_the_bits_of_the_ring(coarse):
    rng = np.random.default_rng(0)
    many = [{"theta": rng.normal(size=SMALL + 1)} for _ in range(5)]
    assert_same_bits(added(many, 5, None, coarse), by_the_ring(many, 5, None, coarse))


@pytest.mark.parametrize("coarse", [(), ("theta",)])
def test_a_sum_of_small_parameters_is_near_the_sum_of_floats(coarse):
    many = [{"theta": np.array([0.5 * i, -1.25])} for i in range(1, 5)]
    assert added(many, 4, None, coarse)["theta"].tolist() == [5.0, -5.0]


@pytest.mark.parametrize(("coarse", "x"), [((), np.nan), (("theta",), 1e12), (("theta",), np.inf)])
def test_a_number_out_of_range_names_its_site_and_field(coarse, x):
    size = WIDE_FIELD + 1 if coarse else 1
    many = [{"theta": np.full(size, 1.0)}, {"theta": np.full(size, x)}]
    with pytest.raises(Refused, match=r"site 'site1'.*'theta'"):
        added(many, 4, None, coarse)
