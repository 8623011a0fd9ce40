"""One study file, run over a network of processes and on one computer: the same models."""

from __future__ import annotations

import json

from fedcohort.report.comparison import Comparison
from network.parties import Parties

SITES = ("east", "north", "south", "west")
STUDY = {
    "study": "twin",
    "task": "survival",
    "seed": 5,
    "data": {
        "source": "sites/{site}/exports/patients.csv",
        "dictionary": "sites/east/dictionary.yaml",
        "outcome": {"time": "time", "event": "cens"},
    },
    "preprocess": {"impute": "median", "scale": "minmax"},
    "arms": [
        {"method": "cox", "scale": "none"},
        {"method": "deepcox", "strategy": "fedavg", "rounds": 3},
    ],
    "bounds": ["isolated"],
    "evaluate": {"repeats": 2, "draws": 10},
}


def test_the_same_file_gives_the_models_of_the_network_on_one_computer(tmp_path):
    with Parties(tmp_path / "n", SITES) as net:
        net.write("study.yaml", STUDY)
        net.start()
        net.run("study.yaml", "over")
        net.do("run", "study.yaml", "--out", "here", seconds=300)
        said = net.do("compare", "here", "over")
    assert net.survivors == []
    found = Comparison.of([net.folder / "here", net.folder / "over"])
    assert found.same_patients == (True, True)
    models = [x for x in found.files()["over"] if x.name.startswith("models/")]
    states = {x.name: x.state for x in models if not x.name.endswith("card.md")}
    assert len(states) == 4 and {*states.values()} == {"equal"}
    assert "equal: models/" in said and "net" not in [x.scenario for x in found.lines()]
    here, over = (
        json.loads((net.folder / name / "results.json").read_text()) for name in ("here", "over")
    )
    assert here["evaluate"]["test_mark"] == over["evaluate"]["test_mark"]
    for x in found.lines():
        if x.metric == "c_index" and x.arm != "isolated":
            assert x.against[1] is not None and abs(x.against[1].value) < 0.01
