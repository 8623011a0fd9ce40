"""The first questions of a study's sessions, kept as long as the node's state.

Sums of the same rows over other cells, centres or grids reveal by their differences what each
hides. So the first question fixes the cells, and the sites over which Table 1 is summed
(`study.at_site.pins`, `protocol.once`), however often a run begins. An honest coordinator derives
the same question from earlier sums each time.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from fedcohort.network.state.durable import write
from fedcohort.protocol.once import among_first
from fedcohort.runtime.site import disk

#: The folder in the node's state.
FOLDER = "pinned"
#: Two calls at once would both find nothing, and be answered.
_LOCK = threading.Lock()


class OnDisk:
    """A `protocol.once.Once` in a file.

    Parameters
    ----------
    state : the node's folder.
    run, mark : the study's hash, and the digest of the table.
    session : its name.
    """

    def __init__(self, state: Path, run: str, mark: str, session: str):
        self._path = state / FOLDER / f"{run}-{mark}" / f"{session}.json"

    def __call__(self, name: str, digest: str, most: int) -> bool:
        """Note what a name is asked with; return whether it is one of its first `most` values."""
        with disk(), _LOCK:
            known: dict[str, list[str]] = {}
            if self._path.exists():
                known = json.loads(self._path.read_text("utf-8"))
            values = known.setdefault(name, [])
            before = len(values)
            fine = among_first(values, digest, most)
            if len(values) > before:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write(self._path, json.dumps(known).encode())
        return fine
