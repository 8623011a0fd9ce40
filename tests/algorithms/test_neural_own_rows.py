"""Neural networks stop by the coordinator's rows, and halt by R of the sites' models there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import log_loss

from algorithms import neural_cases as cases
from fedcohort.protocol import OwnRows


def fitted(outcome, own, **settings):
    parts = cases.scattered(cases.table(outcome, n=240), 3)
    method, _ = cases.KINDS[outcome]
    fed = cases.federation(parts, method)
    task = cases.task_of(outcome, 4, seed=2, own=own)
    return method.fit(fed, method.configure(settings), task), fed


def test_a_classifier_keeps_the_round_with_the_best_log_loss_on_the_coordinators_rows():
    rows = cases.table("category", n=80, seed=9)
    own = OwnRows(cases.table("category", n=60, seed=8), rows)
    model, fed = fitted("category", own, rounds=25, patience=3, hidden=(8,), learning_rate=0.05)
    held = [row["held_out_loss"] for row in fed.history]
    assert log_loss(rows.y, model.predict(rows.x)) == pytest.approx(min(held), rel=1e-5)
    assert len(held) == int(np.argmin(held)) + 4 < 25
    assert "sum_losses" not in "".join(fed.ledger.lines)


def test_a_halted_regressor_has_the_sites_models_whose_losses_were_told():
    rows = cases.table("continuous", n=80, seed=9)
    settings = {"rounds": 6, "hidden": (4,), "monitor": "validation", "halt": True, "alarm": 1.001}
    model, fed = fitted("continuous", OwnRows(None, rows), learning_rate=0.1, **settings)
    last = fed.history[-1]
    assert last["halted"] == 1.0 and model.thetas.shape[0] == 3
    for site, theta in zip(fed.sites, model.thetas, strict=True):
        alone = replace(model, thetas=theta[None], weights=np.ones(1))
        loss = np.mean(((rows.y - alone.predict(rows.x)) / model.scale) ** 2) / 2
        assert loss == pytest.approx(last[f"validation_loss {site}"], rel=1e-5)
