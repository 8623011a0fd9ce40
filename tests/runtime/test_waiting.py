"""A call that waits for its sites: asked when all are there; else nothing of it is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toys
from fedcohort.protocol import QuorumLost, SitesAway, SiteUnavailable
from fedcohort.runtime.absences import Availability
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.runtime.masked import local as masked_local

SITES = tuple(f"s{i}" for i in range(6))


def ask(fed):
    found = fed.sum(toys.moments, centre=0.1, power=3)
    return found.total.tobytes(), found.rows.tobytes()


def hosts(names=SITES):
    rng = np.random.default_rng(0)
    return toys.hosts({s: rng.standard_normal((8, 2)) for s in names}, toys.NUMBERS)


def sums(fed, rounds=4):
    """Return a sum and its sites, twice a round, as bytes."""
    found = []
    for _ in fed.rounds(rounds):
        found += [(ask(fed), tuple(fed.answered)) for _ in range(2)]
    return found


@given(st.integers(0, 2**32), st.floats(0.1, 0.5), st.sampled_from([None, 4.0]))
def test_all_sites_are_in_every_sum_and_as_many_rounds_are_waited_as_someone_was_away(
    seed, away, length
):
    law = Availability(away=away, rounds=length)
    fed = local(hosts(), quorum=0.5, absent=law.of(SITES, 0.5, seed))
    assert sums(fed.awaiting()) == sums(local(hosts()))
    assert fed.missing == []
    # a second draw of the same rounds: those in which all are there, one for each round asked
    drawn, full, r = law.of(SITES, 0.5, seed), [], 0
    while len(full) < 4:
        full += [r] if not drawn.away(r) else []
        r += 1
    assert fed.waited == full[-1] - 3


def test_rounds_that_do_not_wait_go_on_where_those_that_did_left_off():
    law = Availability(away=0.6)
    fed = local(hosts(), quorum=0.34, absent=law.of(SITES, 0.34, 5))
    (first,) = fed.rounds(1)
    heard, drawn = [], law.of(SITES, 0.34, 5)
    for r in fed.rounds(5):
        if r == 3:
            ask(fed.awaiting())
        ask(fed)
        heard.append((r + fed.waited, tuple(fed.answered)))
    assert fed.waited > 0 == first
    assert heard == [(r, tuple(s for s in SITES if s not in drawn.away(r))) for r, _ in heard]


def test_so_many_sites_are_enough_where_that_is_asked():
    law = Availability(away=0.6)
    fed = local(hosts(), quorum=0.34, absent=law.of(SITES, 0.34, 5))
    told = [len(sites) for _, sites in sums(fed.awaiting(4), 30)]
    assert (min(told), max(told) > 4) == (4, True)
    assert fed.missing


def test_a_view_that_fewer_than_its_quorum_would_answer_waits_for_as_many():
    """The draws see to the quorum of all sites, not to that of some, such as a model's user."""
    law = Availability(away=0.6)
    fed = local(hosts(), quorum=0.34, absent=law.of(SITES, 0.34, 5))
    told = [sites for _, sites in sums(fed.only(SITES[:1]), 20)]
    assert set(told) == {SITES[:1]}
    assert fed.waited > 0
    impatient = Availability(away=0.6, wait=0)
    with pytest.raises(QuorumLost, match="0 of 1 sites answered"):
        sums(local(hosts(), quorum=0.34, absent=impatient.of(SITES, 0.34, 5)).only(SITES[:1]), 20)


def test_threads_wait_for_the_same_rounds(monkeypatch):
    monkeypatch.setattr("fedcohort.runtime.local.LONG", 0.0)
    absent = Availability(away=0.6).of(SITES, 0.34, 5)
    fed = local(hosts(), threads=2, quorum=0.34, absent=absent)
    found = sums(fed.awaiting(5), 6)
    alone = local(hosts(), quorum=0.34, absent=Availability(away=0.6).of(SITES, 0.34, 5))
    assert (found, fed.waited) == (sums(alone.awaiting(5), 6), alone.waited)
    assert fed.waited > 0


def test_patience_ends_and_nothing_is_told_of_those_that_are_there():
    law = Availability(away=0.6, wait=0)
    fed = local(hosts(), quorum=0.34, absent=law.of(SITES, 0.34, 5))
    with pytest.raises(SitesAway, match=r"left during the fit") as error:
        sums(fed.awaiting(), 30)
    drawn = law.of(SITES, 0.34, 5)
    first = next(r for r in range(30) if drawn.away(r))
    assert set(error.value.sites) == drawn.away(first)
    assert len(fed.ledger.lines) == 2 * first * 6
    assert {site for _, site in fed.missing} == drawn.away(first)


def absent(call, site):
    return (call, site) == (1, "c")


@pytest.mark.parametrize("secure", ["auto", "false", "true"])
def test_a_sum_of_the_others_is_neither_unmasked_nor_told(secure, monkeypatch):
    fed = local(hosts("abcd"), quorum=0.5, absent=absent, secure=secure).awaiting()
    ask(fed)
    before = list(fed.ledger.lines)
    monkeypatch.setattr(masked_local, "masked_sum", lambda *_, **__: pytest.fail("unmasked"))
    with pytest.raises(SitesAway, match=r"^c left") as error:
        ask(fed)
    assert (error.value.sites, fed.ledger.lines, fed.missing) == (("c",), before, [(1, "c")])
    assert fed.answered == tuple("abcd")  # of the call before


@pytest.mark.parametrize("secure", ["auto", "true"])
def test_fewer_than_the_quorum_is_said_first(secure):
    fed = local(hosts("abcd"), absent=absent, secure=secure).awaiting()
    ask(fed)
    said = "3 of 4 sites answered moments, quorum is 1; missing: c"
    with pytest.raises(QuorumLost, match=said) as lost:
        ask(fed)
    assert "with another hash" in str(lost.value)
    assert "approve again" in str(lost.value)


def test_a_reply_that_is_not_fit_is_left_out_as_ever():
    tables = {s: np.ones((8, 2)) for s in "abc"} | {"d": np.full((8, 2), np.nan)}
    fed = local(toys.hosts(tables, toys.NUMBERS), quorum=0.5).awaiting()
    ask(fed)
    assert (fed.answered, list(fed.refused)) == (tuple("abc"), ["d"])


def test_without_masks_a_resumed_run_asks_again_too(tmp_path):
    def run(**options):
        book = Journal(tmp_path / "journal")
        fed = local(hosts("abcd"), quorum=0.5, journal=book, **options).awaiting()
        try:
            return [ask(fed) for _ in range(3)]
        finally:
            book.close()

    with pytest.raises(SitesAway):
        run(absent=absent)
    assert run() == [ask(local(hosts("abcd")))] * 3


@pytest.mark.parametrize("gone", [{1}, {1, 2}])
def test_a_program_that_went_on_without_goes_the_same_way_when_replayed(tmp_path, gone):
    def absent(call, site):
        return call in gone and site == "c"

    def program(**options):
        book = Journal(tmp_path / "journal")
        fed = local(hosts("abcd"), quorum=0.5, journal=book, **options).awaiting()
        seen = []
        for _ in range(4):
            try:
                seen.append(ask(fed))
            except SitesAway as error:
                seen.append(error.sites)
            except SiteUnavailable:
                seen.append(())
        book.close()
        return seen

    first = program(absent=absent)
    assert [call for call, found in enumerate(first) if found == ("c",)] == sorted(gone)
    assert program() == first
