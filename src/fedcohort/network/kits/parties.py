"""The state of a network's sites, as each tells the coordinator in its greeting.

A node greets when it connects and regularly from then on. It tells its clock's offset (`clocks`, by
the answer to its last greeting), whether it can write its state, and its count (`rollback`; it
hears
the highest ever told). The version is that of its signed hello, known also if it does not fit. All
this is shown to people and decides nothing here.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcohort.network import clocks, requests
from fedcohort.network.clocks import Offset
from fedcohort.secure.channel import compatible, upgrade
from fedcohort.version import VERSION

_RESTORED = "It was restored from a backup; its IT has to run 'fedcohort node restored'"
#: Characters shown of a node's text.
LONGEST = 200


@dataclass(frozen=True)
class _Contact:
    """What a node told last, and when."""

    at: float
    offset: Offset | None
    fault: str


class Parties:
    """State of the sites, apart from studies.

    Parameters
    ----------
    versions : by name, as `Callee` keeps them.
    say : prints a line about a problem.
    path : keeps each site's highest count (`rollback`) over restarts.
    """

    def __init__(self, versions: Mapping[str, str], say: Callable[[str], None], path: Path):
        self._versions, self._say, self._path = versions, say, path
        self._highest = _read(path)
        self._older: set[str] = set()
        self._lock = threading.Lock()
        self._heard: dict[str, _Contact] = {}
        self._wrong: dict[str, str] = {}

    def heard(self, site: str, meta: Mapping[str, Any]) -> int | None:
        """Note a site's greeting; report a new problem once.

        Returns
        -------
        highest : the highest count that the site ever told; None if it never told one.
        """
        self._note_health(site, meta)
        count = meta.get("count")
        with self._lock:
            highest = self._highest.get(site)
            if type(count) is not int or not 0 <= count <= requests.LONGEST_LEDGER:
                return highest
            if highest is None or count > highest:
                self._highest[site] = count
                self._save()
        older = highest is not None and count < highest
        if older and site not in self._older:
            self._say(f"{site}: its state is older than what it told before. {_RESTORED}")
        (self._older.add if older else self._older.discard)(site)
        return highest

    def _save(self) -> None:
        fresh = self._path.with_name(f".{self._path.name}.new")
        with contextlib.suppress(OSError):  # a full disk must not end a service
            fresh.write_text(json.dumps(self._highest), encoding="utf-8")
            os.replace(fresh, self._path)

    def _note_health(self, site: str, meta: Mapping[str, Any]) -> None:
        fault = requests.printable(meta.get("fault"))[:LONGEST]
        known = self._heard[site] = _Contact(
            time.time(), clocks.received(meta.get("offset")), fault
        )
        wrong = "; ".join(_wrong(known.offset, known.fault))
        kind = f"{known.offset is not None and known.offset.wrong} {bool(known.fault)}"
        if wrong and self._wrong.get(site) != kind:
            self._say(f"{site}: {wrong}. IT of {site} has to mend it")
        self._wrong[site] = kind if wrong else ""

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return each site's known state, for the service's note."""
        return {
            name: {
                "version": self._versions.get(name, ""),
                "at": None if (known := self._heard.get(name)) is None else round(known.at),
                "offset": None
                if known is None or known.offset is None
                else [round(known.offset.seconds, 3), round(known.offset.bound, 3)],
                "fault": "" if known is None else known.fault,
                "older": name in self._older,
            }
            for name in sorted({*self._heard, *self._versions})
        }


def _read(path: Path) -> dict[str, int]:
    """Return the counts of an earlier process; none where the file cannot be read."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(k): v
            for k, v in found.items()
            if type(v) is int and 0 <= v <= requests.LONGEST_LEDGER
        }
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _wrong(offset: Offset | None, fault: str) -> list[str]:
    """Say what is wrong with a site's clock and disk."""
    found = []
    if offset is not None and offset.wrong:
        found.append(f"its clock is {offset.text} the coordinator's")
    if fault:
        found.append(f"it cannot write its state ({fault})")
    return found


def trouble(name: str, known: Mapping[str, Any]) -> list[str]:
    """Return the known problems of a site, each with who has to act.

    Parameters
    ----------
    known : an entry of `Parties.facts`.
    """
    found: list[str] = []
    here, version = VERSION, str(known.get("version") or "")
    if version and not compatible(version, here):
        found.append(
            f"REFUSED, as the coordinator runs {here} and the first two numbers must agree: "
            f"{upgrade(here, 'the coordinator', version, name)}"
        )
    offset = clocks.received(known.get("offset"))
    if offset is not None and offset.wrong:
        found.append(f"CLOCK {offset.text} the coordinator's: IT of {name} has to compare it")
    if fault := str(known.get("fault") or ""):
        found.append(f"CANNOT WRITE its state ({fault}): IT of {name} has to make room")
    if known.get("older") is True:
        found.append(f"STATE IS OLDER than what it told: IT of {name} runs fedcohort node restored")
    return found


def as_line(name: str, known: Mapping[str, Any], connected: bool) -> str:
    """Return one line of a site for the coordinator's IT: version, clock, and who has to act.

    Parameters
    ----------
    known : an entry of `Parties.facts`.
    """
    version, offset = str(known.get("version") or ""), clocks.received(known.get("offset"))
    said = ["connected" if connected else "not connected"]
    said.append(f"fedcohort {version}" if version else "version not known")
    if offset is None:
        said.append("clock not known")
    elif not offset.wrong:
        said.append(f"clock within {clocks.spell(abs(offset.seconds) + offset.bound)}")
    return f"{name}: {', '.join([*said, *trouble(name, known)])}"
