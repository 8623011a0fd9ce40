"""A network's posterior: predictions as means over its samples, and what makes them uncertain.

How unlike the training rows a row is: the share of them of which the model is surer. With draws f_s
of the network's outputs, and g the probabilities of classes or the outputs of other outcomes,

    v(x) = Σ_k Var_s g_k(f_s)                                                              (1)

is large where the posterior's networks disagree, which is where few rows were. The share is read
off counts of the training rows in bins of log v, over all sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit, gammaln, logsumexp, ndtr, softmax, xlogy

from fedcohort.arrays import Array
from fedcohort.models.bayes import places
from fedcohort.models.losses import FAR, LONG, SHORTEST
from fedcohort.models.network import network
from fedcohort.numerics.survival import Baseline
from fedcohort.privacy.disclosure.steps import merged
from fedcohort.protocol import Fitted, NotSupported
from fedcohort.training.settings import kept_at_sites

#: Halvings of an interval that holds a quantile.
HALVINGS = 60
#: Least survival of which a logarithm is taken.
LEAST = 1e-300
#: Domain of the seed of samples.
TAG = 0x62617965
#: Edges of the bins of v, eq. (1): tenths of powers of 10.
EDGES = 10.0 ** np.linspace(-10.0, 4.0, 141)


@dataclass(frozen=True, kw_only=True, eq=False)
class BayesNetModel(Fitted):
    """E_q g(f_w(x)), with the network's outputs f_w at weights w of the posterior q.

        logistic   g = 1/(1 + e^−f), the probability of class 1
        softmax    g_k = e^f_k / Σ_c e^f_c, of class k
        spread     y ~ N(centre + scale f₁, scale² e^{2 f₂})
        poisson    g = scale e^f
        weibull    log t = log scale + f₁ + e^{f₂} ε, with the extreme value ε of least values
        cox        g = f − c_w, with c_w = f_w(x₀) and a constant, so that the mean of E_q g over
                   all training rows is 0; P(T > t) = exp(−H₀(t) e^{E_q g})

    E_q is the mean over `samples` draws by `seed`, the same for all rows and in each call.

    Attributes
    ----------
    levels : classes in the order of their numbers (K,); () without.
    thetas : (M, P), parameters of the posterior; M is the number of sites for an ensemble, else 1.
    weights : (M,), with sum 1.
    centre, scale : in the outcome's unit.
    times : of survival, ends of the intervals (T,) up to the last time at which it is estimated.
    centres, cumulative : of cox, c_w of each draw (M samples,), and H₀ at `times` (T,); else (0,).
    rounds : number of rounds.
    level : probability of the credible intervals.
    spreads, nearer : values of v (m,), eq. (1), and the share of the training rows below each;
        (0,) if they are not known.
    every : name of the method if each site keeps a model of its own and this one, without last
        layer, predicts nothing; otherwise "".
    caution : warning about how the fit ended; "" for none, and in a model read from a file.
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
    spreads: Array = field(default_factory=lambda: np.zeros(0))
    nearer: Array = field(default_factory=lambda: np.zeros(0))
    centres: Array = field(default_factory=lambda: np.zeros(0))
    cumulative: Array = field(default_factory=lambda: np.zeros(0))
    every: str = ""
    caution: str = ""

    def cautions(self) -> tuple[str, ...]:
        """Return a warning if the rounds were too few."""
        return (self.caution,) if self.caution else ()

    def predict(self, x: Array) -> Array:
        """Return the prediction for each row of x (n, p).

        The probability of class 1 (n,), of each of K > 2 classes (n, K), the value or count (n,);
        of times by weibull the cumulative hazard summed over `times`, as of a forest; by cox the
        log risk relative to the mean of the training rows.
        """
        if self.model == "weibull":
            found = self.predict_survival(x, self.times)
            return -np.log(np.maximum(found, LEAST)).sum(axis=1)
        return np.add.reduce([w * self._expected(f) for w, f in self._draws(x)])

    def log_hazard(self, x: Array) -> Array:
        """Return the log risk of cox, and the logarithm of that of weibull, (n,) of rows x (n, p).

        With H(t | x) = H₀(t) e^f both are f and a constant.
        """
        risk = self.predict(x)
        return np.log(np.maximum(risk, LEAST)) if self.model == "weibull" else risk

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) for each row of x (n, p) and each of `times` (m,): (n, m)."""
        if self.model == "cox":
            return Baseline(self.times, self.cumulative).survival(self.predict(x), times)
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
        if self.model in ("weibull", "cox"):
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

    def at_draws(self, x: Array) -> Array:
        """Return each draw's outputs (M samples, n), or (M samples, n, K), of rows x (n, p)."""
        return np.array([f for _, f in self._draws(x)])

    def unlike_training(self, x: Array) -> Array:
        """Return the share of the training rows of which the model is surer, for each row of x.

        By eq. (1), (n,) from rows x (n, p).
        """
        if not len(self.nearer):
            raise NotSupported("unlike_training")
        v = np.maximum(spread(self._draws(x), self.model), EDGES[0])
        return np.interp(np.log(v), np.log(self.spreads), self.nearer)

    def log_density(self, x: Array, y: Array, event: Array) -> Array:
        """Return ln E_q p(y | x, w) (n,) of a value, a count or a time (`Fitted.log_density`).

        A time beyond the last of `times` is one without an event there; a time shorter than the
        loss takes is that of the loss.
        """
        if self.model not in ("spread", "poisson", "weibull"):
            raise NotSupported("log_density of classes: their log loss says the same")
        y, event = np.asarray(y, float), np.asarray(event, bool)
        if self.model == "weibull":
            event = event & (y <= self.times[-1])
            y = np.clip(y, SHORTEST * self.scale, self.times[-1])
        draws = list(self._draws(x))
        found = np.array([self._log_density(f, y, event) for _, f in draws])
        return logsumexp(found, axis=0, b=np.array([w for w, _ in draws])[:, None])

    def _log_density(self, f: Array, y: Array, event: Array) -> Array:
        """Return ln p(y | x, w) (n,) of one draw's outputs f."""
        if self.model == "poisson":
            mean = self._expected(f)
            return xlogy(y, mean) - mean - gammaln(y + 1.0)
        log_sd = _cut(f[:, 1])
        if self.model == "spread":
            z = ((y - self.centre) / self.scale - f[:, 0]) * np.exp(-log_sd)
            return -0.5 * z**2 - log_sd - np.log(self.scale) - 0.5 * np.log(2.0 * np.pi)
        logs = np.log(y / self.scale)
        z = np.minimum((logs - f[:, 0]) * np.exp(-log_sd), FAR)
        return event * (z - log_sd - np.log(y)) - np.exp(z)

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
        """Yield a weight and the outputs (n,) or (n, K) of each draw.

        Raises
        ------
        NotSupported : each site keeps a model of its own.
        """
        if self.every:
            raise NotSupported(kept_at_sites(self.every))
        return draws_of(
            self.network, self.thetas, self.weights, self.centres, self.samples, self.seed, x
        )

    def _expected(self, f: Array) -> Array:
        """Return the prediction of one draw."""
        match self.model:
            case "cox":
                return f
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
        names = ("thetas", "weights", "times", "spreads", "nearer")
        names += ("centres", "cumulative") if self.model == "cox" else ()
        return {name: getattr(self, name) for name in names}

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        names = ("model", "network", "centre", "scale", "rounds", "samples", "seed", "level")
        lists = {"features": list(self.features), "levels": list(self.levels)}
        more = {"every": self.every} if self.every else {}
        return lists | {name: getattr(self, name) for name in names} | more

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from saved arrays and values."""
        given: dict[str, Any] = dict(meta)
        for name in ("features", "levels"):
            given[name] = tuple(meta[name])
        names = ("thetas", "weights", "times", "spreads", "nearer", "centres", "cumulative")
        given |= {name: arrays[name] for name in names if name in arrays}
        return cls(**given)


def drawn(spec: str, thetas: Array, samples: int, seed: int) -> Iterator[Array]:
    """Yield θ (P,) with drawn weights in place of means, `samples` for each of thetas (M, P)."""
    at = places(network(spec).module)
    for theta in thetas:
        rng, one = np.random.default_rng((seed, TAG)), theta.copy()
        for _ in range(samples):
            noise = np.exp(theta[at.log_sd]) * rng.standard_normal(len(at.mean))
            one[at.mean] = theta[at.mean] + noise
            yield one


def draws_of(
    spec: str, thetas: Array, weights: Array, centres: Array, samples: int, seed: int, x: Array
) -> Iterator[tuple[float, Array]]:
    """Yield a weight and the outputs (n,) or (n, K) of each draw, for x (n, p).

    The weights are drawn, not their sums as in training: a row's outputs are then the same in any
    table.

    Parameters
    ----------
    spec, thetas, weights, centres : of `BayesNetModel`: network and its attributes.
    """
    net, shares = network(spec), np.repeat(weights / samples, samples).tolist()
    held = torch.from_numpy(np.require(x, np.float64, ["C", "W"]))
    taken = centres.tolist() or [0.0] * len(shares)
    for theta, share, centre in zip(drawn(spec, thetas, samples, seed), shares, taken, strict=True):
        net.load(theta)
        yield share, net.outputs(held) - centre


def spread(draws: Iterable[tuple[float, Array]], model: str) -> Array:
    """Return v, eq. (1), of weighted draws of outputs: (n,)."""
    first: Any = 0.0
    second: Any = 0.0
    for w, f in draws:
        g = expit(f) if model == "logistic" else softmax(f, axis=1) if model == "softmax" else f
        first, second = first + w * g, second + w * g * g
    each = np.maximum(second - np.square(first), 0.0)
    return each if each.ndim == 1 else each.sum(axis=1)


def shares_of(counts: Array, least: int) -> tuple[Array, Array]:
    """Return values of v (m,) and the share of the rows below each, from counts by bin.

    Between two values there are `least` rows or more; without so many rows there are none. The
    first value is that of `EDGES`, and the last a power of 10 above the one before it, whatever
    the rows.

    Parameters
    ----------
    counts : (B + 1,), rows between `EDGES` (B,).
    """
    ends = merged(counts, max(least, 1))[:-1]
    if counts.sum() < 2 * max(least, 1):
        return np.zeros(0), np.zeros(0)
    inside = ends[ends < len(EDGES) - 1]
    inside = np.r_[0, inside[inside > 0]]
    below = np.cumsum(counts)[inside] / counts.sum()
    below[0] = 0.0
    return np.r_[EDGES[inside], 10.0 * EDGES[inside[-1]]], np.r_[below, 1.0]


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
