"""XGBoost model files: XGBoost predicts from ours as we do, we from its own, and bad files are one
error each.
"""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from examples import examples
from fedcohort.algorithms.boosting import xgboost_reader
from fedcohort.algorithms.boosting.response import DISTRIBUTIONS, OBJECTIVES, Objective
from fedcohort.algorithms.boosting.xgboost_file import XGBoostModel, written
from fedcohort.algorithms.boosting.xgboost_reader import read
from fedcohort.protocol import DataError, FedcohortError, NotSupported
from tree_cases import grown, rows

NAMES = ("age", "tumour size", "grade=[II]", "bmi<25")
CHILDREN = ("left_children", "right_children", "parents")


def loaded(model):
    booster = xgb.Booster({"nthread": 1})
    booster.load_model(bytearray(written(model)))
    return booster


def held(name, base, *, trees=6, depth=4, distribution="normal"):
    outputs = len(base)
    ensemble = grown(len(name), 4, trees=trees, depth=depth, outputs=outputs)
    ensemble = dataclasses.replace(ensemble, base=np.asarray(base, float))
    objective = Objective(name=name, distribution=distribution, sigma=1.3)
    return XGBoostModel(ensemble=ensemble, objective=objective, features=NAMES)


# writing ------------------------------------------------------------------------------

BASES = [
    *((name, [b]) for name in OBJECTIVES.values() for b in (0.0, -2.5, 4.0)
      if name != "multi:softprob"),
    ("binary:logistic", [60.0]), ("reg:squarederror", [5000.0]), ("count:poisson", [-90.0]),
    ("survival:cox", [200.0]), ("multi:softprob", [0.3, 0.3, 0.3]),
    ("multi:softprob", [0.5, -1.2, -60.0]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "base"), BASES)
