"""Variational autoencoders of mixed tables: likelihoods by the dictionary, collapse, annealing."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from algorithms.autoencoder_cases import factors, fitted, holes, split
from fedcohort.models.objectives import Elbo
from fedcohort.models.vae import Vae
from fedcohort.models.variational import Posterior
from fedcohort.training.networks.collapse import caution, shares
from models.vae_cases import elbos, loaded, of, some_rows, some_theta

DICTIONARY = {
    "dose": {"type": "number", "range": [0.1, 60], "view": "blood"},
    "nodes": {"type": "integer", "range": [0, 40], "view": "blood"},
    "score": {"type": "integer", "view": "scan"},
    "sex": {"type": "binary", "view": "scan"},
    "grade": {"type": "category", "levels": ["I", "II", "III"], "view": "scan"},
    "level": {"type": "number", "view": "blood"},
}
GAPS = holes(factors(60)[0])
LEVELS = np.array(["I", "II", "III"])
SHORT = {"q": 2, "rounds": 11, "internal_epochs": 1, "learning_rate": 0.05}
LONG = {"q": 2, "rounds": 20, "internal_epochs": 15, "learning_rate": 0.05}


def mixed(n, seed=0, missing=0.15):
    """Return rows of one latent factor."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "dose": np.clip(np.exp(1 + 0.7 * z + 0.2 * rng.normal(size=n)), 0.1, 60),
            "nodes": np.clip(rng.poisson(np.exp(1 + 0.6 * z)), 0, 40).astype(float),
            "score": np.rint(3 * z + rng.normal(size=n)),
            "sex": (rng.random(n) < 1 / (1 + np.exp(-2 * z))).astype(float),
            "grade": LEVELS[np.digitize(z + 0.3 * rng.normal(size=n), [-0.5, 0.5])],
            "level": z + 0.3 * rng.normal(size=n),
        }
    )
    gone = rng.random(frame.shape) < missing
    gone[gone.all(axis=1), 0] = False
    return frame.mask(gone)


@pytest.fixture(scope="module", params=["vae", "mcvae"])
def fit(request):
    sites = {"a": mixed(150, 1), "b": mixed(90, 2)}
    return fc.fit(request.param, fc.simulate(sites, dictionary=DICTIONARY), **SHORT)


@pytest.fixture(scope="module")
def trained():
    sites = {"a": mixed(150, 1), "b": mixed(90, 2)}
    return fc.fit("vae", fc.simulate(sites, dictionary=DICTIONARY), **LONG)


def allowed(frame):
    """Claim that a table obeys the dictionary."""
    assert frame["dose"].between(0.1, 60).all()
    assert frame["nodes"].between(0, 40).all()
    for name in ("nodes", "score"):
        assert_allclose(frame[name], np.rint(frame[name]), atol=1e-6)
    assert {*frame["sex"]} <= {0.0, 1.0}
    assert {*frame["grade"]} <= {"I", "II", "III"}


def test_draws_obey_the_dictionary(fit):
    allowed(fit.parts.design.table(fit.model.sample(400, np.random.default_rng(0))))


def test_draws_of_a_trained_model_have_the_marginals(trained):
    """Over four other seeds means are 0.07 ± 0.07 standard deviations off, shares of levels 0.05 ±
    0.03, and that of sex 0.03 ± 0.01.
    """
    found = trained.parts.design.table(trained.model.sample(4000, np.random.default_rng(0)))
    truth = mixed(4000, 5, missing=0)
    assert abs(found["sex"].mean() - truth["sex"].mean()) < 0.1
    for name in ("nodes", "score", "level"):
        assert abs(found[name].mean() - truth[name].mean()) < 0.35 * truth[name].std()
    share = found["grade"].value_counts(normalize=True)
    there = truth["grade"].value_counts(normalize=True)
    assert_allclose(share[LEVELS], there[LEVELS], atol=0.15)


def test_filled_tables_obey_the_dictionary_and_keep_what_is_known(fit):
    holes = mixed(60, 7, missing=0.4)
    design, model = fit.parts.design, fit.model
    x = design.matrix(holes)
    for filled in (model.impute(x), model.impute_drawn(x, np.random.default_rng(0))):
        assert_array_equal(filled[~np.isnan(x)], x[~np.isnan(x)])
        allowed(design.table(filled))


def test_filling_beats_the_mean_and_the_commonest_level(trained):
    """Over four other seeds errors are 0.73 ± 0.06 (counts), 0.48 ± 0.13 and 0.48 ± 0.15 of those
    of the mean, and levels are right more often by 0.40 ± 0.09.
    """
    truth, design = mixed(400, 11, missing=0), trained.parts.design
    holes = truth.mask(np.random.default_rng(1).random(truth.shape) < 0.3)
    filled = design.table(trained.model.impute(design.matrix(holes)))
    for name in ("nodes", "score", "level"):
        gone = holes[name].isna()
        error = (filled[name] - truth[name])[gone].abs().mean()
        assert error < 0.95 * (holes[name].mean() - truth[name])[gone].abs().mean()
    gone = holes["grade"].isna()
    right = (filled["grade"] == truth["grade"])[gone].mean()
    assert right > (truth["grade"][gone] == holes["grade"].mode()[0]).mean() + 0.1


