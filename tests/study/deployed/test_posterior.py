"""How sure a posterior is, over a network: one sum gives what the pooled blind rows give."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss

from deployed_cases import judged
from fedcohort.study.judge.shown.posterior import posterior_rows
from fedcohort.study.run.engine import Problem

CASES = {
    "diabetes": ("regression", "bayes_linear"),
    "breast_cancer": ("classification", "bayes_logistic, prior_scale: 1"),
    "gbsg2": ("survival", "bayes_net, rounds: 2, internal_epochs: 1, samples: 2, hidden: [4]"),
}


@pytest.mark.parametrize("sample", CASES)
def test_the_sum_over_sites_gives_the_row_of_the_pooled_blind_rows(tmp_path, sample):
    task, method = CASES[sample]
    more = {"metrics": "[c_index]"} if task == "survival" else {}
    asked = tmp_path, sample, task, f"[{{method: {method}}}]", 3
    found, run, train, blind, terms = judged(*asked, **more)
    problem = Problem({"all": train}, terms.dictionary, terms.outcome, terms.plan.min_cell)
    ((row,), (want,)) = (r["posterior"] for r in (found.more, posterior_rows(run, problem, blind)))
    known = {k for k, v in want.items() if v is not None}
    assert {k for k, v in row.items() if v is not None} == known
    assert {k: row[k] for k in known} == pytest.approx({k: want[k] for k in known}, rel=1e-9)
    parts = {
        "diabetes": {"epistemic", "nlpd", "covered", "low", "high"},
        "breast_cancer": {"epistemic"},
        "gbsg2": {"nlpd"},
    }
    assert known == parts[sample] | {"n", "level"}


def test_the_log_loss_of_classes_is_the_negative_log_predictive_density(tmp_path):
    found, run, _, blind, _ = judged(
        tmp_path, "breast_cancer", "classification", "[{method: bayes_logistic}]", 4
    )
    p = run.model.predict(run.design.matrix(blind))
    y = blind["target"].astype(str) == "1"
    density = np.log(np.where(y, p, 1 - p))
    assert found.metrics["log_loss"] == pytest.approx(-density.mean())
    assert found.metrics["log_loss"] == pytest.approx(log_loss(y, p))
