"""A network's posterior: predictions as means over its samples, and what makes them uncertain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit, ndtr, softmax

from fedcohort.arrays import Array
from fedcohort.models.bayes import places
from fedcohort.models.losses import FAR, LONG
from fedcohort.models.network import network
from fedcohort.protocol import Fitted, NotSupported

#: Halvings of an interval that holds a quantile.
HALVINGS = 60
#: Least survival of which a logarithm is taken.
LEAST = 1e-300
#: Domain of the seeds of samples.
TAG = 0x62617965


@dataclass(frozen=True, kw_only=True, eq=False)
class BayesNetModel(Fitted):
    """E_q g(f_w(x)), with the network's outputs f_w at weights w of the posterior q.

        logistic   g = 1/(1 + e^−f), the probability of class 1
        softmax    g_k = e^f_k / Σ_c e^f_c, of class k
        spread     y ~ N(centre + scale f₁, scale² e^{2 f₂})
        poisson    g = scale e^f
        weibull    log t = log scale + f₁ + e^{f₂} ε, with the extreme value ε of least values

    E_q is the mean over `samples` draws by `seed`, the same for all rows and in each call.

    Attributes
    ----------
    levels : classes in the order of their numbers (K,); () without.
    thetas : (M, P), parameters of the posterior; M is the number of sites for an ensemble, else 1.
    weights : (M,), with sum 1.
    centre, scale : in the outcome's unit.
    times : of survival, ends of the intervals (T,) up to the last time at which it is estimated.
    rounds : number of rounds.
    level : probability of the credible intervals.
    """

    features: tuple[str, ...]
    levels: tuple[str, ...]
    model: str
    network: str
    thetas: Array
    weights: Array
    centre: float
    scale: float
    times: Array
    rounds: int
    samples: int
    seed: int
    level: float

    def predict(self, x: Array) -> Array:
        """Return the prediction for each row of x (n, p).

        The probability of class 1 (n,), of each of K > 2 classes (n, K), the value or count (n,);
        of times the cumulative hazard summed over `times`, as of a forest.
        """
        if self.model == "weibull":
            found = self.predict_survival(x, self.times)
            return -np.log(np.maximum(found, LEAST)).sum(axis=1)
        return np.add.reduce([w * self._expected(f) for w, f in self._draws(x)])

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) for each row of x (n, p) and each of `times` (m,): (n, m)."""
        if self.model != "weibull":
            raise NotSupported("predict_survival")
        times = np.minimum(times, self.times[-1])
        with np.errstate(divide="ignore"):
            logs = np.log(np.asarray(times, float) / self.scale)
        found, total = np.zeros((len(x), len(times))), 0.0
        for w, f in self._draws(x):
            total += w
            found += w * np.exp(-_hazard(logs, f))
        return found / total  # whose rounding is that of the sum, so that P(T > 0) is 1

    def known_until(self, x: Array) -> Array:
        """Return the last time (n,) at which the survival of each row of x (n, p) is known."""
        return np.full(len(x), self.times[-1] if len(self.times) else np.inf)

    def intervals(self, x: Array, level: float) -> Array:
        """Return the interval (n, 2) that holds, with probability `level`, the probability of class
        1, the expected count, the risk score, or a new value.
        """
        ends = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        draws = list(self._draws(x))
        if self.model == "softmax":
            raise NotSupported("intervals of several classes")
        if self.model != "spread":
            values = np.array([self._expected(f) for _, f in draws])
            return _quantiles(values, np.array([w for w, _ in draws]), ends)
        mean = np.array([f[:, 0] for _, f in draws])
        sd = np.exp(np.array([_cut(f[:, 1]) for _, f in draws]))
        share = np.array([w for w, _ in draws])
        found = [_mixture_quantile(mean, sd, share, p) for p in ends.tolist()]
        return self.centre + self.scale * np.column_stack(found)

    def uncertainty(self, x: Array) -> tuple[Array, Array]:
        """Return the epistemic and the aleatoric variance (n,) of the outcome.

        Of classes the sum over all, of which the epistemic part is Σ_k Var_q(p_k); of two classes
        that of class 1.
        """
        if self.model == "weibull":
            raise NotSupported("parts of a time's uncertainty")
        first = second = inside = 0.0
        for w, f in self._draws(x):
            g = self._expected(f)
            first, second = first + w * g, second + w * g * g
            inside = inside + w * self._variance(f, g)
        between, within = np.maximum(second - np.square(first), 0.0), np.asarray(inside)
        if self.model == "softmax":
            return between.sum(axis=1), within.sum(axis=1)
        return between, within

    def divergence(self, other: Fitted) -> float:
        """Return Σ_w ½ [λ'/λ + λ' (μ − μ')² − 1 + ln λ/λ'], primes for the other model's."""
        if (
            not isinstance(other, BayesNetModel)
            or other.network != self.network
            or len(self.thetas) + len(other.thetas) != 2
        ):
            raise NotSupported("divergence from a posterior of another network, or of an ensemble")
        one, two = self.thetas[0], other.thetas[0]
        at = places(network(self.network).module)
        log_sd, log_sd2 = one[at.log_sd], two[at.log_sd]
        moved = np.square(one[at.mean] - two[at.mean]) * np.exp(-2.0 * log_sd2)
        ratio = 2.0 * (log_sd - log_sd2)
        return 0.5 * float(np.sum(np.exp(ratio) + moved - 1.0 - ratio))

    def _draws(self, x: Array) -> Iterator[tuple[float, Array]]:
        """Yield a weight and the outputs (n,) or (n, K) of each draw."""
        net = network(self.network)
        held = torch.from_numpy(np.require(x, np.float64, ["C", "W"]))
        seeds = np.random.default_rng((self.seed, TAG)).integers(2**31, size=self.samples).tolist()
        for theta, weight in zip(self.thetas, self.weights.tolist(), strict=True):
            net.load(theta)
            for seed in seeds:
                yield weight / self.samples, net.sampled(held, seed)

    def _expected(self, f: Array) -> Array:
        """Return the prediction of one draw."""
        match self.model:
            case "logistic":
                return expit(f)
            case "softmax":
                return softmax(f, axis=1)
            case "poisson":
                return self.scale * np.exp(np.minimum(f, FAR))
            case "spread":
                return self.centre + self.scale * f[:, 0]
            case _:
                return _hazard(np.log(self.times / self.scale), f).sum(axis=1)

    def _variance(self, f: Array, g: Array) -> Array:
        """Return the outcome's variance at one draw, with the prediction g."""
        if self.model == "spread":
            return self.scale**2 * np.exp(2.0 * _cut(f[:, 1]))
        return g if self.model == "poisson" else g * (1.0 - g)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        return {"thetas": self.thetas, "weights": self.weights, "times": self.times}

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        names = ("model", "network", "centre", "scale", "rounds", "samples", "seed", "level")
        lists = {"features": list(self.features), "levels": list(self.levels)}
        return lists | {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from saved arrays and values."""
        given: dict[str, Any] = dict(meta)
        for name in ("features", "levels"):
            given[name] = tuple(meta[name])
        given |= {name: arrays[name] for name in ("thetas", "weights", "times")}
        return cls(**given)


def _hazard(logs: Array, f: Array) -> Array:
    """Return the cumulative hazard (n, m) at logarithms of times (m,) of outputs (n, 2)."""
    return np.exp(np.minimum((logs - f[:, :1]) * np.exp(-_cut(f[:, 1:])), FAR))


def _cut(log_sd: Array) -> Array:
    """Return log standard deviations as the losses cut them."""
    return np.clip(log_sd, -LONG, LONG)


def _quantiles(values: Array, weights: Array, ends: Array) -> Array:
    """Return quantiles (n, 2) of draws (S, n) with weights (S,): of the draws' distribution with
    half of each draw's weight below it, linear between.
    """
    order = np.argsort(values, axis=0)
    sorted_ = np.take_along_axis(values, order, axis=0)
    w = weights[order]
    below = np.cumsum(w, axis=0) - w / 2.0
    columns = range(values.shape[1])
    return np.array([np.interp(ends, below[:, j], sorted_[:, j]) for j in columns]).reshape(-1, 2)


def _mixture_quantile(mean: Array, sd: Array, weights: Array, p: float) -> Array:
    """Return the quantile p (n,) of a mixture of normals, means and sd (S, n), by halving."""
    low, high = (mean - 40.0 * sd).min(axis=0), (mean + 40.0 * sd).max(axis=0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        above = weights @ ndtr((middle - mean) / sd) > p
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2.0
