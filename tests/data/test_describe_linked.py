"""No hidden count of Table 1 follows from columns that are missing together."""

from __future__ import annotations

import numpy as np
import pytest

from fedcohort.data.describe import agreed, pooled
from fedcohort.privacy.disclosure.counts import hidden
from linked import attack, panels, table_one


def recovered(seeds):
    found = np.zeros((2, 2), int)
    for seed in seeds:
        frames, variables = panels(seed)
        found += attack(frames, variables, table_one(frames, variables))
    return found


@pytest.mark.parametrize("first", [0, 3])
def test_no_count_of_1_to_4_is_recovered_with_the_missing_values_that_other_columns_tell(first):
    small, told = recovered(range(first, first + 3))
    assert small.sum() > 100
    assert told.tolist() == [0, 0]


def test_the_attack_recovers_levels_where_missing_values_were_what_hid_them(monkeypatch):
    """So it was: a level of 3 was hidden with 37 missing values, which other columns show."""
    for module in (agreed, pooled):
        monkeypatch.setattr(module, "hidden_variable", hidden)
    assert recovered(range(3))[1, 0] > 0


def test_a_level_is_hidden_with_another_and_the_missing_values_are_shown():
    rows = {"missing": 37, "0": 98, "1": 3, "2": 60}
    cells = np.array([*rows.values()])
    assert agreed.hidden_variable(cells, 5).tolist() == [False, False, True, True]
