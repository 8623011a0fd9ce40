"""The accountant against published vectors, closed forms, an integral, and its own laws."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from accountant_vectors import UPPER, VECTORS
from fedcohort.privacy.accounting import calibrate, delta, epsilon, gaussian_sigma
from fedcohort.protocol.errors import SettingError
from fedcohort.protocol.private import Dp, Release

SEEN = {"noise": 1.3, "count": 3600, "sampling": 250 / 60000}


def release(**fields):
    return Release(**{"step": "s", "noise": 1.0, **fields})


def exact_delta(eps, sigma):
    """Balle & Wang (2018), theorem 8."""
    half = 1 / (2 * sigma)
    return norm.cdf(half - eps * sigma) - math.exp(eps) * norm.cdf(-half - eps * sigma)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v.source}-{v.what}-{v.settings}")
def test_accountant_gives_the_published_value(vector):
    assert vector.measured() == pytest.approx(vector.expected, rel=1e-3)


def test_there_are_forty_vectors():
    assert len(VECTORS) >= 40


@pytest.mark.parametrize("vector", UPPER, ids=lambda v: str(v.settings))
def test_epsilon_lies_in_what_the_prv_accountant_leaves_open(vector):
    assert vector.expected - 0.02 < vector.measured() < vector.expected


def test_the_reference_setting_costs_what_the_scorecard_says():
    assert epsilon([release(**SEEN)], 1e-5, "rdp") == pytest.approx(0.942200, abs=1e-6)
    assert epsilon([release(**SEEN)], 1e-5) == pytest.approx(0.853030, abs=1e-6)
    assert epsilon([release()], 1e-5) == pytest.approx(4.377178, abs=1e-6)


@given(st.floats(0.8, 30), st.floats(0.01, 5))
def test_delta_of_one_gaussian_is_the_closed_form(sigma, eps):
    assert delta([release(noise=sigma)], eps) == pytest.approx(exact_delta(eps, sigma), abs=1e-7)


@pytest.mark.parametrize(("sigma", "q", "eps"), [(1.0, 0.1, 0.5), (0.7, 0.3, 1.0), (3.0, 0.5, 0.1)])
def test_delta_of_one_sampled_gaussian_is_the_integral(sigma, q, eps):
    def mixed(x):
        return (1 - q) * norm.pdf(x, 0, sigma) + q * norm.pdf(x, 1, sigma)

    def excess(over, under):
        peak = quad(
            lambda x: max(0.0, over(x) - math.exp(eps) * under(x)),
            -12 * sigma,
            12 * sigma + 1,
            limit=2000,
            points=[k * sigma / 2 for k in range(-10, 12)],
        )
        return peak[0]

    def plain(x):
        return norm.pdf(x, 0, sigma)

    expected = max(excess(mixed, plain), excess(plain, mixed))
    assert delta([release(noise=sigma, sampling=q)], eps) == pytest.approx(expected, rel=1e-4)


@given(st.lists(st.floats(2, 20), min_size=1, max_size=5), st.floats(0.05, 3))
def test_gaussian_releases_compose_to_one(noises, eps):
    together = sum(z**-2 for z in noises) ** -0.5
    several = [release(step=str(i), noise=z) for i, z in enumerate(noises)]
    assert delta(several, eps) == pytest.approx(exact_delta(eps, together), abs=1e-6)


@given(st.floats(0.2, 10), st.floats(0, 4))
def test_laplace_noise_has_the_delta_of_its_closed_form(z, eps):
    expected = max(0.0, 1 - math.exp((eps - 1 / z) / 2))
    measured = delta([release(noise=z, mechanism="laplace")], eps)
    assert measured == pytest.approx(expected, abs=1e-4)


def test_laplace_noise_alone_never_costs_more_than_pure_privacy():
    ten = release(mechanism="laplace", noise=10.0, count=10)
    assert epsilon([ten], 1e-9) <= 1.0 + 1e-6
    assert epsilon([ten], 1e-3) < 0.95


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_epsilon_falls_with_noise_and_grows_with_count_and_sampling(accountant):
    def eps(**fields):
        base = {"noise": 1.5, "count": 200, "sampling": 0.05}
        return epsilon([release(**{**base, **fields})], 1e-5, accountant)

    for values, key, sign in (
        ((0.8, 1.0, 1.5, 3.0), "noise", -1),
        ((1, 10, 200, 1000), "count", 1),
        ((0.01, 0.05, 0.2, 0.99, 1.0), "sampling", 1),
    ):
        found = [eps(**{key: value}) for value in values]
        assert all(sign * (b - a) > 0 for a, b in pairwise(found)), (key, found)


def test_sampling_lowers_epsilon_only_below_one():
    assert epsilon([release(sampling=1.0)], 1e-5) == epsilon([release()], 1e-5)
    assert epsilon([release(sampling=0.5)], 1e-5) < epsilon([release()], 1e-5)
    assert epsilon([release(sampling=0.999999)], 1e-5) == pytest.approx(
        epsilon([release()], 1e-5), rel=1e-3
    )


@pytest.mark.parametrize("setting", [SEEN, {"noise": 2.0, "count": 50}, {"sampling": 0.3}])
def test_pld_is_never_above_rdp(setting):
    assert epsilon([release(**setting)], 1e-5) <= epsilon([release(**setting)], 1e-5, "rdp")


def test_order_of_releases_changes_nothing():
    releases = [
        release(step="a", noise=2.0, count=3),
        release(step="b", noise=1.5, count=40, sampling=0.1),
        release(step="c", noise=4.0, mechanism="laplace"),
        release(step="d", noise=3.0),
    ]
    assert len({epsilon(order, 1e-5) for order in permutations(releases)}) == 1


def test_a_count_is_that_many_releases():
    one_by_one = [release(step=str(i), noise=5.0, sampling=0.5) for i in range(7)]
    assert epsilon(one_by_one, 1e-5) == epsilon([release(noise=5.0, sampling=0.5, count=7)], 1e-5)


def test_many_small_releases_cost_what_their_gaussian_limit_does():
    # Dong, Roth & Su (2022), corollary 4: μ = q √n √(e^(1/z²) − 1). On a grid of 1e-4 the
    # rounding of a million small losses would add 30 % to the first.
    for q, n, z in ((1e-4, 10**6, 2.0), (2e-4, 10**5, 5.0)):
        mu = q * math.sqrt(n) * math.sqrt(math.expm1(z**-2))
        limit = epsilon([release(noise=1 / mu)], 1e-5)
        found = epsilon([release(noise=z, count=n, sampling=q)], 1e-5)
        assert found == pytest.approx(limit, rel=0.01)


def test_nothing_released_costs_nothing():
    assert epsilon([], 1e-5) == 0 == delta([], 1.0)
    assert epsilon([release(count=0)], 1e-5) == 0


@pytest.mark.parametrize("eps", [0.05, 1.0, 8.0])
@pytest.mark.parametrize(
    "setting",
    [
        {"count": 1},
        {"count": 30},
        {"count": 500, "sampling": 0.02},
        {"count": 4, "mechanism": "laplace"},
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_calibrate_is_the_inverse_of_epsilon(eps, setting):
    def make(z):
        return [release(**{**setting, "noise": z})]

    z = calibrate(make, Dp(epsilon=eps))
    assert epsilon(make(z), 1e-5) <= eps
    assert epsilon(make(z / 1.0005), 1e-5) > eps


def test_calibrate_counts_all_releases_of_a_fit():
    def make(z):
        return [release(step="scale", noise=z), release(noise=z, count=100, sampling=0.2)]

    z = calibrate(make, Dp(epsilon=3))
    assert epsilon(make(z), 1e-5) == pytest.approx(3, rel=1e-3)
    assert epsilon(make(z)[1:], 1e-5) < 3


def test_calibrate_of_one_gaussian_is_the_analytic_sigma():
    for eps, d in ((0.1, 1e-5), (1.0, 1e-6), (4.0, 1e-3)):
        z = calibrate(lambda z: [release(noise=z)], Dp(epsilon=eps, delta=d))
        assert z == pytest.approx(gaussian_sigma(eps, d), rel=1e-4)


def test_calibrate_gives_no_less_than_a_tenth():
    assert calibrate(lambda z: [release(noise=z)], Dp(epsilon=900)) == 0.1


def test_an_epsilon_that_cannot_be_met_is_refused_in_one_line():
    with pytest.raises(
        SettingError, match=r"epsilon 0\.001 .* cannot be met: .* fewer rounds"
    ) as e:
        calibrate(lambda z: [release(noise=z, count=10**13)], Dp(epsilon=1e-3))
    assert "\n" not in str(e.value)


@given(st.floats(0.02, 10), st.floats(1e-9, 0.1))
def test_analytic_sigma_spends_all_of_delta_and_zhao_more_than_enough(eps, d):
    sigma = gaussian_sigma(eps, d)
    assert exact_delta(eps, sigma) == pytest.approx(d, rel=1e-6)
    assert gaussian_sigma(eps, d, "zhao") > sigma
    assert exact_delta(eps, gaussian_sigma(eps, d, "zhao")) < d


def test_classic_sigma_is_refused_where_it_is_not_proved_and_says_why():
    with pytest.raises(SettingError, match="proved for epsilon below 1 only"):
        gaussian_sigma(1.0, 1e-5, "classic")
    assert exact_delta(10, gaussian_sigma(10, 0.01, "classic_beyond_proof")) > 0.04
    assert exact_delta(0.5, gaussian_sigma(0.5, 1e-5, "classic")) < 1e-5


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: epsilon([release()], 0.0), "delta 0: it must be between"),
        (lambda: epsilon([release()], 1.0), "delta 1: it must be between"),
        (lambda: epsilon([release()], math.nan), "delta nan"),
        (lambda: epsilon([release()], 1e-15), "delta 1e-15: it must be between 1e-12"),
        (lambda: epsilon([release(noise=0.0)], 1e-5), "release s: noise 0"),
        (lambda: epsilon([release(noise=math.nan)], 1e-5), "release s: noise nan"),
        (lambda: epsilon([release(count=-1)], 1e-5), "count -1"),
        (lambda: epsilon([release(sampling=0.0)], 1e-5), "sampling 0"),
        (lambda: epsilon([release(sampling=1.5)], 1e-5), "sampling 1.5"),
        (lambda: epsilon([release(mechanism="none")], 1e-5), "no mechanism 'none'"),
        (lambda: epsilon([release()], 1e-5, "moments"), "no accountant 'moments'"),
        (lambda: delta([release()], -1.0), "epsilon -1"),
        (
            lambda: calibrate(lambda z: [release(noise=z)], Dp(epsilon=1, delta=1e-13)),
            "delta 1e-13: it must be between 1e-12",
        ),
        (lambda: gaussian_sigma(1.0, 0.0), "delta 0"),
        (lambda: gaussian_sigma(0.0, 1e-5), "epsilon 0"),
        (lambda: gaussian_sigma(1.0, 1e-5, "magic"), "no rule 'magic'"),
        (
            lambda: epsilon([release(mechanism="laplace", sampling=0.1)], 1e-5, "rdp"),
            "no laplace noise on a sample: take pld",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_accounted_is_refused_in_one_line(call, said):
    with pytest.raises(SettingError) as error:
        call()
    assert said in str(error.value)
    assert "\n" not in str(error.value)
