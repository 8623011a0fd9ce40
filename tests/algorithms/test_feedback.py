"""`feedback` finds the fault that was planted, names it, and says nothing of honest differences."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

import fedcohort as fc
from fedcohort.algorithms.feedback import (
    Feedback,
    gains,
    look,
    others,
    own,
    rules,
    steps,
    words,
)
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoded
from fedcohort.protocol import Refused, SettingError, Site
from fedcohort.protocol.step import entropy
from fedcohort.study.api import Cohort

NUMBERS = {"age": 12.0, "resp_rate": 4.0, "sbp": 18.0, "dbp": 11.0, "glucose": 1.6}
MEANS = {"age": 62.0, "resp_rate": 18.0, "sbp": 128.0, "dbp": 77.0, "glucose": 6.0}
SPEC: dict[str, Any] = {
    **dict.fromkeys(NUMBERS, "number"),
    "resp_rate": {"type": "number", "unit": "/min"},
    "sex": "binary",
    "class": {"type": "category", "levels": ["I", "II", "III", "other"]},
    "death": "binary",
}
SIZES = {"a": 160, "b": 420, "c": 240, "d": 700, "e": 130, "f": 300}


def site(name: str, n: int, seed: int = 0) -> pd.DataFrame:
    """Return honest rows: the case mix differs by site."""
    rng = np.random.default_rng((seed, ord(name[0])))
    ill = rng.normal(size=n)
    own_mean = rng.normal(0, 0.25, len(NUMBERS))
    table = {
        k: MEANS[k] + sd * (m + 0.6 * w * ill + 0.8 * rng.normal(size=n))
        for (k, sd), m, w in zip(NUMBERS.items(), own_mean, (1, 1, -1, -1, 1), strict=True)
    }
    frame = pd.DataFrame({k: v.round(1) for k, v in table.items()})
    share = rng.dirichlet([12, 8, 6])
    frame["sex"] = (rng.random(n) < rng.uniform(0.35, 0.6)).astype(float)
    frame["class"] = np.array(["I", "II", "III"], object)[rng.choice(3, n, p=share)]
    odds = -0.6 + 1.1 * ill + 0.5 * rng.normal()
    frame["death"] = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(float)
    for k in ("age", "glucose"):
        frame.loc[rng.random(n) < rng.uniform(0, 0.12), k] = np.nan
    return frame


def federation(seed: int = 0) -> dict[str, pd.DataFrame]:
    return {name: site(name, n, seed) for name, n in SIZES.items()}


def told(
    frames: dict[str, pd.DataFrame], spec: Any = None, outcome: Any = None, **options: Any
) -> Feedback:
    outcome = fc.Binary("death") if outcome is None else outcome
    known = Dictionary.from_dict(SPEC if spec is None else spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fc.fit("feedback", Cohort(frames, known, outcome, 0), **options).model


def off(model: Feedback) -> list[tuple[str, str, str, str]]:
    """Return what is found, without what is not recorded."""
    return [(r.site, r.rule, r.column, r.about) for r in model.remarks if r.rule != "unrecorded"]


def shifted(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(resp_rate=t.resp_rate + 20)


def in_mg(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(glucose=t.glucose * 18.02)


def turned_round(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(sbp=t.dbp, dbp=t.sbp)


def with_level(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(**{"class": np.where(np.arange(len(t)) % 4 == 0, "other", t["class"])})


def twice(t: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([t, t.iloc[:40]], ignore_index=True)


def half(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(sbp=t.sbp.where(np.arange(len(t)) % 2 == 0))


def constant(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(age=60.3)


def flipped(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(death=1 - t.death)


FAULTS = {
    shifted: ("shift", "resp_rate", ""),
    in_mg: ("unit", "glucose", "glucose in mg/dl and mmol/l"),
    turned_round: ("swapped", "sbp", "dbp"),
    with_level: ("level", "class", "other"),
    twice: ("copies", "", ""),
    half: ("half empty", "sbp", ""),
    constant: ("constant", "age", ""),
    flipped: ("flipped label", "death", ""),
}


# what is found ------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("where", ["c", "e"])
def test_a_planted_fault_is_found_named_right_and_nothing_else(fault, where):
    frames = federation()
    frames[where] = fault(frames[where])
    assert off(told(frames)) == [(where, *FAULTS[fault])]


@pytest.mark.parametrize("seed", range(1, 5))
def test_honest_differences_in_case_mix_and_size_raise_nothing(seed):
    assert off(told(federation(seed))) == []


def test_several_faults_at_several_sites_are_each_found():
    frames = federation()
    planted = dict(zip("abcdef", (in_mg, shifted, flipped, half, twice, turned_round), strict=True))
    for where, fault in planted.items():
        frames[where] = fault(frames[where])
    assert off(told(frames)) == [(where, *FAULTS[fault]) for where, fault in planted.items()]


def test_three_sites_are_enough_for_coarse_faults():
    frames = {k: v for k, v in federation().items() if k in "bcd"}
    frames["c"] = in_mg(shifted(frames["c"]))
    assert off(told(frames)) == [
        ("c", "shift", "resp_rate", ""), ("c", "unit", "glucose", "glucose in mg/dl and mmol/l"),
    ]  # fmt: skip


def test_a_temperature_in_fahrenheit_is_no_shift():
    frames = {}
    for k, t in federation().items():
        frames[k] = t.assign(temperature=37 + (t.resp_rate - 18) / 8)
    frames["b"] = frames["b"].assign(temperature=frames["b"].temperature * 1.8 + 32)
    found = off(told(frames, {**SPEC, "temperature": "number"}))
    assert found == [("b", "unit", "temperature", "°F where they have °C")]


def test_values_that_no_cause_explains_are_off():
    """Ten times as large with three times the spread is neither a unit nor a shift."""
    frames = federation()
    glucose = frames["b"].glucose
    frames["b"] = frames["b"].assign(glucose=3 * (glucose - 6) + 60)
    assert off(told(frames)) == [("b", "off", "glucose", "")]


def test_two_columns_that_are_off_and_less_so_when_swapped_are_not_called_swapped():
    """One has 10 times its spread, the other a twentieth; swapped 2.5 times and a fifth."""
    frames = {}
    for k, t in federation().items():
        z = np.random.default_rng(ord(k)).normal(size=(2, len(t)))
        wide = (100, 2) if k == "d" else (10, 40)
        frames[k] = t.assign(one=50 + wide[0] * z[0], other=50 + wide[1] * z[1])
    found = off(told(frames, {**SPEC, "one": "number", "other": "number"}))
    assert found == [("d", "off", "one", ""), ("d", "off", "other", "")]


def test_columns_of_the_same_range_are_told_apart_by_how_they_go_with_others():
    """Both have mean 50 and sd 10; one goes with age, and one with blood pressure."""
    frames = {}
    for k, t in federation().items():
        rng = np.random.default_rng(ord(k))
        one = 50 + 8 * (t.age.fillna(62) - 62) / 12 + 6 * rng.normal(size=len(t))
        other = 50 + 8 * (t.sbp - 128) / 18 + 6 * rng.normal(size=len(t))
        frames[k] = t.assign(one=one, other=other)
    spec = {**SPEC, "one": "number", "other": "number"}
    assert off(told(frames, spec)) == []
    frames["d"] = frames["d"].rename(columns={"one": "other", "other": "one"})
    assert off(told(frames, spec)) == [("d", "swapped", "one", "other")]


def test_a_size_is_said_to_two_digits_in_the_columns_unit():
    frames = federation()
    frames["c"] = shifted(frames["c"])
    remark = told(frames).of("c")[0]
    others_ = pd.concat([t.resp_rate for k, t in frames.items() if k != "c"])
    assert remark.size == pytest.approx(frames["c"].resp_rate.mean() - others_.mean(), abs=3)
    assert float(f"{remark.size:.2g}") == remark.size
    assert remark.line.startswith(f"c: resp_rate lies about {remark.size:g} /min above")


def test_sites_with_levels_of_their_own_are_not_named_for_them():
    frames = {k: t.assign(ward=f"ward {k}") for k, t in federation().items()}
    levels = [f"ward {k}" for k in frames]
    assert off(told(frames, {**SPEC, "ward": {"type": "category", "levels": levels}})) == []


def test_rows_of_few_values_are_no_copies():
    frames = {k: t[["sex", "class", "death"]] for k, t in federation().items()}
    assert off(told(frames, {k: SPEC[k] for k in ("sex", "class", "death")})) == []


def test_a_survival_outcome_the_other_way_round_is_found():
    frames = {}
    for k, t in federation().items():
        rng = np.random.default_rng(ord(k))
        time = rng.exponential(np.exp(-(t.resp_rate - 18) / 3))
        late = rng.exponential(2.0, len(t))
        event = (time <= late).astype(float)
        frames[k] = t.drop(columns="death").assign(time=np.minimum(time, late), event=event)
    spec = {k: v for k, v in SPEC.items() if k != "death"} | {"time": "time", "event": "event"}
    outcome = fc.Survival("time", "event")
    assert off(told(frames, spec, outcome)) == []
    wrong = frames["d"].time.max() + 0.01 - frames["d"].time
    found = off(told({**frames, "d": frames["d"].assign(time=wrong)}, spec, outcome))
    assert ("d", "flipped label", "event", "") in found


# what changes nothing -----------------------------------------------------------------


def faulty() -> dict[str, pd.DataFrame]:
    frames = federation()
    frames["c"], frames["e"] = shifted(frames["c"]), turned_round(frames["e"])
    frames["a"] = half(frames["a"])
    return frames


def test_the_order_of_sites_and_of_rows_changes_nothing():
    frames = faulty()
    other = {k: frames[k].sample(frac=1, random_state=1) for k in reversed(frames)}
    assert told(other).summary() == told(frames).summary()


@pytest.mark.parametrize("factor", [1024.0, 1 / 88.4])
def test_the_unit_that_all_sites_use_changes_nothing(factor):
    frames = faulty()
    for k in frames:
        frames[k] = frames[k].assign(resp_rate=frames[k].resp_rate * factor)
    assert off(told(frames)) == off(told(faulty()))


def test_names_of_columns_and_sites_change_nothing():
    names = {"resp_rate": "x1", "sbp": "x0", "dbp": "z"}
    frames = {f"s{k}": t.rename(columns=names) for k, t in faulty().items()}
    spec = {names.get(k, k): v for k, v in SPEC.items()}
    there = [
        (f"s{s}", rule, names.get(c, c), names.get(about, about))
        for s, rule, c, about in off(told(faulty()))
    ]
    assert off(told(frames, spec)) == there


def test_masks_change_nothing():
    assert told(faulty(), secure_aggregation="true").summary() == told(faulty()).summary()


def test_a_fault_elsewhere_changes_no_other_sites_findings():
    frames = faulty()
    before = off(told(frames))
    frames["f"] = frames["f"].assign(resp_rate=frames["f"].resp_rate * 1000)
    assert [r for r in off(told(frames)) if r[0] != "f"] == before


# what is not recorded -----------------------------------------------------------------


def regression(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = x @ [1.0, 0.6, 0.2, 0.0] + rng.normal(size=n)
    return pd.DataFrame(x, columns=list("uvwz")).assign(y=y)


TYPES = dict.fromkeys("uvwzy", "number")


def test_what_a_column_would_add_is_what_cross_validation_says_at_the_other_sites():
    frames = {k: regression(800, i) for i, k in enumerate("abcd")}
    rest = pd.concat([frames[k] for k in "bcd"])
    frames["a"] = frames["a"].assign(v=np.nan, w=np.nan, z=np.nan)
    found = told(frames, TYPES, fc.Continuous("y")).of("a")

    def loss(columns: list[str]) -> float:
        return float(np.mean((rest.y - cross_val_predict(
            LinearRegression(), rest[columns], rest.y, cv=10)) ** 2))  # fmt: skip

    falls = {r.column: r for r in found if r.rule == "unrecorded"}
    assert list(falls) == ["v", "w", "z"]
    for c, r in falls.items():
        expected = 1 - loss(["u", c]) / loss(["u"])
        assert r.size == pytest.approx(expected, abs=0.02)
        assert r.low is not None
        assert r.low - 0.005 <= max(expected, 0) <= r.high + 0.005
    assert falls["v"].low > 0.15
    assert falls["z"].low == 0
    assert "adds nothing clear" in falls["z"].line
    assert {r.rule for r in found} == {"empty", "unrecorded"}


def test_the_interval_of_a_gain_covers_it_in_about_95_of_100_federations():
    """The gain of v beside u is 0.6²/(0.6² + 0.2² + 1) of the loss."""
    true, covered = 0.36 / 1.40, 0
    for seed in range(60):
        x = [regression(300, 7 * seed + i).to_numpy() for i in range(3)]
        linked = [own.pairs(t, 5) for t in x]
        n = sum(p.n for p in linked)
        r = sum(p.n * p.r for p in linked) / np.where(n > 0, n, 1)
        np.fill_diagonal(r, 1.0)
        part = own.fisher(np.sqrt(1 - gains.unexplained(r, [0, 1]) / gains.unexplained(r, [0])))
        half = 1.96 / np.sqrt(900 - 2 - 3)
        covered += np.tanh(part - half) ** 2 <= true <= np.tanh(part + half) ** 2
    assert covered >= 53  # of 60 at 0.95 fewer come once in a hundred tries


def test_a_category_of_many_levels_that_adds_nothing_is_not_called_clear():
    """Its five columns have an R² of 5/n by chance alone."""
    clear = 0
    for seed in range(12):
        frames = {}
        for i, k in enumerate("abcd"):
            rng = np.random.default_rng((seed, i))
            ward = rng.choice(list("123456"), 150) if k != "a" else None
            frames[k] = regression(150, 50 * seed + i)[["u", "y"]].assign(ward=ward)
        spec = {"u": "number", "y": "number",
                "ward": {"type": "category", "levels": list("123456")}}  # fmt: skip
        (found,) = [
            r for r in told(frames, spec, fc.Continuous("y")).of("a") if r.rule == "unrecorded"
        ]
        clear += found.low > 0
    assert clear <= 2


@pytest.mark.parametrize("share", [0.0, 0.03, 0.2])
def test_the_interval_of_several_columns_covers_their_share(share):
    rng = np.random.default_rng(1)
    n, q, covered = 400, 5, 0
    beta = np.sqrt(share / (1 - share) / q)
    for _ in range(200):
        x = rng.normal(size=(n, q))
        y = x.sum(axis=1) * beta + rng.normal(size=n)
        part = 1 - np.linalg.lstsq(x, y, rcond=None)[1][0] / float(y @ y)
        low, high = gains.interval(part, n, q, q)
        covered += low <= share <= high
    assert covered >= 182  # of 200 at 0.95 fewer come once in a hundred tries


def test_a_column_that_one_site_alone_records_is_no_gain():
    frames = {k: regression(300, i) for i, k in enumerate("abcd")}
    for k in "abc":
        frames[k] = frames[k].assign(v=np.nan)
    assert "unrecorded" not in {r.rule for r in told(frames, TYPES, fc.Continuous("y")).remarks}


def test_as_many_gains_are_told_as_are_asked_for():
    frames = {k: regression(300, i) for i, k in enumerate("abcd")}
    frames["a"] = frames["a"].assign(v=np.nan, w=np.nan, z=np.nan)
    for asked in (0, 2):
        found = told(frames, TYPES, fc.Continuous("y"), gains=asked).of("a")
        assert sum(r.rule == "unrecorded" for r in found) == asked


# the parts, against others' -----------------------------------------------------------


def test_a_place_is_the_trimmed_mean_of_scipy_and_both_follow_the_unit():
    rng = np.random.default_rng(0)
    x = rng.gamma(2.0, 3.0, 203)
    found = own.known(np.r_[x, np.nan], 5)
    assert found.n == 203
    assert found.place == pytest.approx(stats.trim_mean(x, 0.25), rel=1e-12)
    turned = own.known(5 - 3 * x, 5)
    assert turned.place == pytest.approx(5 - 3 * found.place)
    assert turned.spread == pytest.approx(3 * found.spread)


def test_a_spread_moves_little_where_few_values_are_anything():
    x = np.random.default_rng(0).normal(size=200)
    wild = np.r_[x[:-8], np.full(8, 1e9)]
    assert own.known(wild, 5).spread == pytest.approx(own.known(x, 5).spread, rel=0.15)
    assert own.known(wild, 5).place == pytest.approx(own.known(x, 5).place, abs=0.1)


def test_associations_are_pandas_correlations_to_the_step_that_is_told():
    x = site("q", 400)[["age", "sbp", "dbp"]].to_numpy()
    found = own.pairs(x, 5)
    expected = pd.DataFrame(x).corr().to_numpy()
    off_diagonal = ~np.eye(3, dtype=bool)
    assert_allclose(found.r[off_diagonal], expected[off_diagonal], atol=0.01)
    known = (~np.isnan(x)).astype(int)
    assert_allclose(found.n[off_diagonal], (known.T @ known // 5 * 5)[off_diagonal])
    assert (np.diag(found.n) == 0).all()


def test_what_is_usual_among_sites_is_the_median_with_scipys_mad_and_the_prior():
    v = np.random.default_rng(0).normal(2, 0.5, 41)
    found = others.usual(v, 0.5)
    mad = stats.median_abs_deviation(v, scale="normal")
    assert found.middle == np.median(v)
    assert found.sd**2 == pytest.approx((4 * 0.25 + 40 * mad**2) / 44, rel=1e-4)
    assert others.usual(np.zeros(0), 0.5).k == 0


def test_a_cell_holds_its_value_near_the_centre_to_a_twentieth_and_far_to_5_percent():
    for v in (0.0, 0.3, -2.0, 40.0, -1e5):
        back = float(others.value_of(np.array(others.cell(v))))
        assert back == pytest.approx(v, rel=0.03, abs=0.026)


def test_the_auc_is_scikit_learns():
    rng = np.random.default_rng(0)
    y, score = rng.integers(0, 2, 90), rng.normal(size=90).round(1)
    assert rules.auc(score, y) == pytest.approx(roc_auc_score(y, score), rel=1e-12)


def test_the_label_of_times_is_the_martingale_residual_of_the_definition():
    """A row counts the hazard of every time up to its own: events there over rows still there."""
    time = np.array([2.0, 3.0, 3.0, 5.0, 1.0])
    event = np.array([1, 0, 1, 1, 0])
    hazard = [sum((time == t) & (event == 1)) / sum(time >= t) for t in time]
    at = dict(zip(time, hazard, strict=True))
    upto = [sum(h for s, h in at.items() if s <= t) for t in time]
    data = Encoded((time,), (event,))
    assert_allclose(own.label_of(data, np.array([own.TIME, 0, 0])), event - np.array(upto))


def test_correlations_of_no_table_are_made_those_of_one():
    r = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    fixed = look.proper(r, [0, 1, 2])
    assert np.linalg.eigvalsh(fixed)[0] > 0
    assert_allclose(np.diag(fixed), 1)
    good = np.array([[1, 0.5], [0.5, 1]])
    assert look.proper(good, [0, 1]) is not None
    assert_allclose(look.proper(good, [1, 0]), good)


# what is kept back --------------------------------------------------------------------


@pytest.mark.parametrize("names", ["ab", "a"])
def test_fewer_than_three_sites_are_refused(names):
    frames = {k: v for k, v in federation().items() if k in names}
    with pytest.raises(SettingError, match=r"compares each site with at least two others"):
        told(frames)


def test_a_site_of_few_rows_tells_nothing_and_is_named():
    frames = federation()
    frames["e"] = in_mg(frames["e"]).iloc[:19]
    model = told(frames)
    assert model.few == ("e",)
    assert model.of("e") == ()
    assert model.cautions() == ("too few rows to be compared: e",)
    assert off(model) == []


def test_a_level_copies_and_gaps_of_fewer_than_min_cell_rows_are_not_told():
    frames = federation()
    few = frames["c"].copy()
    few.loc[:3, "class"] = "other"
    few = pd.concat([few, few.iloc[-4:]], ignore_index=True)
    few.loc[10:13, "sbp"] = np.nan
    plain = votes(frames["c"])
    hidden = votes(few.iloc[:-4].reset_index(drop=True))
    assert not hidden.uses[1, 3]
    assert (hidden.missing == plain.missing).all()
    assert votes(few).copies == 0


@pytest.mark.parametrize("n", [20, 23, 31, 60, 400])
def test_a_share_leaves_several_counts_so_that_table_1_keeps_what_it_hides(n):
    """Of 20 rows Table 1 shows 10 and hides 8 and 2: a share of 8/20 would tell the 2."""
    shares = [own.shown_share(count, n, 5) for count in range(n + 1)]
    assert min(shares.count(share) for share in shares) >= 5
    assert max(abs(s - c / n) for c, s in enumerate(shares)) <= 10 / n


def test_no_grid_however_fine_tells_a_place_to_more_than_a_quarter_of_its_error():
    x = np.random.default_rng(0).normal(60, 10, 100)
    told_by = set()
    for moved in (0.0, 1e-3, -1e-3):
        data = Encoded((np.sort(x) + moved * (np.arange(100) == 50),), ())
        centre, unit = np.array([60.0]), np.array([1.0])
        for _ in range(12):
            site = Site("a", data, None, entropy(0, "a", 0))
            found = steps.vote_place.run(site, centre=centre, unit=unit, min_cell=5).place
            centre = centre + unit * others.value_of(others.median_of(found))
            unit = unit / 10
        told_by.add(round(float(centre[0]), 9))
    assert len(told_by) == 1
    assert abs(told_by.pop() - stats.trim_mean(x, 0.25)) < 0.25


def asked(data: Encoded, **changed: Any) -> Any:
    """Return what a site of two codes and a number tells, asked as the study asks, or not."""
    site = Site("a", data, None, entropy(0, "a", 0))
    given = {
        "centre": np.zeros(1), "unit": np.ones(1), "n_levels": np.array([2, 2]),
        "label": np.array([own.CODES, 1, 0]),
    }  # fmt: skip
    sums = vars(steps.vote.run(site, **given, min_cell=5))
    rest = {
        "feature": np.array([True, True, False]), "far": 5.0, "min_cell": 5,
        "factors": np.array([u.back for u in words.UNITS]),
    }  # fmt: skip
    return steps.compare.run(site, **{**sums, **given, **rest, **changed})


@pytest.mark.parametrize(
    "changed", [{"far": 0.0}, {"far": np.nan}, {"factors": np.array([[1.0, 0.1], [1.0, 0.2]])}]
)
def test_a_site_asked_to_tell_what_is_not_off_refuses(changed):
    """Of many shifts by which its place might be as elsewhere, the best one would tell it."""
    rng = np.random.default_rng(0)
    data = Encoded((rng.normal(size=60),), (rng.integers(0, 2, 60), rng.integers(0, 2, 60)))
    asked(data)
    with pytest.raises(Refused):
        asked(data, **changed)


def test_a_label_is_not_scored_by_a_column_that_the_site_does_not_vote_on():
    """Two patients are of the second level, and have the event: only false votes ask for them."""
    x = np.random.default_rng(0).normal(size=60)
    level = (np.arange(60) < 2).astype(int)
    data = Encoded((x,), (level, ((np.arange(60) < 2) | (np.arange(60) % 3 == 0)).astype(int)))
    n, k, r = np.full((4, 4), 500.0), np.full((4, 4), 5), np.zeros((4, 4))
    r[1, 3] = r[3, 1] = -0.9
    z = k * np.arctanh(r)
    lies = {"n": n, "k": k, "nr": n * r, "z": z, "z2": z * z / 5}
    assert asked(data, **lies).rule.tolist() == []
    common = (np.arange(60) % 2).astype(int)
    assert (
        rules.LABEL
        in asked(
            Encoded((x,), (common, np.where(np.arange(60) < 12, 1 - common, common))), **lies
        ).rule
    )


def test_an_outcome_of_one_patient_far_from_the_others_does_not_tell_her_values():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=200), rng.normal(size=200)
    y[0] = 1e6
    told_by = []
    for value in (2.5, -2.5):
        x[0] = value
        columns = own.columns_of(
            Encoded((x.copy(), y), ()), np.zeros(0, int), np.array([own.NUMBER, 1, 0]), 5
        )
        told_by.append(own.pairs(columns, 5).r[0, -1])
    assert abs(told_by[0] - told_by[1]) < 0.1


@pytest.mark.parametrize(("events", "told_of"), [(1, False), (4, False), (60, True)])
def test_of_few_events_no_correlation_of_times_is_told(events, told_of):
    """Of one event it would be that patient's value."""
    frames = {}
    for i, k in enumerate("abc"):
        rng = np.random.default_rng(i)
        e = np.zeros(150)
        e[rng.permutation(150)[: events if k == "b" else 70]] = 1
        frames[k] = Encoded((rng.normal(size=150), rng.exponential(2, 150)), (e.astype(int),))
    found = steps.votes_of(
        frames["b"], np.zeros(2), np.ones(2), np.array([2]), np.array([own.TIME, 1, 0]), 5
    )
    assert bool(found.n[-1].any()) == told_of


