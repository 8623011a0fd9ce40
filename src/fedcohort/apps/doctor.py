"""`fedcohort doctor KIT`: faults of a party of a network, and who has to act.

Each check is one line. A fault has a second line that begins with who has to act: IT of the site,
its data steward, the coordinator's IT, the lead, or whoever made the network. Nothing is changed,
except that a file is written in `state` and removed. A running service is not disturbed: its note
is read, and no second connection is made in its name.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fedcohort.apps.network_app import SOON
from fedcohort.engines import tls
from fedcohort.network import clocks, engines
from fedcohort.network.clocks import Offset
from fedcohort.network.coordinator import runs
from fedcohort.network.coordinator.lead import Office
from fedcohort.network.kits import Kit, as_line, trouble
from fedcohort.network.service import Note, read, unwritable
from fedcohort.network.state import rollback
from fedcohort.network.state.budget import Budget
from fedcohort.network.state.policy import Config
from fedcohort.network.state.study_store import noted_config
from fedcohort.protocol.errors import FedcohortError, InputError, Refused
from fedcohort.report import words
from fedcohort.secure.certificates import Certificate, now
from fedcohort.version import VERSION

GOOD, NOTE, WRONG = "ok", "note", "WRONG"
#: Bytes that must be free, and below which it is remarked.
LEAST, FEW = 100 << 20, 1 << 30
#: Seconds for one try to connect, and for the engine to do so.
REACH, CONNECT = 5.0, 15.0
MAKER = "whoever made the network (who has its folder with authority/)"


@dataclass(frozen=True)
class Finding:
    """One check: its result, the finding, who acts and how."""

    grade: str
    what: str
    text: str
    who: str = ""
    do: str = ""

    @property
    def lines(self) -> list[str]:
        """The finding for people."""
        lines = [f"{self.grade:<6} {self.what:<12} {self.text}"]
        return [*lines, f"       {'':<12} -> {self.who}: {self.do}"] if self.do else lines


class Doctor:
    """The checks of one kit.

    Parameters
    ----------
    config : a site's node.toml; by default its node's latest.
    """

    def __init__(self, kit: Kit, config: Path | None = None):
        self.kit = kit
        self._state = kit.folder / "state"
        self._config = config
        self._it = {
            "site": f"IT of {kit.name}",
            "coordinator": "the coordinator's IT",
            "steward": f"IT of {kit.organisation}",
        }.get(kit.role, f"{kit.name} or their IT")
        self._dates = True
        self._sound = False
        self._note: Note | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of each check."""
        yield from self._software()
        yield from self._kit()
        yield from self._certificate()
        serves = self.kit.role in ("site", "coordinator")
        self._note = read(self.kit.folder) if serves else None
        if serves:
            yield from self._disk()
        if self.kit.role == "coordinator":
            yield from self._coordinator()
        elif self.kit.role == "steward":
            yield Finding(NOTE, "connection", "a steward's kit makes none; it signs decisions here")
        else:
            yield from self._connection()
        if self.kit.role == "site":
            yield from self._site()

    # what all have ------------------------------------------------------------------------

    def _software(self) -> Iterator[Finding]:
        version = f"fedcohort {VERSION}, Python {sys.version.split()[0]}"
        try:
            engines.check_installed(self.kit.engine)
        except FedcohortError as error:
            yield Finding(WRONG, "software", f"{version}; {error}", self._it, "install it")
            return
        yield Finding(GOOD, "software", f"{version}, engine {self.kit.engine}")

    def _kit(self) -> Iterator[Finding]:
        """Check that the files belong together, whatever the date is."""
        try:
            _certificate(self.kit.root)
            found = _certificate(self.kit.certificate)
            self.kit.check(clock=lambda: found.since + timedelta(seconds=1))
            if self.kit.role == "site":
                self.kit.membership()
        except Refused as error:
            who = self._it if error.code == "mode" else MAKER
            do = "do what the line says" if error.code == "mode" else "send the right files again"
            yield Finding(WRONG, "kit", str(error), who, do)
            return
        except OSError as error:
            text = f"{error.filename or self.kit.folder} cannot be read ({tls.reason(error)})"
            do = "run doctor as the user of the service, and let that user read the kit"
            yield Finding(WRONG, "kit", text, self._it, do)
            return
        self._sound = True
        whole = f"{self.kit.name}, {self.kit.role} in {self.kit.network}; files and keys fit"
        yield Finding(GOOD, "kit", whole)

    def _certificate(self) -> Iterator[Finding]:
        """Check the certificate's dates; if they fail, this computer's clock."""
        try:
            found = _certificate(self.kit.certificate)
        except (Refused, OSError):  # the line of the kit says it
            return
        at, text = now(), f"until {found.until:%Y-%m-%d}"
        days = (found.until - at).days
        renew = f"fedcohort network renew NETWORK {self.kit.name}"
        if found.since <= at <= found.until:
            if days >= SOON:
                yield Finding(GOOD, "certificate", f"{text}, {days} days from now")
            else:
                yield Finding(NOTE, "certificate", f"{text}, {days} days from now", MAKER, renew)
            return
        self._dates = False
        says = f"{text}, and this computer's clock says {at:%Y-%m-%d %H:%M} UTC"
        set_it = "set this computer's clock, and let it follow a time server (timedatectl)"
        if at < found.since:
            says = says.replace("until", f"from {found.since:%Y-%m-%d} until")
            yield Finding(WRONG, "clock", f"certificate {says}", self._it, set_it)
            return
        good, why = self._taken_elsewhere()
        if good:
            text = f"certificate {says}; the coordinator takes it, so the clock here is ahead"
            yield Finding(WRONG, "clock", text, self._it, set_it)
        elif why == "expired":
            text = f"{says}; the coordinator's clock agrees that it has ended"
            yield Finding(WRONG, "certificate", text, MAKER, renew)
        else:
            do = f"if that is not today's date, {set_it}; if it is, ask {MAKER}: {renew}"
            yield Finding(WRONG, "certificate", says, self._it, do)

    def _taken_elsewhere(self) -> tuple[bool, str]:
        """Return whether the coordinator accepts this certificate by its own clock, or why not."""
        if self.kit.role not in ("site", "lead") or not self._sound:
            return False, ""
        try:
            return engines.preflight(self.kit, REACH, dates=False) is None, ""
        except Refused as error:
            return error.code == "taken", error.code
        except FedcohortError:
            return False, ""

    def _disk(self) -> Iterator[Finding]:
        """Check that the state can be written, and its free space."""
        place = self._state if self._state.is_dir() else self.kit.folder
        do = "make room there, or give the service's user the right to write"
        if why := unwritable(place):
            yield Finding(WRONG, "disk", f"{place} cannot be written ({why})", self._it, do)
            return
        note = self._note
        if note is not None and note.alive and note.age > 15:
            text = f"the service that runs has noted nothing for {clocks.spell(note.age)}"
            yield Finding(WRONG, "disk", text, self._it, f"see whether it can write {place}")
            return
        free = shutil.disk_usage(place).free
        text = f"{free / 1e9:.1f} GB free at {place}"
        try:
            tempfile.gettempdir()
        except OSError:
            text = "no folder for temporary files can be written (TMPDIR, /tmp, /var/tmp)"
            yield Finding(WRONG, "disk", text, self._it, "make room, or set TMPDIR")
            return
        grade = WRONG if free < LEAST else NOTE if free < FEW else GOOD
        yield Finding(grade, "disk", text, self._it, "" if grade == GOOD else "make room")

    # who connects -------------------------------------------------------------------------

    def _connection(self) -> Iterator[Finding]:
        """Check that the coordinator is reached, accepts this party, and its time."""
        note = self._note
        if note is not None and note.alive:
            yield from self._running(note)
            return
        if not self._sound:
            yield Finding(NOTE, "connection", "not tried: the kit has to be right first")
            return
        if self.kit.role == "site":
            yield Finding(NOTE, "node", "not running", self._it,
                          "fedcohort node start KIT --config node.toml")  # fmt: skip
        try:
            why = engines.preflight(self.kit, REACH, dates=self._dates)
        except Refused as error:
            yield self._turned_away(error)
            return
        except FedcohortError as error:
            yield Finding(WRONG, "ports", str(error), self._it, "do what the line says")
            return
        if why is not None:
            yield self._not_reached(why)
            return
        yield Finding(GOOD, "ports", f"{self.kit.address} is reached, over TLS both ways")
        if self._dates:
            yield from self._hello()

    def _running(self, note: Note) -> Iterator[Finding]:
        if note.facts.get("connected"):
            yield Finding(GOOD, "ports", f"the node that runs is connected to {self.kit.address}")
        else:
            why = str(note.facts.get("error") or "it is not connected yet")
            yield self._not_reached(why)
        yield from self._clock(clocks.received(note.facts.get("offset")))

    def _not_reached(self, why: str) -> Finding:
        host, port = tls.host_port(self.kit.address)
        text = f"{self.kit.address} is not reached: {why.rstrip('.')}"
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            return Finding(WRONG, "ports", text, self._it,
                           f"let this computer know the name {host} (DNS), or ask {MAKER} whether "
                           f"the address in kit.toml is right")  # fmt: skip
        try:
            socket.create_connection((host, port), timeout=REACH).close()
        except ConnectionRefusedError:
            return Finding(WRONG, "ports", text, "the coordinator's IT",
                           "start it: fedcohort coordinator start KIT")  # fmt: skip
        except OSError:
            return Finding(WRONG, "ports", text, self._it,
                           f"let this computer out to {host}, TCP port {port} (firewall); if that "
                           f"is so, the coordinator's IT lets it in")  # fmt: skip
        return Finding(WRONG, "ports", text, "the coordinator's IT",
                       "see whether it answers: fedcohort coordinator status KIT")  # fmt: skip

    def _turned_away(self, error: Refused) -> Finding:
        """Say who mends the cause of a refusal."""
        does: dict[str, tuple[str, str, str]] = {
            "taken": (NOTE, self._it, "stop the other node of this name, if it is not this one"),
            "unknown": (WRONG, "the coordinator's IT", "put the new kit.toml and members.json into "
                        "the coordinator's kit, and start it again"),
            "unknown site": (WRONG, "the coordinator's IT", "put the new kit.toml and members.json "
                             "into the coordinator's kit, and start it again"),
            "version": (WRONG, "who the line names", "install the version that the network uses"),
            "not yet valid": (WRONG, f"{self._it} and the coordinator's IT", "compare both clocks "
                              "with the time of day, and set the one that is wrong"),
            "expired": (WRONG, f"{self._it} and the coordinator's IT", "compare both clocks with "
                        "the time of day; if both are right, the certificate has to be renewed"),
            "untrusted": (WRONG, self._it, "take TLS inspection off this one address; if there is "
                          "none, this kit is of another network"),
            "not TLS": (WRONG, self._it, "see what listens at the address in kit.toml"),
        }  # fmt: skip
        grade, who, do = does.get(error.code, (WRONG, MAKER, "make this party a new kit"))
        return Finding(grade, "ports", str(error), who, do)

    def _hello(self) -> Iterator[Finding]:
        """Ask the coordinator for its version and time, as this party."""
        spoke = engines.spoke(self.kit)
        found: list[dict[str, Any]] = []
        office = Office(self.kit, spoke)

        def ask() -> object:
            _, meta = office.insist("hello", loss=CONNECT, patience=REACH)
            found.append(meta)
            return meta.get("clock")

        try:
            spoke.start()
            ask()  # the connection and the handshake are not part of the measured time
            offset = clocks.measured(ask)
        except Refused as error:
            yield self._turned_away(error)
            return
        except FedcohortError as error:
            yield self._not_reached(str(error))
            return
        finally:
            with contextlib.suppress(Exception):
                spoke.stop()
        there = str(found[-1].get("version"))
        yield Finding(GOOD, "version", f"{VERSION} here, {there} at the coordinator")
        yield from self._clock(offset)

    def _clock(self, offset: Offset | None) -> Iterator[Finding]:
        if offset is None:
            yield Finding(NOTE, "clock", "not compared: the coordinator has not told its time")
        elif offset.wrong:
            text = f"{offset.text} the coordinator's (±{clocks.spell(offset.bound)})"
            yield Finding(WRONG, "clock", text, self._it,
                          "compare it with the time of day, and let it follow a time server (time"
                          "datectl); if it is right, the coordinator's IT sets theirs")  # fmt: skip
        else:
            most = clocks.spell(abs(offset.seconds) + offset.bound)
            yield Finding(GOOD, "clock", f"within {most} of the coordinator's")

    # a site -------------------------------------------------------------------------------

    def _site(self) -> Iterator[Finding]:
        """Check that policy and table exist and fit each other."""
        steward = f"the data steward of {self.kit.name}"
        if rollback.pending(self._state) is not None:
            text, _, _ = rollback.OLDER.partition(". ")
            yield Finding(WRONG, "state", text, f"{self._it} and {steward}",
                          'bring a newer backup back; or, once you know what is lost: fedcohort '
                          'node restored KIT --reason "…"')  # fmt: skip
        path = self._config or noted_config(self._state)
        if path is None:
            yield Finding(WRONG, "policy", "no node.toml is known: it never started", self._it,
                          "name it: fedcohort doctor KIT --config node.toml")  # fmt: skip
            return
        try:
            config = Config.read(path)
        except (FedcohortError, OSError) as error:
            yield Finding(WRONG, "policy", str(error), self._it, "correct it with the data steward")
            return
        policy = config.policy
        kinds = {"method": policy.methods, "column": policy.columns, "lead": policy.submitters}
        allowed = ", ".join(_some(names, what) for what, names in kinds.items())
        yield Finding(GOOD, "policy", f"{path}: approval by {policy.approval}, "
                      f"{allowed}, min_cell {policy.min_cell}")  # fmt: skip
        yield self._budget(config, steward)
        yield from self._table(config, steward)

    def _budget(self, config: Config, steward: str) -> Finding:
        path = self._state / "budget.sqlite"
        try:
            account = Budget(path, config.data.name, config.policy.budget).account()
        except InputError as error:
            return Finding(WRONG, "budget", str(error), self._it, "bring state/ back")
        if account.allowed is None or account.left is None:
            return Finding(NOTE, "budget", "none: private studies (dp) are refused here", steward,
                           "set policy.privacy_budget in node.toml, if they shall run")  # fmt: skip
        text = f"epsilon {account.left.epsilon:g} of {account.allowed.epsilon:g} left"
        if account.left.epsilon > 0:
            return Finding(GOOD, "budget", text)
        return Finding(NOTE, "budget", text, steward, "private studies are refused from now on")

    def _table(self, config: Config, steward: str) -> Iterator[Finding]:
        """Read the table as a study would; report numbers of rows and columns, no value."""
        from fedcohort.data.read import sources
        from fedcohort.data.read.dictionaries import read_dictionary
        from fedcohort.data.read.sql import is_url, read_sql

        data, name = config.data, config.data.source
        shown = "the database" if is_url(name) else str(data.base / name)
        known = None  # a dictionary that cannot be read is reported below
        with contextlib.suppress(FedcohortError, OSError):
            if data.dictionary is not None:
                known = read_dictionary(data.base / data.dictionary)
        try:
            frame: Any = (
                read_sql(name, data.query, data.base, known) if is_url(name)
                else sources.load(name, data.base, dictionary=known).frames
            )  # fmt: skip
            columns = [str(c).strip() for c in frame.columns]
        except FedcohortError as error:
            yield Finding(WRONG, "table", str(error), self._it, "correct [data] in node.toml")
            return
        except Exception as error:
            text = f"{shown} cannot be read ({type(error).__name__})"
            yield Finding(WRONG, "table", text, self._it, "see whether the node's user may read it")
            return
        size = f"{shown}: {len(frame)} rows, {len(columns)} columns"
        if len(frame) < config.policy.min_rows:
            text = f"{size}; min_rows is {config.policy.min_rows}, so every study is refused"
            yield Finding(WRONG, "table", text, steward, "see whether it is the right export")
            return
        if data.dictionary is None:
            yield Finding(GOOD, "table", f"{size}; no dictionary of its own")
            return
        try:
            own = read_dictionary(data.base / data.dictionary)
        except (FedcohortError, OSError) as error:
            yield Finding(WRONG, "table", str(error), steward, "correct the dictionary")
            return
        if gone := [v for v in own.variables if v not in columns]:
            text = f"{size}; {len(gone)} columns of its dictionary are not in it: {', '.join(gone)}"
            yield Finding(WRONG, "table", text, steward, "fedcohort data check names what is wrong")
            return
        yield Finding(GOOD, "table", f"{size}, all {len(own.variables)} of its dictionary")

    # the coordinator ----------------------------------------------------------------------

    def _coordinator(self) -> Iterator[Finding]:
        yield from self._listens()
        yield self._runs()
        yield from self._sites()

    def _listens(self) -> Iterator[Finding]:
        kit, note = self.kit, self._note
        if note is not None and note.alive and (here := note.facts.get("connected")):
            yield Finding(GOOD, "ports", f"it runs, and {', '.join(here)} reached it")
            return
        if note is not None and note.alive:
            try:
                socket.create_connection((kit.host, kit.port), timeout=REACH).close()
                yield Finding(GOOD, "ports", f"it runs, and {kit.address} is reached from here")
            except OSError as error:
                text = f"it runs, and {kit.address} is not reached from here ({tls.reason(error)})"
                yield Finding(NOTE, "ports", text, self._it,
                              "see that sites reach it: the router, the firewall")  # fmt: skip
            return
        yield Finding(NOTE, "coordinator", "not running", self._it,
                      "fedcohort coordinator start KIT")  # fmt: skip
        try:
            tls.listener(kit.address).close()
            yield Finding(GOOD, "ports", f"it can listen on {kit.address}")
        except FedcohortError as error:
            yield Finding(WRONG, "ports", str(error), self._it,
                          "free the port, or start it with --listen")  # fmt: skip

    def _runs(self) -> Finding:
        """Check that the records of all studies can be read."""
        folder = self.kit.folder / "runs"
        kept = [p for p in folder.iterdir() if p.is_dir()] if folder.is_dir() else []
        lost = [p.name[:12] for p in kept if runs.read(p) is None]
        if not lost:
            return Finding(GOOD, "studies", f"{len(kept)} kept, all records are readable")
        text = f"{len(lost)} of {len(kept)} records cannot be read: {', '.join(lost)}"
        return Finding(WRONG, "studies", text, self._it, "bring runs/ back from the backup")

    def _sites(self) -> Iterator[Finding]:
        note = self._note
        if note is None or not note.alive:
            return
        known: dict[str, Any] = note.facts.get("parties", {})
        for name in self.kit.sites:
            here = name in note.facts.get("connected", [])
            about = known.get(name, {})
            text = as_line(name, about, here).partition(": ")[2]
            if trouble(name, about):
                yield Finding(WRONG, name, text, f"IT of {name}", "fedcohort doctor KIT there")
            elif here:
                yield Finding(GOOD, name, text)
            else:
                yield Finding(NOTE, name, text, f"IT of {name}", "fedcohort doctor KIT there")


