"""The coordinator's work on submitted studies: ask the sites, then run studies in turn.

Two threads. One offers every waiting study to the sites that have not decided, until
`runs.Run.decide` decides. The other runs queued studies one after the other over the sealed line.
State needed after a kill is on disk before it is acted on; an interrupted study resumes from its
journals at the next start.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from fedcohort.audit import forgetting_over, forgotten
from fedcohort.network import requests
from fedcohort.network.coordinator import forgetting, runs
from fedcohort.network.coordinator.remote_sites import Halt, RemoteSites, Traffic, Watched
from fedcohort.network.coordinator.runs import Run
from fedcohort.network.kits import pinned
from fedcohort.network.requests import WITHOUT
from fedcohort.network.study_offer import Offer
from fedcohort.protocol.errors import DataError, FedcohortError
from fedcohort.protocol.line import Line, Silence
from fedcohort.study.file.terms import Terms
from fedcohort.study.run import runner
from fedcohort.study.run.folder import WORK
from fedcohort.study.run.runner import Event
from fedcohort.study.sites.sites import Unanswered

#: Seconds between two rounds of asking sites that have not decided; of a study that has waited for
#: a while, only every so many rounds.
ASK, FRESH, SELDOM = 1.0, 120.0, 5
#: Seconds that a site may take to look at an offer, and to close a run; and after which one that
#: did not answer, or could not note it, is told again.
LOOK, CLOSE, HUSH = 60.0, 5.0, 30.0
log = logging.getLogger(__name__)
Say = Callable[[str], None]


@dataclass
class Under:
    """The run in progress: its traffic, its current piece, and whether it must end.

    Attributes
    ----------
    first : time and number of finished fits when this process took it up.
    """

    run: Run
    traffic: Traffic = field(default_factory=Traffic)
    piece: str = ""
    done: int = 0
    total: int = 0
    cancelled: bool = False
    first: tuple[float, int] | None = None

    def at(self, event: Event) -> None:
        """Note where the study is."""
        self.piece, self.done, self.total = event.name, event.done, event.total
        if self.first is None:
            self.first = (time.monotonic(), event.done)

    @property
    def left(self) -> float | None:
        """Seconds to go, were all fits as long as those since this process took the run up."""
        if self.first is None or not self.total:
            return None
        part = self.traffic.round / self.traffic.rounds if self.traffic.rounds else 0.0
        made = self.done - self.first[1] + min(part, 1.0) * (self.done < self.total)
        if made < 0.1:
            return None
        pace = (time.monotonic() - self.first[0]) / made
        return max(0.0, pace * (self.total - self.first[1] - made))


#: Folder of the coordinator's own rows, in its kit.
OWN_ROWS = "data"


class Conductor:
    """The studies of a coordinator.

    Parameters
    ----------
    folder : the coordinator's kit.
    line : to all sites, sealed.
    say : prints a line for whoever watches the service.

    Attributes
    ----------
    guard : lock on the studies and their records.
    runs : all studies, by hash.
    under : the one in progress.
    last_error : time and text of the latest problem; empty if none.
    """

    def __init__(self, folder: Path, line: Line, say: Say):
        self._folder = folder
        self._line = line
        self._say = say
        self.guard = threading.RLock()
        self.runs: dict[str, Run] = {}
        self.under: Under | None = None
        self.last_error = ""
        self._halt = threading.Event()
        self._work = threading.Event()
        self._kick = threading.Event()
        self._connected: frozenset[str] = frozenset()
        self._cleared: set[tuple[str, str]] = set()
        self._hushed: dict[str, float] = {}
        self._threads = [
            threading.Thread(target=self._canvass, daemon=True, name="offers"),
            threading.Thread(target=self._work_off, daemon=True, name="runs"),
        ]

    def load(self) -> None:
        """Read what an earlier process left; what was under way is queued."""
        for run in runs.all_of(self._folder):
            self.runs[run.hash] = run
            if run.state == "running":
                run.change("queued")
                self._say(f"going on with {run.study} ({run.hash[:12]}), which was under way")

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def stop(self, patience: float) -> None:
        """End, also in the middle of a call; what is under way can be taken up again."""
        self._halt.set()
        self._work.set()
        self._kick.set()
        limit = time.monotonic() + patience
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, limit - time.monotonic()))

    def take(self, run: Run, signed: bytes) -> None:
        """Take a new study; an earlier run of it is forgotten, here and at the sites.

        Raises
        ------
        FedcohortError : it cannot be written down.
        """
        try:
            if run.folder.exists():
                shutil.rmtree(run.folder)
            run.folder.mkdir(mode=0o700, parents=True)
            (run.folder / "offer.bin").write_bytes(signed)
            run.save()
        except OSError as error:
            raise FedcohortError(
                f"the coordinator cannot write the study down ({error.strerror}); nothing was "
                f"begun."
            ) from None
        with self.guard:
            self.runs[run.hash] = run
            self._cleared -= {(run.hash, name) for name in run.sites}
        self._kick.set()

    def take_up(self, run: Run) -> None:
        """Resume a run that ended early; a cancelled one begins anew.

        The sites have closed a cancelled run and keep none of its states.
        """
        with self.guard:
            run.submitted, run.ended, run.told = time.time(), None, []
            if run.state == "cancelled":
                shutil.rmtree(run.out, ignore_errors=True)
                run.started = None
                run.ranking, run.again, run.withdrew = {}, {}, {}
            if run.ranking and not run.withdrew:  # too few consented, or a later call failed
                run.consents = None
            if run.started is None:  # no call was made: the sites are asked anew
                run.sites = {name: requests.Standing() for name in run.sites}
                run.absent = {}
                run.change("waiting")
                self._kick.set()
            else:
                run.change("queued")
                self._work.set()

    def cancel(self, run: Run) -> None:
        """End a run, wherever it is."""
        with self.guard:
            if self.under is not None and self.under.run is run:
                self.under.cancelled = True
            elif run.open:
                run.change("cancelled", f"by {run.lead}")
                self._kick.set()

    def note(self, text: str) -> None:
        """Say a line that tells of something wrong, and remember it."""
        self.last_error = f"{datetime.now():%Y-%m-%d %H:%M:%S}, {text}"
        self._say(text)

    # approvals ----------------------------------------------------------------------------

    def _canvass(self) -> None:
        """Put every study that waits to the sites that have not decided, again and again."""
        for i in itertools.count():
            self._kick.wait(ASK)
            self._kick.clear()
            if self._halt.is_set():
                return
            self._see_who_is_here()
            for run in [r for r in list(self.runs.values()) if r.uninformed]:
                with self.guard:
                    untold, end = run.uninformed, (run.state, run.reason)
                    went_on = run.open or run.state == "done"
                lacking = [n for n in untold if went_on and n in run.without]
                for how, who in (((WITHOUT, ""), lacking), (end, {*untold} - {*lacking})):
                    if who and not self._halt.is_set():
                        self._tell_end(run, *how, who)
            for run in list(self.runs.values()):
                fresh = time.time() - run.submitted < FRESH or i % SELDOM == 0
                if run.state == "waiting" and fresh and not self._halt.is_set():
                    try:
                        self._ask(run)
                    except Exception as error:
                        log.exception("an offer failed")
                        self.note(f"offering {run.study} failed ({type(error).__name__})")

    def _ask(self, run: Run) -> None:
        """Put one study to the sites that have not decided; note what they say."""
        here, asked, again = self._line.connected, run.asked, run.asks_again
        who = [n for n, s in asked.items() if s.state not in runs.DECIDED and n in here]
        if again:
            until = None if run.wait is None else run.ranked_at + run.wait
            blobs = {n: requests.ranked(run.hash, run.ranking[n], until) for n in who}
        else:
            self._clear(run, who)
            blobs = dict.fromkeys(who, requests.offer(run.offer) if who else b"")
        for site, reply in self._line.exchange(blobs, LOOK) if who else ():
            told = requests.standing(reply)
            if told is None or (told.state == asked[site].state and not told.reason):
                continue
            with self.guard:
                before, asked[site] = asked[site], told
            if told != before:
                self._say(f"{run.study} ({run.hash[:12]}): {runs.line_of(site, told)}")
        with self.guard:
            if run.state != "waiting":
                return
            (run.decide_again if again else run.decide)(time.time())
            if run.state == "waiting":
                return
            if not run.open:  # the sites learn that it does not come about
                self._kick.set()
            self._say(f"{run.study} ({run.hash[:12]}): {run.state} {run.reason}".rstrip())
        self._work.set()

    def _see_who_is_here(self) -> None:
        here = self._line.connected
        if here != self._connected:
            gone = sorted(self._connected - here)
            self._connected = here
            lost = f" (lost: {', '.join(gone)})" if gone else ""
            self._say(f"connected: {', '.join(sorted(here)) or 'no site'}{lost}")

    def _clear(self, run: Run, who: Iterable[str]) -> None:
        """Let sites forget an earlier run of the same study, before they hear of this one."""
        new = [name for name in who if (run.hash, name) not in self._cleared]
        self._close(run, new)
        with self.guard:
            self._cleared |= {(run.hash, name) for name in new}

    def _close(self, run: Run, who: Iterable[str]) -> None:
        """Let sites forget an earlier run."""
        body = dict.fromkeys(who, requests.ask("close", run=run.hash, over=False))
        for _ in self._line.exchange(body, CLOSE) if body else ():
            pass

    def _tell_end(self, run: Run, state: str, reason: str, sites: Iterable[str]) -> None:
        """Tell the sites that are connected how a study ended; the others when they are back.

        Sites that wait for a decision hear it too, also if the study goes on without them.
        """
        now = time.monotonic()
        here = [n for n in sites if n in self._line.connected and n not in run.told]
        who = [n for n in here if self._hushed.get(n, 0.0) <= now]
        resumable = state == "failed" and run.started is not None and not run.final
        body = requests.ended(run.hash, state, reason, resumable=resumable)
        told: list[str] = []
        try:
            for site, reply in self._line.exchange(dict.fromkeys(who, body), CLOSE) if who else ():
                if isinstance(reply, Silence) or requests.passes(reply):
                    self._hushed[site] = now + HUSH
                else:
                    told.append(site)
        except Exception as error:
            log.exception("telling the end of a study failed")
            self.note(f"telling the end of {run.study} failed ({type(error).__name__})")
        if told:
            with self.guard:
                run.told = sorted({*run.told, *told})
                if not run.open or state == WITHOUT:
                    with contextlib.suppress(OSError):
                        run.save()

    # runs ---------------------------------------------------------------------------------

    def _work_off(self) -> None:
        """Run what is queued, one study after the other, in the order of submission."""
        while not self._halt.is_set():
            with self.guard:
                queued = [run for run in self.runs.values() if run.state == "queued"]
                run = min(queued, key=lambda r: r.submitted, default=None)
                self.under = None if run is None else Under(run)
                under = self.under
                if run is not None:
                    run.change("running")
            if under is None:
                self._work.wait()
                self._work.clear()
                continue
            self._conduct(under)
            with self.guard:
                self.under = None

    def _conduct(self, under: Under) -> None:
        """Run one study to its end, whatever the end is."""
        run = under.run
        began, final = time.monotonic(), False
        self._say(f"running {run.study} ({run.hash[:12]}) over {', '.join(run.parties)}")
        try:
            self._study(under)
            end = ("done", "")
        except Halt:
            if not under.cancelled:
                return
            end = ("cancelled", f"by {run.lead}")
        except Unanswered as asked:
            with self.guard:
                run.ask_again(asked.told)
            self._kick.set()
            self._say(f"{run.study} ({run.hash[:12]}): ranked; its sites are asked again")
            return
        except FedcohortError as error:
            text = " ".join(str(error).split())  # a lead is told of no folder of this machine
            end = ("failed", text.replace(f"{run.folder}{os.sep}", "the coordinator's "))
            final = isinstance(error, DataError)  # answers that are replayed give it again
        except Exception as error:
            log.exception("%s failed", run.hash)
            end = ("failed", f"an unexpected {type(error).__name__}; the coordinator's log has it.")
        if end[0] != "failed":  # before a lead reads it, who may submit the study again
            self._tell_end(run, *end, run.parties)
        with self.guard:
            run.change(*end, final=final)
        self._kick.set()
        text = f"{run.study} ({run.hash[:12]}) {': '.join(part for part in end if part)}"
        tell = self.note if end[0] == "failed" else self._say
        took = f"{time.monotonic() - began:.1f} s, {under.traffic.calls} exchanges"
        tell(f"{text.rstrip('.')}; {took}")

    def _went_on(self, run: Run, gone: Mapping[str, str]) -> None:
        """Note the sites that withdrew after the ranking, so that they learn of it."""
        with self.guard:
            if run.withdrew != gone:
                run.withdrew = dict(gone)
                with contextlib.suppress(OSError):
                    run.save()
        self._kick.set()

    def _study(self, under: Under) -> None:
        run = under.run

        def halted() -> bool:
            return under.cancelled or self._halt.is_set()

        line = Watched(self._line, run.parties, under.traffic, halted)
        sites = RemoteSites(
            line, run.hash, under.traffic, run.timeout, run.absent,
            lambda: pinned(self._folder), run.consents, lambda gone: self._went_on(run, gone),
        )  # fmt: skip
        whole = any((run.out / name).is_file() for name in ("results.json", forgotten.FILE))
        if whole and not (run.out / WORK).exists():
            return  # it was complete when an earlier process ended
        resume = (run.out / WORK / "claim.json").is_file()
        if not resume and run.out.exists():
            shutil.rmtree(run.out)
        terms = Terms.from_json(Offer.from_bytes(run.offer).terms)
        if terms.plan.forget is not None:
            first, old, gone = forgetting.places(self.runs, terms.plan.forget.of)
            forgetting_over.run_over(
                terms, sites, first, old, gone, run.out, resume=resume, tell=under.at,
                data=self._folder / OWN_ROWS,
            )  # fmt: skip
            return
        runner.run_over(
            terms,
            sites,
            run.out,
            resume=resume,
            tell=under.at,
            command=run.command,
            data=self._folder / OWN_ROWS,
        )
