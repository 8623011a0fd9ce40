"""A long run with states, to be killed from outside: python killed.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import toys
from fedcohort.protocol.wire import encode
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.runtime.reply_store import StateStore


def main(folder: Path) -> None:
    """Run, or resume, and write `result` when done."""
    fed = local(
        toys.hosts(toys.regressions(), toys.ADMM),
        journal=Journal(folder / "journal"),
        store=StateStore(folder / "states"),
    )
    print("running", flush=True)
    fit = toys.lasso(fed, penalty=10.0, rounds=300)
    arrays = {"z": fit.z, "residuals": fit.residuals}
    (folder / "result").write_bytes(encode(arrays, {"ledger": fed.ledger.lines}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
