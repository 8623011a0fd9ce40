"""A coordinator and three nodes, each a process of its own, over mutual TLS: the local result.

What is compared with: the same study over sites in this process (`LocalSites`), every file of it;
and `fc.fit` on the rows that the sites drew for training, the arrays of each model. `make test` has
a small study over FLARE; the larger one, and one over Flower, are in `tests/slow.txt`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedcohort as fc
from command_line import without_times
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.pieces import FINAL, JUDGED
from fedcohort.study.run.runner import run_over as run_deployed
from fedcohort.study.sites.layout import seed_of
from fedcohort.study.sites.sites import LocalSites
from network.parties import SITES, Parties, shares
from network.reference import differing, plain
from network.reference import in_process as files_in_process

#: Quickstart's arms of `deepcox` (fedavg, exact) and `cox`, of fewer rounds.
STUDY = {
    "study": "end-to-end",
    "task": "survival",
    "seed": 2026,
    "data": {"source": "sample:gbsg2", "outcome": {"time": "time", "event": "cens"}},
    "preprocess": {"impute": "median", "scale": "minmax"},
    "arms": [
        {"method": "deepcox", "strategy": "fedavg", "rounds": 10, "internal_epochs": 5},
        {"method": "deepcox", "strategy": "exact", "rounds": 20},
        {"method": "cox", "scale": "none"},
    ],
    "bounds": {"isolated": {"rounds": 10}},
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}

#: A study of few calls, which no party needs torch for.
SMALL = {
    **STUDY,
    "arms": [{"method": "cox", "scale": "none"}],
    "bounds": [],
    "final": False,
    "evaluate": {"test_fraction": 0.25, "repeats": 1, "draws": 2, "metrics": ["c_index"]},
}


@pytest.mark.parametrize(("engine", "masked"), [("flare", True), ("flower", False)])
def test_a_network_leaves_the_files_of_the_local_run(tmp_path, engine, masked):
    """Over Flower a masked sum takes long, and is left to `make test-all`."""
    with Parties(tmp_path / "n", engine=engine) as net:
        study = net.write("study.yaml", {**SMALL, "privacy": {"secure_aggregation": masked}})
        net.start()
        net.run("study.yaml", "out", seconds=200)
    found, expected = plain(net.folder / "out"), files_in_process(study, tmp_path / "local")
    assert differing(found, expected) == []
    assert "models/cox/model.safetensors" in found
    lines = found["ledger.jsonl"].decode().splitlines()
    assert {json.loads(line)["site"] for line in lines} == set(SITES)
    assert [party.text for party in net.everyone if "Traceback" in party.text] == []
    assert net.survivors == []


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """Run the study over a network; return it, ended, with nothing left of it."""
    with Parties(tmp_path_factory.mktemp("network") / "n") as net:
        net.write("study.yaml", STUDY)
        net.start()
        net.run("study.yaml", "out", seconds=100)
    assert net.survivors == []
    return net


def in_process(folder: Path) -> tuple[Terms, list[SiteTable]]:
    """Return the study, and each site's table as the site itself makes it."""
    (folder / "study.yaml").write_text(json.dumps(STUDY))  # JSON is YAML
    terms = Terms.of(folder / "study.yaml")
    return terms, [SiteTable.of(terms, name, rows) for name, rows in shares(SITES).items()]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Return the folder of the same study over sites in this process."""
    folder = tmp_path_factory.mktemp("local")
    terms, tables = in_process(folder)
    run_deployed(terms, LocalSites(terms, tables), folder / "out")
    return folder / "out"


def test_models_have_the_arrays_of_the_local_run(net, local):
    found = {
        p.parent.name: load_file(p) for p in (net.folder / "out").glob("models/*/model.safetensors")
    }
    expected = {p.parent.name: load_file(p) for p in local.glob("models/*/model.safetensors")}
    assert len(expected) == 3
    assert found.keys() == expected.keys()
    for name, arrays in expected.items():
        assert found[name].keys() == arrays.keys()
        for key, a in arrays.items():
            np.testing.assert_array_equal(found[name][key], a, strict=True)


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("arm", STUDY["arms"], ids=lambda arm: arm.get("strategy", "cox"))
def test_models_have_the_arrays_of_a_fit_of_the_same_rows(net, tmp_path, arm, final):
    terms, tables = in_process(tmp_path)
    rows = {t.site: t.frame if final else t.halves(0).train for t in tables}
    fed = fc.simulate(
        rows, outcome=terms.outcome, dictionary=terms.dictionary_content,
        seed=seed_of(terms.plan, FINAL if final else 0),
    )  # fmt: skip
    settings = {**STUDY["preprocess"], **arm}
    fc.fit(settings.pop("method"), fed, **settings).save(tmp_path / "model")
    fitted = load_file(tmp_path / "model" / "model.safetensors")
    name = arm.get("strategy", "cox")
    folder = net.folder / "out" / "models" / name / ("" if final else JUDGED)
    found = load_file(folder / "model.safetensors")
    assert found.keys() == fitted.keys()
    for key, a in fitted.items():
        np.testing.assert_array_equal(found[key], a, strict=True)


def test_the_ledger_has_the_lines_of_the_local_run(net, local):
    lines = (net.folder / "out" / "ledger.jsonl").read_text().splitlines()
    found, expected = (without_times(f)["ledger.jsonl"] for f in (net.folder / "out", local))
    assert found == expected
    assert {json.loads(line)["site"] for line in lines} == set(SITES)


def test_every_other_file_is_that_of_the_local_run(net, local):
    found, expected = without_times(net.folder / "out"), without_times(local)
    for files in (found, expected):
        results = json.loads(files["results.json"])
        results.pop("command")
        files["results.json"] = json.dumps(results).encode()
    assert found.keys() == expected.keys()
    for name, body in expected.items():
        assert found[name] == body, name


def test_no_process_printed_a_traceback(net):
    for party in net.everyone:
        assert "Traceback" not in party.text, party.text
