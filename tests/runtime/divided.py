"""A long fit whose sites are divided among workers, to be stopped from outside.

    python divided.py FOLDER

Each worker's number is printed once both are there; the result is written when all is done.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import toys
from fedcohort.protocol.errors import WorkerLost
from fedcohort.protocol.wire import encode
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.store import StateStore
from fedcohort.runtime.workers import DividedTransport


def main(folder: Path) -> None:
    """Run, or resume, and write `result` when done."""
    hosts = toys.hosts(toys.regressions(), toys.ADMM)
    store = StateStore(folder / "states")
    split = DividedTransport(hosts, store, workers=2, start=-math.inf)

    def observe(progress: Any) -> None:
        if progress.call == 5 or (progress.call > 5 and not told):
            told.append(progress.call)
            print(*split.workers, flush=True)

    told: list[int] = []
    fed = Coordinator(split, journal=Journal(folder / "journal"), observer=observe)
    try:
        fit = toys.lasso(fed, penalty=10.0, rounds=2000)
    except WorkerLost as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    arrays = {"z": fit.z, "residuals": fit.residuals}
    (folder / "result").write_bytes(encode(arrays, {"ledger": fed.ledger.lines}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
