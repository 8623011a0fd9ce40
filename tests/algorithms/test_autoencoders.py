"""Training over sites against plain loops, and what a fit computes."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import subspace_angles
from torch.nn import functional

import fedcohort as fc
from algorithms.autoencoder_cases import (
    METHODS,
    VIEWS,
    P,
    Q,
    config_of,
    factors,
    federation,
    fitted,
    holes,
    split,
    task_of,
    without,
)
from fedcohort.algorithms.autoencoders import LatentModel
from fedcohort.models.likelihoods import FLOOR
from fedcohort.models.network import initial
from fedcohort.models.variational import drawn
from fedcohort.protocol import SettingError
from fedcohort.protocol.step import entropy

X, LOADINGS = factors(60)
GAPS = holes(X)
both = pytest.mark.parametrize("method", METHODS)


def leaves(theta):
    """Return the parts of θ of a linear network: encoder, ln τ², s, decoder."""
    sizes = [(Q, P), (Q,), (Q, P), (Q,), (P,), (P, Q), (P,)]
    cuts = np.cumsum([int(np.prod(s)) for s in sizes])[:-1]
    return [
        torch.tensor(part.reshape(size), requires_grad=True)
        for part, size in zip(np.split(theta, cuts), sizes, strict=True)
    ]


def loss(parts, x, noise):
    """Return −ELBO summed over rows, by torch alone: Kingma and Welling (2014), eq. 10, with a
    variance for each column, over the entries that are known.
    """
    a, b, c, d, s, w, mean = parts
    known = ~torch.isnan(x)
    seen = torch.nan_to_num(x, 0.0)
    m, log = functional.linear(seen, a, b), functional.linear(seen, c, d)
    y = functional.linear(m + (log / 2).exp() * noise, w, mean)
    variance = (FLOOR + s.exp()).expand_as(y)
    terms = functional.gaussian_nll_loss(y, seen, variance, full=True, reduction="none", eps=1e-12)
    return (terms * known).sum() + 0.5 * (log.exp() + m**2 - 1 - log).sum()


def plainly(parts, rounds, epochs, rate, make, mu=0.0, seed=1, keep=False):
    """Return θ after rounds of training at each site and a mean by rows, by torch alone.

    keep : each site's optimiser goes on in the next round.
    """
    theta = initial(config_of("vae").plan(VIEWS).network, seed)
    held = {}
    n = sum(map(len, parts.values()))
    for r in range(rounds):
        mean = np.zeros_like(theta)
        for name in sorted(parts):
            x = torch.from_numpy(parts[name])
            own = leaves(theta)
            start = [part.detach().clone() for part in own]
            draws = np.random.default_rng(entropy(seed, name, 1 + r))
            optimiser = make(own, rate)
            if keep and name in held:
                optimiser.load_state_dict(held[name])
            for _ in range(epochs):
                noise = drawn(int(draws.integers(2**31)), (len(x), Q), x)
                optimiser.zero_grad()
                pull = sum(((p - q) ** 2).sum() for p, q in zip(own, start, strict=True))
                (loss(own, x, noise) / len(x) + 0.5 * mu * pull).backward()
                optimiser.step()
            held[name] = optimiser.state_dict()
            there = np.concatenate([part.detach().numpy().ravel() for part in own])
            mean += len(x) / n * there
        theta = mean
    return theta


def adam(parts, rate):
    return torch.optim.Adam(parts, lr=rate)


def sgd(parts, rate):
    return torch.optim.SGD(parts, lr=rate)


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize(
    ("settings", "make", "mu"),
    [
        ({}, adam, 0.0),
        ({"optimiser": "sgd"}, sgd, 0.0),
        ({"strategy": "fedprox", "mu": 0.5}, adam, 0.5),
        ({"optimiser_state": "kept"}, adam, 0.0),
    ],
    ids=["adam", "sgd", "fedprox", "kept"],
)
def test_rounds_over_sites_are_those_of_a_plain_loop(sites, settings, make, mu):
    parts = split(GAPS, sites)
    expected = plainly(parts, 3, 4, 0.01, make, mu, keep="optimiser_state" in settings)
    found = fitted("vae", parts, record_kl=0, **settings).theta
    assert_allclose(found, expected, rtol=0, atol=1e-10)
    assert np.abs(expected - plainly(parts, 0, 4, 0.01, make)).max() > 1e-2


def test_one_site_is_the_centralised_fit():
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(P)])
    alone = fc.fit("vae", fc.simulate({"pooled": frame}), q=Q, rounds=2)
    whole = fc.fit(
        "vae", fc.simulate({"a": frame[:20], "b": frame[20:]}), q=Q, rounds=2,
        strategy="centralised",
    )  # fmt: skip
    assert_allclose(whole.model.theta, alone.model.theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("hidden", [(), (4,)], ids=["linear", "deep"])
def test_with_one_view_mcvae_is_vae(hidden):
    task = task_of(views=("",) * P)
    parts = split(GAPS, 2)
    one, other = (fitted(m, parts, task=task, hidden=hidden, patience=2) for m in METHODS)
    assert_allclose(other.theta, one.theta, rtol=0, atol=1e-12)
    assert_allclose(other.transform(GAPS), one.transform(GAPS), rtol=0, atol=1e-12)
    assert one.cautions() == ()
    assert other.cautions() == ("the dictionary gives all columns one view: this is a plain vae",)
    assert fitted("mcvae", parts).cautions() == ()


@both
def test_rows_and_sites_without_an_entry_change_nothing(method):
    """A site's draws are its own, by its name and the call, so that others keep theirs.

    A product over other numbers of rows adds its 70 terms in another order: up to 70·2⁻⁵³ of their
    size apart, which 12 steps of 0.01 leave far below 1e-12. Rows of zeros are no rows without an
    entry, and move θ by 0.01 and more.
    """
    parts = split(GAPS, 2)
    empty = np.full((9, P), np.nan)
    more = {
        "site0": np.insert(parts["site0"], [0, 7], np.nan, axis=0),
        "site1": parts["site1"],
        "nobody": empty,
        "nothing": empty[:0],
    }
    for settings in ({}, {"aggregation": "norm_bound", "patience": 2, "validation_fraction": 0.01}):
        found, expected = (fitted(method, tables, **settings) for tables in (more, parts))
        assert_allclose(found.theta, expected.theta, rtol=0, atol=1e-12)
    zeros = {**parts, "site0": np.insert(parts["site0"], [0, 7], 0.0, axis=0)}
    assert np.abs(fitted(method, zeros).theta - fitted(method, parts).theta).max() > 0.01


@both
def test_the_loss_falls_and_the_best_of_held_out_rows_is_kept(method):
    fed = federation(split(GAPS, 2))
    METHODS[method].fit(fed, config_of(method, rounds=40, patience=40), task_of())
    history = pd.DataFrame(fed.history)
    assert history.negative_elbo.iloc[-1] < history.negative_elbo.iloc[0] - 1
    assert history.held_out_loss.iloc[-1] < history.held_out_loss.iloc[0] - 1
    short = fitted(method, split(GAPS, 2), rounds=400, internal_epochs=10, patience=3)
    assert short.rounds < 400


def conditional_means(x, covariance):
    """Return standardised rows with what is missing at its mean given what is known."""
    filled = x.copy()
    for row in filled:
        m = np.isnan(row)
        row[m] = covariance[np.ix_(m, ~m)] @ np.linalg.solve(covariance[np.ix_(~m, ~m)], row[~m])
    return filled


@pytest.mark.parametrize(("method", "most"), [("vae", 1.1), ("mcvae", 1.4)])
def test_a_fit_finds_the_space_that_rows_come_from_and_fills_what_is_missing(method, most):
    """Nearly as well as the covariance of the rows without holes does, which no fit has seen;
    mcvae, whose latent point is the mean of what each view says alone, less well.
    """
    x, loadings = factors(400, seed=2)
    gaps = holes(x, 0.2, seed=2)
    gone = np.isnan(gaps)
    model = fitted(method, split(gaps, 3), rounds=60, internal_epochs=10)
    decoded = model.reconstruct(x)
    space = np.linalg.svd(decoded - decoded.mean(axis=0))[2][:Q].T
    assert np.degrees(subspace_angles(space, loadings)).max() < 10
    error, best, mean = (
        np.abs(filled - x)[gone].mean()
        for filled in (model.impute(gaps), conditional_means(gaps, np.cov(x.T)), np.zeros(x.shape))
    )
    assert error < most * best < mean
    assert_array_equal(model.impute(gaps)[~gone], x[~gone])


def test_a_whole_view_is_filled_from_the_other_one():
    x, _ = factors(400, seed=3)
    parts = split(x, 3)
    parts["site2"] = without(parts["site2"], "scan")
    for method in METHODS:
        model = fitted(method, parts, rounds=60, internal_epochs=10)
        at = np.array(VIEWS) == "scan"
        error = np.abs(model.impute(without(x, "scan")) - x)[:, at].mean()
        assert error < 0.7 * np.abs(x[:, at]).mean()


@both
def test_samples_have_the_moments_of_the_model(method):
    model = fitted(method, {"a": X}, rounds=30)
    z = np.random.default_rng(0).standard_normal((200_000, Q))
    unit = np.concatenate([np.zeros((1, Q)), np.eye(Q)])
    y = model._of(unit, lambda net, points: net.decode(points))
    w = (y[1:] - y[0]).T
    drawn_rows = model.sample(len(z), np.random.default_rng(1))
    expected = w @ w.T + np.diag(model.variances)
    assert_allclose(np.cov(drawn_rows.T), expected, atol=0.03)
    assert_allclose(drawn_rows.mean(axis=0), y[0], atol=0.02)
    assert_array_equal(model.sample(3, np.random.default_rng(4)),
                       model.sample(3, np.random.default_rng(4)))  # fmt: skip


@both
def test_a_saved_model_computes_the_same_bytes(method):
    model = fitted(method, split(GAPS, 2), hidden=(3,), sees_mask=True)
    meta = json.loads(json.dumps(model.meta()))
    back = LatentModel.restore({k: a.copy() for k, a in model.arrays().items()}, meta)
    for what in ("transform", "reconstruct", "impute"):
        assert_array_equal(getattr(back, what)(GAPS), getattr(model, what)(GAPS))
        assert np.isfinite(getattr(model, what)(GAPS)).all()
    assert model.transform(GAPS).shape == (len(GAPS), Q)


def test_float32_is_near_float64():
    one, other = (fitted("mcvae", split(GAPS, 2), dtype=d) for d in ("float64", "float32"))
    assert_allclose(other.theta, one.theta, atol=1e-4)
    assert_allclose(other.transform(GAPS), one.transform(GAPS), atol=1e-3)


def test_the_latent_point_by_precisions_needs_no_other_training():
    mean, product = (fitted("mcvae", split(GAPS, 2), combine=c) for c in ("mean", "product"))
    assert_array_equal(mean.theta, product.theta)
    assert np.abs(mean.transform(GAPS) - product.transform(GAPS)).max() > 1e-6


def test_a_study_of_views_fits_where_a_site_lacks_one():
    frame = pd.DataFrame(X * 3 + 50, columns=[f"c{j}" for j in range(P)])
    views = {v: [f"c{j}" for j in range(P) if VIEWS[j] == v] for v in {*VIEWS}}
    tables = {"a": frame[:20], "b": frame[20:40], "c": frame[40:].drop(columns=views["scan"])}
    fed = fc.simulate(tables, views=views)
    for method in METHODS:
        fit = fc.fit(method, fed, q=Q, rounds=5)
        assert fit.model.views == tuple(
            next(v for v, own in views.items() if name in own) for name in fit.model.features
        )
        assert np.isfinite(fit.transform(tables["c"])).all()
        filled = fit.impute(tables["c"])
        assert filled.shape == (20, P)
        assert np.isfinite(filled.to_numpy()).all()


def test_a_private_fit_is_refused_by_name():
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(P)])
    known = {name: {"type": "number", "usual": [-3, 3]} for name in frame}
    fed = fc.simulate({"a": frame[:30], "b": frame[30:]}, dictionary=known)
    with pytest.raises(SettingError, match=r"'vae'"):
        fc.fit("vae", fed, dp={"epsilon": 3, "delta": 1e-5})


@both
def test_missing_values_come_to_a_method_as_they_are_unless_set_otherwise(method):
    assert METHODS[method].gaps
    assert METHODS[method].preprocess == {"impute": "none", "scale": "standard"}
