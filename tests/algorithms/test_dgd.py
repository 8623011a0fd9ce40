"""Training over sites against a plain loop, what a fit finds, and what it does not tell."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score
from torch import distributions as laws

import fedcohort as fc
from algorithms.dgd_cases import (
    SMALL,
    P,
    Q,
    federation,
    fitted,
    holes,
    mixture,
    split,
    task_of,
)
from fedcohort.algorithms.dgd import METHOD, DgdModel
from fedcohort.algorithms.dgd.disclosure import without_small
from fedcohort.algorithms.dgd.steps import Held, visited
from fedcohort.data.tables import FeatureTable
from fedcohort.models.dgd import Dgd
from fedcohort.models.likelihoods import FLOOR
from fedcohort.models.network import initial, network
from fedcohort.protocol import DataError, SettingError
from fedcohort.protocol.method import OwnRows
from fedcohort.training.rows import rows_of

X = mixture(60, seed=5, k=3, p=P)[0]
GAPS = holes(X, 0.2)
DRAWN = {"begin": "drawn", "mixture_rate": 4.0, "lr_rule": "constant", "learning_rate": 0.01}


# against a plain loop -----------------------------------------------------------------


def leaves(theta, k):
    """Return the parts of θ: μ', s' and ln π, and of a linear decoder W, b and s."""
    sizes = [(k, Q), (k, Q), (k,), (P, Q), (P,), (P,)]
    cuts = np.cumsum([int(np.prod(s)) for s in sizes])[:-1]
    return [
        torch.tensor(part.reshape(size), requires_grad=True)
        for part, size in zip(np.split(theta, cuts), sizes, strict=True)
    ]


def loss(parts, x, z, config):
    """Return eq. (5) of `models.dgd` by torch's distributions, up to constants of φ."""
    means, widths, weights, w, b, s = parts
    k = config.n_clusters
    net = config.network(P, k)
    sd = (FLOOR + s.exp()).sqrt()
    known = ~torch.isnan(x)
    fits = laws.Normal(z @ w.T + b, sd).log_prob(torch.nan_to_num(x, 0.0)) * known
    means, log_sd = net.pace * means, -0.5 * net.pace * widths + np.log(net.spread)
    shares = torch.softmax(net.pace * weights, dim=0)
    still = shares.detach()[:, None]
    off = means - (still * means).sum(dim=0)
    total = (still * (off**2 + (2 * log_sd).exp())).sum(dim=0)
    means, sd_z = off / (Q * total).sqrt(), log_sd.exp() / (Q * total).sqrt()
    prior = laws.MixtureSameFamily(
        laws.Categorical(probs=shares), laws.Independent(laws.Normal(means, sd_z), 1)
    )
    hyper = -torch.log(1 + torch.exp(means.norm(dim=1) - 1)).sum()
    hyper = hyper - 0.5 * ((2 * np.log(net.spread) - 2 * sd_z.log()) ** 2).sum()
    rows = fits.sum(dim=1) + prior.log_prob(z)
    return -rows.mean() - hyper / k + 0.5 * config.l2 * (w**2).sum()


