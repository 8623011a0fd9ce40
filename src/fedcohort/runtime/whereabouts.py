"""Where an error arose, in words that a log may hold: no text that could be of a record."""

from __future__ import annotations

import traceback

from fedcohort.protocol.errors import FedcohortError


def where(error: BaseException) -> str:
    """Return an error's class, and where in which function it arose; of its text only our own.

    The text of an error that this package raised holds names and rules; any other may hold a value.
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
