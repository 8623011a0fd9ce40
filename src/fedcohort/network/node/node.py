"""A site's node, without its engine: the coordinator's requests and the site's answers.

    offer   a study as its lead signed it: checked against the policy, stored for the steward; once
            approved, the table is opened and checked against its dictionary
    keys, shares, sign, unmask    the stages of a masked sum (`runtime.masked.calls`), as calls
    call    one step of an approved study: policy, decision and run are checked again, then
            `runtime.site.site_end` decodes, runs, stores and answers it
    ranked  this site's place in a ranking: kept for the steward, who consents again or refuses;
            before, no call is answered that trains, of a study with `consent: after-ranking`
    close   a session, or (without one) the whole run, is over: its calls are refused from now on;
            with the end of the run, for the steward
    end     how a run ended that can be resumed, as after a failure: shown, nothing is closed
    withdrawal    this site's signed withdrawal from a study, if it withdrew
    ping    whether the site is there, and its version

A refusal is one line of names and rules for the coordinator, the site's log and its ledger; nothing
is computed. Any other error is reported by its kind and a number that the site's log has. Decisions
are read from their files at each call, so they count at once.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcohort.network.kits import Kit
from fedcohort.network.node import forgetting
from fedcohort.network.node import log as node_log
from fedcohort.network.node.studies import Studies, Study, by_steward, lapsed
from fedcohort.network.requests import PASSING, is_hash, printable
from fedcohort.network.service import unwritable
from fedcohort.network.state import decisions, findings, kept, signatures, study_store
from fedcohort.network.state.budget import Budget, Spending
from fedcohort.network.state.cohorts import Cohorts
from fedcohort.network.state.ledger import NodeLedger
from fedcohort.network.state.policy import Config
from fedcohort.network.state.replay_guard import OnDisk
from fedcohort.network.state.rollback import Rollback
from fedcohort.network.state.study_store import Noted, said_of, short
from fedcohort.network.state.withdrawals import Withdrawal
from fedcohort.network.study_offer import Offer
from fedcohort.protocol import Dp
from fedcohort.protocol.errors import Refused, VerbRefused
from fedcohort.protocol.host import Host
from fedcohort.protocol.line import LARGEST
from fedcohort.protocol.wire import Malformed, decode, encode, head
from fedcohort.runtime.calls import NO_VIEW, Request, refusal_bytes
from fedcohort.runtime.masked import ANY, FEW, NEVER, STAGES, Keys, SumRule
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site import Left, Limits, SiteEnd, disk, error_location
from fedcohort.secure import Identity
from fedcohort.secure.trust import Peer, Trust
from fedcohort.study.at_site import ranked
from fedcohort.study.at_site.forgetting import Kept, not_kept
from fedcohort.study.at_site.sessions import (
    FIRST,
    Session,
    is_few,
    kept_of,
    open_session,
    over_with,
)
from fedcohort.study.file.second_consent import ranks
from fedcohort.study.results.own_models import OwnModels
from fedcohort.version import VERSION

#: Reply to the coordinator on a study that waits for a person's decision.
WAITS = "waiting for the data steward"
#: Seconds for which a study waits for the greeting.
GREETING = 10.0
#: Ended studies listed to the node's operator.
LATEST = 20


class Node:
    """One site's node.

    Parameters
    ----------
    kit : the site's.
    config : policy and source of the table: a node.toml, or its parsed content. A change of the
        file
        counts from the next start.
    trust : trusted authorities; the kit's own by default.
    state : the node's folder; `state` in the kit by default.

    Attributes
    ----------
    rollback : detects that the state was restored from an older one.
    greeted : set once the coordinator has told the count it has seen of this node; studies wait for
        it.
        None if nobody greets.
    """

    def __init__(
        self, kit: Kit, config: Config | Path, trust: Trust | None = None, state: Path | None = None
    ):
        self.kit = kit
        self.config = Config.read(config) if isinstance(config, Path) else config
        self.state = state or kit.folder / "state"
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state.chmod(0o700)
        self._trust = trust or kit.trust()
        self.log = node_log.opened(self.state / "log.txt")
        policy = self.config.policy
        if isinstance(config, Path):
            study_store.note_config(self.state, config)
        self.store = signatures.open_store(kit, policy, self.state, self._trust)
        self._ledger = NodeLedger(self.state / "ledger.jsonl")
        self.rollback = Rollback(self.state, self._ledger.length)
        self.greeted: threading.Event | None = None
        self._cohorts = Cohorts(
            self.state, self.config.data.name, policy.min_cell, policy.differencing
        )
        self._studies = Studies(
            kit.name, self.config, self._trust, self.store, self._cohorts, self.log
        )
        answers = self.state / "answers.sqlite"
        answers.touch(mode=0o600)
        self._answers = Answers(answers, alone=True)
        self._end = SiteEnd(
            kit.name,
            self._open_session,
            self._answers,
            limits=Limits(max_numbers=policy.max_parameters, min_cell=policy.min_cell),
            note=self._left,
            log=lambda line: self.log.warning("failed %s", line),
            sums=self._sum_rule,
        )
        self._runs: dict[str, Noted] = {}
        self._fresh: set[str] = set()
        self._begun: dict[str, tuple[int, str]] = {}
        self._ended: set[str] = set()
        self._answered: dict[str, str] = {}
        self._lock, self._reading = threading.Lock(), threading.RLock()
        self._faults = itertools.count(1)
        self.last_refusal = ""
        self.log.info("started version %s", VERSION)

    def close(self) -> None:
        """Put everything on disk and close all files."""
        self.log.info("stopped")
        self._ledger.close()
        with contextlib.suppress(Exception):
            self._answers.close()
        node_log.closed(self.log)

    def facts(self) -> dict[str, Any]:
        """Return the node's facts for its own operator."""
        entries = self.store.entries()
        ended = [e for e in entries if e.ended is not None][:LATEST]
        return {
            "waiting": [f"{e.name} ({short(e.study)})" for e in entries if e.waits],
            "running": [f"{e.name} ({short(e.study)})" for e in entries if e.running],
            "ended": {f"{e.name} ({short(e.study)})": said_of(e.ended) for e in ended},
            "error": self.last_refusal,
        }

    def handle(self, peer: Peer, body: bytes) -> bytes:
        """Answer one request of a verified peer; never raises."""
        run = ""
        try:
            if peer.role != "coordinator":
                raise Refused("role", f"{peer.name} is no coordinator; only one may ask a site.")
            if len(body) > LARGEST:
                raise Refused("size", f"a request is larger than {LARGEST} bytes, the most.")
            meta = head(body)
            kind, named = meta.get("kind"), meta.get("run")
            run = str(named) if is_hash(named) else ""
            if kind != "ping":
                self._check_disk()
            if kind not in ("ping", "close", "end"):
                self._check_restored()
            if kind == "call" or kind in STAGES:
                return self._call(run, body)
            if kind == "offer":
                return self._offered(*decode(body))
            if kind == "ranked":
                return self._ranked(run, meta)
            if kind == "close":
                return self._close(run, meta)
            if kind == "end":
                return self._end_of(run, meta)
            if kind == "withdrawal":
                record = self.store.withdrawal(run) if run else {}
                return encode({}, {"kind": "withdrawal", "record": record})
            if kind == "ping":
                return encode({}, {"kind": "pong", "version": VERSION})
            raise Refused("kind", "a request is none of offer, call, ranked, close, end and ping.")
        except Refused as error:
            return self._refuse(run, error)
        except Malformed:
            return self._refuse(run, Refused("malformed", "a request is no record of arrays."))
        except OSError as error:
            self.log.error("disk %s study=%s", error_location(error), short(run))
            return self._refuse(run, _unkept(error.strerror or type(error).__name__))
        except Exception as error:
            number, name = next(self._faults), type(error).__name__
            self.log.error("fault %d %s study=%s", number, error_location(error), short(run))
            text = f"the node failed ({name}); its own log has it as fault {number}."
            return refusal_bytes("SiteFailed", self._named(text))

    def _check_disk(self) -> None:
        """Check, before a row is read, that the answer's records can be written.

        Raises
        ------
        Refused : "disk".
        """
        if why := unwritable(self.state):
            raise _unkept(why)

    def _check_restored(self) -> None:
        """Check that this state is not older than what this node has told.

        Raises
        ------
        Refused : "older", also before the coordinator has told what it has seen.
        """
        if self.greeted is not None and not self.greeted.wait(GREETING):
            raise Refused("older", "its greeting was not answered yet; it is asked again.")
        self.rollback.check()

    # offers -------------------------------------------------------------------------------

    def _offered(self, arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> bytes:
        """Say where this site stands with a study."""
        text = meta.get("offer")
        if (set(arrays) == {"offer"}) == isinstance(text, str):
            raise Refused("malformed", "an offer is one text, called 'offer'.")
        blob = text.encode() if isinstance(text, str) else arrays["offer"].tobytes()
        study = self._studies.verified(Offer.from_bytes(blob))
        run = study.offer.hash
        try:
            return _standing(*self._standing(study, blob))
        except Refused as error:
            text = self._named(str(error))
            self._note_refusal(run, error)
            return _standing("refused", text, error.code)

    def _standing(self, study: Study, blob: bytes) -> tuple[str, str, str]:
        """Return state, reason and code; an approved study is opened, so that calls may come."""
        run, plan = study.offer.hash, study.terms.plan
        lead, name, of = study.lead, plan.study, ""
        if plan.forget is not None:
            of, name = plan.forget.of, f"{name}, without {', '.join(plan.forget.sites)}"
            self._check_withdrawn(of)
            forgetting.check(study.terms, lead.name, self.store, self._trust)
        self._check_withdrawn(run)
        self.config.policy.check(study.asked, lead.name)
        if self.store.put(run, blob, name, lead.name, lead.organisation, of):
            self.log.info("offered %s %s, of %s", short(run), plan.study, lead.name)
        if (other := self.store.entry(run).lead) != lead.name:
            raise Refused(
                "lead", f"the same study was offered by {other!r} before; give yours another name."
            )
        self.store.reopen(run)
        made, why = self._decision(run, lead.name, offered=True)
        if made is None or why:
            return study_store.WAITING, f"{WAITS}: {why}" if why else WAITS, "unapproved"
        if made.decision == study_store.REFUSED:
            raise by_steward(made.reason)
        with self._reading:
            study.table = None
            self._studies.table(run, study)
            open_, table, mark = self._run_of(run)
            if table not in (None, study.mark):
                self._end.close(run)  # the table is another: the remembered one is useless
            mark = mark if open_ and mark else secrets.token_hex(8)
            self._note_run(run, Noted(True, study.mark, mark))
            self._fresh.add(run)
            self._ended.discard(run)
        if not open_:
            self.log.info("approved %s %s, of %s", short(run), plan.study, lead.name)
        return study_store.APPROVED, "", ""

    def _decision(
        self, run: str, lead: str, *, offered: bool = False
    ) -> tuple[study_store.Decision | None, str]:
        """Return the decision on a study, and why its approval counts no longer, if so.

        The policy decides when a study is offered, and again when its own approval has ended.
        """
        made = self.store.decision(run)
        why = self._lapse(run, made)
        own = made is not None and made.by == study_store.POLICY and not made.signature
        decides = self.config.policy.approval == "automatic"
        due = offered if made is None else own and bool(why)
        if decides and due and not self.store.tries(lead):
            policy = self.config.policy
            with self._reading:
                if (meanwhile := self.store.decision(run)) != made:
                    return meanwhile, self._lapse(run, meanwhile)
                made = self.store.decide(
                    run, study_store.APPROVED, study_store.POLICY,
                    until=decisions.until(policy.approval_days), runs=policy.approval_runs,
                )  # fmt: skip
            why = ""
        return made, why

    def _lapse(self, run: str, made: study_store.Decision | None) -> str:
        """Say why an approval counts no longer; the runs are looked up once a run and decision."""
        if made is None or made.decision != study_store.APPROVED:
            return ""
        if self._begun.get(run) == (made.number, self._run_of(run).mark):
            return made.ended
        return self.store.lapse(run, made)

    def _check_withdrawn(self, run: str) -> None:
        """Refuse a study from which this site withdrew; what a run left in memory is removed.

        Raises
        ------
        Refused : "withdrawn".
        """
        if not (record := self.store.withdrawal(run)):
            return
        if run in self._studies.held:
            self._end.close(run)
            self._studies.forget(run)
        raise Refused("withdrawn", f"the hospital {Withdrawal.of(record).said}")

    # calls --------------------------------------------------------------------------------

    def _call(self, run: str, body: bytes) -> bytes:
        """Answer one call of an approved study."""
        if run:
            self._check_withdrawn(run)
        made, why = self._decision(run, self._lead(run)) if run else (None, "")
        if why:
            raise lapsed(run, why)
        study = self._studies.approved(run)
        self.config.policy.check(study.asked, study.lead.name)
        noted = self._run_of(run)
        if not noted.open:
            raise Refused("closed", "the run of this study is over here; offer the study again.")
        if made is not None and self._begun.get(run) != (made.number, noted.mark):
            with self._reading:
                if not self.store.begin(run, made):
                    raise lapsed(run, self.store.lapse(run, made))
                self._begun[run] = (made.number, noted.mark)
        if study.terms.plan.again is not None:
            self._check_again(run, study, noted, head(body).get("session"))
        if run in self._ended:  # it goes on
            self.store.reopen(run)
            self._ended.discard(run)
        self._fresh.discard(run)
        reply = self._end.handle(body)
        said = head(reply)
        if said.get("kind") == "error" and said.get("code") != NO_VIEW:
            # the failure of a noisy call may depend on the noise: it counts as an answer
            session = "" if study.terms.plan.privacy.dp is None else head(body).get("session")
            with contextlib.suppress(OSError):
                self._ledger.note(
                    run, "error", str(said.get("code")), str(said.get("text")),
                    session=session if isinstance(session, str) else "",
                )  # fmt: skip
        return reply

    # after a ranking ----------------------------------------------------------------------

    def _ranked(self, run: str, meta: Mapping[str, Any]) -> bytes:
        """Take this site's place in a ranking; say whether its people consent again."""
        study = self._studies.approved(run)
        self.config.policy.check(study.asked, study.lead.name)
        noted, plan = self._run_of(run), study.terms.plan
        if plan.again is None:
            raise Refused("ranking", "the study asks for no second consent.")
        if not noted.open:
            raise Refused("closed", "the run of this study is over here; offer the study again.")
        text = meta.get("text")
        ranked.read(text, study.terms, self.kit.name)
        for i, arm in enumerate(plan.arms):
            session = Session("rank", 0, i).text
            if ranks(arm) and not self._ledger.count(run, session):
                raise Refused("ranking", f"this site was not asked for the ranking {session}.")
        until = printable(meta.get("until"))[:40]
        with self._reading:
            second = self.store.put_ranking(run, str(text), until, noted.mark)
            if self._run_of(second) != noted:
                self._note_run(second, noted)
            made, why = self._decision(second, study.lead.name, offered=True)
        state = study_store.WAITING if made is None or why else made.decision
        said = f"{WAITS}: it was told its rank" if state == study_store.WAITING else ""
        if made is not None and state == study_store.REFUSED:
            said = made.reason or "no reason was given"
        if self._answered.get(second) != state:
            self._answered[second] = state
            self.log.info("ranking %s of %s is %s", short(second), short(run), state)
            self._ledger.note(run, "consent", state, f"second consent, {short(second)}: {state}")
        return _standing(state, said, "")

    def _check_again(self, run: str, study: Study, noted: Noted, session: object) -> None:
        """Check that the people here consented after this run's ranking, before it trains.

        Raises
        ------
        Refused : "ranking": they were not told their rank, or did not consent.
        """
        with contextlib.suppress(VerbRefused):  # one that the study has not is refused later
            if Session.parse(str(session), study.terms).kind in FIRST:
                return
        second, _ = self.store.again(run, noted.mark)
        text = self.store.ranking(second) if second else ""
        made = self.store.decision(second) if text else None
        if text:
            ranked.read(text, study.terms, self.kit.name)  # of this study and site
        if made is None or made.decision != study_store.APPROVED or made.ended:
            raise Refused(
                "ranking",
                "the study asks for a second consent after its ranking, and this site has not "
                "given it; nothing is trained before.",
            )
        if self._begun.get(second) != (made.number, noted.mark):
            with self._reading:
                if not self.store.begin(second, made):
                    raise lapsed(second, self.store.lapse(second, made))
                self._begun[second] = (made.number, noted.mark)

    def _lead(self, run: str) -> str:
        """Return a study's lead, as far as this node holds it."""
        known = self._studies.held.get(run)
        return "" if known is None else known.lead.name

    def _run_of(self, run: str) -> Noted:
        with self._lock:
            if run not in self._runs:
                self._runs[run] = self.store.run(run)
                if self.store.ended(run) is not None:
                    self._ended.add(run)
            return self._runs[run]

    def _note_run(self, run: str, noted: Noted) -> None:
        with self._lock:
            self.store.note_run(run, noted)
            self._runs[run] = noted

    def _open_session(self, run: str, session: str) -> Host:
        """Return the host of a session, for `SiteEnd`.

        Raises
        ------
        Refused : the study may not run, or the table is no longer the one that the run began with.
        VerbRefused : the study has no such session.
        """
        study = self._studies.approved(run)
        with self._reading:
            try:
                table = self._studies.table(run, study)
                if self._run_of(run).table != study.mark:
                    raise Refused(
                        "changed",
                        "the site's table changed since this run began; submit the study anew.",
                    )
                self._studies.note_cohort(run, study, table)
            except Refused as error:
                raise Refused(error.code, self._named(str(error))) from None
            return open_session(
                study.terms, table, session, self.config.policy.min_cell,
                lambda name, dp: self._spending(run, name, dp),
                lambda lines: self._heard(run, study.terms.plan.study, lines),
                lambda name: OnDisk(self.state, run, study.mark, name),
                self._models(run),
                lambda name: self._part(study, name),
            )  # fmt: skip

    def _part(self, study: Study, name: str) -> Kept:
        """Return what this site keeps of the fit whose sites a study forgets."""
        asked = study.terms.plan.forget
        if asked is None:
            raise not_kept(self.kit.name, "the study forgets nobody")
        with disk():
            return kept.load(self.state, asked.of, name, study.mark, self.kit.name)

    def _keep(self, run: str, session: str) -> None:
        """Keep what a fit left here, before its session is forgotten, of a study with `keep`."""
        try:
            study, table = self._studies.approved(run), self._run_of(run).table
        except Refused:
            return
        name = kept_of(session, study.terms)
        if not (name and table) or self.store.withdrawal(run):
            return
        if (left := self._end.left(run, session)) is not None:
            kept.save(self.state, run, name, *left, table)
            self.log.info("kept %s %s", short(run), name)

    def _heard(self, run: str, name: str, lines: Sequence[str]) -> None:
        """Write down what feedback finds of this site's table, for the people here alone."""
        with disk():
            path = findings.write(self.state, run, name, lines)
        self.log.info("feedback %s %s is in %s", short(run), name, path.relative_to(self.state))

    def _models(self, run: str) -> OwnModels:
        """Return the models of a study that this site keeps, for the people here alone."""

        def noted(name: str) -> None:
            self.log.info("model %s %s is in %s", short(run), name, folder.relative_to(self.state))

        folder = findings.models_of(self.state, run)
        return OwnModels(folder, disk, noted)

    def _spending(self, run: str, session: str, dp: Dp) -> Spending:
        """Return the counter of a private session's spending."""
        path = self.state / "budget.sqlite"
        budget = Budget(path, self.config.data.name, self.config.policy.budget)
        return Spending(path, budget, run, session, dp, lambda: self._check_calls(run, session))

    def _sum_rule(self, run: str) -> SumRule:
        """Return how this site answers sums of a study: by its policy and the approved text."""
        terms = self._studies.approved(run).terms
        plain = {"true": NEVER, "false": ANY}.get(terms.plan.privacy.secure, FEW)
        if self.config.policy.secure_sum == "required":
            plain = NEVER

        def known_few(request: Request) -> bool:
            sites = len(self._keys().pinned)
            return is_few(terms, request.session, request.step, sites, request.asked)

        least = self.config.policy.secure_sum_sites
        return SumRule(plain, self._keys, known_few, least=least, weights=False)

    def _keys(self) -> Keys:
        """Return the kit's current keys for masked sums."""
        found = self.kit.membership()
        return Keys(Identity.from_bytes(found.secret), found.pinned)

    def _left(self, left: Left) -> None:
        """Write a reply into the site's own ledger, before it leaves.

        Raises
        ------
        Refused : as many have left in this session as the site allows; this one does not.
        """
        self._check_calls(left.run, left.session)
        self._ledger.left(
            left.run, left.session, left.call, left.step, left.verb, left.fields, masked=left.masked
        )

    def _check_calls(self, run: str, session: str) -> None:
        """Refuse another call of a session that has had as many as this site allows."""
        most = self.config.policy.max_calls
        if self._ledger.count(run, session) >= most:
            raise Refused(
                "calls",
                self._named(
                    f"{most} replies have left in session {session} of this study, or failed where "
                    f"it is private, and no more may (max_calls in node.toml)."
                ),
            )

    def _close(self, run: str, meta: Mapping[str, Any]) -> bytes:
        """Forget a session, or end a run; one without a call yet only where it is surely `over`.

        What protects patients stays: decisions and runs counted, budget, ledger, cohorts, pins.
        """
        if not is_hash(run):
            raise Refused("run", "a request names no study by its whole hash.")
        session, over = meta.get("session"), meta.get("over") is True
        with self._reading:
            name = session if isinstance(session, str) else None
            if name is not None:
                self._keep(run, name)
            self._end.close(run, name)
            if name is not None and (study := self._studies.held.get(run)) is not None:
                over_with(study.terms, name, self._models(run))
            if name is None and self._run_of(run).open and (over or run not in self._fresh):
                self._studies.forget(run)
                self._note_run(run, Noted())
                self.log.info("closed %s", short(run))
            if name is None and "end" in meta:
                self._note_end(run, meta["end"], meta.get("reason"))
            self._ledger.sync()
        return encode({}, {"kind": "closed"})

    def _end_of(self, run: str, meta: Mapping[str, Any]) -> bytes:
        """Note how a run ended that can be resumed."""
        if not is_hash(run):
            raise Refused("run", "a request names no study by its whole hash.")
        with self._reading:
            self._note_end(run, meta.get("end"), meta.get("reason"))
        return encode({}, {"kind": "closed"})

    def _note_end(self, run: str, how: object, reason: object) -> None:
        """Let the desk show how a study ended."""
        second, _ = self.store.again(run)
        if second and self.store.note_end(second, str(how), str(reason or "")):
            self._note_run(second, Noted())
        if self.store.note_end(run, str(how), str(reason or "")):
            self._run_of(run)
            self._ended.add(run)
            self.log.info("ended %s %s", short(run), how)

    # refusals -----------------------------------------------------------------------------

    def _named(self, text: str) -> str:
        """Return a text that names this site."""
        return f"site {self.kit.name!r}: {text}"

    def _refuse(self, run: str, error: Refused) -> bytes:
        """Return a refusal, and write it down."""
        self._note_refusal(run, error)
        return refusal_bytes("Refused", self._named(str(error)), error.code)

    def _note_refusal(self, run: str, error: Refused) -> None:
        text, before = str(error), self.last_refusal
        self.last_refusal = f"{short(run)}: {text}" if run else text
        if error.code in PASSING:  # asked again and again until people have acted: said once
            if self.last_refusal != before:
                self.log.warning("cannot %s study=%s %s", error.code, short(run) or "-", text)
            return
        self.log.warning("refused %s study=%s %s", error.code, short(run) or "-", text)
        with contextlib.suppress(OSError):
            self._ledger.note(run, "refused", error.code, text)


def _unkept(why: str) -> Refused:
    """Return the refusal of a node that cannot write its state; `why` is the system's text."""
    return Refused(
        "disk",
        f"it cannot write its folder 'state' ({why}), and answers nothing that it cannot note "
        f"down. Its IT has to make room there, or give the node's user the right to write; a run "
        f"that failed then goes on with --resume.",
    )


def _standing(state: str, reason: str, code: str) -> bytes:
    """Return the answer to an offer."""
    return encode({}, {"kind": "standing", "state": state, "reason": reason, "code": code})
