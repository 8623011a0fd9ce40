"""`cox` over one to eight sites gives the figures that other programs print for public tables."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from algorithms.cox_cases import fit, public, split
from fedcohort.metrics.survival.concordance import harrell, uno

SITES = [1, 2, 5, 8]
#: Six printed decimals.
PRINTED = {"rtol": 0, "atol": 6e-7}

# table, ties → coefficients, then log-likelihood and Harrell's C where known; computed with
# lifelines and scikit-survival
COEFFICIENTS = {
    ("rossi", "efron"): {
        "fin": -0.379422,
        "age": -0.057438,
        "race": 0.313900,
        "wexp": -0.149796,
        "mar": -0.433704,
        "paro": -0.084871,
        "prio": 0.091497,
    },
    ("rossi", "breslow"): {
        "fin": -0.379022,
        "age": -0.057246,
        "race": 0.314130,
        "wexp": -0.151115,
        "mar": -0.432783,
        "paro": -0.084983,
        "prio": 0.091112,
    },
    ("lung", "efron"): {"age": 0.011067, "sex": -0.552612, "ph.ecog": 0.463728},
    ("lung", "breslow"): {"age": 0.011041, "sex": -0.551890, "ph.ecog": 0.462947},
    ("veteran", "efron"): {"Karnofsky_score": -0.032815},
}
CONCORDANCE = {
    ("rossi", "efron"): 0.640329,
    ("rossi", "breslow"): 0.640423,
    ("veteran", "efron"): 0.7360,
    ("gbsg2", "efron"): 0.691851,
    ("whas500", "efron"): 0.784215,
}


def over_sites(name, n_sites, **settings):
    """Return a fit over rows dealt at random, its table and its log risks."""
    table, features = public(name)
    where = np.random.default_rng(n_sites).integers(0, n_sites, len(table.x))
    model = fit(split(table, where), features, **settings)
    return model, table, model.predict(table.x)


@pytest.mark.parametrize("n_sites", SITES)
@pytest.mark.parametrize(("name", "ties"), COEFFICIENTS)
def test_coefficients_are_those_published(name, ties, n_sites):
    model, *_ = over_sites(name, n_sites, ties=ties)
    found = dict(zip(model.features, model.coefficients, strict=True))
    for covariate, published in COEFFICIENTS[name, ties].items():
        assert_allclose(found[covariate], published, **PRINTED)


@pytest.mark.parametrize("n_sites", SITES)
def test_the_log_likelihood_of_rossi_is_the_one_published(n_sites):
    model, *_ = over_sites("rossi", n_sites)
    assert_allclose(model.log_likelihood, -658.747660, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_sites", SITES)
@pytest.mark.parametrize(("name", "ties"), CONCORDANCE)
def test_harrells_c_is_the_one_published(name, ties, n_sites):
    _, table, risk = over_sites(name, n_sites, ties=ties)
    found = harrell(risk, table.time, table.event)
    digits = 5e-5 if name == "veteran" else 6e-7
    assert_allclose(found, CONCORDANCE[name, ties], rtol=0, atol=digits)


def test_unos_c_of_gbsg2_up_to_the_ninth_decile_of_follow_up_is_the_one_published():
    _, table, risk = over_sites("gbsg2", 3)
    tau = float(np.quantile(table.time, 0.9))
    found = uno(table.time, table.event, table.time, table.event, risk, tau)
    assert_allclose(found, 0.673373, **PRINTED)


def test_rossi_stratified_by_race_is_the_one_published():
    table, features = public("rossi")
    race = features.index("race")
    rest = [f for f in features if f != "race"]
    parts = split(table, table.x[:, race])
    parts = [part._replace(x=np.delete(part.x, race, axis=1)) for part in parts]
    model = fit(parts, rest, baseline="stratified")
    assert_allclose(model.coefficients[rest.index("fin")], -0.378767, **PRINTED)
    assert_allclose(model.log_likelihood, -620.563609, rtol=0, atol=1e-6)
