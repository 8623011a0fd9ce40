"""The reconstruction loss against closed forms, its noises against what they promise."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.nn import functional

from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.network import initial, network
from fedcohort.models.objectives import Reconstruction, loss_of
from fedcohort.models.reconstruction import LEAST, Noise, bce, dice, mixed, mse


def pair(n=7, p=5, seed=0):
    rng = np.random.default_rng(seed)
    y, x = rng.uniform(0.01, 0.99, (n, p)), (rng.random((n, p)) < 0.4).astype(float)
    x[:, 0] = 1.0
    return torch.from_numpy(y), torch.from_numpy(x)


def test_terms_are_those_of_the_thesis_with_its_sign_put_right():
    """Each row by NumPy loops, eq. 4.2 with a minus before the cross-entropy; then the mean."""
    y, x = pair()
    overlaps, entropies, squares = [], [], []
    for a, b in zip(x.numpy(), y.numpy(), strict=True):
        overlaps.append(1 - 2 * sum(a * b) / (sum(a) + sum(b)))
        entropies.append(-np.mean(a * np.log(b) + (1 - a) * np.log(1 - b)))
        squares.append(np.mean((a - b) ** 2))
    terms = [np.mean(t) for t in (squares, overlaps, entropies)]
    assert_allclose([float(f(y, x)) for f in (mse, dice, bce)], terms, rtol=1e-12)
    for beta in (0.0, 0.3, 1.0):
        expected = (1 - beta) * terms[0] + beta * (terms[1] + terms[2])
        assert float(mixed(y, x, beta)) == pytest.approx(expected, rel=1e-12)


def test_mse_and_cross_entropy_are_torchs():
    y, x = pair(seed=3)
    assert float(mse(y, x)) == pytest.approx(float(functional.mse_loss(y, x)), rel=1e-14)
    theirs = float(functional.binary_cross_entropy(y, x))
    assert float(bce(y, x)) == pytest.approx(theirs, rel=1e-12)


def test_a_perfect_reconstruction_of_zeros_and_ones_costs_next_to_nothing():
    _, x = pair()
    assert float(mse(x, x)) == 0.0
    assert 0 <= float(dice(x, x)) < 5 * LEAST
    assert float(bce(x, x)) == pytest.approx(-np.log1p(-LEAST), rel=1e-6)


def test_certain_and_wrong_is_finite_in_either_type():
    x = torch.tensor([[0.0, 0.0, 1.0]])
    for kind in (torch.float32, torch.float64):
        y = (1 - x).to(kind).requires_grad_()
        value = mixed(y, x.to(kind), 0.5)
        value.backward()
        assert torch.isfinite(value)
        assert y.grad is not None
        assert torch.isfinite(y.grad).all()
        none = mixed(torch.zeros(2, 3, dtype=kind), torch.zeros(2, 3, dtype=kind), 1.0)
        assert float(none) == pytest.approx(1.0, abs=1e-5)  # a row without a one has Dice 1


def test_the_loss_is_a_mean_over_rows_so_that_batches_add_up():
    y, x = pair(n=12)
    parts = [(3, slice(0, 3)), (9, slice(3, 12))]
    whole = sum(n / 12 * float(mixed(y[s], x[s], 0.4)) for n, s in parts)
    assert whole == pytest.approx(float(mixed(y, x, 0.4)), rel=1e-12)


# noises ------------------------------------------------------------------------------------------


def ones(n, p, seed=0):
    """A 0/1 matrix whose columns differ in their frequency of ones, and those frequencies."""
    rng = np.random.default_rng(seed)
    x = (rng.random((n, p)) < np.linspace(0.02, 0.9, p)).astype(float)
    return torch.from_numpy(x), tuple(x.mean(axis=0))


NOISED = [("corruption", 0.3), ("flip", 0.3), ("gaussian", 0.2)]


@pytest.mark.parametrize(("kind", "rate"), NOISED)
def test_noise_depends_on_the_seed_alone(kind, rate):
    x, frequencies = ones(40, 6)
    noise = Noise(kind=kind, rate=rate, frequencies=frequencies)
    first = noise(x, 3)
    torch.rand(7)
    before = torch.random.get_rng_state()
    assert torch.equal(noise(x, 3), first)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(noise(x, 4), first)
    assert not torch.equal(first, x)
    assert noise(x.float(), 3).dtype == torch.float32


def test_flips_keep_each_columns_frequency_of_ones_and_touch_as_many_as_they_say():
    """Within five standard errors. An entry drawn anew with frequency f differs with 2f(1−f)."""
    n, rate = 40_000, 0.4
    x, f = ones(n, 8)
    noised = Noise(kind="flip", rate=rate, frequencies=f)(x, 11).numpy()
    f = np.array(f)
    assert set(np.unique(noised)) == {0.0, 1.0}
    # Of the touched n·rate entries of a column each is 1 with probability f, and the rest stand.
    spread = np.sqrt(2 * rate * f * (1 - f) / n)
    assert (np.abs(noised.mean(axis=0) - f) < 5 * spread).all()
    changed, share = (noised != x.numpy()).mean(axis=0), 2 * rate * f * (1 - f)
    assert (np.abs(changed - share) < 5 * np.sqrt(share * (1 - share) / n)).all()


def test_flips_by_another_sites_frequencies_move_towards_those():
    x = torch.zeros(40_000, 1).double()
    noised = Noise(kind="flip", rate=0.5, frequencies=(0.3,))(x, 0)
    assert float(noised.mean()) == pytest.approx(0.15, abs=5 * np.sqrt(0.15 * 0.85 / 40_000))


def test_corruption_sets_a_share_of_the_entries_to_0_and_leaves_the_rest():
    x = torch.full((200, 200), 0.75).double()
    noised = Noise(kind="corruption", rate=0.2)(x, 1)
    assert set(torch.unique(noised).tolist()) == {0.0, 0.75}
    gone = float((noised == 0).double().mean())
    assert gone == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / 40_000))


def test_gaussian_noise_is_centred_on_a_half_and_stays_between_0_and_1():
    x = torch.zeros(200, 200).double()
    noised = Noise(kind="gaussian", rate=0.1)(x, 1).numpy()
    assert noised.min() >= 0
    assert noised.max() <= 1
    assert noised.mean() == pytest.approx(0.5, abs=5 * 0.1 / 200)
    assert noised.std() == pytest.approx(0.1, rel=0.02)
    assert (Noise(kind="gaussian", rate=0.01)(torch.ones(5, 5), 1) == 1).all()


def test_noise_is_in_the_inputs_of_training_and_not_in_what_is_reconstructed():
    a = Autoencoder(inputs=6, widths=(4, 2), output="sigmoid")
    x, f = ones(30, 6)
    noise = Noise(kind="flip", rate=0.3, frequencies=f)
    objective = loss_of(Reconstruction(beta=0.2, noise=noise).spec, None)
    assert objective == Reconstruction(beta=0.2, noise=noise)
    net = network(a.spec)
    net.load(initial(a.spec, 0))
    value = net.descend(lambda m: objective(m, x, 9), 9)
    expected = net.descend(lambda m: mixed(m(noise(x, 9)), x, 0.2))
    assert value == pytest.approx(expected, rel=1e-12)
    assert float(net.compute(lambda m: objective(m, x))) != pytest.approx(value)
