"""A network of hospitals on this machine, made and run by the real commands.

    with Parties(folder, ["north", "south", "west"]) as net:
        net.start()                                   # coordinator and nodes, each its own process
        net.run("study.yaml", "out")                  # what a lead types; returns when it is done

Everything is a process of its own, in a session of its own, on 127.0.0.1 and a free port; all of
them are ended when the block is left, however it is left, and `survivors` says whether one is
still there. A party can be killed, stopped, continued, started again and left without disk space;
with `wires=True` each site's connection goes through a `Wire` that can be cut and held.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import yaml

import in_process
from network.wires import Wire, free_port, until

PROCESS = Path(__file__).with_name("party_process.py")
SAMPLES = Path(__file__).parents[2] / "src" / "fedcohort" / "data" / "samples"
SITES = ("north", "south", "west")
#: Seconds that a party may take to be ready on a busy machine.
PATIENCE = 60.0
_all: weakref.WeakSet[Party] = weakref.WeakSet()


def shares(names: Sequence[str], seed: int = 7) -> dict[str, pd.DataFrame]:
    """Return GBSG2's 686 women dealt to `names` at random, in nearly equal parts."""
    table = pd.read_csv(SAMPLES / "gbsg2.csv")
    rows = np.random.default_rng(seed).permutation(len(table))
    parts = np.array_split(rows, len(names))
    return {n: table.iloc[np.sort(p)] for n, p in zip(names, parts, strict=True)}


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a party: one thread, plain text."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    plain = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **threads, **plain, **more}


