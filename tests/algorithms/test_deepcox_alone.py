"""DeepCox: a bound's fit by "exact" is one call, with the bits of the fit round by round."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.algorithms.deepcox.steps import descend_alone
from fedcohort.data.tables import SurvivalTable
from fedcohort.privacy.guard import SiteGuard
from fedcohort.protocol import FedcohortError, Task, VerbRefused
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call, Host
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local

P = 4


def table(n=70, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, P))
    time = np.ceil(30.0 * rng.exponential(1.0, n) * np.exp(-x[:, 0]))
    return SurvivalTable(x, time, rng.random(n) < 0.6)


def fit(alone, tables=None, journal=None, seen=None, **settings):
    tables = tables or {"all": table()}
    hosts = [Host(name, t, METHOD.steps, seed=3) for name, t in tables.items()]
    observer = None if seen is None else seen.append
    fed = local(hosts, alone=alone, journal=journal, observer=observer)
    task = Task(kind="survival", features=tuple("abcd"), seed=3)
    config = METHOD.configure({"strategy": "exact", "rounds": 12, **settings})
    return METHOD.fit(fed, config, task), fed


def steps_of(fed):
    return [line.split('"step":"')[1].split('"')[0] for line in map(str, fed.ledger.lines)]


def same_bits(one, other):
    assert one.meta() == other.meta()
    mine, its = one.arrays(), other.arrays()
    assert mine.keys() == its.keys()
    for name, a in mine.items():
        assert_array_equal(a, its[name], err_msg=name)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation": "silu", "l1": 0.01, "l2": 0.02, "optimiser": "sgd"},
        {"dropout": 0.3, "time_grid": "exact", "lr_rule": "constant"},
        {"keep_rounds": [3, 12, 5], "learning_rate": 2.0},
        {"dtype": "float32"},
        {"patience": 3},
        {"lr_rule": "plateau"},
    ],
)  # fmt: skip
def test_one_call_has_the_bits_of_a_call_a_round(settings):
    (one, there), (other, here) = fit(False, **settings), fit(True, **settings)
    same_bits(one, other)
    assert there.history == here.history
    looks = "patience" in settings or settings.get("lr_rule") == "plateau"
    assert ("descend_alone" in steps_of(here)) == (not looks)
    assert "descend_alone" not in steps_of(there)
    for rounds in settings.get("keep_rounds", ()):
        same_bits(one.at_round(rounds), other.at_round(rounds))


def test_one_call_takes_the_place_of_two_a_round():
    (_, there), (_, here) = fit(False), fit(True)
    asked = steps_of(here)
    assert asked.count("descend_alone") == 1
    assert len(asked) == len(steps_of(there)) - 2 * 12 - 1 + 1  # nor are deaths counted for it


def test_progress_ends_at_the_last_round_of_all():
    seen = []
    fit(True, seen=seen)
    assert (seen[-1].round, seen[-1].rounds) == (11, 12)


def test_a_fit_that_is_resumed_after_the_call_has_the_same_bits(tmp_path):
    whole, _ = fit(True)
    first = Journal(tmp_path / "j")
    fit(True, journal=first)
    first.close()
    size = (tmp_path / "j").stat().st_size
    for share in (0.4, 0.9):
        with (tmp_path / "j").open("r+b") as file:
            file.truncate(int(share * size))
        book = Journal(tmp_path / "j")
        again, _ = fit(True, journal=book)
        book.close()
        same_bits(whole, again)


def test_a_fit_that_diverges_ends_with_the_error_of_a_call_a_round():
    odd = table()._replace(x=np.full((70, P), 1e200) * np.sign(table().x))
    given = {"tables": {"all": odd}, "activation": "relu", "learning_rate": 1e200}
    told = []
    for alone in (False, True):
        with np.errstate(all="ignore"), pytest.raises(FedcohortError) as error:
            fit(alone, **given)
        told.append((type(error.value), str(error.value)))
    assert told[0] == told[1]


def test_several_sites_are_asked_round_by_round_whatever_is_wished():
    both = {"a": table(seed=1), "b": table(seed=2)}
    (one, there), (other, here) = fit(False, both), fit(True, both)
    assert not here.alone
    assert steps_of(here) == steps_of(there)
    same_bits(one, other)


ARGUMENTS = {
    "theta": np.zeros(75), "times": np.array([5.0, 20.0]), "together": True, "plan": "",
    "rounds": 1, "rate": 0.1, "lr_rule": "d62", "keep": np.zeros(0, np.int64),
}  # fmt: skip


@pytest.mark.parametrize("tables", [1, 2])
def test_a_federation_that_is_no_bound_refuses_the_step(tables):
    hosts = [Host(f"s{i}", table(seed=i), METHOD.steps) for i in range(tables)]
    with pytest.raises(VerbRefused, match="refuses descend_alone: it is for a fit of one site"):
        local(hosts, alone=tables == 2).gather(descend_alone, **ARGUMENTS)


def test_a_site_refuses_the_step_from_elsewhere_and_under_consent_or_noise():
    call = Call(0, descend_alone, "gather", None, Arguments(ARGUMENTS, ("s",)))
    plain = Host("s", table(), METHOD.steps)
    asked = Host("s", table(), METHOD.steps, consent=lambda call, arguments: None)
    noisy = Host("s", table(), METHOD.steps, guard=SiteGuard.__new__(SiteGuard))
    for host, alone in ((plain, False), (asked, True), (noisy, True)):
        with pytest.raises(VerbRefused, match="one site alone"):
            host.answer(call, ARGUMENTS, alone=alone)


def test_no_study_lets_a_network_ask_for_it():
    for strategy in ("exact", "fedavg", "ensemble"):
        for more in ({}, {"patience": 2}):
            config = METHOD.configure({"strategy": strategy, **more})
            assert descend_alone not in METHOD.asks(config)
    assert [s.name for s in METHOD.steps if s.alone] == ["descend_alone"]
    assert not any(field.name == "alone" for field in dataclasses.fields(Call))
