"""Survival variational autoencoder over sites: training, curves, virtual patients, bad input."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from algorithms.autoencoder_cases import split
from fedcohort.algorithms.savae import METHOD
from fedcohort.algorithms.savae.program import edges_of
from fedcohort.data.tables import SurvivalTable
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.models.likelihoods import FLOOR
from fedcohort.models.network import initial
from fedcohort.models.variational import drawn
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import entropy
from fedcohort.runtime.local import local

OUTCOME = fc.Survival("time", "event")
SMALL = {
    "q": 2,
    "hidden": (4,),
    "rounds": 3,
    "internal_epochs": 2,
    "samples": 10,
    "batch_size": 0,
    "dropout": 0.0,
    "weight": 1.0,
}
#: Settings with which the effect of `cohort` is learnt.
LEARNT = {"q": 2, "hidden": (8,), "rounds": 12, "internal_epochs": 15, "learning_rate": 0.02,
          "weight": 3.0, "batch_size": 0, "dropout": 0.0}  # fmt: skip


def cohort(n, seed=0, missing=0.0):
    """Return rows whose Weibull times depend on a factor of three columns; 35 % are censored."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    x = np.column_stack([z + 0.4 * rng.normal(size=n) for _ in range(3)])
    t = 10.0 * np.exp(-0.6 * z) * rng.weibull(1.5, n)
    c = rng.exponential(20.0, n)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["sex"] = (rng.random(n) < 0.5).astype(int)
    if missing:
        frame = frame.mask(rng.random(frame.shape) < missing)
    return frame.assign(time=np.minimum(t, c) + 1e-3, event=(t <= c).astype(int), z=z)


def fitted(frame, sites=3, **settings):
    frame = frame.drop(columns="z", errors="ignore").assign(s=np.arange(len(frame)) % sites)
    return fc.fit("savae", fc.simulate(frame, sites="s", outcome=OUTCOME), **settings)


@pytest.fixture(scope="module")
def small():
    return fitted(cohort(90, missing=0.1), **SMALL)


@pytest.fixture(scope="module")
def learnt():
    return fitted(cohort(400), **LEARNT)


# training -----------------------------------------------------------------------------


def plainly(parts, rounds, epochs, rate, first):
    """Rounds of gradient descent by formulas of the header of `models.savae`, linear and normal."""
    q, p = 2, 3
    sizes = [(q, p), (q,), (q, p), (q,), (p,), (p, q), (p,), (2,), (2, q), (2,)]
    cuts = np.cumsum([int(np.prod(s)) for s in sizes])[:-1]
    spec = METHOD.configure({"q": q, "hidden": ()}).network(p).spec
    theta = initial(spec, 1)
    n = sum(len(t.x) for t in parts.values())
    logs = [np.log(t.time).sum() for t in parts.values()]
    unit = np.exp(sum(logs) / n)
    for r in range(rounds):
        mean = np.zeros(len(theta))
        for name, table in parts.items():
            own = [torch.tensor(v.reshape(s)).requires_grad_()
                   for v, s in zip(np.split(theta, cuts), sizes, strict=True)]  # fmt: skip
            a, b, c, d, s, w, m, leaving, u, v = own
            x, t = torch.tensor(table.x), torch.tensor(table.time / unit)
            e = torch.tensor(table.event).double()
            draws = np.random.default_rng(entropy(1, name, first + r))
            for _ in range(epochs):
                noise = drawn(int(draws.integers(2**31)), (len(x), q), x)
                mu, log = x @ a.T + b, x @ c.T + d
                z = mu + (0.5 * log).exp() * noise
                var = FLOOR + s.exp()
                fits = -0.5 * ((2 * np.pi * var).log() + (x - z @ w.T - m) ** 2 / var).sum(1)
                f, k = (z @ u.T + v).T
                h = (t / f.exp()) ** k.exp()
                times = e * (k - f + (k.exp() - 1) * (t.log() - f)) - h
                g, i = leaving
                left = (1 - e) * (i - g + (i.exp() - 1) * (t.log() - g)) - (t / g.exp()) ** i.exp()
                kl = 0.5 * (log.exp() + mu**2 - 1 - log).sum(1)
                loss = -(fits + 2.0 * times + left - kl).mean()
                slopes = torch.autograd.grad(loss, own)
                with torch.no_grad():
                    for part, slope in zip(own, slopes, strict=True):
                        part -= rate * slope
            flat = np.concatenate([part.detach().numpy().ravel() for part in own])
            mean += len(x) / n * flat
        theta = mean
    return theta


