"""The verbs and views of a federation, on the local runtime."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Lasso

import toys
from fedcohort.protocol import (
    DataError,
    SettingError,
    Site,
    SiteFailed,
    SiteUnavailable,
    VerbRefused,
    gathered,
    per_site,
    summed,
)
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from toys import NUMBERS, Draw, Moments

TABLES = toys.numbers()
POOLED = np.vstack(list(TABLES.values()))


@gathered
def spoil_argument(site: Site[Any, None], *, value: Any) -> Draw:
    value += 1
    return Draw(value)


@summed
def bad_at_b(site: Site[Any, None]) -> Draw:
    return Draw(np.array([np.nan if site.name == "b" else 1.0]))


@summed
def own_shape(site: Site[Any, None]) -> Draw:
    return Draw(np.zeros(2 if site.name == "b" else 3))


def federation(**options: Any):
    return local(toys.hosts(TABLES, (*NUMBERS, spoil_argument, bad_at_b, own_shape)), **options)


# sum and gather -----------------------------------------------------------------------


def test_a_sum_over_sites_is_the_plain_sum_over_all_rows():
    total = federation().sum(toys.moments, centre=0.5, power=2)
    assert type(total) is Moments
    assert_allclose(total.total, ((POOLED - 0.5) ** 2).sum(0), rtol=1e-14)
    assert total.rows == len(POOLED)


def test_flags_sum_to_counts():
    expected = sum((t[:3, 0] > 0).astype(int) for t in TABLES.values())
    assert_array_equal(federation().sum(toys.flags, rows=3).positive, expected)


def test_gather_returns_each_sites_reply_by_name_in_sorted_order():
    replies = federation().gather(toys.means)
    assert list(replies) == ["a", "b", "c"]
    for name, table in TABLES.items():
        assert_array_equal(replies[name].total, table.mean(0))


def test_gather_of_a_step_for_sums_is_refused():
    with pytest.raises(VerbRefused, match="only the sum of moments"):
        federation().gather(toys.moments, centre=0.0, power=1)  # pyright: ignore


def test_arguments_go_by_name_only():
    with pytest.raises(TypeError, match="moments by name"):
        federation().sum(toys.moments, 0.0, 1)  # pyright: ignore


@given(order=st.permutations("abc"), seed=st.integers(0, 2**20))
def test_results_do_not_depend_on_the_order_in_which_sites_are_given(order, seed):
    tables = toys.numbers(seed=seed)
    one, other = (
        toys.mean_and_spread(local(toys.hosts({k: tables[k] for k in keys}, NUMBERS, seed)))
        for keys in ("abc", order)
    )
    assert list(one) == list(other)
    for name, a in one.items():
        assert a.tobytes() == other[name].tobytes()


def test_a_step_that_changes_its_argument_changes_no_one_elses():
    mine = np.zeros(2)
    replies = federation().gather(spoil_argument, value=mine)
    assert_array_equal(mine, 0)
    assert all((r.values == 1).all() for r in replies.values())


def test_a_failing_site_is_named():
    with pytest.raises(SiteFailed, match=r"site 'b'.*not finite"):
        federation().sum(bad_at_b)


def test_a_site_with_another_shape_is_named():
    with pytest.raises(SiteFailed, match=r"shape \(2,\) at site 'b' and \(3,\)"):
        federation().sum(own_shape)


# views --------------------------------------------------------------------------------


def test_weights_multiply_each_reply():
    fed = federation().weighted({"a": 0.5, "b": 2.0, "c": 1.0})
    expected = 0.5 * 5 + 2.0 * 8 + 1.0 * 3
    assert fed.sum(toys.moments, centre=0.0, power=1).rows == expected


def test_weights_do_not_reach_gather_nor_the_federation_they_came_from():
    fed = federation()
    heavy = fed.weighted(dict.fromkeys("abc", 3.0))
    assert heavy.gather(toys.means)["b"].rows == 8
    assert fed.sum(toys.moments, centre=0.0, power=1).rows == 16


@pytest.mark.parametrize("weights", [{"a": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}])
def test_weights_for_other_sites_than_those_of_the_view_are_refused(weights):
    with pytest.raises(ValueError, match="weights and sites differ in"):
        federation().weighted(weights)


def test_only_asks_the_named_sites_alone():
    asked = federation().only(["c", "a", "a"])
    assert asked.sites == ("a", "c")
    assert asked.sum(toys.moments, centre=0.0, power=1).rows == 8
    assert asked.answered == ("a", "c")


def test_only_with_an_unknown_site_names_it():
    with pytest.raises(SiteUnavailable, match=r"no site \['x'\]; the run has \['a', 'b', 'c'\]"):
        federation().only(["a", "x"])


def test_a_per_site_argument_differs_between_sites():
    value = per_site({s: np.array([float(i)]) for i, s in enumerate("abc")})
    replies = federation().gather(toys.echo, value=value)
    assert [float(r.values[0]) for r in replies.values()] == [0.0, 1.0, 2.0]


@dataclass(frozen=True)
class Times:
    factor: float

    @property
    def spec(self) -> str:
        return f'{{"factor": {self.factor}}}'

    def __call__(self, data: Any) -> Any:
        return data * self.factor


def test_steps_see_the_data_through_the_view():
    fed = federation()
    assert_allclose(fed.through(Times(2.0)).gather(toys.means)["a"].total, 2 * TABLES["a"].mean(0))
    assert_array_equal(fed.gather(toys.means)["a"].total, TABLES["a"].mean(0))


def test_views_combine():
    fed = federation().only("ab").weighted({"a": 1.0, "b": 0.0}).through(Times(3.0))
    total = fed.sum(toys.moments, centre=0.0, power=1)
    assert_allclose(total.total, 3 * TABLES["a"].sum(0))


# quorum -------------------------------------------------------------------------------


def test_a_missing_site_is_left_out_of_a_sum_when_the_quorum_is_met():
    fed = federation(quorum=2 / 3, absent=lambda call, site: site == "b")
    assert fed.sum(toys.moments, centre=0.0, power=1).rows == 8
    assert fed.answered == ("a", "c")
    assert list(fed.gather(toys.means)) == ["a", "c"]


def test_below_the_quorum_the_missing_sites_are_named():
    fed = federation(quorum=0.75, absent=lambda call, site: site == "b")
    with pytest.raises(SiteUnavailable, match=r"2 of 3 sites answered means.*missing: b"):
        fed.gather(toys.means)


def test_no_site_at_all_is_below_any_quorum():
    fed = federation(quorum=0.0, absent=lambda call, site: True)
    with pytest.raises(SiteUnavailable, match="missing: a, b, c"):
        fed.gather(toys.means)


def test_a_site_may_come_back():
    fed = federation(quorum=0.5, absent=lambda call, site: site == "b" and call == 0)
    assert [list(fed.gather(toys.means)) for _ in range(2)] == [["a", "c"], ["a", "b", "c"]]


@pytest.mark.parametrize("quorum", [-0.1, 1.5, float("nan")])
def test_a_quorum_that_is_no_fraction_is_refused(quorum):
    with pytest.raises(SettingError, match="quorum"):
        federation(quorum=quorum)


def test_a_federation_needs_sites_with_names_of_their_own():
    with pytest.raises(DataError, match="no sites"):
        local([])
    host = toys.hosts(TABLES, NUMBERS)[0]
    with pytest.raises(DataError, match="share a name"):
        local([host, host])


# what a run leaves --------------------------------------------------------------------


def test_rounds_and_records_make_the_history():
    fed = federation()
    for i in fed.rounds(3):
        fed.record(loss=1.0 / (i + 1))
    assert fed.history == [{"round": float(i), "loss": 1 / (i + 1)} for i in range(3)]


def test_the_ledger_has_a_line_for_each_site_and_call_with_the_bytes_that_left():
    fed = federation()
    for _ in fed.rounds(2):
        fed.only("ab").sum(toys.moments, centre=0.0, power=1)
    fed.gather(toys.draw)
    lines = [json.loads(line) for line in fed.ledger.lines]
    assert [(e["call"], e["round"], e["step"], e["verb"], e["site"]) for e in lines] == [
        (0, 0, "moments", "sum", "a"),
        (0, 0, "moments", "sum", "b"),
        (1, 1, "moments", "sum", "a"),
        (1, 1, "moments", "sum", "b"),
        (2, 1, "draw", "gather", "a"),
        (2, 1, "draw", "gather", "b"),
        (2, 1, "draw", "gather", "c"),
    ]
    moments, numbers = 2 * 8 + 8, 4 * 8
    assert fed.ledger.bytes_up == {
        "a": 2 * moments + numbers,
        "b": 2 * moments + numbers,
        "c": numbers,
    }


def test_bytes_down_count_arguments_for_each_site_and_a_view_once():
    sizes: list[int] = []
    fed = federation().through(Times(2.0))
    for n in (10, 110, 110):
        before = fed.ledger.bytes_down
        fed.gather(toys.echo, value=np.zeros(n))
        sizes.append(fed.ledger.bytes_down - before)
    spec = len(Times(2.0).spec)
    assert sizes[1] - sizes[0] == 3 * (800 - spec)
    assert sizes[2] == sizes[1]


def test_an_observer_is_told_of_each_call():
    told: list[Any] = []
    fed = federation(observer=told.append, quorum=0.5, absent=lambda call, site: site == "c")
    for _ in fed.rounds(2):
        fed.gather(toys.means)
    assert [(t.call, t.round, t.rounds, t.step, t.answered, t.asked) for t in told] == [
        (0, 0, 2, "means", 2, 3),
        (1, 1, 2, "means", 2, 3),
    ]


# states -------------------------------------------------------------------------------


def test_sites_that_remember_reach_the_pooled_lasso():
    tables = toys.regressions()
    fit = toys.lasso(local(toys.hosts(tables, toys.ADMM)), penalty=10.0, rounds=200)
    x = np.vstack([t.x for t in tables.values()])
    y = np.concatenate([t.y for t in tables.values()])
    pooled = Lasso(alpha=10.0 / len(y), fit_intercept=False, tol=1e-12).fit(x, y)
    assert_allclose(fit.z, pooled.coef_, atol=1e-8)
    assert fit.residuals[-1] < 1e-16 < fit.residuals[0]


def test_a_new_run_on_the_same_hosts_begins_without_states():
    sites = toys.hosts(toys.regressions(), toys.ADMM)
    one, other = (toys.lasso(local(sites), penalty=10.0, rounds=3) for _ in range(2))
    assert one.z.tobytes() == other.z.tobytes()


# cost ---------------------------------------------------------------------------------


def test_memory_of_a_sum_does_not_grow_with_the_number_of_sites():
    peaks: list[int] = []
    for n_sites in (4, 40):
        tables = {f"s{i:02}": np.zeros((1, 100_000)) for i in range(n_sites)}
        fed = local(toys.hosts(tables, NUMBERS))
        tracemalloc.start()
        fed.sum(toys.moments, centre=0.0, power=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_a_site_call_with_little_to_do_costs_microseconds():
    fed = local(toys.hosts({f"s{i}": np.ones((1, 2)) for i in range(10)}, NUMBERS))
    best = np.inf
    for _ in range(20):
        began = perf_counter()
        for _ in range(5):
            fed.sum(toys.moments, centre=0.0, power=1)
        best = min(best, (perf_counter() - began) / 50)
    print(f"{1e6 * best:.1f} µs per site and call")
    assert best < 100e-6


# who was missing ------------------------------------------------------------------------------


def test_missing_sites_are_listed_by_call_and_told_with_the_bytes_of_each_call(tmp_path):
    seen: list[Any] = []
    whole: list[Any] = []
    for _ in range(2):
        journal = Journal(tmp_path / "journal")
        fed = federation(
            quorum=0.5, absent=lambda call, site: (call, site) in {(0, "b"), (2, "c")},
            observer=seen.append, journal=journal,
        )  # fmt: skip
        for _ in range(3):
            fed.only("ab").gather(toys.means)
        fed.gather(toys.means)
        journal.close()
        whole.append((fed.missing, [(list(p.missing), p.up, p.down) for p in seen]))
        seen.clear()
    assert whole[0] == whole[1]
    missing, told = whole[0]
    assert missing == [(0, "b")]
    assert told == [(["b"], 24, 4), ([], 48, 4), ([], 48, 4), ([], 72, 6)]
    assert fed.ledger.bytes_down == 18
    assert sum(fed.ledger.bytes_up.values()) == 24 + 48 + 48 + 72
