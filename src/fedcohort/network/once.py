"""What a comparison of sites was asked with, kept by a node for as long as it has its state.

A study's comparison tells counts of cells, and hides those of few rows. Cells between other edges
of the same rows could tell them, so each step is answered for one set of arguments alone, however
often a run begins again. An honest coordinator asks the same each time: edges follow from Table 1.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from fedcohort.runtime.refusals import disk

#: The folder in the node's state.
FOLDER = "compared"
#: Two calls at once would both find nothing, and be answered.
_LOCK = threading.Lock()


class OnDisk:
    """A `study.deployed.consent.Once` in a file.

    Parameters
    ----------
    state : the node's folder.
    run, mark : the study's hash, and the digest of the table.
    """

    def __init__(self, state: Path, run: str, mark: str):
        self._path = state / FOLDER / f"{run}-{mark}.json"

    def __call__(self, step: str, digest: str) -> bool:
        """Note what a step is asked with; return whether that is what it was asked with before."""
        with disk(), _LOCK:
            known: dict[str, str] = {}
            if self._path.exists():
                known = json.loads(self._path.read_text("ascii"))
            if step not in known:
                self._path.parent.mkdir(mode=0o700, exist_ok=True)
                fresh = self._path.with_suffix(".new")
                fresh.write_text(json.dumps({**known, step: digest}), "ascii")
                os.replace(fresh, self._path)
        return known.get(step, digest) == digest