def votes(frame: pd.DataFrame) -> Any:
    from fedcohort.algorithms.feedback.steps import votes_of

    names = list(NUMBERS)
    levels = {"sex": [0.0, 1.0], "class": ["I", "II", "III", "other"], "death": [0.0, 1.0]}
    codes = tuple(frame[k].map({v: i for i, v in enumerate(vs)}).to_numpy()
                  for k, vs in levels.items())  # fmt: skip
    data = Encoded(tuple(frame[k].to_numpy(float) for k in names), codes)
    centre, unit = np.array([MEANS[k] for k in names]), np.array([NUMBERS[k] for k in names])
    label = np.array([own.CODES, 2, 0])
    return votes_of(data, centre, unit, np.array([2, 4, 2]), label, 5)


def test_counts_of_pairs_are_multiples_of_min_cell_and_small_tables_are_closed():
    frame = site("q", 300)
    frame.loc[:, "sex"] = 0.0
    frame.loc[:7, "sex"] = 1.0
    frame.loc[:7, "death"] = [1.0] * 3 + [0.0] * 5
    found = votes(frame)
    assert (found.n % 5 == 0).all()
    assert found.n[5, -1] == 0  # sex by death has a cell of 3
    assert found.n[0, -1] > 0
    frame.loc[:7, "sex"] = 0.0
    frame.loc[:3, "sex"] = 1.0
    assert (votes(frame).n[5] == 0).all()  # 4 rows are of the rarer sex


