"""Test rows are drawn in proportion from every stratum, and the same for every arm."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.data.outcome import Survival
from fedcohort.study.sites.splits import digest, own_blind, own_order, strata, stratified


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 2**16),
)
def test_every_stratum_gives_its_share_within_one_row(sizes, fraction, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    mask = stratified(labels, fraction, np.random.default_rng(seed))
    assert abs(mask.sum() - fraction * len(labels)) <= 1
    for label, size in enumerate(sizes):
        assert abs(mask[labels == label].sum() - fraction * size) <= 1 + 1e-9


def test_strata_are_those_of_the_event():
    frame = pd.DataFrame({"t": [1.0, 2, 3, 4], "e": [0, 1, 0, 1]})
    assert strata(frame, Survival("t", "e")).tolist() == [0, 1, 0, 1]
    assert len(set(strata(frame, None))) == 1


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**40), order=st.permutations(range(20)))
def test_a_site_draws_the_same_rows_whatever_the_order_of_its_export(seed, order):
    frame = pd.DataFrame({"x": np.arange(20.0), "e": np.arange(20) % 3 > 0})
    drawn: list[set[float]] = []
    for rows in (frame, frame.iloc[order]):
        mine = rows.iloc[own_order(rows, seed)].reset_index(drop=True)
        mask = own_blind(
            mine, Survival("x", "e"), site="oslo", digest=digest(mine, seed), seed=seed, repeat=1,
            fraction=0.25,
        )  # fmt: skip
        drawn.append({*mine.x[mask]})
    assert drawn[0] == drawn[1] and len(drawn[0]) == 5


def test_a_column_of_one_value_at_a_site_has_no_part_in_its_order():
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"x": rng.normal(size=30), "g": rng.integers(0, 3, 30)})
    named = rows.assign(hospital="north")[["hospital", "x", "g"]]
    assert list(own_order(rows, 7)) == list(own_order(named, 7))
    assert digest(rows, 7) == digest(named, 7)
    same = named[["hospital"]]  # nothing tells its rows apart
    assert list(own_order(same, 7)) == list(range(30))
    assert digest(same, 7) == digest(same, 8)
