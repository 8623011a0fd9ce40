"""Table 1 over sites: what is shown is right, and what is hidden cannot be worked out."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import norm

from count_bounds import bounds
from examples import examples
from fedcohort.data.describe import STEPS, describe, variables_of
from fedcohort.data.describe.shown_number import ShownNumber
from fedcohort.data.describe.summary import mixture_quantiles
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Survival
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

LEVELS = ("I", "II", "III", "IV")
DICTIONARY = Dictionary.from_dict(
    {
        "id": {"type": "text", "identifier": True},
        "age": {"type": "integer", "unit": "years"},
        "grade": {"type": "category", "levels": list(LEVELS)},
        "smoker": {"type": "binary"},
    }
)


def summaries(frames, dictionary=DICTIONARY, outcome=None, min_cell=5):
    """Return what is shown, by (variable, site)."""
    fed = local([Host(name, frame, STEPS) for name, frame in frames.items()])
    found = describe(fed, variables_of(dictionary, outcome), min_cell=min_cell).summaries
    return {(s.variable.name, s.site): s for s in found}


def shown(frames, **options):
    """Return everything that is published, as text."""
    return json.dumps([s.to_dict() for s in summaries(frames, **options).values()])


def patients(n, seed=0, missing=0.1, p=(0.5, 0.3, 0.15, 0.05)):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": [f"P{i}" for i in range(n)],
            "age": np.where(rng.random(n) < missing, np.nan, rng.normal(60, 10, n).round()),
            "grade": np.where(rng.random(n) < missing, None, rng.choice(LEVELS, n, p=p)),
            "smoker": np.where(rng.random(n) < missing, np.nan, rng.random(n) < 0.3),
        }
    )


# what is shown is right ---------------------------------------------------------------


def test_with_nothing_to_hide_counts_are_those_of_pandas():
    frames = {"a": patients(90, 1), "b": patients(40, 2)}
    found = summaries(frames, min_cell=1)
    for site, frame in {**frames, None: pd.concat(frames.values())}.items():
        grade, smoker, age = (found[name, site] for name in ("grade", "smoker", "age"))
        assert grade.rows == len(frame)
        assert dict(zip(grade.levels, grade.counts, strict=True)) == dict(
            frame.grade.value_counts().reindex(LEVELS, fill_value=0)
        )
        assert smoker.levels == ("0", "1")
        assert smoker.counts == ((frame.smoker == 0).sum(), (frame.smoker == 1).sum())
        missing = [v.missing for v in (grade, smoker, age)]
        assert missing == frame[["grade", "smoker", "age"]].isna().sum().tolist()


@pytest.mark.parametrize("n", [23, 60, 500])
def test_numbers_are_those_of_pandas_up_to_a_third_of_a_standard_error(n):
    frames = {"a": patients(n, 1), "b": patients(2 * n, 2)}
    found = summaries(frames)
    for site, frame in {**frames, None: pd.concat(frames.values())}.items():
        age, one = frame.age.dropna(), found["age", site]
        error = age.std() / np.sqrt(len(age))
        # the all-sites mean is of rounded means, with weights that guess hidden counts
        allowed = error / 3 if site else error * 0.6
        assert_allclose(one.mean, age.mean(), atol=allowed)
        assert_allclose(one.sd, age.std(), atol=allowed)
        if one.quartiles is not None:
            assert list(one.quartiles) == sorted(one.quartiles)
            # a quartile's error is a third larger than the mean's; it averages neighbours
            assert_allclose(one.quartiles, age.quantile([0.25, 0.5, 0.75]), atol=2.5 * error)


@given(seed=st.integers(0, 999), shift=st.floats(0, 3), stretch=st.floats(0.5, 2))
def test_quartiles_over_all_sites_are_near_those_of_the_pooled_table(seed, shift, stretch):
    rng = np.random.default_rng(seed)
    one, two = rng.gamma(3, 1, 700), shift + stretch * rng.gamma(3, 1, 300)
    frames = {k: pd.DataFrame({"x": v}) for k, v in {"a": one, "b": two}.items()}
    found = summaries(frames, Dictionary.from_dict({"x": {"type": "number"}}))
    pooled = np.r_[one, two]
    expected = np.quantile(pooled, [0.25, 0.5, 0.75])
    assert_allclose(found["x", None].quartiles, expected, atol=0.12 * pooled.std())


@pytest.mark.parametrize("shares", [(0.25, 0.5, 0.75), (0.05, 0.25, 0.5, 0.75, 0.95)])
def test_quantiles_of_a_mixture_of_normals_are_exact(shares):
    means, sds, weights = np.array([0.0, 2.0]), np.array([1.0, 3.0]), np.array([30.0, 70.0])
    scores = norm.ppf(shares)
    curves = [(np.array(shares), m + s * scores) for m, s in zip(means, sds, strict=True)]
    found = mixture_quantiles(weights, curves, shares)
    mixture = [weights @ norm.cdf(x, means, sds) / 100 for x in found]
    assert_allclose(mixture, shares, atol=1e-9)
    flat = [(np.array(shares), np.full(len(shares), 7.0))] * 2
    assert_allclose(mixture_quantiles(weights, flat, shares), 7.0)


def test_the_outcome_comes_first_and_identifiers_never():
    frame = patients(60).assign(t=np.arange(60) + 1.0, e=np.arange(60) % 2)
    found = summaries({"a": frame}, outcome=Survival("t", "e"))
    assert list(dict.fromkeys(name for name, _ in found)) == ["t", "e", "age", "grade", "smoker"]
    assert found["e", "a"].counts == (30, 30)
    assert (found["t", None].variable.type, found["e", None].variable.type) == ("time", "event")
    found = summaries({"a": patients(60)}, outcome=Binary("smoker"))
    assert list(dict.fromkeys(name for name, _ in found)) == ["smoker", "age", "grade"]


def test_rows_are_json_with_every_key_and_numbers_have_no_levels():
    rows = json.loads(shown({"a": patients(60)}))
    keys = {"name", "type", "unit", "levels", "site", "n", "missing", "mean", "sd", "quartiles"}
    assert all(row.keys() == keys | {"counts"} for row in rows)
    age, grade = rows[0], rows[2]
    assert (age["unit"], age["levels"], age["counts"]) == ("years", [], {})
    assert list(grade["counts"]) == list(LEVELS)


def test_a_date_is_described_as_the_time_since_another():
    dictionary = Dictionary.from_dict(
        {
            "born": {"type": "date"},
            "seen": {"type": "date", "since": "born", "unit": "years"},
        }
    )
    born = pd.Timestamp("1950-01-01") + pd.to_timedelta(np.arange(80) * 30, "D")
    age = 40 + np.arange(80) / 80
    frame = pd.DataFrame({"born": born, "seen": born + pd.to_timedelta(365.25 * age, "D")})
    found = summaries({"a": frame}, dictionary)
    assert {name for name, _ in found} == {"seen"}
    assert_allclose(found["seen", "a"].mean, age.mean(), atol=age.std() / np.sqrt(80) / 3)


# what is hidden stays so --------------------------------------------------------------


def test_a_site_with_few_rows_tells_nothing_of_its_own():
    frames = {"a": patients(80), "b": patients(4), "c": patients(90, 1)}
    found = summaries(frames)
    assert {site for _, site in found} == {None, "c", "other hospitals"}
    assert found["age", "other hospitals"].rows == 84
    assert found["age", None].rows == 174


def test_the_column_of_all_sites_is_that_of_the_pooled_table():
    frames = {f"s{i}": patients(n, i) for i, n in enumerate((80, 3, 7, 12, 60, 9))}
    pooled = pd.concat(frames.values())
    found = summaries(frames)
    grade = pooled["grade"].value_counts()
    assert found["grade", None].counts == tuple(int(grade.get(v, 0)) for v in LEVELS)
    age = found["age", None]
    sd = pooled["age"].std()
    assert_allclose(age.mean, pooled["age"].mean(), atol=sd / np.sqrt(len(pooled)) / 2)
    assert_allclose(age.sd, sd, rtol=0.05)
    assert_allclose(age.quartiles, pooled["age"].quantile([0.25, 0.5, 0.75]), atol=0.25 * sd)


def test_what_leaves_a_site_with_few_rows_is_the_same_whatever_they_are():
    def replies(frame):
        fed = Overheard(local([Host("a", frame, STEPS)]))
        describe(fed, variables_of(DICTIONARY, None), min_cell=5)
        return [
            {k: getattr(told["a"], k).tobytes() for k in told["a"].__dataclass_fields__}
            for told in fed.replies
        ]

    assert replies(patients(4, 1))[-1] == replies(patients(2, 2))[-1]


class Overheard:
    """A federation that keeps the replies."""

    def __init__(self, fed, replies=None):
        self._fed, self.replies = fed, [] if replies is None else replies

    @property
    def sites(self):
        return self._fed.sites

    @property
    def hides(self):
        return self._fed.hides

    def through(self, view):
        return Overheard(self._fed.through(view), self.replies)

    def gather(self, step, **question):
        self.replies.append(self._fed.gather(step, **question))
        return self.replies[-1]


@pytest.mark.parametrize(
    ("known", "mean", "sd", "quartiles"),
    [(4, 0, 0, 0), (9, 0, 0, 0), (10, 1, 1, 0), (19, 1, 1, 0), (20, 1, 1, 1)],
)
def test_statistics_need_two_and_four_times_the_smallest_cell(known, mean, sd, quartiles):
    frame = pd.DataFrame({"x": np.r_[np.arange(known), np.full(30, np.nan)].astype(float)})
    one = summaries({"a": frame}, Dictionary.from_dict({"x": "number"}))["x", "a"]
    found = [v is not None for v in (one.mean, one.sd, one.quartiles)]
    assert found == [bool(mean), bool(sd), bool(quartiles)]


def test_a_quartile_is_the_mean_of_five_values_and_none_is_anybodys():
    x = np.arange(21.0) ** 3
    one = summaries({"a": pd.DataFrame({"x": x})}, Dictionary.from_dict({"x": "number"}))["x", "a"]
    # 21 values: the quartiles are the 6th, the 11th and the 16th, each with two on either side
    s = 200  # the step that a standard error of 514 gives
    assert_allclose(one.quartiles, [x[3:8].mean(), x[8:13].mean(), x[13:18].mean()], atol=s / 2)


@given(n=st.integers(5, 40), missing=st.integers(1, 4), other=st.integers(1, 4))
def test_which_statistics_are_there_does_not_tell_how_many_values_are_missing(n, missing, other):
    def looks(k):
        x = np.r_[np.linspace(0, 1, n - k), np.full(k, np.nan)]
        dictionary = Dictionary.from_dict({"x": "number"})
        one = summaries({"a": pd.DataFrame({"x": x})}, dictionary)["x", "a"]
        return one.missing, [v is None for v in (one.mean, one.sd, one.quartiles)]

    # with as many missing as known, both counts could be the small one
    assume(n - max(missing, other) >= 5)
    assert looks(missing) == looks(other)
    assert looks(missing)[0] is None


def of_number(x):
    """Return what one site shows of a number."""
    frame = pd.DataFrame({"x": np.asarray(x, float)})
    one = summaries({"a": frame}, Dictionary.from_dict({"x": "number"}))["x", "a"]
    return one.mean, one.sd, one.quartiles


NOTHING = (None, None, None)


@pytest.mark.parametrize("n", [12, 20, 40])
def test_a_0_1_column_typed_as_a_number_tells_no_count_below_the_smallest_cell(n):
    # all that is shown of each count there may be: an attacker can do no better
    seen = {k: of_number(np.arange(n) < k) for k in range(n + 1)}
    few = [k for k in seen if k < 5 or k > n - 5]
    assert {seen[k] for k in few} == {NOTHING}
    assert all((seen[k] != NOTHING) == (5 <= k <= n - 5) for k in seen)


@given(
    cells=st.lists(st.integers(0, 12), min_size=2, max_size=6),
    value=st.sampled_from([1, 3, 55, 0.5]),
)
def test_scores_are_shown_where_the_table_of_their_counts_would_be(cells, value):
    x = np.repeat(np.arange(len(cells)) * value, cells)
    counts = np.array(cells)[np.array(cells) > 0]
    assume(len(x) >= 20)
    assert (of_number(x)[2] is None) == (bool(hidden(counts, 5).any()) or len(counts) == 1)


@pytest.mark.parametrize("n", [15, 25, 60])
@pytest.mark.parametrize("few", [1, 2, 4])
@pytest.mark.parametrize("value", [7.0, 130.0, 999.0])
def test_a_few_patients_among_equals_cannot_be_told_from_none(n, few, value):
    assert of_number(np.r_[np.zeros(n - few), np.full(few, value)]) == NOTHING


@pytest.mark.parametrize("few", [1, 2, 4])
@pytest.mark.parametrize("value", [40.0, 1e3, 1e9])
def test_values_of_a_few_patients_far_away_reach_nothing_that_is_shown(few, value):
    others = np.random.default_rng(0).normal(0, 1, 60 - few).round(2)
    mean, sd, quartiles = of_number(np.r_[others, np.full(few, value)])
    assert (mean, sd) == (None, None)
    assert quartiles == of_number(np.r_[others, np.full(few, 1.5 * value)])[2]
    assert quartiles is not None


@pytest.mark.parametrize("n", [20, 23, 60, 400])
def test_no_quantile_that_may_be_asked_for_tells_a_value_of_the_four_largest(n):
    bulk = np.random.default_rng(n).normal(0, 1, n - 4)
    shares = np.arange(1, 4 * n) / (4 * n)
    seen = [
        ShownNumber.of(np.r_[bulk, far], 5, shares=shares).quantiles
        for far in ([731.0, 2000, 3000, 4000], [99.0, 100, 100, 101])
    ]
    assert seen[0] == seen[1]
    assert seen[0].count(None) < len(shares) - 10
    one, two = (of_number(np.r_[bulk, far])[2] for far in ([99.0, 200, 300, 400], [77.0] * 4))
    assert one == two


def test_all_quantiles_together_tell_but_means_of_blocks_of_five():
    # of 40 values the blocks are of ranks 8 to 12, 13 to 17, 18 to 22 and 27 to 31
    x, shares = np.arange(40.0) ** 2, np.arange(1, 400) / 400
    seen = ShownNumber.of(x, 5, shares=shares)
    other = x.copy()
    for first in (8, 13, 18, 27):
        other[first : first + 5] += [3.0, -2, 0.5, -2, 0.5]
    for ranks in (slice(5, 8), slice(23, 27), slice(32, 35)):
        other[ranks] += 0.4
    assert ShownNumber.of(other, 5, shares=shares) == seen
    assert seen.quantiles.count(None) < 110


@given(
    seed=st.integers(0, 99),
    n=st.integers(40, 200),
    draw=st.sampled_from(["normal", "gamma", "uniform", "poisson"]),
)
def test_ordinary_numbers_are_shown(seed, n, draw):
    rng = np.random.default_rng(seed)
    x = {
        "normal": rng.normal(60, 10, n).round(),
        "gamma": rng.gamma(2, 30, n).round(),
        "uniform": rng.uniform(0, 1, n),
        "poisson": rng.poisson(20, n),
    }[draw]
    assert None not in of_number(x)


def test_of_all_sites_quartiles_are_shown_where_one_site_hides_its_mean():
    frames = {"a": patients(60), "b": patients(60, 1)}
    frames["b"].loc[0, "age"] = 9999.0
    found = summaries(frames)
    assert found["age", "b"].mean is None
    assert found["age", None].mean is None
    assert_allclose(found["age", None].quartiles[1], 60, atol=4)


@pytest.mark.parametrize("missing", [1, 3, 4])
def test_of_all_sites_quartiles_are_numbers_where_all_show_theirs_and_hide_what_is_missing(missing):
    x = np.random.default_rng(3).normal(50, 10, 3 * 60)
    x[[60 * s + i for s in range(3) for i in range(missing)]] = np.nan
    frames = {f"s{s}": pd.DataFrame({"x": x[60 * s : 60 * s + 60]}) for s in range(3)}
    found = summaries(frames, Dictionary.from_dict({"x": {"type": "number"}}))
    assert all(found["x", s].quartiles is not None for s in frames)
    assert all(found["x", s].missing is None for s in frames)
    assert_allclose(found["x", None].quartiles, np.nanquantile(x, [0.25, 0.5, 0.75]), atol=3)


def from_cells(cells):
    """Return a site with so many rows of each level of `grade`, and without one, in order."""
    values = [None, *LEVELS]
    grade = np.repeat(np.array(values, object), cells)
    return pd.DataFrame({"id": "", "age": 50.0, "grade": grade, "smoker": 0.0})


@settings(max_examples=examples(40))
@given(
    sites=st.lists(
        st.lists(st.one_of(st.integers(0, 6), st.integers(0, 60)), min_size=5, max_size=5),
        min_size=1,
        max_size=6,
    )
)
def test_all_that_is_published_leaves_each_hidden_count_as_many_values_as_the_rule(sites):
    """The attacker has the table of all sites and of each that is shown, and linear programs."""
    assume(all(sum(cells) for cells in sites))
    tables = {f"s{i}": np.array(cells) for i, cells in enumerate(sites)}
    found = summaries({k: from_cells(c) for k, c in tables.items()})
    whole = found["grade", None]
    if whole.rows is None:
        return  # one site of few rows
    shown = [found["grade", s] for s in (*tables, "other hospitals") if ("grade", s) in found]
    every = [*shown, whole]
    table = np.array([[np.nan if v is None else v for v in (s.missing, *s.counts)] for s in every])
    rows = np.array([np.nan if s.rows is None else s.rows for s in every], float)
    hidden = np.isnan(table)
    cells = np.argwhere(hidden)
    if len(cells):
        low, high = bounds(table, hidden, rows, cells).T
        assert (high - low >= 3 - 1e-6).all(), (table, low, high)
    every_cell = np.sum(list(tables.values()), axis=0)
    told = [(v, t) for v, t in zip((whole.missing, *whole.counts), every_cell, strict=True)]
    assert all(v is None or (v == t and not 0 < v < 5) for v, t in told)


def test_values_too_large_for_a_mean_are_not_described_and_break_nothing():
    x = np.r_[np.full(30, 1e308), np.full(30, -1e308)]
    one = summaries({"a": pd.DataFrame({"x": x})}, Dictionary.from_dict({"x": "number"}))["x", "a"]
    assert (one.rows, one.missing, one.mean) == (60, 0, None)


def test_a_site_without_values_leaves_the_others_and_without_rows_is_empty():
    frames = {"a": patients(60), "b": patients(60, 1).assign(age=np.nan), "c": patients(60)[:0]}
    found = summaries(frames)
    assert found["age", "b"].missing == 60
    assert found["age", None].mean == pytest.approx(found["age", "a"].mean, abs=1)
    assert found["grade", "c"].rows == 0
    assert found["grade", "c"].counts == (0, 0, 0, 0)
