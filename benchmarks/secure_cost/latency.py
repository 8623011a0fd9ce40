"""How long one small masked sum takes: all bytes and stages as on a network, without its distance.

    python benchmarks/secure_cost/latency.py [--sites 3 4 8 10] [--repeats 100]

Sites answer one after the other in this process, over `tests/loopback.py`, each with a store of its
own on disk: that a sum is revealed is written there before a share leaves. A reply is two counts
and 20 real numbers. Milliseconds are means over the sums after the first four, new epochs of keys
included; "processor" is that of all sites and the coordinator together. Bytes are of one site,
both ways. "plain" is the same sum without masks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.host import Host, Site
from fedcohort.protocol.message import message
from fedcohort.protocol.step import summed
from fedcohort.runtime.masked.end import ANY, Keys, SumRule
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.site_end import SiteEnd
from fedcohort.secure import Identity
from loopback import LoopbackLine


@message
class Sums:
    """Two counts, and sums of 20 columns."""

    rows: Array
    events: Array
    x_sum: Array


@summed
def totals(site: Site[Array, None], *, power: int) -> Sums:
    """Return counts and the sums of a power of the columns."""
    x = site.data**power
    return Sums(np.array(len(x)), np.array(int((x[:, 0] > 0).sum())), x.sum(0))


def measure(n: int, repeats: int, *, masked: bool, folder: Path) -> dict[str, float]:
    """Return milliseconds a sum, by the wall and the processor, and bytes a site and sum."""
    names = [f"site{i:02}" for i in range(n)]
    keys = {name: Identity.new() for name in names}
    pinned = {name: key.public for name, key in keys.items()}
    count = 0

    def end(i: int, name: str):
        host = Host(name, np.random.default_rng(i).normal(size=(50, 20)), (totals,), 0)
        rule = SumRule(ANY, lambda: Keys(keys[name], pinned))
        store = Answers(folder / f"{masked}-{n}-{name}.sqlite")
        site = SiteEnd(name, lambda run, session: host, store, sums=lambda run: rule)

        def answer(request: bytes) -> bytes:
            nonlocal count
            reply = site.handle(request)
            count += len(request) + len(reply)
            return reply

        return answer

    line = LoopbackLine({name: end(i, name) for i, name in enumerate(names)})
    fed = remote(line, "run", "session", masks=pinned if masked else None)
    for _ in range(4):
        fed.sum(totals, power=1)
    count, wall, processor = 0, time.perf_counter(), time.process_time()
    for _ in range(repeats):
        fed.sum(totals, power=1)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    per = 1e3 / repeats
    return {"wall": wall * per, "processor": processor * per, "bytes": count / repeats / n}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 4, 8, 10])
    parser.add_argument("--repeats", type=int, default=100)
    asked = parser.parse_args()
    print("| sites | masked ms | of it processor ms | plain ms | masked bytes | plain bytes |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for n in asked.sites:
            m = measure(n, asked.repeats, masked=True, folder=Path(folder))
            p = measure(n, asked.repeats, masked=False, folder=Path(folder))
            print(
                f"| {n} | {m['wall']:.1f} | {m['processor']:.1f} | {p['wall']:.2f} "
                f"| {m['bytes']:.0f} | {p['bytes']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
