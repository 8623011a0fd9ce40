"""Images made of columns over sites: the map, its checks, its rule, and networks that see it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from algorithms import regression_forest_cases as forest_cases
from algorithms.neural_cases import federation, fit, scattered, task_of
from fedcohort.algorithms.neural import METHOD, REGRESSOR, NeuralModel, bounds
from fedcohort.algorithms.regression_forest import METHOD as FOREST
from fedcohort.algorithms.regression_forest import ForestModel
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Dp, NothingToLearn, SettingError
from fedcohort.protocol.method import OwnRows
from fedcohort.training.networks import refined
from fedcohort.training.networks.plan import Plan

VIEWS = ("cell", "drug", "cell", "cell", "drug", "drug", "cell", "cell", "cell")
SMALL = {"filters": (3,), "kernel": 3, "pool": 1, "hidden": (4,), "rounds": 2, "batch_size": 0}


def table(p=9, n=120, seed=0):
    """Return columns that are alike in groups, and a value."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + 3.0
    return LabelledTable(x, x[:, 0] + rng.normal(size=n))


def task(whole, **more):
    return task_of("continuous", whole.x.shape[1], **more)


def pixels(images):
    return [(image.columns.tolist(), image.pixels.tolist()) for image in images]


def of_table(whole, **more):
    """Return the images by the rows of a coordinator that has the whole table."""
    own = OwnRows(first=whole)
    return refined.images(federation([whole]), "coordinator", task(whole, own=own, **more))


@given(sites=st.integers(1, 5), seed=st.integers(0, 99))
def test_the_map_from_sums_is_that_of_the_pooled_table(sites, seed):
    whole = table(seed=seed)
    views = VIEWS if seed % 2 else ()
    fed = federation(scattered(whole, sites, seed), REGRESSOR)
    asked = task(whole, views=views, origin=whole.x.mean(axis=0).round(1))
    found = refined.images(fed, "sums", asked)
    expected = of_table(whole, views=views)
    assert pixels(found) == pixels(expected)
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a.likeness, b.likeness, atol=0.0101)  # two digits
    near = np.concatenate([image.likeness for image in found])
    assert_array_equal(near, near.round(2))


def test_each_view_is_an_image_of_its_own_columns():
    cell, drug = of_table(table(), views=VIEWS)
    assert (cell.view, drug.view, cell.side, drug.side) == ("cell", "drug", 3, 2)
    assert [VIEWS[j] for j in drug.map if j >= 0] == ["drug"] * 3
    assert sorted(cell.map) == [-1, -1, -1, 0, 2, 3, 6, 7, 8]


def test_products_are_asked_within_views_alone():
    whole = table()
    sites = federation(scattered(whole, 3), REGRESSOR)
    refined.images(sites, "sums", task(whole, views=VIEWS))
    sent = {e["step"]: e["fields"] for e in map(json.loads, sites.ledger.lines)}
    assert sent["column_products"]["inner"]["shape"] == [6**2 + 3**2]


@pytest.mark.parametrize("plant", ["rare", "copy"])
def test_a_column_that_singles_out_few_records_is_refused(plant):
    whole = table()
    x = whole.x.copy()
    x[:, 4] = 0.0 if plant == "rare" else x[:, 3]
    x[[1, 5], 4] += 1.0
    fed = federation(scattered(LabelledTable(x, whole.y), 3), REGRESSOR)
    with pytest.raises(NothingToLearn, match=r"x[34]"):
        refined.images(fed, "sums", task(whole))
    assert "column_products" not in {json.loads(line)["step"] for line in fed.ledger.lines}


def test_a_column_that_others_of_its_view_give_except_in_few_records_ends_the_fit():
    whole = table()
    x = whole.x.copy()
    x[:, 4] = x[:, 0] + x[:, 3]
    x[[3, 31, 62, 90], 4] += 2.0
    fed = federation(scattered(LabelledTable(x, whole.y), 3), REGRESSOR)
    with pytest.raises(NothingToLearn, match="follows from other columns"):
        refined.images(fed, "sums", task(whole))
    fed = federation(scattered(LabelledTable(x, whole.y), 3), REGRESSOR)
    apart = ["a"] * 4 + ["b"] * 5  # no product of columns of two views is told
    assert len(refined.images(fed, "sums", task(whole, views=apart))) == 2


def test_too_few_records_are_refused():
    whole = table(n=12)
    fed = federation(scattered(whole, 2), REGRESSOR)
    with pytest.raises(NothingToLearn, match="fewer than 20 records"):
        refined.images(fed, "sums", task(whole, min_cell=20))


def test_the_coordinators_map_asks_no_site_and_needs_rows():
    fed = federation(scattered(table(), 3), REGRESSOR)
    with pytest.raises(SettingError, match="no rows for a first model"):
        refined.images(fed, "coordinator", task(table()))
    assert not list(fed.ledger.lines)


def test_a_network_of_a_map_is_that_of_an_image_whose_pixels_are_the_mapped_columns():
    whole = table(p=16)
    parts = scattered(whole, 3)
    seen = fit(parts, "continuous", refined="sums", **SMALL)
    (columns,) = json.loads(seen.network)["maps"]
    turned = [LabelledTable(part.x[:, columns], part.y) for part in parts]
    image = fit(turned, "continuous", image=(4, 4), **SMALL)
    assert_allclose(seen.thetas, image.thetas, rtol=1e-9, atol=1e-12)
    assert_allclose(seen.predict(whole.x), image.predict(whole.x[:, columns]), rtol=1e-9)
    assert columns != sorted(columns)


