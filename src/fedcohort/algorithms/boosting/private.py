"""Boosted trees with differential privacy: random splits, and leaves from noisy sums.

A round draws one complete tree without looking at a row: at each node a covariate, and a threshold
uniform over its range by the dictionary (extremely randomised trees: Geurts, Ernst, Wehenkel,
Machine Learning 63, 2006). So splits cost no ε. Each record reaches one leaf l, and the sites sum

    G_l = Σ cut(g, C),   H_l = Σ cut(h, B),   cut(v, C) = v · min(1, C/‖v‖)                  (1)

over its records (softmax: vectors of K classes, which share the tree). One record more or less
changes G of one leaf by a vector of norm ≤ C, and H by one of norm ≤ B: 1/4 of logistic, 1 of
softmax and squared, which h never passes (softmax: Σ h² ≤ max h · Σ h ≤ ½ · 2). This holds at any
margins, so for all that a coordinator can send. A Gaussian outcome is cut to its usual range, and
scaled to [−1, 1]. T rounds are T Gaussian releases of two fields. With σ_H the standard deviation
of the noise in H, a leaf gets

    w = −η G/(max(H, 0) + λ + 2 σ_H),  cut to ± 2 η                                          (2)

so a leaf of few records, whose H is mostly noise, stays near 0. Gains and covers follow from the
noisy sums.

Splits that are chosen from noisy histograms pay for each level and covariate, and predicted worse
at every ε that was tried. Trees of one covariate at a time (Nori et al., "Accuracy,
interpretability, and differential privacy via explainable boosting", ICML 2021) cost the same as
these, but have no interactions.

A round sends the drawn tree, and the values of the one before: a site keeps its records' margins,
each of which follows from this record alone. After an absence the trees that it lacks are sent
again. Who is away in the first round takes no part.

Revealed: `Leaves` with noise, once a round, as sums over sites.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.boosting import arguments
from fedcohort.algorithms.boosting.model import BoostedModel
from fedcohort.algorithms.boosting.objectives import Outcome, pulls
from fedcohort.algorithms.boosting.response import Objective
from fedcohort.algorithms.boosting.settings import BoostingSettings
from fedcohort.arrays import Array
from fedcohort.data.exact import check_covariates
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.nodes import LEAF, Trees
from fedcohort.protocol import (
    Dp,
    Federation,
    Keep,
    Private,
    Release,
    SettingError,
    Site,
    Task,
    message,
    summed,
)

#: B of eq. (1), by the objectives that have a private fit.
HESSIAN: Mapping[str, float] = {"logistic": 0.25, "softmax": 1.0, "squared": 1.0}
#: Default C: 1 is never passed by logistic.
CLIPS = {"record": 1.0}
#: Largest |w| of eq. (2), before η.
MOST = 2.0
#: Deepest tree.
DEEPEST = 10
#: Settings of a private fit; `weights` has an error of its own.
USED = ("objective", "rounds", "learning_rate", "max_depth", "l2", "weights")


@message
class Leaves:
    """G and H (L, K) of each leaf, eq. (1)."""

    gradient: Array
    hessian: Array


@message
class Margins:
    """State of a site: ``margin`` (n, K) of its records after the first ``added`` () trees."""

    margin: Array
    added: Array


# site ---------------------------------------------------------------------------------


@summed
def sum_leaves_privately(
    site: Site[LabelledTable, Margins | None], *, objective: str, classes: int, clip: float,
    centre: float, scale: float, first: int, feature: Array, threshold: Array,
    missing_left: Array, values: Array,
) -> Keep[Private[Leaves], Margins]:  # fmt: skip
    """Sum cut gradients by the leaves of the last tree, at the margins of the trees before.

    Parameters
    ----------
    classes : K, columns of the margins.
    centre, scale : of a continuous outcome; (y − centre)/scale is cut to [−1, 1].
    first : number of the first tree sent, at most that of the trees in the site's margins.
    feature, threshold, missing_left : (T, N) of the inner nodes, level by level.
    values : (T − 1, L, K) of the leaves of all trees but the last.
    """
    x = np.asarray(site.data.x, np.float32)
    arguments.check_private(
        site.name, objective, classes, feature, threshold, missing_left, values, x.shape[1]
    )
    margin, added = margins(site, x, classes, first, feature, threshold, missing_left, values)
    leaf = leaves(x, feature[-1], threshold[-1], missing_left[-1])
    g, h = record_parts(site, objective, clip, centre, scale, margin)
    size = feature.shape[1] + 1
    total = [np.zeros((size, classes)), np.zeros((size, classes))]
    for out, rows in zip(total, (g, h), strict=True):
        np.add.at(out, leaf, rows)
    reply = Private(Leaves(*total), {"gradient": clip, "hessian": HESSIAN[objective]})
    return Keep(reply, Margins(margin, np.array(added)))


def margins(
    site: Site[LabelledTable, Margins | None], x: Array, classes: int, first: int, feature: Array,
    threshold: Array, missing_left: Array, values: Array,
) -> tuple[Array, int]:  # fmt: skip
    """Return the margins (n, K) after all trees with values, and the number of these trees."""
    state, last = site.state, first + len(values)
    added = 0 if state is None else int(state.added)
    margin = np.zeros((len(x), classes)) if state is None else state.margin
    arguments.check_added(site.name, first, added, last, margin, (len(x), classes))
    for t in range(added - first, len(values)):
        margin = margin + values[t, leaves(x, feature[t], threshold[t], missing_left[t])]
    return margin, last


def record_parts(
    site: Site[LabelledTable, Margins | None], objective: str, clip: float, centre: float,
    scale: float, margin: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Return each record's cut g and h (n, K) of eq. (1) at its margin."""
    y = np.asarray(site.data.y, float)
    if objective == "squared":
        y = np.clip((y - centre) / scale, -1.0, 1.0)
    outcome = Outcome(y, classes=margin.shape[1])
    g, h, _ = pulls(objective, margin, outcome, np.ones(len(margin)))
    return cut(g, clip), cut(h, HESSIAN[objective])


