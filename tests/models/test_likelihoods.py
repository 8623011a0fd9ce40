"""Likelihoods of mixed tables against scipy.stats, their draws, and their gradients."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit, logit

from fedcohort.data.prepare import Head
from fedcohort.models.likelihoods import (
    FLOOR,
    Inputs,
    Likelihoods,
    piecewise_log_density,
    piecewise_survival,
    weibull_log_density,
    weibull_survival,
)

INF = np.inf
#: shift, scale of a positive column with mean 30 and standard deviation 12.
M, S = 30.0, 12.0
B = np.sqrt(np.log1p((S / M) ** 2))
A = np.log(M) - B**2 / 2
HEADS = (
    Head(name="grade", kind="ordinal", at=(0, 1, 2)),
    Head(name="dose", kind="lognormal", at=(3,), shift=M, scale=S, low=1.0, high=200.0),
    Head(name="sex", kind="bernoulli", at=(4,), low=0.0, high=1.0),
    Head(name="type", kind="categorical", at=(5, 6)),
    Head(name="visits", kind="poisson", at=(7,), shift=M, scale=S, low=0.0, whole=True),
    Head(name="level", kind="normal", at=(8,), shift=5.0, scale=2.0, low=-1.0, high=11.0),
    Head(name="nodes", kind="negbinomial", at=(9,), shift=M, scale=S, low=0.0, whole=True),
    Head(name="site", kind="categorical", at=(10,)),
    Head(name="score", kind="normal", at=(11,), shift=-3.0, scale=2.0, whole=True),
)
P = 12


def told(heads=HEADS, seed=0):
    """Return likelihoods whose own parameters are not 0."""
    found = Likelihoods(heads).double()
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=draws))
    return found


def rows(n, seed):
    """Return x (n, p) that a table of these columns can hold."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, P))
    for at in ((0, 1, 2), (5, 6), (10,)):
        level = rng.integers(len(at) + 1, size=n)
        x[:, at] = level[:, None] == np.arange(1, len(at) + 1)
    x[:, 3] = (rng.uniform(1, 80, n) - M) / S
    x[:, 4] = rng.integers(2, size=n)
    x[:, 7], x[:, 9] = ((rng.poisson(30, n) - M) / S for _ in range(2))
    x[:, 8] = rng.normal(size=n)
    x[:, 11] = (rng.integers(-9, 3, size=n) + 3.0) / 2.0
    return x


def expected(found, x, y):
    """Return log densities (n, H) of rows x (n, p) by scipy, from the header's formulas."""
    own = {k: found.kinds[k].own.detach().numpy() for k in ("normal", "lognormal", "negbinomial")}
    sd = {k: np.sqrt(FLOOR + np.exp(own[k])) for k in ("normal", "lognormal")}
    out = np.empty((len(x), len(HEADS)))
    shift, *gaps = found.steps[0].detach().numpy()
    tau = np.r_[0.0, np.cumsum(np.exp(gaps))] - 0.5 * len(gaps) + shift
    cells = np.diff(np.column_stack([np.zeros(len(x)), expit(tau - y[:, :1]), np.ones(len(x))]))
    level = (x[:, :3] @ [1, 2, 3]).astype(int)
    out[:, 0] = np.log(cells[np.arange(len(x)), level])
    dose = M + S * x[:, 3]
    law = stats.lognorm(s=B * sd["lognormal"][0], scale=np.exp(A + B * y[:, 1]))
    out[:, 1] = law.logpdf(dose) + np.log(S)
    out[:, 2] = stats.bernoulli(expit(y[:, 2])).logpmf(x[:, 4])
    logits = np.column_stack([np.zeros(len(x)), y[:, 3:5]])
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    out[:, 3] = np.log(shares[np.arange(len(x)), (x[:, 5:7] @ [1, 2]).astype(int)])
    out[:, 4] = stats.poisson(np.exp(A + B * y[:, 5])).logpmf(np.rint(M + S * x[:, 7]))
    out[:, 5] = stats.norm(y[:, 6], sd["normal"][0]).logpdf(x[:, 8])
    r, mean = np.exp(own["negbinomial"][0]), np.exp(A + B * y[:, 7])
    out[:, 6] = stats.nbinom(r, r / (r + mean)).logpmf(np.rint(M + S * x[:, 9]))
    out[:, 7] = stats.bernoulli(expit(y[:, 8])).logpmf(x[:, 10])
    out[:, 8] = stats.norm(y[:, 9], sd["normal"][1]).logpdf(x[:, 11])
    return out


