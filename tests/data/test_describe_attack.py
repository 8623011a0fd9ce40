"""No hidden count of a description can be worked out from all that is published of the patients."""

from __future__ import annotations

import pandas as pd
import pytest

import fedcohort as fc
from described import Attack, cohort, random_sites


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_no_count_of_1_to_4_is_recovered_from_all_tables_together(first):
    n = found = 0
    for seed in range(first, first + 20):
        frames = random_sites(seed)
        fed = cohort(frames)
        attack = Attack(frames)
        for by in ("a", "b"):
            attack.read(fc.fit("describe", fed, by=by, correlation=False).model)
        small, told = attack.recovered()
        n, found = n + small, found + told
    assert n > 300
    assert found == 0


def test_the_attack_recovers_what_is_not_protected():
    """The same equations find every small count where nothing is hidden: the attack has teeth."""
    frames = random_sites(1)
    fed = cohort(frames)
    attack = Attack(frames)
    attack.read(fc.fit("describe", fed, by="a", min_cell=1).model)
    attack.read(fc.fit("describe", fed, by="b", min_cell=1).model)
    n, found = attack.recovered()
    assert found > n / 2 > 5


def test_sites_say_the_same_however_often_they_are_asked_together():
    frames = random_sites(3)
    first, again = (fc.fit("describe", cohort(frames), by="a").summary for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
