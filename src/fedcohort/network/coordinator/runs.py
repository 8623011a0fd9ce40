"""The coordinator's record of one study, in memory and on disk.

`KIT/runs/<hash>/` holds `offer.bin` (as the lead signed it), `run.json` (this record, replaced at
each change of state) and `out/` (the study's files). A record left as "running" by a kill is
resumed when the coordinator starts.

    waiting → queued → running → done
         ↘ refused        ↘      ↘ failed, cancelled

After a ranking a run of a study with `consent: after-ranking` waits once more, until each site has
answered or `wait` is over.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from fedcohort.network.requests import Standing

#: States in which a study still needs the coordinator, in the order in which it passes them.
OPEN = ("waiting", "queued", "running")
#: What a site can say of a study for good.
DECIDED = ("approved", "refused")


@dataclass
class Run:
    """One study at the coordinator.

    Attributes
    ----------
    hash, study, lead : its hash, its name, its submitter.
    quorum : share of the sites that is needed.
    submitted, started, ended : Unix times; it started with its first fit, also if resumed since.
    wait : seconds to wait for approvals; None: no limit.
    timeout : seconds that a call may take.
    state, reason : see the module; why it ended.
    final : a failed run would fail again for the same reason if resumed.
    sites : state of each, by name.
    absent : by name, why an invited site takes no part.
    command : the lead's command line, for the results.
    ticket : of the submission, to recognise a repeated one.
    told : sites that know how it ended, or that it goes on without them.
    ranking : what each site is told of its rank, by site; empty before.
    ranked_at : Unix time at which the ranking was there.
    again : state of each site after it, by name.
    consents : why each site that withdrew did so, by name; None until all is decided.
    withdrew : the same, once the study goes on without them.
    leaving : of a study that forgets hospitals, when and why each of them withdrew; they are not
        asked.
    """

    folder: Path
    hash: str
    study: str
    lead: str
    quorum: float
    sites: dict[str, Standing]
    wait: float | None = None
    timeout: float = 60.0
    submitted: float = field(default_factory=time.time)
    started: float | None = None
    ended: float | None = None
    state: str = "waiting"
    reason: str = ""
    final: bool = False
    absent: dict[str, str] = field(default_factory=dict[str, str])
    command: str = ""
    ticket: str = ""
    told: list[str] = field(default_factory=list[str])
    ranking: dict[str, str] = field(default_factory=dict[str, str])
    ranked_at: float = 0.0
    again: dict[str, Standing] = field(default_factory=dict[str, Standing])
    consents: dict[str, str] | None = None
    withdrew: dict[str, str] = field(default_factory=dict[str, str])
    leaving: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def asks_again(self) -> bool:
        """Whether it waits for the sites' second consent."""
        return bool(self.ranking) and self.consents is None

    @property
    def asked(self) -> dict[str, Standing]:
        """State of the sites that are asked now: to approve, or to consent again."""
        return self.again if self.asks_again else self.sites

    @property
    def without(self) -> dict[str, str]:
        """By name, why an invited site takes no part, or no further part."""
        return {**self.absent, **self.withdrew}

    @property
    def uninformed(self) -> tuple[str, ...]:
        """The sites that do not know yet that it ended, or goes on without them."""
        if self.state == "waiting" and not self.ranking:
            return ()
        return tuple(n for n in (self.without if self.open else self.sites) if n not in self.told)

    @property
    def out(self) -> Path:
        """The folder of the study's results."""
        return self.folder / "out"

    @property
    def offer(self) -> bytes:
        """What the lead signed."""
        return (self.folder / "offer.bin").read_bytes()

    @property
    def open(self) -> bool:
        """Whether it still needs the coordinator."""
        return self.state in OPEN

    @property
    def needed(self) -> int:
        """How many sites must take part."""
        return max(1, math.ceil(self.quorum * len(self.sites) - 1e-9))

    @property
    def parties(self) -> tuple[str, ...]:
        """The sites that take part: those that approved and are not absent."""
        able = (n for n, s in self.sites.items() if s.state == "approved" and n not in self.absent)
        return tuple(sorted(able))

    def save(self) -> None:
        """Write the record, as a whole or not at all.

        Raises
        ------
        OSError : the disk is full, or the folder is gone.
        """
        told = asdict(self)
        del told["folder"]
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.folder / "run.new"
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.folder / "run.json")

    def change(self, state: str, reason: str = "", *, final: bool = False) -> None:
        """Pass into another state; a full disk cannot keep a study from ending."""
        self.state, self.reason, self.final = state, reason, final
        if state == "running" and self.started is None:
            self.started = time.time()
        if not self.open:
            self.ended = time.time()
        with contextlib.suppress(OSError):
            self.save()

    def decide(self, now: float) -> None:
        """Go on, wait or end, by the sites' states.

        A refusal ends the study unless enough sites are left. After `wait` seconds it goes on with
        the
        approving sites, if they are enough.
        """
        approved = [n for n, s in self.sites.items() if s.state == "approved"]
        refused = [n for n, s in self.sites.items() if s.state == "refused"]
        open_ = [n for n in self.sites if n not in approved and n not in refused]
        reasons = [_refusal(n, self.sites[n].reason) for n in refused]
        if len(self.sites) - len(refused) < self.needed:
            self.change("refused", "; ".join(r.rstrip(".") for r in reasons))
            return
        late = self.wait is not None and now - self.submitted >= self.wait
        if open_ and not late:
            return
        waited = {n: _why(n, self.sites[n]) for n in open_}
        if len(approved) < self.needed:
            self.change(
                "failed",
                f"after {self.wait:g} s {len(approved)} of {len(self.sites)} sites take part, "
                f"{self.needed} are needed: {'; '.join([*reasons, *waited.values()])}.",
            )
            return
        self.absent = {n: f"refused: {self.sites[n].reason}" for n in refused} | waited
        self.change("queued")

    def ask_again(self, told: Mapping[str, str]) -> None:
        """Wait for the sites' second consent; those that gave it are not asked anew."""
        self.ranking, self.consents = dict(told), None
        self.ranked_at, old = time.time(), self.again
        self.again = {
            n: old[n] if n in old and old[n].state == "approved" else Standing() for n in told
        }
        self.change("waiting")

    def decide_again(self, now: float) -> None:
        """Go on once every site has answered; after `wait` seconds without those that have not."""
        late = self.wait is not None and now - self.ranked_at >= self.wait
        if not late and any(s.state not in DECIDED for s in self.again.values()):
            return
        self.consents = {
            n: (s.reason or "no reason was given") if s.state == "refused"
            else "no answer by the deadline"
            for n, s in sorted(self.again.items()) if s.state != "approved"
        }  # fmt: skip
        self.change("queued")