def test_log_densities_are_those_of_scipy():
    found, x = told(), rows(50, 1)
    y = np.random.default_rng(2).normal(size=(50, found.outputs))
    assert found.outputs == P - 2
    known = torch.ones(50, P).bool()
    got = found.log_density(torch.from_numpy(x), known, torch.from_numpy(y))
    assert_allclose(got.detach(), expected(found, x, y), rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**16))
def test_missing_entries_contribute_exactly_0_and_no_gradient(seed):
    found, x = told(seed=seed), rows(6, seed)
    rng = np.random.default_rng(seed)
    gone = rng.random((6, len(HEADS))) < 0.5
    known = np.ones((6, P), bool)
    for h, head in enumerate(HEADS):
        known[np.ix_(gone[:, h], head.at)] = False
    held = torch.from_numpy(np.where(known, x, 0.0))
    y = torch.from_numpy(rng.normal(size=(3, 6, found.outputs))).requires_grad_()
    each = found.log_density(held, torch.from_numpy(known), y)
    whole = found.log_density(torch.from_numpy(x), torch.ones(6, P).bool(), y)
    assert_array_equal(each.detach(), np.where(gone, 0.0, whole.detach()))
    (slope,) = torch.autograd.grad(each.sum(), y)
    starts = np.r_[0, np.cumsum([len(h.at) if h.kind == "categorical" else 1 for h in HEADS])]
    for h in range(len(HEADS)):
        assert not slope[:, gone[:, h], starts[h] : starts[h + 1]].any()


@pytest.mark.parametrize("size", [1e-9, 1e3, 1e6, -1e6])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_densities_and_gradients_are_finite_at_extremes(size, dtype):
    found = told().to(dtype)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.fill_(size)
    x = torch.from_numpy(rows(4, 0)).to(dtype)
    x[0, [3, 7, 8, 9, 11]] = 1e4
    x[1, [3, 7, 8, 9, 11]] = -1e4
    y = torch.full((4, found.outputs), size, dtype=dtype, requires_grad=True)
    value = found.log_density(x, torch.ones(4, P).bool(), y)
    slopes = torch.autograd.grad(value.sum(), [y, *found.parameters()])
    assert value.isfinite().all()
    assert all(s.isfinite().all() for s in slopes)
    assert found.mean(y).isfinite().all()
    assert found.sample(y, 0).isfinite().all()


def test_the_slope_is_that_of_differences():
    found, x = told(), torch.from_numpy(rows(3, 4))
    y = torch.randn(3, found.outputs, generator=torch.Generator().manual_seed(0)).double()
    y.requires_grad_()
    assert torch.autograd.gradcheck(lambda t: found.log_density(x, x == x, t), y)


def test_means_are_those_of_draws():
    found = told((*[replace(h, low=-INF, high=INF) for h in HEADS],))
    y = 0.5 * torch.randn(1, found.outputs, generator=torch.Generator().manual_seed(3)).double()
    draws = found.sample(y.expand(40_000, -1), 5).numpy()
    mean, sd = draws.mean(axis=0), draws.std(axis=0)
    # Four standard errors of a mean of 40,000 draws; rounding moves none by as much.
    assert_array_equal(np.abs(mean - found.mean(y)[0].detach().numpy()) < 4 * sd / 200 + 1e-9, True)


@given(seed=st.integers(0, 2**16))
def test_draws_are_rows_that_the_dictionary_allows(seed):
    found = told(seed=seed)
    y = 3.0 * torch.randn(20, found.outputs, generator=torch.Generator().manual_seed(seed)).double()
    x = found.sample(y, seed).numpy()
    for head in HEADS:
        own = x[:, head.at]
        if head.kind in ("categorical", "ordinal"):
            assert {*np.unique(own)} <= {0.0, 1.0}
            assert (own.sum(axis=1) <= 1).all()
            continue
        value = head.shift + head.scale * own[:, 0]
        assert (value >= head.low - 1e-9).all()
        assert (value <= head.high + 1e-9).all()
        if head.whole or head.kind == "bernoulli":
            assert_allclose(value, np.rint(value), atol=1e-9)
    assert_array_equal(x, found.sample(y, seed))


