"""Models of a fit for all sites, over a network: each stays at its node."""

from __future__ import annotations

import json
import stat

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import fedcohort as fc
from fedcohort.apps import steward
from fedcohort.network.coordinator import lead
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.run.runner import run_over as run
from fedcohort.study.sites.sites import LocalSites
from network.hall import Hall
from network.parties import shares
from network.reference import differing, plain

STUDY = {
    "arms": [
        {"method": "personal", "user": "all", "way": "finetune", "rounds": 2},
    ],
    "bounds": ["isolated"], "final": True,
    "tune": {"arms": {"personal": {"own_epochs": [1, 4]}}},
    "evaluate": {"test_fraction": 0.25, "repeats": 2, "draws": 2, "metrics": ["c_index", "ibs"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Return a hall after its study, the lead's files, and the same in one process."""
    folder = tmp_path_factory.mktemp("kept")
    with Hall(folder / "hall") as hall:
        hall.start()
        office = hall.office()
        first = lead.submit(office, hall.offer(**STUDY), wait=None, timeout=5.0, resume=False)
        hall.until(office, first, "done", seconds=240)
        out = folder / "out"
        (out / lead.WORK).mkdir(parents=True)
        lead.fetch(office, first.run, out)
        terms = hall.terms(**STUDY)
        sites = LocalSites(terms, [SiteTable.of(terms, *t) for t in shares(hall.names).items()])
        run(terms, sites, folder / "here")
        yield hall, first.run, out, folder / "here", sites


def test_results_are_those_of_sites_in_one_process(done):
    _, _, out, here, _ = done
    assert not differing(plain(out), plain(here))
    found = json.loads((out / "results.json").read_text())
    assert {row["status"] for row in found["arms"]} == {"done"}
    whole = [row for row in found["arms"] if row["arm"] == "personal" and row["site"] is None]
    assert all(row["metrics"]["ibs"] is not None for row in whole)
    [tuned] = [row for row in found["tuning"] if row["arm"] == "personal"]
    assert all(one["score"] is not None for one in tuned["tried"])
    own = [row for row in found["arms"] if row["arm"] == "personal" and row["site"] == "west"]
    assert all(row["metrics"]["c_index_own"] > 0.5 for row in own)
    assert {r["site"] for r in found["by_centre"] if r["arm"] == "personal"} == {
        "north", "south", "west",
    }  # fmt: skip


def test_each_node_has_its_model_and_it_predicts_what_the_simulated_twin_does(done):
    hall, study, _, _, sites = done
    for name, table in shares(hall.names).items():
        place = hall.nodes[name].state / "models" / study[:12]
        kept = {p.parent.relative_to(place).as_posix() for p in place.rglob("model.json")}
        assert kept == {"personal", "personal/first-repeat"}
        for file in (place / "personal").glob("model.*"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for kept in ("personal", "personal/first-repeat"):
            here, twin = fc.load(place / kept), sites.models(name).find(kept)
            rows = table.drop(columns=["time", "cens"])
            assert here.model.user == name
            twin_says = fc.study.api.Fit("personal", {}, twin)
            assert_array_equal(here.predict(rows), twin_says.predict(rows))
            at = [300.0, 900.0]
            seen = here.predict_survival(rows, at, warn=False)
            assert_array_equal(seen, twin_says.predict_survival(rows, at, warn=False))
            assert np.isfinite(seen).any()
        notes = json.loads((place / "personal" / "model.json").read_text())["notes"]
        assert (notes["site"], notes["trained_on"]) == (name, "all rows")
        kit = hall.network.kit(name)
        listed = steward.studies(kit, hall.folder / name / "node.toml", study[:12], check=False)
        assert any(f"fedcohort predict {place / 'personal'} TABLE" in line for line in listed)


def test_what_left_a_node_is_sums_and_what_it_publishes_and_no_model_is_at_the_coordinator(done):
    hall, study, out, _, _ = done
    lines = [json.loads(x) for x in (out / "ledger.jsonl").read_text().splitlines()]
    mine = [x for x in lines if x["arm"] == "personal"]
    assert {x["step"] for x in mine if x["verb"] == "gather"} == {"tell_own"}
    assert {x["step"] for x in mine if x["phase"] == "fit"} >= {"keep_personal", "keep_baseline"}
    model = hall.nodes["south"].state / "models" / study[:12] / "personal" / "model.safetensors"
    theta = fc.load(model.parent).model.theta.tobytes()
    told = [p for root in (hall.home, out) for p in root.rglob("*") if p.is_file()]
    assert not [p for p in told if theta in p.read_bytes()]
    assert theta in model.read_bytes()
    with pytest.raises(fc.NotSupported, match="each site keeps its own model"):
        fc.load(out / "models" / "personal").predict(pd.DataFrame(shares(hall.names)["west"]))
