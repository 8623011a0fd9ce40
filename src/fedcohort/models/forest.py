"""Forests of soft decision trees on a network's outputs, with Gaussian or survival leaves.

Shen, Guo, Wang, Zhao, Wang, Yuille, "Deep regression forests for age estimation", CVPR 2018. A tree
of depth D has 2^D − 1 split nodes and L = 2^D leaves. Node n reads one output f_φ(n) of a network
and sends a row left with probability σ(f_φ(n)(x)), σ(f) = 1/(1 + e^−f). The index φ of each tree is
drawn at random, without repetition as long as there are outputs. With +1 for left and −1 for right,

    μ_l(x) = Π_{n above l} σ(±f_φ(n)(x))                     probability of leaf l           (1)
    p(y | x; tree) = Σ_l μ_l(x) π_l(y)                       density of a tree               (2)
    ŷ(x) = (1/T) Σ_trees Σ_l μ_l(x) m_l                      mean of T trees                 (3)

The loss is −(1/T) Σ_trees log p(y | x; tree), averaged over rows. Gradient steps move the network
alone. Then, with the network fixed, the leaves of each tree take steps of variational bounding
(section 3.3), which never raise the loss of the rows that they are computed from:

    ζ_l(x, y) = μ_l(x) π_l(y) / p(y | x; tree)                                               (4)
    Gaussian   π_l = N(m_l, v_l):   m_l = Σ ζ_l y / Σ ζ_l,   v_l = Σ ζ_l (y − m_l)² / Σ ζ_l  (5)

with sums over rows. v_l is at least `FLOOR`, in which the bound has its maximum if (5) is below. A
leaf whose Σ ζ_l is below `least` keeps its values: a step of some leaves never raises the loss
either, and no row has a weight above 1/least in a leaf's mean.

Survival leaves are ours. On a grid of times t_1 < … < t_K, leaf l has hazards h_lk, and with S_lk =
Π_{j ≤ k} (1 − h_lj) a death in interval k has probability S_l,k−1 h_lk, and a record that is
censored after interval k has S_lk. Then (4) holds, and with the rows at risk in interval k

    h_lk = Σ_{dies in k} ζ_l / Σ_{at risk in k} ζ_l                                           (6)

is a Kaplan-Meier curve of weighted rows; of one leaf it is that of all rows. Hazards are cut to
[`SMALLEST`, 1 − `SMALLEST`]. An interval with less than `least` at risk keeps its hazard.
"""

from __future__ import annotations

import dataclasses
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from fedcohort.arrays import Array
from fedcohort.numerics.survival import dies_on_grid, slots

#: Least variance of a leaf, in units of the outcome's variance.
FLOOR = 1e-4
#: Least hazard of an interval, and least probability to survive it.
SMALLEST = 1e-6
#: Share of the outcome's variance that is between leaves at the start; log hazard ratio at the
#: start between two leaves of which one is a standard deviation of a normal above the other.
BETWEEN, SPREAD = 0.8, 1.0
#: Numbers of a (rows, trees, leaves) array that is computed at once, without gradient.
AT_ONCE = 2**21
#: Values of the leaves at the start.
STARTS = ("moments", "normal")

_TAG = 0x66726573


@dataclass(frozen=True, kw_only=True)
class Forest:
    """A forest on a network's outputs.

    Attributes
    ----------
    trees, depth : T ≥ 1 and D ≥ 0.
    intervals : K of survival leaves, the most that a grid has; 0 for Gaussian leaves.
    start : "moments": means at quantiles of a normal whose mean and variance are those of the
        outcome; "normal": Normal(1, 1), as Nolte et al. 2023. Survival leaves: see `from_curve`.
    iterations : steps (4) to (6) after each visit.
    least : rows (Σ ζ) with which a leaf is updated.
    """

    trees: int = 5
    depth: int = 4
    intervals: int = 0
    start: str = "moments"
    iterations: int = 10
    least: float = 0.0

    @property
    def leaves(self) -> int:
        """L, number of leaves of a tree."""
        return int(2**self.depth)

    @property
    def size(self) -> int:
        """Number of parameters of all leaves."""
        return self.trees * self.leaves * (self.intervals or 2)

    def spec(self, base: str) -> str:
        """Return the JSON text that determines the forest on the network with the spec `base`."""
        entries = {"kind": "forest", "base": json.loads(base), **dataclasses.asdict(self)}
        return json.dumps(entries, sort_keys=True)

    def over(self, base: nn.Module, outputs: int) -> ForestNet:
        """Return the module on a network with so many outputs, with uninitialised parameters."""
        return ForestNet(self, base, split_nodes(self.trees, self.leaves - 1, outputs))


