"""Rows of features become rows of the table: what the checks of data accept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from fedcohort.data.check import Sheet, examine
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Survival
from fedcohort.data.prepare import Design, LevelColumn, NumberColumn
from fedcohort.data.read.canonical import canonical
from fedcohort.data.restored import ANCHOR, possible, restored

SPEC = {
    "age": {"type": "integer", "range": [18, 100]},
    "hb": {"type": "number", "range": [3, 20]},
    "smoker": {"type": "binary"},
    "stage": {"type": "category", "levels": ["I", "II", "III"]},
    "diagnosed": {"type": "date"},
    "treated": {"type": "date", "since": "diagnosed", "unit": "days", "range": [0, 400]},
    "time": {"type": "time", "unit": "days"},
    "event": {"type": "event"},
    "site": {"type": "category", "levels": ["a", "b"], "identifier": True},
}
KNOWN = Dictionary.from_dict(SPEC)
OUTCOME = Survival("time", "event")


def patients(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2010-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, n).astype(float),
            "hb": rng.normal(12, 2, n).round(1),
            "smoker": rng.integers(0, 2, n).astype(float),
            "stage": rng.choice(["I", "II", "III"], n),
            "diagnosed": start,
            "treated": start + pd.to_timedelta(rng.integers(1, 300, n), "D"),
            "time": rng.integers(1, 900, n).astype(float),
            "event": rng.integers(0, 2, n).astype(float),
            "site": rng.choice(["a", "b"], n),
        }
    )
    frame.loc[:4, "hb"] = np.nan
    return canonical(frame, KNOWN)


@pytest.fixture(scope="module")
def design() -> Design:
    frame = patients(120)
    fed = fc.simulate({"a": frame[:60], "b": frame[60:]}, outcome=OUTCOME, dictionary=KNOWN)
    fit = fc.fit("multiview_ppca", fed, task="synthesis", q=1, rounds=2)
    return fit.parts.design


def test_features_of_rows_become_the_same_rows(design):
    """Encoding reads dates as the time between them: all that a model knows of them."""
    frame = patients(120)
    known = KNOWN.with_features(OUTCOME)
    back = restored(design, KNOWN, design.matrix(frame), None, np.random.default_rng(0))
    assert [*back.columns] == [*SPEC]
    view = Encoding(known.features())
    for one, other in zip(view(frame).numbers, view(back).numbers, strict=True):
        assert_allclose(other, one, rtol=1e-5)
    for one, other in zip(view(frame).codes, view(back).codes, strict=True):
        assert_array_equal(other, one)
    assert set(back["diagnosed"]) == {ANCHOR}
    assert back["site"].isna().all()


@pytest.mark.parametrize("spread", [1.0, 1e3, 1e9])
def test_any_features_become_rows_that_the_checks_of_data_accept(design, spread):
    rng = np.random.default_rng(2)
    x = spread * rng.standard_normal((500, len(design.features)))
    x[rng.random(x.shape) < 0.05] = np.nan
    rows = restored(design, KNOWN, x, None, rng)
    rows = rows[possible(rows, OUTCOME)].reset_index(drop=True)
    sheet = Sheet(canonical(rows, KNOWN), "virtual")
    found = examine([sheet], KNOWN, OUTCOME, natural=False, warnings=False)
    assert [f.line for f in found] == []


def test_a_row_without_a_possible_outcome_is_told_from_others():
    frame = pd.DataFrame(
        {"time": [1.0, 0.0, -2.0, np.nan, 3.0], "event": [1, 1, 0, 0, None], "entry": [0.0] * 5}
    )
    assert possible(frame, OUTCOME).tolist() == [True, False, False, False, False]
    late = frame.assign(entry=[2.0, 0, 0, 0, 0])
    assert not possible(late, Survival("time", "event", "entry")).any()
    assert possible(frame, None).all()


def test_a_level_of_a_pool_is_one_of_its_levels_each_as_often():
    column = LevelColumn(
        name="stage", type="category", levels=("I", "II", "III", "IV"), kept=("I", "other"),
        pooled=("II", "III", "IV"), fill="I",
    )  # fmt: skip
    known = Dictionary.from_dict(
        {"stage": {"type": "category", "levels": ["I", "II", "III", "IV"]}}
    )
    design = Design(columns=(column,), dropped={})
    x = np.r_[np.zeros(3_000), np.ones(3_000)][:, None]
    rows = restored(design, known, x, None, np.random.default_rng(1))
    counts = rows["stage"].value_counts()
    assert counts["I"] == 3_000
    assert (np.abs(counts[["II", "III", "IV"]] - 1_000) < 4 * np.sqrt(1_000)).all()


def test_the_end_of_ranks_lies_no_further_out_than_its_rows_at_the_density_beside_it():
    column = NumberColumn(
        name="hb", type="number", fill=0.0, knots=(-1e6, 0.0, 1.0, 2.0, 1e6),
        shares=(0.005, 0.01, 0.5, 0.99, 0.995),
    )  # fmt: skip
    design = Design(columns=(column,), dropped={}, scale="quantile")
    known = Dictionary.from_dict({"hb": "number"})
    ends = restored(design, known, np.array([[0.0], [1.0], [0.5]]), None, np.random.default_rng(0))
    assert_allclose(ends["hb"], [-2.0, 4.0, 1.0])


def test_the_end_of_ranks_stays_where_no_row_is_beside_it():
    """Ends without a density beside them give no warning of a division by 0."""
    column = NumberColumn(
        name="hb", type="number", fill=0.0, knots=(-9.0, 0.0, 1.0, 2.0, 9.0),
        shares=(0.0, 0.5, 0.5, 0.5, 1.0),
    )  # fmt: skip
    design = Design(columns=(column,), dropped={}, scale="quantile")
    known = Dictionary.from_dict({"hb": "number"})
    with np.errstate(all="raise"):
        rows = restored(design, known, np.array([[0.0], [1.0]]), None, np.random.default_rng(0))
    assert_allclose(rows["hb"], [-9.0, 9.0])


def test_missing_features_stay_missing(design):
    x = np.full((3, len(design.features)), np.nan)
    rows = restored(design, KNOWN, x, None, np.random.default_rng(0))
    asked = [c for c in SPEC if c not in ("diagnosed",)]
    assert rows[asked].isna().all().all()


def test_outcomes_of_a_model_of_both_become_their_columns():
    column = NumberColumn(name="age", type="integer", fill=50.0)
    design = Design(columns=(column,), outcome=OUTCOME, dropped={})
    known = replace(KNOWN, variables={k: KNOWN[k] for k in ("age", "time", "event")})
    y = np.array([[12.5, 1.0], [3.0, 0.0]])
    rows = restored(design, known, np.array([[40.2], [1e9]]), y, np.random.default_rng(0))
    assert rows.to_dict("list") == {"age": [40, 100], "time": [12.5, 3.0], "event": [1, 0]}
