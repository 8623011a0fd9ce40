"""The verified studies of a node and their tables.

A study is read and verified once, and again after a restart; decisions are read from their files
each time. A table is opened only for an approved study, read once, and checked against its
dictionary, the cohorts of earlier studies and the site's rule for free parameters.

Revealed: a refusal is one line of names and rules.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from fedcohort.network.node.table import digest, open_table
from fedcohort.network.requests import is_hash
from fedcohort.network.state import study_store
from fedcohort.network.state.cohorts import Cohorts, parts
from fedcohort.network.state.policy import Asked, Config
from fedcohort.network.state.study_store import StudyStore, short
from fedcohort.network.study_offer import Offer
from fedcohort.privacy.disclosure.models import ROWS_EACH
from fedcohort.protocol.errors import FedcohortError, Refused
from fedcohort.secure.trust import Peer, Trust
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.warnings import too_many

#: Studies whose tables are held in memory at once.
HELD = 2


@dataclass
class Study:
    """An offered study that this node has verified, and its table once it was opened."""

    offer: Offer
    terms: Terms
    asked: Asked
    lead: Peer
    table: SiteTable | None = None
    mark: str = ""
    noted: bool = False


class Studies:
    """The studies of one node.

    Parameters
    ----------
    site : its name.
    config : policy and source of the table.
    trust : trusted authorities.
    store : studies and the steward's decisions.
    cohorts : patients of earlier studies.
    log : the site's own.

    Attributes
    ----------
    held : the last `HELD` studies, by their hash.
    """

    def __init__(
        self,
        site: str,
        config: Config,
        trust: Trust,
        store: StudyStore,
        cohorts: Cohorts,
        log: logging.Logger,
    ):
        self._site, self._config, self._trust = site, config, trust
        self._desk, self._cohorts, self._log = store, cohorts, log
        self.held: dict[str, Study] = {}
        self._lock = threading.Lock()

    def verified(self, offer: Offer) -> Study:
        """Return a study whose signature, text and version are right.

        Raises
        ------
        Refused : they are not.
        """
        lead = offer.verify(self._trust)
        with self._lock:
            known = self.held.get(offer.hash)
        if known is not None and known.lead == lead:
            return known
        try:
            terms = Terms.from_json(offer.terms)
            asked = Asked.of(terms.plan, terms.dictionary, terms.outcome)
        except FedcohortError as error:
            raise Refused("study", f"this version cannot run the study: {error}") from None
        if terms.hash != offer.hash:
            raise Refused("hash", "the study's text is not the one that its hash names.")
        return Study(offer, terms, asked, lead)

    def approved(self, run: str) -> Study:
        """Return a study that may be called.

        Raises
        ------
        Refused : it was not offered, waits, was refused, or its approval has ended; or its stored
            text was
            changed.
        """
        if not is_hash(run):
            raise Refused("run", "a call names no study by its whole hash.")
        made = self._desk.decision(run)
        if made is None:
            raise Refused("unapproved", f"the study {short(run)} is not approved at this site.")
        if made.decision == study_store.REFUSED:
            raise by_steward(made.reason)
        if made.ended:
            raise lapsed(run, made.ended)
        with self._lock:
            known = self.held.get(run)
        if known is None:
            known = self.verified(Offer.from_bytes(self._desk.offer(run)))
            if known.offer.hash != run:
                raise Refused("hash", "the study on the desk is not the one of its hash.")
            self._hold(run, known)
        return known

    def table(self, run: str, study: Study) -> SiteTable:
        """Return the table as this study sees it, read once; the caller lets one at a time."""
        if study.table is None:
            data, policy = self._config.data, self._config.policy
            try:
                table = open_table(
                    study.terms, self._site, data, policy.min_rows, self._cohorts.key
                )
                self._cohorts.check(run, table.marks, parts(table), study.asked.min_cell)
                self._check_parameters(run, table)
                study.table, study.noted = table, False
            except Refused as error:
                self._desk.note_fit(run, (str(error),))
                raise
            study.mark = digest(study.table)
            self._desk.note_fit(run, ())
        self._hold(run, study)
        return study.table

    def note_cohort(self, run: str, study: Study, table: SiteTable) -> None:
        """Note the patients of a study before anything leaves; callers take turns.

        Raises
        ------
        Refused : they are nearly those of another study, noted since the offer.
        """
        if not study.noted:
            name, least = study.terms.plan.study, study.asked.min_cell
            self._cohorts.note(run, name, table.marks, parts(table), least)
            study.noted = True

    def forget(self, run: str) -> None:
        """Hold a study no longer: its run is over."""
        with self._lock:
            self.held.pop(run, None)

    def _check_parameters(self, run: str, table: SiteTable) -> None:
        """Check the arms' free parameters against this site's training rows.

        Raises
        ------
        Refused : they are too many, and the site's policy refuses that.
        """
        for arm, count in too_many(table):
            if self._config.policy.parameters_per_row == "refuse":
                raise Refused(
                    "parameters",
                    f"arm {arm!r} has about {count} free parameters, and this site has fewer than "
                    f"{ROWS_EACH} rows for each (parameters_per_row). Choose fewer columns or a "
                    f"smaller model.",
                )
            self._log.warning("crowded %s arm=%s parameters=%d", short(run), arm, count)

    def _hold(self, run: str, study: Study) -> None:
        """Keep a study in memory, and not too many."""
        with self._lock:
            self.held.pop(run, None)
            self.held[run] = study
            while len(self.held) > HELD:
                self.held.pop(next(iter(self.held)))


def by_steward(reason: str) -> Refused:
    """Return the refusal that carries a steward's reason."""
    said = f": {reason}" if reason else "; no reason was given"
    return Refused("refused", f"the data steward refused the study{said}")


def lapsed(run: str, why: str) -> Refused:
    """Return the refusal of a study whose approval counts no longer."""
    return Refused(
        "unapproved",
        f"{why}. The study {short(run)} waits for the data steward again; once it is approved, "
        f"--resume goes on",
    )
