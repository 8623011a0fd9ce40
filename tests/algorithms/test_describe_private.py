"""Private Table 1: sensitivity by brute force, noise, whole counts, what is hidden or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcohort as fc
from fedcohort.algorithms.describe import DescribeSettings, private
from fedcohort.algorithms.describe import noisy as noisy_table
from fedcohort.data.encode import Encoded
from fedcohort.protocol import DataError, Dp, FedcohortError, InputError, Site

LEVELS = ["I", "II", "III"]
SPEC: dict[str, Any] = {
    "age": {"type": "integer", "range": [0, 120], "usual": [20, 100], "unit": "years"},
    "visits": {"type": "integer", "range": [0, 6]},
    "stage": {"type": "category", "levels": LEVELS},
    "smoker": {"type": "binary"},
}


def patients(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 12, n).clip(20, 100).round(),
            "visits": rng.integers(0, 7, n).astype(float),
            "stage": rng.choice(np.array(LEVELS, object), n, p=[0.5, 0.3, 0.2]),
            "smoker": (rng.random(n) < 0.3).astype(float),
        }
    )
    frame.loc[rng.random(n) < 0.1, "age"] = None
    frame.loc[rng.random(n) < 0.1, "stage"] = None
    return frame


def cohort(n: int = 6000, spec: Any = SPEC, **options: Any) -> tuple[Any, pd.DataFrame]:
    table = patients(n)
    frames = {f"s{i}": table.iloc[i::3].reset_index(drop=True) for i in range(3)}
    return fc.simulate(frames, dictionary={"variables": spec}, **options), table


def described(epsilon: float, n: int = 6000, seed: int = 0, **options: Any) -> Any:
    fed, _ = cohort(n)
    return fc.fit("describe", fed, dp={"epsilon": epsilon}, seed=seed, **options)


def counts(fit: Any, variable: str) -> dict[str, Any]:
    lines = [x for x in fit.model.table if x["variable"] == variable]
    return {x["level"]: x["count"] for x in lines}


def told(numbers: np.ndarray, codes: np.ndarray) -> Any:
    data = Encoded(tuple(numbers.T), tuple(codes.T))
    return private.describe_privately.run(
        Site("north", data, None, (0, 1)), low=np.array([-1.0, 0.0]), high=np.array([1.0, 5.0]),
        bins=np.array([4, 16]), n_levels=np.array([3, 2, 2]),
    )  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(n=st.integers(1, 12), far=st.sampled_from([0.5, 4.0, 1e200]), seed=st.integers(0, 10_000))
def test_any_record_removed_changes_the_table_by_its_sensitivity_at_most(
    n: int, far: float, seed: int
):
    rng = np.random.default_rng(seed)
    numbers, codes = rng.normal(0, far, (n, 2)), rng.integers(-1, 5, (n, 3))
    numbers[rng.random((n, 2)) < 0.2] = np.nan
    whole = told(numbers, codes)
    for i in range(n):
        less = told(np.delete(numbers, i, 0), np.delete(codes, i, 0))
        moved = np.linalg.norm(whole.reply.cells - less.reply.cells)
        assert moved <= whole.sensitivity["cells"] * (1 + 1e-9)


def test_a_record_at_the_limits_changes_the_table_by_the_whole_sensitivity():
    whole = told(np.array([[1.0, 5.0]]), np.array([[0, 1, 1]]))
    assert np.linalg.norm(whole.reply.cells) == pytest.approx(np.sqrt(7))
    assert whole.sensitivity == {"cells": pytest.approx(np.sqrt(7))}


def test_at_the_largest_epsilon_the_table_is_that_of_pandas():
    fit, table = described(1000), cohort()[1]
    lines = {x["variable"]: x for x in fit.model.table}
    assert lines["age"]["n"] == pytest.approx(len(table), abs=5)
    assert lines["age"]["missing"] == pytest.approx(table.age.isna().sum(), abs=5)
    for level, n in table.stage.value_counts().items():
        assert counts(fit, "stage")[str(level)] == pytest.approx(n, abs=5)
    assert lines["age"]["mean"] == pytest.approx(table.age.mean(), abs=0.1)
    assert lines["age"]["sd"] == pytest.approx(table.age.std(), abs=0.1)
    for name, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
        # the histogram of 20 to 100 years has cells of 5
        assert lines["age"][name] == pytest.approx(table.age.quantile(share), abs=2.5)
    (bars,) = [h for h in fit.model.histograms if h.name == "visits"]
    assert bars.edges == (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)
    np.testing.assert_allclose(bars.counts, table.visits.value_counts().sort_index(), atol=5)


def test_counts_come_nearer_to_the_truth_as_epsilon_grows_by_the_noise_that_is_told():
    table = cohort()[1]
    truth = table.stage.value_counts()
    errors = []
    for epsilon in (0.1, 1.0, 10.0):
        fits = [described(epsilon, seed=s) for s in range(6)]
        off = [counts(f, "stage")[k] - truth[k] for f in fits for k in LEVELS]
        errors.append(np.sqrt(np.mean(np.square(off))))
        assert errors[-1] < 1.5 * fits[0].model.noise
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


@pytest.mark.parametrize(("secure", "share"), [("auto", 3 / 2), ("false", 3)])
def test_every_cell_has_the_noise_of_its_share_of_epsilon(
    secure: str, share: float, monkeypatch: pytest.MonkeyPatch
):
    """Six parts: two each of two numbers, and two columns with levels."""
    asked = {"epsilon": 0.5}
    (release,) = private.releases(DescribeSettings(), Dp.of(asked))
    seen: list[np.ndarray] = []
    read = private.read

    def watch(layout: Any, cells: np.ndarray, *args: Any, **options: Any) -> Any:
        seen.append(cells)
        return read(layout, cells, *args, **options)

    monkeypatch.setattr(private, "read", watch)
    fed, _ = cohort(300)
    for seed in range(20):
        fc.fit("describe", fed, secure_aggregation=secure, dp=asked, seed=seed)
    noise = np.array(seen).std(axis=0, ddof=1)
    assert len(noise) == 17 + 2 + 8 + 2 + 4 + 3
    expected = release.noise * np.sqrt(6 * share)
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(expected, rel=0.1)


@settings(max_examples=200, deadline=None)
@given(noisy=st.lists(st.floats(-50, 80), min_size=1, max_size=9), total=st.integers(0, 200))
def test_counts_are_whole_not_negative_and_add_up_and_none_are_nearer(
    noisy: list[float], total: int
):
    found = noisy_table.whole(np.array(noisy), total)
    assert found.dtype == np.int64
    assert found.min() >= 0
    assert found.sum() == total
    error = np.sum((found - noisy) ** 2)
    for i in range(len(noisy)):
        for j in range(len(noisy)):
            other = found.copy()
            other[i], other[j] = other[i] + 1, other[j] - 1
            if i != j and other.min() >= 0:
                assert np.sum((other - noisy) ** 2) >= error - 1e-6


def test_every_variable_has_as_many_rows():
    fit = described(0.5, min_cell=1)
    for name in ("stage", "smoker"):
        lines = [x for x in fit.model.table if x["variable"] == name]
        known = [x["count"] for x in lines]
        assert None not in known
        assert sum(known) + lines[0]["missing"] == lines[0]["n"]
    assert len({x["n"] for x in fit.model.table}) == 1


def test_small_noisy_counts_are_hidden_and_what_noise_drowns_is_not_shown():
    fit = described(1000, n=90)
    rare = {x["n"] for x in fit.model.table}
    assert len(rare) == 1
    for x in fit.model.table:
        for name in ("count", "missing"):
            assert x[name] is None or x[name] == 0 or x[name] >= 5
    drowned = described(0.05, n=90)
    ages = [x for x in drowned.model.table if x["variable"] == "age"]
    assert ages[0]["mean"] is None
    assert ages[0]["median"] is None
    assert not drowned.model.histograms
    assert any("noise would drown" in x["rule"] for x in drowned.model.refusals)


def test_one_sum_is_all_that_is_asked_for_and_its_cost_is_in_the_ledger(tmp_path: Path):
    fit = described(2)
    assert fit.ledger.step.unique().tolist() == ["describe_privately"]
    assert set(fit.ledger.verb) == {"sum"}
    assert set(fit.ledger.mechanism) == {"gaussian"}
    assert 1.99 < fit.run.epsilon <= 2 + 1e-9
    assert fit.model.correlation is None
    assert {x["site"] for x in fit.model.table} == {None}
    fit.save(tmp_path / "model")
    again = fc.load(tmp_path / "model").model
    assert (again.table, again.noise) == (fit.model.table, fit.model.noise)


def test_two_simulations_give_the_same_table_and_another_seed_another():
    one, two, other = described(1), described(1), described(1, seed=4)
    assert one.model.table == two.model.table
    assert one.model.histograms == two.model.histograms
    assert one.model.table != other.model.table


@pytest.mark.parametrize(
    ("options", "dp", "text"),
    [
        ({"by": "stage"}, {}, "'by' .* one table of all rows"),
        ({"quantiles": (0.1,)}, {}, "'quantiles' .* one table of all rows"),
        ({}, {"unit": "site"}, "choose 'record'"),
        ({}, {"delta": 0.01}, "above one over its number of patients"),
    ],
)
def test_what_a_private_table_has_not_is_refused_in_one_line(
    options: dict[str, Any], dp: dict[str, Any], text: str
):
    with pytest.raises(FedcohortError, match=text) as caught:
        fc.fit("describe", cohort(900)[0], dp={"epsilon": 1, **dp}, **options)
    assert "\n" not in str(caught.value)


def test_numbers_without_limits_in_the_dictionary_are_named():
    spec = SPEC | {"age": {"type": "integer"}, "visits": {"type": "number", "range": [0, None]}}
    with pytest.raises(DataError, match=r"columns 'age', 'visits' have no range .*usual") as caught:
        fc.fit("describe", cohort(300, spec)[0], dp={"epsilon": 1})
    assert "\n" not in str(caught.value)


def test_a_dictionary_that_was_drafted_from_the_records_is_refused():
    with pytest.raises(InputError, match="drafted from the records"):
        fc.fit(
            "describe", fc.simulate({"a": patients(90), "b": patients(80, 1)}), dp={"epsilon": 1}
        )


def last_digit(shown: list[float]) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten of which all are multiples."""
    steps = [k * 10.0**p for p in range(2, -7, -1) for k in (5, 2, 1)]
    whole = (s for s in steps if all(abs(x / s - round(x / s)) < 1e-6 for x in shown))
    return next(whole)


