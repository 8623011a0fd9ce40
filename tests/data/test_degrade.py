"""Bad nodes: what a site loses is what was asked, counted on the tables; the same draws twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from fedcohort.data.degrade import HOW, RANDOM, Degradation, chosen, degrade
from fedcohort.data.degrade.items import COLUMN, VALUE
from fedcohort.data.outcome import Binary, Category, Continuous, Count, Ordered, Survival
from fedcohort.data.variable import Variable
from fedcohort.protocol import DataError

FEATURES = (
    Variable("x"),
    Variable("positive", range=(0.0, None)),
    Variable("whole", "integer"),
    Variable("grade", "category", ("I", "II", "III")),
    Variable("flag", "binary"),
)
NAMES = [v.name for v in FEATURES]
SITES = ("a", "b", "c", "d")


def table(n, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "positive": rng.exponential(size=n),
            "whole": rng.integers(0, 50, n) * 1.0,
            "grade": rng.choice(["I", "II", "III"], n),
            "flag": rng.integers(0, 2, n) * 1.0,
            "time": rng.integers(1, 900, n) * 1.0,
            "event": rng.integers(0, 2, n) * 1.0,
            "class": rng.choice(["p", "q", "r"], n),
            "row": np.arange(n) + 1000.0 * seed,
        }
    )
    return frame.assign(**{c: frame[c].mask(rng.random(n) < 0.1) for c in NAMES})


def frames(n=60):
    return {s: table(n + 7 * i, i) for i, s in enumerate(SITES)}


def made(items=(), swap=0.0, outcome=None, tables=None, seed=3, sites_seed=8):
    tables = frames() if tables is None else tables
    outcome = Survival("time", "event") if outcome is None else outcome
    return degrade(tables, items, swap, FEATURES, outcome, seed=seed, sites_seed=sites_seed)


def at_a(outcome=None, **what):
    """Return site a's table before and after, and what it was told to be given."""
    after, told = made((Degradation(sites=("a",), **what),), outcome=outcome)
    for site in SITES[1:]:
        assert_frame_equal(after[site], frames()[site])
        assert not told[site].degraded
    return frames()["a"], after["a"], told["a"]


def half_up(share, n):
    return int(np.floor(share * n + 0.5 + 1e-9))


@given(st.sampled_from(HOW), st.integers(1, 20), st.integers(0, 9))
def test_as_many_entries_go_missing_as_asked_and_no_other_changes(how, twentieths, seed):
    share = twentieths / 20
    items = (Degradation(sites=("a",), missing=share, how=how),)
    after, told = made(items, seed=seed)
    before, after = frames()["a"], after["a"]
    known = before[NAMES].notna()
    gone = known & after[NAMES].isna()
    asked = {
        RANDOM: half_up(share, int(known.to_numpy().sum())),
        VALUE: sum(half_up(share, int(known[c].sum())) for c in NAMES),
    }
    if how == COLUMN:
        empty = [c for c in NAMES if after[c].isna().all()]
        assert len(empty) == half_up(share, len(NAMES))
        assert list(told["a"].columns) == empty
        asked[COLUMN] = int(known[empty].to_numpy().sum())
    assert gone.to_numpy().sum() == asked[how] == told["a"].removed
    assert told["a"].entries == known.to_numpy().sum()
    unlost = gone.reindex(columns=after.columns, fill_value=False)
    assert_frame_equal(after.mask(unlost), before.mask(unlost))


def test_by_value_large_values_go_and_at_random_they_do_not():
    big = {"a": table(4000, 1)}
    for how, low, high in ((VALUE, 0.60, 0.72), (RANDOM, 0.47, 0.53)):
        after, _ = made((Degradation(sites=1, missing=0.3, how=how),), tables=big)
        for name in ("x", "whole"):
            rank = big["a"][name].rank(pct=True)
            lost = big["a"][name].notna() & after["a"][name].isna()
            assert low < rank[lost].mean() < high
        grade = big["a"]["grade"]
        lost = grade.notna() & after["a"]["grade"].isna()
        share = [lost[grade == g].sum() / (grade == g).sum() for g in ("I", "III")]
        assert (share[1] > 1.5 * share[0]) == (how == VALUE)


def test_only_named_columns_lose_entries():
    before, after, _ = at_a(missing=1.0, columns=("x", "flag"))
    assert after[["x", "flag"]].isna().all().all()
    assert_frame_equal(after.drop(columns=["x", "flag"]), before.drop(columns=["x", "flag"]))


def test_a_larger_share_takes_the_same_entries_and_more():
    sets = []
    for share in (0.2, 0.5):
        before, after, _ = at_a(missing=share)
        sets.append(before[NAMES].notna() & after[NAMES].isna())
    assert (sets[0] <= sets[1]).all().all()


