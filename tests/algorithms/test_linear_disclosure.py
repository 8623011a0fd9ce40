"""No cross-product that a linear method asks for is over 1 to `min_cell` − 1 rows."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcohort as fc
from algorithms.linear_cases import (
    METHODS,
    diabetes,
    federation,
    fit,
    scattered,
    spied,
    split,
    standard,
)
from examples import examples
from fedcohort.algorithms.linear.steps import MOST_FOLDS, hashed
from fedcohort.data.split.folds import BY_ROW
from fedcohort.protocol import NothingToLearn, Refused, SettingError, SiteUnavailable
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import Site
from fedcohort.runtime.local import local
from fedcohort.training.linear.cross_products import products, telling


def ones(n, k, seed=0):
    """Return a column of k ones among n rows."""
    column = np.zeros(n)
    column[np.random.default_rng(seed).permutation(n)[:k]] = 1.0
    return column


def wider(*columns):
    table = diabetes()
    return table._replace(x=np.column_stack([table.x, *columns]))


def rows_by_hand(x, y):
    """Return the smallest number above 0 of rows that a 0/1 column, or two, single out."""
    data = np.column_stack([x, y])
    flags = [c for c in data.T if set(np.unique(c)) == {0.0, 1.0}]
    pairs = [np.abs(a - b) for a, b in itertools.combinations(flags, 2)]
    counts = [int(k) for part in (*flags, *pairs) for k in (part.sum(), len(y) - part.sum())]
    return min((k for k in counts if k > 0), default=len(y))


def simulate(**columns):
    table = diabetes()
    frame = pd.DataFrame(table.x, columns=[f"x{j}" for j in range(10)]).assign(y=table.y, **columns)
    frame["site"] = np.arange(442) % 4
    return fc.simulate(frame, sites="site", outcome=fc.Continuous("y"))


@pytest.mark.parametrize(
    "column", [ones(442, 4), 1 - ones(442, 4), np.where(ones(442, 4) > 0, "rare", "common")]
)
def test_preprocessing_leaves_out_what_few_rows_have_before_any_product_is_asked_for(column):
    found = fc.fit("ridge", simulate(rare=column))
    assert "rare" in found.parts.design.dropped
    shapes = [
        line["fields"]["inner"]["shape"]
        for line in map(json.loads, found.run.ledger.lines)
        if line["step"] == "products"
    ]
    assert shapes == [[11, 11]] * 4


@pytest.mark.parametrize("kind", ["whole", "fraction"])
def test_a_number_that_few_rows_have_is_refused_by_name(kind):
    column = ones(442, 4) * ([3.0, 7.0][kind == "whole"] + (0.5 if kind == "fraction" else 0))
    column[np.flatnonzero(column)[0]] += 2
    with pytest.raises(NothingToLearn, match="'number' has the same value in all but a few"):
        fc.fit("ridge", simulate(number=column))
    assert fc.fit("ridge", simulate(number=column), min_cell=1).model.rows == 442
    assert fc.fit("ridge", simulate(number=column), strategy="centralised").model.rows == 442


@pytest.mark.parametrize("method", METHODS)
def test_two_columns_that_nearly_agree_are_refused_and_their_number_is_not_told(method):
    one, other = ones(442, 200), ones(442, 200)
    other[np.flatnonzero(other)[:3]] = 0
    with pytest.raises(NothingToLearn, match="'x10' and 'x11' agree in all but a few") as caught:
        fit(method, scattered(wider(one, other), 3))
    assert not re.search(r"\b3\b", str(caught.value))
    with pytest.raises(NothingToLearn, match="'x10' and 'x11' agree"):
        fit(method, scattered(wider(one, 1 - other), 3))
    assert fit(method, [wider(one, other)]).rows == 442


@pytest.mark.parametrize("method", METHODS)
def test_an_outcome_that_few_rows_have_is_refused(method):
    table = diabetes()
    for y in (ones(442, 3), 2.5 * ones(442, 3), ones(442, 3) * table.y):
        with pytest.raises(NothingToLearn, match="the outcome has the same value in all but a few"):
            fit(method, scattered(table._replace(y=y), 3))


@pytest.mark.parametrize("method", METHODS)
def test_a_record_far_from_all_others_is_refused_by_the_name_of_its_column(method):
    table = diabetes()
    far = np.where(ones(442, 1) > 0, 1e9, np.sin(np.arange(442)))
    with pytest.raises(NothingToLearn, match="'x10' has, at all sites together, one record so far"):
        fit(method, scattered(wider(far), 3))
    with pytest.raises(NothingToLearn, match="the outcome has, at all sites together, one record"):
        fit(method, scattered(table._replace(y=1e3 + far), 3))
    assert fit(method, [wider(far)]).rows == 442


def test_an_outcome_that_is_another_number_in_all_but_a_few_is_refused():
    table, few = diabetes(), ones(442, 3)
    y = np.where(few > 0, np.arange(442.0), 1000.0)
    with pytest.raises(NothingToLearn, match="the outcome has the same value in all but a few"):
        fit("ridge", scattered(table._replace(y=y), 3))


def test_fewer_records_than_min_cell_are_refused_over_several_sites():
    table = diabetes()
    small = table._replace(x=table.x[:4, :1], y=table.y[:4])
    with pytest.raises(NothingToLearn, match="fewer than 5 records"):
        fit("ridge", scattered(small, 2))
    assert fit("ridge", [small]).rows == 4


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**16),
    n=st.sampled_from([60, 200, 440]),
    rare=st.lists(st.floats(0.005, 0.9), min_size=1, max_size=4),
    n_sites=st.integers(2, 9),
    folds=st.sampled_from(["centre", "rows"]),
)
def test_a_fit_that_is_not_refused_asked_for_no_sum_over_few_rows(seed, n, rare, n_sites, folds):
    rng = np.random.default_rng(seed)
    table = standard(diabetes())
    x = np.column_stack([table.x[:n, :2], rng.random((n, len(rare))) < np.array(rare)]) * 1.0
    table, where = table._replace(x=x, y=table.y[:n]), rng.integers(0, n_sites, n)
    parts = split(table, where)
    fed = spied(federation(parts, "lasso"))
    try:
        fit("lasso", parts, fed=fed, folds=folds, path=5, seed=seed)
    except NothingToLearn as refused:
        assert "few" in str(refused)
        return
    except Refused as refused:  # two sites, one of which has few rows in a fold
        assert n_sites == 2
        assert "fewer than 5 records (min_cell) in a fold" in str(refused)
        return
    assert rows_by_hand(*table[:2]) >= 5
    told = np.array([fed.told["dealt"][f"site-{k:03}"] for k in range(len(parts))])
    if (told == BY_ROW).all():
        place = hashed(np.column_stack(table[:2]), seed) % np.uint64(fed.told["n_folds"])
    else:
        assert np.bincount(told).min() >= 2
        place = np.repeat(told, [len(p.y) for p in parts])
        table = table._replace(
            x=np.vstack([p.x for p in parts]), y=np.concatenate([p.y for p in parts])
        )
    for k in range(fed.told["n_folds"]):
        assert rows_by_hand(table.x[place == k], table.y[place == k]) >= 5


def test_a_fold_is_never_one_site_and_rows_stand_in_where_it_would_be():
    expected = {2: ("rows", 10), 3: ("rows", 10), 4: ("centre", 2), 9: ("centre", 4)}
    for n_sites, plan in expected.items():
        parts = scattered(standard(diabetes()), n_sites)
        path = fit("lasso", parts, path=5).path_
        assert (path.folds, path.n_folds) == plan
    alone = fit("lasso", scattered(standard(diabetes()), 9), path=5, min_cell=1).path_
    assert (alone.folds, alone.n_folds) == ("centre", 9)


def test_a_rare_column_makes_fewer_folds_and_the_refusal_names_it_with_the_remedy():
    thirty, ten = wider(ones(442, 30)), wider(ones(442, 10))
    assert fit("lasso", scattered(thirty, 3), path=5).path_.n_folds == 2
    with pytest.raises(NothingToLearn, match=r"about 'x10': fewer than 30 in all.*rule 'bic'"):
        fit("lasso", scattered(ten, 3))
    assert fit("lasso", scattered(ten, 3), rule="bic").path_.n_folds == 0
    assert fit("lasso", scattered(ten, 3), penalty=1.0).rows == 442


def test_a_small_table_on_its_own_may_have_folds_without_rows():
    table = standard(diabetes())
    few = table._replace(x=table.x[:12], y=table.y[:12])
    path = fit("lasso", [few], path=5).path_
    assert 2 <= path.n_folds <= 6
    assert np.isfinite(path.error).all()


def test_how_few_rows_a_product_is_over_is_the_count_by_hand():
    rng = np.random.default_rng(3)
    a, c = ones(300, 60), rng.normal(size=300)
    b = a.copy()
    b[:7] = 1 - b[:7]
    levels = np.column_stack([a, b, 4 - 2 * a, c, ones(300, 20) * c])
    y = rng.normal(size=300)
    origin = np.array([0, 0, 4, 0.1, 0, 0.0])
    site = Site("s", diabetes()._replace(x=levels, y=y), None, (0,))
    for centre in (origin, np.r_[levels.mean(axis=0), y.mean()]):
        found = telling(products.run(site, origin=origin, centre=centre), origin, centre)
        assert np.diag(found)[:5].tolist() == [60, b.sum(), 60, 299, 20]
        assert found[0, 1] == found[1, 2] == 7
        assert found[0, 2] == 0  # they say the same: no difference
        assert not found[3:, :3].any()


def test_a_site_sums_over_no_more_folds_than_it_agreed_to():
    site = Site("s", diabetes(), None, (0,))
    step = METHODS["lasso"].steps[2]
    zero = np.zeros(11)
    with pytest.raises(SettingError, match="21 folds are asked for; give at most 20"):
        step.run(
            site, origin=zero, centre=zero, dealt={"s": BY_ROW}, n_folds=MOST_FOLDS + 1, seed=0,
            min_cell=5,
        )  # fmt: skip


def test_a_site_that_is_away_at_first_is_left_out_and_one_that_leaves_ends_the_fit():
    parts = scattered(standard(diabetes()), 5)
    hosts = [Host(f"site-{k}", part, METHODS["lasso"].steps) for k, part in enumerate(parts)]
    away = local(hosts, quorum=0.5, absent=lambda call, site: site == "site-1")
    without = fit("ridge", [parts[k] for k in (0, 2, 3, 4)])
    np.testing.assert_allclose(fit("ridge", parts, fed=away).coef_, without.coef_, rtol=1e-9)
    leaves = local(hosts, quorum=0.5, absent=lambda call, site: call > 0 and site == "site-1")
    with pytest.raises(SiteUnavailable, match="site-1 left during the fit"):
        fit("lasso", parts, fed=leaves)
