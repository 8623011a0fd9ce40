import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.report import plot


@settings(max_examples=60, deadline=None)
@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), about=st.integers(2, 8))
def test_ticks_are_few_round_and_inside(low, width, about):
    found = plot.ticks(low, low + width, about)
    slack = 1e-6 * max(abs(low), width, 1)
    assert all(low - slack <= t <= low + width + slack for t in found)
    assert about / 2.6 - 1 <= len(found) <= about + 2


@settings(max_examples=60, deadline=None)
@given(low=st.floats(1e-4, 0.9), high=st.floats(1.1, 1e4))
def test_log_ticks_hold_one_and_lie_inside(low, high):
    found = plot.log_ticks(low, high)
    assert 1.0 in found
    assert all(low <= t <= high for t in found)


def test_labels_of_even_ticks_have_equally_many_decimals():
    assert plot.labels([0.5, 0.55, 0.6]) == ["0.50", "0.55", "0.60"]
    assert plot.labels([-1600, -1550]) == ["−1600", "−1550"]
    assert plot.labels([0.5, 1, 2]) == ["0.5", "1", "2"]


def test_a_scale_stops_at_its_edges_and_a_log_scale_halves_ratios():
    assert plot.Scale(0, 1).at(7) == 100
    assert plot.Scale(0.25, 4, log=True).at(1) == pytest.approx(50)


@pytest.mark.parametrize("values", [[], [3.0, 3.0], [0.0], [math.nan, 1.0]])
def test_a_scale_around_anything_is_finite_and_has_width(values):
    scale = plot.around(values)
    assert math.isfinite(scale.low)
    assert scale.high > scale.low
