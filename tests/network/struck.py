"""One party killed in one kind of session, once or twice: what is done, and what must hold.

A node stays away for longer than a call may take, so that the run ends; it is started again, and
the lead resumes; the second time another node is killed. A coordinator is started again at once,
and so is a lead's command. The moment is the first reply that left for a session of that kind since
the run began or was resumed; of the report, that all pieces of the study are complete: no call
follows, so that both nodes are killed at once.

What must hold: the lead's command ends with 0, or with 1 and one line, after which the same command
with --resume ends with 0 in the end; every file equals, byte for byte, that of the study in one
process; no site is missing in the result; sums are masked as the study says; no tracebacks.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from network.parties import SITES, Parties, Party
from network.reference import differing, in_process, plain
from network.wires import until

FOUR = (*SITES, "east")
KINDS = ("cohort", "preprocessing", "tuning", "fit", "judging", "report")
PARTIES = ("node", "coordinator", "lead")
#: Nodes that are killed, in turn.
VICTIMS = ("east", "south")
#: Whose ledger shows where a run is.
WATCHED = "north"
#: Seconds that a call may take, and that each message takes on its way.
TIMEOUT, LAG = "2", 0.01
#: How often a run may be resumed until it must be done, beyond once a strike.
SPARE = 2
STUDY: dict[str, Any] = {
    "task": "classification",
    "seed": 13,
    "data": {"source": "sample:gbsg2", "outcome": {"y": "cens"}},
    "preprocess": {"impute": "median", "scale": "standard"},
    "arms": [{"method": "logistic", "solver": "admm", "l2": 0.01}],
    "bounds": [],
    "final": False,
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}
#: Its pieces: the cohort, its tuning if it has one, and one fit.
TUNED: dict[str, Any] = {
    **STUDY,
    "arms": [{"method": "logistic"}],
    "tune": {"by": "row-kfold", "grid": {"l2": [1.0]}},
}


class Broken(Exception):
    """Something that must hold does not."""


@dataclass(frozen=True)
class Strike:
    """Who is killed, in which kind of session, how often, and whether sums are masked."""

    party: str
    kind: str
    times: int
    masked: bool

    @property
    def name(self) -> str:
        """How it is called in the table."""
        often = {1: "once", 2: "twice"}[self.times]
        return f"{self.party} {self.kind} {often} {'masked' if self.masked else 'plain'}"

    @property
    def study(self) -> dict[str, Any]:
        """The study file's content."""
        some = TUNED if self.kind == "tuning" else STUDY
        plain = {} if self.masked else {"privacy": {"secure_aggregation": False}}
        return {"study": f"struck-{self.name.replace(' ', '-')}", **some, **plain}


def strikes() -> list[Strike]:
    """Return all: three parties, six kinds of session, masked and not, once and twice."""
    return [
        Strike(party, kind, times, masked)
        for kind in KINDS
        for party in PARTIES
        for masked in (True, False)
        for times in (1, 2)
    ]


def network(folder: Path) -> Parties:
    """Return a network of four sites that decide by themselves."""
    net = Parties(folder, FOUR, wires=True)
    for wire in net.wires.values():
        wire.lag = LAG
    net.start()
    return net


def kind_of(session: str, step: str) -> str:
    """Return the kind of a session, as `KINDS` has them."""
    first = session.partition("-")[0]
    if first == "fit":
        return "preprocessing" if step.startswith("column_") else "fit"
    kinds = {"count": "cohort", "describe": "cohort", "tune": "tuning", "score": "tuning"}
    return kinds.get(first, "judging")


def says_connected(node: Party, since: int) -> bool:
    """Return whether a node printed after so many letters that it is connected."""
    return "connected" in node.text[since:]


