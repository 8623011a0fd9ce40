"""A day of three people, IT, a data steward and a lead: four hospitals, and what goes wrong.

    python benchmarks/network/day.py [--only TEXT] [--keep FOLDER]

Each command below is typed as they type it, over FLARE, every party a process of its own. The
transcript says who types what and what that person reads; a line `holds:` is a check of it. Each
study waits for the data stewards of all four hospitals, but where it says otherwise. Scenes:

    start     a network is made, `fedcohort doctor` examines each kit; coordinator and nodes start
    decide    stewards read the page on a study (one page), print it, approve; the study runs
    again     the same study waits again; one steward refuses; all desks and the lead read why
    units     survival in months at one hospital, tumours in cm at another: no fit begins
    killed    a node is killed during preprocessing, masked, for longer than a call may take
    clocks    one node's clock is 3 hours fast, then 2 years
    disk      one node can no longer write its state during a run
    gone      the coordinator is killed during a run, and started again after a while
    restored  a node's state from an older backup, the coordinator's, a node of another version
    cells     Table 1 of the first study, attacked with all its published numbers together
    twin      the same file on one computer, compared with the run over the network

What is accepted: all that the checks say; ready within 7 s, from the last approval to the end
within 38 s, both times the slowdown of the machine, which is measured in the same run: seconds that
a bare `import torch` takes, over its seconds of the processor. Both are printed. Exits with 1 where
a scene breaks; the scenes after it are played all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from book import asks_out, keep
from chaos import DAY, Clock, library

import linked
import published
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from network import struck
from network.parties import Parties, Party, shares
from network.struck import Broken
from network.wires import until

SITES = ("basel", "bern", "geneva", "zurich")
#: Seconds on a machine that does nothing else: until all are ready; from the last approval on.
READY, RUN = 7.0, 38.0
#: Lines of one page, and of a command that are shown.
PAGE, SHOWN = 66, 14
STUDY: dict[str, Any] = {
    "question": "How long do women with node-positive breast cancer stay free of recurrence?",
    "task": "survival",
    "seed": 21,
    "governance": {
        "purpose": "A prognostic score for women with node-positive breast cancer",
        "legal_basis": "Art. 9(2)(j) GDPR, research in the public interest",
        "ethics": "EK 2026-114",
        "recipients": ["University of Bern"],
        "retention": "models and report ten years",
    },
    "data": {
        "source": "patients.csv",
        "dictionary": "dictionary.yaml",
        "outcome": {"time": "time", "event": "cens"},
    },
    "preprocess": {"impute": "median", "scale": "minmax"},
    "arms": [
        {"method": "cox", "scale": "none"},
        {"method": "deepcox", "strategy": "fedavg", "rounds": 30, "internal_epochs": 5},
    ],
    "bounds": ["isolated"],
    "evaluate": {"test_fraction": 0.25, "repeats": 3},
}


#: What is asked where only the way of a study matters.
QUICK: dict[str, Any] = {
    "arms": [{"method": "cox", "scale": "none"}],
    "bounds": [],
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}


def tables() -> dict[str, pd.DataFrame]:
    """Return four hospitals' shares of GBSG2, whose laboratories leave out values together."""
    found = shares(SITES, seed=21)
    for i, (name, table) in enumerate(found.items()):
        rng, frame = np.random.default_rng((21, i)), table.copy()
        frame[["progrec", "estrec"]] = frame[["progrec", "estrec"]].astype("Int64")
        lost = rng.random(len(frame)) < 0.015 * (i + 1)  # no receptor was measured
        frame.loc[lost, ["progrec", "estrec"]] = pd.NA
        frame.loc[lost & (rng.random(len(frame)) < 0.7), ["menostat", "tgrade"]] = None
        if i < 2:  # grade I is rare there
            low = frame.index[frame["tgrade"] == "I"]
            frame.loc[low[i + 2 :], "tgrade"] = "II"
        found[name] = frame
    return found


