"""A node's private sessions: noise of its own, kept replies, and a budget across studies."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedcohort.algorithms.deepcox import METHOD as DEEPCOX
from fedcohort.data.prepare import bounded_design
from fedcohort.models.network import initial
from fedcohort.network.state.budget import Budget, Spending
from fedcohort.network.state.policy import Allowance
from fedcohort.privacy.guard import SiteGuard
from fedcohort.protocol import Dp, Refused, Release, SiteFailed
from fedcohort.protocol.arguments import Parcel
from fedcohort.protocol.views import mark_of
from fedcohort.protocol.wire import decode
from fedcohort.runtime.calls import Seen
from fedcohort.runtime.reply_store import Answers
from fedcohort.study.run import private
from fedcohort.training.networks.plan import Plan
from hospital import DICTIONARY, STUDY, Hospital, request

ROUNDS = 3
DP = "{epsilon: 2, delta: 1e-4, clip: 0.3}"
PRIVATE = STUDY.replace(
    "- {method: cox, title: Cox regression}",
    f"- {{method: deepcox, strategy: exact, hidden: [], rounds: {ROUNDS}}}",
).replace("{min_cell: 5}", f"{{min_cell: 5, secure_aggregation: false, dp: {DP}}}")
LIMITS = DICTIONARY.replace("unit: ng/ml", "unit: ng/ml, usual: [0, 4]").replace(
    "seen: {type: date}", "seen: {type: date, feature: false}"
)
SESSION = "fit-r0000-a00"


@pytest.fixture
def hospital(tmp_path: Path):
    made = Hospital(tmp_path, policy={"privacy_budget": {"epsilon": 5, "delta": 0.001}})
    yield made
    made.node.close()


def approved(made: Hospital, study: str = PRIVATE) -> str:
    return made.approved(made.signed(made.terms(study, LIMITS)))


def asked(terms: Any, step: str) -> dict[str, Any]:
    """Return what an honest coordinator asks a step with, besides a model."""
    config = DEEPCOX.configure(terms.plan.arms[0].configured())
    dp = terms.plan.privacy.dp
    return dict(private.held(DEEPCOX, config, dp, terms.dictionary, terms.outcome)[step])


def call(made: Hospital, run: str, number: int = 0, **change: Any) -> tuple[dict, dict]:
    """Ask for one noisy gradient; return its arrays and meta."""
    terms = made.terms(PRIVATE, LIMITS)
    design = bounded_design(terms.dictionary, terms.outcome)
    demanded = asked(terms, "pull_privately")
    start = initial(Plan.of(demanded["plan"]).network, 0)
    parcel = {"theta": start, **demanded, **change.pop("asked", {})}
    view = Seen("design", mark_of("design", design.spec), design.spec)
    given = {
        "session": SESSION, "call": number, "step": "pull_privately", "verb": "sum",
        "view": view, "parcel": Parcel.of(parcel),
    }  # fmt: skip
    reply = made.node.handle(made.coordinator, request(run, **(given | change)))
    return decode(reply)


def account(made: Hospital) -> Any:
    path = made.state / "budget.sqlite"
    return Budget(path, made.node.config.data.name, made.node.config.policy.budget).account()


def test_noise_comes_from_the_system_and_a_repeated_call_is_answered_with_the_same(hospital):
    run = approved(hospital)
    first, meta = call(hospital, run)
    assert meta["kind"] == "reply", meta
    again, _ = call(hospital, run)
    np.testing.assert_array_equal(first["gradient"], again["gradient"])
    hospital.restart()
    kept, _ = call(hospital, run)
    np.testing.assert_array_equal(first["gradient"], kept["gradient"])
    other, _ = call(hospital, run, 1)
    assert not np.array_equal(first["gradient"], other["gradient"])
    assert account(hospital).spent.epsilon == 2


def test_the_amount_of_a_fit_is_spent_once_with_its_first_reply_and_then_again_by_a_new_history(
    hospital,
):
    run = approved(hospital)
    assert account(hospital).spent.epsilon == 0
    for number in range(ROUNDS):
        assert call(hospital, run, number)[1]["kind"] == "reply"
    assert account(hospital).spent.epsilon == 2
    _, told = call(hospital, run, ROUNDS)
    assert told["reason"] == "budget"
    assert f"has had its {ROUNDS} replies of step pull_privately" in told["text"]
    assert call(hospital, run, 0, history="h1")[1]["kind"] == "reply"
    assert account(hospital).spent.epsilon == 4
    _, told = call(hospital, run, 0, history="h2")
    assert told["reason"] == "budget"
    assert "this site's privacy budget has less left" in told["text"]
    assert account(hospital).spent.epsilon == 4


def test_a_second_study_of_the_same_data_pays_from_the_same_budget(hospital):
    first = approved(hospital)
    assert call(hospital, first)[1]["kind"] == "reply"
    second = approved(hospital, PRIVATE.replace("study: small", "study: other"))
    _, told = call(hospital, second, history="x")
    assert told["kind"] == "reply"
    third = approved(hospital, PRIVATE.replace("study: small", "study: third"))
    arrays, told = call(hospital, third, history="y")
    assert (told["reason"], len(arrays)) == ("budget", 0)


def test_a_restart_of_the_node_does_not_start_the_count_again(hospital):
    run = approved(hospital)
    for number in range(ROUNDS):
        call(hospital, run, number)
        hospital.restart()
    assert call(hospital, run, ROUNDS)[1]["reason"] == "budget"


def test_a_site_without_a_budget_gives_nothing(tmp_path: Path):
    made = Hospital(tmp_path)
    run = approved(made)
    arrays, told = call(made, run)
    made.node.close()
    assert (told["reason"], len(arrays)) == ("budget", 0)
    assert "has set no privacy budget" in told["text"]


def test_more_sampling_than_the_study_says_and_other_steps_are_refused(hospital):
    run = approved(hospital)
    assert call(hospital, run, asked={"sampling": 0.5})[1]["reason"] == "dp"
    _, told = call(hospital, run, step="count_deaths", verb="sum", parcel=Parcel.of({}))
    assert told["code"] == "VerbRefused"
    assert account(hospital).spent.epsilon == 0


def test_a_view_that_does_not_follow_from_the_dictionary_is_refused(hospital):
    run = approved(hospital)
    terms = hospital.terms(PRIVATE, LIMITS)
    spec = bounded_design(terms.dictionary, terms.outcome).spec.replace('"high":4', '"high":3')
    _, told = call(hospital, run, view=Seen("design", mark_of("design", spec), spec))
    assert told["reason"] == "beyond"
    assert "scales by the dictionary" in told["text"]


def test_counts_of_one_part_are_kept_apart_from_another_s(tmp_path: Path):
    path, allowed = tmp_path / "budget.sqlite", Allowance(Decimal(3), Decimal("0.001"))
    budget, dp = Budget(path, "rows", allowed), Dp(epsilon=1.5, delta=1e-4)
    a, b = (Spending(path, budget, "study", session, dp) for session in ("fit-a", "fit-b"))
    for one in (a, b):
        one.reserve("h")
        one.take("h", "step", 1, 9)
    a.take("h", "step", 1, 9)
    assert (a.taken("h", "step"), b.taken("h", "step"), a.taken("h", "other")) == (2, 1, 0)
    assert a.taken("later", "step") == 0
    with pytest.raises(Refused, match="has less left"):
        a.reserve("later")


def test_two_processes_that_admitted_a_call_each_give_no_answer_more_than_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, allowed = tmp_path / "budget.sqlite", Allowance(Decimal(3), Decimal("0.001"))
    dp = Dp(epsilon=1.5, delta=1e-4)
    nodes = [Spending(path, Budget(path, "rows", allowed), "s", "fit", dp) for _ in range(2)]
    listed = (Release(step="pull_privately", noise=1.0, count=3),)
    call = SimpleNamespace(step=SimpleNamespace(name="pull_privately", private=True), history="h")
    guards = [SiteGuard("here", "demo", listed, dp, 100, None, node) for node in nodes]
    for guard in (*guards, guards[0]):
        guard.admit(call, {})
    assert guards[1].spent(call).epsilon > 0
    monkeypatch.setattr(Spending, "taken", lambda *_: 0)  # both look before either counts
    with pytest.raises(Refused, match="has had its 3 noisy answers") as error:
        guards[1].admit(call, {})
    assert error.value.code == "budget"
    monkeypatch.undo()
    with pytest.raises(Refused):
        nodes[0].take("h", "fresh", 4, 3)
    assert (nodes[0].taken("h", "pull_privately"), nodes[0].taken("h", "fresh")) == (3, 0)


def test_noise_of_local_training_comes_from_the_system_and_all_of_it_is_counted(
    hospital, monkeypatch: pytest.MonkeyPatch
):
    study = PRIVATE.replace("strategy: exact", "strategy: fedavg")
    run = approved(hospital, study)
    terms = hospital.terms(study, LIMITS)
    design = bounded_design(terms.dictionary, terms.outcome)
    demanded = asked(hospital.terms(study, LIMITS), "train_privately")
    plan = Plan.of(demanded["plan"])
    view = Seen("design", mark_of("design", design.spec), design.spec)
    parcel = {"theta": initial(plan.network, 0), **demanded}

    def visit(number: int, history: str = "", **change: Any) -> tuple[dict, dict]:
        given = {
            "session": SESSION, "call": number, "step": "train_privately", "verb": "sum",
            "view": view, "parcel": Parcel.of(parcel | change),
        }  # fmt: skip
        given |= {"history": history} if history else {}
        return decode(hospital.node.handle(hospital.coordinator, request(run, **given)))

    first, meta = visit(0)
    assert meta["kind"] == "reply", meta
    np.testing.assert_array_equal(first["theta"], visit(0)[0]["theta"])
    # the same question anew, of which a seed would make the same answer
    again, meta = visit(0, "h1")
    assert meta["kind"] == "reply", meta
    assert not np.array_equal(first["theta"], again["theta"])
    with sqlite3.connect(hospital.state / "budget.sqlite") as db:
        counts = [n for (n,) in db.execute("SELECT n FROM releases")]
    assert counts == [plan.epochs, plan.epochs]
    _, told = visit(1, sampling=0.5)
    assert told["reason"] == "dp"


@pytest.mark.parametrize(
    ("name", "value"),
    [("plan", None), ("groups", 1), ("clip", 30.0), ("groups", None), ("clip", np.array(0.3))],
)
def test_what_follows_from_the_study_and_is_asked_otherwise_is_refused_and_costs_nothing(
    hospital, name: str, value: Any
):
    run = approved(hospital)
    if name == "plan":
        plan = json.loads(asked(hospital.terms(PRIVATE, LIMITS), "pull_privately")["plan"])
        value = json.dumps({**plan, "l2": 1e300})
    _, told = call(hospital, run, asked={name: value})
    assert (told["reason"], account(hospital).spent.epsilon) == ("dp", 0)
    assert f"with another {name!r} than the study says" in told["text"]


def broken(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every reply with noise fail on the way out, as one that is no number does."""

    def fails(*_: Any, **__: Any) -> Any:
        raise SiteFailed("its reply is no number")

    monkeypatch.setattr(SiteGuard, "perturbed", fails)


