"""Sites that compute at once, on threads, leave what they leave one after the other."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import toys
from fedcohort.arrays import Array
from fedcohort.protocol.errors import SiteFailed, SiteUnavailable
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered, summed
from fedcohort.runtime.local import local

SITES = tuple("abcdefg")


@message
class Model:
    """Parameters, and one number."""

    theta: Array
    rows: Array


@summed
def part(site: Site[float, None], *, near: Array) -> Model:
    """Reply numbers around `near`."""
    return Model(near + site.rng.normal(size=near.shape), np.array(site.data))


@gathered
def own(site: Site[float, None], *, near: Array) -> Model:
    """Reply the same by itself."""
    return part.run(site, near=near)


@summed
def broken(site: Site[float, None]) -> Model:
    """Break at two sites, first in time at the later one."""
    if site.name == "b":
        time.sleep(0.05)
    if site.name in "be":
        raise ValueError(site.name)
    return Model(np.ones(2), np.array(1.0))


@summed
def thread(site: Site[set[str], None]) -> Model:
    """Note the thread that this runs in."""
    time.sleep(0.002)
    site.data.add(threading.current_thread().name)
    return Model(np.ones(1), np.array(1.0))


def hosts(data: Any = None) -> list[Any]:
    """Return sites that hold one number each."""
    values = {name: float(i) if data is None else data for i, name in enumerate(SITES)}
    return toys.hosts(values, (part, own, broken, thread))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every step be long."""
    monkeypatch.setattr("fedcohort.runtime.local.LONG", 0.0)


def same(one: Any, other: Any) -> None:
    """Two messages are the same bytes."""
    for name in type(one).__dataclass_fields__:
        a, b = getattr(one, name), getattr(other, name)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("threads", [2, 3, 9])
@pytest.mark.parametrize("secure", ["auto", "true", "false"])
def test_sums_and_replies_are_those_of_one_thread_to_the_last_bit(threads, secure):
    fed, here = (local(hosts(), threads=n, secure=secure) for n in (threads, 1))
    for size in (10, 9000):
        near = np.random.default_rng(size).normal(size=size)
        heavy = {name: 0.1 + i for i, name in enumerate(SITES)}
        if secure != "true":  # keys differ, and the exact sum is the same
            same(
                fed.weighted(heavy).sum(part, near=near), here.weighted(heavy).sum(part, near=near)
            )
        same(fed.sum(part, near=near), here.sum(part, near=near))
        replies = here.gather(own, near=near)
        for name, reply in fed.gather(own, near=near).items():
            same(reply, replies[name])
    assert fed.answered == here.answered == SITES
    assert fed.ledger.lines == here.ledger.lines


@pytest.mark.usefixtures("at_once")
def test_an_error_is_that_of_the_first_site_and_the_next_call_is_answered():
    fed = local(hosts(), threads=3)
    for _ in range(2):
        with pytest.raises(SiteFailed, match=r"^site 'b' failed in step broken"):
            fed.sum(broken)
    here = local(hosts())
    here._run.call = fed._run.call  # the draws of a site hang on the call's number
    same(fed.sum(part, near=np.zeros(3)), here.sum(part, near=np.zeros(3)))


@pytest.mark.usefixtures("at_once")
def test_sites_that_do_not_answer_are_missing_as_on_one_thread():
    def absent(call: int, site: str) -> bool:
        return (call + ord(site)) % 5 == 0

    near = np.ones(9)
    fed, here = (local(hosts(), threads=n, absent=absent, quorum=0.5) for n in (3, 1))
    for _ in range(5):
        same(fed.sum(part, near=near), here.sum(part, near=near))
    assert fed.missing == here.missing
    lost = local(hosts(), threads=3, absent=absent)
    with pytest.raises(SiteUnavailable, match=r"6 of 7 sites answered part, .* missing: d\."):
        for _ in range(5):
            lost.sum(part, near=near)


def test_a_long_first_site_sends_the_others_to_threads_in_the_same_call():
    """So that a step that is called once, such as an ensemble's, has its threads as well."""
    names: set[str] = set()

    @summed
    def slow(site: Site[set[str], None]) -> Model:
        time.sleep(0.021 * (site.name == "a"))
        site.data.add(threading.current_thread().name)
        return Model(np.ones(1), np.array(1.0))

    fed = local(toys.hosts(dict.fromkeys(SITES, names), (slow,)), threads=2)
    assert fed.sum(slow).theta.tolist() == [7.0]
    assert names == {threading.current_thread().name, "site-0_0", "site-1_0"}


def test_a_fit_of_small_calls_stays_in_its_own_thread():
    names: set[str] = set()
    fed = local(hosts(names), threads=2)
    for _ in range(3):
        fed.sum(thread)
    assert names == {threading.current_thread().name}


@pytest.mark.usefixtures("at_once")
def test_at_most_so_many_sites_compute_at_once():
    names: set[str] = set()
    fed = local(hosts(names), threads=2)
    fed.sum(thread)
    names.clear()
    fed.sum(thread)
    assert names == {"site-0_0", "site-1_0"}


def test_sites_may_reply_one_and_the_same_memory_where_they_compute_one_by_one():
    """1 + 2 + … + 7 = 28: each reply has been read before the next site's step runs."""

    @summed
    def scratch(site: Site[Array, None]) -> Model:
        site.data[:] += 1.0
        return Model(site.data, np.array(1.0))

    for secure in ("auto", "true", "false"):
        shared = np.zeros(20_000)
        fed = local(toys.hosts(dict.fromkeys(SITES, shared), (scratch,)), secure=secure)
        assert set(fed.sum(scratch).theta.tolist()) == {28.0}


@pytest.mark.usefixtures("at_once")
def test_sites_on_one_thread_may_reply_one_memory_while_other_threads_compute():
    """Each thread has its own; a site that is slow to be read must not be overwritten."""
    memory = threading.local()

    @summed
    def scratch(site: Site[float, None]) -> Model:
        if not hasattr(memory, "own"):
            memory.own = np.empty(20_000)
        memory.own[:] = 2.0**site.data
        time.sleep(0.002 * (site.name == "a"))
        return Model(memory.own, np.array(1.0))

    fed = local(toys.hosts({n: float(i) for i, n in enumerate(SITES)}, (scratch,)), threads=3)
    for _ in range(5):
        assert set(fed.sum(scratch).theta.tolist()) == {2.0**7 - 1}
