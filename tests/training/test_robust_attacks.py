"""One site that lies, under every strategy: it is named and left out, or out-voted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import QuorumLost, SettingError, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.local import LocalTransport
from fedcohort.study.file.privacy import check_visible
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.update_bounds import reach

P, LIAR = 4, "s2"
CASES: dict[str, dict[str, Any]] = {
    **{s: {"strategy": s} for s in ("fedavg", "fedprox", "fedadam", "fedyogi", "ensemble")},
    "sequential": {"strategy": "sequential"},
    "exact": {"strategy": "exact"},
    **{a: {"aggregation": a} for a in ("median", "trimmed_mean", "krum", "norm_bound")},
    "multi_krum with fedadam": {"aggregation": "multi_krum", "strategy": "fedadam"},
}
FORGED = {
    "nan": lambda field, r: r | {field: r[field] * np.nan},
    "another shape": lambda field, r: r | {field: r[field][..., :-1]},
    "another type": lambda field, r: r | {field: r[field].astype(np.float32)},
    "a thousand times": lambda field, r: r | {field: 1000.0 * r[field]},
    "no rows": lambda field, r: r | {k: np.array(0.0) for k in ("rows", "weight") if k in r},
}
MODEL = {"train_here": "theta", "visit": "theta", "train_alone": "thetas", "pull": "gradient"}


class Forging(LocalTransport):
    """Site s2 lies wherever a model is trained."""

    forge: Any = staticmethod(lambda field, reply: reply)

    def ask(self, call: Any, to: Any) -> Any:
        for site, reply in super().ask(call, to):
            field = MODEL.get(call.step.name)
            lies = site == LIAR and field and isinstance(reply, dict)
            yield site, self.forge(field, dict(reply)) if lies else reply


def tables(n: int = 6) -> dict[str, SurvivalTable]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40 * n, P))
    time = np.ceil(40.0 * rng.exponential(1.0, len(x)) * np.exp(-x[:, 0]))
    event = rng.random(len(x)) < 0.7
    cut = [SurvivalTable(x[i::n], time[i::n], event[i::n]) for i in range(n)]
    return {f"s{i}": table for i, table in enumerate(cut)}


def federation(forge: Any = None, sites: Any = None, **options: Any) -> Coordinator:
    hosts = [Host(name, t, METHOD.steps, 1) for name, t in (sites or tables()).items()]
    transport = Forging(hosts)
    if forge is not None:
        transport.forge = forge
    return Coordinator(transport, **{"quorum": 0.5, "secure": "false"} | options)


def fit(fed: Coordinator, **settings: Any) -> Any:
    config = METHOD.configure({"rounds": 4, "time_grid": 6, **settings})
    return METHOD.fit(fed, config, Task(kind="survival", features=tuple("abcd")))


@pytest.mark.parametrize("kind", FORGED)
@pytest.mark.parametrize("case", CASES)
def test_a_site_that_lies_is_named_and_the_fit_is_finished_without_it(case, kind):
    fed = federation(FORGED[kind])
    model = fit(fed, **CASES[case])
    assert np.isfinite(model.predict(tables()["s0"].x)).all()
    assert {site for _, site in fed.missing} == {LIAR}
    assert set(fed.rejected) == set(fed.missing)
    assert all(why.startswith(f"site {LIAR!r} answered ") for why in fed.rejected.values())


@pytest.mark.parametrize("case", CASES)
def test_honest_sites_are_never_rejected(case):
    fed = federation()
    fit(fed, **CASES[case])
    assert fed.missing == []


@pytest.mark.parametrize("case", ["fedavg", "fedadam", "median", "ensemble"])
def test_what_is_left_is_the_fit_of_the_others(case):
    others = {s: t for s, t in tables().items() if s != LIAR}
    settings = CASES[case] | {"lr_rule": "constant"}
    found = fit(federation(FORGED["nan"]), **settings)
    expected = fit(federation(sites=others), **settings)
    np.testing.assert_allclose(found.thetas, expected.thetas, rtol=1e-9, atol=1e-12)


def test_with_every_site_needed_the_run_stops_and_names_the_liar():
    for case in ("fedavg", "sequential", "exact", "median"):
        with pytest.raises(QuorumLost, match=r"site 's2' answered .* missing: s2"):
            fit(federation(FORGED["nan"], quorum=1.0), **CASES[case])


def test_krum_counts_a_rejected_site_among_its_liars():
    # 7 sites with f = 2: with one rejected, 6 are enough for the f = 1 that is left
    fed = federation(FORGED["nan"], tables(7))
    fit(fed, aggregation="krum", byzantine=2)
    with pytest.raises(SettingError, match="byzantine: 2, which needs 7 sites"):
        fit(federation(sites=tables(6)), aggregation="krum", byzantine=2)


# settings --------------------------------------------------------------------------------------


def test_a_robust_aggregation_asks_for_each_sites_model_and_says_so():
    plain, robust = METHOD.configure({}), METHOD.configure({"aggregation": "krum"})
    assert {"train_here"} == {s.name for s in METHOD.asked(plain)} & {"train_here", "visit"}
    assert {"visit"} == {s.name for s in METHOD.asked(robust)} & {"train_here", "visit"}
    assert METHOD.reveals_with is not None
    assert "every site's own model" in METHOD.reveals_with(robust)
    assert "every site's own model" not in METHOD.reveals_with(plain)


def test_masked_sums_and_a_robust_aggregation_exclude_each_other_in_one_line():
    robust = METHOD.configure({"aggregation": "median"})
    with pytest.raises(SettingError, match=r"aggregation: median.*secure_aggregation is true"):
        check_visible("true", METHOD, robust)
    check_visible("auto", METHOD, robust)
    check_visible("true", METHOD, METHOD.configure({}))


@pytest.mark.parametrize("strategy", ["exact", "sequential", "ensemble"])
def test_a_strategy_without_a_mean_of_models_takes_no_aggregation(strategy):
    with pytest.raises(SettingError, match=f"'aggregation'.*{strategy}"):
        METHOD.configure({"aggregation": "median", "strategy": strategy})


# reach -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["adam", "yogi", "yogi_started"])
@given(st.integers(0, 2**16), st.integers(1, 12), st.sampled_from([1e-6, 1.0, 1e6]))
def test_no_slopes_whatever_move_an_adaptive_step_beyond_its_reach(name, seed, steps, scale):
    rng = np.random.default_rng(seed)
    theta = torch.zeros(9, dtype=torch.float64)
    optimiser = OPTIMISERS[name](theta)
    sizes = scale * 10.0 ** rng.uniform(-3, 3, steps)
    for size in sizes:
        optimiser.step(theta, torch.from_numpy(size * rng.normal(size=9)), 0.01)
    plan = Plan(network="", loss="cox", epochs=steps, optimiser=name)
    assert float(torch.linalg.norm(theta)) <= reach(plan, 0.01, 9) * (1 + 1e-12)


def test_equal_slopes_reach_almost_as_far():
    theta = torch.zeros(9, dtype=torch.float64)
    adam = OPTIMISERS["adam"](theta)
    for _ in range(5):
        adam.step(theta, torch.ones(9, dtype=torch.float64), 0.01)
    bound = reach(Plan(network="", loss="cox", epochs=5), 0.01, 9)
    assert 0.98 * bound < float(torch.linalg.norm(theta)) <= bound
    for name in ("sgd", "momentum"):
        assert reach(Plan(network="", loss="cox", optimiser=name), 0.01, 9) == np.inf


def test_equal_slopes_take_yogi_most_of_the_way_to_its_reach():
    """Not all: in eq. (3) each slope has all of v to itself."""
    theta = torch.zeros(9, dtype=torch.float64)
    yogi = OPTIMISERS["yogi"](theta)
    for g in (1e6, 1e6):
        yogi.step(theta, torch.full((9,), g, dtype=torch.float64), 0.01)
    bound = reach(Plan(network="", loss="cox", optimiser="yogi", epochs=2), 0.01, 9)
    assert 0.8 * bound < float(torch.linalg.norm(theta)) <= bound


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 4))
def test_reach_counts_the_steps_that_a_batch_size_makes_of_the_rows(rows, size, epochs):
    plan = Plan(network="", loss="cox", epochs=epochs, batch_size=size)
    steps = epochs * -(-rows // size)
    same = Plan(network="", loss="cox", epochs=steps)
    assert reach(plan, 0.01, 9, rows) == reach(same, 0.01, 9)


def test_reach_of_as_many_rows_as_a_liar_may_say_is_had_at_once_and_no_less():
    plans = [
        Plan(network="", loss="cox", epochs=1, batch_size=1, optimiser=o) for o in ("adam", "yogi")
    ]
    for plan in plans:
        far = [reach(plan, 1.0, 1, rows) for rows in (19_999, 20_000, 20_001, 10**9)]
        strides = np.diff(far)
        assert strides[0] <= strides[1] <= strides[2] / (10**9 - 20_001) * (1 + 1e-9)


def test_the_order_in_which_sites_are_named_changes_no_robust_fit():
    sites = tables()
    models = [
        fit(federation(sites=dict(part)), aggregation="trimmed_mean")
        for part in (sites.items(), reversed(list(sites.items())))
    ]
    assert_array_equal(models[0].thetas, models[1].thetas)