@pytest.mark.parametrize("sites", [1, 3])
def test_rounds_are_those_of_a_plain_loop_from_the_formulas(sites):
    frame = cohort(60)
    x = frame[["a", "b", "c"]].to_numpy()
    at = split(np.arange(60)[:, None], sites)
    parts = {
        name: SurvivalTable(x[i[:, 0]], frame["time"].to_numpy()[i[:, 0]],
                            frame["event"].to_numpy(bool)[i[:, 0]])
        for name, i in at.items()
    }  # fmt: skip
    hosts = [Host(name, table, METHOD.steps, 1) for name, table in parts.items()]
    config = METHOD.configure(
        {"q": 2, "hidden": (), "rounds": 2, "internal_epochs": 3, "optimiser": "sgd",
         "learning_rate": 0.002, "weight": 2.0, "record_kl": 0, "lr_rule": "constant",
         "batch_size": 0, "dropout": 0.0}
    )  # fmt: skip
    task = Task(kind="survival", features=("a", "b", "c"), outcome="survival", seed=1)
    fed = local(hosts)
    found = METHOD.fit(fed, config, task).thetas[0]
    lines = map(json.loads, fed.ledger.lines)
    first = min(line["call"] for line in lines if line["step"] == "train_here")
    expected = plainly(parts, 2, 3, 0.002, first)
    assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert np.abs(expected - plainly(parts, 0, 3, 0.002, first)).max() > 1e-3


@pytest.mark.parametrize(
    "strategy", ["fedprox", "fedadam", "fedyogi", "sequential", "ensemble", "exact"]
)
def test_every_strategy_gives_curves_and_virtual_patients(strategy):
    fit = fitted(cohort(90), **{**SMALL, "rounds": 2}, strategy=strategy)
    curves = fit.predict_survival(cohort(5, 1), [0.0, 5.0, 9.0])
    assert (np.diff(curves, axis=1) <= 0).all()
    x, outcome = fit.model.sample_outcome(20, np.random.default_rng(0))
    assert np.isfinite(x).all()
    assert (outcome[:, 0] > 0).all()
    assert len(fit.model.thetas) == (3 if strategy == "ensemble" else 1)


def test_the_times_of_a_known_effect_are_recovered(learnt):
    """True curves of 400 new patients. Over seeds 0 to 4 the mean error is 0.048 ± 0.005, and C is
    0.006 ± 0.003 below that of the true factor.
    """
    new = cohort(400, 9)
    t = np.linspace(1, 15, 8)
    truth = np.exp(-((t[None] / (10.0 * np.exp(-0.6 * new["z"].to_numpy()[:, None]))) ** 1.5))
    error = np.abs(learnt.predict_survival(new, t) - truth).mean()
    time, event = new["time"].to_numpy(), new["event"].to_numpy(bool)
    best = harrell(new["z"].to_numpy(), time, event)
    assert error < 0.07
    assert harrell(learnt.predict(new), time, event) > best - 0.02


def test_piecewise_times_recover_the_same(learnt):
    """Over seeds 0 to 4 the mean difference of the curves is 0.011 ± 0.003."""
    fit = fitted(cohort(400), **LEARNT, time="piecewise", parts=6)
    new = cohort(400, 9)
    t = np.linspace(1, 15, 8)
    there = learnt.predict_survival(new, t)
    assert np.abs(fit.predict_survival(new, t) - there).mean() < 0.03


def test_an_annealed_round_has_its_share_of_beta():
    """In a rise of two rounds the first is one of half of β."""
    frame, plain = cohort(60), {**SMALL, "record_kl": 0, "rounds": 1, "internal_epochs": 1}
    rising = {"anneal": "linear", "anneal_rounds": 2, "beta": 3.0}
    half = fitted(frame, **plain, beta=1.5).model.thetas
    assert_array_equal(fitted(frame, **plain, **rising).model.thetas, half)
    assert (fitted(frame, **plain, beta=3.0).model.thetas != half).any()
    seen = fitted(frame, **plain, **rising, aggregation="median").model.thetas
    assert_array_equal(seen, fitted(frame, **plain, beta=1.5, aggregation="median").model.thetas)


@pytest.mark.parametrize(
    "settings",
    [{"strategy": "exact"}, {"strategy": "ensemble"}, {"optimiser_state": "kept"},
     {"compression": "int8"}, {"personal": "fedper", "user": "s0"}],
)  # fmt: skip
def test_annealing_is_refused_where_no_round_has_a_share(settings):
    with pytest.raises(fc.FedcohortError, match="anneal"):
        METHOD.configure({**SMALL, "anneal": "linear", **settings})