def test_filling_converges_with_counts_and_skewed_numbers(trained):
    """An encoder that saw a count itself would diverge: its mean is an exponential.

    How many passes it takes depends on the network: here all entries rest after 240.
    """
    x = trained.parts.design.matrix(mixed(200, 3, missing=0.5))
    few, many = (replace(trained.model, passes=n).impute(x) for n in (240, 480))
    assert_allclose(few, many, atol=1e-3)


def test_a_saved_model_draws_the_same(fit, tmp_path):
    fit.save(tmp_path / "m")
    there = fc.load(tmp_path / "m")
    a, b = (f.model.sample(5, np.random.default_rng(3)) for f in (fit, there))
    assert_array_equal(a, b)


def test_the_divergence_of_each_dimension_is_in_the_history_and_the_model(fit):
    history = fit.history
    assert history["kl_1"].notna().sum() == 2  # rounds 1 and 11
    kl = fit.model.kl
    rows = fit.parts.design.matrix(pd.concat([mixed(150, 1), mixed(90, 2)]))
    there = fit.model._of(rows, lambda net, x: net.divergences(x))
    assert_allclose(kl, there.mean(axis=0), rtol=1e-10)


def test_all_normal_is_the_network_without_heads():
    sites = {"a": mixed(60, 1), "b": mixed(50, 2)}
    fed = fc.simulate(sites, dictionary=DICTIONARY)
    normal = fc.fit("vae", fed, likelihoods="normal", **{**SHORT, "rounds": 2})
    assert '"heads"' not in normal.model.network
    assert normal.model.network == Vae(inputs=7, latent=2).spec


def test_a_kind_that_does_not_fit_is_refused():
    fed = fc.simulate({"a": mixed(60)}, dictionary=DICTIONARY)
    with pytest.raises(fc.FedcohortError, match="'sex' poisson, but the column is binary"):
        fc.fit("vae", fed, likelihoods=["sex=poisson"], **SHORT)


# collapse -----------------------------------------------------------------------------


def test_a_large_beta_collapses_the_posterior_and_free_bits_do_not():
    parts = split(GAPS, 2)
    long = {"rounds": 12, "internal_epochs": 10, "learning_rate": 0.1}
    collapsed = fitted("vae", parts, beta=100.0, **long)
    assert collapsed.kl is not None
    assert (collapsed.kl < 0.01).all()
    assert "2 of 2 latent dimensions hold nothing" in collapsed.cautions()[0]
    free = fitted("vae", parts, beta=100.0, free_bits=0.3, **long)
    assert free.kl is not None
    assert (free.kl > 0.05).all()
    assert not free.cautions()


def test_without_a_collapsed_dimension_there_is_no_caution():
    assert caution(np.array([0.5, 0.02])) == ()


@given(seed=st.integers(0, 2**16), free=st.floats(0.01, 3.0))
@settings(max_examples=10)
def test_free_bits_replace_smaller_divergences_by_their_limit(seed, free):
    spec = Vae(inputs=4, latent=3)
    net, x = loaded(spec, some_theta(spec, seed)), some_rows(8, 4, seed)
    kl = of(net, x, lambda m, rows: m.divergences(rows))[:-1].mean(axis=0)
    plain = elbos(net, x, 1.0, seed=3)
    found = of(net, x, lambda m, rows: m.elbo(rows, 1.0, 3, free))
    # On the seven rows with an entry: Σ_i max(λ, mean KL_i) in the place of Σ_i mean KL_i.
    lost = (np.maximum(free, kl) - kl).sum()
    assert_allclose((plain - found)[:-1].mean(), lost, rtol=1e-9, atol=1e-12)


def test_divergences_add_to_the_whole():
    rng = np.random.default_rng(0)
    one = Posterior(*torch.from_numpy(rng.normal(size=(2, 5, 3))))
    assert_array_equal(one.divergences().sum(dim=1), one.divergence())


def test_beta_rises_as_documented():
    linear, cycle = shares("linear", 4), shares("cyclical", 4)
    theta = np.zeros(1)
    assert [linear(theta)["share"] for _ in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert [cycle(theta)["share"] for _ in range(6)] == [0.5, 1.0, 1.0, 1.0, 0.5, 1.0]
    assert shares("none", 4)(theta) == {}
    assert Elbo(beta=2.0).annealed(0.5).beta == 1.0


def test_annealing_to_the_end_in_one_round_is_no_annealing():
    parts = split(GAPS, 2)
    plain = fitted("vae", parts).theta
    assert_array_equal(fitted("vae", parts, anneal="linear", anneal_rounds=1).theta, plain)
    assert (fitted("vae", parts, anneal="linear", anneal_rounds=3).theta != plain).any()
