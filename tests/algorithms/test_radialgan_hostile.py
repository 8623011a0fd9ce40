"""What a coordinator that lies learns from a site of `radialgan`, and what the site accepts."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from fedcohort.algorithms.radialgan import METHOD, private, steps
from fedcohort.algorithms.radialgan.messages import WIDEST, Codes, Groups, Slopes
from fedcohort.algorithms.radialgan.records import groups_of, parts_of, records_of, veiled
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models.network import initial, network
from fedcohort.models.radial import Radial
from fedcohort.protocol import Task
from fedcohort.protocol.step import Site, mark_of

TASK = Task(kind="classification", features=("a", "b"), outcome="binary", min_cell=5, seed=3)
SHARED = np.array([True, False])
GIVEN = {"shared": SHARED, "unit": 1.0, "seed": 3, "least": 5}


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return LabelledTable(x, (x[:, 0] + rng.normal(size=n) > 0).astype(float))


def plan_of(**chosen):
    return METHOD.configure({"q": 2, "hidden": (4,), **chosen}).plan(TASK)


def mixture(plan, sites=("us", "them")):
    """Two sites' groups, as arguments."""
    d, k = plan.codes(SHARED.tolist()), plan.normals
    return {
        "marks": np.array([mark_of(s) for s in sites], np.int64),
        "rows": np.full((2, k), 20.0),
        "means": np.zeros((2, k, d)),
        "covariances": np.tile(np.eye(d), (2, k, 1, 1)),
    }


def train(plan, **changed):
    site = Site("us", table(), None, (0, 1))
    given = {**mixture(plan), **changed}
    return steps.train_networks.run(site, plan=plan.text, **GIVEN, **given, epochs=1)


def forged(plan, name, at, value):
    array = mixture(plan)[name].copy()
    array[at] = value
    return {name: array}


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("means", (1, 0, 0), np.nan),
        ("means", (1, 0, 0), 2 * WIDEST),
        ("rows", (1, 0), -1.0),
        ("rows", (1, 0), np.inf),
        ("covariances", (1, 0, 0, 0), -1.0),
        ("covariances", (1, 0, 0, 1), 0.5),
        ("covariances", (1, 0, 0, 0), 4 * WIDEST**2),
    ],
)
def test_a_site_does_not_train_with_a_forged_mixture(name, at, value):
    with pytest.raises(fc.FedcohortError, match="the coordinator sent"):
        train(plan_of(), **forged(plan_of(), name, at, value))


@pytest.mark.parametrize("name", ["rows", "means", "covariances"])
def test_a_site_does_not_train_with_groups_of_another_number_or_without_its_own(name):
    plan = plan_of()
    with pytest.raises(fc.FedcohortError, match="the coordinator sent"):
        train(plan, **{name: mixture(plan)[name][:, :1]})
    with pytest.raises(fc.FedcohortError, match="or none of this site"):
        train(plan, **mixture(plan, ("ghost", "them")))


def test_an_honest_mixture_of_three_normals_is_accepted():
    assert train(plan_of(components=3)).reply.sites == 1


@pytest.mark.parametrize("least", [1, 4])
def test_a_site_of_an_approved_study_tells_no_group_of_fewer_rows_than_min_cell(least):
    config = METHOD.configure({})
    assert least not in METHOD.bounds(config, TASK)["least"]
    assert 5 in METHOD.bounds(config, TASK)["least"]


def test_a_reply_with_a_forged_mixture_is_left_out():
    plan = plan_of(components=2)
    asked = {"plan": plan.text, "shared": SHARED, "least": 5}
    d, k = plan.codes(SHARED.tolist()), plan.normals

    def fault(**changed):
        fine = {"rows": np.full(k, 9.0), "means": np.zeros((k, d)),
                "covariances": np.tile(np.eye(d), (k, 1, 1))}  # fmt: skip
        return Groups(**{**fine, **changed}).fault(asked)

    assert fault() == ""
    assert "fewer rows than min_cell" in fault(rows=np.array([9.0, 3.0, 9.0, 0.0]))
    assert "negative eigenvalue" in fault(covariances=np.tile(-np.eye(d), (k, 1, 1)))
    assert "beyond" in fault(means=np.full((k, d), 1e9))
    assert "numbers or shapes" in fault(rows=np.full(k + 1, 9.0))


