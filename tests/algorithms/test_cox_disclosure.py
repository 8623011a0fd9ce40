"""What the pooled sums of `cox` show of single patients: nothing on a grid, much at exact times."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.cox_cases import Overheard, federation, fit, public, simulated, split
from examples import examples
from fedcohort.algorithms.cox import METHOD, CoxSettings
from fedcohort.protocol import NotConverged, NothingToLearn

TABLES = ["gbsg2", "lung", "veteran", "whas500"]
TIES = ["efron", "breslow"]


def overhear(table, features=None, n_sites=4, **settings):
    where = np.random.default_rng(0).integers(0, n_sites, len(table.x))
    fed = Overheard(federation(split(table, where)))
    fit([table], features, fed=fed, **settings)
    return fed.seen


def with_the_dead_apart(question, reply):
    """Return sums over those who leave at each time, and over the dead there, 0 where not told."""
    dying = np.zeros_like(reply.leaving)
    dying[question["tied"]] = reply.dying
    return np.stack([reply.leaving, dying])


def recovered(seen, x):
    """Return how many rows of x are a ratio of sums: ± leavers ± dead, of one interval or two."""
    (question, weights), (at, moments) = seen["risk_weights"][-1], seen["risk_moments"][-1]
    np.testing.assert_array_equal(question["beta"], at["beta"])
    s0, s1 = with_the_dead_apart(question, weights), with_the_dead_apart(at, moments)
    hit = np.zeros(len(x), bool)
    sd = np.maximum(x.std(axis=0), 1e-9)
    for signs in product([-1, 0, 1], repeat=4):
        now, then = np.reshape(signs, (2, 2))
        den, num = (
            np.tensordot(now, s, 1) + np.tensordot(then, np.roll(s, -1, axis=1), 1)
            for s in (s0, s1)
        )
        told = np.abs(den) > 1e-9 * s0.max()
        guess = num[told] / den[told, None] * question["scale"] + question["centre"]
        for g in guess:
            hit |= (np.abs(x - g) < 1e-6 * sd).all(axis=1)
    return hit.sum()


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", TABLES)
def test_no_patient_is_a_difference_of_pooled_sums(name, ties):
    table, features = public(name)
    seen = overhear(table, features, ties=ties, time_grid="protected")
    assert recovered(seen, table.x) == 0


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", TABLES)
def test_the_same_attack_at_exact_times_finds_many_patients(name, ties):
    table, features = public(name)
    assert recovered(overhear(table, features, ties=ties), table.x) > len(table.x) / 6


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("grid", ["protected", "exact"])
def test_weights_hide_no_less(grid, ties):
    table, features = public("gbsg2")
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(table.x))
    seen = overhear(table._replace(weight=weight), features, ties=ties, time_grid=grid)
    found = recovered(seen, table.x)
    assert found == 0 if grid == "protected" else found > len(table.x) / 6


def solved(seen, x):
    """Return how many rows of x solve the sums of risk weights of one interval, in all rounds.

    Of a single patient the logarithm of each is the sum of his covariates, times the coefficients.
    """
    asked = seen["risk_weights"]
    betas = np.array([question["beta"] for question, _ in asked])
    both = np.array([with_the_dead_apart(*one) for one in asked])
    scale, centre = asked[0][0]["scale"], asked[0][0]["centre"]
    hit = np.zeros(len(x), bool)
    for sums in (both[:, 0], both[:, 1], both[:, 0] - both[:, 1]):
        told = (sums > 1e-9 * sums.max()).all(axis=0)
        log = np.log(sums[:, told])
        z, *_ = np.linalg.lstsq(betas, log, rcond=1e-9)
        exact = np.abs(betas @ z - log).max(axis=0) < 1e-6
        for guess in (z.T * scale + centre)[exact]:
            hit |= (np.abs(x - guess) < 1e-3 * x.std(axis=0)).all(axis=1)
    return hit.sum()


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", ["gbsg2", "whas500"])
def test_the_sums_of_a_whole_path_solve_for_no_patient_and_at_exact_times_for_many(name, ties):
    table, features = public(name)
    table = table._replace(x=table.x / table.x.std(axis=0))
    asked = {"ties": ties, "penalty": "auto", "path_ratio": 1e-3}
    seen = overhear(table, features, **asked, time_grid="protected")
    assert "risk_moments" not in seen
    assert solved(seen, table.x) == 0
    assert solved(overhear(table, features, **asked), table.x) > len(table.x) / 6


@pytest.mark.parametrize("p", [1, 2, 6])
def test_a_path_has_a_grid_that_bears_its_sums(p):
    table = simulated(900, p, 3)
    seen = overhear(table, time_grid="protected", penalty="auto", path=10)
    least = left_with(seen).min()
    assert least > 52 / p
    assert len(seen["risk_weights"]) + p < least * p


def test_no_fold_of_sites_is_one_site_or_has_few_deaths():
    table = simulated(600, 2, 3)
    for n_sites, groups in ((1, 5), (3, 5), (4, 2), (9, 4), (30, 5)):
        seen = overhear(table, n_sites=n_sites, penalty="auto", path=2)
        (question, sizes) = seen["fold_sizes"][-1]
        at = list(question["dealt"].values())
        assert len(sizes.deaths) == groups
        assert sizes.deaths.min() >= 5
        assert set(at) == {-1} or np.bincount(at).min() >= 2


@settings(max_examples=examples(40), deadline=None)
@given(
    n=st.integers(120, 300),
    p=st.integers(1, 4),
    seed=st.integers(0, 2**16),
    ties=st.sampled_from(TIES),
    tied=st.booleans(),
    grid=st.sampled_from(["protected", 6, 40]),
    baseline=st.sampled_from(["shared", "stratified"]),
)
def test_with_each_interval_leave_enough_records_and_the_dead_are_told_apart_from_enough(
    n, p, seed, ties, tied, grid, baseline
):
    table = simulated(n, p, seed, tied=tied)
    seen = overhear(table, ties=ties, time_grid=grid, baseline=baseline)
    least = 5 if baseline == "stratified" else max(5, -(-12 // p) + 1)
    ((_, died),) = seen["deaths"]
    assert died.deaths.sum() == table.event.sum()
    leavers = left_with(seen)
    assert leavers.sum() == n
    assert leavers.min() >= least
    for question, _ in seen["risk_weights"]:
        for apart in (died.deaths, leavers - died.deaths):
            assert (apart[question["tied"]] >= least).all()


def left_with(seen):
    """Return how many leave with each interval (T,)."""
    ((_, died),) = seen["deaths"]
    return died.deaths + died.censored[1:]


@pytest.mark.parametrize("p", [1, 2, 3])
def test_fewer_sums_over_risk_sets_are_asked_for_than_solve_for_an_interval(p):
    table = simulated(400, p, 3)
    seen = overhear(table, time_grid="protected")
    least = left_with(seen).min()
    assert len(seen["risk_weights"]) + p < least * p
    assert len(seen["risk_moments"]) == 1


@pytest.mark.parametrize(("p", "sums"), [(1, 11), (2, 11), (3, 11), (4, 15)])
def test_a_fit_that_needs_more_sums_than_the_grid_bears_is_ended_and_names_the_covariate(p, sums):
    table = simulated(300, p, 3)
    x = table.x.copy()
    x[:, 0] = ~table.event & (x[:, 0] > 0)
    table = table._replace(x=x)
    names = ("drug", "age", "sex", "bmi")[:p]
    with pytest.raises(NotConverged, match=f"after {sums} sums over risk sets.* along 'drug'"):
        fit([table], names, time_grid="protected")
    with pytest.raises(NotConverged, match="rises without limit along 'drug'"):
        fit([table], names)
    assert fit([table], names, time_grid="protected", l2=0.05).coefficients[0] < 0


def test_a_handful_of_censored_records_is_refused_as_totals_less_those_of_deaths_are_theirs():
    table = simulated(200, 3, 5)
    table = table._replace(event=np.arange(200) >= 3)
    with pytest.raises(NothingToLearn, match="fewer than 5 censored records"):
        overhear(table, time_grid="protected")
    assert fit([table], time_grid="protected").events == 197  # one table has nobody to be told


def test_what_is_said_to_be_revealed_is_that_of_the_settings():
    said = {
        (baseline, grid): METHOD.reveals_with(CoxSettings(baseline=baseline, time_grid=grid))
        for baseline in ("shared", "stratified")
        for grid in ("protected", "exact")
    }
    for (baseline, grid), text in said.items():
        assert ("own" in text or "log-likelihood" in text) == (baseline == "stratified")
        assert ("p x p moment" in text) == (baseline == "shared")
        assert ("each site's times of death" in text) == (grid == "exact")
