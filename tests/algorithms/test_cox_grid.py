"""What a time grid does to the coefficients of `cox` is estimated from the sites' own risk sets."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from algorithms.cox_cases import federation, fit, public, simulated, split
from fedcohort.algorithms.cox import METHOD, CoxModel
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import SettingError

TABLES = ["lung", "veteran", "gbsg2", "whas500"]


def scattered(table, n_sites, seed):
    return split(table, np.random.default_rng(seed).integers(0, n_sites, len(table.x)))


def true_shift(table, features, model, **settings):
    """Return the coefficients on the grid less those at exact times, in standard errors."""
    exact = fit([table], features, **settings)
    return (model.coefficients - exact.coefficients) / model.standard_errors


def told(model):
    return np.array([row["grid_shift"] for row in model.summary()])


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("grid", ["protected", "quantiles(12)"])
@pytest.mark.parametrize("name", TABLES)
def test_from_one_site_the_shift_is_known_to_first_order(name, grid, ties):
    table, features = public(name)
    model = fit([table], features, time_grid=grid, ties=ties)
    shift = true_shift(table, features, model, ties=ties)
    assert np.abs(shift).max() > 0.05
    assert_allclose(told(model), shift, rtol=0, atol=0.25 * np.abs(shift).max())


@pytest.mark.parametrize("n_sites", [4, 8])
@pytest.mark.parametrize("name", ["gbsg2", "whas500", "veteran"])
def test_over_sites_the_estimate_is_nearer_than_to_say_nothing(name, n_sites):
    table, features = public(name)
    wrong, silent = [], []
    for seed in range(6):
        model = fit(scattered(table, n_sites, seed), features, time_grid="protected")
        shift = true_shift(table, features, model)
        wrong.append(np.mean((told(model) - shift) ** 2))
        silent.append(np.mean(shift**2))
    assert np.mean(wrong) < 0.95 * np.mean(silent)


def test_weights_and_an_offset_count_in_the_shift():
    table, features = public("whas500")
    rng = np.random.default_rng(0)
    offset = rng.normal(size=len(table.x))
    table = table._replace(x=np.c_[table.x, offset], weight=rng.uniform(0.5, 2.0, len(table.x)))
    names = (*features, "o")
    model = fit([table], names, time_grid=15, last_is_offset=True)
    shift = true_shift(table, names, model, last_is_offset=True)
    assert_allclose(told(model), shift, rtol=0, atol=0.25 * np.abs(shift).max())


def test_at_exact_times_and_stratified_there_is_no_grid_to_shift_a_coefficient():
    table = simulated(150, 2, 1)
    for asked in ({"time_grid": "exact"}, {"baseline": "stratified", "time_grid": "protected"}):
        fed = federation([table])
        model = fit([table], fed=fed, **asked)
        assert "grid_shift" not in model.summary()[0]
        assert "own_gap" not in {json.loads(line)["step"] for line in fed.ledger.lines}


def test_times_that_are_those_of_the_grid_shift_nothing():
    rng = np.random.default_rng(0)
    table = simulated(400, 2, 1)
    table = table._replace(time=np.repeat(np.arange(1.0, 5.0), 100), event=rng.random(400) < 0.5)
    fed = federation(split(table, np.arange(400) % 3))
    model = fit([table], fed=fed, time_grid="protected")
    assert (np.diff(np.searchsorted(model.baseline.times, [1.0, 2.0, 3.0, 4.0])) == 1).all()
    assert (model.grid_shift == 0).all()
    assert_allclose(model.coefficients, fit([table]).coefficients, rtol=1e-6)


def test_two_calls_are_made_for_it_and_none_is_by_time():
    table = simulated(200, 3, 7)
    fed = federation(split(table, np.arange(200) % 4))
    fit([table], fed=fed, time_grid="protected")
    lines = [json.loads(line) for line in fed.ledger.lines]
    asked = {
        name: [line for line in lines if line["step"] == name] for name in ("own_moved", "own_gap")
    }
    shapes = {"own_moved": {"rows": []}, "own_gap": {"score": [3]}}
    for name, mine in asked.items():
        assert len({line["call"] for line in mine}) == 1
        assert {line["verb"] for line in mine} == {"sum"}
        assert {k: f["shape"] for k, f in mine[0]["fields"].items()} == shapes[name]


def test_the_shift_survives_saving():
    model = fit([simulated(200, 2, 3)], time_grid="protected")
    again = CoxModel.restore(model.arrays(), json.loads(json.dumps(model.meta())))
    assert pd.DataFrame(again.summary()).equals(pd.DataFrame(model.summary()))


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


def test_of_a_grid_that_moves_fewer_patients_than_a_cell_no_shift_is_asked_for():
    # two times of death at each site, both its own; three censored records wait for company
    rng = np.random.default_rng(1)
    n = 60
    time = np.r_[np.full(30, 10.0), np.full(30, 20.0)]
    event = np.ones(n, bool)
    event[[0, 1, 2]] = False  # leave at 10
    event[30:40] = False  # leave at 20, where they are enough
    table = SurvivalTable(rng.normal(size=(n, 3)), time, event)
    fed = federation(split(table, np.arange(n) % 2))
    model = fit([table], fed=fed, time_grid="protected")
    asked = [json.loads(line) for line in fed.ledger.lines]
    assert "own_gap" not in {line["step"] for line in asked}
    assert np.isnan(model.grid_shift).all()
    assert np.isnan([row["grid_shift"] for row in model.summary()]).all()
