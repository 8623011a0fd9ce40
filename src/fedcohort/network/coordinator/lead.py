"""A lead's side: submit a study, follow it, fetch its results, end it.

The study runs at the coordinator: the lead's process may end, and the same command with `resume`
follows the run and fetches its results. Every request may be repeated; a ticket identifies a
submission that is sent again. If the coordinator cannot be reached, `follow` says so and retries
for `LOSS` seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcohort.network import requests
from fedcohort.network.coordinator.runs import OPEN
from fedcohort.network.engines import Spoke
from fedcohort.network.kits import Kit
from fedcohort.network.study_offer import Offer
from fedcohort.protocol.errors import FedcohortError, Refused, StudyError
from fedcohort.protocol.line import Silence
from fedcohort.secure.channel import Caller, Refusal, Single

#: Seconds that the coordinator may be away before a lead gives up following.
LOSS = 600.0
#: Seconds between two looks at a run.
PAUSE = 0.5
#: Seconds for one request, between two tries of one, and for a look at a run, after which the lead
#: is told that the coordinator is silent.
PATIENCE, AGAIN, GLANCE = 30.0, 1.0, 5.0
#: What a coordinator may send back: files, and bytes in all.
MOST_FILES, MOST_BYTES = 20_000, 1 << 32
#: Where a lead's unfinished run is noted in its folder.
WORK = ".work"
_PART = re.compile(r"[^./\\\0][^/\\\0]{0,199}")


class Away(FedcohortError):
    """The coordinator cannot be reached."""


@dataclass(frozen=True)
class Status:
    """State of a run, as the coordinator tells it.

    Attributes
    ----------
    run, study, state, reason, absent, seconds : see `runs.Run`.
    sites : by name, "state", "reason", "connected", and while it runs "seconds" and "silent".
    ahead : number of studies queued before it.
    piece, done, total : the current fit; finished fits; all fits.
    traffic : calls, bytes and the round; see `remote_sites.Traffic`.
    final : a resumed run would fail again for the same reason.
    left : estimated seconds left at its pace so far; None if unknown.
    away : seconds without an answer of the coordinator; the rest is then as before.
    """

    run: str
    study: str
    state: str
    reason: str = ""
    sites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    ahead: int = 0
    piece: str = ""
    done: int = 0
    total: int = 0
    traffic: Mapping[str, Any] = field(default_factory=dict[str, Any])
    final: bool = False
    left: float | None = None
    away: float = 0.0

    @property
    def open(self) -> bool:
        """Whether the run goes on."""
        return self.state in OPEN

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Status:
        """Return what a coordinator's answer says; text of it is made safe to show.

        Raises
        ------
        Refused : it is no such answer.
        """
        try:
            sites = {
                requests.printable(n): {k: _page_text(v) for k, v in dict(s).items()}
                for n, s in dict(meta["sites"]).items()
            }
            return cls(
                run=requests.printable(meta["run"]),
                study=requests.printable(meta["study"]),
                state=requests.printable(meta["state"]),
                reason=requests.printable(meta["reason"]),
                sites=sites,
                absent={
                    requests.printable(n): _page_text(t) for n, t in dict(meta["absent"]).items()
                },
                seconds=float(meta["seconds"]),
                ahead=int(meta["ahead"]),
                piece=requests.printable(meta.get("piece")),
                done=int(meta.get("done", 0)),
                total=int(meta.get("total", 0)),
                traffic={str(k): _page_text(v) for k, v in dict(meta.get("traffic", {})).items()},
                final=meta.get("final") is True,
                left=None if meta.get("left") is None else float(meta["left"]),
            )
        except (LookupError, TypeError, ValueError):
            raise Refused("malformed", "the coordinator's answer cannot be read.") from None


def _page_text(value: object) -> Any:
    return requests.printable(value) if isinstance(value, str) else value


class Office:
    """The coordinator, as a lead or site asks it: sealed, with its certificate verified."""

    def __init__(self, kit: Kit, spoke: Spoke):
        self.kit = kit
        line = Single(kit.coordinator, spoke.ask, lambda: spoke.connected)
        self._caller = Caller(kit, kit.trust(), line)

    def ask(
        self,
        kind: str,
        patience: float = PATIENCE,
        **meta: Any,
    ) -> requests.Body:
        """Return the answer to one request.

        Raises
        ------
        Away : there is none.
        FedcohortError : the coordinator, or the channel to it, refuses.
        """
        blob = {self.kit.coordinator: requests.ask(kind, **meta)}
        for _, reply in self._caller.exchange(blob, patience):
            if isinstance(reply, Refusal):
                raise Refused(reply.code, reply.text)
            if isinstance(reply, Silence):
                raise Away(f"the coordinator at {self.kit.address}: {reply.text}")
            return requests.answer(reply)
        raise Away(f"the coordinator at {self.kit.address} does not answer.")

    def insist(
        self,
        kind: str,
        tell: Callable[[float], None] = lambda seconds: None,
        loss: float = LOSS,
        patience: float = PATIENCE,
        **meta: Any,
    ) -> requests.Body:
        """Ask until there is an answer, for `loss` seconds; `tell` hears how long there is none.

        Parameters
        ----------
        patience : seconds for one try.

        Raises
        ------
        Away : there was none.
        FedcohortError : the coordinator, or the channel to it, refuses.
        """
        began = time.monotonic()
        while True:
            try:
                return self.ask(kind, patience, **meta)
            except Away as error:
                away = time.monotonic() - began
                if away >= loss:
                    raise Away(f"{error} It was tried for {away:.0f} s.") from None
                tell(max(away, 0.1))
                time.sleep(min(AGAIN, max(0.05, loss - away)))


def submit(
    office: Office,
    offer: Offer,
    *,
    wait: float | None,
    timeout: float | None,
    resume: bool,
    command: str = "",
    loss: float = PATIENCE,
) -> Status:
    """Submit a signed study; return its status.

    Parameters
    ----------
    wait : seconds to wait for approvals; None: no limit.
    timeout : seconds that a call may take.
    resume : resume an earlier run of the same study.

    Raises
    ------
    FedcohortError : the coordinator cannot be reached, or refuses.
    """
    ticket = secrets.token_hex(16)
    _, meta = office.insist(
        "submit", loss=loss, offer=offer.to_bytes().decode(),
        wait=wait, timeout=timeout, resume=resume, command=command, ticket=ticket,
    )  # fmt: skip
    return Status.of(meta)


def follow(
    office: Office, first: Status, tell: Callable[[Status], None], loss: float = LOSS
) -> Status:
    """Tell where a run is until it has ended; return how it did.

    Raises
    ------
    Away : the coordinator was away for `loss` seconds.
    """
    status = first
    while True:
        tell(status)
        if not status.open:
            return status
        time.sleep(PAUSE)
        last = status

        def away(seconds: float, last: Status = last) -> None:
            tell(replace(last, away=seconds))

        _, meta = office.insist("status", tell=away, loss=loss, patience=GLANCE, run=first.run)
        status = Status.of(meta)


def cancel(office: Office, run: str) -> Status:
    """End a run; return where it stands."""
    _, meta = office.insist("cancel", loss=PATIENCE, run=run)
    return Status.of(meta)


# the lead's folder ----------------------------------------------------------------------


def open_folder(out: Path, run: str, kit: Kit, *, resume: bool) -> bool:
    """Make the folder of a new run, or see that this run can be fetched into it.

    Returns
    -------
    made : whether nothing was there before.

    Raises
    ------
    StudyError : it holds something else, or nothing to resume.
    """
    note = out / WORK / "network.json"
    mark = {"run": run, "network": kit.network}
    try:
        if note.is_file():
            if json.loads(note.read_text(encoding="utf-8")) != mark:
                raise StudyError(
                    f"{out}: the study, its settings or the network changed since this run began; "
                    f"start a new one with another --out."
                )
            if not resume:
                raise StudyError(
                    f"{out}: a run of this study was begun; use --resume to follow it and fetch "
                    f"its results, or another --out."
                )
            return False
        if out.exists() and any(out.iterdir()):
            what = "nothing to resume from a network" if resume else "the folder is not empty"
            raise StudyError(f"{out}: {what}; use another --out.")
        (out / WORK).mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(mark), encoding="utf-8")
        return True
    except (OSError, ValueError) as error:
        raise StudyError(f"{out}: cannot use this folder ({error}).") from None


def is_of(out: Path, run: str) -> bool:
    """Return whether a folder waits for the results of a run."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        note = out / WORK / "network.json"
        return json.loads(note.read_text(encoding="utf-8")).get("run") == run
    return False


