"""Rows drawn from models: by condition, with outcomes, in chunks; and their comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import fedcohort as fc
from fedcohort.data.condition import Condition
from fedcohort.data.outcome import Survival
from fedcohort.data.prepare import Design, NumberColumn
from fedcohort.protocol import Fitted, NothingToLearn, NotSupported, SettingError, registry
from fedcohort.study.kinds import SYNTHESIS
from fedcohort.study.run.engine import Problem
from fedcohort.study.virtual.comparing import Comparison, interpolated
from fedcohort.study.virtual.drawing import CHUNK, LEAST, Drawing, outcome_of
from virtual_patients import KNOWN, OUTCOME, patients


class Uniform(Fitted):
    """Ages between 0 and 100."""

    def __init__(self, low: float = 0.0, high: float = 100.0):
        self.low, self.high = low, high

    def arrays(self):
        return {}

    def meta(self):
        return {}

    @classmethod
    def restore(cls, arrays, meta):
        return cls()

    def sample(self, n, rng):
        return rng.uniform(self.low, self.high, (n, 1))


class Both(Uniform):
    """Ages, and times that are negative as often as not."""

    def sample_outcome(self, n, rng):
        y = np.column_stack([rng.normal(size=n), rng.random(n) < 0.5])
        return self.sample(n, rng), y


AGE = Design(columns=(NumberColumn(name="age", type="number", fill=0.0),), dropped={})


def drawing(model=None, **more) -> Drawing:
    return Drawing(model or Uniform(), replace(AGE, **more), KNOWN, OUTCOME)


def test_all_rows_satisfy_the_condition_and_follow_the_model_given_it():
    """The mean of 5,000 ages, uniform from 70 to 100, has a standard error of 0.12."""
    rows = drawing().table(5_000, 3, Condition.parse("age > 70", KNOWN))
    assert len(rows) == 5_000
    assert rows["age"].min() > 70
    assert abs(rows["age"].mean() - 85) < 0.5


def test_rows_follow_from_the_seed():
    one, same, other = (drawing().table(20, seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one, same)
    assert not one["age"].equals(other["age"])


def test_rows_are_drawn_chunk_by_chunk():
    sizes = [len(chunk) for chunk in drawing().chunks(2 * CHUNK + 5, 0)]
    assert sizes == [CHUNK, CHUNK, 5]


def test_a_condition_that_hardly_a_row_satisfies_ends_the_drawing():
    with pytest.raises(NothingToLearn, match=r"0 of 1.*drawn rows satisfy it, fewer than one in"):
        drawing().table(10, 0, Condition.parse("age > 150", KNOWN))
    asked = sum(len(drawing().rows(CHUNK, np.random.default_rng(0))) for _ in range(13))
    assert asked >= LEAST


def test_a_model_of_both_draws_its_outcomes_and_no_impossible_time():
    found = drawing(Both(), outcome=OUTCOME)
    rows = found.table(300, 0)
    assert found.drawn == OUTCOME
    assert (rows["time"] > 0).all()
    assert set(rows["event"]) == {0, 1}


def test_a_model_of_covariates_alone_leaves_the_outcome_empty():
    assert drawing().drawn is None
    assert drawing().table(5, 0)[["time", "event"]].isna().all().all()


def test_a_method_that_draws_no_rows_is_refused_with_those_that_do(monkeypatch):
    monkeypatch.setattr(registry, "names", lambda: ["copula", "cox"])
    frame = patients(200)
    fed = fc.simulate({"a": frame[:100], "b": frame[100:]}, outcome=OUTCOME, dictionary=KNOWN)
    with pytest.raises(NotSupported, match=r"'cox' has no sample; these methods can: .*copula"):
        Drawing.of(fc.fit("cox", fed).parts)


def test_the_outcomes_columns_are_features_of_a_task_of_virtual_patients():
    frames = {"a": patients(20)}
    problem = Problem(frames, KNOWN, OUTCOME).of(SYNTHESIS).learnt()
    assert problem.outcome is None
    assert [v.name for v in problem.dictionary.features()] == ["age", "grade", "time", "event"]
    assert problem.dictionary["time"].type == "number"
    assert problem.dictionary["time"].range[0] > 0
    assert problem.dictionary["event"].type == "binary"
    assert_array_equal([*problem.frames["a"].columns], ["age", "grade", "time", "event"])


def test_a_fit_of_a_named_task_draws_the_outcome_and_remembers_which_it_is(tmp_path):
    frame = patients(240)
    fed = fc.simulate({"a": frame[:120], "b": frame[120:]}, outcome=OUTCOME, dictionary=KNOWN)
    fc.fit("copula", fed).save(tmp_path)
    found = Drawing.of(fc.load(tmp_path).parts)
    assert found.drawn == OUTCOME
    with pytest.raises(SettingError, match=r"serves synthesis, not latent"):
        fc.fit("copula", fed, task="latent")
    with pytest.raises(SettingError, match="task is 'synthesys'"):
        fc.fit("copula", fed, task="synthesys")


@pytest.mark.parametrize(
    "outcome", [OUTCOME, Survival("t", "e", "s"), fc.Binary("y"), fc.Category("y"), fc.Count("y")]
)
def test_an_outcome_comes_back_from_its_note(outcome):
    assert outcome_of(outcome.to_dict()) == outcome


def test_a_note_that_names_no_outcome_gives_none():
    assert outcome_of({}) is outcome_of(None) is outcome_of({"y": "y", "type": "?"}) is None


# comparison ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return patients(300, 1), patients(300, 2), patients(300, 3)


def test_rows_of_the_same_patients_are_as_far_as_blind_rows_and_teach_as_much(rows):
    train, blind, fresh = rows
    c = Comparison.of(fresh, train, blind, KNOWN, OUTCOME)
    assert c.names == ("age", "time", "event", "grade")
    assert c.marginal_errors().max() < 0.15
    assert 0.8 < c.privacy.ratio < 1.25
    assert c.privacy.copied == c.privacy.alike == 0
    used, real = c.score(c.virtual_model), c.score(c.training_model)
    assert real.metric == "c_index"
    assert used.value > real.value - 3 * real.error
    assert c.log_rank is not None
    assert c.log_rank.p > 0.001


def test_copies_of_training_rows_are_found_by_every_measure_of_privacy(rows):
    train, blind, _ = rows
    c = Comparison.of(train, train, blind, KNOWN, OUTCOME)
    assert c.privacy.copied == 300
    assert c.privacy.ratio == 0
    assert all(auc.low > 0.9 for auc in c.privacy.attacks.values())


def test_interpolated_rows_are_near_training_rows(rows):
    train, blind, _ = rows
    c = Comparison.of(interpolated(train, KNOWN, 300, 0), train, blind, KNOWN, OUTCOME)
    assert c.privacy.ratio < 0.5
    assert next(iter(c.privacy.attacks.values())).low > 0.6


def test_weights_of_blind_rows_give_the_metrics_of_repeated_rows(rows):
    train, blind, fresh = rows
    c = Comparison.of(fresh, train, blind, KNOWN, OUTCOME)
    times = np.random.default_rng(0).integers(0, 3, 300)
    repeated = blind.iloc[np.repeat(np.arange(300), times)].reset_index(drop=True)
    again = Comparison.of(fresh, train, repeated, KNOWN, OUTCOME)
    weights = times[None].astype(float)
    np.testing.assert_allclose(c.marginal_errors(weights), again.marginal_errors())
    np.testing.assert_allclose(c.membership(weights), again.membership(np.ones((1, len(repeated)))))


def test_a_table_without_events_gives_no_model_and_no_score(rows):
    train, blind, fresh = rows
    c = Comparison.of(fresh.assign(event=0.0), train, blind, KNOWN, OUTCOME)
    assert c.virtual_model is None
    assert np.isnan(c.score(None).value)


def test_a_fits_own_sample_leaves_missing_levels_empty():
    frame = patients(300)
    frame.loc[frame.index % 3 == 0, "grade"] = None
    fed = fc.simulate({"a": frame[:150], "b": frame[150:]}, outcome=OUTCOME, dictionary=KNOWN)
    rows = fc.fit("copula", fed).sample(600)
    assert 0.25 < rows["grade"].isna().mean() < 0.42  # four standard errors about a third