def forest_of(spec: str) -> Forest | None:
    """Return the forest of a network's spec; None of other networks."""
    entries = json.loads(spec)
    if entries.pop("kind") != "forest":
        return None
    del entries["base"]
    return Forest(**entries)


@lru_cache(maxsize=64)
def leaf_count(spec: str) -> int:
    """Return how many of a network's parameters, its last ones, no gradient step moves."""
    forest = forest_of(spec) if '"forest"' in spec else None
    return 0 if forest is None else forest.size


def split_nodes(trees: int, nodes: int, outputs: int) -> Array:
    """Return φ (T, nodes): the output that each split node reads, of `outputs`.

    It is the same in all fits, so that each site builds the same trees. A tree reads no output
    twice before it has read all.
    """
    rng = np.random.default_rng((_TAG, trees, nodes, outputs))
    laps = max(1, math.ceil(nodes / outputs))
    drawn = [[rng.permutation(outputs) for _ in range(laps)] for _ in range(trees)]
    return np.array([np.concatenate(tree)[:nodes] for tree in drawn]).reshape(trees, nodes)


def codes_of(time: Array, event: Array, times: Array, *, together: bool) -> Array:
    """Return right-censored records (n,) as whole numbers from 0 to 2K, on a grid of K times.

    2k is at risk in the first k intervals and alive after them; 2k − 1 dies in the k-th.

    Parameters
    ----------
    time, event : (n,). times, together : see `numerics.survival.slots`.
    """
    slot = slots(time, event, times, together=together)
    return 2 * (slot + 1) - dies_on_grid(time, event, times)


class Leaves(nn.Module):
    """Distributions of the outcome in the leaves (T, L)."""

    @abstractmethod
    def begin(self) -> None:
        """Write the values before the first round."""

    @abstractmethod
    def log_density(self, targets: Tensor) -> Tensor:
        """Return log π_l (n, T, L) of targets (n,), without gradient of the leaves."""

    @abstractmethod
    def sums(self, zeta: Tensor, targets: Tensor) -> Tensor:
        """Return the sums of eq. (5) or (6), from ζ (n, T, L) and targets (n,)."""

    @abstractmethod
    def update(self, sums: Tensor, least: float) -> None:
        """Write the values that maximise the bound, where there are enough rows."""

    @abstractmethod
    def values(self) -> Tensor:
        """Return a prediction of each leaf (T, L, q)."""


