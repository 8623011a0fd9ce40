"""Sites that come and go: a method that needs them all ends as if nobody had been away."""

from __future__ import annotations

import pytest

from conformance.cases import KINDS, Case, cases, reference, run
from fedcohort.runtime.absences import Availability

#: Methods that go on with the sites that are there; of networks, all strategies but two do.
GO_ON = (
    "bayes_net", "classifier", "deep_clustering", "deepcox", "dgd", "mcvae", "personal",
    "regression_forest", "regressor", "savae", "vae", "weight_erosion",
)  # fmt: skip
CASES = [case for kind in KINDS for case in cases(kind)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_fit_ends_although_sites_are_away_from_half_the_rounds_the_same_where_it_waits(
    case: Case,
):
    law = Availability(away=0.5, always=("a",))
    found, whole = run(case, quorum=0.3, absent=law.of("abc", 0.3, 3)), reference(case)
    strategy = dict(case.settings).get("strategy")
    if case.entry.name not in GO_ON or strategy in ("exact", "ensemble"):
        assert found.ledger == whole.ledger  # every site is in every sum
    if found.ledger == whole.ledger:
        assert (found.arrays, found.history) == (whole.arrays, whole.history)
