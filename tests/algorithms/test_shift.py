"""`shift` against tables and gradients of each site's rows, and what its replies keep back."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.distance import jensenshannon
from scipy.stats import chi2_contingency

import fedcohort as fc
from fedcohort.algorithms.shift import METHOD, steps
from fedcohort.algorithms.shift.model import ShiftModel
from fedcohort.data.describe import describe_columns
from fedcohort.data.describe.shown_number import HIDDEN
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoded
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.protocol import DataError, Refused, Site
from fedcohort.protocol.step import entropy, mark_of
from fedcohort.study.api import Cohort
from fedcohort.training import disclosure

LEVELS = ["I", "II", "III"]
DISEASE = fc.Binary("y")
SPEC = {
    "age": {"type": "number"},
    "stage": {"type": "category", "levels": LEVELS},
    "y": {"type": "binary"},
}


def patients(n, seed, age=60.0, stage=(0.3, 0.4, 0.3), effect=1.0):
    rng = np.random.default_rng(seed)
    years = rng.normal(age, 10, n).round(1)
    p = 1 / (1 + np.exp(-effect * (years - 60) / 10))
    return pd.DataFrame(
        {
            "age": years,
            "stage": rng.choice(np.array(LEVELS, object), n, p=list(stage)),
            "y": (rng.random(n) < p).astype(int),
        }
    )


FRAMES = {
    "alike": patients(260, 1),
    "same": patients(300, 2),
    "older": patients(240, 3, age=75),
    "turned": patients(280, 4, effect=-1.5),
    "stages": patients(250, 5, stage=(0.8, 0.1, 0.1)),
}


def shifts(frames=FRAMES, outcome=DISEASE, spec=SPEC, **options):
    fed = Cohort(frames, Dictionary.from_dict(spec), outcome, 0)
    return fc.fit("shift", fed, **options)


def row(model, kind, variable, one, two):
    pair = tuple(sorted((one, two)))
    (found,) = [
        r for r in model.rows
        if (r["kind"], r["variable"], r["site"], r["other"]) == (kind, variable, *pair)
    ]  # fmt: skip
    return found


def test_levels_are_compared_as_pandas_and_scipy_compare_them():
    model = shifts().model
    for kind, variable in (("feature", "stage"), ("label", "y")):
        for one, two in itertools.combinations(FRAMES, 2):
            table = [FRAMES[s][variable].value_counts().sort_index() for s in (one, two)]
            found = row(model, kind, variable, one, two)
            assert found["value"] == pytest.approx(jensenshannon(*table, base=2) ** 2, abs=1e-12)
            test = chi2_contingency(np.array(table), correction=False)
            assert found["p"] == pytest.approx(test.pvalue, rel=1e-9)
            k, n = len(table[0]), [t.sum() for t in table]
            chance = (k - 1) * (1 / n[0] + 1 / n[1]) / (8 * math.log(2))
            assert found["expected"] == pytest.approx(chance)


def test_the_outcome_within_levels_is_compared_within_them():
    model = shifts().model
    one, two = FRAMES["alike"], FRAMES["turned"]
    tables = [pd.crosstab(f["stage"], f["y"]) for f in (one, two)]
    shares = sum(t.sum(axis=1) / t.sum().sum() for t in tables) / 2
    js = [jensenshannon(tables[0].loc[s], tables[1].loc[s], base=2) ** 2 for s in LEVELS]
    found = row(model, "conditional", "stage", "alike", "turned")
    assert found["value"] == pytest.approx(float(shares @ js))


def test_cosines_are_of_the_sites_own_gradients_to_the_rounding():
    model = shifts().model
    pooled = pd.concat(FRAMES.values())
    found = {}
    for name, f in FRAMES.items():
        age = (f["age"] - pooled["age"].mean()) / pooled["age"].std()
        x = np.column_stack([np.ones(len(f)), age, f["stage"] == "II", f["stage"] == "III"])
        found[name] = x.T @ (f["y"] - pooled["y"].mean()) / len(f)
    for one, two in itertools.combinations(FRAMES, 2):
        a, b = found[one], found[two]
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert row(model, "gradient", "", one, two)["value"] == pytest.approx(cosine, abs=0.08)


def test_each_kind_of_shift_is_found_where_it_is():
    model = shifts().model
    clear = {(r["kind"], r["variable"], r["site"], r["other"]) for r in model.rows if r["clear"]}
    assert ("feature", "age", "alike", "older") in clear
    assert ("feature", "stage", "alike", "stages") in clear
    assert ("conditional", "age", "alike", "turned") in clear
    assert not {c for c in clear if c[2:] == ("alike", "same")}
    assert row(model, "gradient", "", "alike", "turned")["value"] < -0.5
    assert row(model, "gradient", "", "alike", "same")["value"] > 0.9


def test_sites_that_are_alike_are_called_so():
    table = patients(1500, 7)
    clear = 0
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(1500)
        frames = {f"s{i}": table.iloc[o] for i, o in enumerate(np.array_split(order, 5))}
        clear += any(r["clear"] for r in shifts(frames).model.rows)
    assert clear <= 1


def test_small_sites_are_not_farther_by_chance():
    model = shifts({"big": patients(900, 1), "large": patients(900, 2), "small": patients(40, 3)})
    seen = model.model.matrix("feature")
    chance = model.model.matrix("feature", expected=True)
    assert chance[0, 2] > 5 * chance[0, 1]
    assert (seen[0, 2] - chance[0, 2]) < 0.03


def test_the_same_rows_at_two_sites_lie_on_one_point():
    frames = {"a": FRAMES["alike"], "b": FRAMES["alike"], "c": FRAMES["older"]}
    model = shifts(frames).model
    assert_allclose(model.matrix("feature")[0, 1], 0.0, atol=1e-12)
    assert_allclose(model.matrix("gradient")[0, 1], 1.0)
    names, at, share = model.places("feature")
    assert names == ("a", "b", "c")
    assert_allclose(at[0], at[1], atol=1e-7)
    assert abs(at[0, 0] - at[2, 0]) > 0.1
    assert share == pytest.approx(1.0)


def test_neither_the_order_nor_the_names_of_sites_count():
    model = shifts().model
    other = shifts({f"x{9 - i}": FRAMES[s] for i, s in enumerate(FRAMES)}).model
    names = [f"x{9 - list(FRAMES).index(s)}" for s in model.sites]
    at = [other.sites.index(n) for n in names]
    for kind in model.kinds:
        assert_allclose(other.matrix(kind)[np.ix_(at, at)], model.matrix(kind), atol=1e-12)


def test_times_to_an_event_have_two_labels():
    rng = np.random.default_rng(0)
    frames = {
        s: f.drop(columns="y").assign(
            time=rng.exponential(3 if s == "older" else 9, len(f)).round(2) + 0.01,
            event=(rng.random(len(f)) < (0.2 if s == "same" else 0.6)).astype(int),
        )
        for s, f in FRAMES.items()
    }
    spec = {k: SPEC[k] for k in ("age", "stage")} | {
        "time": {"type": "time"}, "event": {"type": "event"},
    }  # fmt: skip
    model = shifts(frames, fc.Survival("time", "event"), spec).model
    assert row(model, "label", "event", "alike", "same")["clear"]
    assert not row(model, "label", "event", "alike", "older")["clear"]
    assert row(model, "label", "time", "alike", "older")["clear"]
    assert {r["variable"] for r in model.rows if r["kind"] == "conditional"} == {"age", "stage"}
    assert "gradient" in model.kinds


def test_without_an_outcome_features_alone_are_compared():
    frames = {s: f.drop(columns="y") for s, f in FRAMES.items()}
    model = shifts(frames, None, {k: SPEC[k] for k in ("age", "stage")}).model
    assert model.kinds == ("feature",)


def test_numbers_as_outcome_are_told_by_two_groups_that_are_cells_of_theirs():
    model = shifts(outcome=fc.Continuous("age")).model
    assert row(model, "label", "age", "alike", "older")["clear"]
    assert "conditional" in model.kinds
    assert "gradient" in model.kinds


def test_a_site_of_few_rows_is_left_out_and_hides_nothing_of_the_others():
    model = shifts({**FRAMES, "tiny": patients(4, 8)}).model
    assert model.sites == tuple(sorted(FRAMES))
    assert model.left_out == {"tiny": "fewer than 5 rows (min_cell)"}
    assert {r["variable"] for r in model.rows if r["kind"] == "feature"} == {"age", "stage"}
    with pytest.raises(DataError, match="1 sites have 5 rows or more"):
        shifts({"a": FRAMES["same"], "tiny": patients(4, 8)})
    with pytest.raises(DataError, match="0 sites have 5 rows or more"):
        shifts({"less": patients(3, 7), "tiny": patients(4, 8)})


def test_a_saved_model_says_the_same(tmp_path):
    fit = shifts()
    fit.save(tmp_path / "m")
    back = fc.load(tmp_path / "m").model
    assert isinstance(back, ShiftModel)
    assert back.rows == fit.model.rows
    assert_allclose(back.matrix("gradient"), fit.model.matrix("gradient"))
    names = {r["name"] for r in back.parameters(np.zeros(0))}
    assert "feature: alike and same" in names


# what leaves a site ---------------------------------------------------------------------


def asked(numbers, codes, edges, n_levels, label, cut=0.0, least=5, **more):
    data = Encoded(
        tuple(np.asarray(x, float) for x in numbers), tuple(np.asarray(c) for c in codes)
    )
    site = Site("a", data, None, entropy(0, "a", 0))
    v = len(numbers) + len(codes)
    within = np.array([j != label for j in range(v)]) & (label >= 0)
    return steps.count_cells.run(
        site, edges=np.array(edges, float).reshape(len(numbers), -1), cut=np.array([cut]),
        n_levels=np.array(n_levels, int), label=label, within=within, min_cell=least, **more,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_what_a_site_hides_of_table_1_beside_another_is_in_no_cell(seed):
    rng = np.random.default_rng(seed)
    x, code = rng.normal(3, 2, 90), rng.integers(0, 3, 90)
    y = rng.integers(0, 2, 90)
    closed = rng.random((1, 3, 5)) < 0.2  # of missing values and levels, then of a mean
    closed[0, 0, 2:4] = closed[0, 1:, 4] = False
    told = asked(
        [x], [code, y], [2, 3, 4], [3, 2], label=2, marks=np.array([mark_of("a")]), closed=closed
    )
    of_x, of_code, of_y = closed[0]
    assert (told.cells[0][:4] == HIDDEN).all() == of_x.any()
    assert (told.crossed[0][1:5] == HIDDEN).all() or not of_x.any()
    for cells, table, line in zip(told.cells[1:], told.crossed[1:], (of_code, of_y), strict=True):
        k = 4 if line is of_code else 3
        assert (cells[:k][line[:k]] == HIDDEN).all()
        assert (table[:k][line[:k]] == HIDDEN).all()
    assert (told.crossed[:2][..., of_y[1:3]] == HIDDEN).all()  # the outcome's groups


def test_no_gradient_is_told_of_an_outcome_or_level_that_table_1_hides():
    rng = np.random.default_rng(4)
    data = Encoded((rng.normal(size=90),), (rng.integers(0, 3, 90), rng.integers(0, 2, 90)))

    def told(closed):
        return steps.pull_here.run(
            Site("a", data, None, entropy(0, "a", 0)), centre=np.zeros(1), spread=np.ones(1),
            n_levels=np.array([3, 0]), label=2, other=0, law="levels", null=np.array([0.5, 0.5]),
            min_cell=5, marks=np.array([mark_of("a")]), closed=closed,
        )  # fmt: skip

    none = np.zeros((1, 3, 5), bool)
    every = told(none).shown
    assert every.tolist() == [True] * 4  # the outcome, the number, two levels
    level, mean, outcome = none.copy(), none.copy(), none.copy()
    level[0, 1, 1:3] = mean[0, 0, 4] = outcome[0, 2, 1:3] = True
    assert told(level).shown.tolist() == [True, True, False, True]  # of I the rest tells
    assert told(mean).shown.tolist() == [True, False, True, True]
    assert told(outcome).reason != disclosure.FINE


@settings(max_examples=150)
@given(st.integers(0, 2**20))
def test_no_count_of_1_to_4_leaves_nor_what_is_left_of_a_known_sum(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 60))
    x = np.where(rng.random(n) < rng.choice([0, 0.1]), np.nan, rng.exponential(2, n))
    code = rng.choice(4, n, p=rng.dirichlet(np.ones(4))) - 1
    y = rng.choice(3, n, p=rng.dirichlet(np.ones(3))) - 1
    told = asked([x], [code, y], [1, 2, 3, 4], [3, 2], label=2)
    known = [n - np.isnan(x).sum(), n, n]
    for cells, total in zip(told.cells, known, strict=True):
        shown = cells[cells != HIDDEN]
        assert not ((shown > 0) & (shown < 5)).any()
        gone = (cells == HIDDEN).sum()
        if gone and not hidden(np.array([n - total, total]), 5).any():
            assert gone > 1
            assert total - shown.sum() > 1
    groups = np.bincount(y + 1, minlength=3)
    for table in told.crossed[:2]:
        shown = table[table != HIDDEN]
        assert not ((shown > 0) & (shown < 5)).any()
        # levels are hidden whole, two or more, with none or 5 rows together in each shown group
        lines = (table == HIDDEN).all(axis=1)
        column = (table == HIDDEN).all(axis=0)
        assert ((table == HIDDEN) == (lines[:, None] | column[None, :])).all()
        if lines.any() and not lines.all():
            rest = groups[1:][~column] - table[~lines][:, ~column].sum(axis=0)
            assert not ((rest > 0) & (rest < 5)).any()


@given(st.integers(0, 2**20))
@settings(max_examples=60)
def test_what_is_hidden_of_a_variable_is_hidden_in_its_table_by_groups(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 80))
    x = np.where(rng.random(n) < 0.1, np.nan, rng.exponential(2, n))
    y = rng.integers(0, 2, n)
    told = asked([x], [y], [1, 2, 3, 4], [2], label=1)
    away = np.isnan(x).sum()
    if not hidden(np.array([away, n - away]), 5).any():
        secret = told.cells[0][:5] == HIDDEN
        assert (told.crossed[0][1:][secret] == HIDDEN).all()


def test_a_cell_is_not_shown_by_groups_where_its_sum_would_tell_a_hidden_one():
    """Of 99 values, 6 missing in Table 1, 3 and 40 are hidden: 40 by groups would tell the 3."""
    x = np.repeat([np.nan, 0.5, 1.5, 2.5], [6, 3, 40, 50])
    y = np.r_[np.zeros(9, int), np.arange(90) % 2]
    told = asked([x], [y], [1, 2, 3], [2], label=1)
    assert told.cells[0].tolist()[:4] == [HIDDEN, HIDDEN, 50, 0]
    assert told.crossed[0].tolist()[3:] == [[25, 25], [0, 0]]
    assert (told.crossed[0][:3] == HIDDEN).all()


def test_no_small_count_follows_from_all_that_a_site_of_8_rows_tells():
    """Each way to deal 8 rows to missing values and 3 cells, by 2 groups, with a `min_cell` of 3.

    Of those that tell the same, Table 1 included, a cell, or a sum by cell or group, of 1 or 2 has
    another value in some.
    """
    found: dict[bytes, list[tuple[int, ...]]] = {}
    values, two = np.repeat([np.nan, 0.5, 1.5, 2.5], 2), np.tile([0, 1], 4)
    for bars in itertools.combinations(range(15), 7):
        table = np.diff([-1, *bars, 15]) - 1
        x, y = np.repeat(values, table), np.repeat(two, table)
        told = asked([x], [y], [[1, 2]], [2], label=1, least=3)
        site = Site("a", Encoded((x,), (y,)), None, entropy(0, "a", 0))
        first = describe_columns.run(site, n_levels=np.array([2]), min_cell=3)
        said = (first.rows, first.missing, first.levels, told.cells, told.crossed)
        found.setdefault(b"".join(v.tobytes() for v in said), []).append(tuple(table.tolist()))
    for tables in found.values():
        t = np.array(tables).reshape(-1, 4, 2)
        parts = np.concatenate([t.reshape(-1, 8), t.sum(axis=1), t.sum(axis=2)], axis=1)
        known = (parts == parts[0]).all(axis=0)
        assert not (known & (parts[0] > 0) & (parts[0] < 3)).any()


def test_an_outcome_that_is_a_number_hides_cells_in_each_group_by_itself():
    y = np.repeat([0.5, 1.5, 2.5, 3.5, 4.5], [3, 45, 50, 40, 20])
    told = asked([np.zeros(158), y], [], [[1, 2, 3, 4], [1, 2, 3, 4]], [], label=1, cut=2.0)
    # with 158 in all, 3 and 20 would be hidden: the group's 48 less 45 would then be the 3
    assert told.cells[1].tolist()[:5] == [HIDDEN, HIDDEN, 50, 40, 20]


@pytest.mark.parametrize(
    "edges", [[1, 2, 4], [0.3, 1.3, 2.3], [3, math.inf], [2, 1], [10, 13, 16]], ids=str
)
def test_edges_at_will_are_refused(edges):
    with pytest.raises(Refused):
        asked([np.arange(30.0)], [], [edges], [], label=-1)


def test_a_cut_that_is_no_edge_is_refused():
    with pytest.raises(Refused, match="not divided at one of its edges"):
        asked([np.arange(30.0)], [], [[10, 15, 20]], [], label=0, cut=14.0)


def test_a_site_of_one_class_tells_no_gradient_and_rare_levels_tell_no_part():
    frames = {**FRAMES, "dead": FRAMES["same"].assign(y=1)}
    model = shifts(frames).model
    assert "dead" not in {r["site"] for r in model.rows if r["kind"] == "gradient"}
    rare = patients(200, 9)
    rare.loc[:2, "stage"], rare.loc[3:, "stage"] = "III", "I"
    data = Encoded(
        (rare["age"].to_numpy(float),),
        (rare["stage"].map(LEVELS.index).to_numpy(), rare["y"].to_numpy()),
    )
    told = steps.pull_here.run(
        Site("a", data, None, entropy(0, "a", 0)), centre=np.array([60.0]), spread=np.array([10.0]),
        n_levels=np.array([3, 0]), label=2, other=0, law="levels", null=np.array([0.5, 0.5]),
        min_cell=5,
    )  # fmt: skip
    assert told.shown.tolist() == [True, True, True, False]
    assert told.mean[3] == 0


def pulled(x, time, event, *, centre=0.0, spread=1.0):
    site = Site("a", Encoded((x, time), (event,)), None, entropy(0, "a", 0))
    return steps.pull_here.run(
        site, centre=np.array([centre, 0.0]), spread=np.array([spread, 0.0]),
        n_levels=np.array([0]), label=2, other=1, law="survival", null=np.array([0.1]), min_cell=5,
    )  # fmt: skip


def test_a_patient_followed_for_very_long_does_not_tell_her_values():
    """Her residual δ − λt is nearly all of the mean, and the part of x would be her x times it."""
    rng = np.random.default_rng(0)
    x, time, event = rng.normal(size=200), rng.exponential(9, 200), rng.integers(0, 2, 200)
    assert pulled(x, time, event).shown.all()
    time[0] = 1e5
    assert not pulled(x, time, event).shown.any()


def test_numbers_whose_squares_are_none_are_left_out_and_nothing_else():
    frames = {s: f.assign(size=f["age"] * (1e200 if s == "same" else 1)) for s, f in FRAMES.items()}
    rows = shifts(frames, spec={**SPEC, "size": {"type": "number"}}).model.rows
    assert "same" in {r["site"] for r in rows if r["kind"] == "gradient"}


def test_numbers_too_small_for_round_cells_are_left_out_and_nothing_else():
    frames = {s: f.assign(mole=f["age"] * 1e-16) for s, f in FRAMES.items()}
    model = shifts(frames, spec={**SPEC, "mole": {"type": "number"}}).model
    assert {r["variable"] for r in model.rows if r["kind"] == "feature"} == {"age", "stage"}


def test_settings_say_what_is_asked_for():
    fit = shifts(conditional=False, gradients=False)
    assert fit.model.kinds == ("feature", "label")
    config = METHOD.configure({"conditional": False, "gradients": False})
    assert "outcome" not in METHOD.revealed(config, None)
    assert "gradient" not in METHOD.revealed(config, None)
    assert {s.name for s in METHOD.asked(config)} == {"describe_columns", "count_cells"}
