"""What a page shows of virtual rows beside real ones: no bin or level of few real patients."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.data.dictionary import Dictionary
from fedcohort.study.virtual import shown as pages
from fedcohort.study.virtual.comparing import Comparison
from virtual_patients import KNOWN, OUTCOME, patients


@given(st.lists(st.integers(0, 12), min_size=1, max_size=20), st.integers(1, 6))
def test_joined_bins_hold_no_few_rows(counts, least):
    keep = pages._joint(np.array(counts), least)
    assert len(keep) == len(counts) - 1
    ends = [*np.flatnonzero(keep), len(counts) - 1]
    sizes = np.diff([0, *np.cumsum(counts)[ends]])
    whole = sum(counts)
    assert all(n == 0 or n >= least for n in sizes) or whole < least


@given(st.integers(0, 60))
def test_no_share_of_a_level_is_of_few_real_patients(seed):
    rng = np.random.default_rng(seed)
    levels = ["a", "b", "c", "d", "e"]
    known = Dictionary.from_dict({"x": {"type": "category", "levels": levels}})
    real = rng.choice(5, 80, p=rng.dirichlet(np.full(5, 0.4)))
    rows = pages._level_bins(known["x"], rng.integers(0, 5, 50), real, 5)
    assert abs(sum(r["real"] for r in rows) - 1) < 0.01
    for row in rows:
        n = round(row["real"] * 80)
        assert n == 0 or n >= 5


def test_late_virtual_rows_do_not_widen_the_steps_of_their_curve():
    """Up to the last real time it is that of rows censored there; its last row tells the end."""
    drawn, real = patients(400, 3), patients(200, 2)
    late = drawn.assign(time=drawn["time"].where(np.arange(400) % 40 > 0, 900.0))
    found = pages.shown(Comparison.of(late, patients(200, 1), real, KNOWN, OUTCOME), 5)
    curves = {
        k: [r for r in found["virtual_curves"] if r["rows"] == k] for k in ("real", "virtual")
    }
    end, last = curves["real"][-1]["time"], curves["virtual"].pop()
    assert last["time"] > 10 * end
    cut = late.assign(
        time=late["time"].clip(upper=end), event=late["event"] * (late["time"] <= end)
    )
    again = pages.shown(Comparison.of(cut, patients(200, 1), real, KNOWN, OUTCOME), 5)
    assert curves["virtual"] == [r for r in again["virtual_curves"] if r["rows"] == "virtual"]
    assert len(curves["virtual"]) > 5


def test_every_list_has_the_real_and_the_virtual_rows():
    c = Comparison.of(patients(200, 3), patients(200, 1), patients(200, 2), KNOWN, OUTCOME)
    found = pages.shown(c, 5)
    assert set(found) == set(pages.KEYS)
    assert {r["column"] for r in found["virtual_marginals"]} == {"age", "grade", "time", "event"}
    assert {r["rows"] for r in found["virtual_curves"]} == {"real", "virtual"}
    assert [r["learnt_from"] for r in found["virtual_scores"]] == ["virtual rows", "training rows"]
    assert len(found["virtual_privacy"]) == 5


def test_a_private_study_shows_nothing_of_training_rows():
    c = Comparison.of(patients(200, 3), patients(200, 1), patients(200, 2), KNOWN, OUTCOME)
    found = pages.shown(c, 5, private=True)
    assert [r["learnt_from"] for r in found["virtual_scores"]] == ["virtual rows"]
    assert [r["measure"] for r in found["virtual_privacy"]] == ["log-rank test of survival: p"]