class GaussianLeaves(Leaves):
    """N(m, v), both (T, L), in units of the outcome's standard deviation about its mean."""

    def __init__(self, forest: Forest):
        super().__init__()
        shape = forest.trees, forest.leaves
        self._normal = forest.start == "normal"
        self.mean = nn.Parameter(torch.empty(shape))
        self.variance = nn.Parameter(torch.empty(shape))

    def begin(self) -> None:
        """Write Normal(1, 1), or leaves in the order of their means, of which all hold as much."""
        mean, variance = np.ones(self.mean.shape[1]), 1.0
        if not self._normal:
            mean = _scores(len(mean))
            if len(mean) > 1:
                mean, variance = mean * math.sqrt(BETWEEN / float((mean**2).mean())), 1 - BETWEEN
        self.mean.copy_(torch.from_numpy(mean).expand_as(self.mean))
        self.variance.fill_(variance)

    def log_density(self, targets: Tensor) -> Tensor:
        """Return log N(y; m, v) (n, T, L)."""
        v = self.variance.detach().clamp_min(FLOOR)
        gaps = targets.to(v)[:, None, None] - self.mean.detach()
        return -0.5 * (gaps.square() / v + v.log() + math.log(2 * math.pi))

    def sums(self, zeta: Tensor, targets: Tensor) -> Tensor:
        """Return Σ ζ, Σ ζ y and Σ ζ y² (3, T, L)."""
        y = targets.to(zeta)
        powers = torch.stack([torch.ones_like(y), y, y.square()])
        return torch.einsum("sn,ntl->stl", powers, zeta)

    def update(self, sums: Tensor, least: float) -> None:
        """Write eq. (5)."""
        rows, first, second = sums
        enough = (rows >= least) & (rows > 0)
        n = torch.where(enough, rows, 1.0)
        mean = first / n
        variance = (second / n - mean.square()).clamp_min(FLOOR)
        self.mean.copy_(torch.where(enough, mean, self.mean))
        self.variance.copy_(torch.where(enough, variance, self.variance))

    def values(self) -> Tensor:
        """Return m (T, L, 1)."""
        return self.mean.detach()[..., None]


class SurvivalLeaves(Leaves):
    """Hazards (T, L, K) of the intervals of a grid; targets are those of `codes_of`."""

    def __init__(self, forest: Forest):
        super().__init__()
        self.hazard = nn.Parameter(torch.empty(forest.trees, forest.leaves, forest.intervals))

    def begin(self) -> None:
        """Write the hazards with which as many die in each interval as after the last."""
        k = self.hazard.shape[2]
        first = 1.0 / torch.arange(k + 1, 1, -1, dtype=torch.float64)
        self.hazard.copy_(first.expand_as(self.hazard))

    def _kept(self) -> Tensor:
        return self.hazard.detach().clamp(SMALLEST, 1 - SMALLEST)

    def log_density(self, targets: Tensor) -> Tensor:
        """Return log S_lk of who is alive after k intervals, and log S_l,k−1 h_lk of deaths."""
        h = self._kept()
        stays = torch.log1p(-h)
        alive = stays.cumsum(2)
        both = torch.stack([alive - stays + h.log(), alive], 3).flatten(2)
        each = torch.cat([torch.zeros_like(both[..., :1]), both], 2)
        return each.index_select(2, targets.to(h.device)).permute(2, 0, 1)

    def sums(self, zeta: Tensor, targets: Tensor) -> Tensor:
        """Return Σ ζ at risk in each interval, and that of the deaths (2, T, L, K)."""
        k = self.hazard.shape[2]
        at = zeta.new_zeros(2 * k + 1, *zeta.shape[1:]).index_add(0, targets.to(zeta.device), zeta)
        deaths = at[1::2]
        leaving = deaths + at[2::2]
        risk = leaving.flip(0).cumsum(0).flip(0)
        return torch.stack([risk, deaths]).permute(0, 2, 3, 1)

    def update(self, sums: Tensor, least: float) -> None:
        """Write eq. (6)."""
        risk, deaths = sums
        enough = (risk >= least) & (risk > 0)
        hazard = (deaths / torch.where(enough, risk, 1.0)).clamp(SMALLEST, 1 - SMALLEST)
        self.hazard.copy_(torch.where(enough, hazard, self.hazard))

    def values(self) -> Tensor:
        """Return S (T, L, K), the survival after each interval."""
        return (1.0 - self._kept()).cumprod(2)