def plainly(parts, config, mu=0.0, keep=False, seed=1):
    """Return θ after rounds at each site and a mean by rows, by torch alone."""
    theta = initial(config.network(P, config.n_clusters).spec, seed)
    n, held, points = sum(map(len, parts.values())), {}, {}
    for r in range(config.cluster_rounds):
        mean = np.zeros_like(theta)
        for name, rows in parts.items():
            x, own = torch.from_numpy(rows), leaves(theta, config.n_clusters)
            start = [part.detach().clone() for part in own]
            z = points.setdefault(name, torch.zeros((len(x), Q), dtype=torch.float64))
            z.requires_grad_()
            both = [
                torch.optim.Adam(own, lr=config.learning_rate),
                torch.optim.Adam([z], lr=2 * config.learning_rate, betas=(0.5, 0.7)),
            ]
            if keep and r:
                for one, state in zip(both, held[name], strict=True):
                    one.load_state_dict(state)
            for _ in range(config.internal_epochs):
                pull = sum(((p - q) ** 2).sum() for p, q in zip(own, start, strict=True))
                whole = loss(own, x, z, config)
                slopes = torch.autograd.grad(whole + 0.5 * mu * pull, [*own, z])
                for part, slope in zip([*own, z], slopes, strict=True):
                    part.grad = slope
                z.grad = len(x) * z.grad
                for one in both:
                    one.step()
            held[name] = [one.state_dict() for one in both]
            there = np.concatenate([part.detach().numpy().ravel() for part in own])
            mean += len(x) / n * there
        theta = mean
    return theta


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize(
    ("settings", "mu"),
    [({}, 0.0), ({"strategy": "fedprox", "mu": 0.5}, 0.5), ({"optimiser_state": "kept"}, 0.0)],
    ids=["fedavg", "fedprox", "kept"],
)
def test_rounds_over_sites_are_those_of_a_plain_loop(sites, settings, mu, monkeypatch):
    """By torch's Adam and distributions; Adam divides by slopes, so 1e-7 of its 9 steps of 0.01."""
    parts, config = split(GAPS, sites), METHOD.configure({**SMALL, **DRAWN, **settings})
    seen = []
    monkeypatch.setattr(
        "fedcohort.algorithms.dgd.program.without_small",
        lambda spec, theta, *rest: seen.append(theta) or without_small(spec, theta, *rest),
    )
    fitted(parts, **DRAWN, **settings)
    expected = plainly(parts, config, mu, keep="optimiser_state" in settings)
    assert_allclose(seen[0], expected, rtol=0, atol=1e-7)
    assert np.abs(expected - initial(config.network(P, 3).spec, 1)).max() > 1e-2


def test_one_site_is_the_centralised_fit():
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(P)])
    alone = fc.fit("dgd", fc.simulate({"pooled": frame}), **SMALL)
    halves = fc.simulate({"a": frame[:20], "b": frame[20:]})
    whole = fc.fit("dgd", halves, strategy="centralised", **SMALL)
    assert_array_equal(whole.model.theta, alone.model.theta)


def test_each_row_has_an_adam_of_its_own_that_waits_for_its_batch():
    """The first step of Adam is the learning rate, whatever the slope: for each row, in each batch;
    and rows of other batches do not move. ε is up to 1e-5 of a slope here.
    """
    config = METHOD.configure({**SMALL, "internal_epochs": 1, "batch_size": 7})
    plan = config.plan(task_of(), 3)
    rows = rows_of(FeatureTable(X), plan, (0, 0))
    theta = initial(plan.network, 0)
    _, _, _, held = visited(None, theta, rows, plan, 0.01, 2.0, (0, 0, 0), seek=False)
    assert_allclose(np.abs(held.z), 0.02, rtol=1e-5)
    assert_array_equal(held.taken, 1.0)


def test_rows_and_sites_without_an_entry_change_nothing():
    """But k-means, whose random points have other shapes: so with means that are drawn."""
    parts = split(GAPS, 2)
    more = {
        "site0": np.insert(parts["site0"], [0, 7], np.nan, axis=0),
        "site1": parts["site1"],
        "nobody": np.full((9, P), np.nan),
        "nothing": np.zeros((0, P)),
    }
    for settings in ({}, {"aggregation": "norm_bound"}):
        found, expected = (fitted(each, **DRAWN, **settings) for each in (more, parts))
        assert_allclose(found.theta, expected.theta, rtol=0, atol=1e-10)
    assert np.isfinite(fitted(more).theta).all()


# what a fit finds ---------------------------------------------------------------------

QUICK = {"n_clusters": 4, "rounds": 10, "cluster_rounds": 2, "internal_epochs": 5,
         "learning_rate": 0.05, "search_steps": 20}  # fmt: skip
FOUND = {**QUICK, "rounds": 20, "cluster_rounds": 20, "search_steps": 40}


@pytest.fixture(scope="module")
def found():
    x, group = mixture(240)
    return x, group, fitted(split(x, 3), **FOUND)


