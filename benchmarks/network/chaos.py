"""Twenty-four faults in a network of three hospitals: every run ends as if nothing had happened.

    python benchmarks/network/chaos.py [--only TEXT] [--keep FOLDER]

A fault is a kind, a party and a moment. Kinds:

    kill      kill -9, and 1.5 s later the same command again
    stop      SIGSTOP, and 4 s later SIGCONT
    cut       all its connections closed and new ones refused for 4 s, by a TCP proxy in the way
    disk      no write to a file succeeds for 4 s (the process's limit of a file's size is set to
              0: EFBIG from the write, where a disk that is full gives ENOSPC)
    clock     its clock is wrong: 40 days fast from its start, or 3 hours off from one moment to the
              next (`clock.c` in front of the C library, the monotonic clock left alone)

The party is the node of one hospital, or the coordinator; what hits the coordinator's connections
hits those to all hospitals. Moments, held open by the proxies so that the fault cannot miss them:

    before    the node runs, no study was submitted; for the coordinator the same
    during    a call was answered by the party's side, and the reply is under way: it waits in the
              proxy (node: of this hospital; coordinator: of all)
    after     a call has ended and the next was sent: that waits in the proxy, in the same way

Besides, `lost node during`: a site is stopped for longer than a call may take, and the study's
quorum of two thirds lets it go on; the site joins again later.

What must hold, each time: the lead's command ends with 0, or with 1 and one line, after which the
same command with --resume ends with 0; no process printed a traceback; and every file of the run
(models, results, ledger; not the keys named `seconds`) equals, byte for byte, that of a run nothing
happened to; with `lost`, that of a run in one process in which the site was missing for just the
calls that the result names. Every sum is masked, as three sites' are by default, in all cases but
`lost`, where only two sites are left, who cannot hide one another (23 of 24; the table says which):
the run's ledger must say so. Two studies take turns: `deepcox` and `cox`, whose calls leave nothing
at a site, and `logistic` by ADMM, whose calls do. Exits with 1 where something does not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from book import asks_out, keep

from command_line import without_times
from network.parties import Parties, Party
from network.reference import differing, in_process, plain
from network.wires import DOWN, UP, until

SITES = ("north", "south", "west")
VICTIM = "south"
#: Bytes beyond which what waits in a proxy is a call and not a sign of life.
A_CALL = 400
DAY = 86_400
STUDIES: dict[str, dict[str, object]] = {
    "survival": {
        "study": "chaos-survival",
        "task": "survival",
        "seed": 11,
        "data": {"source": "sample:gbsg2", "outcome": {"time": "time", "event": "cens"}},
        "preprocess": {"impute": "median", "scale": "minmax"},
        "arms": [
            {"method": "deepcox", "strategy": "fedavg", "rounds": 8, "internal_epochs": 2},
            {"method": "deepcox", "strategy": "exact", "rounds": 10},
            {"method": "cox", "scale": "none"},
        ],
        "evaluate": {"test_fraction": 0.25, "repeats": 1},
    },
    "classification": {
        "study": "chaos-classification",
        "task": "classification",
        "seed": 12,
        "data": {"source": "sample:gbsg2", "outcome": {"y": "cens"}},
        "preprocess": {"impute": "median", "scale": "standard"},
        "arms": [{"method": "logistic", "solver": "admm", "l2": 0.01}],
        "evaluate": {"test_fraction": 0.25, "repeats": 2},
    },
}
STUDIES["quorum"] = {**STUDIES["survival"], "study": "chaos-quorum", "quorum": 0.6}
STUDIES["quorum"]["privacy"] = {"secure_aggregation": False}
STUDIES["quorum"]["arms"] = [
    {"method": "deepcox", "strategy": "fedavg", "rounds": 60, "internal_epochs": 1}
]


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens, to whom, when, and in which study."""

    kind: str
    party: str
    moment: str
    study: str

    @property
    def name(self) -> str:
        """How it is called in the table."""
        return f"{self.kind} {self.party} {self.moment}"


def is_masked(study: str) -> bool:
    """Return whether the sums of a study are masked over these three sites."""
    return "privacy" not in STUDIES[study]


