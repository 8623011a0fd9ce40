"""A booster from an XGBoost model file in JSON.

Read: boosters `gbtree` of XGBoost 2.1 to 3.2 with numeric splits, one output per tree, and an
objective of `response.OBJECTIVES`; also forests, and trees that XGBoost has pruned. Not read:
`dart`, `gblinear`, categorical splits, trees with several outputs, other objectives, UBJSON.

A file is data: JSON alone is parsed, and every number is checked before use.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from fedcohort.algorithms.boosting.response import DISTRIBUTIONS, OBJECTIVES, Objective
from fedcohort.algorithms.boosting.xgboost_file import XGBoostModel
from fedcohort.arrays import Array
from fedcohort.numerics.trees.ensemble import Ensemble, depths
from fedcohort.numerics.trees.nodes import LEAF, Trees
from fedcohort.protocol import DataError, NotSupported

#: Oldest version whose files are read.
OLDEST = (2, 1)
#: Largest size of a file, in bytes; most covariates and outputs.
LARGEST, WIDEST = 2**27, 2**20


def read(body: bytes, source: str) -> XGBoostModel:
    """Return the model of a file's content.

    Parameters
    ----------
    body : the file, in JSON.
    source : its name, for errors.

    Raises
    ------
    DataError : it is larger than `LARGEST`, no XGBoost model in JSON, or damaged.
    NotSupported : a booster, an objective or a kind of tree that this version does not read.
    """
    if len(body) > LARGEST:
        raise DataError(
            f"{source}: the file has {len(body):,} bytes; an XGBoost model is read up to "
            f"{LARGEST:,}."
        )
    try:
        whole: Any = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise DataError(
            f"{source}: this file is not JSON. Save the model as JSON: "
            f"booster.save_model('model.json')."
        ) from None
    try:
        return _model(whole, source)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        why = f": {error}" if type(error) is ValueError else ""
        raise DataError(
            f"{source}: this is no XGBoost model, or a damaged one{why}. Save it again by "
            f"XGBoost 2.1 or later: booster.save_model('model.json')."
        ) from None


def _model(whole: Any, source: str) -> XGBoostModel:
    learner = _dict(whole, "learner")
    version = [int(v) for v in _numbers(whole, "version", 3)]
    if tuple(version[:2]) < OLDEST:
        raise DataError(
            f"{source}: the model was saved by XGBoost {'.'.join(map(str, version))}, and "
            f"fedcohort reads those of {'.'.join(map(str, OLDEST))} and later. Load it there and "
            f"save it again: booster.save_model('model.json')."
        )
    booster = _dict(learner, "gradient_booster")
    param = _dict(learner, "learner_model_param")
    kind = _text(booster, "name")
    if kind != "gbtree":
        raise _unsupported(source, f"a booster of kind {kind!r:.40}", "boosters of kind 'gbtree'")
    if _int(param, "num_target", 1) > 1:
        raise _unsupported(source, "trees with several outputs", "trees with one output")
    objective = _read_objective(_dict(learner, "objective"), source)
    p = _int(param, "num_feature")
    classes = _int(param, "num_class")
    if p > WIDEST or classes > WIDEST:
        raise _unsupported(
            source, f"{max(p, classes):,} covariates or classes", f"up to {WIDEST:,}"
        )
    if (classes > 1) != objective.several:
        raise ValueError(f"objective {objective.name} has num_class {classes}")
    outputs = max(1, classes)
    model = _dict(booster, "model")
    ensemble = _ensemble(model, _base(_text(param, "base_score"), objective, outputs), p, source)
    names = _list(learner, "feature_names") if "feature_names" in learner else []
    features = tuple(map(_name, names)) or tuple(f"f{j}" for j in range(p))
    if len({*features}) != p or len(features) != p:
        raise ValueError(f"feature_names has {len({*features})} names, num_feature is {p}")
    return XGBoostModel(ensemble=ensemble, objective=objective, features=features)


def _read_objective(found: Mapping[str, Any], source: str) -> Objective:
    name = _text(found, "name")
    if name not in OBJECTIVES.values():
        raise _unsupported(source, f"the objective {name!r:.40}", ", ".join(OBJECTIVES.values()))
    if name != "survival:aft":
        return Objective(name=name)
    param = _dict(found, "aft_loss_param")
    distribution = _text(param, "aft_loss_distribution")
    if distribution not in DISTRIBUTIONS:
        raise _unsupported(
            source, f"the distribution {distribution!r:.40}", ", ".join(DISTRIBUTIONS)
        )
    sigma = _real(_text(param, "aft_loss_distribution_scale"), "aft_loss_distribution_scale")
    return Objective(name=name, distribution=distribution, sigma=sigma)


def _base(text: str, objective: Objective, outputs: int) -> Array:
    """Return the base margins (K,) of ``base_score``: a number, or from version 3.1 a list."""
    listed = text.removeprefix("[").removesuffix("]").split(",")
    scores = [_real(score, "base_score") for score in listed]
    if len(scores) not in (1, outputs):
        raise ValueError(f"base_score has {len(scores)} numbers for {outputs} outputs")
    base = np.array([objective.margin(s) for s in scores])
    if not np.isfinite(base).all():
        raise ValueError("base_score is out of its range")
    return np.broadcast_to(base, outputs).copy()


def _ensemble(model: Mapping[str, Any], base: Array, p: int, source: str) -> Ensemble:
    found: list[Any] = _list(model, "trees")
    if (declared := _int(_dict(model, "gbtree_model_param"), "num_trees")) != len(found):
        raise ValueError(f"num_trees is {declared}, and there are {len(found)} trees")
    parallel = _int(_dict(model, "gbtree_model_param"), "num_parallel_tree", 1)
    if not parallel:
        raise ValueError("num_parallel_tree is 0")
    group = _whole(model, "tree_info", len(found))
    several = [_read_tree(tree, p, source) for tree in found]
    empty = np.zeros(0, np.int32)
    none = Trees(
        roots=empty, feature=empty, threshold=np.zeros(0, np.float32), left=empty, right=empty,
        missing_left=np.zeros(0, bool), value=np.zeros((0, 1)),
    )  # fmt: skip
    ensemble = Ensemble(
        trees=Trees.joined([tree for tree, _, _ in several] or [none]),
        gain=np.concatenate([np.zeros(0), *(gain for _, gain, _ in several)]),
        cover=np.concatenate([np.zeros(0), *(cover for _, _, cover in several)]),
        group=group.astype(np.int32),
        base=base,
        parallel=parallel,
    )
    ensemble.check(p)
    return ensemble


def _read_tree(tree: Any, p: int, source: str) -> tuple[Trees, Array, Array]:
    """Return a tree with the gain and the cover of its nodes, without nodes that it left out."""
    param = _dict(tree, "tree_param")
    if _int(param, "size_leaf_vector", 0) > 1:
        raise _unsupported(source, "trees with several outputs", "trees with one output")
    n = _int(param, "num_nodes")
    if tree.get("categories") or any(tree.get("split_type") or ()):
        raise _unsupported(source, "categorical splits", "numeric splits")
    left, right = (_whole(tree, f"{side}_children", n) for side in ("left", "right"))
    condition, gain, cover = (
        _numbers(tree, name, n) for name in ("split_conditions", "loss_changes", "sum_hessian")
    )
    weights = _numbers(tree, "base_weights", n)
    kept = np.flatnonzero(depths(np.zeros(1, int), left, right) >= 0)
    place = np.full(n, -1)
    place[kept] = np.arange(len(kept))
    leaf = left[kept] < 0
    feature = np.where(leaf, LEAF, _whole(tree, "split_indices", n)[kept])
    if not n or (feature[~leaf] < 0).any() or (feature >= p).any():
        raise ValueError("a node splits a covariate that does not exist")
    left, right = (np.where(leaf, -1, place[a[kept]]).astype(np.int32) for a in (left, right))
    condition = condition[kept]
    missing = _numbers(tree, "default_left", n, bool)[kept] != 0
    made = Trees(
        roots=np.zeros(1, np.int32),
        feature=feature.astype(np.int32),
        threshold=np.where(leaf, 0, condition).astype(np.float32),
        left=left,
        right=right,
        missing_left=missing & ~leaf,
        value=np.where(leaf, condition, weights[kept])[:, None],
    )
    return made, gain[kept], cover[kept]


def _unsupported(source: str, found: str, read: str) -> NotSupported:
    return NotSupported(f"{source}: this XGBoost model has {found}; fedcohort reads {read}.")


def _dict(parent: Any, name: str) -> dict[str, Any]:
    found = parent.get(name) if isinstance(parent, dict) else None
    if not isinstance(found, dict):
        raise ValueError(f"it has no {name}")
    return cast("dict[str, Any]", found)


def _text(parent: Mapping[str, Any], name: str) -> str:
    found = parent.get(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} is no text")
    return found


def _name(found: Any) -> str:
    if not isinstance(found, str):
        raise ValueError("feature_names is no list of names")
    return found


def _real(text: str, name: str) -> float:
    """Return a finite number, which the format writes as text."""
    try:
        found = float(text[:40])
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{name} is no number")
    return found


def _int(parent: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return a whole number, which the format writes as text."""
    if default is not None and name not in parent:
        return default
    text = _text(parent, name)
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise ValueError(f"{name} is no whole number")
    return int(text)


def _list(parent: Any, name: str) -> list[Any]:
    found = parent.get(name) if isinstance(parent, dict) else None
    if not isinstance(found, list):
        raise ValueError(f"it has no list {name}")
    return cast("list[Any]", found)


def _numbers(parent: Any, name: str, n: int, *more: type) -> Array:
    """Return a list of n finite float32 numbers, as float64."""
    found = _list(parent, name)
    if len(found) != n:
        raise ValueError(f"{name} has {len(found)} numbers in place of {n}")
    if not {*map(type, found)} <= {int, float, *more}:
        raise ValueError(f"{name} is no list of numbers")
    numbers = np.array(found, float)
    with np.errstate(over="ignore"):
        finite = np.isfinite(numbers.astype(np.float32))
    if not finite.all():
        raise ValueError(f"{name} has a number that is not finite")
    return numbers


def _whole(parent: Any, name: str, n: int) -> Array:
    """Return a list of n whole numbers of 32 bits."""
    found = _numbers(parent, name, n)
    if (found != np.rint(found)).any() or (np.abs(found) >= 2.0**32).any():
        raise ValueError(f"{name} has a number that is not whole")
    return found.astype(np.int64)
