"""A coordinator of masked sums whose sites are at the other end of its pipes.

    python masked_killed.py FOLDER KEYS

KEYS is JSON, the sites' public keys in hex. Requests leave by stdout, as the length and name of a
site, then the length and bytes; replies come by stdin, as length and bytes. What is left of a
journal in FOLDER is resumed; the result lies in FOLDER/result.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import toys
from fedcohort.protocol.line import Silence
from fedcohort.protocol.wire import encode
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.remote import remote


class Pipes:
    """A line to sites that answer one after the other."""

    def __init__(self, sites: list[str]):
        self.sites = sites
        self.connected = frozenset(sites)

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        out, into = sys.stdout.buffer, sys.stdin.buffer
        for site, body in requests.items():
            for part in (site.encode(), body):
                out.write(struct.pack("<Q", len(part)) + part)
            out.flush()
            (length,) = struct.unpack("<Q", into.read(8))
            yield site, into.read(length)


def main(folder: Path, keys: Mapping[str, str]) -> None:
    """Run, or resume, and write `result` when done."""
    fed = remote(
        Pipes(sorted(keys)),
        "r",
        "s",
        journal=Journal(folder / "journal"),
        secure="true",
        masks={name: bytes.fromhex(key) for name, key in keys.items()},
    )
    fit = toys.lasso(fed, penalty=10.0, rounds=12)
    arrays = {"z": fit.z, "residuals": fit.residuals}
    (folder / "result").write_bytes(encode(arrays, {"ledger": fed.ledger.lines}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
