"""The worker processes of `workers`: how they are started, what they are told, what they answer.

    call    arrays "0", "1", … of each distinct parcel, "parcel/number"
            meta {"call", "step", "verb", "round", "share", "history", "among", "view", "trees",
                  "parcel" (by site), "kept" (by site), "weights" or null, "asked", "sites"}
    answer  meta {"call", "kind", …}, of kind
            "reply"    one site's: {"site"}, and the arrays of its reply
            "missing"  one site that did not answer: {"site", "code", "text", "reason", "near"}
            "part"     of a sum: what `Part` holds, and the words of each total
            "error"    as "missing"; the worker has stopped this call

All that a call asked has come, or is taken from the pipe and dropped, before the next is sent, so
that whatever lies in shared memory is read by then.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from typing import Any, cast

from threadpoolctl import threadpool_limits

from fedcohort.arrays import Array
from fedcohort.protocol import errors, views
from fedcohort.protocol.arguments import Arguments, Parcel
from fedcohort.protocol.errors import (
    FedcohortError,
    Refused,
    SiteFailed,
    SiteUnavailable,
    WorkerLost,
)
from fedcohort.protocol.federation import View
from fedcohort.protocol.host import Call
from fedcohort.protocol.updates import Fit, Form
from fedcohort.runtime import interrupts
from fedcohort.runtime.arena import Arena, Laid, unpack
from fedcohort.runtime.calls import TEXT, refusal_of
from fedcohort.runtime.intake import Intake, Part
from fedcohort.runtime.local import LocalTransport
from fedcohort.secure.layout import Layout

#: Bytes of shared memory beside those that the largest array of a call would need.
ROOM = 2**26
#: Seconds between two looks whether the parent is still there.
LOOK = 0.1
#: Seconds that a worker is waited for when it is ended.
PATIENCE = 5.0
#: What says how many threads a library starts with.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Team:
    """Workers that hold the sites of a transport.

    Parameters
    ----------
    transport : its hosts, states and store are what each worker goes on with.
    shares : the sites of each worker.
    most : bytes of the largest reply or question so far.
    view : that of the coming call.
    """

    def __init__(
        self,
        transport: LocalTransport,
        shares: Sequence[Sequence[str]],
        most: int,
        view: View | None,
    ):
        context = multiprocessing.get_context("fork")
        self._down = Arena(ROOM + 4 * most)
        self._of = {site: k for k, share in enumerate(shares) for site in share}
        self._lines: list[Any] = []
        self._ups: list[Arena] = []
        self._left = [0] * len(shares)
        self._processes: list[Any] = []
        for share in shares:
            mine, its = Pipe()
            up = Arena(ROOM + 2 * most * len(share))
            given = (transport, its, (*self._lines, mine), self._down, up, view, os.getpid())
            process = context.Process(target=_serve, args=given, daemon=True)
            with warnings.catch_warnings():
                # Threads of this process are not in its forks, which use none of theirs.
                warnings.simplefilter("ignore", DeprecationWarning)
                with interrupts.later():
                    process.start()
            its.close()
            self._lines.append(mine)
            self._ups.append(up)
            self._processes.append(process)

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the processes' numbers."""
        return tuple(process.pid for process in self._processes)

    def ask(
        self, call: Call, to: Sequence[str], kept: Mapping[str, int]
    ) -> Iterator[tuple[str, dict[str, Array] | SiteUnavailable]]:
        """Yield each site's reply, or why there is none; see `Transport`."""
        self._tell(call, to, kept, None)
        for site in to:
            k = self._of[site]
            arrays, meta = self._hear(k)
            if meta["kind"] == "error":
                raise self._first(to, k, meta)
            if meta["kind"] == "missing":
                yield site, cast("SiteUnavailable", _error_of(meta))
                continue
            yield site, Fit({name: a.copy() for name, a in arrays.items()})

    def add(
        self, call: Call, to: Sequence[str], kept: Mapping[str, int], weights: Mapping[str, float]
    ) -> Iterator[Part]:
        """Yield the sum of each worker's sites; see `Adding`."""
        for k in self._tell(call, to, kept, weights):
            arrays, meta = self._hear(k)
            if meta["kind"] == "error":
                raise self._first(to, k, meta)
            forms = [_form(form) for form, _ in meta["totals"]]
            layouts = [Layout.from_meta(layout) for _, layout in meta["totals"]]
            words = [arrays[str(i)] for i in range(len(forms))]
            yield Part(
                {site: forms[i] for site, i in meta["forms"].items()},
                meta["rejected"],
                meta["missing"],
                dict(zip(forms, zip(layouts, words, strict=True), strict=True)),
            )

    def close(self) -> None:
        """End all workers."""
        for line in self._lines:
            line.close()
        for process in self._processes:
            if process.is_alive():
                process.terminate()
        for process in self._processes:
            process.join(PATIENCE)

    # telling and hearing --------------------------------------------------------------

    def _tell(
        self,
        call: Call,
        to: Sequence[str],
        kept: Mapping[str, int],
        weights: Mapping[str, float] | None,
    ) -> list[int]:
        """Send a call to the workers of these sites; return which they are."""
        self._settle()
        self._down.clear()
        shares: dict[int, list[str]] = {}
        for site in to:
            shares.setdefault(self._of[site], []).append(site)
        parcels = {id(p): p for p in map(call.arguments.parcel, to)}
        places = {key: i for i, key in enumerate(parcels)}
        arrays = {
            f"{i}/{j}": a
            for i, parcel in enumerate(parcels.values())
            for j, a in enumerate(parcel.arrays)
        }
        view = None
        if call.view is not None:
            view = [views.kind_of(call.view), call.view.spec]
        meta = {
            "call": call.number, "step": call.step.name, "verb": call.verb, "round": call.round,
            "waited": call.waited,
            "share": call.share, "history": call.history, "among": call.among, "view": view,
            "trees": [parcel.tree for parcel in parcels.values()],
            "parcel": {site: places[id(call.arguments.parcel(site))] for site in to},
            "kept": {site: kept[site] for site in to if site in kept},
            "weights": weights, "asked": len(to),
        }  # fmt: skip
        laid = Laid.of(arrays, self._down)
        for k, share in shares.items():
            body = laid.record({**meta, "sites": share})
            try:
                self._lines[k].send_bytes(body)
            except OSError:
                raise _lost() from None
            self._left[k] = len(share) if weights is None else 1
        return list(shares)

    def _hear(self, k: int) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return what a worker says next."""
        try:
            arrays, meta = unpack(self._lines[k].recv_bytes(), self._ups[k])
        except (EOFError, OSError):
            raise _lost() from None
        self._left[k] = 0 if meta["kind"] == "error" else self._left[k] - 1
        return arrays, meta

    def _settle(self) -> None:
        """Drop what nobody asked any more: the rest of a call that ended early."""
        for k in range(len(self._left)):
            while self._left[k]:
                self._hear(k)

    def _first(self, to: Sequence[str], k: int, meta: Mapping[str, Any]) -> FedcohortError:
        """Return the error of the first site in order that has one, as one process would."""
        found = {meta["site"]: meta}
        for other in range(len(self._left)):
            while self._left[other]:
                _, said = self._hear(other)
                if said["kind"] == "error":
                    found[said["site"]] = said
        return _error_of(found[min(found, key=list(to).index)])


def _lost() -> WorkerLost:
    return WorkerLost("a worker process of a fit died (killed, or out of memory)")


def _form(told: Any) -> Form:
    """Return a form of reply that went through JSON."""
    return tuple((tuple(shape), kind) for shape, kind in told)


def _told(error: FedcohortError) -> dict[str, Any]:
    """Return an error as a worker tells it: of the nearest class that all know."""
    known = (c.__name__ for c in type(error).__mro__ if getattr(errors, c.__name__, None) is c)
    said: dict[str, Any] = {"code": next(known), "text": str(error)[:TEXT], "near": error.near_data}
    if isinstance(error, Refused):
        said["reason"] = error.code
    return said


def _error_of(meta: Mapping[str, Any]) -> FedcohortError:
    """Return the error that a worker told."""
    keys = ("code", "text", "reason")
    told = {"kind": "error", **{key: meta[key] for key in keys if key in meta}}
    error = refusal_of(told, {})
    assert isinstance(error, FedcohortError)
    error.near_data = meta["near"]
    return error


@contextmanager
def one_thread() -> Generator[None]:
    """Compute on one thread, PyTorch too, whose oneMKL no other library knows of.

    A fork has none of its parent's threads, and a product that waits for them never ends.
    """
    torch: Any = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    with threadpool_limits(1):
        try:
            if torch is not None:
                torch.set_num_threads(1)
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


# in a worker process ------------------------------------------------------------------


def _serve(
    transport: LocalTransport,
    line: Connection,
    others: Sequence[Connection],
    down: Arena,
    up: Arena,
    view: View | None,
    parent: int,
) -> None:
    """Answer calls until the parent closes the line, or ends."""
    interrupts.ignored()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # the parent's ends, by which a line would never be closed
        other.close()
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    worker = _Worker(transport, line, down, up, view)
    os.environ |= dict.fromkeys(THREADS, "1")  # for libraries that are not loaded yet
    with one_thread():
        while True:
            try:
                record = line.recv_bytes()
            except (EOFError, OSError):
                os._exit(0)
            worker.do(*unpack(record, down))


def _leave_with(parent: int) -> None:
    """End this process with the one that started it, whatever it is doing."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


