"""`bayes_net` with Cox's model of times (`head: cox`)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sksurv.metrics import concordance_index_censored

from algorithms.cox_cases import Overheard, split
from fedcohort.algorithms.bayes_net import METHOD, BayesNetModel, prior_of
from fedcohort.algorithms.bayes_net.steps import places_of, posterior_at_start
from fedcohort.algorithms.deepcox import METHOD as DEEPCOX
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import NothingToLearn, SettingError, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.networks.variational import Goal, maximise
from fedcohort.training.rows import rows_of

SMALL = {
    "head": "cox", "hidden": (4,), "rounds": 3, "internal_epochs": 3, "samples": 20,
    "batch_size": 200,
}  # fmt: skip


def fit(parts, method=METHOD, watch=None, **options):
    names = tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    hosts = [Host(f"s{k}", part, method.steps, seed=3) for k, part in enumerate(parts)]
    task = Task(kind="survival", features=names, outcome="survival", seed=3, min_cell=5)
    fed = local(hosts)
    given = {**SMALL, **options} if method is METHOD else options
    return method.fit(watch(fed) if watch else fed, method.configure(given), task)


def table(n=150, seed=0, *, whole=False):
    """Return rows with an effect that interacts, half censored; `whole` has times from 1 to 6."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    f = x[:, 0] - 0.8 * x[:, 1] + 0.8 * x[:, 2] * x[:, 3]
    death, leave = rng.exponential(np.exp(-f)), rng.exponential(2.0, n)
    time = np.minimum(death, leave)
    if whole:
        time = np.clip(np.ceil(4 * time), 1, 6)
    return SurvivalTable(x, time, death <= leave)


def thirds(whole):
    return split(whole, np.arange(len(whole.x)) % 3)


# a site's step ----------------------------------------------------------------------------


def test_a_step_is_that_of_the_free_energy_by_torch():
    """−ℓ/n + KL(q, prior)/n of one draw of the weights, written out and differentiated by torch."""
    whole = table(40)
    config = METHOD.configure({**SMALL, "optimiser": "sgd", "internal_epochs": 1})
    plan, prior = config.plan(4, "cox", 1), prior_of(config)
    at = places_of(plan.network)
    theta = posterior_at_start(plan.network, 3).into(at)
    goal = Goal(prior.natural(len(at.mean)), prior)
    ours, loss = maximise(theta, rows_of(whole, plan, (7,)), plan, 0.1, (7,), goal)

    mean, log_sd = (torch.tensor(theta[i], requires_grad=True) for i in (at.mean, at.log_sd))
    seed, shapes = int(np.random.default_rng((7,)).integers(2**31)), [(4, 4), (4,), (1, 4), (1,)]
    noise = []
    for k in range(2):
        generator = torch.Generator()
        generator.manual_seed(seed + k)
        noise += [torch.randn(s, generator=generator, dtype=mean.dtype).flatten()
                  for s in shapes[2 * k : 2 * k + 2]]  # fmt: skip
    w = (mean + log_sd.exp() * torch.cat(noise)).split([16, 4, 4, 1])
    x, time = torch.from_numpy(whole.x), torch.from_numpy(whole.time)
    f = torch.relu(x @ w[0].view(4, 4).T + w[1]) @ w[2] + w[3]
    value = -sum(f[i] - f[time >= time[i]].logsumexp(0) for i in np.flatnonzero(whole.event))
    q, p = torch.distributions.Normal(mean, log_sd.exp()), torch.distributions.Normal(0.0, 1.0)
    (value / 40 + torch.distributions.kl_divergence(q, p).sum() / 40).backward()
    assert_allclose(loss, value.item() / 40, rtol=1e-9)
    assert_allclose((theta - ours)[at.mean] / 0.1, mean.grad, rtol=1e-7, atol=1e-10)
    assert_allclose((theta - ours)[at.log_sd] / 0.1, log_sd.grad, rtol=1e-7, atol=1e-10)


