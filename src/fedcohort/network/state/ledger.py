"""The site's own ledger: one line per reply, written before the reply leaves.

    {"at", "run", "session", "call", "step", "verb", "fields": {name: {"shape", "dtype", "bytes"}},
     "masked"}
    {"at", "run", "told": "refused", "code", "text"}      an answer in words; of a private study's
                                                          call with its session, and "call": null

Lines are only appended. The operating system gets each at once (the node's death loses none); the
disk gets them when a study ends and at least every few seconds (a power cut loses few). They hold
names, shapes and sizes, never a number that was sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fedcohort.network.state.study_store import now
from fedcohort.report import words

#: Seconds after which lines are on the disk at the latest.
EVERY = 5.0
#: Sessions' names, as `study.at_site.sessions` makes them.
_NAME = re.compile("[a-z0-9-]{1,64}")


class NodeLedger:
    """The open ledger of a running node; safe for several threads."""

    def __init__(self, path: Path):
        self._lock = threading.Lock()
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(self._handle).st_size
        self._torn = size > 0 and os.pread(self._handle, 1, size - 1) != b"\n"
        self._path = path
        self._counts: dict[str, Counter[str]] = {}
        self._synced = time.monotonic()

    def left(
        self,
        run: str,
        session: str,
        call: int,
        step: str,
        verb: str,
        fields: Mapping[str, Any],
        *,
        masked: bool = False,
    ) -> None:
        """Note a reply; `fields` are shapes, types and bytes by name.

        Parameters
        ----------
        masked : only the sum over sites can be read.
        """
        counts = self._counts_of(run)
        self._write(
            {"run": run, "session": session, "call": call, "step": step, "verb": verb}
            | {"fields": fields, "masked": masked}
        )
        counts[session] += 1

    def count(self, run: str, session: str) -> int:
        """Return the number of replies of one session, in all its attempts; an error noted with it
        counts.
        """
        return self._counts_of(run)[session]

    def _counts_of(self, run: str) -> Counter[str]:
        with self._lock:
            if run not in self._counts:
                self._counts[run] = Counter(_sessions(self._path, run))
            return self._counts[run]

    def note(self, run: str, what: str, code: str, text: str, *, session: str = "") -> None:
        """Note an answer in words, such as a refusal; with a session it counts as one of its
        replies.
        """
        if not _NAME.fullmatch(session):
            self._write({"run": run, "told": what, "code": code, "text": text})
            return
        counts = self._counts_of(run)
        self._write(
            {"run": run, "session": session, "call": None, "told": what}
            | {"code": code, "text": text}
        )
        counts[session] += 1

    def sync(self) -> None:
        """Put all lines on the disk."""
        with self._lock:
            self._sync()

    def length(self) -> int:
        """Return the bytes on disk, which only grow."""
        with self._lock:
            self._sync()
            return os.fstat(self._handle).st_size

    def close(self) -> None:
        """Put all lines on the disk and close the file."""
        with self._lock, contextlib.suppress(OSError):
            self._sync()
            os.close(self._handle)

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps({"at": now(), **line}, separators=(",", ":"))
        with self._lock:
            blob = b"\n" * self._torn + text.encode() + b"\n"
            written = 0
            try:
                written = os.write(self._handle, blob)
            finally:
                self._torn = self._torn if written == 0 else written < len(blob)
            if self._torn:
                raise OSError("the ledger's disk is full")
            if time.monotonic() - self._synced > EVERY:
                self._sync()

    def _sync(self) -> None:
        os.fsync(self._handle)
        self._synced = time.monotonic()


def _sessions(path: Path, run: str) -> Iterator[str]:
    """Yield the session of every reply of a run; a ledger may have a million lines."""
    mark = re.compile(f'"run":"{re.escape(run)}","session":"([^"]*)","call":')
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            if found := mark.search(text):
                yield found[1]


def read(path: Path, run: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the lines of a ledger, of one run or of all; lines that were cut off are left out."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            if run is not None and run not in text:
                continue
            try:
                line: Any = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and isinstance(line.get("run"), str):
                found = cast("dict[str, Any]", line)
                if run is None or found["run"] == run:
                    yield found


@dataclass
class Total:
    """What left in one study: all replies, those that told this site's own numbers, and when."""

    replies: int = 0
    own: int = 0
    last: str = ""


