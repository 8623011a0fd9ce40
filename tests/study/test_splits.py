"""Test rows are drawn in proportion from every stratum, and the same for every arm."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.data.outcome import Survival
from fedcohort.study.splits import strata, stratified


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


def test_strata_are_site_and_event():
    frame = pd.DataFrame({"t": [1.0, 2, 3, 4], "e": [0, 1, 0, 1]})
    both = strata(frame, Survival("t", "e"), np.array(["a", "a", "b", "b"]))
    assert len(set(both)) == 4
    assert len(set(strata(frame, Survival("t", "e"), None))) == 2
    assert len(set(strata(frame, None, None))) == 1