class Day:
    """The network of the day: what people type, what they read, and what must hold."""

    def __init__(self, folder: Path):
        self.clock = library(folder)
        self.slow, self.bare = slowdown()
        self.figures: dict[str, float] = {}
        self.net = Parties(folder / "day", SITES, approval="steward", tables=tables())
        for site in SITES:  # the dictionary that the hospitals agreed on is the lead's, too
            text = (folder / "day" / "sites" / site / "dictionary.yaml").read_text()
        (folder / "day" / "dictionary.yaml").write_text(text)
        self.net.write("score.yaml", {"study": "score", **STUDY})
        self.folder = folder
        self.first = ""

    # what people do ----------------------------------------------------------------------

    def types(
        self, who: str, *words: str | Path, code: int | None = 0, show: int = SHOWN, **more: str
    ) -> str:
        """Type one command, wait for its end, show it; return what was printed.

        Raises
        ------
        Broken : it ended with another code than `code`; None takes any.
        """
        party = Party(who, words, self.net.folder).start(**more)
        try:
            found = party.wait(180)
        finally:
            party.end()
        self.command(who, party)
        self.reads(who, party.text, show)
        if code is not None and found != code:
            raise Broken(f"exit {found} in place of {code}")
        return party.text

    def command(self, who: str, party: Party) -> None:
        """Show what is typed."""
        self.say(f"{who} $ fedcohort {self._short(' '.join(party.words))}")

    def reads(self, who: str, text: str, show: int = SHOWN) -> None:
        """Show what somebody reads; of a long text its beginning and its end."""
        lines = self._short(text).splitlines()
        if len(lines) > show:
            left = len(lines) - show
            lines = [*lines[: show // 2], f"… {left} lines …", *lines[-(show - show // 2) :]]
        for line in lines:
            self.say(f"    {who} | {line}")

    def _short(self, text: str) -> str:
        return text.replace(f"{self.net.folder}/", "")

    def say(self, text: str) -> None:
        """Print a line of the transcript."""
        print(text, flush=True)

    def holds(self, *patterns: str, text: str) -> None:
        """See that somebody read all of it, however it was folded.

        Raises
        ------
        Broken : a pattern is not in the text.
        """
        flat = " ".join(text.split())
        for pattern in patterns:
            if not re.search(pattern, flat):
                raise Broken(f"expected {pattern!r}; read:\n{self._short(text)}")
            self.say(f"  holds: {pattern}")

    def limit(self, what: str, seconds: float, bar: float) -> str:
        """See that something was fast enough for how busy the machine is.

        Raises
        ------
        Broken : it was not.
        """
        self.figures[f"{what.replace(' ', '_')}_seconds"] = round(seconds, 1)
        said = f"{what} {seconds:.1f} s (accepted: {bar:g} s × {self.slow:.1f})"
        if seconds > bar * self.slow:
            raise Broken(said)
        return said

    # parties -----------------------------------------------------------------------------

    def heal(self) -> None:
        """Let all parties run and be connected, whatever the last scene left."""
        net = self.net
        for lead in [p for p in net.others if p.alive and p.name == "lead"]:
            lead.end()
            words = [w for w in lead.words if w != "--resume"]
            Party("lead", [*words, "--cancel"], net.folder).start().wait(60)
        for party in (net.coordinator, *net.nodes.values()):
            if party.alive:
                party.free_disk()
            else:
                self.begin(party)

    def begin(self, party: Party, **more: str) -> None:
        """Start a party and wait until it is ready."""
        until(lambda: not party.alive, 10, f"{party.name} has ended")
        since = len(party.text)
        party.start(**more)
        until(lambda: re.search("connected|listening", party.text[since:]), 60, party.name)

    def submits(self, name: str, *more: str, file: str = "", **changes: Any) -> Party:
        """Let the lead submit a study, and wait until all stewards are asked or it ended."""
        if not file:
            file = self.net.write(f"{name}.yaml", {"study": name, **STUDY, **changes}).name
        lead = self.net.submit(file, f"out-{name}", *more)
        self.command("lead", lead)
        return lead

    def asked(self, lead: Party) -> str:
        """Wait until the study waits at each site; return its hash as people see it."""
        for site in SITES:
            lead.says(rf"{site}: waiting for the steward at {site}")
        self.reads("lead", lead.text)
        found = re.search(r"\(([0-9a-f]{12})\)", lead.text)
        assert found is not None
        return found[1]

    def steward(self, site: str) -> list[str | Path]:
        """Return where a steward says that the node and the own kit are."""
        return ["--node", self.net.kit(site), "--kit", self.net.kit(f"steward-{site}")]

    def approve(self, mark: str, *more: str, sites: Sequence[str] = SITES) -> None:
        """Let stewards approve."""
        for site in sites:
            words = ["node", "approve", mark, *self.steward(site), *more]
            text = self.types(f"steward of {site}", *words)
            self.holds("is approved by", text=text)

    def runs(self, name: str, *more: str, **changes: Any) -> Party:
        """Submit a study, approve it everywhere; return the lead's command, some fits done."""
        lead = self.submits(name, *more, **changes)
        self.approve(self.asked(lead))
        lead.says(r"[1-9]\d* of \d+ fits done", 180)
        return lead

    def ends(self, lead: Party, code: int = 0, seconds: float = 400) -> str:
        """Wait for the end of the lead's command; return what it printed.

        Raises
        ------
        Broken : it ended with another code.
        """
        found = lead.wait(seconds)
        self.reads("lead", lead.text, 2 * SHOWN)
        if found != code:
            raise Broken(f"the lead's command ended with {found}\n{self.net.report()}")
        return lead.text

    def status(self, *patterns: str) -> None:
        """Wait until the coordinator's status says all of it, and show it.

        Raises
        ------
        Broken : it does not within a minute.
        """
        words = ("coordinator", "status", self.net.kit("coordinator"))

        def told() -> bool:
            said = " ".join(self.net.do(*words).split())
            return all(re.search(p, said) for p in patterns)

        with contextlib.suppress(TimeoutError):
            until(told, 60, "the coordinator knows it")
        self.holds(*patterns, text=self.types("the coordinator's IT", *words))

    def desks(self, mark: str, *patterns: str, sites: Sequence[str] = SITES) -> None:
        """See what the desks say of a study, once the coordinator has told them."""
        found = ""

        def told(site: str) -> bool:
            nonlocal found
            found = self.net.do("node", "studies", "--node", self.net.kit(site))
            row = " ".join(found[found.index(mark) :].split())
            return all(re.search(p, row) for p in patterns)

        for site in sites:
            try:
                until(partial(told, site), 30, "the desk follows")
            except TimeoutError:
                raise Broken(f"the desk of {site} does not say {patterns}:\n{found}") from None
            self.say(f"steward of {site} $ fedcohort node studies --node net/sites/{site}")
            self.reads(f"steward of {site}", found[found.index(mark) :], 8)
        for pattern in patterns:
            self.say(f"  holds at {len(sites)} desks: {pattern}")


def slowdown() -> tuple[float, float]:
    """Return how much longer than its own work `import torch` takes here now, and how long."""
    words = [sys.executable, "-c", "import torch"]
    subprocess.run(words, check=True)  # from the disk, once
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(words, check=True)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return max(1.0, took / own), took


# scenes ----------------------------------------------------------------------------------------


def start(day: Day) -> str:
    """IT: kits are examined before and after the start."""
    net = day.net
    text = day.types("maker", "network", "show", "net")
    day.holds("steward-zurich", text=text)
    kit = ["doctor", net.kit("basel"), "--config", net.config("basel")]
    text = day.types("IT of basel", *kit, code=1)
    day.holds(
        r"ok table \S+: 17\d rows, 10 columns, all 10 of its dictionary",
        r"1 of \d+ checks are wrong; to act: the coordinator's IT",
        text=text,
    )
    text = day.types("the coordinator's IT", "doctor", net.kit("coordinator"))
    day.holds("it can listen on", "nothing is wrong", text=text)
    took = net.start()
    for name in ("coordinator", "basel"):
        party = net.coordinator if name == "coordinator" else net.nodes[name]
        day.command(name, party)
        day.reads(name, party.text)
    for who in SITES:
        text = day.types(f"IT of {who}", "doctor", net.kit(who))
        day.holds("nothing is wrong", text=text)
    for who in ("coordinator", "lead", "steward-geneva"):
        text = day.types(who, "doctor", net.kit(who))
        day.holds("nothing is wrong", text=text)
    return day.limit("ready in", took, READY)


def decide(day: Day) -> str:
    """Stewards: the page, the copy to sign, an approval with an end; the lead: results."""
    lead = day.submits("score", file="score.yaml")
    mark = day.first = day.asked(lead)
    last = f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}"
    for site in SITES:
        who, node = f"steward of {site}", ["--node", day.net.kit(site)]
        show = 80 if site == SITES[0] else 6
        text = day.types(who, "node", "studies", mark, *node, "--check", show=show)
        if (lines := len(text.splitlines())) > PAGE:
            raise Broken(f"the page has {lines} lines")
        day.holds(
            "MAY HOLD SINGLE ROWS", "Art. 9", "EK 2026-114", "University of Bern", "ten years",
            text=text,
        )  # fmt: skip
        out = Path(f"page-{site}.html")
        day.types(who, "node", "export", mark, *node, "--check", "--out", out)
        text = re.sub("<[^>]*>", " ", (day.net.folder / out).read_text())
        day.holds("EK 2026-114", "[Ss]ignature", text=text)
        day.approve(mark, "--until", last, "--runs", "1", sites=[site])
    began = time.monotonic()
    text = day.ends(lead)
    took = time.monotonic() - began
    day.holds("fedavg", r"done after", text=text)
    day.desks(mark, "ended: done", r"1 run \(1 used, 0 left\)")
    text = day.types("steward of bern", "node", "ledger", "--node", day.net.kit("bern"), show=30)
    day.holds("score", text=text)
    return day.limit("approval to end", took, RUN)


def again(day: Day) -> str:
    """The same study once more: it waits, and is refused by one."""
    lead = day.submits("score-again", file="score.yaml")
    mark = day.asked(lead)
    if day.first not in ("", mark):
        raise Broken(f"the same study has another hash: {mark}")
    day.approve(mark, sites=["basel"])
    reason = "the ethics vote covers one analysis"
    words = ["node", "refuse", mark, "--reason", reason, *day.steward("zurich")]
    day.types("steward of zurich", *words)
    text = day.ends(lead, code=1)
    day.holds(f"was refused: .*zurich.*{reason}", text=text)
    day.desks(mark, f"ended: refused elsewhere.*{reason}", sites=("basel", "bern", "geneva"))
    words = ["node", "approve", mark, *day.steward("bern")]
    text = day.types("steward of bern", *words, code=None)
    day.holds("There is nothing to approve", "submits it again", text=text)
    for site in ("basel", "zurich"):
        words = ["node", "history", "--node", day.net.kit(site)]
        text = day.types(f"steward of {site}", *words, show=24)
    day.holds(f"refused by steward-zurich, .*: {reason}", "in force", text=text)
    return "waited again; refused; nothing ran"


def units(day: Day) -> str:
    """Two hospitals' exports come in other units."""
    wrong = {"bern": ("time", 1 / 30.4375), "geneva": ("tsize", 0.1)}
    kept = {s: day.net.config(s).with_name("exports") / "patients.csv" for s in wrong}
    right = {site: path.read_text() for site, path in kept.items()}
    for site, (column, factor) in wrong.items():
        frame = pd.read_csv(kept[site])
        frame[column] = np.ceil(frame[column] * factor).astype(int)
        frame.to_csv(kept[site], index=False)
    lead = day.submits("units")
    mark = day.asked(lead)
    day.approve(mark)
    text = day.ends(lead, code=1)
    day.holds(
        "column 'time' at site 'bern' looks like months",
        "column 'tsize' at site 'geneva' looks like .*millimetres and centimetres",
        r"Nothing was fitted. Let the site convert it, give the study another name .* again\.$",
        text=text,
    )
    day.desks(mark, "ended: failed")
    for site, content in right.items():
        kept[site].write_text(content)
        day.say(f"(IT of {site} exports its table again, in the units of the dictionary)")
    lead = day.submits("units-2")
    day.approve(day.asked(lead))
    text = day.ends(lead)
    day.holds("done after", text=text)
    return "stopped before a fit; corrected, submitted by another name, done"


def killed(day: Day) -> str:
    """Four automatic sites, masked; a node is killed in preprocessing, past the timeout."""
    strike = struck.Strike("node", "preprocessing", 1, masked=True)
    with struck.network(day.folder / "killed") as net:
        said = struck.Scene(net, strike).play()
        for lead in net.others:
            day.command("lead", lead)
            day.reads("lead", lead.text)
    return said


def clocks(day: Day) -> str:
    """IT: a clock that is 3 hours fast, then 2 years."""
    if day.clock is None:
        raise Broken("there is no C compiler to build clock.c with")
    net, node = day.net, day.net.nodes["geneva"]
    wrong = Clock(day.clock, day.folder / "clock")
    own = wrong.environment()
    for offset, words in ((DAY // 8, "3 h 0 min ahead of"), (730 * DAY, "")):
        node.end()
        wrong.set(offset)
        since = len(node.text)
        node.start(**own)
        if words:
            until(lambda n=since: "3 h" in node.text[n:], 60, "the node tells its clock")
        else:
            node.wait(60)
        day.command("IT of geneva", node)
        day.reads("IT of geneva", node.text[since:])
        doctor = day.types("IT of geneva", "doctor", net.kit("geneva"), code=1, **own)
        status = day.types("IT of geneva", "node", "status", net.kit("geneva"), code=None, **own)
        if words:
            day.status(f"geneva: connected.* CLOCK {words}")
            day.holds(rf"WRONG clock {words}", "-> IT of geneva", text=doctor)
            day.holds(rf"clock: {words} the coordinator's", text=status)
        else:
            day.holds("If that is not today's date, set the clock", text=node.text[since:])
            day.holds("WRONG clock .* so the clock here is ahead", text=doctor)
            day.holds("it cannot start: .* set the clock", text=status)
            day.status("geneva: not connected")
    node.end()
    day.begin(node)
    text = day.types("IT of geneva", "doctor", net.kit("geneva"))
    day.holds("nothing is wrong", text=text)
    return "told at the node, to doctor and to the coordinator"


def disk(day: Day) -> str:
    """A node can no longer write during a run."""
    net, node = day.net, day.net.nodes["zurich"]
    lead = day.runs("disk", "--timeout", "5")
    since = len(node.text)
    node.fill_disk()
    day.say("(no write of the node of zurich succeeds from now on)")
    text = day.ends(lead, code=1)
    day.holds("zurich", "writ|room|disk", "--resume goes on", text=text)
    until(lambda: "cannot be written" in node.text[since:], 30, "the node tells it")
    day.reads("IT of zurich", node.text[since:])
    day.status("zurich: connected.* CANNOT WRITE its state .*IT of zurich has to make room")
    time.sleep(16)
    text = day.types("IT of zurich", "node", "status", net.kit("zurich"), code=None)
    day.holds("cannot be written", text=text)
    node.free_disk()
    day.say("(IT of zurich makes room)")
    until(lambda: "can be written again" in node.text[since:], 30, "the node tells it")
    day.reads("IT of zurich", node.text[since:])
    day.ends(day.submits("disk", "--resume", file="disk.yaml"))
    return "named to all three; resumed, done"


def gone(day: Day) -> str:
    """The coordinator is killed during a run."""
    net = day.net
    lead = day.runs("gone")
    began = time.monotonic()
    day.holds(r"about \d.* left", text=lead.text)
    net.coordinator.kill()
    day.say("(the coordinator is killed)")
    lead.says("the coordinator has not answered for", 40)
    time.sleep(8)
    day.begin(net.coordinator)
    day.say("(and started again)")
    lead.says("done after", 400)
    took = time.monotonic() - began
    text = day.ends(lead)
    day.holds("it is asked again for", "the coordinator is back", r"left", text=text)
    found = re.search(r"done after (?:(\d+) min )?(\d+) s", text)
    said = 60 * int(found[1] or 0) + int(found[2]) if found else -1
    if said < took - 3:
        raise Broken(f"'done after {said} s' of a run that took more than {took:.0f} s")
    return f"'done after {said} s'; {took:.0f} s of them since the kill"


def cells(day: Day) -> str:
    """An attacker reads all of the first study's Table 1, models and flow, and solves for cells."""
    out = day.net.folder / "out-score"
    terms = Terms.of(day.net.folder / "score.yaml")
    parts = [
        SiteTable.of(terms, s, pd.read_csv(day.net.config(s).with_name("exports") / "patients.csv"))
        for s in SITES
    ]
    table = SimpleNamespace(
        frame=pd.concat([t.frame for t in parts], ignore_index=True),
        site=np.concatenate([np.full(len(t.frame), t.site, object) for t in parts]),
        outcome=terms.outcome,
        flow=[(stage, t.site, n, note) for t in parts for stage, _, n, note in t.flow],
    )
    train = SimpleNamespace(
        problem=SimpleNamespace(frames={t.site: t.halves(0).train for t in parts})
    )
    blind = np.concatenate([t.blind(0) for t in parts])
    (day.folder / "attack").mkdir(exist_ok=True)
    shutil.copytree(out, day.folder / "attack" / "out", dirs_exist_ok=True)
    shutil.copy(out / "results.json", day.folder / "attack" / "out")
    with mock.patch.multiple(published, test_rows=lambda *_: blind, lay_out=lambda *_: train):
        found = published.attack(
            day.folder / "attack", SimpleNamespace(plan=terms.plan, table=table)
        )
    solved = found.recovered()
    told = json.loads((out / "results.json").read_text())["cohort"]["variables"]
    table_one = [SimpleNamespace(**v, rows=v["n"], variable=SimpleNamespace(**v)) for v in told]
    for one in table_one:
        one.counts = (*one.counts.values(),)
    together, right = panels(parts, table_one)
    said = (
        f"{len(found.cells)} cells hidden or small, {len(solved)} follow from all that is told; "
        f"of {together} counts of 1 to 4, {right} follow with columns that are missing together"
    )
    if solved or right:
        raise Broken(f"{said}: {solved[:5]}")
    return said


def panels(parts: Sequence[SiteTable], table_one: Sequence[Any]) -> tuple[int, int]:
    """Return how many counts of 1 to 4 there are, and how many columns missing together tell."""
    variables = {v.name: v.variable for v in table_one if v.site is None}
    frames: dict[str, pd.DataFrame] = {}
    for part in parts:
        frame = pd.DataFrame(index=part.frame.index)
        for name, v in variables.items():
            column = part.frame[name]
            known = column.map(lambda x: x if isinstance(x, str) else f"{x:g}")
            frame[name] = known if v.levels else "known"
            frame.loc[column.isna(), name] = None
        frames[part.site] = frame
    for v in variables.values():
        v.levels = (*v.levels,) or ("known",)
    n, told = linked.attack(frames, [*variables.values()], table_one)
    return int(n.sum()), int(told.sum())


def restored(day: Day) -> str:
    """A node from an older backup, a coordinator from its backup, a node of another version."""
    net, node = day.net, day.net.nodes["geneva"]
    it, state, backup = "IT of geneva", net.kit("geneva") / "state", day.folder / "backup"
    day.types(it, "node", "stop", net.kit("geneva"))
    shutil.copytree(state, backup)
    day.begin(node)
    lead = day.submits("after", **QUICK)
    day.approve(day.asked(lead))
    day.ends(lead)
    day.types(it, "node", "stop", net.kit("geneva"))
    day.begin(node)  # its greeting tells the coordinator how much has left
    day.types(it, "node", "stop", net.kit("geneva"))
    shutil.rmtree(state)
    shutil.copytree(backup, state)
    day.say(f"({it} brings the older state back)")
    since = len(node.text)
    day.begin(node)
    until(lambda: "RESTORED" in node.text[since:], 30, "the node tells it")
    day.reads(it, node.text[since:])
    text = day.types(it, "doctor", net.kit("geneva"), code=1)
    day.holds("older than what it has told", "-> .*node restored", text=text)
    day.status("geneva: connected.*STATE IS OLDER")
    day.types(it, "node", "restored", net.kit("geneva"), "--reason", "the disk broke")

    net.coordinator.end()
    kept = day.folder / "coordinator"
    shutil.copytree(net.kit("coordinator"), kept)
    shutil.rmtree(net.kit("coordinator"))
    shutil.copytree(kept, net.kit("coordinator"))
    day.say("(the coordinator is restored from its backup)")
    day.begin(net.coordinator)
    text = day.types("the coordinator's IT", "coordinator", "runs", net.kit("coordinator"))
    day.holds("after by lead: done", text=text)
    node.end()
    day.begin(node, FEDCOHORT_TEST_VERSION="0.1.9")
    day.status("geneva: connected, fedcohort 0.1.9")
    lead = day.submits("upgraded", **QUICK)
    day.approve(day.asked(lead))
    day.ends(lead)
    node.end()
    since = len(node.text)
    node.start(FEDCOHORT_TEST_VERSION="0.2.0").wait(60)
    day.reads(it, node.text[since:])
    day.holds("IT of the coordinator has to upgrade", text=node.text[since:])
    day.status("geneva: not connected, fedcohort 0.2.0.*IT of the coordinator has to upgrade")
    day.begin(node)
    return "noticed and booked; runs are there; 0.1.9 takes part, 0.2.0 is refused"


def twin(day: Day) -> str:
    """The lead runs the same file on one computer, and compares."""
    data = {**STUDY["data"], "source": "sites/{site}/exports/patients.csv"}
    arms = [*QUICK["arms"], {"method": "deepcox", "strategy": "fedavg", "rounds": 3}]
    lead = day.submits("twin", **{**QUICK, "data": data, "arms": arms})
    day.approve(day.asked(lead))
    day.ends(lead)
    day.types("lead", "run", "twin.yaml", "--out", "out-here")
    text = day.types("lead", "compare", "out-here", "out-twin", show=40)
    day.holds("equal: models/", text=text)
    return "models are equal"


SCENES: tuple[Callable[[Day], str], ...] = (
    start, decide, again, units, killed, clocks, disk, gone, restored, cells, twin,
)  # fmt: skip


def main() -> int:
    """Play the day; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="scenes whose name holds one of these, a,b")
    parser.add_argument("--keep", type=Path, help="a folder for what the runs leave")
    asks_out(parser)
    given = parser.parse_args()
    only = given.only.split(",")
    base = given.keep or Path(tempfile.mkdtemp(prefix="day-"))
    base.mkdir(parents=True, exist_ok=True)
    day = Day(base)
    print(f"load {os.getloadavg()[0]:.1f}; `import torch` {day.bare:.1f} s, × {day.slow:.1f}")
    rows: list[tuple[str, float, str]] = []
    broken = 0
    try:
        chosen = {s for s in SCENES if any(text in s.__name__ for text in only)}
        chosen |= {decide} if cells in chosen else set()  # what the attack reads
        for scene in [s for s in SCENES if s in chosen]:
            print(f"\n=== {scene.__name__}: {(scene.__doc__ or '').strip()}", flush=True)
            began = time.monotonic()
            try:
                if scene is not start:
                    day.heal()
                verdict = scene(day)
                for party in day.net.everyone:
                    if "Traceback" in party.text:
                        raise Broken(f"{party.name} printed a traceback:\n{party.text[-2000:]}")
            except Exception as error:  # the next scenes are played all the same
                broken += 1
                print(f"BROKEN: {error}", flush=True)
                verdict = f"BROKEN: {str(error).strip().splitlines()[0]}"
            rows.append((scene.__name__, time.monotonic() - began, verdict))
    finally:
        day.net.close()
    if day.net.survivors:
        broken += 1
        print(f"still there: {day.net.survivors}")
    print(f"\n{'scene':<8} {'seconds':>7}  verdict")
    for name, seconds, verdict in rows:
        print(f"{name:<8} {seconds:7.1f}  {verdict}")
    if not broken:
        keep(given.out, {"day": day.figures})
    if not given.keep:
        shutil.rmtree(base)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