def _certificate(path: Path) -> Certificate:
    """Return the certificate in a file.

    Raises
    ------
    Refused : there is none; the file is named.
    """
    try:
        return Certificate.parse(path.read_bytes())
    except Refused as error:
        raise Refused(error.code, f"{path}: {error}") from None


def _some(names: tuple[str, ...] | None, what: str) -> str:
    return f"all {what}s" if names is None else words.of(len(names), what)


def run(folder: Path, config: Path | None, say: Callable[[str], None]) -> bool:
    """Examine a kit; print each finding; return whether nothing is wrong.

    Raises
    ------
    InputError : the folder is no kit.
    """
    kit = Kit.open(folder)
    at = datetime.now().strftime("%Y-%m-%d %H:%M")
    say(f"{kit.name} ({kit.role}) of the network {kit.network}, {at}")
    found: list[Finding] = []
    for finding in Doctor(kit, config).findings():
        found.append(finding)
        for line in finding.lines:
            say("".join(c if c.isprintable() else "?" for c in line))
    wrong = [f for f in found if f.grade == WRONG]
    said = f"{len(wrong)} of {len(found)} checks are wrong" if wrong else "nothing is wrong"
    to_do = dict.fromkeys(f.who for f in wrong if f.who)
    say(f"{said}{'; to act: ' if to_do else ''}{', '.join(to_do)}.")
    return not wrong