def leaves(x: Array, feature: Array, threshold: Array, missing_left: Array) -> Array:
    """Return the leaf (n,), from 0, of each row of x (n, p) in a complete tree of N nodes."""
    rows, node = np.arange(len(x)), np.zeros(len(x), np.int64)
    while len(feature) and len(x) and node[0] < len(feature):
        own = x[rows, feature[node]]
        left = np.where(np.isnan(own), missing_left[node], own < threshold[node])
        node = 2 * node + 2 - left
    return node - len(feature)


def cut(rows: Array, most: float) -> Array:
    """Return rows (n, k) cut to the norm `most`; rows that are not finite become 0."""
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    fine = np.isfinite(norm)
    return np.where(fine, rows, 0.0) * (most / np.maximum(np.where(fine, norm, 1.0), most))


STEPS = (sum_leaves_privately,)

# coordinator --------------------------------------------------------------------------


def releases(config: BoostingSettings, dp: Dp) -> Sequence[Release]:
    """Return all releases of a private fit.

    Raises
    ------
    SettingError : these settings have no private fit; or (ε, δ) cannot be met.
    """
    if dp.unit != "record":
        raise SettingError(
            f"dp.unit is {dp.unit!r}, but boosting protects records; choose 'record'."
        )
    if config.objective not in HESSIAN:
        raise SettingError(
            f"setting 'objective' of method 'boosting' is {config.objective!r}; a private fit "
            f"needs one of {', '.join(map(repr, HESSIAN))}, by name."
        )
    usual = type(config)()
    for name in (f.name for f in dataclasses.fields(config) if f.name not in USED):
        if getattr(config, name) != getattr(usual, name):
            raise SettingError(
                f"setting {name!r} of method 'boosting' is {getattr(config, name)!r}, and a "
                f"private fit does not use it: its splits are drawn. Leave it out."
            )
    if config.max_depth > DEEPEST:
        raise SettingError(
            f"setting 'max_depth' of method 'boosting' is {config.max_depth}; a private fit has "
            f"at most {DEEPEST} levels."
        )
    return _releases(config.rounds, dp)


@lru_cache(maxsize=64)
def _releases(rounds: int, dp: Dp) -> tuple[Release, ...]:
    from fedcohort.privacy import accounting  # slow to import: only where noise is asked for

    def make(z: float) -> tuple[Release, ...]:
        return (Release(step=sum_leaves_privately.name, noise=z, count=rounds),)

    return make(accounting.calibrate(make, dp))


