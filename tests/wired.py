"""Sites that are reached by bytes alone, with every fault of a network, for tests.

* `Nodes`: one `SiteEnd` a table over files, restarted at will; notes every byte both ways.
* `walk`, `look`: steps whose state tells all that ever happened at a site.
* `journey`: a program of them; `run_journey` with a journal, killed and resumed at will.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import toys
from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Keep, Site, Step, gathered, message, summed
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.site_end import SiteEnd
from loopback import Fault, LoopbackLine


class Killed(BaseException):
    """Stands for the end of the coordinator's process: nothing catches it."""


class Nodes:
    """Sites with a file each, and the line to them.

    Parameters
    ----------
    folder : where the nodes keep their answers.
    fault : (site, request) → what goes wrong with it.
    options : of `SiteEnd`.
    """

    def __init__(
        self,
        folder: Path,
        tables: Mapping[str, Any],
        steps: Iterable[Step[..., Any]],
        seed: int = 0,
        fault: Callable[[str, bytes], Fault | None] | None = None,
        **options: Any,
    ):
        self.folder, self.tables, self.steps, self.seed = folder, dict(tables), tuple(steps), seed
        self.options = options
        self.came: list[bytes] = []
        self.left: list[bytes] = []
        self.log: list[str] = []
        self.answers: dict[str, Answers] = {}
        self.ends: dict[str, SiteEnd] = {}
        for site in self.tables:
            self.start(site)
        self.line = LoopbackLine({site: self._at(site) for site in self.tables}, fault)

    def start(self, site: str) -> None:
        """Start a node, or start it again: what it held in memory is gone."""
        if site in self.answers:
            self.answers[site].close()
        (host,) = toys.hosts({site: self.tables[site]}, self.steps, self.seed)
        self.answers[site] = Answers(self.folder / f"{site}.sqlite")
        self.ends[site] = SiteEnd(
            site, lambda run, session: host, self.answers[site], log=self.log.append, **self.options
        )

    def _at(self, site: str) -> Callable[[bytes], bytes]:
        def answer(request: bytes) -> bytes:
            self.came.append(request)
            self.left.append(self.ends[site].handle(request))
            return self.left[-1]

        return answer

    def federation(self, **options: Any) -> Coordinator:
        """Return a coordinator of these sites."""
        return remote(self.line, "a study", "a fit", **options)

    def close(self) -> None:
        """Close the files."""
        for answers in self.answers.values():
            answers.close()


def meta_of(body: bytes) -> dict[str, Any]:
    """Return the meta of a record."""
    (length,) = struct.unpack("<Q", body[:8])
    return json.loads(body[8 : 8 + length])["meta"]


# a program whose sites remember everything ----------------------------------------------


@message
class Place:
    """Where a site is (2,)."""

    at: Array


@gathered
def walk(site: Site[Any, Place | None], *, by: Array) -> Keep[Place, Place]:
    """Go on from the last place, by a random step: every call that counts can be seen in it."""
    last = np.zeros(2) if site.state is None else site.state.at
    here = 1.5 * last + by + site.rng.random(2)
    return Keep(Place(here), Place(here))


@summed
def stride(site: Site[Any, Place | None], *, by: Array) -> Keep[Place, Place]:
    """As `walk`, of which the sum alone is told."""
    last = np.ones(2) if site.state is None else site.state.at
    return Keep(Place(last - by), Place(0.5 * last + site.rng.random(2)))


@gathered
def look(site: Site[Any, Place | None]) -> Place:
    """Tell the place, and change nothing."""
    return Place(np.full(2, -1.0) if site.state is None else site.state.at)


STEPS = (walk, stride, look)


def journey(fed: Federation, rounds: int = 4) -> bytes:
    """Walk, stride and look, each depending on what was told before; return all that was told."""
    told, by = [], np.zeros(2)
    for _ in fed.rounds(rounds):
        places = fed.gather(walk, by=by)
        by = np.mean([p.at for p in places.values()], axis=0)
        fed.record(by=float(by[0]))
        by = by + fed.sum(stride, by=by).at / len(fed.answered)
        seen = fed.gather(look)
        told += [p.at.tobytes() for p in (*places.values(), *seen.values())] + [by.tobytes()]
    return b"".join(told)


def outcome(fed: Coordinator, rounds: int = 4) -> tuple[Any, ...]:
    """Return everything that a run leaves."""
    told = journey(fed, rounds)
    return told, fed.ledger.lines, fed.history, fed.missing


def reference(
    tables: Mapping[str, Any], missing: Iterable[tuple[int, str]] = ()
) -> tuple[Any, ...]:
    """Return what the local runtime leaves where these sites do not answer these calls."""
    gone = set(missing)
    fed = local(
        toys.hosts(tables, STEPS), absent=lambda call, site: (call, site) in gone, quorum=0.0
    )
    return outcome(fed)


def attempts(path: Path, start: Callable[[Journal], tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Start again until a run ends; a kill takes what the journal had not handed to the disk."""
    while True:
        journal = Journal(path)
        try:
            yield start(journal)
            return
        except Killed:
            kept = path.read_bytes()
            journal.close()
            path.write_bytes(kept)
        finally:
            journal.close()
