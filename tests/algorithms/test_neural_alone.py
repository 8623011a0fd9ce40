"""Networks for outcomes: a bound's fit by "exact" is one call, with the bits of one a round."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import fedcohort as fc
from algorithms.neural_cases import KINDS, federation, fit, table
from fedcohort.protocol import FedcohortError, VerbRefused, registry
from fedcohort.study.run.engine import Problem, fit_once
from fedcohort.training.networks.pooled import descend_rows


def both(outcome, parts=None, **settings):
    parts = parts or [table(outcome, n=50)]
    found = []
    for alone in (False, True):
        fed = federation(parts, KINDS[outcome][0], alone=alone)
        given = {"strategy": "exact", "rounds": 6, **settings}
        found.append((fit(parts, outcome, fed=fed, **given), fed))
    return found


def steps_of(fed):
    return [line.split('"step":"')[1].split('"')[0] for line in fed.ledger.lines]


@pytest.mark.parametrize(
    ("outcome", "settings"),
    [
        ("category", {"keep_rounds": [2, 4]}),
        ("binary", {"dropout": 0.3, "l1": 0.01}),
        ("continuous", {"dtype": "float32", "l2": 0.1, "optimiser": "sgd"}),
        ("category", {"patience": 3}),
    ],
)
def test_one_call_has_the_bits_of_a_call_a_round(outcome, settings):
    (one, there), (other, here) = both(outcome, **settings)
    assert one.meta() == other.meta()
    assert one.arrays().keys() == other.arrays().keys()
    for name, a in one.arrays().items():
        assert_array_equal(a, other.arrays()[name], err_msg=name)
    assert there.history == here.history
    assert ("descend_rows" in steps_of(here)) == ("patience" not in settings)
    assert "descend_rows" not in steps_of(there)


def test_several_sites_are_asked_round_by_round_and_refuse_the_step():
    parts = [table(n=30, seed=1), table(n=30, seed=2)]
    (_, there), (_, here) = both("category", parts)
    assert steps_of(there) == steps_of(here)
    given = {"rounds": 1, "rate": 0.1, "lr_rule": "d62", "keep": np.zeros(0, np.int64)}
    with pytest.raises(VerbRefused, match="refuses descend_rows: it is for a fit of one site"):
        here.gather(descend_rows, theta=np.zeros(3), plan="", **given)


def test_a_fit_that_diverges_ends_with_the_error_of_a_call_a_round():
    whole = table("continuous", n=50)
    odd, told = [whole._replace(x=whole.x * 1e200)], []
    for alone in (False, True):
        with np.errstate(all="ignore"), pytest.raises(FedcohortError) as error:
            fed = federation(odd, KINDS["continuous"][0], alone=alone)
            fit(odd, "continuous", fed=fed, strategy="exact", activation="relu")
        told.append((type(error.value), str(error.value)))
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["classifier", "regressor", "savae"])
def test_no_study_lets_a_network_ask_for_it(name):
    method = registry.find(name)
    assert descend_rows in method.steps
    assert descend_rows not in method.asks(method.configure({"strategy": "exact"}))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_pooled_bound_of_a_study_is_one_call_where_the_loss_draws_too(dropout):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    frame = frame.assign(time=rng.exponential(5.0, 40) + 0.1, event=rng.random(40) < 0.7)
    sites = {"north": frame[:20], "south": frame[20:]}
    fed = fc.simulate(sites, outcome=fc.Survival("time", "event"))
    problem = Problem(fed.frames, fed.dictionary, fed.outcome).pooled()
    given = {"strategy": "exact", "rounds": 4, "q": 2, "hidden": [4], "dropout": dropout}
    one, other = (
        fit_once(replace(problem, bound=bound), registry.find("savae"), given, {}, 3)
        for bound in (False, True)
    )
    assert problem.bound
    assert one.history == other.history
    assert ("descend_rows" in steps_of(other), "descend_rows" in steps_of(one)) == (True, False)
    for name, a in one.model.arrays().items():
        assert_array_equal(a, other.model.arrays()[name], err_msg=name)