class _Worker:
    """What one worker knows."""

    def __init__(
        self,
        transport: LocalTransport,
        line: Connection,
        down: Arena,
        up: Arena,
        view: View | None,
    ):
        self._transport, self._line, self._down, self._up = transport, line, down, up
        self._view = view
        self._at = ""

    def do(self, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> None:
        """Do one call, and tell what came of it."""
        self._up.clear()
        self._at = meta["sites"][0]
        try:
            call = self._call(arrays, meta)
            replies = self._transport.here(call, meta["sites"], meta["kept"])
            if meta["weights"] is None:
                for self._at in meta["sites"]:
                    self._tell(*next(replies))
            else:
                intake = Intake(call, meta["weights"], exact=meta["asked"])
                for self._at in meta["sites"]:
                    intake.take(*next(replies))
                self._tell_part(intake.part())
        except FedcohortError as error:
            self._say({}, {"kind": "error", "site": self._at, **_told(error)})
        except Exception as error:
            kind = type(error).__name__
            broken = SiteFailed(
                f"site {self._at!r}: an unexpected {kind} in a worker process. Fit with one worker "
                f"to see where."
            )
            self._say({}, {"kind": "error", "site": self._at, **_told(broken)})

    def _call(self, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Call:
        """Return the call that a record tells."""
        if meta["view"] is None:
            view = None
        else:
            kind, spec = meta["view"]
            if self._view is None or self._view.spec != spec:
                self._view = views.rebuild(kind, spec)
            view = self._view
        parcels = [
            Parcel.read(tree, [a for name, a in arrays.items() if name.startswith(f"{i}/")])
            for i, tree in enumerate(meta["trees"])
        ]
        own = Arguments.received({site: parcels[i] for site, i in meta["parcel"].items()})
        step = self._transport.host(meta["sites"][0]).step(meta["step"])
        return Call(
            meta["call"], step, meta["verb"], view, own, meta["round"], meta["share"],
            meta["history"], tuple(meta["among"]), waited=meta["waited"],
        )  # fmt: skip

    def _tell(self, site: str, reply: dict[str, Array] | SiteUnavailable) -> None:
        if isinstance(reply, SiteUnavailable):
            self._say({}, {"kind": "missing", "site": site, **_told(reply)})
        else:
            self._say(reply, {"kind": "reply", "site": site})

    def _tell_part(self, part: Part) -> None:
        forms = list(part.totals)
        layouts = [layout.to_meta() for layout, _ in part.totals.values()]
        words = {str(i): words for i, (_, words) in enumerate(part.totals.values())}
        meta = {
            "kind": "part", "totals": list(zip(forms, layouts, strict=True)),
            "forms": {site: forms.index(form) for site, form in part.forms.items()},
            "rejected": dict(part.rejected), "missing": list(part.missing),
        }  # fmt: skip
        self._say(words, meta)

    def _say(self, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> None:
        record = Laid.of(arrays, self._up).record(meta)
        try:
            self._line.send_bytes(record)
        except OSError:  # the parent is gone, in the midst of a call
            os._exit(0)
