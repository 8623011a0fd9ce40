"""A worker's part of a study on a cluster: one piece at a time, each in a folder of its own.

An attempt at a piece is a folder `.work/attempts/PIECE.XXXXXXXX` of the run. The piece's results,
models and journals are below it, and the client alone moves finished files into the run. So a
worker that was given up, but still works, changes no file of the run. Another attempt at the same
piece goes on with a copy of the latest journals.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedcohort import version
from fedcohort.protocol import DataError, FedcohortError
from fedcohort.runtime.local import one_thread
from fedcohort.study.file import plan as plans
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.yamlfile import Document
from fedcohort.study.results.files import versions
from fedcohort.study.run import arithmetic
from fedcohort.study.run.folder import WORK
from fedcohort.study.run.local_fits import LocalFits
from fedcohort.study.run.pieces import Cell, Shelf, defect, write_text
from fedcohort.study.sites import layout
from fedcohort.study.sites.layout import Table

#: Folders of `.work/`: attempts at pieces, and a file for each client that waits for them.
ATTEMPTS, CLIENTS = "attempts", "clients"
#: File of an attempt with its rounds done and in all.
ROUNDS = "rounds"
#: End of an error after which a run can go on.
KEPT = "finished pieces are kept; run the same command with --resume to go on."
#: Seconds between two notes of an attempt's progress.
EVERY = 1.0


@dataclass(frozen=True)
class Order:
    """What a worker needs to know of a study, besides a piece's numbers.

    Attributes
    ----------
    study, name, base : the study file's content, its name, and the folder of its relative paths.
    files : the files that it reads.
    mark : checksum of all rows (`Table.mark`).
    versions, code : of the client; a worker must have the same.
    out : folder of the run.
    client : name of the client's file in `CLIENTS`; work stops when it is gone.
    debug : return a traceback of an unexpected error.
    """

    study: Mapping[str, Any]
    name: str
    base: str
    files: list[str]
    mark: int
    versions: Mapping[str, str]
    code: str
    out: str
    client: str
    debug: bool

    @property
    def text(self) -> str:
        """The order as JSON."""
        return json.dumps(asdict(self))


class GivenUp(BaseException):
    """The client has ended, so that nobody waits for this piece."""


def code_digest() -> str:
    """Return a digest of this package's source files."""
    package = Path(version.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


#: Digest of the code that this process runs, taken when it was loaded.
CODE = code_digest()


def check(text: str) -> str:
    """Return why this worker cannot do pieces of a study; "" if it can."""
    try:
        why = _unfit(Order(**json.loads(text)))
    except (TypeError, ValueError):
        why = "runs another code of fedcohort; install the same code, and start it again"
    return why and f"{_here()}: it {why}."


def piece(text: str, kind: str, scenario: int, repeat: int, arm: int) -> str:
    """Do one piece of a study; return JSON with the result.

    Its one key is `attempt`, the folder of a finished attempt; `refused`, why this worker cannot do
    any piece; or `stopped`, why this one was not finished, which can be done later.
    """
    if why := check(text):
        return json.dumps({"refused": why})
    order = Order(**json.loads(text))
    try:
        plan, table = _loaded(order)
        with one_thread():
            done = _attempt(order, plan, table, Cell(kind, scenario, repeat, arm))
        return json.dumps({"attempt": done})
    except GivenUp:
        why = "the run has ended"
    except FedcohortError as error:
        return json.dumps({"refused": f"{_here()}: {error}"})
    except OSError as error:
        why = f"{error.filename or order.out}: {error.strerror or type(error).__name__}"
    except MemoryError:
        why = "not enough memory"
    except Exception as error:
        why = traceback.format_exc() if order.debug else defect(error)
    return json.dumps({"stopped": f"{_here()}: {why}"})


def job(text: str, pieces: list[tuple[str, int, int, int]], prefix: str) -> None:
    """Do pieces one after the other; write the text of each into a file of its name."""
    for numbers in pieces:
        found = piece(text, *numbers)
        write_text(Path(f"{prefix}.{Cell(*numbers).name}.json"), found)


def token(*parts: object) -> str:
    """Return a short name that only these parts have."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _here() -> str:
    """Return this worker's name for a message."""
    return f"worker process {os.getpid()} on {socket.gethostname()}"


def _unfit(order: Order) -> str:
    """Return what keeps this worker from doing pieces, as the rest of a sentence; or ""."""
    mine = versions()
    for name, wanted in order.versions.items():
        if mine.get(name) != wanted:
            has = f"has {name} {mine[name]}" if name in mine else f"does not have {name}"
            return f"{has}, and the study was started with {wanted}; install the same there"
    if more := sorted(set(mine) - set(order.versions)):
        return f"has {more[0]}, which is missing where the study was started; install the same"
    if order.code != CODE:
        return (
            f"runs another code of fedcohort {version.VERSION}; install the same code, and start "
            f"the worker again"
        )
    work = Path(order.out) / WORK
    if not (work / CLIENTS / order.client).is_file():
        return f"does not see the folder {order.out} of this run; put --out on shared storage"
    if not os.access(work / ATTEMPTS, os.W_OK):
        return f"cannot write into the folder {order.out}; give it the right to"
    missing = [file for file in order.files if not Path(file).exists()]
    return f"does not see {missing[0]}; put it on shared storage, by one path" if missing else ""


@lru_cache(maxsize=2)
def _read(study: str, name: str, base: str) -> tuple[Plan, Table]:
    plan = plans.check(Document(json.loads(study), name), Path(base))
    return plan, layout.load(plan)


def _loaded(order: Order) -> tuple[Plan, Table]:
    """Return the study and its data; read anew if they changed since the last piece."""
    asked = json.dumps(order.study), order.name, order.base
    if _read(*asked)[1].mark != order.mark:
        _read.cache_clear()
        if _read(*asked)[1].mark != order.mark:
            raise DataError(
                f"it reads other data from {order.study['data']['source']!r} than the machine "
                f"where the study was started. Let both read the same file or database."
            )
    return _read(*asked)


class _Attempt(LocalFits):
    """Does one piece in its own folder; other pieces' results are those of the run."""

    def __init__(self, order: Order, plan: Plan, table: Table, folder: Path):
        super().__init__(plan, table, folder / WORK, folder / "models", order.debug)
        self._run = Shelf(plan, Path(order.out) / WORK)

    def note(self, name: str) -> dict[str, Any] | None:
        """Return the result of the piece `name`, or None if it is not complete."""
        return self._run.note(name)


def _attempt(order: Order, plan: Plan, table: Table, cell: Cell) -> str:
    """Do a piece; return the name of its folder."""
    work = Path(order.out) / WORK
    folder = work / ATTEMPTS / f"{cell.name}.{secrets.token_hex(4)}"
    (folder / WORK).mkdir(parents=True)
    arithmetic.note(folder / WORK, arithmetic.here(versions()))
    _adopt(folder)
    fits = _Attempt(order, plan, table, folder)
    fits.do(cell, _noted(folder, work / CLIENTS / order.client))
    return folder.name


def _noted(folder: Path, client: Path) -> Callable[[int, int], None]:
    """Return a function that notes rounds in an attempt's folder, until the client has ended."""
    last = [time.monotonic()]

    def note(done: int, of: int) -> None:
        now = time.monotonic()
        if now - last[0] < EVERY:
            return
        last[0] = now
        if not client.exists():
            raise GivenUp
        write_text(folder / ROUNDS, f"{done} {of}")

    return note


def _adopt(folder: Path) -> None:
    """Copy the journals of the latest earlier attempt at the same piece, if it can be used.

    It cannot if it was made on another kind of processor, or if it changes meanwhile: then a worker
    that was given up still writes there.
    """
    piece = folder.name.partition(".")[0]
    others = [o for o in folder.parent.glob(f"{piece}.*") if o != folder]
    for other in sorted(others, key=lambda o: -o.stat().st_mtime):
        journals = other / WORK / "scratch"
        if arithmetic.seen(other / WORK) != arithmetic.seen(folder / WORK):
            continue
        if not (before := _sizes(journals)):
            continue
        shutil.copytree(journals, folder / WORK / "scratch")
        if before == _sizes(journals):
            return
        shutil.rmtree(folder / WORK / "scratch", ignore_errors=True)


def _sizes(folder: Path) -> list[tuple[str, int, int]]:
    """Return each file's name, size and time of its last change."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [(str(f), (s := f.stat()).st_size, s.st_mtime_ns) for f in files]
