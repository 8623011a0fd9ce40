"""The matching of labels is the best of all one-to-one matchings."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.metrics.clusters import NONE, matched, matching


@given(k=st.integers(1, 5), wider=st.integers(0, 2), seed=st.integers(0, 2**16))
def test_no_matching_puts_more_rows_right(k, wider, seed):
    table = np.random.default_rng(seed).integers(0, 20, (k, k + wider))
    every = (sum(table[i, j] for i, j in enumerate(p)) for p in _orders(k, k + wider))
    assert matched(table) == max(every)
    assert matched(table.T) == matched(table)


def _orders(k, width):
    return itertools.permutations(range(width), k)


def test_a_label_too_many_has_no_partner():
    partner = matching(np.array([[0, 9], [8, 0], [3, 3]]))
    assert partner.tolist() == [1, 0, NONE]
