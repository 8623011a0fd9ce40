"""Private steps in masked sums: how much noise the sum has, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcohort.arrays import Array
from fedcohort.engines.flower.local import flower_local
from fedcohort.privacy.guard import SiteGuard
from fedcohort.protocol import Dp, Private, Refused, Release, Site, message, summed
from fedcohort.protocol.host import Host
from fedcohort.protocol.private import threshold
from fedcohort.runtime.local import local
from fedcohort.runtime.masked.end import NEVER, Keys, SumRule
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.site_end import SiteEnd
from fedcohort.secure.context import Identity
from loopback import Fault, LoopbackLine
from wired import meta_of

NAMES = ("a", "b", "c", "d")
SIZE, NOISE, SENSITIVITY = 4000, 3.0, 2.0
DP = Dp(epsilon=100.0, delta=1e-5)


@message
class Told:
    x: Array


@summed
def totals(site: Site[Any, None]) -> Private[Told]:
    """Sum nothing but noise."""
    return Private(Told(np.zeros(SIZE)), {"x": SENSITIVITY})


def hosts(seed: int | None, count: int = 5) -> list[Host]:
    """Sites whose noise is the operating system's; with a seed, that of a simulation."""
    listed = (Release(step="totals", noise=NOISE, count=count),)
    return [
        Host(name, None, (totals,), 1, None, SiteGuard(name, "demo", listed, DP, 100, seed))
        for name in NAMES
    ]


def network(folder: Path, fault: Any = lambda site, kind: None, **options: Any):
    """Give a masked federation of four nodes over a line of this process."""
    keys = {name: Identity.new() for name in NAMES}
    pinned = {name: key.public for name, key in keys.items()}

    def end(host: Host) -> SiteEnd:
        rule = SumRule(NEVER, lambda: Keys(keys[host.name], pinned))
        answers = Answers(folder / f"{host.name}.sqlite")
        return SiteEnd(host.name, lambda run, session: host, answers, sums=lambda run: rule)

    ends = {host.name: end(host).handle for host in hosts(None)}
    line = LoopbackLine(ends, lambda site, request: fault(site, meta_of(request)["kind"]))
    return remote(line, "r", "s", masks=pinned, timeout=0.05, patience=0.01, **options)


@pytest.mark.parametrize(
    ("stage", "sites", "times"), [("never", 4, 4 / 3), ("call", 3, 1.0), ("keys", 3, 3 / 2)]
)
def test_a_masked_sum_has_n_shares_of_the_noise_of_which_t_are_the_whole(
    tmp_path, stage, sites, times
):
    """With t = 3 of 4 sites asked each adds σ²/3; of 3 asked, where one never came, σ²/2."""
    assert [threshold(n) for n in (3, 4)] == [2, 3]
    fed = network(tmp_path, lambda s, k: Fault.DOWN if (s, k) == ("d", stage) else None, quorum=0.5)
    noise = np.concatenate([np.asarray(fed.sum(totals).x) for _ in range(3)])
    assert len(fed.answered) == sites
    whole = (NOISE * SENSITIVITY) ** 2
    assert noise.var() == pytest.approx(times * whole, rel=5 * np.sqrt(2 / noise.size))
    assert all(json.loads(line)["masked"] for line in fed.ledger.lines)


@pytest.mark.parametrize("secure", ["auto", "true", "false"])
def test_flowers_messages_give_the_noise_of_the_local_runtime_bit_by_bit(secure):
    here = local(hosts(7), secure=secure)
    wanted = [np.asarray(here.sum(totals).x).tobytes() for _ in range(2)]
    with flower_local(hosts(7), secure=secure) as fed:
        assert [np.asarray(fed.sum(totals).x).tobytes() for _ in range(2)] == wanted
    assert wanted[0] != wanted[1]


def test_sums_with_noise_have_no_weights(tmp_path):
    """A weight near 0 would take a site's noise away, where the others' is only a share."""
    fed = network(tmp_path).weighted(dict.fromkeys(NAMES, 1.0))
    with pytest.raises(Refused, match="weighted sum of it has other noise") as told:
        fed.sum(totals)
    assert told.value.code == "dp"
    (tmp_path / "liar").mkdir()
    liar = network(tmp_path / "liar")
    transport = liar._run.transport
    honest = transport.total
    transport.total = lambda call, to, weights: honest(call, to, dict.fromkeys(NAMES, 1.0))
    with pytest.raises(Refused, match="such sums have no weights") as told:
        liar.sum(totals)
    assert told.value.code == "dp"
    assert not liar.ledger.lines
