"""A private study is judged by its blind rows alone: nothing exact of a row that it is trained on.

Expected are the numbers of the same judge with the training rows exchanged for others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from deployed_cases import frames_of, run_local, tables_of, terms_of
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Continuous, Survival
from fedcohort.metrics.survival import brier, concordance
from fedcohort.protocol import Dp, Refused
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.at_site.consent import Consent
from fedcohort.study.at_site.judging import Seen
from fedcohort.study.judge import evaluate
from fedcohort.study.run.engine import Problem

DP = "{dp: {epsilon: 5.0, delta: 0.0001}}"
ARM = "[{method: deepcox, strategy: exact, hidden: [], rounds: 2, name: a}]"


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    time = np.minimum(rng.exponential(3, n), rng.uniform(1, 8, n)).round(2) + 0.01
    return pd.DataFrame({"time": time, "event": rng.integers(0, 2, n), "y": rng.normal(size=n)})


@pytest.mark.parametrize("outcome", [Survival("time", "event"), Continuous("y")])
def test_no_training_row_moves_what_a_private_fit_is_judged_by(outcome):
    blind, said = rows(100, 9), np.random.default_rng(3).normal(size=100)
    known = {"time": {"type": "time"}, "event": {"type": "event"}, "y": {"type": "number"}}
    dictionary = Dictionary.from_dict({"variables": known})
    found = []
    for seed in (1, 2):
        problem = Problem({"a": rows(200, seed)}, dictionary, outcome, dp=Dp(epsilon=1, delta=1e-4))
        judge = evaluate.judge_of(problem, blind)
        exact = evaluate.judge_of(replace(problem, dp=None), blind)
        if isinstance(outcome, Survival):
            for y in (judge, exact):
                uno = concordance.uno(
                    y.train_time, y.train_event, y.time, y.event, said, y.tau
                )  # fmt: skip
                surv = np.exp(-np.outer(np.exp(said), y.times))
                ibs = brier.integrated_brier(
                    y.train_time, y.train_event, y.time, y.event, surv, y.times
                )  # fmt: skip
                found.append((uno, ibs, y.tau, y.horizon))
        else:
            found += [judge.usual, exact.usual]
    assert found[0] == found[2]
    assert found[1] != found[3], "which of training rows were to be seen"


def test_blind_rows_without_an_event_still_have_a_yardstick():
    blind = rows(30, 1).assign(event=0)
    known = Dictionary.from_dict({"variables": {"y": {"type": "number"}}})
    y = evaluate.Yardstick.of(Problem({"a": blind}, known, Survival("time", "event")), blind)
    assert np.isfinite([y.tau, y.horizon]).all()


@pytest.mark.parametrize("half", ["train", "all", "blind"])
def test_a_site_shows_the_judge_of_a_private_study_its_blind_rows_alone(tmp_path, half):
    plain = terms_of(tmp_path / "plain", "gbsg2", ARM, bounds="[]")
    private = terms_of(tmp_path / "private", "gbsg2", ARM, bounds="[]", privacy=DP)
    for kind in ("judge", "alone"):
        Consent(plain, kind, plain.plan.arms[0])._check_view(Seen(half))
        consent = Consent(private, kind, private.plan.arms[0])
        if half == "blind":
            consent._check_view(Seen(half))
            continue
        with pytest.raises(Refused, match="exact sums over rows that a private fit is trained on"):
            consent._check_view(Seen(half))


def test_a_deployed_private_study_asks_for_the_outcome_of_blind_rows_alone(tmp_path, monkeypatch):
    seen = []
    whole = Coordinator.sum

    def spy(self, step, /, **given):
        seen.append(getattr(self._view, "half", None))
        return whole(self, step, **given)

    monkeypatch.setattr(Coordinator, "sum", spy)
    terms = terms_of(tmp_path, "gbsg2", ARM, bounds="[]", privacy=DP)
    run_local(terms, tables_of(terms, frames_of("gbsg2")), tmp_path / "out")
    assert {s for s in seen if s} == {"blind"}