def test_a_short_fit_finds_the_groups_of_a_known_mixture():
    x, group = mixture(120)
    label = fitted(split(x, 2), **QUICK).predict(x)
    assert (
        adjusted_rand_score(group, label) > 0.7
    )  # 1.00, 1.00, 1.00, 1.00, 0.89, 0.81 with six seeds


def test_a_fit_finds_a_known_mixture(found):
    """Groups, their shares, and their centres, within 0.25 of a column's standard deviation."""
    x, group, model = found
    label = model.predict(x)
    assert adjusted_rand_score(group, label) > 0.97  # 1.000 with 10 seeds
    for k in range(4):
        mine = x[label == k]
        assert abs(model.shares[k] - len(mine) / len(x)) < 0.05
        centre = model._of(model.means, lambda net, z: net.entries.mean(net.decode(z)))[k]
        assert np.abs(centre - mine.mean(axis=0)).max() < 0.25
    assert_allclose(model.memberships(x).sum(axis=1), 1.0)
    assert [row["cluster"] for row in model.summary()] == [0, 1, 2, 3]


def test_samples_are_like_the_rows(found):
    x, _, model = found
    rows = model.sample(4000, np.random.default_rng(0))
    assert_allclose(rows.mean(axis=0), x.mean(axis=0), atol=0.15)
    assert np.abs(np.corrcoef(rows.T) - np.corrcoef(x.T)).max() < 0.2
    assert_array_equal(*(model.sample(3, np.random.default_rng(4)) for _ in range(2)))


def test_with_30_percent_missing_a_fit_beats_filling_with_means():
    """In the density of complete new rows, and in the missing entries: half the error of means."""
    x, _ = mixture(300, seed=3)
    rows, new = x[:240], x[240:]
    gaps = holes(rows, 0.3, seed=3)
    gone = np.isnan(gaps)
    settings = FOUND | {"n_clusters": 6}
    left_out = fitted(split(gaps, 3), **settings)
    filled = fitted(split(np.where(gone, np.nanmean(gaps, axis=0), gaps), 3), **settings)
    assert left_out.log_joint(new).mean() > filled.log_joint(new).mean() + 1.0
    error = np.sqrt(((left_out.impute(gaps) - rows)[gone] ** 2).mean())
    assert error < 0.5 * np.sqrt((rows[gone] ** 2).mean())
    assert_array_equal(left_out.impute(gaps)[~gone], rows[~gone])


def test_drawn_entries_vary_as_much_as_the_truth_does_about_the_filled_ones(found):
    """The squared error of a draw is about twice that of the mean; known entries stay."""
    x, _, model = found
    gaps = holes(x, 0.3, seed=1)
    gone = np.isnan(gaps)
    drawn = [model.impute_drawn(gaps, np.random.default_rng(s)) for s in range(4)]
    assert_array_equal(drawn[0][~gone], x[~gone])
    assert_array_equal(drawn[0], model.impute_drawn(gaps, np.random.default_rng(0)))
    error = ((model.impute(gaps) - x)[gone] ** 2).mean()
    twice = np.mean([((one - x)[gone] ** 2).mean() for one in drawn])
    assert 1.5 < twice / error < 3.0


def test_an_encoder_that_is_trained_on_drawn_rows_leads_to_the_representations(found):
    x, _, model = found
    with_one = fitted(split(x, 3), **FOUND, encoder=(30,))
    assert_array_equal(with_one.theta, model.theta)
    far = np.abs(with_one.transform(x) - model.transform(x)).max(axis=1)
    assert np.quantile(far, 0.9) < 0.02
    back = DgdModel.restore(with_one.arrays(), json.loads(json.dumps(with_one.meta())))
    assert_array_equal(back.transform(x[:5]), with_one.transform(x[:5]))


def test_a_saved_model_computes_the_same_bytes():
    model = fitted(split(GAPS, 2))
    back = DgdModel.restore(model.arrays(), json.loads(json.dumps(model.meta())))
    for what in ("transform", "reconstruct", "impute", "memberships"):
        assert_array_equal(getattr(back, what)(GAPS), getattr(model, what)(GAPS))
        assert np.isfinite(getattr(model, what)(GAPS)).all()