def test_forged_codes_and_slopes_are_refused_on_both_sides():
    plan = plan_of(shares="codes", carry="none")
    asked = {"plan": plan.text, "shared": SHARED, "z": np.zeros((2, 3, 2))}
    assert Codes(np.zeros((3, 2))).fault(asked) == ""
    assert "no codes" in Codes(np.full((3, 2), 1e9)).fault(asked)
    assert "no codes" in Codes(np.zeros((3, 4))).fault(asked)
    assert Slopes(np.zeros((2, 3, 2)), np.zeros(3)).fault(asked) == ""
    assert "another shape" in Slopes(np.zeros((2, 4, 2)), np.zeros(3)).fault(asked)

    def ask(slopes, state=None):
        site = Site("us", table(), state, (0, 1))
        return steps.encode.run(site, plan=plan.text, **GIVEN, slopes=slopes)

    held = ask(np.zeros((0, 2))).state
    held = type(held)(**{**vars(held), "slope": np.zeros(len(held.theta))})
    b = len(held.chosen)
    ask(np.zeros((b, 2)), held)
    for slopes in (np.zeros((b + 1, 2)), np.full((b, 2), np.nan), np.full((b, 2), 1e9)):
        with pytest.raises(fc.FedcohortError, match="the coordinator sent slopes"):
            ask(slopes, held)
    fine = {"z": np.zeros((2, 3, 2)), "counts": np.full(2, 3.0), "rows": np.full(2, 9.0)}

    def answer(**changed):
        marks = np.array([mark_of("us"), mark_of("them")], np.int64)
        site = Site("us", table(), held, (0, 1))
        steps.answer_codes.run(site, plan=plan.text, **GIVEN, marks=marks, **{**fine, **changed})

    answer()
    with pytest.raises(fc.FedcohortError, match="the coordinator sent no codes"):
        answer(z=np.full((2, 3, 2), np.inf))
    for odd in ({"counts": np.full(2, 4.0)}, {"rows": np.zeros(2)}, {"rows": np.full(2, np.nan)}):
        with pytest.raises(fc.FedcohortError, match="other numbers of codes"):
            answer(**odd)


@pytest.mark.parametrize("virtual", [-1.0, 1e12, np.nan])
def test_a_site_makes_no_more_virtual_rows_than_a_setting_allows(virtual):
    plan = plan_of()
    site = Site("us", table(), None, (0, 1))
    with pytest.raises(fc.FedcohortError, match="virtual rows for each own row"):
        steps.keep_predictor.run(site, plan=plan.text, **GIVEN, **mixture(plan), virtual=virtual)


@given(seed=st.integers(0, 1000), unit=st.floats(1e-9, 1e9))
def test_another_unit_of_times_tells_no_more_of_a_record(seed, unit):
    """A floor in the study's unit told, by two units, the times between the two floors."""
    rng = np.random.default_rng(seed)
    task = Task(kind="survival", features=("a",), outcome="survival")
    plan = METHOD.configure({}).plan(task)
    data = SurvivalTable(rng.normal(size=(9, 1)), rng.weibull(1.0, 9), rng.random(9) < 0.5)
    one, other = (records_of(data, plan, u, 5).r[:, -1] for u in (1.0, unit))
    assert_allclose(one - other, np.log(unit), atol=1e-9)


@settings(max_examples=5)  # k-means each time
@given(seed=st.integers(0, 1000), m=st.integers(2, 7), most=st.integers(1, 5))
def test_every_part_of_a_class_has_min_cell_rows_and_each_row_is_in_one(seed, m, most):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(int(rng.integers(m, 60)), 2)) + 4 * rng.integers(0, 3, (1, 1))
    z[: len(z) // 3] += 6
    told = groups_of(z, np.zeros(len(z), int), 1, m, components=most, seed=1)
    assert told.rows.sum() == len(z)
    assert (told.rows[told.rows > 0] >= m).all()
    part = parts_of(z, most, m, 1)
    assert_array_equal(np.sort(np.bincount(part)), np.sort(told.rows[told.rows > 0]))


def test_two_far_groups_of_codes_get_a_normal_each():
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(-5, 1, (40, 2)), rng.normal(5, 1, (60, 2))])
    told = groups_of(z, np.zeros(100, int), 1, 5, components=2)
    at = told.means[:, 0].argsort()
    assert_array_equal(told.rows[at], [40, 60])
    assert_allclose(told.means[at], [z[:40].mean(axis=0), z[40:].mean(axis=0)])
    assert_allclose(told.covariances[at[0]], np.cov(z[:40].T))


@given(n=st.integers(5, 40), share=st.floats(0, 1), m=st.integers(2, 7), seed=st.integers(0, 99))
def test_the_mean_of_a_flag_times_rows_is_a_multiple_of_min_cell(n, share, m, seed):
    flag = (np.arange(n) < round(share * n)).astype(float)
    z = np.column_stack([np.random.default_rng(seed).normal(size=n), flag])
    told = veiled(z, m, np.random.default_rng(seed))
    count = round(told[:, 1].sum())
    assert count % m == 0 or count == n
    assert abs(count - flag.sum()) <= m
    assert_array_equal(told[:, 0], z[:, 0])
    assert_array_equal(told, veiled(z, m, np.random.default_rng(seed)))  # alike in each round


