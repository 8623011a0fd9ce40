"""One hospital of a small network, without an engine: kits, a table, a study, and its node."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from fedcohort.network.kits.make import Kit, Network
from fedcohort.network.node.node import Node
from fedcohort.network.study_offer import Offer, offer
from fedcohort.protocol import registry
from fedcohort.protocol.arguments import Parcel
from fedcohort.protocol.line import Silence
from fedcohort.protocol.wire import decode, encode
from fedcohort.runtime.calls import Request
from fedcohort.secure.trust import Trust
from fedcohort.study.file.terms import Terms

DICTIONARY = """
variables:
  age: {type: integer, unit: years, range: [18, 110], description: age at surgery}
  grade: {type: category, levels: [I, II, III]}
  marker: {type: number, unit: ng/ml}
  seen: {type: date}
  note: {type: text}
  pid: {type: text, identifier: true}
  time: {type: time, unit: days}
  cens: {type: event}
"""
STUDY = """
study: small
question: Does the marker tell who relapses?
data:
  source: nowhere.csv
  dictionary: dictionary.yaml
  outcome: {time: time, event: cens}
  sites: {column: hospital}
arms:
- {method: cox, title: Cox regression}
evaluate: {test_fraction: 0.25, repeats: 1, metrics: [c_index]}
privacy: {min_cell: 5}
"""
#: Methods that predict a value or a class, and no one site's alone.
OTHERS = tuple(
    name
    for name in registry.names()
    if {"regression", "classification"} & {*registry.find(name).tasks}
    and not {"user", "by"} & {f.name for f in registry.find(name).fields}
    and not registry.find(name).raw
)
POLICY = {
    "methods": ["cox", "deepcox"],
    "columns": "all",
    "min_cell": 5,
    "min_rows": 50,
    "max_parameters": 1_000_000,
    "secure_sum": "optional",
    "submitters": ["lead"],
    "approval": "automatic",
}


def patients(n: int = 160, seed: int = 0) -> pd.DataFrame:
    """Return a table that fits `DICTIONARY`."""
    rng = np.random.default_rng(seed)
    age = rng.integers(30, 90, n)
    time = np.ceil(rng.exponential(900 - 5 * age, n)) + 1
    return pd.DataFrame(
        {
            "age": age,
            "grade": rng.choice(["I", "II", "III"], n),
            "marker": np.round(rng.normal(2, 0.5, n), 3),
            "seen": [f"20{10 + i % 10}-0{1 + i % 9}-1{i % 9}" for i in range(n)],
            "note": [f"note {i}" for i in range(n)],
            "pid": [f"P{i:05d}" for i in range(n)],
            "time": time.astype(int),
            "cens": (rng.random(n) < 0.6).astype(int),
        }
    )


def other_task(method: str) -> tuple[str, str, str]:
    """Return a study by one method that predicts no survival, its dictionary, and its outcome."""
    if "regression" in registry.find(method).tasks:
        task, y, said = "regression", "marker, type: continuous", "'marker': a number"
    else:
        task, y, said = "classification", "cens, type: binary", "'cens': yes or no"
    study = (
        f"study: s\ntask: {task}\ndata: {{source: n.csv, dictionary: dictionary.yaml, "
        f"outcome: {{y: {y}}}, sites: {{column: h}}}}\narms:\n- {{method: {method}}}\n"
    )
    dictionary = DICTIONARY.replace("{type: event}", "{type: binary}").replace(
        "{type: time, unit: days}", "{type: number, unit: days}"
    )
    return study, dictionary, said


@dataclass
class Hospital:
    """A network with one site, `north`, and another, `south`, whose steward decides nothing here.

    Attributes
    ----------
    folder : of everything; `data/patients.csv` is the site's table.
    sent : all bytes that left the node, in order.
    """

    folder: Path
    policy: dict = field(default_factory=dict)
    data: dict = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)

    def __post_init__(self):
        if not (self.folder / "net").exists():
            Network.new(self.folder / "net", sites=["north", "south"], leads=["lead", "anna"])
        (self.folder / "data").mkdir(exist_ok=True)
        self.table = self.folder / "data" / "patients.csv"
        if not self.table.exists():
            patients().to_csv(self.table, index=False)
        (self.folder / "dictionary.yaml").write_text(DICTIONARY)
        self.kit = Kit.read(self.folder / "net" / "sites" / "north")
        self.steward = self.folder / "net" / "people" / "steward-north"
        self.trust = Trust(self.kit.root)
        coordinator = Kit.read(self.folder / "net" / "coordinator")
        self.coordinator = self.trust.verify(coordinator.certificate.read_bytes())
        self.write()
        self.node = Node(self.kit, self.config)

    @property
    def config(self) -> Path:
        return self.folder / "data" / "node.toml"

    @property
    def state(self) -> Path:
        return self.kit.folder / "state"

    @property
    def log(self) -> str:
        return (self.state / "log.txt").read_text()

    def write(self) -> None:
        """Write the node.toml."""
        policy = POLICY | self.policy
        budget = policy.pop("privacy_budget", None)
        data = {"source": "patients.csv"} | self.data
        lines = ["[data]", *(f"{k} = {json.dumps(v)}" for k, v in data.items())]
        lines += ["[policy]", *(f"{k} = {json.dumps(v)}" for k, v in policy.items())]
        if budget:
            lines += ["[policy.privacy_budget]", *(f"{k} = {v}" for k, v in budget.items())]
        self.config.write_text("\n".join(lines) + "\n")

    def restart(self) -> None:
        """End the node and start it again, with the node.toml as it is now."""
        self.node.close()
        self.write()
        self.node = Node(self.kit, self.config)

    # a lead and a coordinator --------------------------------------------------------------

    def terms(self, study: str = STUDY, dictionary: str = DICTIONARY) -> Terms:
        (self.folder / "dictionary.yaml").write_text(dictionary)
        (self.folder / "study.yaml").write_text(study)
        return Terms.of(self.folder / "study.yaml")

    def signed(self, terms: Terms | None = None, lead: str = "lead", **change) -> Offer:
        kit = Kit.read(self.folder / "net" / "people" / lead)
        return offer((terms or self.terms()).to_json(), kit, **change)

    def ask(self, body: bytes, peer=None) -> dict:
        """Return the meta of the node's answer."""
        reply = self.node.handle(peer or self.coordinator, body)
        self.sent.append(reply)
        return decode(reply)[1]

    def offered(self, made: Offer | bytes) -> dict:
        blob = made if isinstance(made, bytes) else made.to_bytes()
        return self.ask(encode({}, {"kind": "offer", "offer": blob.decode("latin-1")}))

    def approved(self, made: Offer | None = None) -> str:
        """Offer a study that is approved at once; return its hash."""
        made = made or self.signed()
        assert self.offered(made)["state"] == "approved", self.log
        return made.hash

    def call(self, run: str, **change) -> dict:
        return self.ask(request(run, **change))

    def exchange(self, requests, timeout):
        """Be a line to this one site."""
        for site, body in requests.items():
            if site != "north":
                yield site, Silence("not here")
                continue
            reply = self.node.handle(self.coordinator, body)
            self.sent.append(reply)
            yield site, reply

    sites = ("north",)
    connected = frozenset(["north"])


def request(run: str, session: str = "count", step: str | None = None, **change) -> bytes:
    """Return the bytes of one call; by default the first of a study that any site can answer."""
    from fedcohort.study.at_site.counting import STEPS

    first = STEPS[0]
    given = {
        "run": run, "session": session, "history": "h0", "call": 0, "base": None,
        "step": step or first.name, "verb": first.verb, "view": None,
        "parcel": Parcel.of({"min_cell": 5}),
    }  # fmt: skip
    return Request(**(given | change)).to_bytes()
