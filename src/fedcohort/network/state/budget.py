"""The privacy budget of a site's data set, reserved before it is spent.

Sequential composition: several differentially private studies of one table reveal together at most
(Σ ε, Σ δ) (Dwork & Roth, 2014, theorem 3.16). A data set has one allowance:

    reserve → (noise is added, something leaves) → commit
            → (nothing left)                     → release

An amount counts from `reserve` on, which is on disk (SQLite, synchronous=EXTRA) before it returns;
a crash leaves it counted. Amounts are whole numbers of 10⁻⁹ ε and 10⁻¹⁸ δ, rounded up; the
allowance is rounded down.

One session of a private study (`Spending`): the whole (ε, δ) of a fit is reserved and spent at its
first private call, before a row is read. Every call and all noisy answers of its reply are counted
in the same file, so neither a restart nor a second copy of the node gives a fit more than its list.
Order: count, read rows, draw noise, note, keep, answer. A failed call spends like an answered one,
because a failure may depend on the noise or a row.

A history is one attempt at a session (`runtime.reply_store`). A repeated call of a history is
answered from the store without new noise. Another history draws new noise: it spends the whole
amount again, or is refused. A reply that was counted but not kept (failure between the two) is
lost; the fit then fails and must be started again.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Generator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path

from fedcohort.network.state.durable import opened
from fedcohort.network.state.policy import Allowance
from fedcohort.privacy.guard import beyond
from fedcohort.protocol import Dp
from fedcohort.protocol.errors import InputError, Refused

RESERVED, SPENT, RELEASED = "reserved", "spent", "released"

_EPSILON, _DELTA = 10**9, 10**18
NO_BUDGET = (
    "this site has set no privacy budget, so nothing can be spent. It sets one as "
    "policy.privacy_budget in node.toml."
)
#: Longer than this no amount can be: SQLite holds 64 bits.
_MOST = 2**62
_TABLE = """
CREATE TABLE IF NOT EXISTS spends (
    dataset TEXT NOT NULL, study TEXT NOT NULL, part TEXT NOT NULL,
    epsilon INTEGER NOT NULL CHECK (epsilon >= 0), delta INTEGER NOT NULL CHECK (delta >= 0),
    state TEXT NOT NULL CHECK (state IN ('reserved', 'spent', 'released')),
    PRIMARY KEY (dataset, study, part))
"""
_SUMS = (
    "SELECT COALESCE(SUM(epsilon), 0), COALESCE(SUM(delta), 0) FROM spends WHERE dataset = ? "
    "AND state != 'released'"
)


@dataclass(frozen=True)
class Amount:
    """ε and δ."""

    epsilon: Decimal
    delta: Decimal


@dataclass(frozen=True)
class Account:
    """Where a data set's budget stands; `studies` holds what each reserved and spent."""

    allowed: Allowance | None
    reserved: Amount
    spent: Amount
    left: Amount | None
    studies: tuple[tuple[str, Amount, Amount], ...]


