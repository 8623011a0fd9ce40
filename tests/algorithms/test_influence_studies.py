"""Studies over a network consent to `ndoye` and `influence`, and to no other user than theirs."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from algorithms.worth_cases import hosts, values
from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.algorithms.influence.steps import own_sums
from fedcohort.algorithms.ndoye.steps import own_model
from fedcohort.protocol import DataError, Refused
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call
from fedcohort.runtime.local import local
from fedcohort.study.at_site.bounds import Bounds
from fedcohort.training.coalitions import judge_here

ARMS = {
    "regression": [
        "{method: ndoye, user: oslo}",
        "{method: ndoye, user: oslo, k: 1}",
        "{method: ndoye, user: oslo, train: false}",
        "{method: influence, user: bergen}",
        "{method: influence, user: bergen, use: weight, coalitions: 1, permutations: 5}",
    ],
    "classification": [
        "{method: ndoye, user: oslo, l2: 0.1}",
        "{method: influence, user: bergen, l2: 0.1}",
    ],
}
SAMPLES = {"regression": "diabetes", "classification": "breast_cancer"}


@pytest.mark.parametrize("task", ARMS)
def test_every_site_consents_to_what_an_honest_study_asks(tmp_path, task):
    arms = ", ".join(f"{a[:-1]}, name: a{i}}}" for i, a in enumerate(ARMS[task]))
    terms = terms_of(tmp_path, SAMPLES[task], f"[{arms}]", task=task, bounds="[]")
    run_local(terms, tables_of(terms, frames_of(SAMPLES[task])), tmp_path / "out")
    found = {a["arm"]: a["status"] for a in results_of(tmp_path / "out")["arms"]}
    assert found == {f"a{i}": "done" for i in range(len(ARMS[task]))}


def test_tuning_may_choose_how_many_sites(tmp_path):
    tune = "{by: row-kfold, grid: {k: [1, 2]}}"
    arm = "[{method: ndoye, user: oslo, name: a}]"
    terms = terms_of(tmp_path, "diabetes", arm, task="regression", bounds="[]", tune=tune)
    run_local(terms, tables_of(terms, frames_of("diabetes")), tmp_path / "out")
    assert {a["status"] for a in results_of(tmp_path / "out")["arms"]} == {"done"}


@pytest.mark.parametrize(
    ("arm", "step", "asked", "change"),
    [
        ("influence, user: oslo", own_sums, {"held": 50}, {"user": "bergen"}),
        ("influence, user: oslo", own_sums, {"held": 50}, {"law": "binomial"}),
        ("influence, user: oslo", own_sums, {"held": 50}, {"classes": 3}),
        ("influence, user: oslo", own_sums, {"held": 50}, {"least": 4}),
        ("influence, user: oslo", own_sums, {"held": 50}, {"held": 51}),
        ("influence, user: oslo", judge_here, {"held": 50}, {"held": 51}),
        ("influence, user: oslo", judge_here, {"held": 50}, {"user": "bergen"}),
        ("ndoye, user: oslo", judge_here, {"held": 0}, {"held": 10}),
        ("ndoye, user: oslo", own_model, {"n_folds": 5}, {"n_folds": 100}),
        ("ndoye, user: oslo", own_model, {"n_folds": 5}, {"law": "poisson"}),
        ("ndoye, user: oslo", own_model, {"n_folds": 5}, {"classes": 3}),
    ],
)
def test_a_site_refuses_another_user_law_share_or_number_of_folds(
    tmp_path, arm, step, asked, change
):
    arms = f"[{{method: {arm}}}]"
    terms = terms_of(tmp_path, "diabetes", arms, task="regression", bounds="[]")
    held = Bounds(terms, "fit", terms.plan.arms[0], seed=7)
    call = Call(0, step, step.verb, None, Arguments({}, ()), among=("bergen", "oslo", "tromsø"))
    fine = {
        "law": "gaussian",
        "classes": 0,
        "user": "oslo",
        "least": 5,
        "origin": np.zeros(2),
        **asked,
    }
    names = {*inspect.signature(step.run).parameters}
    fine = {name: value for name, value in fine.items() if name in names}
    held.check(call, fine)
    with pytest.raises(Refused, match="more than the approved study"):
        held.check(call, {**fine, **change})


def test_no_other_site_than_the_users_judges_models():
    tables = {name: values(40, seed=i) for i, name in enumerate(("user", "a", "b"))}
    fed = local(hosts("influence", tables))
    asked = {"law": "gaussian", "classes": 0, "user": "user", "held": 50, "least": 5}
    at = {"origin": np.zeros(3), "points": np.zeros((1, 4))}
    assert fed.only(["user"]).gather(judge_here, **asked, **at)["user"].loss.shape == (1,)
    with pytest.raises(
        DataError, match="site 'a' does not judge models: it is not the user's site"
    ):
        fed.gather(judge_here, **asked, **at)
