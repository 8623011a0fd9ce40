"""A column that tells the outcome too well is told; one that is known beforehand is not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sksurv.metrics import concordance_index_censored

from fedcohort.data.check import WARNING, Sheet, examine, leaks, with_outcome
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Continuous, Ordered, Survival
from fedcohort.data.read.canonical import canonical

OUTCOME = Survival("days", "relapse")
N = 400


def table(n=N, seed=0):
    """Return patients of whom half relapse, and two good predictors that are known beforehand."""
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=n)
    time = np.ceil(rng.exponential(700 * np.exp(-1.2 * risk))) + 1
    end = np.ceil(rng.uniform(200, 1500, n)) + 1
    grade = np.array(["I", "II", "III"], object)[np.digitize(risk + rng.normal(size=n), [-1, 1])]
    return pd.DataFrame(
        {
            "risk": risk,
            "grade": grade,
            "days": np.minimum(time, end),
            "relapse": 1.0 * (time <= end),
        }
    )


def found(frame, outcome=OUTCOME, sites=1, **more):
    """Return the leaks that are told, by column."""
    spec = {"risk": "number", "grade": {"type": "category", "levels": ["I", "II", "III"]}, **more}
    known = with_outcome(Dictionary.from_dict(spec), outcome)
    frames = [canonical(part, known) for part in np.array_split(frame, sites)]
    sheets = [
        Sheet(f.reset_index(drop=True), f"{i}.csv", str(i) if sites > 1 else None)
        for i, f in enumerate(frames)
    ]
    said = [f for f in examine(sheets, known, outcome) if f.rule == "leak"]
    assert all(f.severity == WARNING and not f.rows for f in said)
    return {f.column: f.line for f in said}


def test_good_predictors_are_no_leaks():
    assert found(table()) == {}
    assert found(table(), sites=4) == {}


@pytest.mark.parametrize("sites", [1, 4])
def test_the_event_under_another_name_is_told_with_its_auc(sites):
    frame = table()
    rng = np.random.default_rng(1)
    frame["status2"] = np.where(rng.random(N) < 0.02, 1 - frame["relapse"], frame["relapse"])
    said = found(frame, sites=sites, status2="binary")
    area = roc_auc_score(frame["relapse"], frame["status2"])
    assert list(said) == ["status2"]
    assert f"'status2' alone predicts the outcome: AUC {area:.2f} over 400 rows" in said["status2"]
    assert said["status2"].endswith("Then give it feature: false in the dictionary.")


def test_what_is_filled_in_with_the_event_alone_is_told():
    frame = table()
    frame["relapse_day"] = frame["days"].where(frame["relapse"] == 1)
    assert (
        "is empty where the outcome is absent" in found(frame, relapse_day="number")["relapse_day"]
    )
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(frame["relapse_day"], unit="D")
    dated = frame.assign(seen=day)
    assert "seen" in found(dated, seen={"type": "date", "since": "2019-01-01", "unit": "days"})


def test_the_time_in_another_unit_is_told_with_its_concordance():
    frame = table().assign(months=lambda t: t["days"] / 30.4)
    c = concordance_index_censored(frame["relapse"] == 1, frame["days"], -frame["months"])[0]
    assert (
        f"alone predicts the time of the outcome: C-index {c:.2f}"
        in found(frame, months="number")["months"]
    )


@pytest.mark.parametrize(
    "name", ["death", "died_ever", "charges", "totcst", "los", "discharge_code"]
)
def test_a_name_that_is_known_late_is_told_without_a_number(name):
    frame = table().assign(**{name: np.random.default_rng(2).normal(size=N)})
    said = found(frame, **{name: "number"})[name]
    assert "has a name that suggests it is known late" in said
    assert "AUC" not in said


def test_a_column_that_no_model_may_use_is_not_told():
    frame = table().assign(death=lambda t: t["relapse"])
    assert found(frame, death={"type": "binary", "feature": False}) == {}


def test_few_rows_or_few_events_say_nothing():
    frame = table().assign(copy=lambda t: t["relapse"])
    assert found(frame.head(leaks.FEWEST - 1), copy="binary") == {}
    rare = frame.assign(relapse=0.0)
    rare.loc[: leaks.EACH - 2, "relapse"] = 1.0
    assert found(rare.assign(copy=rare["relapse"]), copy="binary") == {}
    rare.loc[leaks.EACH - 1, "relapse"] = 1.0
    assert list(found(rare.assign(copy=rare["relapse"]), copy="binary")) == ["copy"]


def test_classes_and_values_are_judged_as_well():
    frame = table().assign(y=lambda t: np.where(t["relapse"] == 1, "yes", "no"))
    frame["word"] = frame["y"].map({"yes": "I", "no": "III"})
    levels = {"type": "category", "levels": ["I", "II", "III"]}
    said = found(frame.drop(columns=["days", "relapse"]), Binary("y"), word=levels)
    assert "'word' alone predicts the outcome: AUC 1.00" in said["word"]
    valued = table().assign(twice=lambda t: 2 * t["days"] + 1)
    said = found(valued.drop(columns="relapse"), Continuous("days"), twice="number")
    assert "rank correlation 1.00" in said["twice"]


@pytest.mark.parametrize("seed", range(5))
def test_auc_and_c_are_those_of_the_libraries(seed):
    frame = table(300, seed)
    event = frame["relapse"].to_numpy() == 1
    x = np.round(frame["risk"].to_numpy(), 1)
    area = roc_auc_score(event, x)
    assert leaks._auc(x, event) == pytest.approx(max(area, 1 - area), abs=1e-12)
    time = frame["days"].to_numpy() + np.arange(300) * 1e-6  # without ties of time
    c = concordance_index_censored(event, time, x)[0]
    assert leaks._concordance(x, time, event) == pytest.approx(max(c, 1 - c), abs=1e-12)


def test_the_auc_of_each_pair_of_classes_is_that_of_their_rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 300).astype(float)
    y[y == 3] = np.where(np.arange(np.sum(y == 3)) < 8, 3, 2)  # too few rows of one class
    x = np.round(rng.normal(size=300) + y / 2, 1)
    x[::9] = np.nan
    pairs = [(y == i) | (y == j) for i in range(4) for j in range(i + 1, 4)]
    expected = [leaks._auc(x[two], y[two] == y[two].min()) for two in pairs]
    assert leaks._areas(x, y) == pytest.approx(expected, abs=1e-12)
    assert 0.0 in expected


def test_the_day_of_what_happens_later_is_told_by_its_name():
    frame = table().assign(hsct_day=np.where(np.arange(N) % 3 == 0, 30.0, 60.0), hsct=1.0)
    said = found(frame, hsct_day="number", hsct="binary")
    assert {*said} == {"hsct_day", "hsct"}
    assert "known late: is it the time of something later. Is it known only" in said["hsct_day"]


def of_grades(seed=0):
    """Return patients with a stage of three levels, and a predictor that is known beforehand."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N)
    stage = np.digitize(x + rng.normal(size=N), [-0.7, 0.7])
    frame = pd.DataFrame({"x": x, "stage": np.array(["low", "mid", "high"], object)[stage]})
    return frame, stage


def test_of_several_classes_a_column_is_told_that_parts_every_two_of_them():
    frame, stage = of_grades()
    rng = np.random.default_rng(1)
    frame["code"] = stage + rng.normal(scale=0.2, size=N)
    frame["given"] = np.where(stage == 2, 1.0, np.nan)
    frame["drug"] = np.array(["a", "b", "c"], object)[stage]
    spec = {
        "x": "number", "code": "number", "given": "number",
        "drug": {"type": "category", "levels": ["a", "b", "c"]},
        "stage": {"type": "category", "levels": ["low", "mid", "high"]},
    }  # fmt: skip
    for outcome in (Category("stage"), Ordered("stage")):
        said = found(frame, outcome, **spec)
        assert set(said) == {"code", "given", "drug"}
        pairs = [
            roc_auc_score(stage[two] == j, frame["code"][two])
            for i, j in ((0, 1), (0, 2), (1, 2))
            if (two := np.isin(stage, (i, j))) is not None
        ]
        assert f"AUC {np.mean(pairs):.2f} of two classes on average" in said["code"]
        assert "is empty for one class of the outcome, or for all others: AUC 1.00" in said["given"]
