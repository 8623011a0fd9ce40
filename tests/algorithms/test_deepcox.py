"""DeepCox: the exact gradient is the pooled one; strategies keep their promises; fits resume."""

import json
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from fedcohort.algorithms.deepcox import METHOD, DeepCoxModel
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.network import initial, network
from fedcohort.protocol import NotSupported, SettingError, SiteUnavailable, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.absences import Availability
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.training.networks.local import train
from fedcohort.training.rows import rows_of

STRATEGIES = ("fedavg", "fedprox", "fedadam", "fedyogi", "sequential", "ensemble", "exact")
SCENARIOS = ("iid", "unbalanced", "by-outcome", "by-feature")
P = 5


def simulated(n=120, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, P))
    time = np.ceil(40.0 * rng.exponential(1.0, n) * np.exp(-x[:, 0] + 0.5 * x[:, 1] ** 2))
    return SurvivalTable(x, time, rng.random(n) < 0.6)


def split(table, scenario, k=4, seed=0):
    n = len(table.time)
    shuffled = np.random.default_rng(seed).permutation(n)
    order = {
        "iid": shuffled,
        "unbalanced": shuffled,
        "by-outcome": np.argsort(table.time, kind="stable"),
        "by-feature": np.argsort(table.x[:, 0], kind="stable"),
    }[scenario]
    cuts = [int(0.6 * n), int(0.7 * n), int(0.95 * n)] if scenario == "unbalanced" else k
    parts = np.array_split(order, cuts)
    return {f"s{i}": SurvivalTable(*(c[rows] for c in table[:3])) for i, rows in enumerate(parts)}


def federation(tables, **options):
    hosts = [Host(name, table, METHOD.steps, seed=3) for name, table in tables.items()]
    return local(hosts, **options)


def fit(tables, seed=3, fed=None, **settings):
    fed = fed or federation(tables)
    task = Task(kind="survival", features=tuple(f"x{i}" for i in range(P)), seed=seed)
    return METHOD.fit(fed, METHOD.configure(settings), task)


def pooled_by_autograd(table, theta, steps, rate, l1=0.0, l2=0.0, optimiser=torch.optim.Adam):
    """Centralised training written anew: modules, autograd, torch.optim, risk sets by mask."""
    net = nn.Sequential(
        nn.Linear(P, 6), nn.SELU(), nn.Linear(6, 3), nn.SELU(), nn.Linear(3, 1, bias=False)
    ).double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), net.parameters())
    adam = optimiser(net.parameters(), lr=rate)
    x, time = torch.from_numpy(table.x), torch.from_numpy(table.time)
    at_risk = time[None, :] >= time[torch.from_numpy(table.event)][:, None]
    path = []
    for _ in range(steps):
        f = net(x)[:, 0]
        sets = torch.where(at_risk, f[None, :], -torch.inf).logsumexp(1)
        weights = net[0].weight
        loss = (sets.sum() - f[torch.from_numpy(table.event)].sum()) / len(x)
        loss = loss + l1 * weights.abs().sum() + l2 / 2 * (weights**2).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        flat = nn.utils.parameters_to_vector(net.parameters()).detach().numpy().copy()
        path.append((flat, float(loss.detach())))
    return path


# exact --------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_exact_equals_centralised_training_after_every_step(scenario):
    steps, table = 40, simulated()
    settings = {"hidden": [6, 3], "learning_rate": 0.03, "lr_rule": "constant"}
    settings |= {"l1": 0.001, "l2": 0.01, "time_grid": "exact", "strategy": "exact"}
    fed = federation(split(table, scenario))
    model = fit(None, fed=fed, rounds=steps, keep_rounds=list(range(1, steps)), **settings)
    path = pooled_by_autograd(table, initial(model.network, 3), steps, 0.03, 0.001, 0.01)
    for k, (theta, loss) in enumerate(path):
        assert_allclose(model.at_round(k + 1).thetas[0], theta, rtol=0, atol=1e-9)
        assert fed.history[k]["loss"] == pytest.approx(loss, abs=1e-9)