# predictions ------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["pvi", "ensemble"])
def test_risks_are_means_over_drawn_networks_relative_to_all_training_rows(strategy):
    whole = table()
    model = fit(thirds(whole), strategy=strategy, samples=3)
    at = places_of(model.network)
    risks = []
    for theta in model.thetas:
        rng = np.random.default_rng((3, 0x62617965))
        for _ in range(3):
            w = theta[at.mean] + np.exp(theta[at.log_sd]) * rng.standard_normal(len(at.mean))
            hidden = np.maximum(whole.x @ w[:16].reshape(4, 4).T + w[16:20], 0.0)
            f = hidden @ w[20:24] + w[24]
            middle = np.maximum(w[16:20], 0.0) @ w[20:24] + w[24]  # of a row of zeros
            risks.append(f - middle)
    weights = np.repeat(model.weights / 3, 3)
    risks -= (weights @ np.array(risks)).mean()
    assert_allclose(model.predict(whole.x), weights @ np.array(risks), atol=1e-9)
    assert_allclose(model.predict(whole.x[7:8]), model.predict(whole.x)[7:8], atol=1e-12)
    low, high = model.intervals(whole.x, 0.99).T
    assert_allclose(low, np.min(risks, axis=0), atol=1e-9)
    assert_allclose(high, np.max(risks, axis=0), atol=1e-9)


def test_survival_is_breslows_at_the_mean_risk_of_all_rows():
    """With few different times the grid has an interval for each."""
    whole = table(400, whole=True)
    model = fit(thirds(whole))
    risk = np.exp(model.predict(whole.x))
    hazard = [
        (whole.event & (whole.time == t)).sum() / risk[whole.time >= t].sum() for t in range(1, 6)
    ]
    found = model.predict_survival(whole.x[:9], np.arange(1.0, 6.0))
    assert_allclose(found, np.exp(-np.outer(risk[:9], np.cumsum(hazard))), rtol=1e-9)
    assert (model.known_until(whole.x) == 5.0).all()
    again = BayesNetModel.restore(model.arrays(), model.meta())
    assert (again.predict_survival(whole.x[:9], np.array([2.0])) == found[:, 1:2]).all()


def agreement(model, rows):
    return concordance_index_censored(rows.event, rows.time, model.predict(rows.x))[0]


def test_it_ranks_patients_nearly_as_deepcox_does():
    """Over seeds 0 to 7 of rows the C-index is higher by −0.001 on average (sd 0.008)."""
    whole, blind = table(300), table(1000, 100)
    ours = fit(thirds(whole), rounds=10, internal_epochs=10, hidden=(8,), prior_scale=0.5,
               learning_rate=0.03)  # fmt: skip
    theirs = fit(thirds(whole), DEEPCOX, strategy="fedavg", hidden=(8,), rounds=20)
    assert agreement(ours, blind) > agreement(theirs, blind) - 0.03


def test_with_more_rows_and_rounds_it_ranks_as_deepcox_does_and_intervals_hold_the_risk():
    """Over seeds 0 to 4 the C-index is higher by 0.002 (sd 0.003), and 90 % intervals hold 96 to
    99 % of the true log risks.
    """
    for seed in range(2):
        whole, blind = table(600, seed), table(1000, seed + 100)
        ours = fit(thirds(whole), rounds=40, internal_epochs=10, hidden=(32,), prior_scale=0.5)
        theirs = fit(thirds(whole), DEEPCOX, strategy="fedavg", hidden=(32,), rounds=20)
        assert agreement(ours, blind) > agreement(theirs, blind) - 0.01
        x = blind.x
        true = x[:, 0] - 0.8 * x[:, 1] + 0.8 * x[:, 2] * x[:, 3]
        low, high = ours.intervals(x, 0.9).T
        assert 0.88 < np.mean((low < true) & (true < high)) <= 1.0


# input ------------------------------------------------------------------------------------


def test_a_site_without_a_death_takes_part():
    whole = table()
    parts = thirds(whole)
    parts[2] = parts[2]._replace(event=np.zeros(50, bool))
    assert np.isfinite(fit(parts).predict(whole.x)).all()


def test_no_deaths_at_all_and_an_unknown_head_are_one_line_each():
    whole = table()
    with pytest.raises(NothingToLearn, match="none of the 3 sites has seen an event"):
        fit(thirds(whole._replace(event=np.zeros(150, bool))))
    with pytest.raises(SettingError, match="setting 'head'"):
        METHOD.configure({"head": "coxx"})


def test_at_the_end_sites_tell_risk_sets_once():
    seen = {}
    fit(thirds(table()), watch=lambda fed: Overheard(fed, seen))
    assert {k: len(v) for k, v in seen.items() if k != "death_cells"} == {
        "death_moments": 1, "death_spread": 1, "refine": 3, "count_deaths": 1, "sum_risks": 1,
        "count_spreads": 1,
    }  # fmt: skip
