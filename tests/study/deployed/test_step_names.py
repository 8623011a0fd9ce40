"""A ledger names steps, so within a study one name is one step."""

from __future__ import annotations

from fedcohort.data import describe, prepare
from fedcohort.data.outcome import Binary, Survival
from fedcohort.metrics.sums import predictions as federated
from fedcohort.protocol import registry
from fedcohort.study.at_site import asking, counting, holding, judging


def test_no_step_of_judging_shares_its_name_with_one_of_a_fit_or_a_description():
    outcomes = (Survival("t", "e"), Binary("y"))
    groups = [s for outcome in outcomes for s in asking.of_judge(outcome, "clustering")]
    others = (*groups, *asking.of_judge(None, "latent"))
    told = {s.name: s for s in (*judging.STEPS, *holding.STEPS, *counting.STEPS, *others)}
    fits = [registry.find(name).steps for name in registry.names()]
    for step in (s for steps in (*fits, describe.STEPS, prepare.STEPS) for s in steps):
        assert told.get(step.name, step) is step, step.name


def test_a_judge_cannot_ask_for_sums_over_the_risk_sets_of_two_sites():
    assert federated.sum_slope.name not in {s.name for s in judging.STEPS}
    assert "death_times" not in {s.name for s in judging.STEPS}
