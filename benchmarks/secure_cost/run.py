"""What masking costs: sites x parameters, seconds at a site and at the coordinator, and bytes.

    python benchmarks/secure_cost/run.py [--sites 2 3 10 50] [--parameters 10000 1000000] [--json F]

A reply is one float64 field that is declared to hold a model's parameters: one word a number.
Each row prepares an epoch of four slots and forms two sums: with all sites, and with a third of
them (as many as the threshold allows) gone after the keys and shares. Seconds are the processor's,
on one thread. A site's seconds and bytes are means over sites. "Epoch" is what keys and shares cost
one site for one slot; a slot that is never used costs that and nothing more. Bytes are those of the
messages as JSON and of the vector, both ways; the expansion is against the plain vector of 8 bytes
a number, sent once.

    python benchmarks/secure_cost/run.py --memory

gives instead the most memory that a site needs beside its reply while it masks it, and that the
coordinator needs from the first masked reply to the total, those it is handed one by one included,
in MiB; all sites there, and a third of them gone.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from pathlib import Path

import numpy as np

from fedcohort.protocol.errors import Refused
from fedcohort.secure import (
    Context,
    Gathering,
    Identity,
    Layout,
    Member,
    add,
    decode,
    digest,
    encode,
    prepare,
    zeros,
)
from fedcohort.secure.exchange.messages import FEWEST

SLOTS = 4


class Clock:
    """Seconds by name, summed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name, call, *arguments):
        """Return a call's value, and add its seconds to `name`."""
        began = time.process_time()
        value = call(*arguments)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began
        return value


def size(message) -> int:
    return len(json.dumps(message.to_meta()))


def one_sum(members, gathering, vector, layout, gone, clock) -> dict[str, float]:
    """Form one sum, without the sites `gone`, and return its bytes by direction and site."""
    summing = gathering.begin(digest("call", sorted(gone)))
    here = [name for name in summing.asked.members if name not in gone]
    up = down = 0
    for name in here:
        post = gathering.post(name)
        sent = clock("site", members[name].mask, summing.asked, vector, layout, post)
        down += size(summing.asked) + size(post) / SLOTS
        up += size(sent) + sent.vector.nbytes
        clock("coordinator", summing.add, sent)
    said = summing.survivors()
    for name in here:
        signed = clock("site", members[name].sign, said)
        down, up = down + size(said), up + size(signed)
        clock("coordinator", summing.add_signature, signed)
    ballot = summing.ballot()
    for name in summing.signers:
        answer = clock("site", members[name].unmask, ballot)
        down, up = down + size(ballot), up + size(answer)
        clock("coordinator", summing.add_answer, answer)
    total = clock("coordinator", summing.total)
    wanted = zeros(layout)
    for _ in here:
        add(wanted, vector, layout)
    assert np.array_equal(total, wanted), "a wrong sum"
    decode(total, layout)
    return {"up": up / len(here), "down": down / len(here), "here": len(here)}


def federation(n: int):
    """Return n members by name, and an epoch that is not prepared."""
    names = [f"site{i:02}" for i in range(n)]
    identities = {name: Identity.new() for name in names}
    roster = {name: identity.public for name, identity in identities.items()}
    context = Context("run", "session", "history", roster)
    members = {name: Member(name, identities[name], context) for name in names}
    return members, Gathering(context, 0, SLOTS)


def reply_of(parameters: int):
    """Return a reply and its layout."""
    reply = {"theta": np.random.default_rng(0).standard_normal(parameters)}
    return reply, Layout.of(reply, coarse=("theta",))


