"""`fedcohort node start|status|stop`: a hospital's end of a network.

A node keeps one connection to the coordinator. It retries while the coordinator is down, and ends
with one line if retrying cannot help: its certificate is expired, revoked or of another network,
the coordinator's kit does not list it, or the versions differ.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcohort.apps.node_app import app
from fedcohort.protocol.errors import FedcohortError, InputError, Refused

if TYPE_CHECKING:
    from fedcohort.network.clocks import Offset
    from fedcohort.network.coordinator.lead import Office
    from fedcohort.network.engines import Spoke
    from fedcohort.network.kits import Kit
    from fedcohort.network.state.policy import Config
    from fedcohort.network.state.rollback import Rollback

KitFolder = Annotated[Path, typer.Argument(metavar="KIT", help="The site's kit.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]

#: Refusals that another try cannot change.
FINAL = (
    "untrusted", "expired", "not yet valid", "revoked", "role", "name", "unknown site", "version",
    "network",
)  # fmt: skip
#: Seconds between two looks at the connection, two tries of it, two looks why it does not come
#: about, and two lines that say so.
LOOK, TRY, PROBE, REMIND = 0.3, 2.0, 5.0, 60.0
#: Seconds between two greetings of a coordinator that is there, and that it may take to answer.
PULSE, ANSWER = 20.0, 10.0
#: Who has to act if two clocks differ.
SET_CLOCK = (
    "IT of this computer: compare it with the time of day, and let it follow a time server "
    "(timedatectl); if it is right, tell the coordinator's IT"
)
log = logging.getLogger(__name__)


@app.command()
def start(
    kit: KitFolder,
    config: Annotated[Path, typer.Option(help="The site's node.toml: its data, its policy.")],
    debug: Debug = False,
) -> None:
    """Serve a site, in the foreground, until Ctrl-C or SIGTERM."""
    from fedcohort.apps import serving
    from fedcohort.network import engines
    from fedcohort.network.coordinator.lead import Office
    from fedcohort.network.node.node import Node
    from fedcohort.network.service import Service, leave, within
    from fedcohort.network.state.policy import Config

    found = serving.kit(kit, "site")
    read = Config.read(config)  # its faults are reported before anything begins
    with Service(found.folder, "node") as service:
        for line in _missing(read):
            serving.say(line)
        serving.log_to(found.folder / "state" / "node.log")
        node = Node(found, config)
        spoke = engines.spoke(found, node.handle)
        watch = Watch(
            found, spoke, Office(found, spoke), lambda: engines.preflight(found), serving.say,
            lambda: service.fault, node.rollback,
        )  # fmt: skip
        node.greeted = watch.greeted
        tidings = Tidings(found, serving.say)
        disk = serving.Disk(found, "studies wait or fail here")
        code = 0
        try:
            serving.say(
                f"node {found.name} of {found.network}: calling the coordinator at "
                f"{found.address}; end it with Ctrl-C"
            )
            watch.begin(lambda: service.ended, lambda: service.tell(**watch.facts()))
            while not service.wait(LOOK):
                watch.look()
                facts = node.facts()
                tidings.look(facts)
                disk.look(service.fault)
                service.tell(**{**facts, **watch.facts()})
        except Refused as error:
            typer.echo(f"fedcohort: {error}", err=True)
            service.last(str(error))
            code = 1
        finally:
            within(0.7, spoke.stop)
            within(0.7, node.close)
        if not code:
            serving.say("stopped")
    leave(code)


def _missing(config: Config) -> Iterator[str]:
    """Return the configuration's files that do not exist yet."""
    from fedcohort.data.read.sql import is_url

    data = config.data
    for key, name in (("source", data.source), ("dictionary", data.dictionary)):
        if name and not is_url(name) and not (data.base / name).is_file():
            yield (
                f"[data] {key} in node.toml: there is no file {data.base / name} yet; without it "
                f"every study is refused here"
            )


class Tidings:
    """Reports events of studies at the node's terminal: waiting, running, ended, refused."""

    def __init__(self, kit: Kit, say: Callable[[str], None]):
        self._kit, self._say = kit, say
        self._waiting: list[str] = []
        self._running: list[str] = []
        self._error = ""

    def look(self, facts: Mapping[str, Any]) -> None:
        """Report new facts of the node."""
        for name in facts["waiting"]:
            if name not in self._waiting:
                at = shlex.quote(str(self._kit.folder))
                mark = name.rpartition("(")[2].rstrip(")")
                self._say(
                    f"{name} waits for the data steward: fedcohort node studies {mark} --node {at}"
                )
        for name in facts["running"]:
            if name not in self._running:
                self._say(f"{name} runs here")
        ended = facts.get("ended", {})
        for name in [*self._running, *self._waiting]:
            if name in ended:
                self._say(f"{name} ended: {ended[name]}")
            elif name in self._running and name not in facts["running"]:
                self._say(f"{name} is over here")
        if facts["error"] and facts["error"] != self._error:
            self._say(f"refused: {facts['error']}")
        self._waiting, self._running = facts["waiting"], facts["running"]
        self._error = facts["error"]


