"""Over a network, follow-up in months at one site stops a study before a fit, unless accepted."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from fedcohort.network.coordinator.lead import Status
from network.hall import Hall

#: Steps that a site answers for counts and Table 1, before any fit.
DESCRIBED = {"tell_counts", "tell_cells", "sum_hidden", "describe_columns"}


def steps(hall: Hall, site: str) -> set[str]:
    """Return the steps that a site has answered."""
    lines = (hall.kit(site).folder / "state" / "ledger.jsonl").read_text().splitlines()
    return {step for line in lines if (step := json.loads(line).get("step"))}


def test_months_at_one_site_stop_a_study_before_a_fit_and_an_accepted_column_does_not(tmp_path):
    with Hall(tmp_path / "hall") as hall:
        path = hall.folder / "south" / "patients.csv"
        table = pd.read_csv(path)
        table["time"] = np.ceil(table["time"] / 30.4375).astype(int)
        table.to_csv(path, index=False)
        hall.start()
        office = hall.office()
        _, meta = office.insist("submit", offer=hall.offer().to_bytes().decode())
        ended = hall.until(office, Status.of(meta), "failed")
        reason = ended.reason
        assert ended.final  # --resume would read the same answers again
        assert "column 'time' at site 'south' looks like months where the others have" in reason
        assert "Nothing was fitted. Let the site convert it" in reason
        assert "units: [time]" in reason
        assert steps(hall, "south") <= DESCRIBED
        accepted = hall.offer(units=["time"])
        _, meta = office.insist("submit", offer=accepted.to_bytes().decode())
        hall.until(office, Status.of(meta), "done")
        (out,) = (hall.home / "runs").glob("*/out/results.json")
        (told,) = json.loads(out.read_text())["data"]["units"]
        assert told.startswith("column 'time' at site 'south' looks like months")
        assert steps(hall, "south") > DESCRIBED
