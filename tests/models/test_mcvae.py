"""The ELBO over views against loops over rows and views, and against a single autoencoder."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch.distributions import Normal, kl_divergence

from fedcohort.models.mcvae import Mcvae
from fedcohort.models.objectives import Elbo
from fedcohort.models.vae import Vae
from fedcohort.models.variational import drawn, filled
from models.vae_cases import elbos, loaded, of, some_rows, some_theta

VIEWS, Q = (1, 0, 1, 2, 0, 2, 1), 2
P = len(VIEWS)
NET = Mcvae(views=VIEWS, latent=Q, hidden=(4,))


def columns(k, views=VIEWS):
    return [j for j, own in enumerate(views) if own == k]


def parts(theta, spec=NET):
    """Return each view's encoder and decoder, as autoencoders of their own."""
    cuts = np.cumsum([part.size for part in spec.parts])[:-1]
    nets = [part.build().double().requires_grad_(False) for part in spec.parts]
    for net, own in zip(nets, np.split(theta, cuts), strict=True):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(own), net.parameters())
    return nets


def by_formula(theta, x, beta, seed):
    """Eq. (1) of `models.mcvae`: a loop over rows, over views that encode, over views decoded."""
    nets = parts(theta)
    noise = drawn(seed, (len(nets), len(x), Q), torch.zeros(0).double())
    found = []
    for i, row in enumerate(torch.from_numpy(x)):
        has = [k for k in range(len(nets)) if not row[columns(k)].isnan().all()]
        total = 0.0
        for k in has:
            m, log = nets[k].encoder(*filled(row[columns(k)][None]))
            q = Normal(m[0], (0.5 * log[0]).exp())
            z = q.loc + q.scale * noise[k, i]
            total -= beta * float(kl_divergence(q, Normal(torch.zeros(Q).double(), 1.0)).sum())
            for j in has:
                y, own = nets[j].decode(z), row[columns(j)]
                known = ~own.isnan()
                each = Normal(y[known], nets[j].variance()[known].sqrt()).log_prob(own[known])
                total += float(each.sum())
        found.append(total / max(len(has), 1))
    return np.array(found)


def rows_of(seed, n=8):
    """Return rows (n, P) that lack entries, some of them whole views."""
    x = some_rows(n, P, seed, missing=0.2)
    gone = np.random.default_rng(seed + 1).random((n, 3)) < 0.3
    for k in range(3):
        x[np.ix_(gone[:, k], columns(k))] = np.nan
    return x


@given(seed=st.integers(0, 2**16), beta=st.sampled_from([0.5, 1.0]))
@settings(max_examples=10, deadline=None)
def test_the_elbo_is_the_mean_over_the_views_that_a_row_has(seed, beta):
    x, theta = rows_of(seed), some_theta(NET, seed)
    found = elbos(loaded(NET, theta), x, beta, seed)
    assert_allclose(found, by_formula(theta, x, beta, seed), rtol=1e-9)


@given(seed=st.integers(0, 2**16), hidden=st.sampled_from([(), (3,), (4, 3)]), told=st.booleans())
@settings(max_examples=10, deadline=None)
def test_with_one_view_it_is_the_variational_autoencoder(seed, hidden, told):
    common = {"latent": Q, "hidden": hidden, "sees_mask": told}
    single, several = Vae(inputs=P, **common), Mcvae(views=(0,) * P, **common)
    x, theta = some_rows(9, P, seed), some_theta(single, seed)
    assert several.size == single.size
    one, other = loaded(single, theta), loaded(several, theta)
    for draw in (None, 3):
        assert_allclose(elbos(other, x, 0.8, draw), elbos(one, x, 0.8, draw), rtol=1e-12)
        for net in (one, other):
            net.descend(lambda module, draw=draw: Elbo()(module, torch.from_numpy(x), draw))
        assert_allclose(other.gradient(), one.gradient(), rtol=1e-9, atol=1e-12)
    for what in (
        lambda module, rows: module.latent(rows),
        lambda module, rows: module.decode(module.latent(rows)),
        lambda module, rows: module.impute(rows, 5),
        lambda module, rows: module.variance(),
    ):
        assert_allclose(of(other, x, what), of(one, x, what), rtol=1e-12)


