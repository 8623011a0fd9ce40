"""What a coordinator that departs from the program learns from sums of generative models.

Each test shows a gap that sites cannot close without noise, as the pages of the methods say, or,
where it says so, why sites refuse a call. Arguments are arrays that an honest fit sends, too. Sums
here are of one site; over several the same number is in the sum, since the other sites' rows can be
made to add nothing, or a known part.
"""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from algorithms.autoencoder_cases import VIEWS, task_of
from fedcohort.algorithms.autoencoders import VAE
from fedcohort.algorithms.autoencoders.joint import joint_divergences
from fedcohort.algorithms.joint_normal.steps import expected_features
from fedcohort.algorithms.mice.steps import chain_sums, compare_sets, packed
from fedcohort.algorithms.savae import METHOD as SAVAE
from fedcohort.data.imputing.disclosure import heads_of
from fedcohort.data.tables import FeatureTable, SurvivalTable
from fedcohort.models.network import network
from fedcohort.protocol import Refused, Task
from fedcohort.protocol.step import Site
from fedcohort.training.networks.collapse import latent_divergences
from fedcohort.training.networks.pooled import pull_rows


def rows(n=50, p=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def at(x):
    return Site("north", FeatureTable(x), None, (0, 1))


def test_by_chosen_parameters_a_sum_of_divergences_counts_the_rows_that_exceed_a_number():
    """With a steep encoder each row adds a large KL or none: one patient is counted, and found by
    halving an interval. So it is with any sum of losses or gradients of a network.
    """
    x = rows(p=len(VIEWS))
    plan = VAE.configure({"q": 1, "hidden": (), "record_kl": 1}).plan(VIEWS, task_of().heads)
    net = network(plan.network)

    def above(limit):
        net.load(np.zeros_like(net.read()))
        head = net.module.encoder._log_variance
        with torch.no_grad():
            head.weight[0, 0], head.bias[0] = 1e9, -1e9 * limit
        told = latent_divergences.run(at(x), theta=net.read(), plan=plan.text).kl[0]
        return round(2 * told / np.exp(20.0))

    assert [above(v) for v in (-9.0, 0.0, 9.0)] == [50, (x[:, 0] > 0).sum(), 0]
    low, high = 0.0, 9.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    assert_allclose(high, x[:, 0].max(), atol=2e-6)


def test_by_two_precisions_joint_normal_tells_the_row_of_one_who_alone_lacks_a_column():
    x = rows()
    x[7, 3] = np.nan

    def total(weights):
        precision = np.eye(4)
        precision[3, :3] = precision[:3, 3] = -np.asarray(weights, float)
        return expected_features.run(at(x), mean=np.zeros(4), precision=precision).total[3]

    found = [total(w) - total(np.zeros(3)) for w in np.eye(3)]
    assert_allclose(found, x[7, :3])


def test_by_sets_that_differ_in_one_row_mice_tells_that_row():
    """The rule that two sets differ by `min_cell` rows is the coordinator's; a site does not know
    how many rows of other sites are in one set alone.
    """
    x = rows()
    x[7, 3] = np.nan
    heads = heads_of(Task(kind="latent", features=tuple("abcd")))
    groups = np.eye(4, dtype=np.int64)
    told = compare_sets.run(at(x), first=np.arange(4), groups=groups)
    assert told.apart[-1, 3] == 1  # of all rows, one is not in the set of the last column

    def sums(asked):
        found = chain_sums.run(
            at(x), **packed(heads), groups=groups, regressed=1 - np.eye(4, dtype=np.int64),
            moving=np.zeros(4, np.int64), chains=1, drawn=-1, coefficients=np.zeros((0, 0)),
            noises=np.zeros(0), asked=asked, at=np.zeros((1, 4)),
        ).reply  # fmt: skip
        return found.information[0][0, 1:]  # totals of the columns other than the asked one

    assert_allclose(sums(2)[:2] - sums(3)[:2], x[7, :2])


def savae(**settings):
    return SAVAE.configure({"q": 1, "hidden": (1,), "strategy": "exact", **settings})


def test_by_an_encoder_with_a_unit_active_for_one_patient_savaes_gradient_is_this_patients_row():
    """The ratio of the slopes of a unit's weights and of its bias is the input of the only row for
    which the unit is active. So it is with the gradient of any network.
    """
    x, time = rows(), np.linspace(1.0, 9.0, 50)
    task = Task(kind="survival", features=tuple("abcd"))
    plan = savae(activation="relu").plan(task, 1.0)
    net, order = network(plan.network), np.sort(x[:, 0])
    net.load(np.zeros_like(net.read()))
    encoder = net.module.encoder
    with torch.no_grad():
        encoder._trunk[0].weight[0, 0], encoder._trunk[0].bias[0] = 1.0, -order[-2:].mean()
        encoder._mean.weight[0, 0] = 1.0
    site = Site("north", SurvivalTable(x, time, np.arange(50) % 2 > 0), None, (0, 1))
    net.load(pull_rows.run(site, theta=net.read(), plan=plan.text, draw=-1).gradient)
    found = (encoder._trunk[0].weight / encoder._trunk[0].bias).detach().numpy()[0]
    assert_allclose(found, x[np.argmax(x[:, 0])], rtol=1e-9)


def test_by_two_lists_of_times_savaes_gradient_would_find_one_patients_censoring():
    """Why a site holds a session to the first times in a plan (`study.at_site.pins`)."""
    x, time = rows(), np.linspace(1.0, 9.0, 50)
    table = SurvivalTable(x, time, np.arange(50) != 20)
    task = Task(kind="survival", features=tuple("abcd"))

    def censored(edge):
        plan = savae(time="piecewise", parts=2).plan(task, 1.0, (float(edge),))
        net = network(plan.network)
        net.load(np.zeros_like(net.read()))
        with torch.no_grad():
            net.module.time._leaving.fill_(-19.0)
        site = Site("north", table, None, (0, 1))
        told = pull_rows.run(site, theta=net.read(), plan=plan.text, draw=-1)
        net.load(told.gradient)
        return round(-float(net.module.time._leaving[0]))

    assert [censored(edge) for edge in (time[20] - 1e-3, time[20] + 1e-3)] == [0, 1]


def test_by_a_prior_of_two_components_vaes_divergences_count_who_has_a_code():
    """A narrow component on one patient's code: only a fit with `prior: vamp` can be asked so. It
    says no more than chosen parameters do.
    """
    x = rows(p=len(VIEWS))
    config = VAE.configure({"q": 1, "hidden": (), "prior": "vamp", "record_kl": 1})
    plan = config.plan(VIEWS, task_of().heads)
    net = network(plan.network)
    net.load(np.zeros_like(net.read()))
    with torch.no_grad():
        net.module.encoder._mean.weight[0, 0] = 1.0
        net.module.encoder._log_variance.bias[0] = -18.0

    def told(code, narrow=-18.0):
        prior = np.array([[0.5, 0.0, 0.0], [0.5, code, narrow]])
        asked = {"theta": net.read(), "plan": plan.text, "prior": prior}
        return joint_divergences.run(at(x), **asked).kl[0]

    alone = x[np.argmax(x[:, 0]), 0]
    assert told(9.0) - told(alone) > 5.0  # nats, of this one patient
    assert_allclose(told(9.0), told(alone + 0.1), atol=1e-6)
    for narrow in (-99.0, np.nan):
        with pytest.raises(Refused, match="a prior that no encoder gives"):
            told(alone, narrow)
    names = {name: {step.name for step in VAE.asks(VAE.configure({"prior": name}))}
             for name in ("vamp", "mixture", "normal")}  # fmt: skip
    assert [name for name, asked in names.items() if "joint_divergences" in asked] == ["vamp"]
