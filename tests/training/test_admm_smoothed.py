"""What the smoothed start of hinge loss tells, and that it changes the way and not the end."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import NotConverged
from fedcohort.training.admm import program
from training.admm_cases import (
    PROBLEMS,
    Spy,
    clarabel,
    federation,
    gap,
    optimum,
    simulated,
    solve,
    split,
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("l2", [0.1, 0.01, 0.001])
def test_many_rows_weigh_in_every_curvature_and_none_is_of_a_point_seen_before(seed, l2):
    table = simulated("hinge", n=250, p=4, seed=seed)
    notes = []
    spy = Spy(federation(split(table, 3, "balanced")), "admm_smoothed", notes)
    solve([table], PROBLEMS["svm"]._replace(l2=l2), fed=spy)
    assert 4 <= len(notes) <= 16
    rows = [float(reply.weight) ** 2 / float(reply.squares) for _, reply in notes]
    assert min(rows) > 12
    slopes = np.diff([reply.slope for _, reply in notes], axis=0)
    rows = np.column_stack([np.ones(250), (table.x - table.x.mean(axis=0)) / table.x.std(axis=0)])
    along = (slopes / np.linalg.norm(slopes, axis=1)[:, None]) @ rows.T
    assert (np.abs(along) / np.linalg.norm(rows, axis=1)).max() < 1 - 1e-3
    for bend in np.diff([reply.curvature for _, reply in notes], axis=0):
        sizes = np.sort(np.abs(np.linalg.eigvalsh(bend)))  # of one row they would be 0, 0, …, 1
        assert sizes[-2] > 0.02 * sizes[-1]
    points = np.array([given_["z"] for given_, _ in notes])
    apart = np.linalg.norm(points[:, None] - points, axis=2)[np.triu_indices(len(points), 1)]
    assert apart.min() > 1e-4


def test_with_few_rows_no_curvature_is_asked_for():
    table = simulated("hinge", n=59, p=3)
    fed = federation(split(table, 2, "balanced"))
    solve([table], PROBLEMS["svm"], fed=fed)
    assert not any("curvature" in json.loads(line)["fields"] for line in fed.ledger.lines)


@pytest.mark.parametrize("calls", [(2,), (3, 9, 10), (30,)])
def test_a_site_away_ends_the_smoothing_and_only_the_way_changes(calls):
    table = simulated("hinge")
    parts = split(table, 4, "balanced")
    notes = []
    away = federation(
        parts, quorum=0.5, absent=lambda call, site: call in calls and site == "site-01"
    )
    found = solve(parts, PROBLEMS["svm"], fed=Spy(away, "admm_smoothed", notes))
    assert abs(gap(found, table, PROBLEMS["svm"], optimum("svm"))) <= 1e-6
    shares = [float(reply.share) for _, reply in notes]
    assert all(s == pytest.approx(1) for s in shares[:-1])
    assert (len(notes) == calls[0] - 1) == (calls[0] < 30) == (shares[-1] < 0.9)


def test_the_rounds_of_the_smoothed_start_are_counted_and_in_the_history():
    parts = split(simulated("hinge"), 3, "balanced")
    notes, fed = [], federation(parts)
    found = solve(parts, PROBLEMS["svm"], fed=Spy(fed, "admm_smoothed", notes))
    history = pd.DataFrame(fed.history)
    assert len(history) == found.rounds
    assert list(history["round"]) == list(range(found.rounds))
    assert history.tau.notna().sum() == len(notes) > 0
    with pytest.raises(NotConverged):
        solve(parts, PROBLEMS["svm"], max_rounds=found.rounds - 1)


def test_where_the_smoothed_start_does_not_help_admm_begins_anew_and_ends_at_the_optimum(
    monkeypatch,
):
    problem, table = PROBLEMS["svm"], simulated("hinge")
    parts = split(table, 3, "balanced")
    usual = solve(parts, problem)
    monkeypatch.setattr(program, "PATIENCE", 2)
    anew = solve(parts, problem)
    assert anew.rounds != usual.rounds
    assert abs(gap(anew, table, problem, optimum("svm"))) <= 1e-6


def test_with_as_many_covariates_as_rows_the_fit_ends_at_the_optimum():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 110))
    y = (x[:, 0] + 0.3 * rng.normal(size=100) > 0).astype(float)
    problem, table = PROBLEMS["svm"], LabelledTable(x, y)
    parts = split(table, 4, "balanced")
    zero = solve(parts, problem, smoothed=False)
    both = solve(parts, problem)
    assert abs(both.objective - zero.objective) <= 2e-6 * zero.objective


@pytest.mark.parametrize("sites", [5, 10])
def test_a_fit_whose_sites_move_on_by_equal_steps_ends_at_the_optimum(sites):
    """Without long steps neither had ended after 1000 rounds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 5))
    y = (x @ rng.normal(size=5) + rng.normal(size=150) > 0).astype(float)
    table, problem = LabelledTable(x, y), PROBLEMS["svm"]._replace(l2=0.01)
    order = np.array_split(np.random.default_rng(1).permutation(150), sites)
    parts = [LabelledTable(x[rows], y[rows]) for rows in order]
    found = solve(parts, problem)
    assert abs(gap(found, table, problem, clarabel(table, problem))) <= 1e-6
