"""Private boosting: sensitivity by brute force, its noise, an audit, and what is predicted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score, roc_auc_score

import fedcohort as fc
from examples import examples
from fedcohort.algorithms.boosting import METHOD, private
from fedcohort.audit.canaries import play
from fedcohort.data.tables import LabelledTable
from fedcohort.privacy import accounting
from fedcohort.privacy.guard import SiteGuard
from fedcohort.protocol import Dp, InputError, Refused, Site, Task
from overheard import listen

ROUNDING = 1 + 1e-9
FEATURES = {f"x{j}": {"type": "number", "usual": [-1, 1]} for j in range(4)}
OUTCOMES = {
    "logistic": (fc.Binary("y"), {"type": "binary"}),
    "squared": (fc.Continuous("y"), {"type": "number", "usual": [-6, 6]}),
    "softmax": (fc.Category("y"), {"type": "category", "levels": ["a", "b", "c"]}),
    "poisson": (fc.Count("y"), {"type": "integer"}),
}


def cohort(objective: str, n: int = 2000, seed: int = 1) -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 4))
    eta = 3 * x[:, 0] + 4 * np.abs(x[:, 1]) - 2 + 3 * x[:, 2] * x[:, 3]
    x[rng.random(n) < 0.05, 3] = np.nan
    noisy = eta + rng.logistic(size=n)
    table = pd.DataFrame(x, columns=list(FEATURES)).assign(
        sex=rng.integers(0, 2, n),
        y={
            "logistic": (noisy > 0).astype(int),
            "squared": eta + rng.normal(0, 0.5, n),
            "softmax": np.array(["a", "b", "c"])[np.digitize(noisy, [-1, 1.5])],
            "poisson": rng.poisson(np.exp(eta / 3)),
        }[objective],
    )
    outcome, variable = OUTCOMES[objective]
    dictionary = {"variables": {**FEATURES, "sex": {"type": "binary"}, "y": variable}}
    frames = {f"s{i}": table.iloc[i::3].reset_index(drop=True) for i in range(3)}
    return fc.simulate(frames, outcome=outcome, dictionary=dictionary), table


def fitted(objective: str, epsilon: float, n: int = 2000, **more: Any) -> Any:
    fed, _ = cohort(objective, n)
    given = {"rounds": 40, "max_depth": 3, "learning_rate": 0.2, "seed": 0, **more}
    return fc.fit("boosting", fed, objective=objective, dp={"epsilon": epsilon}, **given)


# sensitivity and noise --------------------------------------------------------------------


@settings(max_examples=examples(80), deadline=None)
@given(
    objective=st.sampled_from(sorted(private.HESSIAN)),
    n=st.integers(1, 9),
    depth=st.integers(1, 3),
    rounds=st.integers(1, 3),
    clip=st.sampled_from([0.1, 1.0, 5.0]),
    far=st.sampled_from([0.0, 1.0, 1e3, 1e38]),
    seed=st.integers(0, 2**16),
)
def test_any_record_removed_changes_the_sums_by_their_sensitivity_at_most(
    objective: str, n: int, depth: int, rounds: int, clip: float, far: float, seed: int
):
    rng = np.random.default_rng(seed)
    k, size = 3 if objective == "softmax" else 1, 2**depth
    x = np.where(rng.random((n, 2)) < 0.2, np.nan, rng.normal(size=(n, 2)))
    y = rng.integers(0, 2, n).astype(float) if k == 1 else rng.integers(0, 3, n).astype(float)
    y = y * 1e6 if objective == "squared" else y
    asked = {
        "objective": objective, "classes": k, "clip": clip, "centre": 0.3, "scale": 2.0, "first": 0,
        "feature": rng.integers(0, 2, (rounds, size - 1)),
        "threshold": rng.uniform(-1, 1, (rounds, size - 1)),
        "missing_left": rng.random((rounds, size - 1)) < 0.5,
        "values": far * rng.uniform(-1, 1, (rounds - 1, size, k)),
    }  # fmt: skip

    def told(keep: Any) -> Any:
        table = LabelledTable(x[keep], y[keep])
        return private.sum_leaves_privately.run(Site("north", table, None, (0, 1)), **asked).reply

    whole = told(np.arange(n))
    for i in range(n):
        less = told(np.arange(n) != i)
        for field, most in whole.sensitivity.items():
            moved = np.linalg.norm(getattr(whole.reply, field) - getattr(less.reply, field))
            assert moved <= most * ROUNDING


def test_the_noise_is_that_of_the_accountant_and_spends_the_epsilon():
    config, dp = METHOD.configure({"objective": "softmax", "rounds": 40}), Dp(epsilon=2.0)
    (release,) = private.releases(config, dp)
    assert release.count == 40
    assert 0.98 * dp.epsilon < accounting.epsilon([release], dp.delta) <= dp.epsilon


@pytest.mark.parametrize("objective", ["logistic", "softmax"])
def test_each_sum_has_noise_of_root_2_times_multiplier_and_sensitivity(
    objective: str, monkeypatch: pytest.MonkeyPatch
):
    whole = private.record_parts

    def nothing(*asked: Any) -> Any:
        g, h = whole(*asked)
        return 0 * g, 0 * h

    monkeypatch.setattr(private, "record_parts", nothing)
    heard = listen(monkeypatch)
    fitted(objective, 1.0, 300, rounds=50)
    config = METHOD.configure({"objective": objective, "rounds": 50})
    (release,) = private.releases(config, Dp(epsilon=1.0, clip=1.0))
    for field, most in (("gradient", 1.0), ("hessian", private.HESSIAN[objective])):
        noise = np.array([told.reply[field] for told in heard])
        # two of three sites add all of the noise, so three add 3/2 of its variance
        usual = np.sqrt(1.5) * np.sqrt(2) * release.noise * most
        assert noise.std() == pytest.approx(usual, rel=0.1)


# an audit ---------------------------------------------------------------------------------


def audited(seed: int, epsilon: float) -> float:
    """Return the lower bound of ε from 512 canaries, each alone in its leaf of three trees."""
    depth, m = 9, 512
    config = METHOD.configure({"objective": "squared", "rounds": 3, "max_depth": depth})
    dp = Dp(epsilon=epsilon, clip=1.0)
    releases = private.releases(config, dp)
    guard = SiteGuard.simulated("audited", "boosting", releases, dp, m, seed)
    middle = np.array([(2 * i + 1) / 2 ** (d + 1) for d in range(depth) for i in range(2**d)])
    x = (np.arange(m)[:, None] + 0.5) / m
    asked = {
        "objective": "squared", "classes": 1, "clip": 1.0, "centre": 0.0, "scale": 1.0, "first": 0,
        "feature": np.zeros((1, m - 1), int), "threshold": middle[None],
        "missing_left": np.zeros((1, m - 1), bool), "values": np.zeros((0, m, 1)),
    }  # fmt: skip

    def release(coins: np.ndarray) -> np.ndarray:
        table = LabelledTable(x[coins], np.full(int(coins.sum()), 40.0))
        step = private.sum_leaves_privately
        told = step.run(Site("audited", table, None, (0,)), **asked).reply
        found = []
        for number in range(3):
            call: Any = SimpleNamespace(step=SimpleNamespace(name=step.name), number=number)
            exact = {f: getattr(told.reply, f) for f in ("gradient", "hessian")}
            noisy = guard.perturbed(step.name, guard.source(call), exact, told.sensitivity, 1)
            found.append((noisy["hessian"] - noisy["gradient"])[:, 0])
        return np.stack(found)

    game = play(release, m, 120, dp.epsilon, dp.delta, np.random.default_rng(seed))
    return game.epsilon_low


@pytest.mark.parametrize("seed", range(3))
def test_an_audit_refutes_no_honest_fit_and_catches_gradients_that_are_not_cut(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    assert 0.3 < audited(seed, 3.0) <= 3.0
    monkeypatch.setattr(private, "cut", lambda rows, most: 4.0 * rows)
    assert audited(seed, 3.0) > 3.0


# what is learnt -----------------------------------------------------------------------------


def test_predictions_come_nearer_to_the_truth_as_epsilon_grows():
    _, later = cohort("logistic", seed=2)
    found = [
        roc_auc_score(later.y, fitted("logistic", epsilon).predict(later))
        for epsilon in (0.02, 1.0, 50.0)
    ]
    assert found[0] < found[1] < found[2]
    assert found[1] > 0.78
    assert found[2] > 0.84


def test_a_private_fit_learns_values_in_their_own_units():
    _, later = cohort("squared", seed=2)
    assert r2_score(later.y, fitted("squared", 3.0).predict(later)) > 0.6


@pytest.mark.parametrize("objective", sorted(private.HESSIAN))
def test_a_private_model_is_saved_and_is_an_xgboost_file(objective: str, tmp_path: Any):
    fit = fitted(objective, 3.0, 600, rounds=5)
    _, table = cohort(objective, 200, seed=3)
    fit.save(tmp_path / "model")
    again = fc.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(table), fit.predict(table))
    rng = np.random.default_rng(0)
    x = np.where(rng.random((100, 5)) < 0.1, np.nan, rng.uniform(-1, 1, (100, 5)))
    booster = xgboost.Booster()
    booster.load_model(bytearray(fit.model.files()["xgboost.json"]))
    theirs = booster.predict(xgboost.DMatrix(x, feature_names=list(fit.model.features)))
    np.testing.assert_allclose(theirs, fit.model.predict(x), rtol=1e-5, atol=1e-5)


def test_a_private_fit_asks_for_noisy_sums_of_leaves_alone():
    fit = fitted("logistic", 3.0, 600, rounds=4)
    assert fit.ledger.step.unique().tolist() == ["sum_leaves_privately"]
    assert (fit.ledger.mechanism == "gaussian").all()


class Unnoised:
    """Sites whose sums have no noise, of which `b` is away from two rounds."""

    def __init__(self, tables: dict[str, LabelledTable]):
        self.tables, self.sites, self.answered = tables, tuple(tables), tuple[str, ...]()
        self.states: dict[str, Any] = {}
        self.heard: list[Any] = []
        self.sent: list[int] = []

    def only(self, sites: Any) -> Any:
        self.sites = tuple(sites)
        return self

    def rounds(self, most: int) -> range:
        return range(most)

    def record(self, **values: float) -> None:
        pass

    def sum(self, step: Any, **asked: Any) -> Any:
        self.answered = tuple(s for s in self.sites if s != "b" or len(self.heard) not in (2, 3))
        g = h = 0.0
        for s in self.answered:
            kept = step.run(Site(s, self.tables[s], self.states.get(s), (0,)), **asked)
            self.states[s] = kept.state
            g, h = g + kept.reply.reply.gradient, h + kept.reply.reply.hessian
        self.heard.append((self.answered, g))
        self.sent.append(len(asked["feature"]))
        return private.Leaves(np.asarray(g), np.asarray(h))


def test_each_round_sends_new_trees_alone_and_a_site_that_was_away_gets_those_that_it_lacks():
    rng = np.random.default_rng(5)
    names = ("x0", "x1")
    tables = {
        s: LabelledTable(rng.uniform(-1, 1, (30, 2)).astype(np.float32), rng.integers(0, 2, 30))
        for s in "abc"
    }
    dp = Dp(epsilon=3.0, clip=1.0)
    task = Task(
        kind="classification", outcome="binary", features=names, levels=("0", "1"), dp=dp, seed=1
    )
    config = METHOD.configure({"objective": "logistic", "rounds": 6, "max_depth": 2})
    fed: Any = Unnoised(tables)
    model = private.fit(fed, config, task, dp)
    assert fed.sent == [1, 2, 2, 3, 4, 2]
    for t, (here, told) in enumerate(fed.heard):
        want = np.zeros(4)
        for s in here:
            x, y = tables[s].x, tables[s].y
            p = 1 / (1 + np.exp(-model.at_round(t).margins(x)[:, 0]))
            leaf = model.ensemble.trees.leaves(x)[:, t] - model.ensemble.trees.roots[t] - 3
            np.add.at(want, leaf, p - y)
        np.testing.assert_allclose(told[:, 0], want, rtol=1e-6, atol=1e-6)


def test_the_bytes_of_a_private_fit_grow_as_its_rounds():
    few, many = (fitted("logistic", 3.0, 600, rounds=n).run.ledger.bytes_down for n in (20, 80))
    assert many < 4.2 * few


# refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "given", "dp", "text"),
    [
        ("logistic", {"objective": "auto"}, {}, "'objective' .* is 'auto'; .* by name"),
        ("poisson", {}, {}, "'objective' .* is 'poisson'; .* needs one of"),
        ("logistic", {"objective": "softmax"}, {}, "'objective' .* the outcome is binary"),
        ("logistic", {"subsample": 0.5}, {}, "'subsample' .* Leave it out"),
        ("logistic", {"increasing": ("x0",)}, {}, "'increasing' .* Leave it out"),
        ("logistic", {"max_depth": 12}, {}, "'max_depth' .* at most 10"),
        ("logistic", {}, {"unit": "site"}, "choose 'record'"),
    ],
)
def test_settings_without_a_private_fit_are_refused_in_one_line(
    objective: str, given: dict[str, Any], dp: dict[str, Any], text: str
):
    fed, _ = cohort(objective, 300)
    with pytest.raises(InputError, match=text) as caught:
        asked = {"objective": objective, **given}
        fc.fit("boosting", fed, dp={"epsilon": 3, **dp}, seed=0, **asked)
    assert "\n" not in str(caught.value)


ASKED = {
    "objective": "logistic", "classes": 1, "clip": 1.0, "centre": 0.0, "scale": 1.0, "first": 0,
    "feature": np.zeros((2, 3), int), "threshold": np.zeros((2, 3)),
    "missing_left": np.zeros((2, 3), bool), "values": np.zeros((1, 4, 1)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("objective", "mine"),
        ("classes", 0),
        ("feature", np.full((2, 3), 9)),
        ("feature", np.zeros((2, 4), int)),
        ("feature", np.zeros(3, int)),
        ("threshold", np.full((2, 3), np.nan)),
        ("threshold", np.zeros((2, 7))),
        ("missing_left", np.zeros((2, 3))),
        ("values", np.zeros((2, 4, 1))),
        ("values", np.full((1, 4, 1), np.inf)),
        ("first", 1),
        ("first", -1),
    ],
)
def test_a_site_refuses_trees_that_are_none(name: str, value: Any):
    table = LabelledTable(np.zeros((5, 2)), np.zeros(5))
    with pytest.raises(Refused, match=r"^site 'h': argument '\w+' of boosting") as caught:
        private.sum_leaves_privately.run(Site("h", table, None, (0,)), **ASKED | {name: value})
    assert "\n" not in str(caught.value)