def test_exact_with_sgd_equals_centralised_training_too():
    table = simulated()
    settings = {"hidden": [6, 3], "learning_rate": 0.2, "lr_rule": "constant"}
    settings |= {"time_grid": "exact", "strategy": "exact", "optimiser": "sgd"}
    model = fit(split(table, "by-outcome"), rounds=15, **settings)
    path = pooled_by_autograd(table, initial(model.network, 3), 15, 0.2, optimiser=torch.optim.SGD)
    assert_allclose(model.thetas[0], path[-1][0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("grid", ["protected", 8])
def test_exact_does_not_depend_on_the_split_on_a_coarse_grid_either(grid):
    table = simulated()
    models = [
        fit(split(table, s), strategy="exact", rounds=15, time_grid=grid) for s in SCENARIOS
    ] + [fit({"all": table}, strategy="exact", rounds=15, time_grid=grid)]
    for model in models[1:]:
        assert_allclose(model.predict(table.x), models[0].predict(table.x), atol=1e-9)
        assert_allclose(model.baseline.cumulative, models[0].baseline.cumulative, rtol=1e-9)


def test_exact_trains_with_dropout_on_masks_that_both_sums_share():
    tables = split(simulated(), "iid")
    model = fit(tables, strategy="exact", rounds=10, dropout=0.3, hidden=[12])
    again = fit(tables, strategy="exact", rounds=10, dropout=0.3, hidden=[12])
    assert np.array_equal(model.thetas, again.thetas)


# the other strategies -----------------------------------------------------------------


def test_fedavg_over_one_site_is_local_training():
    table = simulated()
    model = fit({"only": table}, rounds=1, internal_epochs=9, learning_rate=0.02)
    plan = METHOD.configure({"internal_epochs": 9}).plan(P)
    theta, _ = train(initial(plan.network, 3), rows_of(table, plan, (0,)), plan, 0.02, (0,))
    assert_allclose(model.thetas[0], theta, rtol=1e-12)


@pytest.mark.parametrize("state", ["kept", "averaged"])
def test_an_optimiser_that_goes_on_over_one_site_is_one_long_training(state):
    """Ten rounds of four steps are forty of torch's Adam; parameters are rounded to 2⁻²⁸."""
    table = simulated()
    model = fit(
        {"only": table}, rounds=10, internal_epochs=4, learning_rate=0.03, lr_rule="constant",
        hidden=[6, 3], optimiser_state=state,
    )  # fmt: skip
    path = pooled_by_autograd(table, initial(model.network, 3), 40, 0.03)
    assert_allclose(model.thetas[0], path[-1][0], rtol=0, atol=1e-6)


def test_members_of_an_ensemble_keep_their_optimisers():
    table = simulated()
    settings = {"strategy": "ensemble", "learning_rate": 0.03, "lr_rule": "constant"}
    settings |= {"hidden": [6, 3], "rounds": 10, "internal_epochs": 4, "optimiser_state": "kept"}
    model = fit({"only": table}, **settings)
    path = pooled_by_autograd(table, initial(model.network, 3), 40, 0.03)
    assert_allclose(model.thetas[0], path[-1][0], rtol=1e-9)


def counts_by_hand(tables, thetas, plan, patience, cut):
    """Return each round's mean count, and the rates, by a plain loop over the sites' own losses."""
    rows = [
        rows_of(t, plan, (3, int.from_bytes(name.encode(), "big"), 0), held_out=True)
        for name, t in tables.items()
    ]
    net, least = network(plan.network, plan.dtype, plan.device), [math.inf] * len(rows)
    idle, recent, rate, means, rates = [0] * len(rows), [0] * len(rows), 0.1, [], []
    for theta in thetas:
        rates.append(rate)
        net.load(theta)
        for k, one in enumerate(rows):
            loss = one.value(net)
            if loss < least[k]:
                least[k], idle[k], recent[k] = loss, 0, 0
            else:
                idle[k], recent[k] = idle[k] + 1, recent[k] + 1
        means.append(np.mean(idle))
        if np.mean(idle) >= patience:
            break
        if np.mean(recent) >= cut:
            rate, recent = 0.5 * rate, [0] * len(rows)
    return means, rates


@pytest.mark.parametrize("strategy", ["fedavg", "sequential", "exact"])
def test_counts_of_sites_cut_the_rate_and_end_the_training_as_nolte_et_al_say(strategy):
    tables = split(simulated(), "unbalanced")
    settings = {"strategy": strategy, "rounds": 20, "learning_rate": 0.1, "lr_rule": "plateau"}
    settings |= {"lr_factor": 0.5, "lr_patience": 2, "patience": 4, "patience_by": "count"}
    fed = federation(tables)
    model = fit(None, fed=fed, keep_rounds=list(range(1, 20)), **settings)
    told = [row for row in fed.history if "idle_rounds" in row]
    assert 4 < len(told) < 20
    assert told[-1]["idle_rounds"] >= 4
    # the same course without an end, whose models are known after each round
    plan = METHOD.configure(settings).plan(P)
    longer = settings | {"patience": None}
    seen = fit(None, fed=federation(tables), keep_rounds=list(range(1, 20)), **longer)
    thetas = [seen.at_round(r).thetas[0] for r in range(1, 20)]
    means, rates = counts_by_hand(tables, thetas, plan, patience=4, cut=2)
    assert_allclose([row["idle_rounds"] for row in told], means)
    assert_allclose([row["learning_rate"] for row in told], rates)
    best = round(len(told) - 1 - means[-1])
    assert np.array_equal(model.thetas[0], thetas[best])


def test_a_strategy_without_an_optimiser_at_a_site_that_could_go_on_refuses_it():
    for strategy, state in (
        ("exact", "kept"), ("sequential", "averaged"), ("ensemble", "averaged"),
    ):  # fmt: skip
        with pytest.raises(SettingError, match=f"'optimiser_state'.*'{state}'.*{strategy}"):
            METHOD.configure({"strategy": strategy, "optimiser_state": state})
    with pytest.raises(SettingError, match=r"'optimiser_state'.*aggregation: mean"):
        METHOD.configure({"aggregation": "median", "optimiser_state": "kept"})
    with pytest.raises(SettingError, match=r"'personal'.*optimiser_state 'kept'"):
        METHOD.configure({"personal": "fedper", "optimiser_state": "kept"})
    with pytest.raises(SettingError, match=r"'compression'.*'exact' averages no models"):
        METHOD.configure({"strategy": "exact", "compression": "int8"})
    with pytest.raises(SettingError, match=r"'compression'.*averaged states"):
        METHOD.configure({"optimiser_state": "averaged", "compression": "int8"})
    with pytest.raises(SettingError, match=r"'compression'.*aggregation: mean"):
        METHOD.configure({"aggregation": "median", "compression": "int8"})
    with pytest.raises(SettingError, match=r"'personal'.*compression 'int8'"):
        METHOD.configure({"personal": "ditto", "compression": "int8"})
    assert METHOD.configure({"compression": "top_k"}).visible == "compression: top_k"


def test_one_round_of_fedavg_is_the_mean_weighted_by_rows():
    tables = split(simulated(), "unbalanced")
    model = fit(tables, rounds=1)
    plan = METHOD.configure({}).plan(P)
    alone = [train(initial(plan.network, 3), rows_of(t, plan, (0,)), plan, 0.01, (0,))[0]
             for t in tables.values()]  # fmt: skip
    rows = [len(t.time) for t in tables.values()]
    assert_allclose(model.thetas[0], np.average(alone, axis=0, weights=rows), rtol=1e-12)


def test_fedavg_averages_over_the_sites_that_took_part():
    tables = split(simulated(), "iid")
    options = {"quorum": 0.5, "absent": lambda call, site: site == "s2"}
    there = fit(None, fed=federation(tables, **options), rounds=3, time_grid="exact")
    without = fit({k: t for k, t in tables.items() if k != "s2"}, rounds=3, time_grid="exact")
    assert_allclose(there.thetas, without.thetas, rtol=1e-12)


def visits(rounds, away, strategy="sequential", n=8, **settings):
    """Return the sites of each round's replies, in their order, and who was away at its start."""
    tables = split(simulated(), "iid", n)
    law = away.of(sorted(tables), 0.2, 3)
    fed = federation(tables, quorum=0.2, absent=law)
    given = {"rounds": rounds, "time_grid": "exact", "optimiser": "sgd", **settings}
    fit(None, fed=fed, strategy=strategy, **given)
    lines = [json.loads(line) for line in fed.ledger.lines]
    lines = [line for line in lines if line["step"] == "visit"]
    came = [[ln["site"] for ln in lines if ln["round"] == r] for r in range(rounds)]
    return came, fed


def test_one_model_visits_those_that_are_away_when_they_are_back_in_the_same_round():
    came, fed = visits(12, Availability(away=0.4, rounds=3.0))
    assert fed.waited > 0
    assert {tuple(sorted(sites)) for sites in came} == {tuple(fed.sites)}
    whole, full = visits(12, Availability(away=0.0))
    assert full.waited == 0
    moved = [one != other for one, other in zip(came, whole, strict=True)]
    assert not moved[0]  # nobody is away in the first round
    assert any(moved)


def test_an_aggregation_that_needs_so_many_models_waits_for_them():
    came, fed = visits(20, Availability(away=0.6), "fedavg", aggregation="krum", byzantine=2)
    assert min(map(len, came)) == 7  # 2f + 3
    assert fed.waited > 0


@pytest.mark.parametrize("call", [6, 7])
def test_exact_refuses_a_sum_without_a_site_whose_deaths_were_counted(call):
    tables = split(simulated(), "iid")
    fed = federation(tables, quorum=0.5, absent=lambda k, site: (k, site) == (call, "s2"))
    with pytest.raises(SiteUnavailable, match="s2 left during the fit"):
        fit(None, fed=fed, strategy="exact", rounds=9, time_grid="exact")


def test_an_ensemble_votes_with_weights_by_rows():
    tables = split(simulated(), "unbalanced")
    model = fit(tables, strategy="ensemble", rounds=4)
    rows = np.array([len(t.time) for t in tables.values()])
    assert_allclose(model.weights, rows / rows.sum())
    x = simulated(seed=9).x
    alone = [fit({k: t}, rounds=4) for k, t in tables.items()]
    votes = [m.predict(x) + m.centre for m in alone]
    assert_allclose(model.predict(x) + model.centre, model.weights @ np.array(votes), atol=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_scores_are_centred_on_the_rows_trained_on_so_that_fits_compare(strategy):
    tables = split(simulated(), "by-outcome")
    model = fit(tables, strategy=strategy, rounds=4, keep_rounds=(2,))
    x = np.concatenate([t.x for t in tables.values()])
    for stage in (model, model.at_round(2)):
        assert abs(stage.predict(x).mean()) < 1e-12


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_learns_and_predicts(strategy):
    table, fresh = simulated(400, seed=1), simulated(400, seed=2)
    model = fit(split(table, "iid"), strategy=strategy)
    pairs = (fresh.time[:, None] < fresh.time[None, :]) & fresh.event[:, None]
    risk = model.predict(fresh.x)
    assert (risk[:, None] > risk[None, :])[pairs].mean() > 0.65
    curve = model.predict_survival(fresh.x, np.array([0.0, 10.0, 40.0, 1e9]))
    assert curve.shape == (400, 4)
    assert (np.diff(curve, axis=1) <= 0).all()
    assert_allclose(curve[:, 0], 1.0)


# what every strategy promises -----------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_order_in_which_sites_are_given_does_not_matter(strategy):
    tables = split(simulated(), "iid")
    settings = {"strategy": strategy, "rounds": 3, "internal_batches": 2, "patience": 2}
    a, b = fit(tables, **settings), fit(dict(reversed(tables.items())), **settings)
    assert np.array_equal(a.thetas, b.thetas)
    assert np.array_equal(a.baseline.cumulative, b.baseline.cumulative)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_killed_at_any_call_ends_with_the_same_bits(strategy, tmp_path):
    tables = split(simulated(60), "iid", k=3)
    settings = {"strategy": strategy, "rounds": 3, "internal_batches": 2, "dropout": 0.2}
    settings |= {"keep_rounds": [2], "time_grid": 6}
    whole = fit(None, fed=federation(tables), **settings)

    class Killed(Exception):
        pass

    def kill_at(call):
        def observer(progress):
            if progress.call == call:
                raise Killed

        return observer

    path = tmp_path / "journal"
    for call in (4, 6):
        journal = Journal(path)
        with pytest.raises(Killed):
            fit(None, fed=federation(tables, journal=journal, observer=kill_at(call)), **settings)
        journal.close()
    journal = Journal(path)
    resumed = fit(None, fed=federation(tables, journal=journal), **settings)
    journal.close()
    for name, array in whole.arrays().items():
        assert np.array_equal(resumed.arrays()[name], array), name


@pytest.mark.parametrize(
    ("strategy", "gathered"), [("sequential", {"visit"}), ("ensemble", {"train_alone"})]
)
def test_only_sequential_and_ensemble_reveal_a_sites_own_reply(strategy, gathered):
    for name in (*STRATEGIES[:4], "exact", strategy):
        fed = federation(split(simulated(), "iid"))
        fit(None, fed=fed, strategy=name, rounds=2, patience=1)
        seen = {line.split('"step":"')[1].split('"')[0] for line in fed.ledger.lines
                if '"verb":"gather"' in line}  # fmt: skip
        assert seen == (gathered if name == strategy else set())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sites_without_rows_without_deaths_or_with_one_row_break_nothing(strategy):
    table = simulated()
    tables = split(table, "iid") | {
        "empty": SurvivalTable(table.x[:0], table.time[:0], table.event[:0]),
        "eventless": SurvivalTable(table.x[:9], table.time[:9], np.zeros(9, bool)),
        "single": SurvivalTable(table.x[:1], table.time[:1], np.ones(1, bool)),
    }
    for more in ({}, {"patience": 2, "internal_batches": 3}):
        model = fit(tables, strategy=strategy, rounds=3, **more)
        assert np.isfinite(model.thetas).all()
        assert np.isfinite(model.predict_survival(table.x, table.time)).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_kept_round_is_the_model_of_a_shorter_fit(strategy):
    tables = split(simulated(), "by-outcome")
    settings = {"strategy": strategy, "learning_rate": 0.05, "patience": 3}
    long = fit(tables, rounds=8, keep_rounds=[2, 5, 8], **settings)
    for rounds in (2, 5, 8, 50):
        short = fit(tables, rounds=min(rounds, 8), **settings)
        assert_allclose(long.at_round(rounds).thetas, short.thetas, rtol=0)
        assert_allclose(long.at_round(rounds).baseline.cumulative, short.baseline.cumulative)


def test_early_stopping_returns_the_vector_of_the_best_held_out_loss():
    tables = split(simulated(80), "iid")
    settings = {"strategy": "exact", "learning_rate": 0.1, "rounds": 200, "patience": 5}
    fed = federation(tables)
    model = fit(None, fed=fed, **settings)
    losses = [row["held_out_loss"] for row in fed.history]
    assert model.rounds == len(losses) == int(np.argmin(losses)) + 1 + 5 < 200
    shorter = fit(tables, **(settings | {"rounds": int(np.argmin(losses)) + 1}))
    assert np.array_equal(model.thetas, shorter.thetas)


# settings and files -------------------------------------------------------------------


def test_a_round_that_was_not_kept_is_refused_by_name():
    model = fit(split(simulated(), "iid"), rounds=4, keep_rounds=[2])
    with pytest.raises(NotSupported, match=r"rounds \[2\] and 4, not after 3"):
        model.at_round(3)


@pytest.mark.parametrize("strategy", ["fedavg", "ensemble"])
def test_a_model_restored_from_its_arrays_predicts_the_same_bits(strategy):
    table = simulated()
    model = fit(split(table, "iid"), strategy=strategy, rounds=4, keep_rounds=[2])
    again = DeepCoxModel.restore(model.arrays(), model.meta())
    for a, b in ((model, again), (model.at_round(2), again.at_round(2))):
        assert np.array_equal(a.predict(table.x), b.predict(table.x))
        t = np.array([5.0, 50.0])
        assert np.array_equal(a.predict_survival(table.x, t), b.predict_survival(table.x, t))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "fedsgd"}, "choose one of"),
        ({"rounds": 0}, "a whole number from 1"),
        ({"dropout": 1.0}, "below 1"),
        ({"validation_fraction": 0.0}, "between 0 and 1"),
        ({"learning_rat": 0.1}, "did you mean 'learning_rate'"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        METHOD.configure(settings)


def test_float32_comes_close_to_float64():
    tables = split(simulated(), "iid")
    x = simulated(seed=5).x
    wide, narrow = (fit(tables, rounds=5, dtype=d).predict(x) for d in ("float64", "float32"))
    assert_allclose(narrow, wide, atol=1e-4)
    assert not np.array_equal(narrow, wide)
