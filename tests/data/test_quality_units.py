"""Mixed units are suspected where they are, and as seldom as promised where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from fedcohort.data.quality import units

#: Distributions whose logarithms have a log-concave density, and whole numbers.
PLAIN = {
    "normal": lambda rng, n: rng.normal(75, 14, n),
    "heights": lambda rng, n: rng.normal(172, 9, n),
    "lognormal": lambda rng, n: np.exp(rng.normal(0, 1.5, n)),
    "exponential": lambda rng, n: rng.exponential(1, n),
    "gamma": lambda rng, n: rng.gamma(0.4, 2, n),
    "weibull": lambda rng, n: rng.weibull(0.6, n),
    "pareto": lambda rng, n: 1 + rng.pareto(1, n),
    "uniform": lambda rng, n: rng.random(n),
    "ages": lambda rng, n: rng.integers(0, 100, n).astype(float),
    "counts": lambda rng, n: rng.poisson(2, n).astype(float),
    "rounded": lambda rng, n: np.round(np.exp(rng.normal(0, 1, n)), 1),
}


def suspicion(x, factors=units.FACTORS):
    counts = units.histogram(x)
    return None if counts is None else units.suspect_rows(counts, factors)


@pytest.mark.parametrize("name", PLAIN)
def test_a_column_in_one_unit_is_hardly_ever_suspected(name):
    """300 columns at a chance of 1e-4 each: two hits or more have a probability of 4e-4."""
    rng = np.random.default_rng(5)
    hits = sum(
        suspicion(PLAIN[name](rng, n)) is not None for n in (30, 300, 3000) for _ in range(100)
    )
    assert hits <= 1


@pytest.mark.parametrize(
    ("name", "factor", "share", "named"),
    [
        ("normal", 2.2046, 0.3, 2.2046),
        ("heights", 1 / 2.54, 0.1, 2.54),
        ("heights", 0.01, 0.02, 100.0),
        ("lognormal", 1000.0, 0.05, 1000.0),
        ("ages", 365.25, 0.03, 365.25),
        ("rounded", 88.4, 0.1, 88.4),
        ("normal", 10.0, 0.005, 10.0),
    ],
)
def test_rows_in_another_unit_are_found_with_their_factor(name, factor, share, named):
    rng = np.random.default_rng(6)
    scale = 0.4 if name in ("lognormal", "rounded") else 1.0
    x = PLAIN[name](rng, 2000) ** scale
    mixed = rng.random(2000) < share
    x[mixed] *= factor
    found = suspicion(x)
    assert found is not None
    assert found.factor == named
    assert found.larger == (factor > 1)
    agree = found.rows(x) == mixed
    assert agree.mean() > 0.97


def test_one_value_far_away_is_no_unit_and_few_values_say_nothing():
    rng = np.random.default_rng(7)
    x = rng.normal(75, 5, 500)
    assert suspicion(np.append(x, 75_000.0)) is None
    assert suspicion(np.append(x, [75_000.0] * 9)) is None, "one value again and again is a code"
    assert units.histogram(x[:19]) is None
    assert units.histogram(np.where(np.arange(500) < 300, -x, x)) is None


def test_the_histogram_keeps_order_and_counts():
    x = np.exp(np.random.default_rng(8).normal(0, 3, 5000))
    counts = units.histogram(x)
    assert counts is not None
    assert counts.total == 5000
    for p in (0.1, 0.5, 0.9):
        assert counts.quantile([p])[0] == pytest.approx(np.quantile(np.log(x), p), abs=0.02)
    median, spread = counts.middle
    assert median == pytest.approx(0, abs=0.15)
    assert spread == pytest.approx(3, rel=0.06)


def test_a_site_in_another_unit_is_told_from_sites_that_differ():
    rows = np.array([400, 300, 200, 100])
    level = np.log([14.0, 13.2, 141.0, 13.9])
    found = units.suspect_sites(level, 0.1, rows)
    assert {i: s.factor for i, s in found.items()} == {2: 10.0}
    assert found[2].larger
    assert not units.suspect_sites(np.log([14.0, 13.2, 18.0, 13.9]), 0.1, rows)
    two = units.suspect_sites(np.log([75.0, 165.0]), 0.15, np.array([90, 30]))
    assert {i: s.factor for i, s in two.items()} == {1: 2.2046}
