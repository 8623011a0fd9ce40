"""What masking costs: sites x parameters, seconds at a site and at the coordinator, and bytes.

    python benchmarks/secure_cost/run.py [--sites 2 3 10 50] [--parameters 10000 1000000] [--json F]

A reply is one float64 field: of 1e4 numbers it takes three words a number ("fine"), of more one
word ("coarse"). Each row prepares an epoch of two slots and forms two sums: with all sites, and
with a third of them (as many as the threshold allows) gone after the keys and shares. A site's
seconds and bytes are means over sites. "Epoch" is what keys and shares cost one site for one slot;
a slot that is never used costs that and nothing more. Bytes are those of the messages as JSON and
of the vector, both ways; the expansion is against the plain vector of 8 bytes a number, sent once.
"""

from __future__ import annotations

import argparse
import json
import time
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
    zeros,
)

SLOTS = 2


class Clock:
    """Seconds by name, summed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name, call, *arguments):
        """Return a call's value, and add its seconds to `name`."""
        began = time.perf_counter()
        value = call(*arguments)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
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
    for name in here:
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


def row(n: int, parameters: int) -> list[dict[str, float]]:
    """Measure n sites, all there and with as many gone as the threshold allows."""
    names = [f"site{i:02}" for i in range(n)]
    identities = {name: Identity.new() for name in names}
    roster = {name: identity.public for name, identity in identities.items()}
    context = Context("run", "session", "history", roster)
    members = {name: Member(name, identities[name], context) for name in names}
    clock, letters = Clock(), 0
    gathering = Gathering(context, 0, SLOTS)
    for member in members.values():
        advert = clock("epoch", member.advertise, 0, SLOTS)
        gathering.add_advert(advert)
        letters += size(advert)
    roll = gathering.roll()
    for member in members.values():
        sealed = clock("epoch", member.share, roll)
        gathering.add_shares(sealed)
        letters += size(sealed) + size(roll)
    reply = {"w": np.random.default_rng(0).standard_normal(parameters)}
    layout = Layout.of(reply)
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
    asked = parser.parse_args()
    kept = []
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