class ForestNet(nn.Module):
    """The module of a `Forest`.

    Attributes
    ----------
    base : network with outputs (n, F). leaves : distributions in the leaves.
    block : number of rows that are computed at once, without gradient.
    """

    def __init__(self, forest: Forest, base: nn.Module, nodes: Array):
        super().__init__()
        self.base = base
        self.leaves = SurvivalLeaves(forest) if forest.intervals else GaussianLeaves(forest)
        self.block = max(1, AT_ONCE // (forest.trees * forest.leaves))
        if isinstance(inner := getattr(base, "block", None), int):
            self.block = min(self.block, inner)
        self._forest = forest
        self._nodes: Tensor
        self.register_buffer("_nodes", torch.from_numpy(nodes).long(), persistent=False)

    def routed(self, outputs: Tensor) -> Tensor:
        """Return log μ (n, T, L), eq. (1), of the network's outputs (n, F)."""
        f = outputs[:, self._nodes]
        left, right = logsigmoid(f), logsigmoid(-f)
        logs = f[..., :0].sum(-1, keepdim=True)
        for level in range(self._forest.depth):
            here = slice(2**level - 1, 2 ** (level + 1) - 1)
            logs = torch.stack([logs + left[..., here], logs + right[..., here]], -1).flatten(-2)
        return logs

    def log_likelihood(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return log p(y | x; tree) (n, T), eq. (2); its gradient is that of the network."""
        return (self.routed(self.base(x)) + self.leaves.log_density(targets)).logsumexp(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the prediction (n, q), the mean over trees, eq. (3), of x (n, p).

        q is 1 of Gaussian leaves, and K of survival leaves, for the survival after each interval.
        """
        mixed = torch.einsum("ntl,tlq->nq", self.routed(self.base(x)).exp(), self.leaves.values())
        return mixed / self._forest.trees

    def leaf_sums(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return the sums of eq. (5) or (6) over rows x (n, p), at the present leaves."""
        return self._sums(self._routes(x), targets)

    def update(self, sums: Tensor, least: float | None = None) -> None:
        """Write the leaves that follow from such sums; `least` None: that of the forest."""
        with torch.no_grad():
            self.leaves.update(sums, self._forest.least if least is None else least)

    def settle(self, x: Tensor, targets: Tensor) -> None:
        """Take the steps of variational bounding over rows x (n, p), with the network fixed."""
        routes = self._routes(x)
        for _ in range(self._forest.iterations):
            self.update(self._sums(routes, targets))

    def _routes(self, x: Tensor) -> Callable[[], Iterable[Tensor]]:
        """Return log μ of rows x (n, p) in blocks; of more than one they are computed again."""
        with torch.no_grad():
            outputs = [self.base(part) for part in x.split(self.block)]
            once = [self.routed(f) for f in outputs] if len(outputs) == 1 else None
        return lambda: map(self.routed, outputs) if once is None else once

    def _sums(self, routes: Callable[[], Iterable[Tensor]], targets: Tensor) -> Tensor:
        found: Tensor | None = None
        with torch.no_grad():
            for logs, y in zip(routes(), targets.split(self.block), strict=True):
                sums = self.leaves.sums((logs + self.leaves.log_density(y)).softmax(2), y)
                found = sums if found is None else found + sums
        assert found is not None
        return found


def from_curve(spec: str, theta: Array, hazard: Array) -> Array:
    """Return θ (P,) whose survival leaves have hazards around those (k,) of all rows, k ≤ K.

    Leaf l has 1 − (1 − h)^r_l, where log r_l is `SPREAD` times a quantile of a normal: the leaves
    of a tree differ as patients may, and all of its leaves hold as many rows.
    """
    forest = forest_of(spec)
    assert forest is not None and len(hazard) <= forest.intervals
    ratio = np.exp(SPREAD * _scores(forest.leaves))
    kept = np.clip(hazard, SMALLEST, 1 - SMALLEST)
    leaves = -np.expm1(ratio[:, None] * np.log1p(-kept))
    found = theta.copy()
    shape = forest.trees, forest.leaves, forest.intervals
    found[len(theta) - forest.size :].reshape(shape)[..., : len(hazard)] = leaves
    return found


def _scores(leaves: int) -> Array:
    """Return the standard normal's quantiles at the middles of L equal shares (L,)."""
    return np.asarray(ndtri((np.arange(leaves) + 0.5) / leaves), float)
