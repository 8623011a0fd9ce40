"""Noise: its distributions, its source, its grid, and the sum of shares."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort.privacy.mechanisms import (
    LEAST_STEPS,
    discrete_gaussian,
    discrete_laplace,
    gaussian,
    granularity,
    laplace,
    perturb,
)
from fedcohort.privacy.noise import Source
from fedcohort.protocol.errors import SettingError
from noise_cases import CASES, laws


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_noise_has_the_variance_and_the_law_that_it_states(case):
    z, p = case.judge(Source.seeded("law", case.name), 100_000)
    assert abs(z) < 4
    assert p > 1e-4


def test_the_law_test_notices_noise_that_is_two_percent_wrong():
    for case in CASES:
        z, p = case.judge(Source.seeded("wrong", case.name), 100_000, scale=1.02)
        assert abs(z) > 4 or p < 1e-4, case.name


def test_words_are_the_keystream_of_chacha20_under_an_hkdf_key():
    from Crypto.Cipher import ChaCha20  # another implementation than the one in use
    from Crypto.Hash import SHA256
    from Crypto.Protocol.KDF import HKDF

    told = b"i" + (2).to_bytes(8, "little") + b"17" + b"s" + (4).to_bytes(8, "little") + b"site"
    key = HKDF(told, 32, b"", SHA256, context=b"fedcohort noise 1")
    stream = ChaCha20.new(key=key, nonce=bytes(12)).encrypt(bytes(80))
    assert Source.seeded(17, "site").words(10).astype("<u8").tobytes() == stream


def test_words_do_not_depend_on_how_many_are_asked_for_at_once(monkeypatch):
    whole, parts = Source.seeded(1), Source.seeded(1)
    assert_array_equal(whole.words(50), np.concatenate([parts.words(n) for n in (1, 0, 30, 19)]))
    monkeypatch.setattr("fedcohort.privacy.noise.SEGMENT", 16)
    whole, parts = Source.seeded(1), Source.seeded(1)
    first = whole.words(50)
    assert_array_equal(first, np.concatenate([parts.words(n) for n in (7, 9, 34)]))
    assert len(set(first.tolist())) == 50  # a new segment does not repeat the one before


def test_entropy_of_another_type_order_or_split_gives_other_words():
    told = [("ab", "c"), ("a", "bc"), ("abc",), ("c", "ab"), (b"abc",), (1, 2), (12,), ("12",), ()]
    assert len({Source.seeded(*t).words(1)[0] for t in told}) == len(told)


def test_the_system_source_never_repeats_and_ignores_numpy_seed():
    drawn = []
    for _ in range(20):
        np.random.seed(0)  # noqa: NPY002 - the state that must not matter
        drawn.append(Source.system().words(2).tobytes())
    source = Source.system()
    drawn += [source.words(2).tobytes() for _ in range(20)]
    assert len(set(drawn)) == 40
    assert not source.reproducible
    assert Source.seeded(1).reproducible


def test_uniform_reaches_far_below_what_multiples_of_2_to_the_minus_53_can():
    class Zeros(Source):
        """Words whose lowest bits are 0 for the first three draws."""

        def __init__(self):
            super().__init__(None)
            self.left = 3

        def words(self, n):
            self.left -= 1
            return np.full(n, 0 if self.left >= 0 else 1, np.uint64)

    assert Zeros().uniform(1)[0] == 2.0**-37
    u = Source.seeded("u").uniform(200_000)
    assert u.min() > 0 and u.max() < 1
    for power in range(1, 13):
        p = 2.0**-power
        z = (np.mean(u < p) - p) / math.sqrt(p * (1 - p) / u.size)
        assert abs(z) < 4.5


@given(st.integers(1, 2**62), st.integers(0, 50), st.integers(0, 99))
def test_integers_are_below_their_bound(bound, n, seed):
    drawn = Source.seeded(seed).below(bound, n)
    assert drawn.shape == (n,)
    assert np.all((drawn >= 0) & (drawn < bound))


def test_integers_below_a_bound_are_equally_frequent():
    counts = np.bincount(Source.seeded("below").below(11, 110_000), minlength=11)
    assert np.sum((counts - 10_000) ** 2 / 10_000) < 35  # chi-square, 10 degrees: p = 1e-4


@given(st.floats(0.05, 2.0**45), st.integers(0, 40), st.integers(0, 99))
@settings(max_examples=60)
def test_discrete_noise_is_int64_of_the_size_asked_and_follows_from_the_seed(scale, size, seed):
    for draw in (discrete_gaussian, discrete_laplace):
        first, again = (draw(Source.seeded(seed), scale, size) for _ in range(2))
        assert first.dtype == np.int64
        assert first.shape == (size,)
        assert_array_equal(first, again)
        assert np.all(np.abs(first) < 60 * scale + 60)


@given(st.floats(1e-12, 1e12), st.integers(0, 99))
def test_noise_of_a_continuous_scale_is_a_multiple_of_its_grid(scale, seed):
    step = granularity(scale)
    assert math.frexp(step)[0] == 0.5  # a power of two
    assert 2.0**30 <= scale / step < 2.0**31
    for draw in (gaussian, laplace):
        units = draw(Source.seeded(seed), scale, (3, 5)) / step
        assert units.shape == (3, 5)
        assert_array_equal(units, np.rint(units))


@given(
    st.floats(-1e3, 1e3),
    st.floats(1e-3, 1e3),
    st.floats(0.1, 10),
    st.sampled_from(["gaussian", "laplace"]),
    st.integers(1, 9),
    st.sampled_from([0.0, 2.0**-36]),
)
def test_a_noisy_value_is_on_the_grid_of_its_noise_and_of_the_code(
    value, sensitivity, noise, mechanism, share, resolution
):
    noisy = perturb(
        Source.seeded("grid"),
        np.full(4, value * sensitivity),
        sensitivity=sensitivity,
        noise=noise,
        mechanism=mechanism,
        share=share,
        resolution=resolution,
    )
    parts = share if mechanism == "gaussian" else 1
    step = granularity(sensitivity * noise / math.sqrt(parts), resolution)
    assert all((Fraction(float(x)) / Fraction(step)).denominator == 1 for x in noisy)
    assert step >= resolution


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_perturb_adds_noise_of_its_multiplier_times_the_sensitivity(mechanism):
    exact = np.linspace(-5, 5, 100_000)
    noisy = perturb(Source.seeded("z"), exact, sensitivity=3.0, noise=0.7, mechanism=mechanism)
    variance = 2.1**2 * (1 if mechanism == "gaussian" else 2)
    spread = math.sqrt((2 if mechanism == "gaussian" else 5) / exact.size)
    assert abs(np.mean((noisy - exact) ** 2) / variance - 1) < 4 * spread
    assert abs(np.mean(noisy - exact)) < 4 * math.sqrt(variance / exact.size)


def test_the_grid_widens_the_noise_by_what_rounding_adds():
    # On a coarse code the step is 2^-12 of the noise: 10000 numbers move by √10000 steps more.
    exact = np.zeros(10_000)
    coarse = perturb(Source.seeded("w"), exact, sensitivity=1.0, noise=1.0, resolution=2.0**-10)
    expected = 1 + 100 * 2.0**-10
    assert np.std(coarse) == pytest.approx(expected, rel=4 / math.sqrt(2 * exact.size))


@given(st.integers(2, 12), st.integers(0, 2**16))
@settings(max_examples=15)
def test_the_sum_of_shares_has_the_variance_of_the_whole_noise(share, seed):
    draws, sigma = 20_000, 2.5
    total = sum(
        perturb(Source.seeded(seed, i), np.zeros(draws), sensitivity=1.0, noise=sigma, share=share)
        for i in range(share)
    )
    z = (np.mean(np.square(total)) / sigma**2 - 1) / math.sqrt(2 / draws)
    assert abs(z) < 4.5


def test_laplace_noise_is_not_shared_out():
    alone = perturb(Source.seeded(1), np.zeros(50), sensitivity=1, noise=1, mechanism="laplace")
    one_of_four = perturb(
        Source.seeded(1), np.zeros(50), sensitivity=1, noise=1, mechanism="laplace", share=4
    )
    assert_array_equal(alone, one_of_four)


def extra_divergence(shares, sigma):
    """τ, eq. (3) of `mechanisms`."""
    k = np.arange(1, shares)
    return 10 * np.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)).sum()


@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("shares", [2, 3, 5])
def test_the_extra_divergence_bounds_the_true_log_ratio(shares, sigma):
    reach = 40
    x = np.arange(-reach, reach + 1)
    one = np.exp(-(x**2) / (2 * sigma**2))
    one /= one.sum()
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    y = np.arange(-(len(total) // 2), len(total) // 2 + 1)
    ideal = np.exp(-(y**2) / (2 * shares * sigma**2))
    ideal /= ideal.sum()
    seen = np.abs(y) <= 6 * sigma * math.sqrt(shares)
    worst = np.max(np.abs(np.log(total[seen] / ideal[seen])))
    assert worst <= extra_divergence(shares, sigma)


def test_shares_on_our_grids_cost_nothing_extra():
    assert extra_divergence(128, LEAST_STEPS) == extra_divergence(128, 9.0) == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: discrete_gaussian(s, 0.0, 1), "noise of 0 grid units"),
        (lambda s: discrete_laplace(s, math.nan, 1), "noise of nan grid units"),
        (lambda s: discrete_gaussian(s, 2.0**51, 1), "at most 2^50"),
        (lambda s: perturb(s, np.zeros(1), sensitivity=0, noise=1), "sensitivity 0"),
        (lambda s: perturb(s, np.zeros(1), sensitivity=1, noise=math.inf), "noise inf"),
        (lambda s: perturb(s, np.zeros(1), sensitivity=1, noise=1, share=0), "share 0"),
        (lambda s: perturb(s, np.zeros(1), sensitivity=1, noise=1, mechanism="x"), "mechanism 'x'"),
        (lambda s: perturb(s, np.array([np.nan]), sensitivity=1, noise=1), "not finite"),
        (lambda s: perturb(s, np.array([1e9]), sensitivity=1, noise=1), "2^22 times its noise"),
        (
            lambda s: perturb(s, np.zeros(1), sensitivity=2.0**-36, noise=1, resolution=2.0**-36),
            "too fine for a code of resolution",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_noise_that_cannot_be_drawn_is_refused_without_a_value(call, said):
    with pytest.raises(SettingError) as error:
        call(Source.seeded(1))
    assert said in str(error.value)
    assert "1e+09" not in str(error.value)


def test_the_law_of_a_case_sums_to_one():
    for law in laws().values():
        x = np.arange(-400, 401)
        assert math.isclose(law(x)[1].sum(), 1, rel_tol=1e-12)
