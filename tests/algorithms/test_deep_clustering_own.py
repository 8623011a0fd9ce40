"""Clusters of one site's own, against plain loops on its rows, and what sites tell for them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from algorithms.deep_clustering_cases import config_of, federation, fitted, groups, split, task_of
from algorithms.test_deep_clustering_exact import EXACT, ROUNDS, D, H, P, X, plainly, start
from fedcohort.algorithms.deep_clustering import METHOD, DeepClusters
from fedcohort.algorithms.deep_clustering.program import sharpen, sharpen_own
from fedcohort.protocol import NotSupported, SettingError, Task
from fedcohort.training.personal import PARTED

WAYS = ("finetune", "fedper", "fedrep", "ditto")
PARTS = split(X, np.arange(40) % 3)
USER = "site1"
#: Ranges of θ: the encoder's last layer (W_2, b_2), and what stands before and after it.
LAST = slice(H * P + H, H * P + H + D * H + D)


def plain_rounds(x, theta, mu, rounds=ROUNDS, epochs=1, gamma=0.0):
    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.5)

    *_, last = plainly(
        x, theta, mu, make=make, epochs=epochs, alpha=1.0, gamma=gamma, rounds=rounds
    )
    return last


def sharpened(by=sharpen_own, parts=PARTS, **settings):
    config = config_of(**EXACT, cluster_rounds=ROUNDS, **settings)
    fed = federation(parts)
    theta, mu = start(config)
    return *by(fed, config, task_of(X), theta, mu)[:2], fed, (theta, mu)


def own(way, **settings):
    return sharpened(personal=way, user=USER, **settings)


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_ditto_without_a_pull_is_the_clustering_of_the_users_rows_alone(gamma):
    theta, mu, _, begin = own("ditto", pull=0.0, gamma=gamma)
    expected = plain_rounds(PARTS[USER], *begin, gamma=gamma)
    assert_allclose(theta, expected[0], rtol=1e-9, atol=1e-11)
    assert_allclose(mu, expected[1], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("way", "given"), [("ditto", {"pull": 1e300}), ("finetune", {"own_epochs": 0})]
)
@pytest.mark.parametrize("target", ["global", "site"])
def test_at_their_limit_own_clusters_are_those_of_all(way, given, target):
    found, common = own(way, target=target, **given), sharpened(by=sharpen, target=target)
    assert_allclose(found[0], common[0], rtol=1e-12, atol=1e-14)
    assert_allclose(found[1], common[1], rtol=1e-12, atol=1e-14)


def test_finetune_goes_on_from_the_clusters_of_all_by_passes_over_the_users_rows():
    theta, mu, *_ = own("finetune", own_epochs=4)
    common = sharpened(by=sharpen)
    expected = plain_rounds(PARTS[USER], *common[:2], rounds=1, epochs=4)
    assert_allclose(theta, expected[0], rtol=1e-9, atol=1e-11)
    assert_allclose(mu, expected[1], rtol=1e-9, atol=1e-11)


def test_fedper_has_the_last_layer_and_centroids_of_each_site_and_the_mean_of_the_rest():
    theta, mu, _, (first, centroids) = own("fedper")
    common = first.copy()
    held = dict.fromkeys(PARTS, (first[LAST], centroids))
    for _ in range(ROUNDS):
        total = np.zeros(len(first))
        for name, x in PARTS.items():
            begin = common.copy()
            begin[LAST], m = held[name]
            left, m = plain_rounds(x, begin, m, rounds=1)
            held[name] = left[LAST], m
            total += len(x) * left
        common = total / len(X)
    common[LAST] = held[USER][0]
    assert_allclose(theta, common, rtol=1e-9, atol=1e-11)
    assert_allclose(mu, held[USER][1], rtol=1e-9, atol=1e-11)


def test_fedrep_trains_own_and_common_parts_in_turn():
    one, other = own("fedper"), own("fedrep", own_epochs=1)
    assert not np.allclose(one[0], other[0])
    assert (other[0][LAST] != other[3][0][LAST]).all()


def unlike(seed=0):
    """Return three sites of the same groups, a user whose groups share other columns, and both."""
    x, _ = groups(240, seed=seed)
    rng = np.random.default_rng(seed + 1)
    kind = rng.integers(3, size=120)
    likely = np.where(np.arange(12) // 4 == kind[:, None], 0.85, 0.1)
    mine = (rng.random((120, 12)) < likely).astype(float)
    parts = {f"site{j}": x[j::3] for j in range(3)}
    return {**parts, "user": mine}, kind


@pytest.mark.parametrize("given", [{"personal": "ditto", "pull": 0.1}, {"personal": "fedper"}])
def test_the_users_patients_have_other_clusters_where_its_population_is_another(given):
    parts, kind = unlike(2)
    longer = {
        "cluster_rounds": 40, "cluster_learning_rate": 0.01, "tol": 0.0, "gamma": 0.1,
        "cluster_batch_size": 0,
    }  # fmt: skip
    common = fitted(parts, **longer)
    mine = fitted(parts, **longer, user="user", **given)
    found = {m: adjusted_rand_score(kind, m.predict(parts["user"])) for m in (common, mine)}
    assert (common.predict(parts["user"]) != mine.predict(parts["user"])).any()
    assert found[mine] > found[common] + 0.1
    assert mine.user == "user"
    assert mine.own


def ledger_of(fed):
    return [json.loads(line) for line in fed.ledger.lines]


@pytest.mark.parametrize("target", ["global", "site"])
@pytest.mark.parametrize("way", WAYS)
def test_sites_tell_sums_alone_and_the_user_its_model(way, target):
    fed = federation(PARTS)
    settings = {"personal": way, "user": USER, "target": target, "rounds": 2, "cluster_rounds": 2}
    config = config_of(**settings)
    METHOD.fit(fed, config, task_of(X))
    lines = ledger_of(fed)
    gathered = {(line["step"], line["site"]) for line in lines if line["verb"] == "gather"}
    assert gathered == {("tell_clusters", USER)}
    assert {line["step"] for line in lines} == {step.name for step in METHOD.asked(config)}
    said = METHOD.revealed(config, None)
    assert "the user's own encoder and centroids" in said
    assert ("last layer and centroids stay there" in said) == (way in PARTED)


def alike(seed=0):
    x, _ = groups(900, seed=seed)
    return {f"site{j}": x[j::3] for j in range(3)}


@pytest.mark.parametrize("apart", [False, True])
def test_with_a_monitor_clusters_are_own_only_once_phase_1_saw_that_sites_differ(apart):
    parts = alike()
    if apart:
        parts["site2"] = 1 - parts["site2"]
    settings = {"rounds": 12, "monitor": "gradient", "batch_size": 0, "cluster_rounds": 3}
    fed = federation(parts)
    config = config_of(**settings, personal="ditto", user="site0")
    mine = METHOD.fit(fed, config, task_of(parts["site0"]))
    common = fitted(parts, **settings)
    assert isinstance(mine, DeepClusters)
    assert mine.own == apart
    assert any("were not found to differ" in said for said in mine.cautions()) == (not apart)
    assert np.array_equal(mine.theta, common.theta) == (not apart)
    alarms = [row["R"] > row["R_alarm"] for row in fed.history if "R" in row]
    assert any(alarms) == apart
    assert len(alarms) > 5


def test_a_saved_model_of_one_site_is_the_same():
    one = fitted(PARTS, personal="fedper", user=USER, rounds=2, cluster_rounds=2)
    back = DeepClusters.restore(one.arrays(), json.loads(json.dumps(one.meta())))
    assert_array_equal(back.predict(X), one.predict(X))
    assert (back.user, back.own) == (USER, True)


WRONG = [
    ({"personal": "apfl"}, "'apfl', which weighs two models by a loss"),
    ({"personal": "cluster"}, "'cluster', which lets sites choose the model of least loss"),
    ({"personal": "local"}, "choose one of"),
    ({"aggregation": "median"}, "does not go with aggregation 'median', which sees models"),
    ({"architecture": (2,), "personal": "fedper"}, "needs a common layer before the last"),
    ({"pull": -1.0}, "'pull' of method 'deep_clustering' is -1.0; give a number from 0"),
    ({"user": ""}, "'user' is not given; name the site"),
    ({"user": "nord"}, "'user' is 'nord', which is no site"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[str(g) for g, _ in WRONG])
def test_what_own_clusters_cannot_be_is_said_in_one_line_before_anything_is_asked(given, said):
    fed = federation(PARTS)
    with pytest.raises((SettingError, NotSupported), match=said) as error:
        METHOD.fit(fed, config_of(**{"personal": "ditto", "user": USER, **given}), task_of(X))
    assert "\n" not in str(error.value)
    assert not fed.ledger.lines


def test_two_sites_are_refused_and_so_is_a_way_for_nobody():
    two = {name: PARTS[name] for name in ("site0", "site1")}
    with pytest.raises(SettingError, match="needs 3 sites or more"):
        fitted(two, personal="ditto", user=USER)
    assert METHOD.bounds is not None
    task = Task(kind="clustering", features=("a", "b"))
    for user, ways in (("", 0), (USER, 3)):
        held = METHOD.bounds(config_of(personal="ditto", user=user), task)
        assert len({*held["way"]}) == min(ways, 1)
    held = METHOD.bounds(config_of(personal="fedper", user=USER), task)
    assert len(held["way"]) == 3


@pytest.mark.parametrize("noise", ["flip", "corruption"])
def test_phase_1_is_watched_without_the_noise_of_its_inputs(noise):
    fed = federation(alike())
    config = config_of(rounds=4, cluster_rounds=1, monitor="gradient", noise=noise, dropout=0.1)
    METHOD.fit(fed, config, task_of(alike()["site0"]))
    assert sum("R" in row for row in fed.history) == 3
    assert METHOD.bounds is not None
    held = METHOD.bounds(config, task_of(alike()["site0"]))
    assert config.watched_plan(12).text in held["plan"]