@pytest.mark.parametrize("seed", [None, 5])
def test_a_view_that_is_missing_counts_as_one_that_is_not_there(seed):
    x, theta = rows_of(3), some_theta(NET, 3)
    x[:, columns(2)] = np.nan  # the last view, so that the draws of the others stay
    keep = [j for j, k in enumerate(VIEWS) if k < 2]
    small = Mcvae(views=tuple(VIEWS[j] for j in keep), latent=Q, hidden=(4,))
    less = loaded(small, theta[: small.size])
    found = loaded(NET, theta)
    assert_allclose(elbos(found, x, seed=seed), elbos(less, x[:, keep], seed=seed), rtol=1e-12)
    latent = [of(net, rows, lambda m, r: m.latent(r)) for net, rows in
              ((found, x), (less, x[:, keep]))]  # fmt: skip
    assert_allclose(*latent, rtol=1e-12)


@given(seed=st.integers(0, 2**16), combine=st.sampled_from(["mean", "product"]))
@settings(max_examples=10, deadline=None)
def test_latent_points_are_of_the_views_that_a_row_has(seed, combine):
    spec = Mcvae(views=VIEWS, latent=Q, hidden=(4,), combine=combine)
    x, theta = rows_of(seed), some_theta(spec, seed)
    nets, expected = parts(theta), np.zeros((len(x), Q))
    for i, row in enumerate(torch.from_numpy(x)):
        own = [row[columns(k)][None] for k in range(3)]
        seen = [nets[k].encoder(*filled(o)) for k, o in enumerate(own) if not o.isnan().all()]
        if not seen:
            continue
        means = np.array([m[0].numpy() for m, _ in seen])
        precisions = np.array([np.exp(-log[0].numpy()) for _, log in seen])
        weights = precisions if combine == "product" else np.ones_like(precisions)
        expected[i] = (weights * means).sum(axis=0) / weights.sum(axis=0)
    found = of(loaded(spec, theta), x, lambda module, rows: module.latent(rows))
    assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


@given(places=st.permutations(VIEWS), seed=st.integers(0, 2**16))
@settings(max_examples=10, deadline=None)
def test_where_columns_stand_changes_nothing_but_where_they_stand(places, seed):
    """Within a view they keep their order, which θ knows them by."""
    left = {k: columns(k) for k in range(3)}
    order = [left[k].pop(0) for k in places]
    moved = Mcvae(views=tuple(places), latent=Q, hidden=(4,))
    x, theta = rows_of(seed), some_theta(NET, seed)
    here, there = loaded(NET, theta), loaded(moved, theta)
    assert_allclose(elbos(there, x[:, order], seed=2), elbos(here, x, seed=2), rtol=1e-10)
    filled_here = of(here, x, lambda module, rows: module.impute(rows, 3))
    filled_there = of(there, x[:, order], lambda module, rows: module.impute(rows, 3))
    assert_allclose(filled_there, filled_here[:, order], rtol=1e-10)
    spread = [of(net, x[:1], lambda module, _: module.variance()) for net in (there, here)]
    assert_array_equal(spread[0], spread[1][order])


def test_entries_of_a_view_that_a_row_lacks_are_not_seen_again():
    """They are decoded from the views that it has: more passes do not change that view's say."""
    x, net = rows_of(1), loaded(NET, some_theta(NET, 1))
    x[:, columns(1)] = np.nan
    x[:, columns(0) + columns(2)] = np.nan_to_num(x[:, columns(0) + columns(2)])
    once, often = (of(net, x, lambda m, r, k=k: m.impute(r, k)) for k in (1, 9))
    assert_array_equal(once, often)


def test_numbers_of_views_that_leave_one_out_are_refused():
    with pytest.raises(ValueError, match=r"numbered \[0, 2\]; number them from 0, without gaps"):
        Mcvae(views=(0, 2, 0), latent=2)