@pytest.mark.parametrize(("rows", "left"), [(20, 20), (0.25, 15), (500, 60)])
def test_as_many_rows_stay_in_order_with_events_in_proportion(rows, left):
    before, after, told = at_a(rows=rows)
    assert len(after) == left == told.rows
    assert told.laid == 60
    assert after["row"].is_monotonic_increasing
    assert after["row"].is_unique
    kept = before.set_index("row").loc[after["row"]].reset_index()
    assert_frame_equal(kept[after.columns], after)
    assert abs(after["event"].sum() - before["event"].mean() * left) <= 1


@pytest.mark.parametrize(
    ("outcome", "name"), [(Binary("flag"), "flag"), (Category("class"), "class")]
)
def test_as_many_labels_flip_as_asked_each_to_another_class(outcome, name):
    tables = {s: f.assign(flag=f["flag"].fillna(0.0)) for s, f in frames().items()}
    features = tuple(v for v in FEATURES if v.name != name)
    item = Degradation(sites=("b", "c"), flip=0.3)
    after, told = degrade(tables, (item,), 0.0, features, outcome, seed=1, sites_seed=1)
    for site in SITES:
        changed = int((after[site][name] != tables[site][name]).sum())
        assert changed == (half_up(0.3, len(tables[site])) if site in "bc" else 0)
        assert changed == told[site].flipped
        assert set(after[site][name]) <= set(tables["a"][name])
    assert_frame_equal(after["b"].drop(columns=name), tables["b"].drop(columns=name))


def test_events_of_survival_flip_and_times_stay():
    before, after, told = at_a(flip=0.25)
    assert (before["event"] != after["event"]).sum() == 15 == told.flipped
    assert_frame_equal(before.drop(columns="event"), after.drop(columns="event"))


@given(st.integers(0, 99), st.sampled_from([0.2, 0.35, 1.0]))
def test_swapped_outcomes_are_a_permutation_of_a_share_of_each_sites_rows(seed, share):
    after, told = made(swap=share, seed=seed)
    for site, before in frames().items():
        rest = ["time", "event"]
        assert_frame_equal(after[site].drop(columns=rest), before.drop(columns=rest))
        pairs = [sorted(map(tuple, f[rest].to_numpy())) for f in (before, after[site])]
        assert pairs[0] == pairs[1]  # time and event move together
        moved = (before[rest] != after[site][rest]).any(axis=1).sum()
        assert moved <= half_up(share, len(before)) == told[site].swapped


def test_a_fifth_of_outcomes_moves_but_for_the_fixed_points_of_a_permutation():
    """Of a random permutation of m rows one stays in place on average, with variance 1."""
    n, sites = 500, 40
    tables = {f"s{i:02d}": table(n, i).assign(time=np.arange(n) + 1.0) for i in range(sites)}
    after, _ = made(swap=0.2, tables=tables)
    stayed = [100 - (after[s]["time"] != tables[s]["time"]).sum() for s in tables]
    assert abs(np.mean(stayed) - 1) < 3.5 / np.sqrt(sites)


def test_noise_has_the_asked_spread_in_numbers_alone_and_keeps_to_ranges():
    big = {"a": table(6000, 1), "b": table(6000, 2).assign(x=lambda f: 3 * f["x"])}
    after, told = made((Degradation(sites=("a",), noise=0.5),), tables=big)
    spread = pd.concat([big["a"]["x"], big["b"]["x"]]).std(ddof=0)
    added = (after["a"]["x"] - big["a"]["x"]).dropna()
    assert added.std() == pytest.approx(0.5 * spread, rel=0.04)
    assert abs(added.mean()) < 4 * 0.5 * spread / np.sqrt(len(added))
    assert after["a"]["positive"].min() == 0
    whole = after["a"]["whole"].dropna()
    assert (whole == whole.round()).all()
    assert (after["a"][["grade", "flag"]].fillna("")).equals(big["a"][["grade", "flag"]].fillna(""))
    numbers = big["a"][["x", "positive", "whole"]].notna().to_numpy().sum()
    assert told["a"].noisy == numbers
    assert (after["a"][NAMES].isna() == big["a"][NAMES].isna()).all().all()


def test_replaced_entries_are_noise_as_in_the_digits_of_d62():
    """A share of the entries is noise: levels that occur, numbers between smallest and largest."""
    big = {"a": table(3000, 1), "b": table(50, 2).assign(x=9.0)}
    after, told = made((Degradation(sites=("a",), replace=0.5),), tables=big)
    known = big["a"][NAMES].notna()
    assert told["a"].replaced == half_up(0.5, int(known.to_numpy().sum()))
    changed = (after["a"][NAMES] != big["a"][NAMES]) & known
    assert changed["x"].sum() == pytest.approx(0.5 * known["x"].sum(), rel=0.1)
    assert changed.to_numpy().sum() <= told["a"].replaced
    assert after["a"]["x"][changed["x"]].max() > 8  # up to the largest of all sites
    assert changed["flag"].mean() == pytest.approx(0.25 * known["flag"].mean(), rel=0.15)
    assert set(after["a"]["grade"].dropna()) == {"I", "II", "III"}
    assert (after["a"][NAMES].isna() == ~known).all().all()


