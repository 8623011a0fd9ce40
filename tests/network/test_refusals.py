"""Twelve refusals, over FLARE and real processes: one clear line on both sides, nothing computed.

A coordinator and three nodes are processes, and so are those who break a rule without knowing it:
leads who type `fedcohort run`, nodes with a kit that does not fit. Who breaks rules on purpose is
written here on real kits and the real engine: a lead that changes, repeats and inflates messages,
and, in the place of the coordinator's process, a coordinator that asks what it may not.

What is compared with: the lines below, each once, and no line of a step in any node's ledger.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

import numpy as np
import yaml

from fedcohort.engines.flare import handshake
from fedcohort.network import engines, requests
from fedcohort.network.coordinator.lead import Office
from fedcohort.network.kits.make import Kit, Network
from fedcohort.network.state import ledger as node_ledger
from fedcohort.network.study_offer import Offer, offer
from fedcohort.protocol.errors import FedcohortError
from fedcohort.protocol.line import LARGEST, Silence
from fedcohort.protocol.wire import encode
from fedcohort.secure.channel import Caller
from fedcohort.study.file.terms import Terms
from hospital import request
from network.parties import SAMPLES, Parties, Party, shares
from network.wires import until

#: north asks its steward, south allows some methods and columns, west has few rows.
POLICIES = {
    "north": {"approval": '"steward"'},
    "south": {
        "methods": '["cox"]',
        "columns": '["horTh", "age", "menostat", "tsize", "tgrade", "pnodes", "progrec", "time", '
        '"cens"]',
    },
    "west": {"min_rows": "100"},
}
STUDY: dict[str, Any] = {
    "study": "asked", "task": "survival", "seed": 1,
    "data": {"source": "t.csv", "dictionary": "few.yaml",
             "outcome": {"time": "time", "event": "cens"}},
    "arms": [{"method": "cox"}],
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}  # fmt: skip

#: What → (who says it, the line) on each side.
EXPECTED = {
    "unknown node": (
        ("node", r"the coordinator does not know the site 'east': its kit is older"),
        ("coordinator", r"refused 127\.0\.0\.1(:\d+)? \(unknown\): the site 'east' is not in the "),
    ),
    "wrong certificate": (
        ("node", r"the certificate at 127\.0\.0\.1:\d+ is not of the network 'other'"),
        ("coordinator", r"\(hung up\): it hung up: to it, the coordinator's certificate is not of"),
    ),
    "expired certificate": (
        ("node", r"the coordinator at \S+ refuses the certificate of 'west': it has expired"),
        ("coordinator", r"\(expired\): its certificate has expired by this computer's clock\."),
    ),
    "replayed message": (
        ("coordinator", r"south: refuses a message of coordinator: it came before\."),
        ("node", r"south: refused \(replayed\): a call of coordinator came twice"),
    ),
    "unapproved study": (
        ("lead", r"failed: after 3 s 1 of 3 sites take part, 2 are needed: .*waiting for the "
                 r"steward at north"),
        ("node", r"refused unapproved study=[0-9a-f]{12} the study [0-9a-f]{12} is not approved"),
    ),
    "edited study file": (
        ("lead", r"the study is not the one that lead signed: it was changed"),
        ("coordinator", r"lead was refused: the study is not the one that lead signed"),
    ),
    "forbidden column": (
        ("lead", r"site 'south': the study asks for column 'estrec'; this site allows"),
        ("node", r"refused column study=[0-9a-f]{12} the study asks for column 'estrec'; this"),
    ),
    "forbidden method": (
        ("lead", r"site 'south': the study asks for method 'deepcox'; this site allows 'cox'"),
        ("node", r"refused method study=[0-9a-f]{12} the study asks for method 'deepcox'; this"),
    ),
    "too few rows": (
        ("lead", r"site 'west': the study finds too few rows; this site allows 100 or more"),
        ("node", r"refused rows study=[0-9a-f]{12} the study finds too few rows; this site allows"),
    ),
    "incompatible version": (
        ("coordinator", r"south: refuses coordinator: fedcohort \S+ runs there, and 99\.1\.0 here"),
        ("node", r"south: refused \(version\): coordinator runs fedcohort 99\.1\.0, and this is"),
    ),
    "oversized message": (
        ("coordinator", r"south: refuses a message of coordinator: it is too large\."),
        ("node", r"south: refused \(oversized\): a call of \d{9} bytes; \d{9} are allowed\."),
    ),
    "malformed arrays": (
        ("coordinator", r"site 'south' was sent a record declares more bytes than it holds\."),
        ("node", r"failed [0-9a-f]{8} a request, call -: Refused at calls\.py:\d+|"
                 r"failed [0-9a-f]{8} a request, call -: .*more bytes than it holds"),
    ),
}  # fmt: skip


class Scene:
    """A network in which every refusal has happened, and what each side said of it."""

    def __init__(self, net: Parties):
        self.net = net
        self.said: dict[str, dict[str, str]] = {name: {} for name in EXPECTED}

    def log(self, site: str) -> str:
        """Return what a node said: its terminal and its two logs."""
        files = [self.net.kit(site) / "state" / name for name in ("log.txt", "node.log")]
        return self.net.nodes[site].text + "".join(f.read_text() for f in files if f.is_file())

    def tell(self, case: str, **sides: str) -> None:
        """Note what sides said in a case."""
        self.said[case] |= sides

    def signed(self, **changes: Any) -> Offer:
        """Return a study that the lead signed."""
        path = self.net.write("hostile.yaml", {**STUDY, **changes})
        return offer(Terms.of(path).to_json(), Kit.read(self.net.kit("lead")))


def prepared(folder: Path) -> Parties:
    """Make the network, and studies for its lead."""
    names = ("north", "south", "west")
    tables = shares(names)
    tables["west"] = tables["west"].iloc[:60]
    net = Parties(folder, names, tables=tables)
    for name, policy in POLICIES.items():
        text = net.config(name).read_text()
        for key, value in policy.items():
            text = re.sub(rf"(?m)^{key} = .*\n", "", text) + f"{key} = {value}\n"
        net.config(name).write_text(text)
    known = yaml.safe_load((SAMPLES / "gbsg2.yaml").read_text())
    (folder / "all.yaml").write_text(yaml.safe_dump(known, sort_keys=False))
    del known["variables"]["estrec"]
    (folder / "few.yaml").write_text(yaml.safe_dump(known, sort_keys=False))
    return net


# those who break a rule without knowing it ---------------------------------------------------


def leads_who_ask_too_much(scene: Scene) -> None:
    net = scene.net
    data = {**STUDY["data"], "dictionary": "all.yaml"}
    studies = {
        "forbidden column": {"study": "columns", "data": data},
        "forbidden method": {"study": "methods", "arms": [{"method": "deepcox"}]},
        "too few rows": {"study": "rows"},
        "unapproved study": {"study": "waits", "quorum": 0.6},
    }
    leads = {
        case: net.submit(net.write(f"{i}.yaml", {**STUDY, **change}), f"out{i}", "--wait", "3")
        for i, (case, change) in enumerate(studies.items())
    }
    for case, lead in leads.items():
        assert lead.wait(40) == 1, lead.text
        assert not list((net.folder / lead.words[-3]).glob("*.json"))
        site = {"too few rows": "west"}.get(case, "south")
        mark = Terms.of(Path(lead.words[1])).hash[:12]
        log = [line for line in scene.log(site).splitlines() if mark in line]
        scene.tell(case, lead=" ".join(lead.text.split()), node="\n".join(log))


def nodes_that_do_not_belong(scene: Scene) -> None:
    net = scene.net
    Network.open(net.folder / "net").add_site("east")  # the coordinator runs with its older kit
    other = Network.new(
        net.folder / "elsewhere" / "other", sites=["north"], address=f"127.0.0.1:{net.port}"
    )
    kits = {
        "unknown node": net.folder / "net" / "sites" / "east",
        "wrong certificate": other.kit("north"),
    }
    made = {
        case: Party(case, ["node", "start", kit, "--config", net.config("north")], net.folder)
        for case, kit in kits.items()
    }
    net.others += made.values()
    for party in made.values():
        party.start()
    for case, party in made.items():
        assert party.wait(40) == 1, party.text
        scene.tell(case, node=party.text)


def a_node_with_an_expired_certificate(scene: Scene) -> None:
    """Its own command would not start; what is tried here goes past that check, to the port."""
    net = scene.net
    copy = Network.open(net.folder / "net")
    held = net.folder / "held"
    held.mkdir()
    kit = net.kit("west")
    for name in ("cert.pem", "key.pem"):
        (held / name).write_bytes((kit / name).read_bytes())
    copy.renew("west", at=datetime.now(UTC) - timedelta(days=20), days=10)
    expired = Kit.open(kit)
    try:
        handshake.preflight(expired)
    except FedcohortError as error:
        scene.tell("expired certificate", node=str(error))
    party = Party("expired", ["node", "start", kit, "--config", net.config("west")], net.folder)
    net.others.append(party)
    assert party.start().wait(30) == 1
    assert len(re.findall("was valid until", party.text)) == 1, party.text
    for name in ("cert.pem", "key.pem"):
        (kit / name).write_bytes((held / name).read_bytes())


# those who break rules on purpose ------------------------------------------------------------


def a_lead_that_cheats(scene: Scene) -> None:
    """Hands in a study that another hand changed, and one that its lead changed after signing."""
    kit = Kit.read(scene.net.kit("lead"))
    spoke = engines.spoke(kit)
    spoke.start()
    try:
        good = scene.signed()
        terms = good.terms.replace('"seed":1', '"seed":2')
        assert terms != good.terms
        forged = dataclasses.replace(good, terms=terms, hash=requests.digest(terms.encode()))
        with pytest.raises(FedcohortError) as raised:
            Office(kit, spoke).ask("submit", offer=forged.to_bytes().decode())
        scene.tell("edited study file", lead=str(raised.value))
    finally:
        spoke.stop()


@contextlib.contextmanager
def a_hostile_coordinator(net: Parties) -> Iterator[tuple[Kit, Any]]:
    """Take the coordinator's place, with its kit, on the real engine."""
    net.coordinator.interrupt()
    net.coordinator.wait(20)
    kit = Kit.read(net.kit("coordinator"))
    hub = engines.hub(kit, lambda blob: b"")
    hub.start()
    try:
        until(lambda: {"north", "south"} <= set(hub.line.connected), 30, "nodes come back")
        yield kit, hub.line
    finally:
        hub.stop()


