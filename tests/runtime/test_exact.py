"""Replies added in one process have the bits of their masked sum, whatever way they are added."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.protocol.errors import Refused
from fedcohort.runtime.exact import SMALL, ExactTotal
from fedcohort.runtime.masked.local import _encoded
from fedcohort.secure.arithmetic.layout import WIDE_FIELD, Layout
from fedcohort.secure.arithmetic.ring import add, decode, encode, zeros

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


WHOLE = st.integers(-(2**60), 2**60)


@st.composite
def mixed(draw):
    """Replies of which some fields are whole at some sites and real at others, small or large."""
    k = draw(st.integers(2, 6))
    size = draw(st.sampled_from([2, SMALL + 1]))
    coarse = draw(st.sampled_from([(), ("theta",)]))

    def field(whole: st.SearchStrategy[int]) -> np.ndarray:
        kind = draw(st.sampled_from(["f8", "f4", "i8", "i4", "u8"]))
        if kind == "u8":
            return np.array(abs(draw(whole)), kind)
        if kind == "i8":
            return np.array(draw(whole), kind)
        if kind == "i4":
            return np.array(draw(st.integers(-9, 2**20)), kind)
        return np.array(draw(st.sampled_from([0.5, -1.0, 1e5, 2.0**-60, -0.0])), kind)

    many = [
        {
            "x": np.array([draw(st.sampled_from([1.0, 2.0**-60, -1.0, 2.0**60]))]),
            "n": field(WHOLE),
            "theta": np.full(size, field(st.integers(-(2**20), 2**20))),
        }
        for _ in range(k)
    ]
    return many, coarse, draw(st.permutations(range(k)))


def fraction_sum(parts):
    """The sum of whole and real numbers, by fractions."""
    return float(sum((Fraction(p.item()) for p in parts), Fraction(0)))


@settings(max_examples=150, deadline=None)
@given(given=mixed())
def test_what_is_whole_here_and_real_there_has_one_sum_in_any_order_masked_or_not(given):
    many, coarse, order = given
    found = added(many, len(many), None, coarse)
    assert_same_bits(added([many[i] for i in order], len(many), None, coarse), found)
    layout, vectors = _encoded({str(i): r for i, r in enumerate(many)}, len(many), {}, coarse)
    total = zeros(layout)
    for vector in vectors.values():
        add(total, vector, layout)
    assert_same_bits(found, decode(total, layout))
    assert found["x"].item() == fraction_sum([r["x"] for r in many])
    if found["n"].dtype == np.float64:
        assert found["n"].item() == pytest.approx(fraction_sum([r["n"] for r in many]), rel=3e-16)


def test_a_whole_number_too_large_for_a_coarse_field_is_refused_by_its_site():
    many = [{"theta": np.full(SMALL + 1, 0.5)}, {"theta": np.full(SMALL + 1, 2**40)}]
    with pytest.raises(Refused, match=r"site 'site1'.*'theta' holds a number"):
        added(many, 3, None, ("theta",))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    powers=st.lists(st.integers(-140, 76), min_size=1, max_size=6),
    spare=st.integers(0, 2000),
    weight=st.sampled_from([None, 3.0, 1 / 3]),
)
def test_large_replies_of_any_size_of_number_give_the_bits_of_the_ring(seed, powers, spare, weight):
    """Numbers of each site are of its own order, halves of a unit among them."""
    rng = np.random.default_rng(seed)
    many = [
        {
            "x": np.r_[rng.normal(size=SMALL), rng.integers(-9, 9, 99) / 2] * 2.0**power,
            "few": rng.normal(size=3) * 2.0**power,
        }
        for power in powers
    ]
    weights = None if weight is None else [weight] * len(many)
    n = len(many) + spare
    assert_same_bits(added(many, n, weights, ()), by_the_ring(many, n, weights, ()))


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