@pytest.mark.parametrize(("scale", "shape"), [(2.0, 0.7), (5.0, 1.0), (0.5, 3.0)])
def test_a_weibull_time_is_that_of_scipy(scale, shape):
    law = stats.weibull_min(shape, scale=scale)
    t = np.array([0.01, 0.3, 1.0, 4.0])
    time, m, k = (torch.from_numpy(np.asarray(a)) for a in (t, np.log(scale), np.log(shape)))
    for event, there in ((1, law.logpdf(t)), (0, law.logsf(t))):
        got = weibull_log_density(time, torch.full((4,), event), m.expand(4), k.expand(4))
        assert_allclose(got, there, rtol=1e-10)
    assert_allclose(weibull_survival(time, m[None], k[None])[0], law.sf(t), rtol=1e-10)


def test_a_piecewise_time_has_the_density_that_its_survival_implies():
    logs = torch.tensor([[-1.0, 0.3, -2.0]]).double()
    edges = torch.tensor([1.0, 2.5]).double()

    def survival(t):
        return float(piecewise_survival(torch.tensor([t]).double(), logs, edges)[0, 0])

    def density(t, event=1):
        time = torch.tensor([t]).double()
        return float(piecewise_log_density(time, torch.tensor([event]), logs, edges).exp())

    for t in (0.0, 0.4, 1.0, 1.7, 2.5, 6.0):
        # S(t) = 1 − ∫ f, and by hand at 1.7: e^{−(e^{−1} + 0.7 e^{0.3})}.
        whole = sum(quad(density, a, b)[0] for a, b in ((0, min(t, 1)), (1, min(t, 2.5)), (2.5, t))
                    if b > a)  # fmt: skip
        assert survival(t) == pytest.approx(1 - whole, abs=1e-7)
        assert density(t, 0) == pytest.approx(survival(t), rel=1e-12)
    assert survival(1.7) == pytest.approx(np.exp(-(np.exp(-1) + 0.7 * np.exp(0.3))))


def test_times_have_finite_values_and_gradients_at_extremes():
    time = torch.tensor([0.0, 1e-9, 1.0, 1e9]).double()
    for size in (-1e4, 0.0, 1e4):
        y = torch.full((4, 3), size).double().requires_grad_()
        for event in (0, 1):
            seen = torch.full((4,), event)
            value = weibull_log_density(time, seen, y[:, 0], y[:, 1]).sum()
            value = value + piecewise_log_density(time, seen, y, torch.tensor([1.0, 2.0])).sum()
            (slope,) = torch.autograd.grad(value, y)
            assert value.isfinite()
            assert slope.isfinite().all()


@pytest.mark.parametrize("seed", range(3))
def test_the_weibull_head_alone_recovers_scale_and_shape_under_censoring_of_40_percent(seed):
    """Maximum likelihood of 2,000 times; the standard errors of ln scale and ln shape are 0.021
    and 0.024 here (from the Hessian), so three of them are below 0.08.
    """
    rng = np.random.default_rng(seed)
    scale, shape, n = 3.0, 1.5, 2000
    t = scale * rng.weibull(shape, n)
    c = rng.exponential(4.94, n)  # P(C < T) = 0.40 for these two
    time, event = torch.from_numpy(np.minimum(t, c)), torch.from_numpy(t <= c)
    assert 0.36 < 1 - float(event.double().mean()) < 0.44
    y = torch.zeros(2).double().requires_grad_()
    steps = torch.optim.LBFGS([y], max_iter=100, line_search_fn="strong_wolfe")

    def loss():
        steps.zero_grad()
        value = -weibull_log_density(time, event, y[0].expand(n), y[1].expand(n)).mean()
        value.backward()
        return value

    steps.step(loss)
    assert_allclose(y.detach(), np.log([scale, shape]), atol=0.08)


def test_an_encoder_sees_logarithms_of_skewed_numbers_and_counts():
    x = rows(30, 3)
    known = np.ones((30, P), bool)
    known[:5, [3, 7]] = False
    seen = Inputs(HEADS)(torch.from_numpy(np.where(known, x, 0.0)), torch.from_numpy(known)).numpy()
    others = [at for at in range(P) if at not in (3, 7, 9)]
    assert_array_equal(seen[:, others], x[:, others])
    assert_array_equal(seen[:5, [3, 7]], 0.0)
    assert_allclose(seen[5:, 3], (np.log(M + S * x[5:, 3]) - A) / B)
    for at in (7, 9):
        assert_allclose(seen[5:, at], (np.log(M + S * x[5:, at] + 0.5) - A) / B)


def test_an_ordinal_head_of_two_levels_is_a_bernoulli_one():
    found = told((Head(name="a", kind="ordinal", at=(0,)),))
    y = torch.tensor([[0.7]]).double()
    share = float(found.mean(y).detach()[0, 0])
    assert logit(share) == pytest.approx(0.7 - float(found.steps[0].detach()[0]))