class Watch:
    """The connection of a node: reports its changes, and ends if it is refused.

    Parameters
    ----------
    office : the coordinator, as the node asks it.
    preflight : tries once to connect; see `engines.preflight`.
    say : prints a line.
    fault : why the node cannot write its state; "" if it can. The coordinator is told.
    rollback : counts what the node has told.

    Attributes
    ----------
    greeted : set once the coordinator has answered a greeting.
    """

    def __init__(
        self,
        kit: Kit,
        spoke: Spoke,
        office: Office,
        preflight: Callable[[], str | None],
        say: Callable[[str], None],
        fault: Callable[[], str] = str,
        rollback: Rollback | None = None,
    ):
        self._kit = kit
        self._spoke = spoke
        self._fault, self._rollback, self._older = fault, rollback, ""
        self.greeted = threading.Event()
        self._office = office
        self._preflight = preflight
        self._say = say
        self._known = False
        self._tried = self._greeted = self._reminded = 0.0
        self._error = ""
        self._pulse: threading.Thread | None = None
        self._offset: Offset | None = None
        self._silent, self._wrong = "", False

    def begin(self, ended: Callable[[], bool], note: Callable[[], object] = lambda: None) -> None:
        """Try until the coordinator is there, then let the engine connect; `note` tells `facts`.

        Raises
        ------
        Refused : retrying cannot help.
        """
        while not ended() and (why := self._preflight()):
            self._remind(why)
            note()
            until = time.monotonic() + TRY
            while not ended() and time.monotonic() < until:
                time.sleep(0.1)
        if not ended():
            self._tried = time.monotonic()
            self._spoke.start()

    def look(self) -> None:
        """Greet the coordinator when connected; report a lost connection.

        Raises
        ------
        Refused : the coordinator does not accept this node, or is not the expected one.
        """
        if not self._spoke.connected:
            if self._known:
                self._known, self._silent = False, ""
                self._error = (
                    f"lost the coordinator at {self._kit.address} at {datetime.now():%H:%M:%S}"
                )
                self._say(f"lost the coordinator at {self._kit.address}; trying again")
                self._reminded = self._tried = time.monotonic()  # the engine is given its time
            elif time.monotonic() - self._tried >= PROBE:
                self._tried = time.monotonic()
                why = self._probe()
                if not self._spoke.connected:
                    self._remind(why or "it cannot be reached")
            return
        if self._known:
            self._go_on()
            return
        if time.monotonic() - self._greeted < TRY:
            return
        self._greeted = time.monotonic()
        try:
            meta = self._greet()
        except Refused as error:
            if error.code in FINAL:
                raise
            self._remind(str(error))
            return
        except FedcohortError as error:
            self._remind(str(error))
            return
        self._known = True
        self._greeted -= PULSE - TRY  # soon again: the coordinator then learns of this clock
        self._reminded = 0.0
        self._say(
            f"connected to the coordinator of {self._kit.network} at {self._kit.address} "
            f"(fedcohort {meta.get('version')})"
        )
        self._tell_clock()

    def _greet(self) -> Mapping[str, Any]:
        """Greet the coordinator; tell the node's state, and measure the clocks' offset."""
        from fedcohort.network import clocks
        from fedcohort.network.state import rollback

        found: list[Mapping[str, Any]] = []

        def ask() -> object:
            known = None if self._offset is None else [self._offset.seconds, self._offset.bound]
            count = None if self._rollback is None else self._rollback.count()
            _, meta = self._office.ask(
                "hello", patience=ANSWER, offset=known, fault=self._fault(), count=count
            )
            found.append(meta)
            return meta.get("clock")

        self._offset = clocks.measured(ask)
        if self._rollback is not None:
            older = self._rollback.seen(found[0].get("seen"))
            if older and not self._older:
                self._say(f"RESTORED? {rollback.OLDER}")
            self._older = rollback.OLDER if older else ""
        self.greeted.set()
        return found[0]

    def _go_on(self) -> None:
        """Greet a connected coordinator regularly, in a thread of its own."""
        if self._pulse is not None and self._pulse.is_alive():
            return
        self._tell_clock()
        if time.monotonic() - self._greeted < PULSE:
            return
        self._greeted = time.monotonic()
        self._pulse = threading.Thread(target=self._beat, daemon=True, name="pulse")
        self._pulse.start()

    def _beat(self) -> None:
        try:
            self._greet()
            self._silent = ""
        except FedcohortError as error:
            self._silent = str(error).rstrip(".")
        except Exception as error:
            log.warning("a greeting failed (%s)", type(error).__name__)

    def _tell_clock(self) -> None:
        """Report once that the clocks differ too much, and once that they agree again."""
        if self._offset is None or self._offset.wrong == self._wrong:
            return
        self._wrong = self._offset.wrong
        self._say(
            f"this computer's clock is {self._offset.text} the coordinator's. {SET_CLOCK}"
            if self._wrong
            else "this computer's clock agrees with the coordinator's again"
        )

    def _probe(self) -> str | None:
        """Find out why the engine has no connection.

        Raises
        ------
        Refused : retrying cannot help.
        """
        try:
            return self._preflight()
        except Refused as error:
            if error.code == "taken":  # by this very node, which has just come through
                return None
            raise

    def facts(self) -> dict[str, Any]:
        """Return the node's facts."""
        here = self._known and not self._silent
        offset = None if self._offset is None else [self._offset.seconds, self._offset.bound]
        error = {} if here else {"error": self._silent or self._error}
        if here and self._older:
            error = {"error": self._older}
        return {"connected": here, "offset": offset} | error

    def _remind(self, why: str) -> None:
        """Report why there is no connection, once a minute."""
        where = "" if self._kit.address in why else f"the coordinator at {self._kit.address}: "
        self._error = where + why.rstrip(".")
        if self._reminded and time.monotonic() - self._reminded < REMIND:
            return
        self._reminded = time.monotonic()
        self._say(f"{self._error}; trying again")


