"""The objective of a survival variational autoencoder against closed forms."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from fedcohort.data.tables import SurvivalTable
from fedcohort.models.likelihoods import (
    FAR,
    FLOOR,
    LEAST,
    piecewise_survival,
    piecewise_time,
    weibull_survival,
    weibull_time,
)
from fedcohort.models.network import initial
from fedcohort.models.objectives import InTimes, lifted, loss_of
from fedcohort.models.savae import Savae
from fedcohort.models.vae import Vae
from models.vae_cases import loaded, of, ppca, some_rows

P, Q, N = 5, 2, 40
SPEC = Savae(inputs=P, latent=Q)
PARTS = Savae(inputs=P, latent=Q, hidden=(4,), parts=3)


def times(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return rng.weibull(1.4, n) + 1e-3, rng.random(n) < 0.6


def theta_of(spec, seed=0):
    return initial(spec.spec, seed) + 0.2 * np.random.default_rng(seed).normal(size=spec.size)


def table(x, seed=0):
    t, e = times(len(x), seed)
    return SurvivalTable(x, t, e)


def value(spec, theta, x, *, weight=1.0, beta=1.0, seed=None, words="1.0"):
    loss = loss_of(f"{lifted(weight, beta, 0.0)} {words}", table(x))
    return float(of(loaded(spec, theta), x, lambda m, rows: loss(m, rows, seed)))


@pytest.mark.parametrize("spec", [SPEC, PARTS], ids=["weibull", "piecewise"])
def test_the_network_has_as_many_parameters_as_its_spec_says(spec):
    assert len(initial(spec.spec, 0)) == spec.size


def test_without_an_effect_of_z_the_objective_is_the_vae_plus_the_time_of_scipy():
    """With zero weights of the time's layer, ln p(t|z) is that of one Weibull distribution."""
    x, theta = some_rows(N, P, 1), theta_of(SPEC)
    m, shape, leaving = 0.3, 0.2, (0.5, -0.1)
    theta[-8:] = [*leaving, *np.zeros(2 * Q), m, shape]
    x[-1] = x[0]  # the vae leaves out a row without entries
    t, e = times()
    died = stats.weibull_min(np.exp(shape), scale=np.exp(m))
    left = stats.weibull_min(np.exp(leaving[1]), scale=np.exp(leaving[0]))
    here = np.where(e, died.logpdf(t), died.logsf(t))
    there = np.where(e, left.logsf(t), left.logpdf(t))
    vae = loaded(Vae(inputs=P, latent=Q), theta[: Vae(inputs=P, latent=Q).size])
    plain = of(vae, x, lambda module, rows: module.elbo(rows, 0.7, None)).mean()
    for w in (1.0, 4.0):
        expected = -(plain + w * here.mean() + there.mean())
        assert_allclose(value(SPEC, theta, x, weight=w, beta=0.7), expected, rtol=1e-10)


def test_with_a_linear_decoder_the_covariates_reach_the_likelihood_of_ppca():
    """The same decoder and exact encoder as PPCA: ELBO = likelihood, whatever the time's head."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, Q)) @ rng.normal(size=(Q, P)) + 0.5 * rng.normal(size=(300, P))
    w, mean, noise, likelihood = ppca(x, Q)
    covariance = np.linalg.inv(np.eye(Q) + w.T @ w / noise)
    there = covariance @ w.T / noise
    parts = [there, -there @ mean, np.zeros((Q, P)), np.log(np.diag(covariance)),
             np.full(P, np.log(noise - FLOOR)), w, mean]  # fmt: skip
    theta = np.concatenate([*(part.ravel() for part in parts), np.zeros(2 + 2 * Q + 2)])
    t, _ = times(300)
    # With m = κ = 0 times are exponential with mean 1: ln p = −t, for death and for censoring.
    expected = -(likelihood - 2 * t.sum()) / 300
    assert_allclose(value(SPEC, theta, x), expected, rtol=0.01)
    assert_allclose(value(SPEC, theta, x), expected, rtol=1e-9)


@pytest.mark.parametrize("spec", [SPEC, PARTS], ids=["weibull", "piecewise"])
def test_slopes_are_those_of_differences(spec):
    x, theta = some_rows(6, P, 2), theta_of(spec)
    words = "1.0" if spec is SPEC else "1.0 0.5 1.5"
    loss = loss_of(f"{lifted(2.0, 0.5, 0.0)} {words}", table(x))
    net = loaded(spec, theta)
    rows = torch.from_numpy(x)
    net.descend(lambda module: loss(module, rows, 7), 7)
    slope = net.gradient()
    for j in np.random.default_rng(0).choice(spec.size, 12, replace=False):
        step = np.zeros(spec.size)
        step[j] = 1e-6
        there = [value(spec, theta + s * step, x, weight=2.0, beta=0.5, seed=7, words=words)
                 for s in (1, -1)]  # fmt: skip
        assert_allclose(slope[j], (there[0] - there[1]) / 2e-6, rtol=1e-4, atol=1e-6)


def test_a_row_without_covariates_has_the_prior_and_still_a_time():
    x = np.full((3, P), np.nan)
    net = loaded(PARTS, theta_of(PARTS))
    kl = of(net, x, lambda module, rows: module.divergences(rows))
    assert_array_equal(kl, np.zeros((3, Q)))
    noise = torch.randn(8, Q, generator=torch.Generator().manual_seed(0)).double()
    z = of(net, x, lambda module, rows: module.draws(rows, noise))
    assert_allclose(z, np.broadcast_to(noise[:, None, :].numpy(), z.shape))


@given(seed=st.integers(0, 2**16))
def test_drawn_times_are_where_the_cumulative_hazard_is_the_draw(seed):
    rng = np.random.default_rng(seed)
    hazard = torch.from_numpy(rng.exponential(size=9))
    m, k = (torch.from_numpy(rng.normal(size=9)) for _ in range(2))
    logs = torch.from_numpy(rng.normal(size=(9, 4)))
    edges = torch.from_numpy(np.sort(rng.uniform(0.1, 3, 3)))
    for i, t in enumerate(weibull_time(hazard, m, k)):
        if not LEAST < t < 0.999 * np.exp(FAR):  # times are cut to these limits
            continue
        found = weibull_survival(t[None], m[i : i + 1], k[i : i + 1])[0, 0]
        assert_allclose(found, np.exp(-hazard[i].numpy()), rtol=1e-8)
    for i, t in enumerate(piecewise_time(hazard, logs, edges)):
        found = piecewise_survival(t[None], logs[i : i + 1], edges)[0, 0]
        assert_allclose(found, np.exp(-hazard[i].numpy()), rtol=1e-8)


def test_a_site_accepts_a_unit_and_ascending_edges_and_nothing_else():
    text = '{"loss": "savae 1.0 1.0 0.0", "network": "n"}'
    rule = InTimes(text, "savae 1.0 1.0 0.0", 3)

    def sent(words):
        return text.replace('0.0"', f'0.0 {words}"')

    assert rule(sent("365.0 0.5 1.5"))
    for wrong in ("365.0", "365.0 0.5", "365.0 1.5 0.5", "-1.0 0.5 1.5", "0.0 0.5 1.5",
                  "365.0 0.5 0.5", "365.0 0.5 nan", "x 0.5 1.5", "365.0 0.5 1.5 2.5"):  # fmt: skip
        assert not rule(sent(wrong))
    assert not rule(text)
    assert not rule(sent("365.0 0.5 1.5").replace('"n"', '"m"'))