def _refusal(site: str, reason: str) -> str:
    """Return one site's refusal; most reasons name the site already."""
    return reason if f"site {site!r}" in reason else f"site {site!r}: {reason}"


def _why(site: str, standing: Standing) -> str:
    if standing.state == "waiting":
        why = lapse_of(standing.reason)
        return f"waiting for the steward at {site}" + f" ({why})" * bool(why)
    if standing.reason:
        return f"{site} could not take part ({standing.reason.rstrip('.')})"
    return f"{site} was not reached"


def read(folder: Path) -> Run | None:
    """Return the record in a folder; None if it cannot be read."""
    try:
        text = (folder / "run.json").read_text(encoding="utf-8")
        told = cast("dict[str, Any]", json.loads(text))
        for key in ("sites", "again"):
            told[key] = {name: Standing(**s) for name, s in told.get(key, {}).items()}
        known = {f.name for f in fields(Run)}  # a later version's record may have more
        return Run(folder=folder, **{k: v for k, v in told.items() if k in known})
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def all_of(kit: Path) -> list[Run]:
    """Return all studies of a coordinator's kit, the first submitted first."""
    with contextlib.suppress(OSError):
        found = [read(folder) for folder in (kit / "runs").iterdir() if folder.is_dir()]
        return sorted((run for run in found if run is not None), key=lambda run: run.submitted)
    return []


def files_of(out: Path) -> list[tuple[str, int, str]]:
    """Return name, size and SHA-256 of each file of finished results, sorted by name."""
    return [
        (name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for name, path in sorted(_walk(out))
    ]


def _walk(out: Path) -> Iterator[tuple[str, Path]]:
    for path in out.rglob("*"):
        parts = path.relative_to(out).parts
        if path.is_file() and not path.is_symlink() and not any(p.startswith(".") for p in parts):
            yield "/".join(parts), path


def said(sites: Mapping[str, Standing]) -> Sequence[str]:
    """Return one line a site: where it stands, as people say it."""
    return [line_of(n, s) for n, s in sorted(sites.items())]


def lapse_of(reason: str) -> str:
    """Return why an earlier approval counts no longer, of a site's reason to wait; "" without."""
    return reason.partition(": ")[2]


def line_of(site: str, standing: Standing) -> str:
    """Return where one site stands, as people say it."""
    away = "cannot take part now" if standing.reason else "not reached"
    words = {"approved": "approved", "waiting": "waiting for the steward", "away": away}
    more = standing.reason if standing.state in ("refused", "away") else lapse_of(standing.reason)
    return f"{site}: {words.get(standing.state, standing.state)}" + (f" ({more})" if more else "")