def test_one_row_more_or_less_changes_a_vote_by_at_most_a_cell_and_shows_no_value():
    frame = site("q", 300)
    wild = frame.copy()
    wild.loc[0, "age"] = 1e6
    one, other = votes(frame), votes(wild)
    for name in ("place", "spread"):
        moved = np.argmax(getattr(one, name), 1) - np.argmax(getattr(other, name), 1)
        assert np.abs(moved).max() <= 1
    assert np.abs(one.nr - other.nr).max() / 300 < 0.08


def test_no_line_holds_a_patients_value():
    frames = federation()
    frames["c"] = constant(shifted(frames["c"]))
    text = " ".join(r.line for r in told(frames).remarks)
    assert "60.3" not in text
    for value in frames["c"].resp_rate.unique():
        assert f"{value:.1f}" not in text


def test_feedback_is_saved_and_read(tmp_path):
    frames = faulty()
    frames["b"] = frames["b"].assign(glucose=np.nan)
    known = Dictionary.from_dict(SPEC)
    fit = fc.fit("feedback", Cohort(frames, known, fc.Binary("death"), 0))
    fit.save(tmp_path)
    back = fc.load(tmp_path)
    assert back.summary.equals(fit.summary)
    assert "unrecorded" in set(fit.summary["rule"])
    json.dumps(fit.model.meta())


@pytest.mark.parametrize(("key", "value"), [("far", 1.0), ("gains", -1), ("gains", 101)])
def test_a_setting_outside_its_bounds_is_refused(key, value):
    with pytest.raises(SettingError, match=f"{key}.*is {value}"):
        told(federation(), **{key: value})