def release_folder(out: Path) -> None:
    """Remove what `open_folder` made, where nothing else came."""
    shutil.rmtree(out / WORK, ignore_errors=True)
    if out.is_dir() and not any(out.iterdir()):
        out.rmdir()


def fetch(office: Office, run: str, out: Path) -> None:
    """Bring the files of a finished run into a folder; all are checked before any is moved there.

    Raises
    ------
    Refused : the coordinator offers files that no run has, or other bytes than announced.
    FedcohortError : the coordinator is away, or the disk is full; `resume` uses what came.
    """
    _, meta = office.insist("fetch", run=run)
    files = _listed(meta)
    held = out / WORK / "fetched"
    try:
        for name, size, digest in files:
            _fetch_one(office, run, held / name, (name, size, digest))
        for name, _, _ in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(held / name, out / name)
        shutil.rmtree(out / WORK)
    except OSError as error:
        raise FedcohortError(
            f"{error.filename or out}: {error.strerror or error}; the results stay at the "
            f"coordinator: run the same command with --resume."
        ) from None


def _listed(meta: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """Return the files that a coordinator announces, if a folder can have them."""
    try:
        found = [(str(n), int(size), str(mark)) for n, size, mark in meta["files"]]
    except (LookupError, TypeError, ValueError):
        raise Refused("malformed", "the coordinator's list of files cannot be read.") from None
    for name, size, _ in found:
        parts = name.split("/")
        if size < 0 or len(parts) > 8 or not all(_PART.fullmatch(p) for p in parts):
            raise Refused("file", f"the coordinator offers a file called {name!r:.80}.")
    if len(found) > MOST_FILES or sum(size for _, size, _ in found) > MOST_BYTES:
        raise Refused("file", "the coordinator offers more files or bytes than a run can have.")
    return found


def _fetch_one(office: Office, run: str, path: Path, announced: tuple[str, int, str]) -> None:
    """Bring one file; one that is there already and sound is left."""
    name, size, digest = announced
    if path.is_file() and requests.digest(path.read_bytes()) == digest:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    blob = bytearray()
    while len(blob) < size:
        arrays, meta = office.insist("fetch", run=run, name=name, offset=len(blob))
        piece = requests.unpacked(arrays, meta.get("size"))
        if not piece or requests.digest(piece) != meta.get("digest"):
            raise Refused("file", f"a piece of {name} came damaged.")
        blob += piece
    if len(blob) != size or requests.digest(bytes(blob)) != digest:
        raise Refused("file", f"{name} came with other bytes than the coordinator announced.")
    path.write_bytes(blob)
