"""A site's own coefficients tell no cell of few records, and no record that stands alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from algorithms.meta_cases import fit
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.protocol import NothingToLearn


def two_by_two(a, b, c, d):
    """Return a and b records of class 1 and 0 where x is 0; c and d where it is 1."""
    x = np.repeat([0.0, 0.0, 1.0, 1.0], [a, b, c, d])
    return LabelledTable(x[:, None], np.repeat([1.0, 0.0, 1.0, 0.0], [a, b, c, d]))


def cells_of(coefficients, errors):
    """Return the four counts that a site's two coefficients and their errors are of (Woolf)."""
    counts = []
    for log_odds, square in (
        (coefficients[0], errors[0] ** 2),
        (coefficients.sum(), errors[1] ** 2 - errors[0] ** 2),
    ):
        others = (1 + np.exp(-log_odds)) / square
        counts += [np.exp(log_odds) * others, others]
    return counts


def test_coefficients_of_a_two_by_two_table_are_its_counts_and_few_are_not_told():
    tables = [(9, 20, 6, 14), (12, 30, 8, 9), (8, 18, 2, 11)]
    ours = fit([two_by_two(*table) for table in tables], "binomial")
    for name, coefficients, errors in zip(ours.names, ours.estimates, ours.errors, strict=True):
        expected = tables[int(name.removeprefix("site-"))]
        assert_allclose(cells_of(coefficients, errors), expected, rtol=1e-6)
        assert min(expected) >= 5
    assert set(ours.left_out) == {"site-2"}
    assert "one value of 'x0'" in ours.left_out["site-2"]


def parts(seed=0, n=80, sites=3):
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(sites):
        x = np.column_stack([rng.normal(size=n), rng.random(n) < 0.5])
        tables.append(LabelledTable(x, x @ [0.5, 0.3] + rng.normal(size=n)))
    return tables


def left_out(first, family="gaussian", **settings):
    """Return why the first site is left out of a fit, and that no other is."""
    others = parts()[1:]
    if family == "binomial":
        others = [part._replace(y=(part.y > 0) * 1.0) for part in others]
    if first.weight is not None:
        others = [part._replace(weight=np.linspace(1, 2, len(part.y))) for part in others]
    ours = fit([first, *others], family, **settings)
    assert set(ours.left_out) == {"site-0"}
    return ours.left_out["site-0"]


def test_the_reference_cell_of_a_saturated_design_counts_too():
    x = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [30, 30, 30], axis=0)
    y = np.r_[np.arange(30) < 3, np.arange(30) < 12, np.arange(30) < 15] * 1.0
    assert "one value of 'x0', 'x1'" in left_out(LabelledTable(x, y), "binomial")


@pytest.mark.parametrize("weights", ["heavy", "light", "other"])
def test_weights_under_which_few_records_count_are_not_fitted(weights):
    first = parts()[0]
    n = len(first.y)
    columns = {
        "heavy": np.where(np.arange(n) < 3, 1e9, np.linspace(1, 2, n)),
        "light": np.where(np.arange(n) < 3, 1.0, 1e-9),
        "other": np.where(np.arange(n) < 3, 2.0, 1.0),
    }
    said = left_out(first._replace(weight=columns[weights]))
    assert "weights or offset let fewer than 5 records" in said


def test_a_record_far_from_all_others_is_not_fitted():
    first = parts()[0]
    x, y = first.x.copy(), first.y.copy()
    x[3, 0], y[3] = 1e8, 1e8
    assert "far from the others in 'x0'" in left_out(first._replace(x=x))
    assert "far from the others in the outcome" in left_out(first._replace(y=y))


def test_events_of_few_patients_with_a_level_are_not_told():
    rng = np.random.default_rng(1)
    tables = []
    for dead in (3, 8, 9):
        x = np.repeat([0.0, 1.0], 40)
        event = np.r_[np.arange(40) < 20, np.arange(40) < dead]
        tables.append(SurvivalTable(x[:, None], rng.permutation(80) + 1.0, event))
    ours = fit(tables, "cox")
    assert set(ours.left_out) == {"site-0"}
    with pytest.raises(NothingToLearn, match="fewer than 5 events have one value of 'x0'"):
        fit(tables[:2], "cox")


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_a_covariate_that_is_the_outcome_in_all_but_one_record_is_not_fitted(family):
    first = parts()[0]
    y = (first.y > 0) * 1.0 if family == "binomial" else first.y
    copy = y + 1.0 * (np.arange(len(y)) == 7)
    table = LabelledTable(np.column_stack([first.x[:, 0], copy]), y)
    assert "'x1' and the outcome: one is predicted by the others" in left_out(table, family)
