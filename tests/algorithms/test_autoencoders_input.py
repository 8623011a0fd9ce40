"""Variational autoencoders of tables that are not as they should be: handled, or refused."""

import json

import numpy as np
import pytest

from algorithms.autoencoder_cases import (
    METHODS,
    VIEWS,
    P,
    config_of,
    factors,
    fitted,
    holes,
    split,
    task_of,
    without,
)
from fedcohort.algorithms.autoencoders import program
from fedcohort.protocol import DataError, SettingError
from fedcohort.training.networks.entries import Entries
from fedcohort.training.networks.strategies import averaging

X = holes(factors(40)[0])
PARTS = split(X, 2)
both = pytest.mark.parametrize("method", METHODS)


def changed(column, value, rows=slice(None), parts=PARTS):
    """Return the tables with some values of a column set at every site."""
    found = {site: x.copy() for site, x in parts.items()}
    for x in found.values():
        x[rows, column] = value
    return found


@both
def test_a_table_without_columns_is_refused(method):
    empty = {"a": np.zeros((30, 0))}
    with pytest.raises(DataError, match="there are no columns to learn from; name at least one"):
        fitted(method, empty, task=task_of(views=()))


@both
def test_infinite_values_are_named_by_column(method):
    with pytest.raises(DataError, match=r"column 'c3' has infinite values.*Correct them"):
        fitted(method, changed(3, np.inf, 2))


@both
def test_a_view_that_no_site_has_is_named(method):
    parts = {site: without(x, "scan") for site, x in PARTS.items()}
    with pytest.raises(DataError, match="no site has an entry of view 'scan'"):
        fitted(method, parts)


@both
def test_a_column_of_which_too_few_entries_are_known_is_named(method):
    parts = changed(4, np.nan, slice(2, None))
    with pytest.raises(DataError, match=r"column 'c4' has fewer than 5 known entries at all sites"):
        fitted(method, parts)
    fitted(method, parts, task=task_of(min_cell=1))


@both
def test_a_column_without_entries_and_without_a_view_is_named(method):
    task = task_of(views=("",) * P)
    with pytest.raises(DataError, match=r"column 'c4' has fewer than 5 known entries"):
        fitted(method, changed(4, np.nan), task=task)


@both
def test_rows_that_know_nothing_are_none(method):
    parts = {site: np.full((30, P), np.nan) for site in PARTS}
    with pytest.raises(DataError, match="0 rows with a known entry are too few; 5 are needed"):
        fitted(method, parts)
    few = {"a": X[:2], "b": X[2:4]}
    with pytest.raises(DataError, match="4 rows with a known entry are too few"):
        fitted(method, few)


def test_one_site_alone_may_be_as_small_as_it_is():
    assert np.isfinite(fitted("vae", {"a": np.nan_to_num(X[:2])}).theta).all()


@both
def test_a_constant_column_and_equal_rows_are_no_obstacle(method):
    for parts in (changed(1, 0.0), {"a": np.zeros((12, P)), "b": np.ones((7, P))}):
        model = fitted(method, parts, rounds=30)
        assert np.isfinite(model.theta).all()
        assert model.variances.min() > 1e-4


@both
def test_a_row_with_a_value_far_from_all_others_leaves_numbers(method):
    model = fitted(method, changed(0, 1e4, 0), rounds=10)
    assert np.isfinite(model.theta).all()
    assert np.isfinite(model.impute(X)).all()


def test_columns_of_no_view_are_a_view_of_their_own():
    views = ("", *VIEWS[1:])
    model = fitted("mcvae", PARTS, task=task_of(views=views))
    assert model.views == views
    assert np.isfinite(model.reconstruct(X)).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"q": 0}, r"'q' of method 'mcvae' is 0; give a whole number from 1 to 10,000"),
        ({"q": -2}, r"'q'.*is -2"),
        ({"q": 1.5}, r"'q'.*is 1.5"),
        ({"hidden": (4, 0)}, r"'hidden'.*whole numbers from 1"),
        ({"beta": -1.0}, r"'beta'.*a number from 0"),
        ({"passes": 0}, r"'passes'.*a whole number from 1"),
        ({"learning_rate": 0.0}, r"'learning_rate'.*a number above 0"),
        ({"combine": "sum"}, r"'combine'.*'mean', 'product'"),
        ({"activation": "step"}, r"'activation'.*'tanh'"),
        ({"trim": 0.5}, r"'trim'.*below 0.5"),
        ({"latent": 2}, r"no setting 'latent'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_impossible_settings_are_named(settings, said):
    with pytest.raises(SettingError, match=said):
        config_of("mcvae", **settings)


def test_an_aggregation_for_more_sites_than_there_are_is_refused():
    with pytest.raises(SettingError, match=r"'aggregation' is 'krum'.*needs 5 sites"):
        fitted("vae", PARTS, aggregation="krum")


def test_a_site_cannot_count_more_entries_than_rows():
    def said(rows, known, infinite=(0, 0)):
        return Entries(np.array(rows), np.array(known), np.array(infinite)).fault({})

    assert said(5, (5, 0)) == ""
    assert "more entries in a column than rows" in said(5, (6, 0))
    assert "field 'known'" in said(5, (-1, 0))
    assert "another shape" in said(5, (1, 2), (0,))


@both
def test_sites_are_asked_with_the_plan_that_a_study_expects(method, monkeypatch):
    asked = []

    def listening(fed, plan, *rest, **more):
        asked.append(plan.text)
        return averaging(fed, plan, *rest, **more)

    monkeypatch.setattr(program, "averaging", listening)
    fitted(method, PARTS, hidden=(3,))
    held = METHODS[method].bounds(config_of(method, hidden=(3,)), task_of())
    assert asked[0] in held["plan"]
    # the plan of a fit whose held-out rows the coordinator replaces by its own holds out none
    own = {**json.loads(asked[0]), "validation_fraction": 0.0}
    assert all(json.loads(text) in (json.loads(asked[0]), own) for text in held["plan"])
    assert not held["way"]  # no site is asked for a model of its own
    for given in ({}, {"personal": "fedper", "user": "a"}):  # where a site has no design yet
        assert not METHODS[method].bounds(config_of(method, **given), task_of(views=()))["way"]
