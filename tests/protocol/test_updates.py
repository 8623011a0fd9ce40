"""Replies that are not fit to be used: rejected by name, before anything is added, on every way."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import toys
from fedcohort.protocol import QuorumLost, ReplyRejected, Site, gathered, message, summed
from fedcohort.protocol.host import Call
from fedcohort.protocol.updates import FAR, too_far
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import LocalTransport
from fedcohort.runtime.reply_store import StateStore

TABLES = toys.numbers()


class Forged:
    """A transport that replaces what site b says."""

    def __init__(self, inner: LocalTransport, forge: Any):
        self._inner, self._forge = inner, forge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def ask(self, call: Call, to: Any) -> Iterator[tuple[str, Any]]:
        for site, reply in self._inner.ask(call, to):
            lies = site == "b" and isinstance(reply, dict)
            yield site, self._forge(call.number, dict(reply)) if lies else reply


def federation(forge: Any, steps: Any = toys.NUMBERS, store: Any = None, **options: Any):
    inner = LocalTransport(toys.hosts(TABLES, steps), store)
    options = {"quorum": 0.5, "secure": "false"} | options
    return Coordinator(Forged(inner, forge), **options)


FORGED = {
    "nan": lambda n, r: r | {"total": np.array([np.nan, 0.0])},
    "inf": lambda n, r: r | {"total": np.array([np.inf, 0.0])},
    "another shape": lambda n, r: r | {"total": np.zeros(3)},
    "another type": lambda n, r: r | {"total": np.zeros(2, np.float32)},
    "complex": lambda n, r: r | {"total": np.zeros(2, complex)},
    "text": lambda n, r: r | {"total": "much"},
    "-9 rows": lambda n, r: r | {"rows": np.array(-9)},
    "10^12 rows": lambda n, r: r | {"rows": np.array(10**12)},
    "half a row": lambda n, r: r | {"rows": np.array(0.5)},
    "a field more": lambda n, r: r | {"more": np.zeros(1)},
    "a field less": lambda n, r: {"total": r["total"]},
}


@pytest.mark.parametrize("secure", ["false", "auto"])
@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_site_whose_reply_cannot_be_is_named_and_the_sum_is_of_the_others(forge, secure, caplog):
    seen: list[Any] = []
    fed = federation(forge, secure=secure, observer=seen.append)
    with caplog.at_level(logging.WARNING, "fedcohort"):
        total = fed.sum(toys.moments, centre=0.0, power=1)
    expected = TABLES["a"].sum(0) + TABLES["c"].sum(0)
    np.testing.assert_allclose(total.total, expected, rtol=1e-14)
    assert total.rows == len(TABLES["a"]) + len(TABLES["c"])
    assert (list(fed.answered), list(fed.refused), fed.missing) == (["a", "c"], ["b"], [(0, "b")])
    (why,) = fed.rejected.values()
    assert why == seen[0].rejected["b"] == fed.refused["b"]
    assert why.startswith("site 'b' answered moments (call 0) with ")
    assert [r.getMessage() for r in caplog.records] == [why]


@pytest.mark.parametrize("forge", [FORGED[k] for k in ("nan", "-9 rows", "a field more")])
def test_a_gathered_reply_that_cannot_be_is_left_out_as_well(forge):
    fed = federation(forge)
    assert list(fed.gather(toys.means)) == ["a", "c"]
    assert list(fed.refused) == ["b"]


def test_without_a_quorum_the_error_names_the_site_and_the_reason():
    fed = federation(FORGED["nan"], quorum=1.0)
    with pytest.raises(QuorumLost, match=r"^site 'b' .* not finite in field 'total'.*missing: b"):
        fed.sum(toys.moments, centre=0.0, power=1)


def test_where_no_shape_is_that_of_most_sites_nothing_is_added():
    hosts = toys.hosts({"a": TABLES["a"], "b": TABLES["b"]}, toys.NUMBERS)
    fed = Coordinator(Forged(LocalTransport(hosts), FORGED["another shape"]), quorum=0.1)
    with pytest.raises(ReplyRejected, match=r"'total' has shape \(3,\) at site 'b' and \(2,\)"):
        fed.sum(toys.moments, centre=0.0, power=1)


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_state_of_a_rejected_reply_does_not_count(tmp_path, on_disk):
    """As if the site had not been asked: the same numbers as where it was away for that call."""
    store = StateStore(tmp_path) if on_disk else None

    def forge(number: int, reply: Any) -> Any:
        return reply | {"value": np.full(4, np.nan)} if number == 4 else reply

    data = toys.regressions()
    forged = Coordinator(
        Forged(LocalTransport(toys.hosts(data, toys.ADMM), store), forge), quorum=0.5
    )
    away = Coordinator(
        LocalTransport(toys.hosts(data, toys.ADMM), None, lambda n, s: (n, s) == (4, "b")),
        quorum=0.5,
    )
    found, expected = (toys.lasso(fed, 3.0) for fed in (forged, away))
    assert_array_equal(found.z, expected.z)
    assert forged.missing == away.missing == [(4, "b")]


def test_a_resumed_run_knows_who_was_rejected_and_why(tmp_path):
    told = []
    for forge in (FORGED["nan"], lambda n, r: r):
        journal = Journal(tmp_path / "journal")
        fed = federation(forge, journal=journal)
        fed.sum(toys.moments, centre=0.0, power=1)
        told.append((fed.rejected, fed.missing, list(fed.refused)))
        journal.close()
    assert told[0] == told[1]
    assert told[0][2] == ["b"]


@message
class Vague:
    rows: Any


@gathered
def hides(site: Site[Any, None], *, told: int) -> Vague:
    return Vague(np.array(told))


@summed
def negative(site: Site[Any, None]) -> Vague:
    return Vague(np.array(-1))


def test_a_description_may_hide_a_number_of_rows_and_a_sum_may_not():
    fed = federation(lambda n, r: r, (hides, negative))
    assert len(fed.gather(hides, told=-1)) == 3
    with pytest.raises(ReplyRejected, match="no number of rows"):
        fed.gather(hides, told=-2)
    with pytest.raises(ReplyRejected, match="no number of rows"):
        fed.sum(negative)


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=9), st.floats(FAR * 2 + 0.1, 1e300))
def test_only_an_update_out_of_proportion_is_too_far(lengths, far):
    moved = {f"s{i}": m for i, m in enumerate(lengths)}
    assert too_far(moved, 0, toys.means) == {}
    assert list(too_far({**moved, "liar": far}, 0, toys.means)) == ["liar"]
    assert list(too_far({**moved, "liar": np.inf}, 0, toys.means)) == ["liar"]


def test_two_sites_do_not_judge_each_other():
    assert too_far({"a": 1.0, "b": 1e9, "empty": 0.0}, 0, toys.means) == {}
