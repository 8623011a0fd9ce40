"""The sites of a deployed study, as its runner sees them; and those that are in this process.

`LocalSites` is the reference that every network must equal: the same tables, the same sessions, the
same arrays, without anything between coordinator and sites. It also serves a rehearsal.

Revealed: what the sessions' steps declare.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.runtime.reply_store import StateStore
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms


class Sites(Protocol):
    """The sites that take part in a deployed study.

    Attributes
    ----------
    noise : where the noise of private fits comes from: "seed" in a rehearsal, else "system".
    """

    noise: str

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, sorted."""
        ...

    @property
    def absent(self) -> Mapping[str, str]:
        """By name, why a site that was asked takes no part."""
        ...

    def federation(
        self,
        session: str,
        *,
        quorum: float,
        ledger: Ledger,
        journal: Journal | None,
        observer: Callable[[Progress], None] | None,
        secure: str = "auto",
    ) -> Coordinator:
        """Return one federation of the study; `session` names it to the sites."""
        ...

    def close(self, session: str) -> None:
        """Let the sites forget a federation that is over."""
        ...


class LocalSites:
    """Sites in this process.

    Parameters
    ----------
    terms : the study.
    tables : one a site, checked against it.
    states : the folder where sites keep their states, so that a run can be resumed; None keeps
        them in memory alone.
    min_cell : the sites' own least cell.
    absent : (session, call, site) → whether the site does not answer; for tests of dropouts.
    heard : (site, lines) → where a site keeps what feedback finds of it.
    """

    noise = "seed"

    def __init__(
        self,
        terms: Terms,
        tables: Iterable[SiteTable],
        *,
        states: Path | None = None,
        min_cell: int = 1,
        absent: Callable[[str, int, str], bool] | None = None,
        heard: Callable[[str, Sequence[str]], None] | None = None,
    ):
        self._terms = terms
        self._tables = {t.site: t for t in tables}
        self._states = states
        self._min_cell = min_cell
        self._absent = absent
        self._heard = heard

    @property
    def names(self) -> tuple[str, ...]:
        """See `Sites`."""
        return tuple(sorted(self._tables))

    @property
    def absent(self) -> Mapping[str, str]:
        """See `Sites`."""
        return {}

    def federation(
        self,
        session: str,
        *,
        quorum: float,
        ledger: Ledger,
        journal: Journal | None,
        observer: Callable[[Progress], None] | None,
        secure: str = "auto",
    ) -> Coordinator:
        """See `Sites`."""
        hosts = [
            open_session(
                self._terms, table, session, self._min_cell,
                heard=None if self._heard is None else partial(self._heard, table.site),
            )
            for table in self._tables.values()
        ]  # fmt: skip
        store = None
        if self._states is not None and journal is not None:
            store = StateStore(self._states / session)
        absent = self._absent
        return local(
            hosts,
            quorum=quorum,
            ledger=ledger,
            journal=journal,
            store=store,
            observer=observer,
            absent=None if absent is None else lambda call, site: absent(session, call, site),
            secure=secure,
        )

    def close(self, session: str) -> None:
        """See `Sites`."""
        if self._states is not None:
            shutil.rmtree(self._states / session, ignore_errors=True)