@pytest.mark.parametrize(("epsilon", "n"), [(0.3, 6000), (1.0, 6000), (1.0, 1500)])
@pytest.mark.parametrize("name", ["age", "visits"])
@pytest.mark.parametrize("what", ["mean", "sd", "q25", "median", "q75"])
def test_no_digit_is_shown_that_the_noise_does_not_carry(
    epsilon: float, n: int, name: str, what: str
):
    """The truth is the same table without noise to speak of; digits are those of any seed."""
    truth = {x["variable"]: x for x in described(1000, n).model.table}[name][what]
    fits = [described(epsilon, n, seed) for seed in range(16)]
    found = [{x["variable"]: x for x in f.model.table}[name][what] for f in fits]
    shown = [x for x in found if x is not None]
    assert len(shown) >= 8
    off = np.sqrt(np.mean((np.array(shown) - truth) ** 2))
    assert off <= 1.5 * last_digit(shown)


def test_noise_above_half_of_a_standard_deviation_hides_a_number_and_says_so():
    fits = [described(epsilon, 1500, seed=s) for epsilon in (0.05, 0.1) for s in range(4)]
    fits += [described(1000, 1500)]
    rule = "noise is more than half of its standard deviation"
    lines = [[x for x in f.model.refusals if x["variable"] == "age"] for f in fits]
    hidden = [{x["what"] for x in found if rule in x["rule"]} for found in lines]
    assert any("quartiles" in h for h in hidden[:-1])
    assert not hidden[-1]
    for fit, gone in zip(fits, hidden, strict=True):
        line = {x["variable"]: x for x in fit.model.table}["age"]
        assert line["median"] is None or "quartiles" not in gone
        assert line["mean"] is None or "mean and sd" not in gone