def test_units_multiply_a_column_of_numbers_also_the_time():
    before, after, told = at_a(units={"x": 10.0, "time": 1 / 30})
    assert np.allclose(after["x"], before["x"] * 10, equal_nan=True)
    assert np.allclose(after["time"], before["time"] / 30)
    assert dict(told.units) == {"x": 10.0, "time": 1 / 30}
    rest = ["x", "time"]
    assert_frame_equal(after.drop(columns=rest), before.drop(columns=rest))


@pytest.mark.parametrize(
    "outcome",
    [Survival("time", "event"), Binary("event"), Category("event"), Ordered("event")],
    ids=lambda o: o.type,
)
def test_events_and_classes_have_no_unit(outcome):
    with pytest.raises(DataError, match="'event' of the outcome holds no numbers to convert"):
        made((Degradation(sites=("a",), units={"event": 2.0}),), outcome=outcome)


def test_counts_stay_counts():
    with pytest.raises(DataError, match="times the counts of 'time' are no counts"):
        made((Degradation(sites=("a",), units={"time": 0.5}),), outcome=Count("time"))
    before, after, _ = at_a(outcome=Count("time"), units={"time": 2.0})
    assert np.array_equal(after["time"], before["time"] * 2)


def test_everything_at_once_is_what_each_alone_leads_to_in_the_written_order():
    what = {"rows": 40, "flip": 0.1, "noise": 0.3, "replace": 0.2, "units": {"x": 5.0},
            "missing": 0.4}  # fmt: skip
    at_once, told = made((Degradation(sites=("a",), **what),))
    tables = frames()
    scale = {v: pd.concat(list(tables.values()))[v].std(ddof=0) for v in ("x",)}
    for key in ("rows", "flip", "units", "missing"):
        assert getattr(told["a"], {"rows": "rows", "flip": "flipped", "units": "units",
                                   "missing": "removed"}[key])  # fmt: skip
    left = tables["a"].set_index("row").loc[at_once["a"]["row"]].reset_index()
    same = at_once["a"]["x"].notna()
    near = (at_once["a"]["x"] / 5 - left["x"])[same].abs() < 4 * 0.3 * scale["x"]
    assert near.mean() > 0.7  # the others were replaced
    entries = told["a"].entries
    assert told["a"].replaced == half_up(0.2, entries)
    assert told["a"].removed == half_up(0.4, entries)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_draws_the_same_and_a_site_does_not_depend_on_the_others(seed):
    items = (Degradation(sites=("b",), rows=30, missing=0.3, flip=0.2, noise=0.0, replace=0.1),)
    one, other = (made(items, 0.2, seed=seed)[0] for _ in range(2))
    for site in SITES:
        assert_frame_equal(one[site], other[site])
    tables = frames()
    more = (*items, Degradation(sites=("a",), missing=0.9))
    beside = made(more, 0.2, seed=seed, tables=dict(reversed(tables.items())))[0]
    assert_frame_equal(one["b"], beside["b"])
    assert_frame_equal(one["c"], beside["c"])


@given(st.integers(0, 200), st.integers(1, 3))
def test_drawn_sites_are_drawn_from_the_seed_among_those_that_no_item_names(seed, k):
    named, drawn = Degradation(sites=("b",), rows=0.5), Degradation(sites=k, missing=0.1)
    found = chosen((drawn, named), SITES, seed)
    assert found == chosen((drawn, named), SITES, seed)
    assert found["b"] is named
    assert sum(item is drawn for item in found.values()) == k


def test_every_site_is_drawn_alike():
    """Each of four sites in half of 400 draws of two: sd 10 of a count of 200."""
    drawn = [s for i in range(400) for s in chosen((Degradation(sites=2, rows=0.5),), SITES, i)]
    assert all(abs(drawn.count(s) - 200) < 45 for s in SITES)


@pytest.mark.parametrize(
    ("items", "outcome", "said"),
    [
        ((Degradation(sites=("e",), rows=0.5),), None, "no site 'e'"),
        ((Degradation(sites=5, rows=0.5),), None, "5 sites are to be drawn, and 4"),
        ((Degradation(sites=("a",), rows=2), Degradation(sites=("a",), flip=1)), None, "twice"),
        ((Degradation(sites=1, missing=0.1, columns=("y",)),), None, "no feature 'y'"),
        ((Degradation(sites=1, units={"grade": 2.0}),), None, "holds no numbers"),
        ((Degradation(sites=1, units={"xx": 2.0}),), None, "no column 'xx'"),
        ((Degradation(sites=1, flip=0.1),), Continuous("time"), "Use swap_outcome"),
    ],
)
def test_what_cannot_be_is_refused(items, outcome, said):
    with pytest.raises(DataError, match=said):
        made(items, outcome=outcome)


def test_a_mild_item_changes_nothing():
    item = Degradation(sites=("a",), rows=60)
    after, told = made((replace(item, missing=0.0),))
    assert_frame_equal(after["a"], frames()["a"])
    assert told["a"].degraded
