"""A booster as an XGBoost model file.

The format is XGBoost's JSON model ("Introduction to Model IO" of its documentation). Files have the
form of version 2.1, which XGBoost 2.1 and 3.2 read.

`base_score` is in units of the prediction, and before version 3.1 one number for all outputs. Base
margins b_k are written there if float32 keeps them. Otherwise the first round has K trees of one
leaf with the values b_k, and `base_score` is that of margin 0. Leaves and thresholds are float32,
as in XGBoost, and XGBoost adds leaves in float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.boosting.response import Objective
from fedcohort.arrays import Array
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.nodes import LEAF, Trees

#: Form of the written files.
VERSION = (2, 1, 0)
#: Parent of a root.
NO_PARENT = 2**31 - 1
#: Parameters that XGBoost expects for an objective.
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "binary:logistic": {"reg_loss_param": {"scale_pos_weight": "1"}},
    "reg:squarederror": {"reg_loss_param": {"scale_pos_weight": "1"}},
    "count:poisson": {"poisson_regression_param": {"max_delta_step": "0.7"}},
}
#: Characters that XGBoost refuses in names of covariates.
_REFUSED = str.maketrans({"[": "(", "]": ")", "<": "_"})


@dataclass(frozen=True, kw_only=True, eq=False)
class XGBoostModel:
    """Content of a model file.

    Attributes
    ----------
    ensemble : the trees.
    objective : the loss.
    features : names of the covariates, in order, (p,).
    """

    ensemble: Ensemble
    objective: Objective
    features: tuple[str, ...]


def written(model: XGBoostModel) -> bytes:
    """Return the model file, for `xgboost.Booster().load_model`.

    Equal models have equal bytes. Names of covariates have ``(``, ``)`` and ``_`` in place of
    ``[``, ``]`` and ``<``, which XGBoost refuses; if names are then equal, the file has none.
    """
    p, outputs = len(model.features), len(model.ensemble.base)
    score, ensemble = _based(model.objective, model.ensemble)
    rounds = ensemble.round_of
    order = np.argsort(rounds, kind="stable")
    parts = ensemble.trees.parts()
    trees = [_tree(ensemble, parts[t], p, i) for i, t in enumerate(order.tolist())]
    names = [name.translate(_REFUSED) for name in model.features]
    classes = outputs if model.objective.several else 0
    learner = {
        "attributes": {},
        "feature_names": names if len({*names}) == p else [],
        "feature_types": [],
        "gradient_booster": {
            "model": {
                "gbtree_model_param": {
                    "num_parallel_tree": f"{ensemble.parallel}",
                    "num_trees": f"{len(trees)}",
                },
                "iteration_indptr": np.cumsum([0, *np.bincount(rounds)]).tolist(),
                "tree_info": ensemble.group[order].tolist(),
                "trees": trees,
            },
            "name": "gbtree",
        },
        "learner_model_param": {
            "base_score": score,
            "boost_from_average": "0",
            "num_class": f"{classes}",
            "num_feature": f"{p}",
            "num_target": "1",
        },
        "objective": _objective(model.objective, outputs),
    }
    whole = {"learner": learner, "version": VERSION}
    return json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()


def _objective(objective: Objective, outputs: int) -> dict[str, Any]:
    own = dict(_PARAMETERS.get(objective.name, {}))
    if objective.several:
        own["softmax_multiclass_param"] = {"num_class": f"{outputs}"}
    if objective.name == "survival:aft":
        own["aft_loss_param"] = {
            "aft_loss_distribution": objective.distribution,
            "aft_loss_distribution_scale": f"{float(objective.sigma)!r}",
        }
    return {"name": objective.name, **own}


def _based(objective: Objective, ensemble: Ensemble) -> tuple[str, Ensemble]:
    """Return ``base_score``, and the ensemble with a first round of what it cannot hold."""
    base = np.asarray(ensemble.base, float)
    if (base == base[0]).all():
        score = objective.score(base[0])
        if abs(objective.margin(score) - base[0]) <= 2.0**-23 * max(1.0, abs(base[0])):
            return _number(score), ensemble
    k, m = len(base), len(base) * ensemble.parallel
    stumps = Trees(
        roots=np.arange(m, dtype=np.int32),
        feature=np.full(m, LEAF, np.int32),
        threshold=np.zeros(m, np.float32),
        left=np.full(m, -1, np.int32),
        right=np.full(m, -1, np.int32),
        missing_left=np.zeros(m, bool),
        value=np.r_[base, np.zeros(m - k)][:, None],
    )
    whole = Ensemble(
        trees=Trees.joined([stumps, ensemble.trees]),
        gain=np.r_[np.zeros(m), ensemble.gain],
        cover=np.r_[np.ones(m), ensemble.cover],
        group=np.r_[np.arange(m) % k, ensemble.group].astype(np.int32),
        base=np.zeros(k),
        parallel=ensemble.parallel,
    )
    return _number(objective.score(0.0)), whole


def _tree(ensemble: Ensemble, part: slice, p: int, number: int) -> dict[str, Any]:
    """Return a tree's nodes in the format."""
    trees = ensemble.trees
    nodes = part.start + _by_level(*(a[part] - part.start for a in (trees.left, trees.right)))
    leaf, value = trees.leaf[nodes], trees.value[nodes, 0]
    inner = np.flatnonzero(~leaf)
    left = np.full(len(nodes), -1)
    left[inner] = 1 + 2 * np.arange(len(inner))
    parents = np.append(NO_PARENT, np.repeat(inner, 2))
    categories = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
    return {
        "base_weights": _floats(value),
        **{name: [] for name in categories},
        "default_left": trees.missing_left[nodes].astype(int).tolist(),
        "id": number,
        "left_children": left.tolist(),
        "loss_changes": _floats(ensemble.gain[nodes]),
        "parents": parents.tolist(),
        "right_children": np.where(leaf, -1, left + 1).tolist(),
        "split_conditions": _floats(np.where(leaf, value, trees.threshold[nodes])),
        "split_indices": np.where(leaf, 0, trees.feature[nodes]).tolist(),
        "split_type": [0] * len(leaf),
        "sum_hessian": _floats(ensemble.cover[nodes]),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": f"{p}",
            "num_nodes": f"{len(leaf)}",
            "size_leaf_vector": "1",
        },
    }


def _by_level(left: Array, right: Array) -> Array:
    """Return a tree's nodes level by level: XGBoost 2 takes the node after a left child as the
    right one.
    """
    at = np.zeros(1, int)
    levels = [at]
    while len(at := at[left[at] >= 0]):
        at = np.stack([left[at], right[at]], axis=1).ravel()
        levels.append(at)
    return np.concatenate(levels)


def _floats(values: Array) -> list[float]:
    """Return float32 numbers that JSON writes with the fewest digits."""
    return np.asarray(values, np.float32).astype(str).astype(float).tolist()


def _number(score: float) -> str:
    return str(np.float32(score))