def test_settings_of_a_private_fit_are_unknown_as_there_is_none():
    with pytest.raises(fc.FedcohortError, match="dp_rounds"):
        METHOD.configure({"dp_rounds": 3})


# curves -------------------------------------------------------------------------------


def test_curves_start_at_1_fall_and_are_constant_after_the_follow_up(small):
    new = cohort(8, 3, missing=0.3)
    x = small.parts.design.matrix(new)
    end = float(small.model.known_until(x)[0])
    curves = small.model.predict_survival(x, np.array([0.0, end / 2, end, 2 * end, 1e9]))
    assert_allclose(curves[:, 0], 1.0)
    assert (np.diff(curves[:, :3], axis=1) < 0).all()
    assert_array_equal(curves[:, 2], curves[:, 3])
    assert_array_equal(curves[:, 2], curves[:, 4])
    frame = cohort(90, missing=0.1)
    assert (frame["time"] > end).sum() >= 5


def test_a_prediction_needs_no_outcome_and_no_other_row(small):
    new = cohort(6, 3, missing=0.3)
    alone = new.drop(columns=["time", "event", "z"])
    both = small.predict_survival(alone, [3.0, 6.0])
    assert_array_equal(small.predict_survival(new, [3.0, 6.0]), both)
    # Another number of rows adds in another order.
    assert_allclose(small.predict_survival(alone[2:3], [3.0, 6.0]), both[2:3], rtol=1e-12)


def test_bands_hold_the_curve_and_widen_with_the_level_and_with_missing_values(learnt):
    model, design = learnt.model, learnt.parts.design
    new = cohort(50, 4)
    t = np.linspace(1, 10, 4)
    x = design.matrix(new)
    curve = model.predict_survival(x, t)
    wide, narrow = (model.survival_bands(x, t, level) for level in (0.99, 0.5))
    assert (wide[..., 0] <= curve).all()
    assert (curve <= wide[..., 1]).all()
    assert (wide[..., 0] <= narrow[..., 0]).all()
    assert (narrow[..., 1] <= wide[..., 1]).all()
    nothing = np.full((1, x.shape[1]), np.nan)
    spread = np.diff(model.survival_bands(nothing, t, 0.9), axis=2)
    assert (spread > np.diff(model.survival_bands(x, t, 0.9), axis=2).mean(axis=0)).all()
    ends = model.intervals(x, 0.9)
    assert (ends[:, 0] <= ends[:, 1]).all()


def test_the_predictive_density_is_the_slope_of_the_curve(small):
    x = small.parts.design.matrix(cohort(5, 2))
    t, step = np.full(5, 4.0), 1e-4
    ends = small.model.predict_survival(x, np.array([4.0 - step, 4.0, 4.0 + step]))
    death = small.model.log_density(x, t, np.ones(5, bool))
    assert_allclose(np.exp(death), (ends[:, 0] - ends[:, 2]) / (2 * step), rtol=1e-5)
    assert_allclose(np.exp(small.model.log_density(x, t, np.zeros(5, bool))), ends[:, 1], rtol=1e-9)


def test_a_saved_model_predicts_the_same(small, tmp_path):
    new = cohort(6, 3)
    small.save(tmp_path / "m")
    there = fc.load(tmp_path / "m")
    assert_array_equal(
        there.predict_survival(new, [2.0, 5.0]), small.predict_survival(new, [2.0, 5.0])
    )
    assert_array_equal(there.predict(new), small.predict(new))


def test_a_kept_round_is_a_fit_of_that_many_rounds():
    long = fitted(cohort(90), **SMALL, keep_rounds=[2], record_kl=0, lr_rule="constant")
    short = fitted(cohort(90), **{**SMALL, "rounds": 2}, record_kl=0, lr_rule="constant")
    assert_array_equal(long.model.at_round(2).thetas, short.model.thetas)


# virtual patients and missing values --------------------------------------------------


