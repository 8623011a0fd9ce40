"""The sites of a study over a network, for its runner; and sites in this process.

`LocalSites` is the reference for every network: the same tables, sessions and arrays, with nothing
between coordinator and sites. It also serves a rehearsal.

Revealed: what the sessions' steps declare.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Protocol

from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.runtime.reply_store import StateStore
from fedcohort.study.at_site.sessions import open_session, over_with
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.results.own_models import OwnModels


class Unanswered(Exception):
    """The people at the sites were not all asked yet whether they consent after the ranking.

    Attributes
    ----------
    told : what each site is to be told, by site (`at_site.ranked`).
    """

    def __init__(self, told: Mapping[str, str]):
        super().__init__("the sites have not answered yet")
        self.told = dict(told)


class Sites(Protocol):
    """The sites that take part in a study.

    Attributes
    ----------
    noise : source of the noise of private fits: "seed" in a rehearsal, else "system".
    """

    noise: str

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, sorted."""
        ...

    @property
    def absent(self) -> Mapping[str, str]:
        """By name, why an invited site takes no part."""
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
        """Return one federation of the study, for the session of that name."""
        ...

    def close(self, session: str) -> None:
        """Let the sites delete their state of a finished federation."""
        ...

    def consents(self, told: Mapping[str, str]) -> Mapping[str, str]:
        """Return why each site that withdraws after the ranking does so, by site.

        Raises
        ------
        Unanswered : the people there have to be asked first.
        """
        ...

    def without(self, gone: Mapping[str, str]) -> Sites:
        """Return the sites that are left after a withdrawal."""
        ...


class LocalSites:
    """Sites in this process.

    Parameters
    ----------
    tables : one a site, checked against it.
    states : folder of the sites' states, so that a run can be resumed; None: in memory only.
    min_cell : the sites' own.
    absent : (session, call, site) → whether the site does not answer; for tests of dropouts.
    heard : (site, lines) → keeps a site's feedback there.
    withdraw : by site, why it withdraws after a ranking.
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
        withdraw: Mapping[str, str] | None = None,
    ):
        self._withdraw = dict(withdraw or {})
        self._gone: dict[str, str] = {}
        self._terms = terms
        self._tables = {t.site: t for t in tables}
        self._states = states
        self._min_cell = min_cell
        self._absent = absent
        self._heard = heard
        self._models = {
            site: OwnModels(None if states is None else states / "models" / site.encode().hex())
            for site in self._tables
        }

    def models(self, site: str) -> OwnModels:
        """Return the models that a site keeps (`user: all`)."""
        return self._models[site]

    @property
    def names(self) -> tuple[str, ...]:
        """See `Sites`."""
        return tuple(sorted(self._tables))

    @property
    def absent(self) -> Mapping[str, str]:
        """See `Sites`."""
        return self._gone

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
                models=self._models[table.site],
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
        for models in self._models.values():
            over_with(self._terms, session, models)
        if self._states is not None:
            shutil.rmtree(self._states / session, ignore_errors=True)

    def consents(self, told: Mapping[str, str]) -> Mapping[str, str]:
        """See `Sites`."""
        return {site: why for site, why in self._withdraw.items() if site in told}

    def without(self, gone: Mapping[str, str]) -> LocalSites:
        """See `Sites`."""
        left = copy(self)
        left._tables = {s: t for s, t in self._tables.items() if s not in gone}
        left._gone = {**self._gone, **gone}
        return left
