"""Convolutional networks: pixels in columns, gradients and first vectors, against plain torch."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from fedcohort.data.tables import LabelledTable
from fedcohort.models.conv import AT_ONCE, Conv
from fedcohort.models.losses import CrossEntropy, several
from fedcohort.models.network import initial, network
from fedcohort.training.networks.plan import Plan
from fedcohort.training.personal.ways import last_layer
from fedcohort.training.private import clipped, clipped_sum
from fedcohort.training.rows import rows_of

SPEC = Conv(image=(8, 6, 2), filters=(3, 4), hidden=(5,), outputs=3)


def plain(theta):
    net = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(4 * 2 * 1, 5), nn.ReLU(), nn.Linear(5, 3),
    ).double()  # fmt: skip
    nn.utils.vector_to_parameters(torch.from_numpy(theta), net.parameters())
    return net


def drawn(n=11, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 8, 6, 2)), rng.integers(3, size=n).astype(float)


def test_outputs_and_gradient_are_those_of_plain_torch_on_images():
    images, y = drawn()
    theta = initial(SPEC.spec, 3) + 0.1
    net = network(SPEC.spec)
    net.load(theta)
    x = torch.from_numpy(images.reshape(len(images), -1))  # as NumPy flattens
    value = net.pull(x, CrossEntropy(y, 3))
    reference = plain(theta)
    out = reference(torch.from_numpy(images).permute(0, 3, 1, 2))
    loss = nn.functional.cross_entropy(out, torch.from_numpy(y).long())
    loss.backward()
    assert_allclose(net.outputs(x), out.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert_allclose(value, loss.item(), rtol=1e-12)
    expected = torch.cat([p.grad.ravel() for p in reference.parameters()]).numpy()
    assert_allclose(net.gradient(), expected, rtol=1e-9, atol=1e-13)


def test_the_first_vector_is_glorots_and_depends_on_the_seed_alone():
    a, b = initial(SPEC.spec, 1), initial(SPEC.spec, 1)
    assert_array_equal(a, b)
    assert not np.array_equal(a, initial(SPEC.spec, 2))
    net = network(SPEC.spec)
    filters = a[net.first]
    bound = np.sqrt(6 / (9 * (2 + 3)))
    assert len(filters) == 2 * 3 * 9
    assert 0.9 * bound < abs(filters).max() <= bound
    assert_array_equal(a[net.first.stop : net.first.stop + 3], 0.0)  # biases


def test_many_rows_are_computed_in_blocks_with_the_same_outputs():
    spec = Conv(image=(8, 6, 2), filters=(3, 4), hidden=(5,), outputs=3)
    net = network(spec.spec)
    net.load(initial(spec.spec, 0))
    x = torch.from_numpy(drawn(30)[0].reshape(30, -1))
    whole = net.outputs(x)
    assert net.block == AT_ONCE // (8 * 6 * 4)
    net.block = 7
    assert_allclose(net.outputs(x), whole, rtol=1e-12, atol=1e-14)
    net.block = AT_ONCE // (8 * 6 * 4)


def test_private_sums_clip_the_gradient_of_each_image():
    images, y = drawn(6)
    x = images.reshape(6, -1)
    plan = Plan(network=SPEC.spec, loss=several(3))
    theta, net, expected = initial(SPEC.spec, 4), network(SPEC.spec), 0.0
    for j in range(6):
        net.load(theta)
        net.pull(torch.from_numpy(x[j : j + 1]), CrossEntropy(y[j : j + 1], 3))
        expected = expected + clipped(net.gradient(), 0.5)
    found = clipped_sum(theta, rows_of(LabelledTable(x, y), plan, (0, 0)), plan, np.arange(6), 0.5)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_the_last_layer_is_the_last_dense_one_also_without_a_hidden_layer(hidden):
    spec = Conv(image=(8, 6), filters=(3,), hidden=hidden, outputs=3).spec
    size = len(initial(spec, 0))
    width = hidden[0] if hidden else 3 * 4 * 3
    assert last_layer(spec) == ((size - 3 * width - 3, size - 3), (size - 3, size))


def test_an_image_that_is_too_small_for_its_blocks_has_no_side_left():
    assert Conv(image=(8, 8), filters=(2, 2, 2, 2)).remaining == [(0, 0)]
    assert Conv(image=(28, 28)).remaining == [(7, 7)]


#: Two images of maps: 3 × 3 with 8 columns of 12, and 2 × 2 with the others.
MAPS = ((4, 0, 2, 7, -1, 1, 9, 11, 3), (5, 10, 8, 6))
JOINED = Conv(
    image=(), maps=MAPS, filters=(8,), kernel=3, pool=1, hidden=(5,), outputs=2,
    normalise="group", joined=(3,), joined_kernel=5, joined_stride=3,
)  # fmt: skip


def plain_arm(channels, filters):
    return nn.Sequential(
        nn.Conv2d(channels, filters, 3, padding=1), nn.GroupNorm(1, filters), nn.ReLU()
    )


def test_two_images_made_of_columns_are_convolved_apart_and_joined_as_in_plain_torch():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 12)))
    theta = initial(JOINED.spec, 1)
    arms = [plain_arm(1, 8), plain_arm(1, 8)]
    tail = nn.Sequential(
        nn.Conv1d(1, 3, 5, stride=3), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(3 * 34, 5), nn.ReLU(), nn.Linear(5, 2),
    )  # fmt: skip
    whole = nn.ModuleList([*arms, tail]).double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta), whole.parameters())
    found = []
    for arm, columns, side in zip(arms, MAPS, (3, 2), strict=True):
        pixels = torch.stack(
            [x[:, j] if j >= 0 else torch.zeros(len(x)).double() for j in columns], dim=1
        )
        found.append(arm(pixels.reshape(-1, 1, side, side)).flatten(1))
    out = tail(torch.cat(found, dim=1)[:, None])
    net = network(JOINED.spec)
    net.load(theta)
    assert_allclose(net.outputs(x), out.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert JOINED.n_parameters == len(theta)


def test_the_first_factors_of_a_normalisation_are_1_and_its_outputs_depend_on_their_row_alone():
    theta = initial(JOINED.spec, 1)
    assert (theta == 1.0).sum() == 8 + 8 + 3
    net = network(JOINED.spec)
    net.load(theta)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 12)))
    assert_allclose(net.outputs(x)[2:4], net.outputs(x[2:4]), rtol=1e-12)


def test_gradients_of_rows_with_normalisation_add_to_that_of_all():
    net = network(JOINED.spec)
    net.load(initial(JOINED.spec, 1))
    rng = np.random.default_rng(0)
    x, s = torch.from_numpy(rng.normal(size=(4, 12))), rng.normal(size=(4, 2))
    each = net.pulls(x, s)
    net.pull(x, lambda out: (0.0, s))
    assert_allclose(each.sum(axis=0), net.gradient(), rtol=1e-9, atol=1e-12)


def test_the_papers_network_has_the_papers_sizes():
    """004's program: 34 × 34 and 33 × 33 pixels, 11616 + 10584 numbers joined, then 13136."""
    paper = Conv(
        image=(), maps=(range(34**2), range(33**2)), filters=(8, 16, 24), kernel=5, pool=1,
        padding=False, joined=(16, 16, 16), hidden=(4000, 1000), outputs=150,
    )  # fmt: skip
    assert paper.remaining == [(22, 22), (21, 21)]
    assert paper.sequence[0] == 11616 + 10584
    assert 16 * paper.sequence[-1] == 13136


def test_a_network_without_the_new_entries_has_the_text_of_earlier_models():
    assert SPEC.spec == (
        '{"activation": "relu", "dropout": 0.0, "filters": [3, 4], "hidden": [5], "image": '
        '[8, 6, 2], "intercept": true, "kernel": 3, "kind": "conv", "outputs": 3, "pool": 2}'
    )


def test_no_maps_are_no_entry_of_the_spec_whatever_holds_them():
    assert Conv(image=(3, 3), maps=[]).spec == Conv(image=(3, 3)).spec
    assert Conv(image=(), maps=[[0, 1, 2, -1]]).spec == Conv(image=(), maps=((0, 1, 2, -1),)).spec