def test_xgboost_predicts_from_our_file_as_we_do(name, base):
    model, x = held(name, base), rows(1, 60, 4)
    booster = loaded(model)
    d = xgb.DMatrix(x, feature_names=booster.feature_names)
    margin = model.ensemble.margins(x)
    theirs = booster.predict(d, output_margin=True).reshape(margin.shape)
    assert_allclose(theirs, margin, rtol=1e-6, atol=1e-6)
    predicted = model.objective.predicted(margin)
    fine = predicted < np.finfo(np.float32).max
    # the float32 of a margin near b has an error of |b| 2⁻²⁴, which exp makes a relative one
    rtol = 1e-6 * max(1.0, *np.abs(base))
    assert_allclose(booster.predict(d)[fine], predicted[fine], rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_time_model_keeps_its_distribution_and_scale(distribution):
    model = held("survival:aft", [1.0], distribution=distribution)
    config = json.loads(loaded(model).save_config())["learner"]["objective"]["aft_loss_param"]
    assert config["aft_loss_distribution"] == distribution
    assert float(config["aft_loss_distribution_scale"]) == pytest.approx(1.3, rel=1e-7)
    assert read(written(model), "file").objective == model.objective


def test_a_base_margin_that_float32_keeps_takes_no_round_and_another_takes_one():
    assert loaded(held("survival:cox", [0.0])).num_boosted_rounds() == 6
    assert loaded(held("binary:logistic", [9.0])).num_boosted_rounds() == 7
    assert loaded(held("multi:softprob", [0.0, 0.0, 0.0])).num_boosted_rounds() == 2
    assert loaded(held("multi:softprob", [0.0, 1.0, 0.0])).num_boosted_rounds() == 3


def test_a_right_child_follows_the_left_one_as_xgboost_2_takes_for_granted():
    content = json.loads(written(held("reg:squarederror", [0.0])))
    for t in model(content)["trees"]:
        left, right, parents = (np.array(t[k]) for k in CHILDREN)
        inner = np.flatnonzero(left >= 0)
        assert_array_equal(right[inner], left[inner] + 1)
        assert_array_equal(parents[left[inner]], inner)
        assert_array_equal(parents[right[inner]], inner)


def test_xgboost_counts_splits_gains_and_covers_of_our_file_as_we_do():
    model = held("reg:squarederror", [0.0])
    booster = loaded(model)
    for kind, found in model.ensemble.importance(4).items():
        theirs = booster.get_score(importance_type=kind)
        ours = dict(zip(booster.feature_names, found.tolist(), strict=True))
        assert theirs == pytest.approx({k: v for k, v in ours.items() if v == v and v}, rel=1e-5)


def test_names_that_xgboost_refuses_are_changed_and_equal_ones_left_out():
    model = held("survival:cox", [0.0])
    assert loaded(model).feature_names == ["age", "tumour size", "grade=(II)", "bmi_25"]
    alike = dataclasses.replace(model, features=("a", "b", "c_", "c<"))
    assert loaded(alike).feature_names is None


def test_a_booster_without_trees_or_without_splits_is_its_base():
    x = rows(0, 5, 4)
    for base, trees in (([2.5], 0), ([2.5], 1), ([0.5, -1.0, 0.0], 0)):
        name = "reg:squarederror" if len(base) == 1 else "multi:softprob"
        model = held(name, base, trees=trees, depth=0)
        booster = loaded(model)
        d = xgb.DMatrix(x, feature_names=booster.feature_names)
        theirs = booster.predict(d, output_margin=True).reshape(5, -1)
        assert_allclose(theirs, model.ensemble.margins(x), rtol=1e-6)
        assert_allclose(read(written(model), "f").ensemble.margins(x), theirs, rtol=1e-6)


# reading ------------------------------------------------------------------------------


def trained(name, **more):
    """Return a booster that XGBoost trained, and its rows."""
    rng = np.random.default_rng(len(name))
    x = rng.normal(size=(120, 4)).astype(np.float32)
    time = np.exp(np.nan_to_num(x[:, 0])) * rng.exponential(size=120)
    y = {
        "binary:logistic": time > 0.3, "multi:softprob": np.digitize(time, [0.3, 1.0]),
        "reg:squarederror": time + 50, "count:poisson": np.floor(time),
        "survival:cox": time * rng.choice([-1, 1], 120), "survival:aft": time,
    }[name]  # fmt: skip
    x[rng.random(x.shape) < 0.2] = np.nan
    d = xgb.DMatrix(x, label=y)
    param = {"objective": name, "max_depth": 3, "nthread": 1, "min_child_weight": 0.1, **more}
    if name == "multi:softprob":
        param["num_class"] = 3
    if name == "survival:aft":
        d = xgb.DMatrix(x, label_lower_bound=y, label_upper_bound=y)
        param |= {"aft_loss_distribution": "extreme", "aft_loss_distribution_scale": 0.7}
    return xgb.train(param, d, 6), x


KINDS = [
    *((name, {}) for name in OBJECTIVES.values()),
    ("reg:squarederror", {"num_parallel_tree": 3, "subsample": 0.5}),
    ("binary:logistic", {"tree_method": "exact", "gamma": 0.5, "base_score": 0.9}),
    ("multi:softprob", {"tree_method": "exact", "gamma": 0.5}),
]


@pytest.mark.parametrize(("name", "more"), KINDS)
def test_we_predict_from_a_file_of_xgboost_as_it_does(name, more):
    booster, x = trained(name, **more)
    model = read(bytes(booster.save_raw("json")), "file")
    assert model.features == ("f0", "f1", "f2", "f3")
    assert_allclose(
        model.objective.predicted(model.ensemble.margins(x)),
        booster.predict(xgb.DMatrix(x)),
        rtol=1e-6,
        atol=1e-6,
    )
    again = written(model)
    assert written(read(again, "file")) == again


def test_nodes_that_xgboost_has_pruned_are_left_out():
    booster, _ = trained("multi:softprob", tree_method="exact", gamma=0.5)
    body = bytes(booster.save_raw("json"))
    trees = json.loads(body)["learner"]["gradient_booster"]["model"]["trees"]
    deleted = sum(int(t["tree_param"]["num_deleted"]) for t in trees)
    every = sum(int(t["tree_param"]["num_nodes"]) for t in trees)
    assert deleted > 0
    assert len(read(body, "file").ensemble.gain) == every - deleted


@pytest.mark.parametrize(
    ("param", "says"),
    [
        ({"booster": "dart"}, "a booster of kind 'dart'"),
        ({"booster": "gblinear"}, "a booster of kind 'gblinear'"),
        ({"objective": "reg:gamma"}, "the objective 'reg:gamma'"),
        ({"multi_strategy": "multi_output_tree"}, "trees with several outputs"),
        ({"max_cat_to_onehot": 1}, "categorical splits"),
        ({"max_cat_to_onehot": 9}, "categorical splits"),
    ],
)
def test_a_model_of_xgboost_of_another_kind_is_not_supported(param, says):
    x = np.random.default_rng(0).integers(0, 4, (60, 2)).astype(float)
    y = 1.0 + (x[:, 0] == 2)
    several = "multi_strategy" in param
    kinds = ["c", "q"] if "max_cat_to_onehot" in param else None
    d = xgb.DMatrix(
        x, label=np.c_[y, y] if several else y, feature_types=kinds, enable_categorical=True
    )
    booster = xgb.train({"nthread": 1, **param}, d, 2)
    with pytest.raises(NotSupported, match=says) as error:
        read(bytes(booster.save_raw("json")), "their.json")
    assert str(error.value).startswith("their.json: ")


def whole():
    return json.loads(written(held("multi:softprob", [0.5, -1.2, 0.0])))


def tree(w):
    return next(t for t in model(w)["trees"] if len(t["parents"]) > 4)


def model(w):
    return w["learner"]["gradient_booster"]["model"]


def param(w):
    return w["learner"]["learner_model_param"]


BAD = {
    "children out of range": lambda w: tree(w)["left_children"].__setitem__(0, 10**6),
    "child beyond 32 bits": lambda w: tree(w)["left_children"].__setitem__(0, 2**40),
    "child that is no integer": lambda w: tree(w)["left_children"].__setitem__(0, 1.5),
    "cycle": lambda w: tree(w)["left_children"].__setitem__(0, 0),
    "two parents": lambda w: tree(w).update(left_children=tree(w)["right_children"]),
    "one child": lambda w: tree(w)["left_children"].__setitem__(0, -1),
    "a million nodes": lambda w: tree(w)["tree_param"].update(num_nodes="1000000"),
    "no nodes": lambda w: tree(w)["tree_param"].update(num_nodes="0"),
    "negative nodes": lambda w: tree(w)["tree_param"].update(num_nodes="-1"),
    "nodes in words": lambda w: tree(w)["tree_param"].update(num_nodes="many"),
    "a number of digits": lambda w: tree(w)["tree_param"].update(num_nodes="9" * 5000),
    "a million trees": lambda w: model(w)["gbtree_model_param"].update(num_trees="1000000"),
    "covariate out of range": lambda w: tree(w)["split_indices"].__setitem__(0, 4),
    "fewer covariates": lambda w: param(w).update(num_feature="3"),
    "a billion classes": lambda w: param(w).update(num_class="1000000000"),
    "one class": lambda w: param(w).update(num_class="0"),
    "fewer classes": lambda w: param(w).update(num_class="2"),
    "base score of text": lambda w: param(w).update(base_score="high"),
    "base score without end": lambda w: param(w).update(base_score="inf"),
    "base scores of 2 classes": lambda w: param(w).update(base_score="[0.1,0.2]"),
    "leaf not finite": lambda w: tree(w)["split_conditions"].__setitem__(0, math.nan),
    "leaf beyond float32": lambda w: tree(w)["split_conditions"].__setitem__(0, 1e39),
    "leaf beyond float64": lambda w: tree(w)["split_conditions"].__setitem__(0, 10**400),
    "negative cover": lambda w: tree(w)["sum_hessian"].__setitem__(0, -1.0),
    "short list": lambda w: tree(w)["sum_hessian"].pop(),
    "list of text": lambda w: tree(w).update(sum_hessian=["1"] * len(tree(w)["parents"])),
    "nested list": lambda w: tree(w)["sum_hessian"].__setitem__(0, [1]),
    "null": lambda w: tree(w)["loss_changes"].__setitem__(0, None),
    "tree that is a number": lambda w: model(w)["trees"].__setitem__(0, 5),
    "trees as an object": lambda w: model(w).update(trees={}),
    "tree of no class": lambda w: model(w)["tree_info"].__setitem__(0, 3),
    "split types that are a number": lambda w: tree(w).update(split_type=5),
    "names that are numbers": lambda w: w["learner"].update(feature_names=[1, 2, 3, 4]),
    "too few names": lambda w: w["learner"].update(feature_names=["a"]),
    "equal names": lambda w: w["learner"].update(feature_names=["a"] * 4),
    "no objective": lambda w: w["learner"].pop("objective"),
    "objective as a list": lambda w: w["learner"].update(objective=[]),
    "no trees": lambda w: model(w).pop("trees"),
    "no learner": lambda w: w.clear(),
}


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_or_hostile_file_is_one_error(name):
    content = whole()
    read(json.dumps(content).encode(), "file")
    BAD[name](content)
    with pytest.raises(NotSupported if "billion" in name else DataError) as error:
        read(json.dumps(content).encode(), "their.json")
    said = str(error.value)
    assert said.startswith("their.json: ") and "\n" not in said and len(said) < 300


@pytest.mark.parametrize(
    "body",
    [b"", b"\x80\x04\x95pickle.", b"[" * 200_000, b'{"a":' * 200_000, b"\xff\xfe", b"5", b"[]",
     b"null", b'{"learner": ' + b"9" * 9000 + b"}"],
)  # fmt: skip
def test_content_that_is_no_json_model_is_one_error(body):
    with pytest.raises(DataError, match=r"^their: "):
        read(body, "their")


def test_a_binary_file_of_xgboost_is_named_as_one_to_save_as_json():
    booster, _ = trained("reg:squarederror")
    with pytest.raises(DataError, match=r"not JSON. Save the model as JSON"):
        read(bytes(booster.save_raw("ubj")), "model.ubj")


def test_a_file_larger_than_any_model_is_not_parsed(monkeypatch):
    monkeypatch.setattr(xgboost_reader, "LARGEST", 10)
    with pytest.raises(DataError, match="the file has 11 bytes"):
        read(b'{"learner":', "their")


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.floats(), st.text(max_size=3),
    st.just([]), st.just({}), st.just([0, 1, 2]), st.just("7"),
)  # fmt: skip


SMALL = written(held("multi:softprob", [0.5, -1.2, 0.0], trees=3, depth=2))


def places(part, path=()):
    """Yield the path to every part of a JSON value."""
    for key, below in part.items() if isinstance(part, dict) else enumerate(part):
        yield (*path, key)
        if isinstance(below, (dict, list)):
            yield from places(below, (*path, key))


@settings(max_examples=examples(75))
@given(path=st.sampled_from(list(places(json.loads(SMALL)))), value=ANYTHING)
def test_any_change_of_a_file_gives_a_model_or_one_error(path, value):
    content = json.loads(SMALL)
    *above, last = path
    at = content
    for key in above:
        at = at[key]
    at[last] = value
    try:
        found = read(json.dumps(content).encode(), "their")
    except FedcohortError as error:
        assert "\n" not in str(error)
    else:
        assert np.isfinite(found.ensemble.margins(rows(0, 5, len(found.features)))).all()
