"""Random trees, and what they say of one row, step by step."""

from __future__ import annotations

import numpy as np

from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.nodes import LEAF, Trees


def grown(seed: int, p: int, *, trees: int = 3, depth: int = 3, outputs: int = 1) -> Ensemble:
    """Return random trees: a path may split a covariate again, and a leaf may be at any depth."""
    rng = np.random.default_rng(seed)
    # feature, threshold, left, right, missing_left, value, gain and cover of each node
    nodes: list[list[float]] = []
    roots: list[int] = []

    def grow(level: int, cover: float) -> int:
        at = len(nodes)
        nodes.append([LEAF, 0, -1, -1, 0, rng.normal(), 0, cover])
        if level and rng.random() < 0.85:
            share = rng.uniform(0.05, 0.95)
            left, right = grow(level - 1, share * cover), grow(level - 1, (1 - share) * cover)
            split = [rng.integers(p), rng.choice([-0.5, 0, 0.5]), left, right, rng.integers(2)]
            nodes[at] = [*split, rng.normal(), rng.exponential(), cover]
        return at

    for _ in range(trees):
        roots.append(grow(depth, rng.uniform(5, 50)))
    feature, threshold, left, right, missing, value, gain, cover = np.reshape(nodes, (-1, 8)).T
    return Ensemble(
        trees=Trees(
            roots=np.array(roots, np.int32),
            feature=feature.astype(np.int32),
            threshold=threshold.astype(np.float32),
            left=left.astype(np.int32),
            right=right.astype(np.int32),
            missing_left=missing.astype(bool),
            value=value.astype(np.float32).astype(float)[:, None],
        ),
        gain=gain.astype(np.float32),
        cover=cover.astype(np.float32),
        group=(np.arange(trees) % outputs).astype(np.int32),
        base=rng.normal(size=outputs).astype(np.float32).astype(float),
    )


def rows(seed: int, n: int, p: int) -> np.ndarray:
    """Return rows (n, p) with values on, beside and between thresholds, and missing ones."""
    rng = np.random.default_rng(seed)
    x = rng.choice([-1, -0.5, 0, 0.25, 0.5, 2], (n, p))
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


def expectation(ensemble: Ensemble, node: int, row: np.ndarray, known: set[int]) -> float:
    """Return the mean value below a node of a row of which only some covariates are known.

    Lundberg et al. (2020), algorithm 1, EXPVALUE: unknown covariates go both ways, by cover.
    """
    t = ensemble.trees
    left, right, j = int(t.left[node]), int(t.right[node]), int(t.feature[node])
    if left < 0:
        return float(t.value[node, 0])
    if j in known:
        missing = np.isnan(row[j])
        goes = bool(t.missing_left[node]) if missing else row[j] < t.threshold[node]
        return expectation(ensemble, left if goes else right, row, known)
    a, b = float(ensemble.cover[left]), float(ensemble.cover[right])
    below = (expectation(ensemble, child, row, known) for child in (left, right))
    return sum(w * value for w, value in zip((a, b), below, strict=True)) / (a + b)


def value_of(ensemble: Ensemble, row: np.ndarray, known: set[int]) -> np.ndarray:
    """Return the margins (K,) of a row of which only some covariates are known."""
    out = ensemble.base.copy()
    for root, k in zip(ensemble.trees.roots.tolist(), ensemble.group.tolist(), strict=True):
        out[k] += expectation(ensemble, root, row, known)
    return out