@app.command()
def status(kit: KitFolder, debug: Debug = False) -> None:
    """Say whether the node runs, whether it is connected, and what it does."""
    from fedcohort.apps import serving
    from fedcohort.network.service import read

    found = serving.kit(kit, "site", check=False)
    note = read(found.folder)
    serving.running(found, note)
    assert note is not None
    state = "yes" if note.facts.get("connected") else "no"
    typer.echo(f"connected: {state} (coordinator at {found.address})")
    for key, what in (("running", "running"), ("waiting", "waiting for the steward")):
        typer.echo(f"{what}: {', '.join(note.facts.get(key, [])) or 'no study'}")
    serving.health(found, note)
    serving.certificate(found)


@app.command()
def stop(kit: KitFolder, debug: Debug = False) -> None:
    """End the node; a run waits for it as long as the study allows."""
    from fedcohort.apps import serving

    serving.stop(serving.kit(kit, "site", check=False), "node")


@app.command()
def restored(
    kit: KitFolder,
    reason: Annotated[str, typer.Option("--reason", help="What happened, for the record.")],
    epsilon: Annotated[
        float, typer.Option(min=0.0, help="ε spent since the backup, to book as spent.")
    ] = 0.0,
    delta: Annotated[float, typer.Option(min=0.0, help="δ spent since the backup.")] = 0.0,
    debug: Debug = False,
) -> None:
    """Let a node go on whose state was restored from an older backup."""
    from fedcohort.apps import serving
    from fedcohort.network.state import rollback

    found = serving.kit(kit, "site", check=False)
    state = found.folder / "state"
    if rollback.pending(state) is not None and (epsilon or delta):
        _book(state, epsilon, delta)
    lost = rollback.accept(state, reason)
    typer.echo(f"{found.name} goes on; {lost} bytes of its ledger are lost, and noted as such.")
    booked = f"Booked as spent: epsilon {epsilon:g}, delta {delta:g}."
    typer.echo(booked if epsilon or delta else "No privacy budget was booked as spent.")


def _book(state: Path, epsilon: float, delta: float) -> None:
    """Book the ε spent by a lost part of the state.

    Raises
    ------
    InputError : the node never started, so its node.toml is not known.
    Refused : the site has no budget, or less is left.
    """
    from fedcohort.network.state.budget import Budget
    from fedcohort.network.state.policy import Config
    from fedcohort.network.state.study_store import noted_config

    path = noted_config(state)
    if path is None:
        raise InputError(f"{state}: no node.toml is known; start the node once, then try again.")
    read = Config.read(path)
    budget = Budget(state / "budget.sqlite", read.data.name, read.policy.budget)
    part = f"lost, booked {datetime.now():%Y-%m-%d %H:%M:%S}"
    budget.reserve("restored", part, epsilon, delta)
    budget.commit("restored", part)
