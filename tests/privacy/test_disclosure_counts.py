"""What a site hides cannot be worked out from what it shows, however well the rule is known."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.privacy.disclosure.counts import hidden, hidden_variable
from fedcohort.privacy.disclosure.rounding import origins, rounded, step, unit


def compositions(n, k):
    """Return every way to write n as k counts from 0, (…, k)."""
    bars = np.array(list(combinations(range(n + k - 1), k - 1)), int).reshape(-1, k - 1)
    edges = np.c_[np.full(len(bars), -1), bars, np.full(len(bars), n + k - 1)]
    return np.diff(edges, axis=1) - 1


def published(cells, min_cell, rule=hidden):
    """Return what an attacker sees of one variable at one site."""
    secret = rule(cells, min_cell)
    n = sum(cells)
    return (
        n if not 0 < n < min_cell else None,
        tuple(None if s else int(c) for c, s in zip(cells, secret, strict=True)),
    )


@pytest.mark.parametrize(
    ("min_cell", "k", "largest"), [(5, 2, 60), (5, 3, 30), (5, 4, 17), (3, 5, 11), (2, 4, 10)]
)
def test_every_hidden_count_has_two_values_that_would_have_looked_the_same(min_cell, k, largest):
    # all tables there are, by what is seen of them: an attacker can do no better
    worlds = defaultdict(list)
    for n in range(1, largest + 1):
        for cells in compositions(n, k):
            worlds[published(cells, min_cell)].append(cells)
    for (_, seen), tables in worlds.items():
        for j, value in enumerate(seen):
            possible = {t[j] for t in tables}
            assert value is not None or len(possible) > 1, (seen, tables)


@pytest.mark.parametrize(
    ("min_cell", "k", "largest"), [(5, 2, 30), (5, 3, 18), (4, 2, 18), (3, 3, 13)]
)
def test_so_has_each_of_missing_values_and_levels_where_others_tell_how_many_are_missing(
    min_cell, k, largest
):
    """A count of missing values that another column with as many shows is known."""
    worlds = defaultdict(list)
    for n in range(1, largest + 1):
        for cells in compositions(n, k + 1):
            worlds[published(cells, min_cell, hidden_variable)].append(cells)
    for (_, seen), tables in worlds.items():
        for j, value in enumerate(seen):
            small = {t[j] for t in tables if 0 < t[j] < min_cell}
            assert value is not None or not small or len({t[j] for t in tables}) > 1, (seen, tables)
        for t in tables:  # it is never hidden where a column with as many would show it
            few = any(0 < c < min_cell for c in (t[0], sum(t[1:])))
            assert seen[0] is not None or few or sum(t) <= k + 1


@given(cells=st.lists(st.integers(0, 40), min_size=2, max_size=8), min_cell=st.integers(1, 7))
def test_no_count_below_the_smallest_cell_is_shown_and_nothing_is_hidden_without_need(
    cells, min_cell
):
    secret = hidden(np.array(cells), min_cell)
    small = [0 < c < min_cell for c in cells]
    assert all(s for s, few in zip(secret, small, strict=True) if few)
    crowded = 0 < sum(cells) <= len(cells) and min_cell > 1
    assert secret.any() == (any(small) or crowded)


@given(
    cells=st.lists(st.integers(0, 12), min_size=2, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_which_counts_are_hidden_does_not_depend_on_their_order(cells, order):
    places = list(range(len(cells)))
    order.shuffle(places)
    shuffled = hidden(np.array(cells)[places], 5)
    np.testing.assert_array_equal(shuffled, hidden(np.array(cells), 5)[places])


def test_a_single_small_count_takes_the_next_larger_with_it_and_leaves_zeros():
    np.testing.assert_array_equal(hidden(np.array([50, 3, 0, 20, 7]), 5), [0, 1, 0, 0, 1])
    np.testing.assert_array_equal(hidden(np.array([50, 3, 2, 0]), 5), [0, 1, 1, 0])
    np.testing.assert_array_equal(hidden(np.array([50, 3, 3, 20]), 5), [0, 1, 1, 1])
    np.testing.assert_array_equal(hidden(np.array([3, 3, 0]), 5), [1, 1, 1])


@given(
    values=st.lists(st.integers(0, 120), min_size=30, max_size=80),
    decimals=st.integers(0, 2),
)
def test_a_rounded_mean_fits_every_number_of_missing_values(values, decimals):
    # an exact mean of whole numbers is a fraction whose denominator is the number of values
    x = np.array(values) / 10**decimals
    delta = unit(x)
    for n_missing in range(1, 5):
        known = x[n_missing:]
        sure = len(x) - 4
        s = step(known.std(ddof=1), sure, delta)
        shown = rounded(known.mean(), s)
        for other in range(1, 5):
            m = len(x) - other
            sums = np.round(shown * m / delta) + np.arange(-m, m + 1)
            assert any(rounded(total * delta / m, s) == shown for total in sums)


@given(
    value=st.floats(-1e6, 1e6),
    sd=st.floats(1e-6, 1e6),
    n=st.integers(2, 10_000),
)
def test_rounding_moves_a_mean_by_less_than_a_third_of_its_standard_error(value, sd, n):
    s = step(sd, n, 0.0)
    error = sd / np.sqrt(n)
    assert error / 4 <= s * (1 + 1e-9)
    assert s <= error / 4 * 2.5 * (1 + 1e-9)
    assert abs(rounded(value, s) - value) <= s / 2 * (1 + 1e-6)
    assert rounded(rounded(value, s), s) == rounded(value, s)


@pytest.mark.parametrize("min_cell", [2, 5, 10])
def test_the_origin_of_a_rare_0_1_column_is_the_same_for_all_its_counts(min_cell):
    for n in [*range(4 * min_cell, 40 * min_cell), 1000, 12345]:
        ones = np.arange(min_cell)
        for c in (ones, n - ones):
            mean = c / n
            centre = origins(mean, np.sqrt(mean * (1 - mean)), n, min_cell)
            np.testing.assert_allclose(centre, np.round(mean))


def test_an_origin_does_not_depend_on_the_last_bits_of_a_mean():
    mean = np.array([54.25, 54.25 * (1 + 1e-15), 54.25 * (1 - 1e-15)])
    assert len(set(origins(mean, np.full(3, 11.0), 60, 5))) == 1
    assert len({rounded(m, 0.5) for m in mean}) == 1


def test_the_unit_of_values_is_the_last_decimal_that_any_has():
    assert unit(np.array([3.0, 40.0])) == 1
    assert unit(np.array([3.0, 40.1])) == pytest.approx(0.1)
    assert unit(np.array([3.25, 40.1])) == pytest.approx(0.01)
    assert unit(np.array([np.pi, 1.0])) == 0
    assert unit(np.array([1e308, 0.5])) == 0
