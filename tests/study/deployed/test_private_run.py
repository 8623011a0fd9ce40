"""A private study over sites in this process, a rehearsal: its noise is known, and it says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deployed_cases import results_of, run_local
from fedcohort.protocol import Refused
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.results import saved
from fedcohort.study.run import private

STUDY = """
study: small
data:
  source: nowhere.csv
  dictionary: columns.yaml
  outcome: {time: time, event: cens}
  sites: {column: hospital}
arms:
- {method: deepcox, strategy: STRATEGY, hidden: [], dp_rounds: 2}
bounds: []
evaluate: {test_fraction: 0.5, repeats: 1, metrics: [c_index]}
privacy: {min_cell: 5, dp: {epsilon: 3, delta: DELTA}}
"""
COLUMNS = {
    "x": {"type": "number", "usual": [-1, 1]},
    "time": {"type": "time", "usual": [0, 3]},
    "cens": {"type": "event"},
}
ROWS = 160


def terms_of(folder: Path, strategy: str = "exact", delta: str = "1e-4") -> Terms:
    (folder / "columns.yaml").write_text(json.dumps({"variables": COLUMNS}))
    text = STUDY.replace("STRATEGY", strategy).replace("DELTA", delta)
    (folder / "study.yaml").write_text(text)
    return Terms.of(folder / "study.yaml")


def tables_of(terms: Terms) -> list[SiteTable]:
    found: list[SiteTable] = []
    for i, name in enumerate("abc"):
        rng = np.random.default_rng(i)
        x, t = rng.uniform(-1, 1, ROWS), rng.exponential(1.0, ROWS) + 1e-3
        rows = pd.DataFrame({"x": x, "time": t, "cens": (rng.random(ROWS) < 0.7).astype(int)})
        found.append(SiteTable.of(terms, name, rows))
    return found


@pytest.mark.parametrize("strategy", ["exact", "fedavg", "sequential", "ensemble"])
def test_an_honest_coordinator_asks_what_the_sites_demand_and_the_model_tells_its_noise(
    tmp_path: Path, strategy: str
):
    terms = terms_of(tmp_path, strategy)
    run_local(terms, tables_of(terms), tmp_path / "out")
    found = results_of(tmp_path / "out")
    assert {row["status"] for row in found["arms"]} == {"done"}
    assert found["noise"] == "seed"
    (folder,) = (tmp_path / "out" / "models").iterdir()
    note = saved.read(folder).notes["privacy"]
    assert (note["epsilon"], note["noise"], note["note"]) == (3, "seed", private.NOISE["seed"])
    assert "Do not give this model away as private" in (folder / "card.md").read_text()


def test_delta_is_held_against_all_rows_of_a_site(tmp_path: Path):
    """160 rows, of which 80 are trained on: a δ of 1/100 is below 1/80 and above 1/160."""
    terms = terms_of(tmp_path, delta="0.01")
    host = open_session(terms, tables_of(terms)[0], "fit-r0000-a00", 5)
    with pytest.raises(Refused, match=r"delta 0\.01 is above one over its number of patients"):
        guard: Any = host._guard
        guard.check_table()