def test_the_log_density_rises_and_rows_held_out_can_end_a_phase():
    """Steps of 0.2 soon make it no better."""
    fed = federation(split(GAPS, 2))
    given = {"rounds": 30, "cluster_rounds": 1, "patience": 1, "lr_rule": "constant"}
    config = METHOD.configure({**SMALL, **given, "learning_rate": 0.1})
    model = METHOD.fit(fed, config, task_of())
    history = pd.DataFrame(fed.history)
    assert history.negative_log_density.min() < history.negative_log_density.iloc[0] - 1
    assert history.held_out_loss.min() < history.held_out_loss.iloc[0] - 1
    assert model.rounds == len(history) < 31


@pytest.mark.parametrize("k", [20, 30, 50])
def test_many_components_are_fitted_and_the_empty_ones_left_out(k):
    x, _ = mixture(5 * k)
    model = fitted(split(x, 2), n_clusters=k, rounds=1, cluster_rounds=1, internal_epochs=1)
    assert len(model.shares) + model.dropped == k
    assert np.isfinite(model.transform(x[:3])).all()


def test_rows_of_the_coordinator_give_the_first_decoder():
    """The first round's loss is then that of a trained model."""
    x, _ = mixture(120, p=P)
    first = []
    for own in (None, OwnRows(first=FeatureTable(x[:60]))):
        fed = federation(split(x[60:], 2))
        METHOD.fit(fed, METHOD.configure({**SMALL, "rounds": 8}), task_of(own=own))
        first.append(fed.history[0]["negative_log_density"])
    assert first[1] < first[0] - 1


def test_columns_have_the_likelihood_of_their_type():
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame(
        {"age": rng.normal(60, 9, n), "sex": rng.integers(2, size=n),
         "stage": rng.choice(["I", "II", "III"], n), "visits": rng.poisson(4, n)}
    )  # fmt: skip
    known = {
        "age": {"type": "number"}, "sex": {"type": "binary"},
        "stage": {"type": "category", "levels": ["I", "II", "III"]},
        "visits": {"type": "integer", "range": [0, 40]},
    }  # fmt: skip
    frame.loc[::7, "stage"] = None
    frame.loc[::5, "visits"] = np.nan
    fed = fc.simulate({"a": frame[:30], "b": frame[30:]}, dictionary=known)
    fit = fc.fit("dgd", fed, **SMALL)
    filled = fit.model.impute(fit.parts.design.matrix(frame))
    drawn = fit.model.sample(50, np.random.default_rng(0))
    names = list(fit.model.features)
    levels = [j for j, name in enumerate(names) if "stage" in name]
    for rows in (filled, drawn):
        assert set(np.unique(rows[:, levels])) <= {0.0, 1.0}
        assert (rows[:, levels].sum(axis=1) <= 1).all()


# what is refused, and what is not told ------------------------------------------------


def test_a_component_of_fewer_rows_than_min_cell_is_left_out():
    """The others are as before, with weights of the same ratios."""
    net = network(Dgd(inputs=P, latent=Q, components=3).spec)
    net.load(np.random.default_rng(0).normal(size=net.theta.shape) / 5)
    shares = torch.tensor([0.3, 0.04, 0.66], dtype=torch.float64)
    with torch.no_grad():
        net.module._weights.copy_(shares.log() / net.module.net.pace)
    theta, spec = net.read(), Dgd(inputs=P, latent=Q, components=3).spec
    means, logs = (t.detach().numpy().copy() for t in net.module.mixture())
    for rows, stays in ((100, [2, 0]), (200, [2, 0, 1])):
        smaller, left, dropped = without_small(spec, theta, rows, 5)
        assert dropped == 3 - len(stays)
        there = network(smaller)
        there.load(left)
        assert_allclose(there.module.means.detach(), means[stays], atol=1e-12)
        assert_allclose(there.module.log_precisions.detach(), logs[stays], atol=1e-12)
        expected = shares.numpy()[stays] / shares.numpy()[stays].sum()
        assert_allclose(there.module.log_weights.exp().detach(), expected, atol=1e-12)
        z = torch.zeros((1, Q), dtype=torch.float64)
        net.load(theta)
        assert_allclose(there.module.decode(z).detach(), net.module.decode(z).detach())


