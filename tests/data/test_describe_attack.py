"""No hidden count of a description can be worked out from all that is published of the patients."""

from __future__ import annotations

import contextlib

import pytest

import fedcohort as fc
from described import DICTIONARY, Attack, cohort, random_sites
from fedcohort.data.describe import STEPS, describe, variables_of
from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import Refused
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


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


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_a_site_says_the_same_however_often_it_is_asked_and_no_more_with_other_sites(seed):
    """With other sites it would hide other cells. It refuses, or says what it said."""
    frames, known = random_sites(seed), Dictionary.from_dict(DICTIONARY)
    fed = local([Host(s, frame, STEPS) for s, frame in frames.items()])

    def told(among):
        found = describe(fed.only(among), variables_of(known, None)).summaries
        return {(s.variable.name, s.site): s for s in found if s.site is not None}

    first = told(frames)
    assert told(frames) == first
    for gone in frames:
        with contextlib.suppress(Refused):
            again = told([s for s in frames if s != gone])
            assert {k: v for k, v in first.items() if k in again} == again
