"""Detection of a node's state restored from a backup.

A node's state holds what must not be undone: spent ε, revealed sums, patients of earlier studies,
runs under each approval. The node's ledger grows by a line with each of these and by nothing else:
its length is a counter that only a restored state turns back. The node tells it (`count`) when it
greets the coordinator, once all is on disk, and hears the highest that the coordinator has seen
(`seen`). If that is higher, the node answers no study until people act:
`fedcohort node restored`.

A lying coordinator can stop a node this way, as by not calling it, but can undo nothing. If the
coordinator forgot or was restored too, nothing is detected.

    older.json      what the coordinator has seen, while that is more; removed by `accept`
    restored.json   "base", bytes that count as lost lines, and what people said of each time
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from fedcohort.network.requests import LONGEST_LEDGER
from fedcohort.network.state.decisions import now
from fedcohort.network.state.durable import write
from fedcohort.protocol.errors import InputError, Refused


class Rollback:
    """The counter of one node.

    Parameters
    ----------
    state : the node's folder.
    length : bytes of its ledger on disk.
    """

    def __init__(self, state: Path, length: Callable[[], int]):
        self._state, self._length = state, length

    def count(self) -> int:
        """Return the count for the coordinator."""
        return self._length() + base(self._state)

    def seen(self, highest: object) -> bool:
        """Take the count that the coordinator has seen; return whether people must check this
        state.
        """
        known = pending(self._state) is not None
        if known or type(highest) is not int or not 0 <= highest <= LONGEST_LEDGER:
            return known
        if (mine := self.count()) >= highest:
            return False
        told = {"seen": highest, "count": mine, "at": now()}
        write(self._state / "older.json", json.dumps(told).encode())
        return True

    def check(self) -> None:
        """Check that nobody has to act on this state first.

        Raises
        ------
        Refused : "older".
        """
        if pending(self._state) is not None:
            raise Refused("older", OLDER)


OLDER = (
    "its state is older than what it has told already: it was restored from a backup, and may have "
    "forgotten privacy budget and answers. It takes part again once IT and data steward of the "
    "site have run 'fedcohort node restored KIT' there."
)


def base(state: Path) -> int:
    """Return how many bytes count as lines that are lost."""
    found = _read(state / "restored.json").get("base")
    return found if type(found) is int and found > 0 else 0


def pending(state: Path) -> tuple[int, int] | None:
    """Return the coordinator's count and this one, if someone must act on them."""
    found = _read(state / "older.json")
    seen, count = found.get("seen"), found.get("count")
    return (seen, count) if type(seen) is int and type(count) is int else None


def accept(state: Path, reason: str) -> int:
    """Go on with this state; return how many bytes of the ledger are lost.

    Raises
    ------
    InputError : nothing is pending.
    """
    found = pending(state)
    if found is None:
        raise InputError(f"{state}: the coordinator has seen nothing that this state lacks.")
    lost = found[0] - found[1]
    said = _read(state / "restored.json").get("said")
    known = cast("list[Any]", said) if isinstance(said, list) else []
    told = {"at": now(), "lost": lost, "reason": " ".join(reason.split())}
    content = {"base": base(state) + lost, "said": [*known, told]}
    write(state / "restored.json", json.dumps(content).encode())
    (state / "older.json").unlink()
    return lost


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