def test_a_component_that_learnt_one_patient_is_not_in_the_model(monkeypatch):
    """A row far out on its group's ray gets a component of two rows, whose mean is decoded a
    quarter of the row's length from it; the nearest that stays is more than half of it away.
    """
    x, _ = mixture(120, seed=1)
    row, seen = 2.5 * x[0], []

    def nearest(spec, theta):
        net = network(spec)
        net.load(theta)
        with torch.no_grad():
            means = net.module.entries.mean(net.module.decode(net.module.means)).numpy()
            rows = 121 * net.module.log_weights.exp().numpy()
        far = np.linalg.norm(means - row, axis=1) / np.linalg.norm(row)
        return far.min(), rows[far.argmin()]

    monkeypatch.setattr(
        "fedcohort.algorithms.dgd.program.without_small",
        lambda spec, theta, *rest: (
            seen.append(nearest(spec, theta)) or without_small(spec, theta, *rest)
        ),
    )
    settings = QUICK | {"n_clusters": 12, "cluster_rounds": 12}
    model = fitted(split(np.vstack([x, row]), 2), **settings)
    assert seen[0][0] < 0.35
    assert seen[0][1] < 5
    assert nearest(model.network, model.theta)[0] > 0.5
    assert 121 * model.shares.min() >= 5


def test_no_message_has_an_array_for_each_row_and_states_stay_at_the_sites():
    parts = {f"s{i}": part for i, part in enumerate(np.split(mixture(94, p=P)[0], [41, 64]))}
    fed = federation(parts)
    METHOD.fit(fed, METHOD.configure(SMALL), task_of())
    fields = [f for line in map(json.loads, fed.ledger.lines) for f in line["fields"].values()]
    assert not {n for f in fields for n in f["shape"]} & {41, 23, 30, 94}
    assert all(step.reply is not Held for step in METHOD.steps)


@pytest.mark.parametrize(
    ("parts", "settings", "error", "said"),
    [
        ({"a": X[:2], "b": X[2:4]}, {}, DataError, "4 rows with a known entry are too few"),
        (split(X, 2), {"n_clusters": 13}, SettingError, "60 rows make at most 12 clusters of 5"),
        ({"a": np.where(np.arange(P) == 2, np.inf, X)}, {}, DataError, "'c2' has infinite values"),
        (
            split(np.where((np.arange(P) == 1) & (np.arange(60) > 3)[:, None], np.nan, X), 2),
            {}, DataError, "'c1' has fewer than 5 known entries",
        ),
        ({"a": X[:, :0], "b": X[:, :0]}, {}, DataError, "no columns to learn from"),
    ],
    ids=["rows", "clusters", "infinite", "column", "columns"],
)  # fmt: skip
def test_tables_that_a_fit_cannot_use_are_refused_by_name(parts, settings, error, said):
    with pytest.raises(error, match=said):
        fitted(parts, **settings)


def test_a_constant_column_and_equal_rows_are_no_obstacle():
    flat = np.where(np.arange(P) == 3, 0.0, X)
    assert np.isfinite(fitted(split(flat, 2)).theta).all()
    assert np.isfinite(fitted(split(np.tile(X[:1], (40, 1)), 2)).theta).all()


def test_float32_is_near_float64():
    one, other = (fitted(split(GAPS, 2), dtype=d, **DRAWN) for d in ("float64", "float32"))
    assert_allclose(other.theta, one.theta, atol=1e-2)


def test_a_private_fit_is_refused_by_name():
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(P)])
    known = {name: {"type": "number", "usual": [-3, 3]} for name in frame}
    fed = fc.simulate({"a": frame[:30], "b": frame[30:]}, dictionary=known)
    with pytest.raises(SettingError, match=r"'dgd'"):
        fc.fit("dgd", fed, dp={"epsilon": 3, "delta": 1e-5})


def test_missing_values_come_to_the_method_as_they_are():
    assert METHOD.gaps
    assert replace(METHOD).preprocess == {"impute": "none", "scale": "standard"}
