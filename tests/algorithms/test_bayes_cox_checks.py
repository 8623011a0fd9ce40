"""Posterior predictive checks of `bayes_cox` are of the pooled table, and find what it lacks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from algorithms.cox_cases import Overheard, simulated, split
from algorithms.test_bayes_cox import fit
from fedcohort.algorithms.cox import BAYES, checks
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import Refused, SettingError, Task
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import Site
from fedcohort.runtime.local import local

SHAPE, LATE = "mean square of the risk score of deaths", "risk score of early less late deaths"


def rows_of(model):
    return {row["name"]: row for row in model.parameters(np.zeros(0)) if "share_above" in row}


def parted(x, death, leave, sites=2):
    table = SurvivalTable(x, np.minimum(death, leave), death <= leave)
    return split(table, np.arange(len(x)) % sites)


def life_table(time, event, cuts):
    """Shares alive at each of cuts, from the table itself."""
    alive, shares, start = 1.0, [], 0.0
    for end in cuts:
        here = (time > start) & (time <= end)
        died, left = (here & event).sum(), (here & ~event).sum()
        alive *= 1 - died / ((time > start).sum() - left / 2)
        shares.append(alive)
        start = end
    return shares


@pytest.mark.parametrize("options", [
    {}, {"baseline": "stratified"}, {"time_grid": "exact"}, {"by_site": "all"},
], ids=str)  # fmt: skip
def test_what_is_seen_is_that_of_the_pooled_table(options):
    table = simulated(150, 2, 1)
    ours = fit(split(table, np.arange(150) % 3), predictive_draws=3, **options)
    rows = rows_of(ours)
    assert rows["deaths"]["value"] == table.event.sum()
    alive = {name: row["value"] for name, row in rows.items() if name.startswith("alive at ")}
    cuts = [float(name.split()[-1]) for name in alive]
    assert len(cuts) == 3
    assert_allclose(list(alive.values()), life_table(table.time, table.event, cuts), rtol=1e-12)


def test_drawn_times_have_the_distribution_of_the_hazard():
    """P(T > t) = exp(−r (H(t) − H(entry))); 40,000 draws have errors of 0.0025."""
    grid, steps, rng = (
        np.array([1.0, 2.0, 4.0]),
        np.array([0.2, 0.5, 0.3]),
        np.random.default_rng(0),
    )
    risk, since = np.full(40_000, 1.5), np.full(40_000, 1.0)
    for spread, entry, at, total in (
        (False, None, 2.0, 0.7), (True, None, 3.0, 0.85), (False, since, 2.0, 0.5),
        (True, since, 3.0, 0.65), (True, None, 4.0, 1.0),
    ):  # fmt: skip
        drawn = checks._times(grid, steps, risk, entry, rng, spread)
        assert_allclose((drawn > at).mean(), np.exp(-1.5 * total), atol=0.01)


def test_drawn_censoring_is_after_each_death_and_by_kaplan_and_meier():
    time, dies = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, False, False])
    law, rng = checks._Censoring(time, dies), np.random.default_rng(0)
    drawn = np.array([law.drawn(rng) for _ in range(6000)])
    assert (drawn[:, 1:] == time[1:]).all()
    shares = [(drawn[:, 0] == t).mean() for t in time[1:]]
    assert_allclose(shares, [1 / 3] * 3, atol=0.02)


def weibull(seed, f, n=300):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1))
    return x, rng.exponential(np.exp(-f(x[:, 0]))), rng.exponential(1.5, size=n)


def test_a_u_shaped_risk_is_found_and_a_line_is_not():
    """Over seeds 0 to 19, p is 0 for a U, 0.11 to 0.89 for a line."""

    def p_of(seed, f):
        rows = rows_of(fit(parted(*weibull(seed, f)), predictive_draws=100, ph_check="none"))
        return rows[SHAPE]["share_above"]

    assert p_of(0, lambda x: x**2 + 0.4 * x) < 0.01
    assert 0.03 < np.median([p_of(k, lambda x: 0.7 * x) for k in range(5)]) < 0.97


def test_an_effect_that_ends_is_found_and_a_constant_one_is_not():
    """The median of five uniform p is outside 0.03 to 0.97 with a probability of 0.0005.

    Over seeds 0 to 19, p is 0 for one that ends, 0.03 to 0.94 for a constant one.
    """

    def p_of(seed, *, ends):
        x, death, leave = weibull(seed, lambda x: 1.2 * x)
        if ends:  # after 0.3 all have a hazard of 1
            death = np.where(
                death > 0.3, 0.3 + np.random.default_rng(9).exponential(size=300), death
            )
        rows = rows_of(fit(parted(x, death, leave), predictive_draws=100, ph_check="none"))
        return rows[LATE]["share_above"]

    assert p_of(0, ends=True) < 0.02
    assert 0.03 < np.median([p_of(k, ends=False) for k in range(5)]) < 0.97


def test_strata_have_rows_of_their_own():
    table = simulated(200, 2, 1, tied=False)
    table = table._replace(stratum=np.arange(200) % 2)
    rows = rows_of(fit(split(table, np.arange(200) // 100), strata="s", predictive_draws=3))
    assert sum(name.endswith(", level-1") for name in rows) == 3


def test_without_draws_nothing_is_asked_and_weights_are_refused():
    assert rows_of(fit([simulated(80, 2, 1)])) == {}
    with pytest.raises(SettingError, match="0 with weights"):
        BAYES.configure({"predictive_draws": 5, "weights": "w"})


def test_quarters_of_few_deaths_are_joined():
    """16 deaths at 16 times: quarters of 4, of which two make one of 5 or more."""
    table = simulated(120, 1, 1, tied=False)
    table = table._replace(event=table.event & (np.cumsum(table.event) <= 16))
    parts, seen = split(table, np.arange(120) % 2), {}
    fit(parts, predictive_draws=3, baseline="stratified", ph_check="none",
        watch=lambda fed: Overheard(fed, seen))  # fmt: skip
    ((_, told),) = seen["replicate_survival"]
    each = told.seen[0, :, 0]
    assert each.sum() == 16
    assert (each[each > 0] >= 5).all()


@pytest.mark.parametrize("change", [
    {"draws": np.zeros((1001, 2))}, {"draws": np.zeros((0, 2))}, {"draws": np.zeros((4, 3))},
    {"draws": np.full((4, 2), np.nan)}, {"scale": np.zeros(2)},
], ids=str)  # fmt: skip
def test_a_site_refuses_draws_that_no_honest_fit_has(change):
    asked = {
        "times": np.array([1.0]), "sizes": np.array([1]), "centre": np.zeros(2),
        "scale": np.ones(2), "cuts": np.ones((1, 3)), "draws": np.zeros((4, 2)),
        "tau": np.zeros((4, 0)), "hazards": np.ones((4, 1)), "together": False, "least": 5,
        "number": 4,
    } | change  # fmt: skip
    site = Site(name="s", data=simulated(30, 2, 1), state=None, entropy=(0,))
    with pytest.raises(Refused, match="site 's' draws no times"):
        checks.replicate_survival.run(site, **asked)


def planes(directions, thresholds, far=120.0):
    """Draws with which a record dies at once beyond a plane, and never before it."""
    draws = np.repeat(far * np.asarray(directions, float), len(thresholds), axis=0)
    hazards = np.exp(-far * np.tile(thresholds, len(directions)))[:, None]
    return {"draws": draws, "hazards": hazards, "tau": np.zeros((len(draws), 0)),
            "number": len(draws)}  # fmt: skip


def asked_of(table, **more):
    last = table.time.max()
    return {
        "times": np.array([last]), "sizes": np.array([1]), "centre": np.zeros(2),
        "scale": np.ones(2), "cuts": np.full((1, 3), last), "together": True, "least": 5,
    } | more  # fmt: skip


def test_a_coordinator_that_lies_reads_risk_scores_of_single_records_from_the_draws():
    """Why the page says so: between two planes one record dies, and the sum of g has its g. With
    200 draws, 100 along each covariate, at three sites of 50 records each.
    """
    table = simulated(150, 2, 1, tied=False)
    sites = [Host(f"s{k}", p, BAYES.steps) for k, p in enumerate(split(table, np.arange(150) % 3))]
    asked = asked_of(table, **planes(np.eye(2), np.linspace(-3.0, 3.0, 100)))
    told = local(sites).sum(checks.replicate_survival, **asked).drawn[:, 0].sum(axis=1)
    g = np.clip(table.x.sum(axis=1) / np.sqrt(2.0), -3.0, 3.0)
    died, total = -np.diff(told[:100, 0]), -np.diff(told[:100, 2])
    alone = total[died == 1]
    found = [np.abs(g - v).min() < 1e-9 for v in alone]
    assert sum(found) >= 10


def test_a_coordinator_that_lies_about_quarters_reads_the_score_of_one_death():
    table = simulated(150, 2, 1, tied=False)
    died = np.sort(table.time[table.event])
    cuts = (died[9:12] + died[10:13]) / 2  # one death in each of the two quarters in the middle
    asked = asked_of(
        table, cuts=cuts[None], draws=np.array([[1.0, 0.0]]), tau=np.zeros((1, 0)),
        hazards=np.ones((1, 1)), number=1,
    )  # fmt: skip
    sites = [Host(f"s{k}", p, BAYES.steps) for k, p in enumerate(split(table, np.arange(150) % 3))]
    seen = local(sites).sum(checks.replicate_survival, **asked).seen[0]
    assert seen[1, 0] == seen[2, 0] == 1
    for quarter, time in ((1, died[10]), (2, died[11])):
        (x,) = table.x[table.event & (table.time == time), 0]
        assert_allclose(seen[quarter, 2], x, rtol=1e-12)


def test_a_site_draws_as_often_as_the_studys_settings_say():
    config = BAYES.configure({"predictive_draws": 200})
    allowed = BAYES.bounds(config, Task(kind="survival", features=("x0", "x1")))["number"]
    assert tuple(allowed) == (200,)
    table = simulated(30, 2, 1)
    asked = asked_of(table, **planes(np.eye(2), np.linspace(-3.0, 3.0, 100)))
    site = Site(name="s", data=table, state=None, entropy=(0,))
    with pytest.raises(Refused, match="site 's' draws no times"):
        checks.replicate_survival.run(site, **asked | {"number": 100})