#: Of a study in which nothing left.
NOTHING = Total()
#: A reply's line, as `NodeLedger` writes it; a ledger may have a million.
_REPLY = re.compile(r'^{"at":"([^"]*)","run":"([0-9a-f]{64})",.*"verb":"(\w+)",')


def totals(path: Path) -> dict[str, Total]:
    """Return how much left in each study, by its hash."""
    found: dict[str, Total] = {}
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            for text in file:
                if line := _REPLY.match(text):
                    total = found.setdefault(line[2], Total())
                    total.replies += 1
                    total.own += line[3] != "sum"
                    total.last = line[1]
    return found


@dataclass
class _Step:
    """What left by one step."""

    verb: str
    calls: int = 0
    numbers: int = 0
    size: int = 0
    masked: int = 0
    fields: dict[str, None] = field(default_factory=dict[str, None])


def as_lines(
    lines: Iterable[Mapping[str, Any]], names: Mapping[str, str], does: Mapping[str, str]
) -> list[str]:
    """Return in plain words, study by study, what left this site.

    Parameters
    ----------
    names : of studies, by hash; an unknown one is called by its hash.
    does : purpose of each step, by name.
    """
    runs: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        runs[line["run"]].append(line)
    if not runs:
        return ["Nothing has left this site."]
    out: list[str] = []
    for run, here in runs.items():
        out += [*([""] if out else []), *_of_run(names.get(run, run), here, does)]
    out += [
        "",
        "The coordinator receives every reply that is listed. Of those that were masked it can "
        "read the sum over sites alone; it adds up the others of sums itself.",
    ]
    return out


def _of_run(name: str, lines: list[Mapping[str, Any]], does: Mapping[str, str]) -> list[str]:
    steps: dict[str, _Step] = {}
    told: dict[str, int] = defaultdict(int)
    for line in lines:
        if "told" in line:
            told[str(line.get("text", ""))] += 1
            continue
        fields = cast("dict[str, dict[str, Any]]", line.get("fields", {}))
        step = steps.setdefault(str(line.get("step")), _Step(str(line.get("verb"))))
        step.calls += 1
        step.masked += line.get("masked") is True
        for key, about in fields.items():
            step.fields[key] = None
            step.numbers += _length(about.get("shape", []))
            step.size += int(about.get("bytes", 0))
    first, last = str(lines[0].get("at", "")), str(lines[-1].get("at", ""))
    total = sum(s.calls for s in steps.values())
    size = sum(s.size for s in steps.values())
    out = [
        f"{name}, {first} to {last}: {words.of(total, 'reply', 'replies')} of numbers, "
        f"{words.size(size)}."
    ]
    for key, step in steps.items():
        who = _who(step)
        about = does.get(key, "").rstrip(".")
        mean = step.numbers / step.calls
        size_each = f"{'about ' * (mean % 1 > 0)}{words.of(round(mean), 'number')}"
        out.append(
            f"  {words.spaced(key)}: {words.of(step.calls, 'time')}, {size_each} "
            f"each ({words.listed([words.spaced(f) for f in step.fields])}); {who}"
            + f": {about}"
            * bool(about)
        )
    for text, times in told.items():
        out.append(f"  in words, {words.of(times, 'time')}: {text}")
    return out


def _who(step: _Step) -> str:
    """Return the readers of a step's replies."""
    if step.verb != "sum":
        return "TOLD AS THIS SITE'S OWN"
    if step.masked == step.calls:
        return "told as a sum over sites, masked"
    if step.masked:
        return f"told as a sum over sites, {step.calls - step.masked} of them NOT MASKED"
    return "told as a sum over sites, NOT MASKED"


def _length(shape: Iterable[int]) -> int:
    """Return how many numbers an array of a shape holds."""
    n = 1
    for size in shape:
        n *= int(size)
    return n