@pytest.mark.parametrize("survival", [False, True])
def test_a_forest_of_a_map_is_that_of_an_image_whose_pixels_are_the_mapped_columns(survival):
    whole = forest_cases.table(p=9, survival=survival)
    parts = forest_cases.scattered(whole, 3)
    small = {**forest_cases.SMALL, **SMALL, "time_grid": 3}
    seen = forest_cases.fitted(parts, refined="sums", **small)[0]
    (columns,) = json.loads(seen.network)["base"]["maps"]
    turned = [part._replace(x=part.x[:, columns]) for part in parts]
    image = forest_cases.fitted(turned, image=(3, 3), **small)[0]
    assert_allclose(seen.thetas, image.thetas, rtol=1e-9, atol=1e-12)
    assert_allclose(seen.predict(whole.x), image.predict(whole.x[:, columns]), rtol=1e-9)
    (row,) = ForestModel.restore(seen.arrays(), json.loads(json.dumps(seen.meta()))).maps()
    assert row["features"] == [seen.features[j] for j in columns]


def test_a_saved_model_predicts_the_same_and_knows_its_map():
    whole = table()
    model = fit(scattered(whole, 3), "continuous", refined="sums", **SMALL)
    meta = json.loads(json.dumps(model.meta(), allow_nan=False))
    again = NeuralModel.restore(model.arrays(), meta)
    assert_array_equal(again.predict(whole.x), model.predict(whole.x))
    (row,) = again.maps()
    (image,) = of_table(whole)
    assert row["features"] == [f"x{j}" for j in image.map]
    assert_allclose([row["likeness"][k] for k in image.pixels], image.likeness)


def test_a_model_without_a_map_has_no_map():
    assert fit(scattered(table(), 2), "continuous", rounds=1).maps() == []


def test_a_private_fit_makes_no_map():
    dp = Dp(epsilon=1.0, delta=1e-5, unit="record")
    config = REGRESSOR.configure({"refined": "sums"})
    with pytest.raises(SettingError, match=r"refined.*none"):
        REGRESSOR.private.releases(config, dp)


def plans(method, asked, **more):
    config = method.configure({"refined": "sums", **SMALL, **more})
    return config, bounds(config, asked)["plan"]


def test_a_site_takes_a_plan_with_any_map_of_the_studys_columns_and_no_other_plan():
    whole = table()
    asked = task(whole, views=VIEWS)
    config, rules = plans(REGRESSOR, asked)

    def allowed(text):
        return any(rule(text) for rule in rules)

    def plan(maps, loss="linear 3.5 2.0", **more):
        return replace(config.plan(9, loss, 1, maps), **more).text

    maps = [image.map for image in of_table(whole, views=VIEWS)]
    assert allowed(plan(maps))
    assert allowed(plan(refined.blank(asked)))
    assert not allowed(plan(maps, epochs=99))
    assert not allowed(plan(maps, loss="poisson 0.0 1.0"))
    twice = [tuple(2 if j == 0 else j for j in maps[0]), maps[1]]
    assert not allowed(plan(twice))  # a column lost, and another shown twice
    assert not allowed(plan(maps[::-1]))
    assert not allowed(plan([tuple(range(9))]))
    assert not allowed(plan(maps).replace("[[", "[[ ", 1))
    assert not allowed(plan(maps).replace("-1", "-1.0"))
    assert not allowed(json.dumps({"network": 3}))
    assert not allowed(None)


def test_a_site_takes_a_forests_plan_with_any_map_of_the_studys_columns():
    whole = table()
    asked = task(whole, views=VIEWS)
    config = FOREST.configure({"refined": "sums", **SMALL})
    rules = FOREST.bounds(config, asked)["plan"]
    maps = [image.map for image in of_table(whole, views=VIEWS)]

    def allowed(maps, loss="leaves 3.5 2.0", least=5.0):
        text = config.forest_plan(9, loss, least, survival=False, maps=maps).text
        return any(rule(text) for rule in rules)

    assert allowed(maps)
    assert not allowed(maps, least=1.0)
    assert not allowed(maps, loss="linear 3.5 2.0")
    assert not allowed([maps[0][::-1], maps[0][:4]])


def test_a_plan_without_maps_is_no_plan_of_a_study_with_a_map():
    asked = task_of("binary", 9)
    _, rules = plans(METHOD, asked)
    plain = METHOD.configure({"image": (3, 3), **SMALL}).plan(9, "logistic")
    assert not any(rule(plain.text) for rule in rules)
    assert Plan.of(plain.text) == plain


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"image": (3, 3), "refined": "sums"}, "image"),
        ({"joined": (4,)}, "joined"),
        ({"refined": "all"}, "refined"),
        ({"normalise": "batch"}, "normalise"),
        ({"refined": "sums", "filters": (), "hidden": ()}, "hidden"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(asked, named):
    with pytest.raises(SettingError, match=f"setting '{named}'"):
        METHOD.configure(asked)


def test_columns_too_few_for_the_convolutions_are_refused_before_any_question():
    parts = scattered(table(), 2)
    fed = federation(parts, REGRESSOR)
    for more, named in (
        ({"filters": (2, 2)}, "filters"),
        ({"filters": (2,), "kernel": 5, "padding": False, "pool": 1}, "filters"),
        ({"filters": (2,), "joined": (2, 2, 2, 2)}, "joined"),
    ):
        with pytest.raises(SettingError, match=f"setting '{named}'"):
            fit(parts, "continuous", fed=fed, refined="sums", **more)
    assert not list(fed.ledger.lines)


def test_a_penalty_of_the_first_layer_is_refused_where_there_are_several():
    config = REGRESSOR.configure({"refined": "sums", "l2": 0.1, **SMALL})
    maps = [image.map for image in of_table(table(), views=VIEWS)]
    with pytest.raises(SettingError, match="setting 'l2'"):
        config.plan(9, "linear", 1, maps)