def faults() -> list[Fault]:
    """Return all: five kinds, two parties, three moments, less six that say nothing new.

    A disk that is full before a study is full during it; a clock that is wrong between two calls is
    wrong during the next; a coordinator that cannot be reached when a study is submitted is that of
    `kill coordinator before`, for whatever reason.
    """
    cases = [
        (kind, party, moment)
        for kind in ("kill", "stop", "cut", "disk", "clock")
        for party in ("node", "coordinator")
        for moment in ("before", "during", "after")
        if (kind, moment) not in {("disk", "before"), ("clock", "after")}
        and (kind, party, moment)
        not in {("stop", "coordinator", "before"), ("cut", "coordinator", "before")}
    ]
    studies = ("survival", "classification")
    known = [Fault(*case, studies[i % 2]) for i, case in enumerate(cases)]
    return [*known, Fault("lost", "node", "during", "quorum")]


@dataclasses.dataclass
class Clock:
    """A wall clock of a party's own: a library, and the file that says how wrong it is."""

    library: Path | None
    file: Path

    def set(self, seconds: int) -> None:
        """Make it wrong."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds}\n")
        fresh.replace(self.file)

    def environment(self) -> dict[str, str]:
        """Return what a party is started with."""
        return {"LD_PRELOAD": str(self.library), "CLOCK_OFFSET": str(self.file)}


class Scene:
    """One network, one study, one fault."""

    def __init__(self, fault: Fault, folder: Path, clock: Path | None):
        self.fault = fault
        self.net = Parties(folder, SITES, wires=True)
        self.net.write("study.yaml", STUDIES[fault.study])
        node = fault.party == "node"
        self.victim: Party = self.net.nodes[VICTIM] if node else self.net.coordinator
        self.wires = [self.net.wires[VICTIM]] if node else list(self.net.wires.values())
        self.clock = Clock(clock, folder / "clock")
        self.clock.set(40 * DAY if fault.moment == "before" else 0)
        for wire in self.net.wires.values():
            wire.lag = 0.01  # as far as another town, so that a moment lasts

    def start(self) -> None:
        """Start all parties; of a wrong clock, its party has it from its start."""
        net = self.net
        for party in (net.coordinator, *net.nodes.values()):
            wrong = self.fault.kind == "clock" and party is self.victim
            party.start(**(self.clock.environment() if wrong else {}))
        net.ready()

    def play(self) -> str:
        """Submit the study, let the fault happen, wait for the end; say what happened.

        Raises
        ------
        Broken : something does not hold.
        """
        self.start()
        if self.fault.moment == "before":
            self.strike()
            lead = self.net.submit("study.yaml", "out")
            self.mend()
        else:
            more = ("--timeout", "3") if self.fault.kind == "lost" else ()
            lead = self.net.submit("study.yaml", "out", *more)
            until(lambda: under_way(self.net) or not lead.alive, 180, "the study is under way")
            direction = UP if self.fault.moment == "during" else DOWN
            for wire in self.wires:
                wire.hold(direction)
            until(
                lambda: all(w.waiting[direction] > A_CALL for w in self.wires), 90,
                f"a call waits in the proxy\n{self.net.report()}",
            )  # fmt: skip
            self.strike()
            for wire in self.wires:
                wire.release()
            self.mend()
        return self.finish(lead)

    def strike(self) -> None:
        """Let the fault happen."""
        kind = self.fault.kind
        if kind == "kill":
            self.victim.kill()
        elif kind in ("stop", "lost"):
            self.victim.stop()
        elif kind == "cut":
            for wire in self.wires:
                wire.cut()
        elif kind == "disk":
            self.victim.fill_disk()
        elif self.fault.moment != "before":
            self.clock.set(-DAY // 8 if self.fault.party == "node" else DAY // 8)

    def mend(self) -> None:
        """After a while, end the fault."""
        kind = self.fault.kind
        time.sleep({"kill": 1.5, "clock": 0.0, "lost": 8.0}.get(kind, 4.0))
        if kind in ("stop", "lost"):
            self.victim.go_on()
        elif kind == "cut":
            for wire in self.wires:
                wire.mend()
        elif kind == "disk":
            self.victim.free_disk()
        if kind != "clock" and not self.victim.alive:
            self.victim.start()

    def finish(self, lead: Party) -> str:
        """Wait for the end, resume where the study was aborted; say which of both it was."""
        code = lead.wait(300)
        end = "finished"
        if code:
            said = lead.text.strip().splitlines()
            why = next((x for x in reversed(said) if x.startswith("fedcohort: ")), None)
            if code != 1 or why is None:
                raise Broken(f"the lead's command ended with {code}:\n{lead.text}")
            for party in (self.net.coordinator, *self.net.nodes.values()):
                if not party.alive:
                    party.start()
            kept = (self.net.folder / "out" / ".work").is_dir()
            more = ("--resume",) if kept else ()
            again = self.net.submit("study.yaml", "out", *more)
            if again.wait(300):
                raise Broken(f"after {why!r}, it could not be resumed:\n{again.text}")
            then = "resumed" if kept else "run again"
            end = f"aborted ({why.removeprefix('fedcohort: ')[:60]}…), {then}"
        return end

    def check(self, reference: dict[str, bytes]) -> None:
        """See that the result is the reference's, and that nobody printed a traceback.

        Raises
        ------
        Broken : it is not, or somebody did.
        """
        found = without_times(self.net.folder / "out")
        if self.fault.kind == "lost":
            results = json.loads(found["results.json"])
            if not results["missing"]:
                raise Broken("the result names no site that was missing")
            found = plain(self.net.folder / "out")
            reference = in_process(
                self.net.folder / "study.yaml", self.net.folder / "local", results["missing"]
            )
        if differ := differing(found, reference):
            raise Broken(f"not the files of the run without a fault: {differ}")
        lines = (self.net.folder / "out" / "ledger.jsonl").read_text().splitlines()
        sums = [line for line in map(json.loads, lines) if line["verb"] == "sum"]
        if not sums or {line["masked"] for line in sums} != {is_masked(self.fault.study)}:
            raise Broken("the ledger does not say of its sums that they are masked, or not")
        for party in self.net.everyone:
            if "Traceback" in party.text:
                raise Broken(f"{party.name} printed a traceback:\n{party.text[-2000:]}")


class Broken(Exception):
    """Something that must hold does not."""


def under_way(net: Parties) -> bool:
    """Return whether the coordinator has kept results of calls in a journal."""
    runs = net.kit("coordinator") / "runs"
    return sum(f.stat().st_size for f in runs.rglob("*journal*") if f.is_file()) > 3000


def reference(study: str, folder: Path) -> dict[str, bytes]:
    """Return the files of a run over the network that nothing happened to."""
    with Parties(folder, SITES) as net:
        net.write("study.yaml", STUDIES[study])
        net.start()
        net.run("study.yaml", "out")
        return without_times(folder / "out")


def library(folder: Path) -> Path | None:
    """Build what makes clocks wrong; None where there is no C compiler."""
    built, source = folder / "clock.so", Path(__file__).with_name("clock.c")
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, source], check=True)
    return built


def main() -> int:
    """Let all faults happen; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="faults whose name holds this")
    parser.add_argument("--keep", type=Path, help="a folder for what the runs leave")
    asks_out(parser)
    given = parser.parse_args()
    chosen = [f for f in faults() if given.only in f.name]
    base = given.keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    base.mkdir(parents=True, exist_ok=True)
    clock = library(base)
    references: dict[str, dict[str, bytes]] = {}
    broken = 0
    print(f"{'fault':<28} {'study':<15} {'sums':<6} {'seconds':>7}  what happened", flush=True)
    for fault in chosen:
        if fault.study not in references and fault.kind != "lost":
            references[fault.study] = reference(fault.study, base / f"reference-{fault.study}")
        began = time.monotonic()
        try:
            if fault.kind == "clock" and clock is None:
                raise Broken("there is no C compiler to build clock.c with")
            scene = Scene(fault, base / fault.name.replace(" ", "-"), clock)
            try:
                said = scene.play()
                scene.check(references.get(fault.study, {}))
            except (TimeoutError, RuntimeError, AssertionError) as error:
                raise Broken(f"{error}\n{scene.net.report()}") from None
            finally:
                scene.net.close()
            if scene.net.survivors:
                raise Broken(f"still there: {scene.net.survivors}")
            verdict = f"{said}; bit-equal"
        except Broken as error:
            broken += 1
            verdict = f"BROKEN: {error}"
        seconds = time.monotonic() - began
        sums = "masked" if is_masked(fault.study) else "plain"
        row = f"{fault.name:<28} {fault.study:<15} {sums:<6} {seconds:7.1f}"
        print(f"{row}  {verdict}", flush=True)
    masked = sum(is_masked(fault.study) for fault in chosen)
    print(
        f"{len(chosen) - broken} of {len(chosen)} faults: every run ended bit-equal; "
        f"{masked} of them with masked sums"
    )
    figures = {"faults": len(chosen), "bit_equal": len(chosen) - broken, "masked": masked}
    keep(given.out, {"chaos": figures})
    if not given.keep:
        shutil.rmtree(base)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