class Budget:
    """The budget of one data set, in a file for several processes.

    Parameters
    ----------
    allowed : None if the site has set no budget; then nothing can be reserved.
    """

    def __init__(self, path: Path, dataset: str, allowed: Allowance | None):
        self._path, self._dataset, self._allowed = path, dataset, allowed

    def reserve(self, study: str, part: str, epsilon: float, delta: float) -> None:
        """Reserve an amount of what is left.

        Asking again for the same part of a study with the same amount changes nothing.

        Raises
        ------
        Refused : the site has no budget; the amount is impossible or more than what is left; or
            this part
            reserved another amount before.
        """
        if self._allowed is None:
            raise Refused("budget", NO_BUDGET)
        asked = _whole(epsilon, _EPSILON), _whole(delta, _DELTA)
        with self._changing() as db:
            row = db.execute(
                "SELECT epsilon, delta, state FROM spends WHERE dataset = ? AND study = ? AND "
                "part = ?",
                (self._dataset, study, part),
            ).fetchone()
            if row is not None and row[2] != RELEASED:
                if tuple(row[:2]) != asked:
                    raise Refused("budget", f"part {part!r} has reserved another amount before.")
                return
            held = db.execute(_SUMS, (self._dataset,)).fetchone()
            limits = _floor(self._allowed.epsilon, _EPSILON), _floor(self._allowed.delta, _DELTA)
            if any(h + a > most for h, a, most in zip(held, asked, limits, strict=True)):
                raise Refused(
                    "budget",
                    f"the study asks for ε {epsilon:g} and δ {delta:g}; this site's privacy budget "
                    f"has less left. Ask for less; 'fedcohort node budget' shows the site what is "
                    f"left.",
                )
            db.execute(
                "INSERT OR REPLACE INTO spends VALUES (?, ?, ?, ?, ?, 'reserved')",
                (self._dataset, study, part, *asked),
            )

    def commit(self, study: str, part: str) -> None:
        """Note that what was reserved is spent; committing twice changes nothing.

        Raises
        ------
        Refused : nothing is reserved for it.
        """
        self._move(study, part, SPENT)

    def release(self, study: str, part: str) -> None:
        """Give back a reserved amount for which nothing left the site.

        Raises
        ------
        Refused : nothing is reserved for it, or it is spent.
        """
        self._move(study, part, RELEASED)

    def _move(self, study: str, part: str, to: str) -> None:
        with self._changing() as db:
            moved = db.execute(
                "UPDATE spends SET state = ? WHERE dataset = ? AND study = ? AND part = ? AND "
                "state IN ('reserved', ?)",
                (to, self._dataset, study, part, to),
            )
            if moved.rowcount != 1:
                raise Refused("budget", f"nothing is reserved for part {part!r} of this study.")

    def account(self) -> Account:
        """Return where the budget stands."""
        sums: dict[str, dict[str, tuple[int, int]]] = {}
        if self._path.is_file():
            with self._opened() as db:
                for study, state, epsilon, delta in db.execute(
                    "SELECT study, state, SUM(epsilon), SUM(delta) FROM spends WHERE dataset = ? "
                    "AND state != 'released' GROUP BY study, state ORDER BY study",
                    (self._dataset,),
                ):
                    sums.setdefault(study, {})[state] = (epsilon, delta)
        studies = tuple(
            (study, _amount(s.get(RESERVED, (0, 0))), _amount(s.get(SPENT, (0, 0))))
            for study, s in sums.items()
        )
        reserved, spent = _total([s[1] for s in studies]), _total([s[2] for s in studies])
        left = None
        if self._allowed is not None:
            left = Amount(
                self._allowed.epsilon - reserved.epsilon - spent.epsilon,
                self._allowed.delta - reserved.delta - spent.delta,
            )
        return Account(self._allowed, reserved, spent, left, studies)

    @contextlib.contextmanager
    def _opened(self) -> Generator[sqlite3.Connection]:
        """Yield a connection.

        Raises
        ------
        InputError : the file is damaged.
        """
        try:
            with opened(self._path, _TABLE) as db:
                yield db
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # such as a full disk
                raise
            raise InputError(
                f"{self._path} is damaged ({error}): it says how much privacy budget is spent. "
                f"Bring back the one that the node had."
            ) from None

    @contextlib.contextmanager
    def _changing(self) -> Generator[sqlite3.Connection]:
        """Yield a connection within a transaction that no other can overlap."""
        if not self._path.exists():
            self._path.touch(mode=0o600)
        with self._opened() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def _whole(amount: float, unit: int) -> int:
    """Return an amount in its unit, rounded up.

    Raises
    ------
    Refused : it is negative, not finite, or larger than can be held.
    """
    exact = Decimal(repr(float(amount)))
    if not exact.is_finite() or exact < 0 or exact * unit > _MOST:
        raise Refused("budget", "an amount of privacy is a number of at least 0.")
    return int((exact * unit).to_integral_value(ROUND_CEILING))


def _floor(amount: Decimal, unit: int) -> int:
    return int((amount * unit).to_integral_value(ROUND_FLOOR))


def _amount(units: tuple[int, int]) -> Amount:
    return Amount(Decimal(units[0]) / _EPSILON, Decimal(units[1]) / _DELTA)


def _total(amounts: list[Amount]) -> Amount:
    zero = Decimal(0)
    return Amount(sum((a.epsilon for a in amounts), zero), sum((a.delta for a in amounts), zero))


_RELEASES = """
CREATE TABLE IF NOT EXISTS releases (
    study TEXT NOT NULL, part TEXT NOT NULL, step TEXT NOT NULL, n INTEGER NOT NULL,
    PRIMARY KEY (study, part, step))
"""


@dataclass(frozen=True)
class Spending:
    """A `privacy.guard.Tally` on disk.

    Attributes
    ----------
    path : the file of the budget.
    budget : of the data set.
    study : hash of the study. session : the fit's.
    dp : what one fit costs.
    allowed : raises `Refused` where the session may ask for nothing more; before anything is spent.
    """

    path: Path
    budget: Budget
    study: str
    session: str
    dp: Dp
    allowed: Callable[[], None] = lambda: None

    def reserve(self, history: str) -> None:
        """See `Tally`."""
        self.allowed()
        self.budget.reserve(self.study, self._part(history), self.dp.epsilon, self.dp.delta)

    def taken(self, history: str, step: str) -> int:
        """See `Tally`."""
        with opened(self.path, _RELEASES) as db:
            row = db.execute(
                "SELECT n FROM releases WHERE study = ? AND part = ? AND step = ?",
                (self.study, self._part(history), step),
            ).fetchone()
        return 0 if row is None else int(row[0])

    def take(self, history: str, step: str, n: int, most: int) -> None:
        """See `Tally`."""
        self.budget.commit(self.study, self._part(history))
        with opened(self.path, _RELEASES) as db:
            counted = db.execute(  # one statement: no other process counts between look and write
                "INSERT INTO releases SELECT ?1, ?2, ?3, ?4 WHERE ?4 <= ?5 "
                "ON CONFLICT (study, part, step) DO UPDATE SET n = n + excluded.n "
                "WHERE n + excluded.n <= ?5",
                (self.study, self._part(history), step, n, most),
            )
            if counted.rowcount != 1:
                raise beyond(step, most)

    def _part(self, history: str) -> str:
        return f"{self.session} {history}"
