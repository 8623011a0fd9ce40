"""A site whose one study gives back what it is given: the network's own cost, without arithmetic.

    python benchmarks/network/echo.py KIT

Everything but the study is the product's: kit, engine, handshake and seal, strict decoding, store.
"""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

import numpy as np

from fedcohort.arrays import Array
from fedcohort.network import engines
from fedcohort.network.kits.make import Kit
from fedcohort.protocol.host import Host
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Keep, Site, gathered
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.site_end import SiteEnd
from fedcohort.secure.trust import Peer


@message
class Numbers:
    """What came."""

    x: Array


@message
class Count:
    """How many calls were answered."""

    n: Array


@gathered
def echo(site: Site[None, Count | None], x: Array) -> Numbers:
    """Give back what came."""
    return Numbers(x)


@gathered
def remember(site: Site[None, Count | None], x: Array) -> Keep[Numbers, Count]:
    """Give back what came, and count it: the store is on the disk before the reply leaves."""
    n = 0 if site.state is None else int(site.state.n)
    return Keep(Numbers(x), Count(np.array(n + 1)))


def main() -> None:
    """Serve until killed."""
    logging.basicConfig(level=logging.ERROR)
    kit = Kit.read(Path(sys.argv[1]))
    answers = Answers(kit.folder / "echo.sqlite")
    end = SiteEnd(kit.name, lambda run, session: Host(kit.name, None, (echo, remember), 0), answers)

    def inner(peer: Peer, body: bytes) -> bytes:
        return end.handle(body)

    spoke = engines.spoke(kit, inner)
    spoke.start()
    print("started", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
