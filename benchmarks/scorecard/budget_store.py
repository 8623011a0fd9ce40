"""Processes that are killed at any moment share a privacy budget: never under-counted, or passed.

    python benchmarks/scorecard/budget_store.py [--interleavings 200] [--seed 1]

An interleaving is four processes over one store of ε 3 and δ 1e-5. Each takes parts of studies of
its own: it reserves, and once that returned it tells that the noisy answer leaves now; then it
commits, or (told beforehand, so that nothing leaves) releases, or does neither; it asks again for
what it has, and for what is more than what is left. Each is killed with SIGKILL at a moment drawn
anew, and started again with the same parts, twice. Some write under a limit on a file's size
that fails every write, as on a disk that is full. Afterwards, the store must count at least every
part that left, and at most what is allowed; a part whose commit returned cannot be released; it is
sound by SQLite's own check; and what can still be reserved is what is left, to the last unit.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from sheet import main

from fedcohort.network.state.budget import Account, Budget
from fedcohort.network.state.policy import Allowance
from fedcohort.protocol.errors import Refused

ITEM = "budget store"
TARGET = "200 interleavings with crashes: never under-counted, never passed"
ALLOWED = Allowance(Decimal(3), Decimal("1e-5"))
WORKERS, LIVES, PARTS = 4, 3, 8
AMOUNTS = ((0.05, 1e-7), (0.2, 3e-7), (0.3, 0.0), (0.7, 2e-6))
Part = tuple[str, str]


def store(path: Path) -> Budget:
    """Return the store."""
    return Budget(path, "patients", ALLOWED)


def amount(study: str, part: int) -> tuple[float, float]:
    """Return what a part asks for: the same in each life, as the steps of an approved study."""
    return AMOUNTS[random.Random(f"{study}/{part}").randrange(len(AMOUNTS))]


def keeps_none(study: str, part: int) -> bool:
    """Return whether nothing leaves for a part, so that it is released."""
    return random.Random(f"{study}/{part}/none").random() < 0.25


def work(path: Path, study: str, tell: Callable[[str], None], full: bool) -> None:
    """Live one life of a process."""
    if full:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    budget = store(path)
    for part in range(PARTS):
        name = str(part)
        try:
            budget.reserve(study, name, *amount(study, part))
        except (Refused, sqlite3.Error, OSError):
            continue  # then nothing leaves
        with contextlib.suppress(Refused, sqlite3.Error, OSError):
            if keeps_none(study, part):
                budget.release(study, name)
                continue
            tell(f"left {study} {name}\n")
            if part % 3:
                budget.commit(study, name)
                tell(f"spent {study} {name}\n")
            budget.reserve(study, name, *amount(study, part))  # as after a restart


def life(path: Path, study: str, pipe: int, full: bool) -> int:
    """Start a process that lives one life; return its number."""
    pid = os.fork()
    if pid == 0:
        try:
            work(path, study, lambda line: os.write(pipe, line.encode()) and None, full)
        finally:
            os._exit(0)
    return pid


def interleaving(path: Path, r: random.Random) -> tuple[set[Part], set[Part], int]:
    """Let four processes live and be killed; return what left and was spent, and the kills."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    killed, text = 0, b""
    alive: dict[int, tuple[int, float]] = {}
    lives = dict.fromkeys(range(WORKERS), 0)
    while alive or any(n < LIVES for n in lives.values()):
        for worker in range(WORKERS):
            if lives[worker] < LIVES and worker not in {w for w, _ in alive.values()}:
                full = lives[worker] == 1 and r.random() < 0.15
                pid = life(path, f"study-{worker}", write, full)
                last = lives[worker] == LIVES - 1 and r.random() < 0.5
                alive[pid] = (worker, time.monotonic() + (9 if last else r.uniform(0, 0.08)))
                lives[worker] += 1
        for pid, (_, end) in list(alive.items()):
            if time.monotonic() >= end:
                os.kill(pid, signal.SIGKILL)
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                killed += os.WIFSIGNALED(status)
                del alive[pid]
        with contextlib.suppress(BlockingIOError):
            text += os.read(read, 1 << 20)
        time.sleep(0.001)
    os.close(write)
    while part := os.read(read, 1 << 20):
        text += part
    os.close(read)
    told: dict[str, set[Part]] = {"left": set(), "spent": set()}
    for line in text.decode().splitlines():
        what, study, part_name = line.split()
        told[what].add((study, part_name))
    return told["left"], told["spent"], killed


def wrong(path: Path, left: set[Part], spent: set[Part]) -> list[str]:
    """Return what is wrong with a store after an interleaving."""
    found = list[str]()
    with contextlib.closing(sqlite3.connect(path)) as db:
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            found.append("the file is damaged")
    budget = store(path)
    account = budget.account()
    counted = _counted(account)
    amounts = [tuple(Decimal(repr(a)) for a in amount(s, int(part))) for s, part in left]
    for i, unit in enumerate(("ε", "δ")):
        least = sum((a[i] for a in amounts), Decimal(0))
        most = (ALLOWED.epsilon, ALLOWED.delta)[i]
        if counted[i] < least:
            found.append(f"{unit} {least} left, {counted[i]} is counted")
        if counted[i] > most:
            found.append(f"{unit} {counted[i]} is counted, {most} is allowed")
    for study, part in spent:
        with contextlib.suppress(Refused):
            budget.release(study, part)
            found.append(f"part {part} of {study} was spent, and could be released")
    return found + _to_the_last_unit(path)


def _to_the_last_unit(path: Path) -> list[str]:
    """Reserve just more than what is left, and just that; return what is wrong."""
    budget = store(path)
    remaining = budget.account().left
    assert remaining is not None
    with contextlib.suppress(Refused):
        budget.reserve("last", "more", float(remaining.epsilon) + 1e-9, 0.0)
        return ["more than what is left was reserved"]
    budget.reserve("last", "all", float(remaining.epsilon), 0.0)
    after = budget.account().left
    assert after is not None
    return [] if after.epsilon == 0 else [f"{after.epsilon} is left of all"]


def _counted(account: Account) -> tuple[Decimal, Decimal]:
    return (
        account.reserved.epsilon + account.spent.epsilon,
        account.reserved.delta + account.spent.delta,
    )


def measure(interleavings: int = 200, seed: int = 1) -> tuple[str, bool]:
    """Let all happen; say what was found."""
    r = random.Random(seed)
    broken, killed, parts, good = list[str](), 0, 0, 0
    for i in range(interleavings):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "budget.sqlite"
            left, spent, n = interleaving(path, r)
            killed, parts = killed + n, parts + len(left)
            found = wrong(path, left, spent)
            good += not found
            broken += [f"interleaving {i}: {line}" for line in found]
    for line in broken:
        print(line)
    text = (
        f"{interleavings} interleavings of {WORKERS} processes, {killed} kills at work, {parts:,} "
        f"answers that left: {interleavings - good} wrong"
    )
    return text, interleavings >= 200 and not broken and min(killed, parts) > interleavings


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure, interleavings=200, seed=1)
