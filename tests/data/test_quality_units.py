"""Mixed units are suspected where they are, and as seldom as promised where they are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedcohort.data.check import Sheet, examine, units
from fedcohort.data.check.conversions import conversions_of, factors_of
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Survival

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


#: Of quantities that are none of these distributions'.
FACTORS = dict.fromkeys(
    (1000.0, 365.25, 100.0, 88.4, 38.67, 30.4375, 18.02, 12.0, 10.0, 7.0, 2.54, 2.2046), ""
)


def suspicion(x, factors=FACTORS):
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


@pytest.mark.parametrize("zeros", [0, 1500])
@pytest.mark.parametrize("negative", [0, 1400])
def test_quartiles_are_those_of_all_values(zeros, negative):
    rng = np.random.default_rng(9)
    x = np.concatenate([np.exp(rng.normal(0, 1, 5000)), np.zeros(zeros), np.full(negative, -1.0)])
    x = np.append(x, np.nan)
    expected = np.nanquantile(x, (0.25, 0.5, 0.75))
    assert units.quartiles(x) == pytest.approx(expected, rel=0.02)
    assert units.quartiles(-x) is None


@pytest.mark.parametrize(
    ("name", "unit", "tried"),
    [
        ("bm_blast_pct", "%", {100.0}), ("hb", "g/dL", {1000.0, 100.0, 10.0, 1.6114, 16.114}),
        ("marker", "", {1000.0, 100.0, 10.0}), ("creatinine", "", {1000.0, 100.0, 10.0, 88.4}),
        ("weight", "kg", {1000.0, 100.0, 10.0, 2.2046}),
        ("bodyWeight", "", {1000.0, 100.0, 10.0, 2.2046}),
        ("height", "cm", {1000.0, 100.0, 10.0, 2.54}),
        ("glucose", "mg/dL", {1000.0, 100.0, 10.0, 18.02}),
        ("ldl_chol", "", {1000.0, 100.0, 10.0, 38.67}), ("age", "years", {365.25, 12.0}),
        ("os_time", "", {365.25, 30.4375, 12.0, 7.0}), ("wait", "days", {365.25, 30.4375, 7.0}),
    ],
)  # fmt: skip
def test_only_units_of_the_quantity_are_tried(name, unit, tried):
    assert set(factors_of(conversions_of(name, unit))) == tried


def sheet_of(sites, values, name="weight", **more):
    frame = pd.DataFrame({name: np.asarray(values, float), **more})
    return Sheet(frame, "t.csv", np.asarray(sites, object))


def mixed(sheet, known, outcome=None):
    return [f for f in examine([sheet], known, outcome) if f.rule == "mixed units"]


def test_kilograms_beside_pounds_at_one_site_are_found_and_no_share_of_blasts_is():
    rng = np.random.default_rng(4)
    sites = np.repeat(["a", "b", "c"], 200)
    two = np.where((sites == "b") & (np.arange(600) % 3 == 0), 2.2046, 1.0)
    clusters = np.exp(rng.normal(np.log(80), 0.07, 600)) * two
    for unit in ("kg", ""):
        known = Dictionary.from_dict({"weight": {"type": "number", "unit": unit}})
        (finding,) = mixed(sheet_of(sites, clusters), known)
        assert "in two units at site 'b': a factor near 2.205 (such as pounds" in finding.line
        assert finding.n_rows == 67
    blasts = Dictionary.from_dict({"blasts": {"type": "number", "unit": "%"}})
    assert not mixed(sheet_of(sites, clusters / 4, "blasts"), blasts)


def test_two_clusters_at_most_sites_are_the_columns_own():
    rng = np.random.default_rng(5)
    sites = np.repeat(["a", "b", "c", "d"], 200)
    known = Dictionary.from_dict({"wbc": "number"})

    def cells(where):
        big = np.isin(sites, where) & (np.arange(800) % 2 == 0)
        return np.exp(rng.normal(1.0, 0.15, 800)) * np.where(big, 10, 1)

    assert not mixed(sheet_of(sites, cells(["a", "b", "c", "d"]), "wbc"), known)
    assert not mixed(sheet_of(sites, cells(["a", "b", "c"]), "wbc"), known)
    assert [f.site for f in mixed(sheet_of(sites, cells(["c"]), "wbc"), known)] == ["c"]


def test_early_deaths_and_late_ends_of_follow_up_are_no_two_units_and_days_beside_months_are():
    rng = np.random.default_rng(6)
    n = 600
    event = np.arange(n) % 2
    days = np.where(event == 1, rng.gamma(8, 4, n), rng.gamma(60, 18, n))
    known = Dictionary.from_dict({"t": {"type": "time", "unit": "days"}, "e": "event"})
    outcome = Survival("t", "e")
    alone = Sheet(pd.DataFrame({"t": days, "e": event.astype(float)}), "t.csv")
    assert not mixed(alone, known, outcome)
    time = rng.gamma(40, 20, n) * np.where(np.arange(n) % 5 < 2, 1 / 30.4375, 1)
    (finding,) = mixed(Sheet(alone.frame.assign(t=time), "t.csv"), known, outcome)
    assert "a factor near 30.44 (such as days and months)" in finding.line
    assert finding.n_rows in (240, 360)