def memory(n: int, parameters: int) -> list[dict[str, float]]:
    """Return the peaks of one site and of the coordinator, all there and some gone."""
    members, gathering = federation(n)
    prepare(members, gathering)
    reply, layout = reply_of(parameters)
    vector = encode(reply, layout, n=n)
    rows = []
    most = n - max(3, gathering.roll().threshold)
    for gone in (0, most) if most else (0,):
        summing = gathering.begin(digest("call", gone))
        names = summing.asked.members[gone:]
        tracemalloc.start()
        site = coordinator = 0
        for name in names:
            at, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            sent = members[name].mask(summing.asked, vector, layout, gathering.post(name))
            _, peak = tracemalloc.get_traced_memory()
            site = max(site, peak - at)
            tracemalloc.reset_peak()
            summing.add(sent)
            _, peak = tracemalloc.get_traced_memory()
            coordinator = max(coordinator, peak)
            del sent
        said = summing.survivors()
        for name in names:
            summing.add_signature(members[name].sign(said))
        for name in summing.signers:
            summing.add_answer(members[name].unmask(summing.ballot()))
        tracemalloc.reset_peak()
        summing.total()
        coordinator = max(coordinator, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        row = {"sites": n, "parameters": parameters, "gone": gone, "vector_mib": vector.nbytes}
        row |= {"site_mib": site, "coordinator_mib": coordinator}
        rows.append({k: v / 2**20 if k.endswith("mib") else v for k, v in row.items()})
    return rows


def row(n: int, parameters: int) -> list[dict[str, float]]:
    """Measure n sites, all there and with as many gone as the threshold allows."""
    members, gathering = federation(n)
    names = list(members)
    clock, letters = Clock(), 0
    for member in members.values():
        advert = clock("epoch", member.advertise, 0, SLOTS)
        gathering.add_advert(advert)
        letters += size(advert)
    roll = gathering.roll()
    for member in members.values():
        sealed = clock("epoch", member.share, roll)
        gathering.add_shares(sealed)
        letters += size(sealed) + size(roll)
    reply, layout = reply_of(parameters)
    vector = clock("encode", lambda: encode(reply, layout, n=n))
    rows = []
    for gone in ([], names[: n - max(3, roll.threshold)]):
        part = Clock()
        got = one_sum(members, gathering, vector, layout, set(gone), part)
        bytes_site = got["up"] + got["down"] + letters / n / SLOTS
        rows.append(
            {
                "sites": n,
                "parameters": parameters,
                "gone": len(gone),
                "encode_s": clock.seconds["encode"],
                "epoch_s": clock.seconds["epoch"] / n / SLOTS,
                "site_s": part.seconds["site"] / got["here"],
                "coordinator_s": part.seconds["coordinator"],
                "bytes_site": round(bytes_site),
                "vector_expansion": vector.nbytes / (8 * parameters),
                "expansion": bytes_site / (8 * parameters),
            }
        )
        if not gone and n - max(3, roll.threshold) == 0:
            break
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, nargs="+", default=[2, 3, 5, 10, 20, 50])
    parser.add_argument("--parameters", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory", action="store_true")
    asked = parser.parse_args()
    kept = []
    if asked.memory:
        print("| sites | parameters | gone | vector MiB | site MiB | coordinator MiB |")
        print("|---|---|---|---|---|---|")
        for n in asked.sites:
            for r in memory(n, max(asked.parameters)) if n >= FEWEST else ():
                print(
                    f"| {n} | {r['parameters']} | {r['gone']} | {r['vector_mib']:.1f} "
                    f"| {r['site_mib']:.1f} | {r['coordinator_mib']:.1f} |",
                    flush=True,
                )
        return
    print("| sites | parameters | gone | encode s | epoch s/slot | site s | coordinator s "
          "| bytes/site | vector x | all bytes x |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for n in asked.sites:
        for parameters in asked.parameters:
            try:
                rows = row(n, parameters)
            except Refused as error:
                print(f"| {n} | {parameters} | refused: {error} |")
                kept.append({"sites": n, "parameters": parameters, "refused": str(error)})
                continue
            for r in rows:
                kept.append(r)
                print(
                    f"| {n} | {parameters} | {r['gone']} | {r['encode_s']:.4f} "
                    f"| {r['epoch_s']:.4f} | {r['site_s']:.4f} | {r['coordinator_s']:.3f} "
                    f"| {r['bytes_site']} | {r['vector_expansion']:.2f} | {r['expansion']:.3f} |",
                    flush=True,
                )
    if asked.json is not None:
        asked.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