class Party:
    """One command as a process: what it printed, how it ended, and ways to hurt it."""

    def __init__(self, name: str, words: Sequence[str | Path], folder: Path):
        self.name = name
        self.words = [str(w) for w in words]
        self.lines: list[str] = []
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._full = False
        _all.add(self)

    def start(self, **more: str) -> Self:
        """Start the process; `more` is added to its environment."""
        assert not self.alive, f"{self.name} runs already"
        self._process = subprocess.Popen(
            [sys.executable, str(PROCESS), *self.words],
            cwd=self._folder, env=environment(**more), text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        return self

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in process.stdout:
                self.lines.append(line)

    @property
    def text(self) -> str:
        """All that it printed so far."""
        return "".join(self.lines)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def memory(self) -> float:
        """Resident megabytes."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    @property
    def proportional(self) -> float:
        """Megabytes where pages shared with other processes are divided among them."""
        found = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{self.pid}/smaps_rollup").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def wait(self, seconds: float) -> int:
        """Wait for its end; return its exit code.

        Raises
        ------
        TimeoutError : it still runs.
        """
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"{self.name} still runs after {seconds:g} s:\n{self.text}"
            ) from None
        if self._reader is not None:
            self._reader.join(5)
        return code

    def says(self, pattern: str, seconds: float = PATIENCE) -> None:
        """Wait until it printed something that matches."""

        def printed() -> bool:
            if re.search(pattern, self.text):
                return True
            if not self.alive:
                raise RuntimeError(f"{self.name} ended with {self.code}:\n{self.text}")
            return False

        until(printed, seconds, f"{self.name} says {pattern!r}; it said\n{self.text}")

    # ways to hurt it ---------------------------------------------------------------------

    def kill(self) -> None:
        """End it at once: `kill -9`, of the whole group."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(20)

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C and systemd do."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop it where it is (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on after `stop`."""
        self._signal(signal.SIGCONT)

    def fill_disk(self) -> None:
        """Let every write to a file fail from now on, as on a full disk.

        The limit of a file's size is set to nothing for the running process: a write fails with
        EFBIG where a full disk gives ENOSPC; both are an `OSError` that comes from the write.
        Pipes and connections are not affected.
        """
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (0, hard))

    def free_disk(self) -> None:
        """Let writes succeed again."""
        if self.alive:
            _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (hard, hard))

    def _signal(self, number: int) -> None:
        if self._process is not None:  # the group outlives its leader where a child is left
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Make sure that nothing of it is left."""
        if self._process is None:
            return
        self.go_on()
        if self.alive:
            self.interrupt()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        if self._process.stdout is not None:
            if self._reader is not None:
                self._reader.join(5)
            self._process.stdout.close()

    @property
    def survives(self) -> bool:
        """Whether a process of its group is still there."""
        if self._process is None:
            return False
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True


@atexit.register
def _end_all() -> None:
    for party in list(_all):
        party.end()


class Parties:
    """A network in a folder: kits, tables, settings, and its processes.

    Parameters
    ----------
    folder : an empty folder.
    names : of the sites.
    engine : "flare" or "flower".
    wires : whether each site's connection can be cut and held.
    approval : "automatic" or "steward".
    tables : by site; GBSG2's shares by default.
    policy : lines of each node's [policy], besides or in place of the defaults here.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = SITES,
        *,
        engine: str = "flare",
        wires: bool = False,
        approval: str = "automatic",
        tables: Mapping[str, pd.DataFrame] | None = None,
        policy: Mapping[str, str] | None = None,
    ):
        self.folder = folder
        self.names = tuple(names)
        self.engine = engine
        self.port = free_port()
        self.wires: dict[str, Wire] = {}
        self.others: list[Party] = []
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(folder):
            made = in_process.command(
                *new_network("net", self.names, f"127.0.0.1:{self.port}", engine)
            )
        assert made[0] == 0, made
        tables = shares(self.names) if tables is None else tables
        lines = {
            "methods": '"all"',
            "columns": '"all"',
            "submitters": '"all"',
            "approval": f'"{approval}"',
        }
        for name in self.names:
            place = folder / "sites" / name
            (place / "exports").mkdir(parents=True)
            tables[name].to_csv(place / "exports" / "patients.csv", index=False)
            (place / "dictionary.yaml").write_text((SAMPLES / "gbsg2.yaml").read_text())
            settings = "\n".join(f"{k} = {v}" for k, v in {**lines, **(policy or {})}.items())
            (place / "node.toml").write_text(
                '[data]\nsource = "exports/patients.csv"\ndictionary = "dictionary.yaml"\n\n'
                f"[policy]\n{settings}\n"
            )
            if wires:
                wire = self.wires[name] = Wire(("127.0.0.1", self.port))
                for kit in (self.kit(name), folder / "net" / "people" / f"steward-{name}"):
                    rewire(kit / "kit.toml", self.port, wire.address[1])
        self.coordinator = Party(
            "coordinator", ["coordinator", "start", self.kit("coordinator")], folder
        )
        self.nodes = {
            name: Party(
                name, ["node", "start", self.kit(name), "--config", self.config(name)], folder
            )
            for name in self.names
        }

    # where things are --------------------------------------------------------------------

    def kit(self, who: str) -> Path:
        """Return the kit of a site, of "coordinator", or of "lead"."""
        net = self.folder / "net"
        if who in self.names:
            return net / "sites" / who
        return net / who if who == "coordinator" else net / "people" / who

    def config(self, site: str) -> Path:
        """Return a site's node.toml."""
        return self.folder / "sites" / site / "node.toml"

    @property
    def everyone(self) -> list[Party]:
        """All processes that were made."""
        return [*self.others, *self.nodes.values(), self.coordinator]

    # what people do ----------------------------------------------------------------------

    def do(self, *words: str | Path, code: int | None = 0, seconds: float = 120) -> str:
        """Run one command to its end; return what it printed.

        Raises
        ------
        AssertionError : it ended with another code than `code`; None takes any.
        """
        party = Party(" ".join(map(str, words[:2])), words, self.folder).start()
        try:
            found = party.wait(seconds)
        finally:
            party.end()
        assert code is None or found == code, f"{words}: exit {found}\n{party.text}"
        return party.text

    def start(self) -> float:
        """Start all parties, wait until every node is connected; return the seconds it took."""
        began = time.monotonic()
        for party in (self.coordinator, *self.nodes.values()):
            party.start()
        self.ready()
        return time.monotonic() - began

    def ready(self, names: Iterable[str] | None = None) -> None:
        """Wait until the coordinator is up, and these nodes are connected to it."""
        self.coordinator.says(r"(?i)listening|ready")
        for name in self.names if names is None else names:
            self.nodes[name].says(r"(?i)connected|ready")

    def submit(self, study: str | Path, out: str | Path, *more: str) -> Party:
        """Start what a lead types; return its process."""
        words = ["run", study, "--runtime", self.engine, "--network", self.kit("lead")]
        lead = Party("lead", [*words, "--out", out, *more], self.folder)
        self.others.append(lead)
        return lead.start()

    def run(self, study: str | Path, out: str | Path, *more: str, seconds: float = 300) -> str:
        """Submit a study and wait until it is done; return what the lead saw."""
        lead = self.submit(study, out, *more)
        code = lead.wait(seconds)
        assert code == 0, f"exit {code}\n{lead.text}\n{self.report()}"
        return lead.text

    def write(self, name: str, study: Mapping[str, object]) -> Path:
        """Write a study file; return its path."""
        path = self.folder / name
        path.write_text(yaml.safe_dump(dict(study), sort_keys=False))
        return path

    def report(self) -> str:
        """Return what each process printed last."""
        return "\n".join(f"--- {p.name} ({p.code})\n{p.text[-3000:]}" for p in self.everyone)

    # the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """End every process and wire."""
        for party in self.everyone:
            party.interrupt()
        for party in self.everyone:
            party.end()
        for wire in self.wires.values():
            wire.close()

    @property
    def survivors(self) -> list[str]:
        """Names of the processes that are still there."""
        return [p.name for p in self.everyone if p.survives]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def new_network(name: str, names: Sequence[str], address: str, engine: str) -> list[str | Path]:
    """Return the words that make a network."""
    words = ["network", "new", name, "--sites", ",".join(names), "--address", address]
    return [*words, "--engine", engine] if engine != "flare" else words


def rewire(file: Path, port: int, through: int) -> None:
    """Let a kit call another port than the coordinator's."""
    if file.exists():
        file.write_text(file.read_text().replace(f":{port}", f":{through}"))
