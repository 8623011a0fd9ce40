"""What a study's sessions were asked first, kept by a node for as long as it has its state.

Sums of the same rows over other cells, centres or grids tell by their differences what each of
them hides. So where they are formed, and over which sites Table 1 is summed, is fixed by the first
question (`study.at_site.pins`, `protocol.once`), however often a run begins again. An honest
coordinator asks the same each time: it follows from the sums before.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from fedcohort.network.node.durable import write
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
