"""A study of latent coordinates over a network, where a hospital lacks a view.

Its files are those of one process, and a steward reads what it is for.
"""

from __future__ import annotations

import json

import pandas as pd
import pytest

from fedcohort.network.coordinator import lead
from fedcohort.network.steward.details import as_lines
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.run.runner import run_over as run
from fedcohort.study.sites.sites import LocalSites
from network.hall import Hall
from network.parties import shares
from network.reference import differing, plain
from network.viewed import LACKED, name_views

SMALL = {"q": 2, "rounds": 1, "internal_epochs": 2}
STUDY = {
    "task": "latent",
    "arms": [
        {"method": "multiview_ppca", "q": 1, "rounds": 2, "draws": 10, "compare": True},
        {"method": "vae", **SMALL},
        {"method": "mcvae", **SMALL},
    ],
    "evaluate": {"repeats": 1},
}


@pytest.fixture
def hall(tmp_path):
    with Hall(tmp_path / "hall") as hall:
        name_views(hall.folder / "dictionary.yaml")
        place = hall.folder / "west" / "patients.csv"
        pd.read_csv(place).drop(columns=LACKED).to_csv(place, index=False)
        yield hall


def test_a_network_gives_the_files_of_one_process_where_a_hospital_lacks_a_view(hall, tmp_path):
    hall.start()
    office = hall.office()
    first = lead.submit(office, hall.offer(**STUDY), wait=None, timeout=5.0, resume=False)
    done = hall.until(office, first, "done", seconds=240)
    out = tmp_path / "out"
    (out / lead.WORK).mkdir(parents=True)
    lead.fetch(office, done.run, out)
    found = json.loads((out / "results.json").read_text())
    assert {a["status"] for a in found["arms"]} == {"done"}
    assert found["missing"] == []
    whole = [a["metrics"] for a in found["arms"] if a["site"] is None]
    assert all(v is not None for metrics in whole for v in metrics.values()), whole
    assert {r["arm"] for r in found["latent_errors"]} == {"multiview_ppca", "vae", "mcvae"}
    assert {r["site"] for r in found["latent_sites"]} == {"north", "south", "west"}
    terms = hall.terms(**STUDY)
    tables = shares(hall.names)
    tables["west"] = tables["west"].drop(columns=LACKED)
    run(terms, LocalSites(terms, [SiteTable.of(terms, *t) for t in tables.items()]),
        tmp_path / "here")  # fmt: skip
    assert not differing(plain(out), plain(tmp_path / "here"))


def test_a_steward_reads_what_the_coordinates_are_for_and_how_they_are_judged(hall):
    text = " ".join(" ".join(as_lines(hall.terms(**STUDY))).split())
    assert "a few numbers (latent coordinates) that stand for all columns of a patient" in text
    assert "'time' and 'cens' are left aside: no model sees them" in text
    assert "8 columns to describe a patient by" in text
    assert "They are of 3 views (patient, tumour and receptors)" in text
    assert "judged by Reconstruction error" in text
    own, sums = text.partition("SHOWN FOR YOUR SITE ALONE:")[2].split("Shown as a sum over all")
    assert "tell own errors" in own
    assert "sum rebuild errors" in sums
    assert "sum column errors" in sums
    assert "sum brier" not in text
    assert "rank" not in sums
