"""What a site reveals of an error, and what its own log keeps.

A refusal holds the request, the rules or the reply's declared shape. If records were read, it holds
the error's class, the step, and a number under which the site's log has the place in the program.
The log also has the texts of this package's errors (names and rules), and of no others.
"""

from __future__ import annotations

import secrets
import sqlite3
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager

from fedcohort.protocol import errors
from fedcohort.protocol.errors import (
    FedcohortError,
    JournalMismatch,
    Refused,
    SiteFailed,
    VerbRefused,
)
from fedcohort.runtime.calls import Request, refusal_bytes
from fedcohort.runtime.masked import Stage

#: The classes of error that a refusal may name; `Refused` says a reason besides.
_CODES = frozenset(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, FedcohortError) and kind is not Refused
)


class DiskFault(Exception):
    """Data that must be on disk before a reply leaves could not be written or read."""


@contextmanager
def disk() -> Generator[None]:
    """Mark disk faults, since a step or a table may raise `OSError` too."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise DiskFault(type(error).__name__) from error


class Refusals:
    """One site's refusals.

    Parameters
    ----------
    site : its name.
    log : gets one line for each request that fails; without values.
    """

    def __init__(self, site: str, log: Callable[[str], None] | None):
        self._site = site
        self._log = log

    def of(self, error: Exception, request: Request | Stage | None) -> bytes:
        """Return an error's refusal, and log where it arose."""
        name = type(error).__name__
        step = "a request"
        if request is not None:
            asked = isinstance(request, Request)
            step = f"step {request.step!r:.62}" if asked else f"{request.kind} of a masked sum"
        call = request.call if isinstance(request, Request) else "-"
        number = secrets.token_hex(4)
        self.write(f"{number} {step}, call {call}: {error_location(error)}")
        if isinstance(error, Refused) and not error.near_data:
            return refusal_bytes("Refused", str(error), error.code)
        rules = (VerbRefused, JournalMismatch, SiteFailed)
        if isinstance(error, rules) and name in _CODES and not error.near_data:
            return refusal_bytes(name, f"{error} ({number} in the site's log)")
        if isinstance(error, DiskFault):  # ends the run, which can be resumed; no fit has failed
            cure = "Make room there and --resume."
            if str(error) == sqlite3.DatabaseError.__name__:
                cure = (
                    "That store is damaged: stop the node, move state/answers.sqlite away from its "
                    "kit, and start the study again without --resume."
                )
            return refusal_bytes(
                "Refused",
                f"site {self._site!r} could not keep its answer to {step} on its disk ({error}); "
                f"nothing left and its state is as before. Its log has more under {number}. {cure}",
                "disk",
            )
        code = name if isinstance(error, FedcohortError) and name in _CODES else "SiteFailed"
        return refusal_bytes(
            code,
            f"site {self._site!r} failed in {step} ({name}). What it said stays there, as it may "
            f"hold a record; its log has more under {number}.",
        )

    def write(self, line: str) -> None:
        """Write a line of the site's own log, where there is one; it never raises."""
        if self._log is not None:
            try:
                self._log("".join(c if c.isprintable() else "?" for c in line))
            except Exception:  # a log that is full stops no answer
                return


def error_location(error: BaseException) -> str:
    """Return an error's class and the function where it arose; the text only if it is ours.

    Our texts hold names and rules; any other may hold a value.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    last = next(iter(frames[-1:]), None)
    place = f" in {last.name}, line {last.lineno} of {_short(last.filename)}" if last else ""
    text = ""
    if isinstance(error, FedcohortError) and last is not None and _ours(error):
        text = f": {error}"
    return f"{type(error).__name__}{place}{text}"


def _short(path: str) -> str:
    return "/".join(path.replace("\\", "/").split("/")[-2:])


def _ours(error: BaseException) -> bool:
    """Return whether the code that raised an error is this package's."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and str(at.tb_frame.f_globals.get("__name__", "")).startswith(
        "fedcohort."
    )