def test_a_code_far_from_all_others_is_not_told():
    z = np.random.default_rng(0).normal(size=(40, 2))
    z[7, 1] = 1e6
    told = groups_of(z, np.zeros(40, int), 1, 5)
    assert_allclose(told.means[0, 1], np.delete(z[:, 1], 7).mean())
    assert told.covariances[0, 1, 1] < 2


@given(seed=st.integers(0, 500), parts=st.integers(1, 6), q=st.integers(1, 3))
def test_a_private_fit_puts_each_record_into_one_part_that_no_other_record_decides(seed, parts, q):
    z = np.random.default_rng(seed).normal(size=(9, q))
    part = private.sector(z, parts)
    assert part.min() >= 0
    assert part.max() < parts
    assert_array_equal(part[:8], private.sector(z[:8], parts))


@given(seed=st.integers(0, 200))
def test_with_several_normals_a_record_more_changes_the_private_sums_as_little(seed):
    rng = np.random.default_rng(seed)
    plan = private.plan_of(METHOD.configure({"q": 2, "components": 3}), TASK)
    x, y = rng.uniform(-1, 1, size=(6, 2)), rng.integers(0, 2, 6).astype(float)

    def told(n):
        site = Site("us", LabelledTable(x[:n], y[:n]), None, (0,))
        found = private.tell_groups_privately.run(site, plan=plan.text, unit=1.0, seed=0, clip=1.5)
        return found.reply.upper, found.sensitivity["upper"]

    (more, most), (less, _) = told(6), told(5)
    assert np.linalg.norm(more - less) <= most * (1 + 1e-12)
    assert (np.abs(more - less).sum(axis=1) > 0).sum() == 1


# labels that change sides --------------------------------------------------------------

#: x0, and a class.
HEADS = [
    ["normal", [0], 0.0, 1.0, None, None, False],
    ["bernoulli", [1], 0.0, 1.0, 0.0, 1.0, False],
]


def nets(carried, seed=0):
    """A site's networks, and the same with decoder and encoder mirrored: (x, y) → (−x, 1 − y)."""
    spec = Radial(inputs=2, latent=2, heads=HEADS, hidden=(3,), activation="tanh", carried=carried)
    found = []
    for turned in (False, True):
        net = network(spec.spec)
        net.load(initial(spec.spec, seed) * 2.0)
        m = copy.deepcopy(net.module)
        if turned:
            with torch.no_grad():
                for stack in (m.encoder, m.judge):
                    w, b = stack[0].weight, stack[0].bias
                    b += w[:, 1]
                    w *= -1.0
                m.decoder[-1].weight *= -1.0
                m.decoder[-1].bias *= -1.0
        found.append(m)
    return found


def losses(module, r, z):
    weights = torch.full((len(z),), 1.0 / len(z), dtype=torch.float64)
    return [
        float(v.detach()) for v in module.losses(r, z, weights, torch.ones(2, dtype=torch.float64))
    ]


def mirrored_rows():
    """Records of a site, among them each one's mirror image."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 20).astype(float)
    r = np.column_stack([rng.normal(2 * y - 1, 0.7), y])
    return torch.from_numpy(np.concatenate([r, np.column_stack([-r[:, 0], 1 - r[:, 1]])]))


def test_by_the_papers_losses_a_decoder_that_swaps_all_labels_is_as_good():
    """`carry: none`: nothing in eqs. (5.5) and (5.6) keeps another site's cases from being decoded
    as controls. The rows of the site are as likely after (x, y) → (−x, 1 − y).
    """
    right, swapped = nets(())
    r, z = mirrored_rows(), torch.from_numpy(np.random.default_rng(2).normal(size=(30, 2)))
    own = torch.ones(2, dtype=torch.float64)
    assert_allclose(losses(swapped, r, z), losses(right, r, z), rtol=1e-12)
    y, other = (m.decode(z, own)[:, 1].detach().numpy() for m in (right, swapped))
    assert_allclose(other, 1 - y, atol=1e-12)


def test_with_the_outcome_carried_labels_are_those_of_the_code():
    r = mirrored_rows()
    own = torch.ones(2, dtype=torch.float64)
    for module in nets((1,)):
        back = module.decode(module.encode(r), own)[:, 1]
        assert_array_equal(back.detach().numpy(), r[:, 1].numpy())
