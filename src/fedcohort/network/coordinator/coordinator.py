"""The coordinator: takes studies from leads, asks the sites, runs one study at a time.

A lead's requests, over a sealed channel with a verified peer (`secure.channel.Callee`):

    submit   the signed offer, the time to wait, and whether to resume an earlier run
    status   state of a study: each site, the round, who answered, seconds, bytes
    fetch    a piece of a finished file, with a checksum; only for the lead who submitted
    cancel   end a study; only for the lead who submitted
    withdrawal    a site's signed withdrawal from a study of this lead, if it withdrew
    hello    version and clock. A site tells its state; one that this kit does not list is told so

The coordinator verifies an offer again, as every site does. `conductor` runs it.

Revealed to a lead: sites' states and reasons, counts of calls and bytes, results of the lead's own
studies; nothing of another lead's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from fedcohort.network import requests
from fedcohort.network.coordinator import forgetting, runs
from fedcohort.network.coordinator.conductor import Conductor
from fedcohort.network.coordinator.runs import Run
from fedcohort.network.engines import Opened
from fedcohort.network.kits import Kit, Parties
from fedcohort.network.requests import Standing
from fedcohort.network.service import within
from fedcohort.network.state.withdrawals import Withdrawal
from fedcohort.network.study_offer import Offer
from fedcohort.protocol.errors import FedcohortError, Refused
from fedcohort.protocol.line import Silence
from fedcohort.secure.channel import Callee, Caller
from fedcohort.secure.trust import Peer
from fedcohort.study.file.terms import Terms
from fedcohort.version import VERSION

#: Bytes of a file that one reply carries.
PIECE = 1 << 20
#: Seconds in which a site answers whether it withdrew.
FAST = 10.0
#: Studies of one lead that may be open at once, and that are kept in all.
OPEN_EACH, KEPT_EACH = 20, 1000
log = logging.getLogger(__name__)
Say = Callable[[str], None]


class Coordinator:
    """The service of a coordinator's kit.

    Parameters
    ----------
    kit : the coordinator's.
    opened : makes its engine; see `engines.hub`.
    say : prints a line for whoever watches the service.
    """

    def __init__(self, kit: Kit, opened: Opened, say: Say):
        self._kit = kit
        self._say = say
        self._trust = kit.trust()
        callee = Callee(kit, self._trust, ("lead", "site"), self._answer, log=self.wrong)
        self._parties = Parties(callee.versions, self.wrong, kit.folder / "state" / "sites.json")
        self._hub = opened(callee.handle)
        self._line = Caller(kit, self._trust, self._hub.line, log=self.wrong)
        self._studies = Conductor(kit.folder, self._line, say)

    # life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, and take up what an earlier process left."""
        self._studies.load()
        self._hub.start()
        self._studies.start()

    def stop(self) -> None:
        """End, also in the middle of a call; what is under way can be taken up again."""
        self._studies.stop(1.0)
        within(0.5, self._hub.stop)

    def facts(self) -> dict[str, Any]:
        """Return the service's facts."""
        with self._studies.guard:
            under = self._studies.under
            waiting = [f"{r.study} ({r.hash[:12]})" for r in self._studies.runs.values() if r.open]
            now = None
            if under is not None:
                now = f"{under.run.study} ({under.run.hash[:12]}), {under.done} of {under.total}"
                if under.traffic.rounds:
                    now += f", round {under.traffic.round + 1} of {under.traffic.rounds}"
            return {
                "connected": sorted(self._line.connected),
                "sites": sorted(self._kit.sites),
                "study": now,
                "open": waiting,
                "error": self._studies.last_error,
                "parties": self._parties.facts(),
            }

    def wrong(self, text: str) -> None:
        """Say a line that tells of something wrong, and remember it."""
        self._studies.note(text)

    # requests of leads and sites -------------------------------------------------------------

    def _answer(self, peer: Peer, body: bytes) -> bytes:
        """Answer one request of a verified peer."""
        try:
            _, meta = requests.read(body)
            kind = str(meta.get("kind"))
            if peer.role == "site":
                if kind != "hello":
                    raise Refused("role", f"{peer.name} is a site; sites do not ask {kind!r}.")
                return requests.reply(self._hello(peer, meta))
            serve = {
                "submit": self._submit, "status": self._status, "fetch": self._fetch,
                "cancel": self._cancel, "withdrawal": self._withdrawal, "hello": self._here,
            }.get(kind)  # fmt: skip
            if serve is None:
                raise Refused("request", f"{kind!r:.40} is not something that a lead can ask.")
            found = serve(peer, meta)
            return found if isinstance(found, bytes) else requests.reply(found)
        except FedcohortError as error:
            self.wrong(f"{peer.name} was refused: {error}")
            return requests.failure(error)
        except Exception as error:
            log.exception("a request of %s failed", peer.name)
            self.wrong(f"a request of {peer.name} failed ({type(error).__name__})")
            kind = type(error).__name__
            return requests.failure(
                FedcohortError(f"the coordinator failed ({kind}); its log says why.")
            )

    def _hello(self, peer: Peer, meta: Mapping[str, Any]) -> dict[str, Any]:
        if peer.name not in self._kit.sites:
            raise Refused(
                "unknown site",
                f"{peer.name} is not among the sites of {self._kit.network}: "
                f"{', '.join(sorted(self._kit.sites))}. Its certificate is of this network, but "
                f"the coordinator's kit does not list it.",
            )
        return self._here(peer, meta) | {"seen": self._parties.heard(peer.name, meta)}

    def _here(self, peer: Peer, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return this version and time."""
        return {"kind": "hello", "version": VERSION, "clock": time.time()}

    def _submit(self, peer: Peer, meta: Mapping[str, Any]) -> Any:
        """Take a study, or take an earlier run of it up again."""
        signed = requests.offered(meta)
        offer = Offer.from_bytes(signed)
        lead = offer.verify(self._trust)
        if lead.name != peer.name:
            raise Refused("lead", f"the study is signed by {lead.name}, and {peer.name} sent it.")
        if offer.network != self._kit.network:
            raise Refused("network", f"the study is for the network {offer.network}.")
        plan = Terms.from_json(offer.terms).plan
        resume = meta.get("resume") is True
        with self._studies.guard:
            known = self._studies.runs.get(offer.hash)
            if known is not None and known.lead != peer.name:
                raise Refused("lead", "another lead submitted the same study; rename yours.")
            ticket = requests.printable(meta.get("ticket"))
            if known is not None and ticket and known.ticket == ticket:
                return self._told(known)  # its first answer was lost on the way
            if resume:
                return self._take_up(known, meta)
            if known is not None and known.open:
                raise Refused(
                    "running",
                    f"this very study is under way ({known.state}); the same command with "
                    f"--resume follows it, with --cancel ends it.",
                )
            self._check_room(peer, offer.hash)
            names, withdrew = sorted(self._kit.sites), dict[str, str]()
            if plan.forget is not None:
                first = self._of(peer, {"run": plan.forget.of})
                names = forgetting.left(first, plan, self._trust, len(names))
                withdrew = {w["site"]: Withdrawal.of(w).said for w in plan.forget.withdrawals}
            run = Run(
                folder=self._kit.folder / "runs" / offer.hash,
                hash=offer.hash,
                study=plan.study,
                lead=peer.name,
                quorum=plan.quorum,
                sites={name: Standing() for name in names},
                wait=requests.seconds(meta, "wait"),
                timeout=requests.seconds(meta, "timeout") or 60.0,
                command=requests.printable(meta.get("command")),
                ticket=ticket,
                leaving=withdrew,
            )
            self._studies.take(run, signed)
        self._say(f"{peer.name} submitted {run.study} ({run.hash[:12]})")
        return self._told(run)

    def _check_room(self, peer: Peer, study: str) -> None:
        """See that a lead does not fill the coordinator.

        Raises
        ------
        Refused : "many".
        """
        own = [r for r in self._studies.runs.values() if r.lead == peer.name and r.hash != study]
        if sum(r.open for r in own) >= OPEN_EACH:
            raise Refused(
                "many",
                f"{OPEN_EACH} studies of {peer.name} are open here, the most of one lead; wait "
                f"until one has ended, or end one with --cancel.",
            )
        if len(own) >= KEPT_EACH:
            raise Refused(
                "many",
                f"{KEPT_EACH} studies of {peer.name} are kept here, the most of one lead; who "
                f"runs the coordinator can move old folders out of its runs/, and start it again.",
            )

    def _take_up(self, run: Run | None, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Go on with a run that ended early; one under way or done is only shown."""
        if run is None:
            raise Refused("resume", "there is no such run here; submit it without --resume.")
        if not run.open and run.state != "done":
            run.wait = requests.seconds(meta, "wait")
            run.timeout = requests.seconds(meta, "timeout") or run.timeout
            self._studies.take_up(run)
            self._say(f"{run.lead} takes {run.study} ({run.hash[:12]}) up again")
        return self._told(run)

    def _status(self, peer: Peer, meta: Mapping[str, Any]) -> dict[str, Any]:
        return self._told(self._of(peer, meta))

    def _cancel(self, peer: Peer, meta: Mapping[str, Any]) -> dict[str, Any]:
        run = self._of(peer, meta)
        self._studies.cancel(run)
        self._say(f"{peer.name} cancels {run.study} ({run.hash[:12]})")
        return self._told(run)

    def _withdrawal(self, peer: Peer, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return a site's withdrawal from a study; {} if it did not withdraw, with the reason."""
        run, site = self._of(peer, meta), requests.printable(meta.get("site"))
        if site not in self._kit.sites:
            raise Refused("site", f"there is no site {site!r} in {self._kit.network}.")
        body, record, why = requests.ask("withdrawal", run=run.hash), dict[str, Any](), ""
        if site not in self._line.connected:
            why = f"{site} is not connected"
        for _, reply in self._line.exchange({site: body}, FAST) if not why else ():
            if isinstance(reply, Silence):
                why = f"{site} does not answer"
                continue
            found = requests.answer(reply)[1].get("record")
            record = found if isinstance(found, dict) else record
        return {"kind": "withdrawal", "record": record, "why": why}

    def _fetch(self, peer: Peer, meta: Mapping[str, Any]) -> bytes:
        """Return the list of a finished run's files, or a piece of one of them."""
        run = self._of(peer, meta)
        if run.state != "done":
            raise Refused("unfinished", f"{run.study} is {run.state}; there is nothing to fetch.")
        files = runs.files_of(run.out) if "name" not in meta else []
        if "name" not in meta:
            return requests.reply({"kind": "files", "files": files})
        name, offset = str(meta["name"]), meta.get("offset", 0)
        path = (run.out / name).resolve()
        inside = path.is_relative_to(run.out.resolve()) and path.is_file()
        if not inside or type(offset) is not int or offset < 0 or "/." in f"/{name}":
            raise Refused("file", f"{name!r:.80} is no file of this run.")
        with path.open("rb") as file:
            file.seek(offset)
            piece = file.read(PIECE)
        body = {"kind": "piece", "size": len(piece), "digest": requests.digest(piece)}
        return requests.reply(body, requests.packed(piece))

    def _of(self, peer: Peer, meta: Mapping[str, Any]) -> Run:
        """Return a run that this lead submitted; another lead's looks as if there were none."""
        run = self._studies.runs.get(str(meta.get("run")))
        if run is None or run.lead != peer.name:
            raise Refused("run", f"{peer.name} has no such study here.")
        return run

    def _told(self, run: Run) -> dict[str, Any]:
        """Return all that a lead is told of a run."""
        with self._studies.guard:
            here = self._line.connected
            ahead = [
                r for r in self._studies.runs.values()
                if r.state in ("queued", "running") and r.submitted < run.submitted
            ]  # fmt: skip
            now, waits = time.time(), run.state == "waiting"
            told: dict[str, Any] = {
                "kind": "status", "run": run.hash, "study": run.study, "state": run.state,
                "reason": run.reason, "final": run.final, "absent": {**run.leaving, **run.without},
                "ahead": len(ahead),
                "seconds": round((run.ended or now) - (run.started or run.submitted), 1),
                "sites": {
                    n: {"state": s.state, "reason": s.reason, "connected": n in here}
                    for n, s in {**run.sites, **(run.again if waits else {})}.items()
                },
            }  # fmt: skip
            if self._studies.under is not None and self._studies.under.run is run:
                under = self._studies.under
                told |= {"piece": under.piece, "done": under.done, "total": under.total}
                told["traffic"] = under.traffic.progress()
                told["left"] = None if under.left is None else round(under.left)
                for name, site in told["sites"].items():
                    site["seconds"] = under.traffic.seconds.get(name)
                    site["silent"] = under.traffic.silent.get(name, "")
            return told
