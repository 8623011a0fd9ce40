"""What one session of a private study has spent of a data set's budget, on the node's disk.

The whole (ε, δ) of a fit is reserved and spent at its first private call, before a row is looked
at. Each call is counted then too, with all the noisy answers that its reply may be made of, in the
same file, so that neither a restart of the node nor a second copy of it gives a fit more than its
list. The order is: count, look at rows, draw noise, note, keep, answer. A call that fails on the
way has spent what one that is answered does, as whether it fails may tell of the noise or of a row.

A history is one attempt at a session (`runtime.answers`). A call that is asked again in its history
is answered from the store, without new noise. Another history draws anew: it is another part of the
study, which spends the whole amount again, or is refused.

A reply that was counted and not kept, as after a failure or a power cut between the two, is lost:
the fit then ends one reply short, and has to be started again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedcohort.network.budget import Budget
from fedcohort.network.durable import opened
from fedcohort.privacy.guard import beyond
from fedcohort.protocol import Dp

_TABLE = """
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
        with opened(self.path, _TABLE) as db:
            row = db.execute(
                "SELECT n FROM releases WHERE study = ? AND part = ? AND step = ?",
                (self.study, self._part(history), step),
            ).fetchone()
        return 0 if row is None else int(row[0])

    def take(self, history: str, step: str, n: int, most: int) -> None:
        """See `Tally`."""
        self.budget.commit(self.study, self._part(history))
        with opened(self.path, _TABLE) as db:
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
