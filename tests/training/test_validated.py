"""The coordinator's own rows: first model, validation loss, R of the sites' models, and the halt.

Each is computed again by hand, from a logistic regression's gradient in numpy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from sklearn.metrics import log_loss

from fedcohort.data.tables import LabelledTable
from fedcohort.models.network import Mlp
from fedcohort.protocol import OwnRows, SettingError, Task, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.absences import Availability
from fedcohort.runtime.local import local
from fedcohort.training.networks import strategies
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.settings import ValidatedSettings
from fedcohort.training.networks.validated import CoordinatorRows, Validated, mixing, validating
from fedcohort.training.rows import known_rows

RATE, ROUNDS = 0.5, 12
#: Rate, sign of one site's effects and level: no halt, one that lasts, and one that ends.
CASES = {"none": (0.5, 1.0, 1.44), "lasts": (0.5, -1.0, 1.44), "ends": (0.1, -1.0, 5.0)}
PLAN = Plan(network=Mlp(inputs=2, hidden=()).spec, loss="logistic", epochs=3, optimiser="sgd")
ROWS = {"a": 40, "b": 67, "c": 52}
SCHEDULE = Schedule(rounds=ROUNDS, learning_rate=RATE, lr_rule="constant")


def table(seed, n, sign=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return LabelledTable(x, (rng.random(n) < expit(sign * (x @ [2.0, -1.0]) + 0.2)).astype(float))


def sites(sign):
    return {s: table(i, n, sign if s == "c" else 1.0) for i, (s, n) in enumerate(ROWS.items())}


def task(first=60, validation=50):
    own = OwnRows(table(8, first), table(9, validation) if validation else None)
    return Task(kind="classification", features=("a", "b"), outcome="binary", own=own)


def visited(theta, t, rate=RATE):
    x = np.c_[t.x, np.ones(len(t.y))]
    for _ in range(PLAN.epochs):
        theta = theta - rate * x.T @ (expit(x @ theta) - t.y) / len(t.y)
    return theta


def loss(theta, t):
    return log_loss(t.y, expit(np.c_[t.x, np.ones(len(t.y))] @ theta))


def r_of(losses):
    """Eq. (2) of the module by numpy's variances: B/T is the variance of the sites' means."""
    t = len(losses)
    within = np.var(losses, axis=0, ddof=1).mean()
    between = np.var(np.mean(losses, axis=0), ddof=1)
    return ((1 - 1 / t) * within + between) / within


def by_hand(data, validation, level, rate=RATE):
    """Return θ, the sites' models, each round's losses, R and halt."""
    n = np.array([*ROWS.values()], float)
    theta, models, halted = np.zeros(3), {}, False
    losses, seen = [], []
    for _ in range(ROUNDS):
        models = {s: visited(models[s] if halted else theta, t, rate) for s, t in data.items()}
        losses.append([loss(m, validation) for m in models.values()])
        mean = n / n.sum() @ np.array([*models.values()])
        r = r_of(losses) if len(losses) >= 3 else None
        was, halted = halted, r is not None and bool(r > level)
        seen.append((losses[-1], r, was))
        if not was or not halted:
            theta = mean
    return theta, models, halted, seen


def trained(data, seen, rate=RATE, **options):
    fed = local([Host(n, t, strategies.STEPS, 4) for n, t in data.items()], **options)
    server = Server.at(np.zeros(3), rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)
    schedule = Schedule(rounds=ROUNDS, learning_rate=rate, lr_rule="constant")
    course = strategies.averaging(fed, PLAN, schedule, fedavg, server, lambda _: 0.0, watch=seen)
    return course, fed


@pytest.mark.parametrize("case", CASES)
def test_losses_r_and_halts_are_those_of_a_training_by_hand(case):
    rate, sign, level = CASES[case]
    data, own = sites(sign), CoordinatorRows.of(task(), PLAN)
    seen = Validated(own, level, halts=True)
    course, fed = trained(data, seen, rate)
    theta, models, halted, rounds = by_hand(data, table(9, 50), level, rate)
    for row, (losses, r, was) in zip(fed.history, rounds, strict=True):
        assert_allclose([row[f"validation_loss {s}"] for s in ROWS], losses, rtol=1e-9)
        assert row["halted"] == was
        assert ("R_models" in row) == (r is not None)
        assert r is None or row["R_models"] == pytest.approx(r, rel=1e-9)
    assert seen.halted == halted == (case == "lasts")
    assert any(was for *_, was in rounds) == (case != "none")
    assert_allclose(course.theta, theta, rtol=1e-9)
    thetas, share = seen.latest
    if halted:
        assert_allclose(thetas, [*models.values()], rtol=1e-9)
        assert_allclose(share, np.array([*ROWS.values()]) / sum(ROWS.values()))


def test_without_a_halt_the_model_is_that_of_averaging_by_sums():
    data = sites(-1.0)
    seen = Validated(CoordinatorRows.of(task(), PLAN), 1.01)
    watched, _ = trained(data, seen)
    plain, _ = trained(data, None)
    assert seen.fired is not None
    assert_allclose(watched.theta, plain.theta, rtol=1e-12)


def test_rounds_without_a_site_do_not_count_for_r_and_the_site_goes_on_from_its_own_model():
    data = sites(-1.0)
    law = Availability(away=0.4).of(list(ROWS), 0.5, 3, 1)
    seen = Validated(CoordinatorRows.of(task(), PLAN), 1.02, halts=True)
    _, fed = trained(data, seen, absent=law, quorum=0.5)
    full = [r for r in fed.history if sum(k.startswith("validation_loss") for k in r) == 3]
    assert 3 <= len(full) < ROUNDS
    losses = [[r[f"validation_loss {s}"] for s in ROWS] for r in full]
    last = [r for r in fed.history if "R_models" in r][-1]
    assert last["R_models"] == pytest.approx(r_of(losses), rel=1e-9)
    assert set(seen.models) == set(ROWS)


def test_the_first_model_is_the_one_of_the_best_validation_loss():
    own = CoordinatorRows.of(task(first=12), PLAN)
    first, validation = table(8, 12), table(9, 50)
    theta, tried = np.zeros(3), []
    for _ in range(40):
        theta = visited(theta, first)
        tried.append((loss(theta, validation), theta))
    best = int(np.argmin([value for value, _ in tried]))
    got = own.start(np.zeros(3), Schedule(rounds=40, learning_rate=RATE, lr_rule="constant"))
    assert best < 30  # it stopped early
    assert_allclose(got, tried[best][1], rtol=1e-9)
    assert own.loss(got) == pytest.approx(tried[best][0], rel=1e-9)
    alone = CoordinatorRows.of(task(first=12, validation=0), PLAN).start(np.zeros(3), SCHEDULE)
    assert_allclose(alone, tried[ROUNDS - 1][1], rtol=1e-9)


def test_with_validation_rows_sites_hold_none_out():
    plan = replace(PLAN, validation_fraction=0.2)
    assert CoordinatorRows.of(task(), plan).sites_plan(plan).validation_fraction == 0
    assert CoordinatorRows.of(task(validation=0), plan).sites_plan(plan) is plan
    assert CoordinatorRows.of(Task(kind="classification", features=("a",)), plan) is None


def test_r_of_equal_or_still_losses():
    assert mixing(np.array([[1.0, 1.0], [0.5, 0.5]])) == 0.5
    assert mixing(np.ones((3, 2))) == 1.0
    assert mixing(np.array([[1.0, 2.0]] * 3)) == np.inf


def test_r_of_the_sites_models_needs_validation_rows():
    class Config(ValidatedSettings):
        monitor = "validation"

    own = CoordinatorRows.of(task(validation=0), PLAN)
    with pytest.raises(SettingError, match="the coordinator has no validation rows"):
        validating(own, Config())


def test_what_needs_one_common_model_or_sums_does_not_go_with_models_that_the_coordinator_sees():
    for given, word in (
        ({"optimiser_state": "kept"}, "'optimiser_state'.*fresh with monitor: validation"),
        ({"compression": "int8"}, "'compression'.*none with monitor: validation"),
        ({"halt": True, "lr_rule": "plateau"}, "'lr_rule'.*plateau looks at the common model"),
    ):
        with pytest.raises(SettingError, match=word):
            registry.find("deepcox").configure({"monitor": "validation", **given})


def test_the_first_model_is_trained_by_plateau_with_validation_rows_and_at_one_rate_without():
    """Without validation rows no loss tells when to cut; counts are of sites alone."""
    schedule = Schedule(
        rounds=4, learning_rate=0.1, lr_rule="plateau", patience=3, patience_by="count"
    )
    plan = Plan(network=Mlp(inputs=2, hidden=()).spec, loss="linear", epochs=1, optimiser="sgd")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    rows = known_rows(LabelledTable(x, x @ [1.0, -1.0]), plan, (0, 0))
    for validation in (None, rows):
        theta = CoordinatorRows(plan, 0, rows, validation).start(np.zeros(3), schedule)
        assert abs(theta[:2] - [1.0, -1.0]).max() < abs(np.array([1.0, -1.0])).max()


# personal models -------------------------------------------------------------------------

LINEAR = {
    "model": "logistic", "learning_rate": RATE, "internal_epochs": 3, "l2": 0.0, "batch_size": 0,
}  # fmt: skip


def own_fit(data, own, **settings):
    method = registry.find("personal")
    fed = local([Host(n, t, method.steps, 4) for n, t in data.items()])
    return method.fit(fed, method.configure({**LINEAR, **settings}), own), fed


def first_model():
    """Return the first model by hand: that of the best validation loss."""
    theta, tried = np.zeros(3), []
    for _ in range(ROUNDS):
        theta = visited(theta, table(8, 60))
        tried.append((loss(theta, table(9, 50)), theta))
    return min(tried, key=lambda one: one[0])[1]


@pytest.mark.parametrize("way", ["local", "global", "fedper"])
def test_a_personal_model_starts_from_the_coordinators_first_model(way):
    data, theta = sites(-1.0), first_model()
    n = np.array([*ROWS.values()], float)
    wanted, own = theta, dict.fromkeys(data, theta[2])
    for _ in range(ROUNDS):
        if way == "local":
            wanted = visited(wanted, data["c"])
            continue
        start = {s: np.r_[wanted[:2], own[s]] if way == "fedper" else wanted for s in data}
        left = {s: visited(start[s], t) for s, t in data.items()}
        own = {s: v[2] for s, v in left.items()}
        wanted = n / n.sum() @ np.array([*left.values()])
    if way == "fedper":
        wanted = np.r_[wanted[:2], own["c"]]
    model, _ = own_fit(data, task(), way=way, user="c", rounds=ROUNDS)
    assert_allclose(model.theta, wanted, rtol=1e-9)
    without, _ = own_fit(data, replace(task(), own=None), way=way, user="c", rounds=ROUNDS)
    assert abs(without.theta - wanted).max() > 1e-6


def test_a_personal_part_begins_at_the_alarm_of_the_sites_models():
    data, level = sites(-1.0), 1.3
    theta, n, losses = first_model(), np.array([*ROWS.values()], float), []
    for done in range(1, ROUNDS + 1):
        models = {s: visited(theta, t) for s, t in data.items()}
        losses.append([loss(m, table(9, 50)) for m in models.values()])
        theta = n / n.sum() @ np.array([*models.values()])
        if done >= 3 and r_of(losses) > level:
            break
    assert 3 <= done < ROUNDS
    model, fed = own_fit(
        data, task(), way="fedper", user="all", rounds=ROUNDS, monitor="validation", alarm=level
    )
    assert model.common_rounds == done
    told = [[r[f"validation_loss {s}"] for s in ROWS] for r in fed.history[:done]]
    assert_allclose(told, losses, rtol=1e-9)
    with pytest.raises(SettingError, match="the coordinator has no validation rows"):
        own_fit(data, task(validation=0), way="fedper", user="all", monitor="validation")