def test_a_call_that_fails_after_it_was_let_in_has_spent_what_an_answered_one_does(
    hospital, monkeypatch: pytest.MonkeyPatch
):
    run = approved(hospital)
    with monkeypatch.context() as inside:
        broken(hospital, inside)
        for number in range(ROUNDS - 1):
            assert call(hospital, run, number)[1]["kind"] == "error"
    assert account(hospital).spent.epsilon == 2
    first, meta = call(hospital, run, ROUNDS)
    assert meta["kind"] == "reply"
    assert call(hospital, run, ROUNDS + 1)[1]["reason"] == "budget"
    # the reply that was lost on the way is served from the store, at no cost
    again, meta = call(hospital, run, ROUNDS)
    assert meta["kind"] == "reply"
    np.testing.assert_array_equal(first["gradient"], again["gradient"])


def test_a_reply_that_is_lost_between_counting_and_keeping_counts(
    hospital, monkeypatch: pytest.MonkeyPatch
):
    run = approved(hospital)
    with monkeypatch.context() as inside:
        inside.setattr(Answers, "save", lambda *_: (_ for _ in ()).throw(OSError("no power")))
        assert call(hospital, run, 0)[1]["kind"] == "error"
    hospital.restart()
    for number in range(ROUNDS - 1):
        assert call(hospital, run, number)[1]["kind"] == "reply"
    assert call(hospital, run, ROUNDS)[1]["reason"] == "budget"


def test_failed_private_calls_count_towards_the_most_calls_of_a_session_but_kept_replies_stay(
    hospital, monkeypatch: pytest.MonkeyPatch
):
    hospital.policy |= {"max_calls": 2}
    hospital.restart()
    run = approved(hospital)
    first, meta = call(hospital, run, 0)
    assert meta["kind"] == "reply", meta
    with monkeypatch.context() as inside:
        broken(hospital, inside)
        assert call(hospital, run, 1)[1]["kind"] == "error"
    hospital.restart()
    _, told = call(hospital, run, 2)
    assert told["reason"] == "calls"
    assert "max_calls" in told["text"]
    np.testing.assert_array_equal(call(hospital, run, 0)[0]["gradient"], first["gradient"])
    with sqlite3.connect(hospital.state / "budget.sqlite") as db:
        assert db.execute("SELECT n FROM releases").fetchall() == [(2,)]
