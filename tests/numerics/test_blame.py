"""Whom a flat likelihood is blamed on: those that have a part in its flat directions."""

from __future__ import annotations

import numpy as np

from fedcohort.numerics.blame import collinear, longest

NAMES = ("age", "bmi", "sum")


def test_covariates_of_a_flat_direction_are_collinear_and_a_lone_one_is_constant():
    """x_3 = x_1 + x_2 gives the eigenvector (1, 1, −1)/√3 of eigenvalue 0."""
    x = np.random.default_rng(0).normal(size=(50, 2))
    x = np.column_stack([x, x.sum(axis=1)])
    values, vectors = np.linalg.eigh(x.T @ x)
    np.testing.assert_allclose(np.abs(vectors[:, 0]), 3**-0.5)
    said = collinear(NAMES, vectors[:, :1], values[0] / values[-1])
    assert said.startswith("covariates 'age', 'bmi', 'sum' are collinear (eigenvalue ratio ")
    assert collinear(NAMES, np.eye(3)[:, 1:2], -3e-17, " at every site") == (
        "covariate 'bmi' is constant at every site (eigenvalue ratio 3e-17). Drop it, or refit "
        "with a ridge penalty (l2 > 0)."
    )


def test_the_longest_parts_of_a_step_are_named():
    assert longest(NAMES, np.array([0.1, -5.0, 2.0])) == "'bmi', 'sum'"


def test_what_helps_is_said_as_it_is_given_and_not_taken_for_the_name_of_a_penalty():
    said = collinear(NAMES, np.eye(3)[:, :1], 0.0, remedy="set shrinkage above 0")
    assert said.endswith("Drop it, or set shrinkage above 0.")
    assert collinear(NAMES, np.eye(3)[:, :1], 0.0, remedy="").endswith("Drop it.")