class Scene:
    """One strike in a network that runs, in which every study has a name of its own."""

    def __init__(self, net: Parties, strike: Strike):
        self.net, self.strike = net, strike
        self.name = str(strike.study["study"])
        self.file = net.write(f"{self.name}.yaml", strike.study)
        self.begun = {party.name: len(party.text) for party in net.everyone}
        self.resumed = self.hits = 0
        self.mark = 0

    def play(self) -> str:
        """Let it happen; return in words what happened.

        Raises
        ------
        Broken : something does not hold.
        """
        try:
            lead = self._submit()
            while self.hits < self.strike.times:
                lead = self._hit(lead)
            self._finish(lead)
            self._check()
        except (TimeoutError, RuntimeError, AssertionError) as error:
            raise Broken(f"{error}\n{self.net.report()}") from None
        return f"{self.hits} killed, {self.resumed} resumed, bit-equal"

    def _submit(self, *more: str) -> Party:
        """Start the lead's command; what is in the ledgers up to now counts no longer."""
        self.mark = self._ledger.stat().st_size if self._ledger.exists() else 0
        self.resumed += "--resume" in more
        return self.net.submit(self.file.name, self.name, "--timeout", TIMEOUT, *more)

    @property
    def _ledger(self) -> Path:
        return self.net.kit(WATCHED) / "state" / "ledger.jsonl"

    def _is_there(self, lead: Party) -> bool:
        """Return whether the moment has come, or the run is over."""
        if not lead.alive:
            return True
        if self.strike.kind == "report":
            return self._complete()
        with self._ledger.open("rb") as file:
            file.seek(self.mark)
            lines = file.read().splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith(b"\n")]
        kinds = {kind_of(row["session"], row["step"]) for row in rows if "step" in row}
        return self.strike.kind in kinds

    def _complete(self) -> bool:
        """Return whether all pieces are, or the run as a whole is."""
        for path in (self.net.kit("coordinator") / "runs").glob("*/run.json"):
            record = json.loads(path.read_text())
            if record["study"] == self.name:
                pieces = list((path.parent / "out" / ".work" / "cells").glob("*.json"))
                return len(pieces) >= 2 or record["state"] == "done"
        return False

    def _hit(self, lead: Party) -> Party:
        """Kill the party at its moment, start it again; return the lead's command."""
        net, party = self.net, self.strike.party
        if party == "lead" and self.hits:  # the run goes on meanwhile: any moment of the command
            lead.says(r"approved|done|queue|running|fits done")
        else:
            lead = self._awaited(lead)
        struck = [net.nodes[name] for name in VICTIMS[self.hits :][: self._at_once]]
        self.hits += self._at_once
        if party == "lead":
            lead.kill()
            return self._submit("--resume")
        if party == "coordinator":
            net.coordinator.kill()
            self.mark = self._ledger.stat().st_size
            net.coordinator.start()
            net.coordinator.says("(?i)listening|ready")
            return lead
        for node in struck:
            node.kill()
        code = lead.wait(90)
        for node in struck:
            printed = len(node.text)
            node.start()
            until(partial(says_connected, node, printed), 60, f"{node.name} is back")
        if code == 0:
            return lead
        self._aborted(lead, code)
        return self._submit("--resume")

    @property
    def _at_once(self) -> int:
        """How many are killed at one moment: both nodes, where no call follows."""
        both = (self.strike.party, self.strike.kind) == ("node", "report")
        return self.strike.times if both else 1

    def _awaited(self, lead: Party) -> Party:
        """Wait for the moment, resuming a run that is aborted before; return the lead's command."""
        while True:
            until(partial(self._is_there, lead), 90, self.strike.kind)
            if lead.alive:
                return lead
            if lead.wait(5) == 0:
                raise Broken(f"the run ended before the moment came:\n{lead.text}")
            lead = self._resumed(lead)

    def _resumed(self, lead: Party) -> Party:
        """Resume a run that was aborted; return the lead's command."""
        self._aborted(lead, lead.wait(5))
        if self.resumed > self.strike.times + SPARE:
            raise Broken(f"it cannot be resumed:\n{lead.text}")
        time.sleep(1.0)
        return self._submit("--resume")

    def _aborted(self, lead: Party, code: int) -> None:
        """See that a run ended with one line."""
        if code != 1 or "fedcohort: " not in lead.text or "--resume" not in lead.text:
            raise Broken(f"the lead's command ended with {code}:\n{lead.text}")

    def _finish(self, lead: Party) -> None:
        """Wait for the end; resume where the study was aborted."""
        while lead.wait(120):
            lead = self._resumed(lead)

    def _check(self) -> None:
        """Hold the files against those of the study in one process."""
        net, out = self.net, self.net.folder / self.name
        found = plain(out)
        if missing := json.loads(found["results.json"])["missing"]:
            raise Broken(f"sites are missing in the result: {missing}")
        expected = in_process(self.file, net.folder / f"local-{self.name}", sites=FOUR)
        if differ := differing(found, expected):
            raise Broken(f"not the files of the run in one process: {differ}")
        rows = [json.loads(x) for x in (out / "ledger.jsonl").read_text().splitlines()]
        if {row["masked"] for row in rows if row["verb"] == "sum"} != {self.strike.masked}:
            raise Broken("the ledger does not say of its sums that they are masked, or not")
        for party in net.everyone:
            if "Traceback" in party.text[self.begun.get(party.name, 0) :]:
                raise Broken(f"{party.name} printed a traceback:\n{party.text[-2000:]}")
