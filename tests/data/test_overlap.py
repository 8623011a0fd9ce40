"""Split `overlap` is the allocation of Nolte et al. (2023), section 3.5, read word for word."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.data.split import partition
from fedcohort.data.split.overlap import allocated
from fedcohort.protocol import DataError, StudyError


def drugs(m, each, seed=0):
    """Return a table of m drugs with unequal numbers of rows, shuffled."""
    rng = np.random.default_rng(seed)
    column = np.repeat([f"drug {i:02d}" for i in range(m)], rng.integers(each, 2 * each, m))
    return pd.DataFrame({"drug": rng.permutation(column)}).assign(y=lambda f: np.arange(len(f)))


@pytest.mark.parametrize("k", [2, 8, 16, 24])
def test_twelve_clients_and_24_drugs_as_in_the_paper(k):
    frame = drugs(24, 40)
    sites = partition(frame, "overlap", 12, 5, group="drug", k=k)
    held = {site: set(rows["drug"]) for site, rows in sites.items()}
    assert {len(h) for h in held.values()} == {k}  # "each client was allocated ... k drugs"
    assert set().union(*held.values()) == set(frame["drug"])
    if k == 2:  # "clients' drug sets were completely disjoint"
        assert all(not a & b for a, b in combinations(held.values(), 2))
    if k == 24:  # "each client having data from all the drugs"
        assert all(h == set(frame["drug"]) for h in held.values())
    for drug, n in Counter(frame["drug"]).items():  # "split evenly among the ... clients"
        parts = [int((rows["drug"] == drug).sum()) for rows in sites.values()]
        having = [p for p in parts if p]
        assert len(having) == sum(drug in h for h in held.values())
        assert sum(having) == n
        assert max(having) - min(having) <= 1
    together = pd.concat(list(sites.values())).sort_index()
    pd.testing.assert_frame_equal(together, frame)  # every row at one site


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8), st.integers(0, 999))
def test_each_site_has_k_groups_and_each_group_a_site_or_it_is_refused(n, m, k, seed):
    rng = np.random.default_rng(seed)
    if k > m or n * k < m:
        with pytest.raises(DataError, match="each group has a site"):
            allocated(m, n, k, rng)
        return
    has = allocated(m, n, k, rng)
    assert (has.sum(axis=1) == k).all()
    assert (has.sum(axis=0) >= 1).all()


def test_a_sites_groups_are_a_random_sample_of_k():
    """Each of the 6 pairs of 4 groups in a sixth of 3,000 draws: sd 20 of a count of 500."""
    rng = np.random.default_rng(1)
    drawn = [allocated(4, 4, 2, rng) for _ in range(3000)]
    for site in range(4):
        pairs = Counter(tuple(np.flatnonzero(has[site]).tolist()) for has in drawn)
        assert len(pairs) == 6
        assert all(abs(n - 500) < 80 for n in pairs.values())


def test_the_same_seed_gives_the_same_sites_and_another_seed_others():
    frame = drugs(10, 20)
    one, same, other = (
        partition(frame, "overlap", 5, seed, group="drug", k=4) for seed in (1, 1, 2)
    )
    assert all(one[s].equals(same[s]) for s in one)
    assert not all(one[s].equals(other[s]) for s in one)


def test_what_cannot_be_is_refused():
    frame = drugs(6, 10)
    with pytest.raises(StudyError, match="'k'"):
        partition(frame, "overlap", 3, group="drug")
    with pytest.raises(DataError, match="give k from 2 to 6"):
        partition(frame, "overlap", 3, group="drug", k=1)
    with pytest.raises(DataError, match="no column 'dose'"):
        partition(frame, "overlap", 3, group="dose", k=3)
    with pytest.raises(DataError, match="names no group in row"):
        partition(frame.assign(drug=frame["drug"].mask(frame.index == 3)), "overlap", 3,
                  group="drug", k=3)  # fmt: skip
    with pytest.raises(DataError, match="would get no row"):
        partition(drugs(2, 3).groupby("drug").head(3), "overlap", 6, group="drug", k=2)
