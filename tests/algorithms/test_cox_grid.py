"""On the protected grid `cox` averages over the orders in which patients of an interval left."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from algorithms.cox_cases import Overheard, federation, fit, public, simulated, split
from fedcohort.algorithms.cox import METHOD, CoxModel
from fedcohort.protocol import SettingError

TABLES = ["rossi", "lung", "veteran", "gbsg2", "whas500"]


def scattered(table, n_sites, seed=0):
    return split(table, np.random.default_rng(seed).integers(0, n_sites, len(table.x)))


def heard(parts, features=None, **settings):
    """Return a fit on the protected grid, and the ends of its intervals."""
    fed = Overheard(federation(parts))
    model = fit([parts[0]], features, fed=fed, **{"time_grid": "protected"} | settings)
    return model, fed.seen["deaths"][0][0]["times"]


def by_definition(table, times, z):
    """Return −log-likelihood and slope at γ of standardised z, order by order in each interval.

    Each of the J who leave in an interval is at each place of their order for a J-th of all orders.
    """
    at = np.searchsorted(times, table.time)

    def value(gamma):
        r = np.exp(z @ gamma)
        found, slope = -(z[table.event] @ gamma).sum(), -z[table.event].sum(axis=0)
        for k in np.unique(at[table.event]):
            risk, here = at >= k, at == k
            each = (here & table.event).sum() / here.sum()
            for place in range(here.sum()):
                w = r * (risk - place / here.sum() * here)
                found += each * np.log(w.sum())
                slope += each * (w @ z) / w.sum()
        return found, slope

    return value


@pytest.mark.parametrize("grid", ["protected", 9])
@pytest.mark.parametrize("name", ["gbsg2", "lung"])
def test_on_a_grid_it_is_the_mean_over_the_orders_within_intervals(name, grid):
    table, features = public(name)
    rng = np.random.default_rng(0)
    table = table._replace(time=table.time + rng.uniform(0, 0.5, len(table.x)))  # no ties
    model, times = heard(scattered(table, 4), features, time_grid=grid)
    scale = table.x.std(axis=0)
    value = by_definition(table, times, (table.x - table.x.mean(axis=0)) / scale)
    best = minimize(value, np.zeros(len(scale)), jac=True, method="BFGS", options={"gtol": 1e-9})
    assert_allclose(model.coefficients * scale, best.x, atol=1e-6)
    here = -value(model.coefficients * scale)[0]
    assert_allclose(model.log_likelihood, here, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "errors"),
    [("rossi", 0.03), ("lung", 0.08), ("veteran", 0.4), ("gbsg2", 0.03), ("whas500", 0.3)],
)
def test_the_protected_grid_is_as_near_to_the_fit_at_exact_times_as_the_docs_say(name, errors):
    table, features = public(name)
    exact = fit(scattered(table, 4), features)
    protected = fit(scattered(table, 4), features, time_grid="protected")
    shift = (protected.coefficients - exact.coefficients) / exact.standard_errors
    assert np.abs(shift).max() < errors
    assert np.median(np.abs(shift)) < errors / 2
    assert_allclose(protected.standard_errors, exact.standard_errors, rtol=0.05)


@pytest.mark.parametrize("name", TABLES)
def test_the_error_of_the_grid_is_of_the_size_of_what_the_grid_does(name):
    table, features = public(name)
    exact = fit([table], features)
    found, told = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        blurred = table._replace(time=table.time + rng.uniform(0, 1e-3, len(table.x)))
        model = fit([blurred], features, time_grid="protected")
        found.append(model.coefficients - exact.coefficients)
        told.append([row["grid_error"] for row in model.summary()])
    off = np.sqrt(np.mean((np.array(found) / exact.standard_errors) ** 2))
    size = np.sqrt(np.mean(np.square(told)))
    assert size / 3 < max(off, 1e-3) < 3 * max(size, 1e-3)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("n_sites", [1, 3])
def test_times_that_are_few_are_a_grid_of_their_own_and_ties_count_as_at_exact_times(ties, n_sites):
    rng = np.random.default_rng(0)
    table = simulated(400, 2, 1)
    table = table._replace(time=np.repeat(np.arange(1.0, 5.0), 100), event=rng.random(400) < 0.5)
    model = fit(split(table, np.arange(400) % n_sites), time_grid="protected", ties=ties)
    exact = fit([table], ties=ties)
    assert_allclose(model.coefficients, exact.coefficients, rtol=1e-6)
    assert_allclose(model.standard_errors, exact.standard_errors, rtol=1e-6)
    assert (model.grid_error == 0).all()


def test_the_split_over_sites_changes_no_grid_error():
    table, features = public("gbsg2")
    one, many = (
        fit(parts, features, time_grid="protected") for parts in ([table], scattered(table, 6))
    )
    assert_allclose(many.grid_error, one.grid_error, rtol=1e-6)


def test_at_exact_times_and_stratified_there_is_no_grid_to_move_a_coefficient():
    table = simulated(150, 2, 1)
    for asked in ({"time_grid": "exact"}, {"baseline": "stratified", "time_grid": "protected"}):
        fed = federation([table])
        model = fit([table], fed=fed, **asked)
        assert "grid_error" not in model.summary()[0]
        assert "disorder" not in {json.loads(line)["step"] for line in fed.ledger.lines}


def test_one_call_is_made_for_the_error_of_the_grid_and_it_is_not_by_time():
    table = simulated(200, 3, 7)
    fed = federation(split(table, np.arange(200) % 4))
    fit([table], fed=fed, time_grid="protected")
    lines = [json.loads(line) for line in fed.ledger.lines]
    mine = [line for line in lines if line["step"] == "disorder"]
    assert len({line["call"] for line in mine}) == 1
    assert {line["verb"] for line in mine} == {"sum"}
    assert {k: f["shape"] for k, f in mine[0]["fields"].items()} == {"squares": [3]}


def test_the_error_of_the_grid_survives_saving():
    model = fit([simulated(200, 2, 3)], time_grid="protected")
    again = CoxModel.restore(model.arrays(), json.loads(json.dumps(model.meta())))
    assert pd.DataFrame(again.summary()).equals(pd.DataFrame(model.summary()))


@pytest.mark.parametrize("grid", ["protected", "exact", 8])
@pytest.mark.parametrize("name", ["whas500", "gbsg2", "veteran"])
def test_no_curve_goes_on_behind_the_last_follow_up(name, grid):
    table, features = public(name)
    model = fit(scattered(table, 4), features, time_grid=grid)
    end = model.known_until(table.x[:3])
    assert (end == model.baseline.times[-1]).all()
    beyond = (table.time > end[0]).sum()
    assert beyond >= 5 or (grid == "exact" and end[0] == table.time[table.event].max())
    late = model.predict_survival(table.x, np.array([end[0], 1e9]))
    assert_array_equal(late[:, 0], late[:, 1])
    assert {row["time"] for row in model.parameters(np.array([end[0], 1e9])) if "time" in row} == {
        end[0]
    }


def test_steps_of_the_baseline_are_of_as_many_deaths_as_a_cell():
    table, features = public("gbsg2")
    model = fit(scattered(table, 4), features, time_grid="protected")
    died = np.searchsorted(model.baseline.times, table.time[table.event])
    counts = np.bincount(died, minlength=len(model.baseline.times) + 1)
    assert counts[:-1].min() >= 5


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
def test_quantiles_of_m_is_the_number_m(baseline):
    table = simulated(300, 2, 4)
    a, b = (fit([table], time_grid=g, baseline=baseline) for g in (7, "quantiles(7)"))
    assert (a.coefficients == b.coefficients).all()
    assert (a.baseline.times == b.baseline.times).all()
    assert len(a.baseline.times) <= 7


@pytest.mark.parametrize("rule", ["quantiles", "quantiles()", "quantiles(0)", "quantiles(-3)", "9"])
def test_what_is_no_number_of_intervals_is_refused(rule):
    with pytest.raises(SettingError, match=r"as in 20 or 'quantiles\(20\)'"):
        METHOD.configure({"time_grid": rule})
