"""A coordinator that is killed outright in the middle of a masked sum is resumed to the same bits.

The coordinator is a process of its own, killed by the system; the sites see each request, so that
the moment is the one that is meant.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import toys
from fedcohort.protocol.wire import encode
from fedcohort.runtime.local import local
from fedcohort.runtime.masked.end import NEVER, Keys, SumRule
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.site_end import SiteEnd
from fedcohort.secure.context import Identity
from wired import meta_of

PROGRAM = Path(__file__).with_name("masked_killed.py")
TESTS = Path(__file__).parents[1]

#: By name: the kind of request at which the process is killed, of the last site of a sum or of the
#: first, and whether the site has answered it by then.
MOMENTS = {
    "a site has its request, nothing is given": ("call", "a", False),
    "all masked parts are given, the last did not arrive": ("call", "c", True),
    "all masked parts arrived, nobody has signed": ("sign", "a", False),
    "all have signed, nobody has unmasked": ("unmask", "a", False),
    "one has unmasked": ("unmask", "a", True),
    "all have unmasked, the sum is in no journal": ("unmask", "c", True),
}


class Ward:
    """Three sites, and the process that asks them."""

    def __init__(self, folder: Path):
        self.folder = folder
        keys = {name: Identity.new() for name in "abc"}
        pinned = {name: key.public for name, key in keys.items()}
        self._keys = json.dumps({name: key.hex() for name, key in pinned.items()})
        self.heard: list[tuple[str, str]] = []

        def end(host):
            rule = SumRule(NEVER, lambda: Keys(keys[host.name], pinned))
            answers = Answers(folder / f"{host.name}.sqlite")
            return SiteEnd(host.name, lambda run, session: host, answers, sums=lambda run: rule)

        hosts = toys.hosts(toys.regressions(), toys.ADMM)
        self.ends = {host.name: end(host) for host in hosts}

    def run(self, killed: Callable[[str, str, bool], bool] = lambda *_: False) -> int:
        """Let a process run, until it ends or `killed` says so of a request; return its code."""
        code = f"import sys; sys.path.insert(0, {str(TESTS)!r}); sys.argv = ['', "
        code += f"{str(self.folder)!r}, {self._keys!r}]; import runpy; "
        code += f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
            for site, body in _requests(process):
                kind = meta_of(body)["kind"]
                self.heard.append((site, kind))
                if killed(kind, site, False):
                    process.kill()
                    break
                reply = self.ends[site].handle(body)
                if killed(kind, site, True):
                    process.kill()
                    break
                process.stdin.write(struct.pack("<Q", len(reply)) + reply)
                process.stdin.flush()
            return process.wait()


def _requests(process: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
    def part() -> bytes | None:
        head = process.stdout.read(8)
        return process.stdout.read(struct.unpack("<Q", head)[0]) if len(head) == 8 else None

    while (site := part()) is not None:
        body = part()
        assert body is not None
        yield site.decode(), body


def result_of_the_local_runtime() -> bytes:
    fed = local(toys.hosts(toys.regressions(), toys.ADMM), secure="true")
    fit = toys.lasso(fed, penalty=10.0, rounds=12)
    return encode({"z": fit.z, "residuals": fit.residuals}, {"ledger": fed.ledger.lines})


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_coordinator_is_resumed_to_the_bits_of_a_run_that_was_not(tmp_path, moment):
    ward, (wanted, last, answered) = Ward(tmp_path), MOMENTS[moment]
    for nth in (1, 9, 10):  # of the sums of that process: a step with a state, and one without
        seen = 0

        def now(kind: str, site: str, after: bool, nth: int = nth) -> bool:
            nonlocal seen
            here = (kind, site, after) == (wanted, last, answered)
            seen += here
            return here and seen == nth

        assert ward.run(now) == -9
        assert not (tmp_path / "result").exists()
    assert ward.run() == 0
    assert (tmp_path / "result").read_bytes() == result_of_the_local_runtime()
    unmasked = sum(kind == "unmask" for _, kind in ward.heard)
    assert unmasked >= 24 * 3
