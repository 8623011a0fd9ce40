"""A step's twin, which runs for several sites at once, changes nothing but the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import Task
from fedcohort.protocol.errors import FedcohortError
from fedcohort.protocol.host import Host
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Keep, Site, Summed, gathered, summed
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local

SITES = tuple("abcde")
asked: list[tuple[str, ...]] = []


@message
class Number:
    """One number of a site."""

    value: Array


def _twice_each(sites: Any, *, by: float) -> list[Number] | None:
    asked.append(tuple(s.name for s in sites))
    if by < 0:
        raise ValueError(by)
    return None if by == 0 else [Number(np.array(by * s.data)) for s in sites]


@summed(many=_twice_each)
def twice(site: Site[float, None], *, by: float) -> Number:
    """Reply with a multiple."""
    if by < 0 and site.name == "c":
        raise ValueError(site.data)
    return Number(np.array(by * site.data))


@gathered(many=_twice_each)
def each(site: Site[float, None], *, by: float) -> Number:
    """Reply the same by itself."""
    return twice.run(site, by=by)


@summed
def keeps(site: Site[float, None]) -> Keep[Number, Number]:
    """Leave a state."""
    return Keep(Number(np.array(1.0)), Number(np.array(1.0)))


def fed(**changed: Any) -> Any:
    """Return a federation of sites that hold one number each."""
    asked.clear()
    made = [
        Host(name, float(k), (twice, each, keeps), **(changed if name == "c" else {}))
        for k, name in enumerate(SITES)
    ]
    return local(made, quorum=0.5)


def test_sites_that_are_there_are_asked_at_once():
    there = fed()
    assert float(there.sum(twice, by=2.0).value) == 20.0
    assert {k: float(v.value) for k, v in there.gather(each, by=1.0).items()} == dict(
        zip(SITES, map(float, range(5)), strict=True)
    )
    assert asked == [SITES, SITES]


def test_a_twin_that_declines_is_followed_by_one_by_one():
    assert float(fed().sum(twice, by=0.0).value) == 0.0
    assert asked == [SITES]


def test_an_error_in_a_twin_is_the_sites_own_error_in_its_turn():
    with pytest.raises(FedcohortError, match=r"site 'c' failed in step twice \(ValueError\)"):
        fed().sum(twice, by=-1.0)
    assert asked == [SITES]


def test_a_site_with_consent_or_with_a_state_is_asked_by_itself():
    told: list[str] = []
    there = fed(consent=lambda call, arguments: told.append(call.step.name))
    assert float(there.sum(twice, by=2.0).value) == 20.0
    assert (asked, told) == ([], ["twice"])
    there = fed()
    there.sum(keeps)
    there.sum(twice, by=2.0)
    assert asked == []


def test_a_host_that_answers_in_its_own_way_is_not_passed_by():
    class Liar(Host):
        def answer(self, *args: Any, **kwargs: Any) -> Any:
            found = super().answer(*args, **kwargs)
            found.reply["value"] = np.array(100.0)
            return found

    made = [(Liar if n == "c" else Host)(n, 1.0, (twice,)) for n in SITES]
    assert float(local(made).sum(twice, by=1.0).value) == 104.0


def test_an_absent_site_is_not_computed():
    made = [Host(name, 1.0, (twice,)) for name in SITES]
    asked.clear()
    there = local(made, quorum=0.5, absent=lambda call, site: site == "b")
    assert float(there.sum(twice, by=1.0).value) == 4.0
    assert asked == [("a", "c", "d", "e")]


def test_a_reply_of_a_twin_is_checked_as_any_other():
    def odd(sites: Any, *, by: float) -> list[Number]:
        return [Number(np.array(np.nan if s.name == "d" else by)) for s in sites]

    step = Summed(twice.run, many=odd)
    there = local([Host(name, 1.0, (step,)) for name in SITES], quorum=0.5)
    assert float(there.sum(step, by=1.0).value) == 4.0
    assert there.missing == [(0, "d")]


def test_a_step_with_a_state_names_no_twin():
    with pytest.raises(TypeError, match="step keeps names a twin"):
        Summed(keeps.run, many=_twice_each)


def tables(seed: int) -> dict[str, SurvivalTable]:
    """Sites of other sizes, one without a death."""
    rng = np.random.default_rng(seed)
    out: dict[str, SurvivalTable] = {}
    for site, n in zip(SITES, (21, 24, 20, 60, 50), strict=True):
        event = (rng.random(n) < 0.6) & (site != "e")
        out[site] = SurvivalTable(rng.normal(size=(n, 3)), np.ceil(rng.exponential(9, n)), event)
    return out


@pytest.mark.parametrize("strategy", ["fedavg", "ensemble", "exact"])
def test_fits_have_the_same_bits_and_ledgers_at_once_one_by_one_and_resumed(strategy, tmp_path):
    config = METHOD.configure({"strategy": strategy, "rounds": 3, "time_grid": "exact"})
    task = Task(kind="survival", features=("x", "y", "z"), seed=1)

    def fit(journal: Journal | None = None, consent: Any = None) -> tuple[bytes, list[str]]:
        made = [Host(k, t, METHOD.steps, consent=consent) for k, t in tables(0).items()]
        there = local(made, journal=journal)
        model = METHOD.fit(there, config, task)
        if journal is not None:
            journal.close()
        return b"".join(a.tobytes() for a in model.arrays().values()), there.ledger.lines

    path = tmp_path / "journal"
    at_once = fit(Journal(path))
    assert fit(consent=lambda call, arguments: None) == at_once
    whole = path.read_bytes()
    path.write_bytes(whole[: 2 * len(whole) // 3])
    assert fit(Journal(path)) == at_once