def test_virtual_patients_live_and_leave_as_those_of_the_study(learnt):
    """Kaplan–Meier curves at four times, of 3,000 virtual and 3,000 real patients. Over seeds 0 to
    4 the largest difference is 0.035 ± 0.017, and that of the shares of events 0.016 ± 0.014.
    """
    from lifelines import KaplanMeierFitter

    x, outcome = learnt.model.sample_outcome(3000, np.random.default_rng(0))
    real = cohort(3000, 8)
    assert (outcome[:, 0] <= learnt.model.times[-1]).all()
    assert {*outcome[:, 1]} == {0.0, 1.0}
    at = [3.0, 6.0, 9.0, 12.0]
    virtual = KaplanMeierFitter().fit(*outcome.T).predict(at)
    truth = KaplanMeierFitter().fit(real["time"], real["event"]).predict(at)
    assert np.abs(virtual.to_numpy() - truth.to_numpy()).max() < 0.1
    assert abs(outcome[:, 1].mean() - real["event"].mean()) < 0.1
    a = x[:, 0] * learnt.parts.design.columns[0].scale + learnt.parts.design.columns[0].shift
    assert abs(a.std() - real["a"].std()) < 0.2


def test_filled_entries_beat_the_mean(learnt):
    """Over seeds 0 to 4 the error is 0.47 ± 0.05 of that of the mean."""
    truth = cohort(300, 5)
    holes = truth.drop(columns=["time", "event", "z"])
    gone = np.random.default_rng(0).random(len(holes)) < 0.5
    holes.loc[gone, "a"] = np.nan
    filled = learnt.impute(holes)
    error = (filled["a"] - truth["a"])[gone].abs().mean()
    assert error < 0.7 * (truth["a"][gone] - truth["a"].mean()).abs().mean()
    drawn_once = learnt.model.impute_drawn(
        learnt.parts.design.matrix(holes), np.random.default_rng(1)
    )
    assert np.isfinite(drawn_once).all()


def test_an_ensemble_has_latent_variables_of_each_model():
    fit = fitted(cohort(90), **{**SMALL, "rounds": 1}, strategy="ensemble")
    x = fit.parts.design.matrix(cohort(5, missing=0.3))
    z = fit.model.transform(x)
    assert z.shape == (5, 3 * 2)
    for m, theta in enumerate(fit.model.thetas):
        alone = replace(fit.model, thetas=theta[None], weights=np.ones(1))
        assert_array_equal(alone.transform(x), z[:, 2 * m : 2 * m + 2])
    filled = fit.model.impute(x)
    assert_array_equal(filled[~np.isnan(x)], x[~np.isnan(x)])


# bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [None, fc.Binary("sex")])
def test_virtual_patients_without_a_time_are_refused(outcome):
    frame = cohort(30).drop(columns="z").assign(s=np.arange(30) % 3)
    fed = fc.simulate(frame, sites="s", outcome=outcome)
    for task in ("", "synthesis"):
        with pytest.raises(fc.FedcohortError, match="outcome of survival"):
            fc.fit("savae", fed, **SMALL, task=task)


def test_the_task_synthesis_gives_the_fit_of_the_task_survival():
    frame = cohort(60).drop(columns="z").assign(s=np.arange(60) % 3)
    fed = fc.simulate(frame, sites="s", outcome=OUTCOME)
    asked = {**SMALL, "rounds": 1}
    there = fc.fit("savae", fed, **asked, task="synthesis")
    assert_array_equal(there.model.thetas, fc.fit("savae", fed, **asked).model.thetas)


def test_a_column_of_one_value_is_left_out():
    fit = fitted(cohort(60).assign(one=3.0), **{**SMALL, "rounds": 1})
    assert "one" not in fit.parts.design.features
    assert "one" in fit.parts.design.dropped


def test_a_site_without_a_value_of_a_column_takes_part():
    frame = cohort(90)
    frame.loc[np.arange(90) % 3 == 1, "a"] = np.nan
    fit = fitted(frame, **{**SMALL, "rounds": 1})
    assert np.isfinite(fit.predict(cohort(4))).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"time": -1.0}, "time"),
        ({"event": 0}, "no site has an event|no event"),
        ({"a": np.inf}, "'a'"),
    ],
)
def test_bad_input_is_one_clear_line(change, words):
    frame = cohort(60)
    for name, value in change.items():
        frame[name] = frame[name].astype(float)
        frame.loc[: 0 if name != "event" else 59, name] = value
    with pytest.raises(fc.FedcohortError, match=words) as error:
        fitted(frame, **SMALL)
    assert "\n" not in str(error.value)


def test_parts_of_the_time_ascend_and_the_last_has_data():
    times = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
    for parts in range(2, 12):
        found = edges_of(times, parts)
        assert len(found) == parts - 1
        assert (np.diff(found, prepend=0.0) > 0).all()
        if parts <= len(times):
            assert found[-1] < times[-1]
    assert len(edges_of(times, 0)) == 0
