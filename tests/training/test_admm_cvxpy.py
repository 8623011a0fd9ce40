"""Consensus ADMM over sites ends at the optimum that CVXPY finds on the pooled table."""

from __future__ import annotations

import pytest

from training.admm_cases import PROBLEMS, gap, optimum, simulated, solve, split

SPLITS = ["balanced", "unbalanced", "class", "few"]
every_problem = pytest.mark.parametrize("name", PROBLEMS)


@every_problem
@pytest.mark.parametrize("sites", [1, 2, 5, 10])
@pytest.mark.parametrize("how", SPLITS)
def test_the_objective_is_cvxpys_to_a_millionth_after_at_most_fifty_rounds(name, sites, how):
    problem = PROBLEMS[name]
    table = simulated(problem.loss)
    found = solve(split(table, sites, how), problem)
    assert abs(gap(found, table, problem, optimum(name))) <= 1e-6
    assert found.rounds <= 50


@every_problem
def test_a_penalised_intercept_is_cvxpys_too(name):
    problem = PROBLEMS[name]
    table = simulated(problem.loss)
    found = solve(split(table, 3, "balanced"), problem, intercept=True)
    assert abs(gap(found, table, problem, optimum(name, True), True)) <= 1e-6