def asked(caller: Caller, site: str, body: bytes, seconds: float = 20.0) -> str:
    """Ask a site; return why it refused."""
    for _, reply in caller.exchange({site: body}, seconds):
        if isinstance(reply, Silence):
            return reply.text
        try:
            requests.answer(reply)
        except FedcohortError as error:
            return str(error)
        return f"it was answered: {reply[:80]!r}"
    return "nothing"


def what_a_coordinator_may_not_ask(scene: Scene, kit: Kit, line: Any) -> None:
    caller = Caller(kit, kit.trust(), line, cap=1 << 29)
    good = scene.signed(study="waits", quorum=0.6)
    assert "it was answered" in asked(caller, "south", requests.offer(good.to_bytes()))

    scene.tell("unapproved study", hostile=asked(caller, "north", request(good.hash)))

    sent, blob = caller.sealed("south", requests.ask("ping"))
    first, second = (dict(line.exchange({"south": blob}, 10))["south"] for _ in range(2))
    assert b"pong" in caller.opened("south", sent, first)
    scene.tell(
        "replayed message", coordinator=caller.unsealed_refusal("south", second, late=False).text
    )

    other = Caller(kit, kit.trust(), line, version="99.1.0")
    scene.tell("incompatible version", coordinator=asked(other, "south", b""))

    whole = encode({"0": np.zeros(8)}, {"kind": "call", "run": good.hash})
    (length,) = struct.unpack("<Q", whole[:8])
    head = whole[8 : 8 + length].replace(b"[8]", b"[9]")
    body = struct.pack("<Q", length) + head + whole[8 + length : -4]
    scene.tell(
        "malformed arrays",
        coordinator=asked(caller, "south", body + struct.pack("<I", zlib.crc32(body))),
    )

    large = bytes(LARGEST + 1)
    scene.tell("oversized message", coordinator=asked(caller, "south", large, 60))
    for case in ("replayed message", "incompatible version", "malformed arrays",
                 "oversized message"):  # fmt: skip
        scene.tell(case, node=scene.log("south"))
    scene.tell("unapproved study", node=scene.log("north"))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("refusals") / "n"
    logging.getLogger("fedcohort").addHandler(logging.NullHandler())
    with prepared(folder) as net:
        scene = Scene(net)
        net.start()
        steps: list[Callable[[Scene], None]] = [
            leads_who_ask_too_much, nodes_that_do_not_belong, a_node_with_an_expired_certificate,
            a_lead_that_cheats,
        ]  # fmt: skip
        for step in steps:
            step(scene)
        net.coordinator.says("the study is not the one that lead signed", 10)
        text = net.coordinator.text
        for case in ("unknown node", "wrong certificate", "expired certificate",
                     "edited study file"):  # fmt: skip
            scene.tell(case, coordinator=text)
        with a_hostile_coordinator(net) as (kit, line):
            what_a_coordinator_may_not_ask(scene, kit, line)
        yield scene
    assert net.survivors == []


@pytest.mark.parametrize("case", EXPECTED)
def test_each_is_refused_with_one_line_on_both_sides(scene, case):
    for side, pattern in EXPECTED[case]:
        lines = [x for x in scene.said[case][side].splitlines() if re.search(pattern, x)]
        assert len(lines) == 1, f"{side}: {pattern}\n{scene.said[case][side]}"
        assert "Traceback" not in scene.said[case][side]


def test_the_coordinator_alone_cannot_ask_what_is_not_approved(scene):
    assert re.search(r"site 'north': the study \S+ is not approved at this site",
                     scene.said["unapproved study"]["hostile"])  # fmt: skip


def test_nothing_was_computed(scene):
    for site in scene.net.names:
        lines = list(node_ledger.read(scene.net.kit(site) / "state" / "ledger.jsonl"))
        assert [x for x in lines if "step" in x] == []
        assert lines or site == "north"
