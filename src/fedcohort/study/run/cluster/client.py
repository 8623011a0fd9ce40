"""The client's part of a study on a cluster: hands out pieces, and takes in what is finished.

A finished attempt's files are moved into the run one by one, the piece's result last. So a client
that is killed meanwhile finds the piece unfinished, and does it again to the same bytes.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from fedcohort.data.read.sources import MEMORY, MEMORY_BY_SITE, files_of
from fedcohort.protocol import FedcohortError, NotSupported
from fedcohort.study.file.plan import Plan
from fedcohort.study.results.files import versions
from fedcohort.study.run import arithmetic
from fedcohort.study.run.cluster.at_worker import ATTEMPTS, CLIENTS, CODE, KEPT, ROUNDS, Order
from fedcohort.study.run.folder import WORK
from fedcohort.study.run.local_fits import LocalFits
from fedcohort.study.run.pieces import Cell
from fedcohort.study.sites.layout import Table

#: Seconds between two looks at the progress of attempts.
EVERY = 0.5

_log = logging.getLogger(__name__)


class Cluster(Protocol):
    """A way to hand out pieces."""

    def check(self, order: str) -> None:
        """Raise NotSupported if a worker cannot do pieces of this study."""
        ...

    def begin(self, order: str, cells: Sequence[Cell]) -> None:
        """Hand out pieces."""
        ...

    def ended(self) -> Iterable[tuple[Cell, str]]:
        """Return pieces that ended since the last call, with the text of `at_worker.piece`.

        Wait a little for one.
        """
        ...

    def close(self) -> None:
        """Drop the pieces that have not begun, and free the cluster; once more does nothing."""
        ...


def check_study(plan: Plan, runtime: str) -> None:
    """Refuse a study that a cluster cannot do.

    Raises
    ------
    NotSupported : as above.
    """
    if runtime != "local":
        raise NotSupported(f"a cluster does fits of runtime 'local', not of {runtime!r}.")
    if plan.carbon:
        raise NotSupported(
            "carbon measures the energy of this machine only. Leave the key out on a cluster."
        )
    if plan.source in (MEMORY, MEMORY_BY_SITE):
        raise NotSupported(
            "workers of a cluster read the study's data themselves, and these are in this "
            "process's memory. Write them to a file on shared storage, and name it as data.source."
        )


class OnCluster:
    """Does pieces of one run on a cluster.

    Raises
    ------
    NotSupported : a worker cannot do them.
    """

    def __init__(self, cluster: Cluster, fits: LocalFits, table: Table, out: Path):
        self._cluster, self._fits = cluster, fits
        self._out = Path(os.path.abspath(out))
        self._attempts = self._out / WORK / ATTEMPTS
        clients = self._out / WORK / CLIENTS
        shutil.rmtree(clients, ignore_errors=True)  # attempts of a killed client end
        for folder in (clients, self._attempts):
            folder.mkdir(exist_ok=True)
        self._client = clients / secrets.token_hex(8)
        self._client.touch()
        plan = fits.plan
        base = Path(os.path.abspath(plan.base))
        named = [plan.dictionary, plan.coordinator_data and plan.coordinator_data.source]
        files = [*files_of(plan.source, base), *(base / name for name in named if name)]
        self._order = Order(
            study=plan.content, name="the study file", base=str(base),
            files=[str(path) for path in files if path.is_file()], mark=table.mark,
            versions=versions(), code=CODE, out=str(self._out), client=self._client.name,
            debug=fits.debug,
        ).text  # fmt: skip
        try:
            cluster.check(self._order)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let attempts end that nobody waits for, and free the cluster."""
        self._client.unlink(missing_ok=True)
        self._cluster.close()

    def do(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, tuple[int, int] | None]]:
        """Do pieces; yield (cell, rounds) on the way and (cell, None) when one is complete.

        Raises
        ------
        FedcohortError : a worker cannot do a piece, or ended again and again; finished ones are
            kept.
        """
        if not cells:
            return
        left = {cell.name: cell for cell in cells}
        told: dict[str, tuple[int, int]] = {}
        looked = time.monotonic()
        self._cluster.begin(self._order, cells)
        while left:
            for cell, text in self._cluster.ended():
                self._take_in(cell, text)
                if left.pop(cell.name, None):
                    yield cell, None
            if time.monotonic() - looked > EVERY:
                looked = time.monotonic()
                for name, rounds in self._rounds():
                    if name in left and told.get(name) != rounds:
                        told[name] = rounds
                        yield left[name], rounds

    def _rounds(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield each attempt's piece, with rounds done and in all."""
        for path in self._attempts.glob(f"*/{ROUNDS}"):
            try:
                done, of = map(int, path.read_text(encoding="utf-8").split())
            except (OSError, ValueError):
                continue
            yield path.parent.name.partition(".")[0], (done, of)

    def _take_in(self, cell: Cell, text: str) -> None:
        """Move a finished attempt's files into the run."""
        told: dict[str, Any] = json.loads(text)
        if "refused" in told:
            raise NotSupported(f"{told['refused']} {KEPT[0].upper()}{KEPT[1:]}")
        if "attempt" not in told:
            raise FedcohortError(f"{told['stopped']}; {KEPT}")
        attempt = self._attempts / Path(told["attempt"]).name
        self._note_arithmetic(attempt / WORK)
        for part in ("models", "kept"):
            for path in sorted((attempt / part).rglob("*")):
                if path.is_file():
                    _move(path, self._out / part / path.relative_to(attempt / part))
        for end in (".ledger", ".json"):
            path = Path("cells") / f"{cell.name}{end}"
            _move(attempt / WORK / path, self._out / WORK / path)
        shutil.rmtree(attempt, ignore_errors=True)

    def _note_arithmetic(self, work: Path) -> None:
        """Note a worker's arithmetic if it is new, and warn."""
        known = arithmetic.seen(self._out / WORK)
        for one in arithmetic.seen(work):
            if one not in known:
                arithmetic.note(self._out / WORK, one)
                _log.warning(
                    "a worker has another kind of processor than this machine, or other kernels. "
                    "Last digits may differ from those of a run on one machine."
                )


def _move(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, to)
