"""What Shamir's shares cost by package pycryptodome, one by one, and by arrays, all at once.

    python benchmarks/secure_cost/shares.py [--sites 10 50]

One sum's work: a site splits its two secrets for each slot of an epoch of 16, and the coordinator
combines one secret of every site from as many shares as the threshold asks for. Seconds are the
processor's, on one thread, the least of five times. "First" is a sum over a set of sites that was
not combined before; for the next sums over the same set its weights are known ("again"). Both ways
must give the secrets back, and each the secrets of the other's shares.
"""

from __future__ import annotations

import argparse
import secrets as system
import time
from collections.abc import Callable
from typing import Any

from Crypto.Protocol.SecretSharing import Shamir

from fedcohort.protocol.private import threshold
from fedcohort.secure.arithmetic import shares
from fedcohort.secure.arithmetic.keystream import SEED

SLOTS, TIMES = 16, 5


def least(call: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> tuple[float, Any]:
    """Return the least processor seconds of a call, and what it gave."""
    took, found = [], None
    for _ in range(TIMES):
        before()
        began = time.process_time()
        found = call()
        took.append(time.process_time() - began)
    return min(took), found


def by_place(texts: list[Any], m: int, t: int) -> dict[int, list[bytes]]:
    """Return the first t holders' shares of m secrets, by place."""
    return {
        x: [bytes(text[SEED * k : SEED * (k + 1)]) for k in range(m)]
        for x, text in enumerate(texts[:t], 1)
    }


def row(n: int) -> dict[str, float]:
    """Measure n sites."""
    t, own, every = threshold(n), 2 * SLOTS, n
    split = [system.token_bytes(SEED) for _ in range(own)]
    package, theirs = least(lambda: [Shamir.split(t, n, secret, False) for secret in split])
    arrays, ours = least(lambda: shares.split_all(split, t, n))
    assert shares.combine_all(
        {x: [bytes(dict(one)[x]) for one in theirs] for x in range(1, t + 1)}, t
    ) == split, "other secrets"  # fmt: skip
    held = by_place(ours, own, t)
    for k, secret in enumerate(split):
        assert Shamir.combine([(x, held[x][k]) for x in held], False) == secret, "other secrets"
    told = [system.token_bytes(SEED) for _ in range(every)]
    held = by_place(shares.split_all(told, t, n), every, t)
    combined, one = least(
        lambda: [Shamir.combine([(x, held[x][k]) for x in held], False) for k in range(every)]
    )
    first, two = least(lambda: shares.combine_all(held, t), shares._weights.cache_clear)
    again, _ = least(lambda: shares.combine_all(held, t))
    assert one == two == told, "other secrets"
    return {
        "sites": n, "threshold": t, "split": package, "split_all": arrays,
        "combine": combined, "first": first, "again": again,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 50])
    print("| sites | t | split: package ms | arrays ms | times | combine: package ms | "
          "arrays, first ms | again ms | times, first | times, again |")  # fmt: skip
    print("|---" * 10 + "|")
    for n in parser.parse_args().sites:
        r = row(n)
        ms = {k: 1e3 * v for k, v in r.items()}
        print(
            f"| {n} | {r['threshold']} | {ms['split']:.1f} | {ms['split_all']:.2f} "
            f"| {r['split'] / r['split_all']:.0f} | {ms['combine']:.1f} | {ms['first']:.1f} "
            f"| {ms['again']:.2f} | {r['combine'] / r['first']:.1f} "
            f"| {r['combine'] / r['again']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
