"""A hostile coordinator, honest nodes: masked sums in which one site would be alone.

Each test has a study that was approved and runs, on nodes that answer no sum unmasked; its
coordinator asks, between the honest calls, what once gave a single patient away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedcohort.network.coordinator.lead import Status
from fedcohort.protocol import FedcohortError, Refused, per_site
from fedcohort.runtime import coordinator
from network.hall import Hall
from network.parties import SITES

STRICT = {"secure_sum": '"required"', "secure_sum_sites": "3"}
ONE = {"final": True, "evaluate": {"test_fraction": 0.25, "repeats": 1}}
#: Deals by row of three sites, and whole ones.
ROWS = dict.fromkeys(SITES, -1)

REGRESSION = {
    "task": "regression",
    "data": {
        "source": "patients.csv", "dictionary": "dictionary.yaml", "outcome": {"y": "progrec"},
    },
}  # fmt: skip

Ask = Callable[..., Any]


def answers_to(
    folder: Any, monkeypatch: Any, study: dict[str, Any], asks: dict[str, list[dict[str, Any]]]
) -> dict[str, list[Any]]:
    """Run a study; after the first honest call of each step ask it again with other arguments.

    Return by step what came of each, a reply or an error.
    """
    told: dict[str, list[Any]] = {}
    honest = coordinator.Coordinator.sum

    def hostile(fed: Any, step: Any, /, **asked: Any) -> Any:
        found = honest(fed, step, **asked)
        if step.name in asks and step.name not in told:
            told[step.name] = []
            for change in asks[step.name]:
                try:
                    told[step.name].append(honest(fed, step, **{**asked, **change}))
                except FedcohortError as error:
                    told[step.name].append(error)
        return found

    monkeypatch.setattr(coordinator, "check_alike", lambda step, arguments: None)
    monkeypatch.setattr(coordinator.Coordinator, "sum", hostile)
    with Hall(folder, policy=dict.fromkeys(SITES, STRICT)) as hall:
        hall.start()
        office = hall.office()
        _, meta = office.insist("submit", offer=hall.offer(**ONE, **study).to_bytes().decode())
        hall.until(office, Status.of(meta), "done")
        assert not any("Traceback" in line for line in hall.said)
    return told


def refused(answers: list[Any], *codes: str) -> None:
    """Every one of the answers is a refusal in one line."""
    assert answers
    for answer in answers:
        assert isinstance(answer, Refused), answer
        assert answer.code in codes, answer
        assert "\n" not in str(answer)


def test_no_folds_are_found_in_which_a_site_is_alone_with_one_patient(tmp_path, monkeypatch):
    """Each of the site's rows in a fold of its own, the others in one: once at the 67th seed."""
    arms = [{"method": "lasso", "folds": "rows", "n_folds": 3, "scale": "none"}]
    alone = per_site({"north": ROWS, "south": dict.fromkeys(SITES, 0), "west": ROWS})
    whole = {"north": 0, "south": 1, "west": 1}
    asks = [
        *({"n_folds": 20, "seed": seed, "dealt": alone} for seed in (3, 66, 67)),
        {"n_folds": 20, "seed": 67}, {"seed": 67}, {"n_folds": 20}, {"n_folds": 1},
        {"dealt": whole}, {"dealt": alone}, {"dealt": {**ROWS, "south": 0}},
        {"dealt": {"north": -1, "south": -1}}, {"min_cell": 1},
        {"seed": per_site({"north": 67, "south": 3, "west": 3})},
    ]  # fmt: skip
    told = answers_to(tmp_path, monkeypatch, {**REGRESSION, "arms": arms}, {"fold_products": asks})
    refused(told["fold_products"], "beyond", "secure", "min_cell")


def test_no_likelihood_is_without_a_fold_that_the_study_has_not(tmp_path, monkeypatch):
    arms = [{"method": "cox", "penalty": "auto", "path": 3, "n_folds": 2, "scale": "none"}]
    without = per_site({"north": 0, "south": -1, "west": -1})
    asks = [
        {"folds": 500}, {"folds": 500, "without": 499}, {"without": 7}, {"without": without},
        {"dealt": {"north": 0, "south": 1, "west": 1}}, {"min_cell": 1},
        {"folds": per_site({"north": 500, "south": 2, "west": 2})},
    ]  # fmt: skip
    told = answers_to(
        tmp_path, monkeypatch, {"arms": arms}, {"fold_likelihood": asks, "fold_sizes": asks[:1]}
    )
    refused(told["fold_likelihood"], "beyond", "secure", "min_cell")
    refused(told["fold_sizes"], "beyond")


FAR = 10**12
THRESHOLDS = [
    per_site({"north": 5, "south": FAR, "west": FAR}), FAR, 6, 4, 5.0,
    per_site({"north": 5, "south": 5, "west": 6}),
]  # fmt: skip


def test_no_threshold_that_empties_the_other_sites_parts_is_taken(tmp_path, monkeypatch):
    """With 10¹² records as the least, two sites of three added nothing to the sum."""
    study = {**REGRESSION, "arms": [{"method": "mixed", "scale": "none"}]}
    asks = {step: [{"least": v} for v in THRESHOLDS] for step in ("totals", "products")}
    told = answers_to(tmp_path, monkeypatch, study, asks)
    assert set(told) == set(asks)
    for answers in told.values():
        refused(answers, "beyond", "secure")


def test_no_stratum_that_nobody_is_in_empties_the_other_sites_parts(tmp_path, monkeypatch):
    asks = [
        {"stratum": per_site({"north": -1, "south": 77, "west": 77})}, {"stratum": 77},
        {"stratum": 0}, {"stratum": np.int64(1)},
    ]  # fmt: skip
    told = answers_to(tmp_path, monkeypatch, {}, {"death_moments": asks})
    refused(told["death_moments"], "beyond", "secure")