def held(config: BoostingSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that a site requires: all except the trees."""
    assert task.dp is not None
    objective = config.objective_of(task)
    centre, scale = _units(objective, task)
    return {
        sum_leaves_privately.name: {
            "objective": objective,
            "classes": len(task.levels) if objective == "softmax" else 1,
            "clip": task.dp.norm,
            "centre": centre,
            "scale": scale,
        }
    }


def _units(objective: str, task: Task) -> tuple[float, float]:
    """Return centre and scale of the outcome: of the usual range of a continuous one.

    Raises
    ------
    DataError : there is no such range.
    """
    if objective != "squared":
        return 0.0, 1.0
    low, high = task.usual
    return (low + high) / 2.0, (high - low) / 2.0


def reveals(config: BoostingSettings, dp: Dp) -> str:
    """Describe what leaves a site in a private fit."""
    (release,) = releases(config, dp)
    return (
        f"{release.count} times, the sum over sites of cut gradients and hessians in each leaf of "
        f"a tree with drawn splits."
    )


def fit(fed: Federation, config: BoostingSettings, task: Task, dp: Dp) -> BoostedModel:
    """Grow the trees of all rounds.

    Raises
    ------
    DataError : no covariates; or a continuous outcome without usual values.
    SettingError : the settings have no private fit, or do not suit the outcome.
    """
    check_covariates(task)
    (release,) = releases(config, dp)
    asked = dict(held(config, task)[sum_leaves_privately.name])
    k, scale, size = asked["classes"], asked["scale"], 2**config.max_depth
    # two fields, so each has √2 times the noise of its own sensitivity
    noise = math.sqrt(2.0) * release.noise * HESSIAN[config.objective]
    rng, count = task.rng, config.rounds
    shape = count, size - 1
    feature = rng.integers(0, len(task.features), shape).astype(np.int32)
    threshold = _thresholds(rng.random(shape), feature, task)
    missing = rng.random(shape) < 0.5
    values = np.zeros((count, size, k), np.float32)
    sums: list[Leaves] = []
    added = dict.fromkeys(fed.sites, 0)  # trees in the margins that a site keeps
    for t in fed.rounds(count):
        first = min(added[site] for site in fed.sites)
        now = slice(first, t + 1)
        told = fed.sum(
            sum_leaves_privately, **asked, first=first, feature=feature[now],
            threshold=threshold[now], missing_left=missing[now], values=values[first:t],
        )  # fmt: skip
        added |= dict.fromkeys(fed.answered, t)
        if not t:
            fed = fed.only(fed.answered)
        below = np.maximum(told.hessian, 0.0) + config.l2 + 2 * noise
        values[t] = config.learning_rate * np.clip(-told.gradient / below, -MOST, MOST)
        sums.append(told)
        fed.record(learning_rate=config.learning_rate)
    trees, gain, cover = _trees(feature, threshold, missing, values * scale, sums, config.l2, noise)
    return BoostedModel(
        features=task.features,
        objective=Objective.of_loss(config.objective),
        ensemble=Ensemble(
            trees=trees,
            gain=gain,
            cover=cover,
            group=np.tile(np.arange(k, dtype=np.int32), count),
            base=np.full(k, asked["centre"], np.float32),
        ),
        levels=task.levels if config.objective in ("logistic", "softmax") else (),
    )


def _thresholds(drawn: Array, feature: Array, task: Task) -> Array:
    """Return thresholds, float32, uniform over [−1, 1], or between the values of a feature of two.

    Parameters
    ----------
    drawn : uniform in [0, 1).
    """
    ends = np.tile([-1.0, 1.0], (len(task.features), 1))
    if len(task.pairs):
        pairs = np.sort(np.asarray(task.pairs, float), axis=1)
        ends = np.where(np.isfinite(pairs).all(axis=1, keepdims=True), pairs, ends)
    low, high = ends[feature, 0], ends[feature, 1]
    return (low + (1.0 - drawn) * (high - low)).astype(np.float32)


def _trees(
    feature: Array, threshold: Array, missing: Array, values: Array, sums: Sequence[Leaves],
    l2: float, noise: float,
) -> tuple[Trees, Array, Array]:  # fmt: skip
    """Return complete trees, one of each round and class, with gains and covers of noisy sums."""
    rounds, inner = feature.shape
    n, k = 2 * inner + 1, values.shape[2]
    parts: list[Trees] = []
    gains, covers = np.zeros((rounds, k, n), np.float32), np.zeros((rounds, k, n), np.float32)
    nodes = np.arange(n, dtype=np.int32)
    leaf = nodes >= inner
    for t in range(rounds):
        g, h = (
            np.concatenate([np.zeros((inner, k)), a]) for a in (sums[t].gradient, sums[t].hessian)
        )
        for i in range(inner - 1, -1, -1):
            g[i], h[i] = g[2 * i + 1] + g[2 * i + 2], h[2 * i + 1] + h[2 * i + 2]
        score = g**2 / (np.maximum(h, 0.0) + l2 + 2 * noise)
        gain = score[1::2] + score[2::2] - score[:inner]
        gains[t, :, :inner] = np.maximum(gain, 0.0).T
        covers[t] = np.maximum(h, 0.0).T
        for c in range(k):
            value = np.zeros((n, 1), np.float32)
            value[inner:, 0] = values[t, :, c]
            fields = (feature[t], threshold[t], missing[t])
            f, cuts, goes = (np.concatenate([a, np.zeros(inner + 1, a.dtype)]) for a in fields)
            parts.append(
                Trees(
                    roots=np.zeros(1, np.int32),
                    feature=np.where(leaf, LEAF, f).astype(np.int32),
                    threshold=cuts,
                    left=np.where(leaf, -1, 2 * nodes + 1).astype(np.int32),
                    right=np.where(leaf, -1, 2 * nodes + 2).astype(np.int32),
                    missing_left=goes,
                    value=value,
                )
            )
    return Trees.joined(parts), gains.ravel(), covers.ravel()
