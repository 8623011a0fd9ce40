"""Likelihoods of the columns of a mixed table, given the outputs y of a decoder.

After Nazábal et al., "Handling incomplete heterogeneous data using VAEs", Pattern Recognition 107,
2020 (HI-VAE). Column h of x has the head h (`data.prepare.Head`), with v = shift + scale · x its
value, and outputs y_h. The density is that of x:

    normal        N(x; y, σ²),  σ² = `FLOOR` + e^s                                          (1)
    lognormal     N(u; y, σ²) scale/(b v),  u = (ln v − a)/b                                (2)
    bernoulli     v y − ln(1 + e^y)                                                         (3)
    categorical   y_k − ln(1 + Σ_j e^{y_j}) of level k, with y = 0 of the reference level   (4)
    ordinal       P(level ≤ k) = σ(τ_k − y),  τ_{k+1} − τ_k = e^{d_k}                       (5)
    poisson       v η − e^η − ln v!,  η = a + b y                                           (6)
    negbinomial   ln Γ(v+r) − ln Γ(r) − ln v! + r ln r/(r+μ) + v ln μ/(r+μ),  μ = e^{a+by}  (7)

A number has a and b from its shift m and scale s, b² = ln(1 + s²/m²) and a = ln m − b²/2: with
standard scales, mean and standard deviation of ln v if v is log-normal. So y has about mean 0 and
variance 1 in (1), (2), (6) and (7). If the shift is not above 0, or the scale is 1, a = 0, b = 1.

s, d and ln r are parameters of this module, one for each column, and begin at 0. Exponents are cut
to ± `FAR`, ln r to ± `FAR_SIZE`, with zero slope beyond. A missing column contributes exactly 0.

Times t > 0 in a fixed unit, with δ = 1 for an event (ln f) and 0 for a censored one (ln S; errata
of D6.2, eqs. 6.12–6.14):

    Weibull       ln S = −e^z,  z = e^κ (ln t − m);   ln f = κ − ln t + z + ln S            (8)
    piecewise     ln S = −Σ_j e^{η_j} (time in part j);   ln f = η_{j(t)} + ln S            (9)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.arrays import Array
from fedcohort.data.prepare import Head

#: Smallest variance in eqs. (1) and (2), in squares of the unit of x or u.
FLOOR = 1e-4

#: Exponents are cut to ± `FAR`, ln r to ± `FAR_SIZE`: e^8 is nearly a Poisson distribution, and
#: ln Γ(v + r) − ln Γ(r) still has digits in float32.
FAR, FAR_SIZE = 20.0, 8.0

#: Smallest value of eq. (2), and smallest time, in their units.
LEAST = 1e-6

#: Kinds with one free parameter for each column, in the order of θ.
_SCALED = ("normal", "lognormal", "negbinomial")
_COUNTS = ("poisson", "negbinomial")

_TAG = 0x6C696B65


class _Kind(nn.Module):
    """The heads of one kind.

    Attributes
    ----------
    count : number of heads H. at, y_at : (H,) places in x and y. shift, scale, a, b : (H,), see the
        module's header. own : (H,) s or ln r, of kinds that have them.
    """

    at: Tensor
    y_at: Tensor
    shift: Tensor
    scale: Tensor
    a: Tensor
    b: Tensor

    def __init__(self, heads: Sequence[Head], starts: Sequence[int], kind: str):
        super().__init__()
        mine = [(h, s) for h, s in zip(heads, starts, strict=True) if h.kind == kind]
        self.count = len(mine)
        units = [_log_units(h) for h, _ in mine]
        for name, found in (
            ("at", torch.tensor([h.at[0] for h, _ in mine])),
            ("y_at", torch.tensor([s for _, s in mine])),
            ("shift", torch.tensor([h.shift for h, _ in mine], dtype=torch.float64)),
            ("scale", torch.tensor([h.scale for h, _ in mine], dtype=torch.float64)),
            ("a", torch.tensor([a for a, _ in units], dtype=torch.float64)),
            ("b", torch.tensor([b for _, b in units], dtype=torch.float64)),
        ):
            self.register_buffer(name, found, persistent=False)
        if kind in _SCALED:
            self.own = nn.Parameter(torch.zeros(self.count))

    def values(self, x: Tensor) -> Tensor:
        """Return v of each head from x (…, p)."""
        return self.shift + self.scale * x[..., self.at]

    def log_mean(self, y: Tensor) -> Tensor:
        """Return a + b y of each head from y (…, D), cut to ± `FAR`."""
        return (self.a + self.b * y[..., self.y_at]).clamp(-FAR, FAR)

    def variance(self) -> Tensor:
        """Return σ² of eqs. (1) and (2)."""
        return FLOOR + self.own.clamp(-FAR, FAR).exp()

    def log_size(self) -> Tensor:
        """Return ln r of eq. (7)."""
        return self.own.clamp(-FAR_SIZE, FAR_SIZE)


class _Levels(nn.Module):
    """The categorical heads.

    Attributes
    ----------
    count : number of heads H. at, y_at : (H, K − 1) places of levels in x and y; p, or D, stands
        for a level that a head does not have.
    """

    at: Tensor
    y_at: Tensor

    def __init__(self, heads: Sequence[Head], starts: Sequence[int], p: int, outputs: int):
        super().__init__()
        self.count = len(heads)
        self.most = max((len(h.at) for h in heads), default=0)
        at = torch.full((self.count, self.most), p)
        y_at = torch.full((self.count, self.most), outputs)
        for i, (h, start) in enumerate(zip(heads, starts, strict=True)):
            at[i, : len(h.at)] = torch.tensor(h.at)
            y_at[i, : len(h.at)] = torch.arange(start, start + len(h.at))
        self.register_buffer("at", at, persistent=False)
        self.register_buffer("y_at", y_at, persistent=False)

    def hot(self, x: Tensor) -> Tensor:
        """Return x (…, H, K − 1), 0 for levels that a head does not have."""
        return functional.pad(x, (0, 1))[..., self.at]

    def logits(self, y: Tensor) -> Tensor:
        """Return y (…, H, K) with that of the reference first, −∞ for levels that do not exist."""
        own = functional.pad(y, (0, 1), value=-torch.inf)[..., self.y_at]
        return functional.pad(own, (1, 0))


class Likelihoods(nn.Module):
    """Eqs. (1) to (7) of the columns of x (n, p).

    Parameters
    ----------
    heads : of all places of x but an offset, in order.

    Attributes
    ----------
    outputs : D, number of outputs y; K − 1 for a category of K levels, otherwise 1 for each head.
    inputs : p.
    """

    def __init__(self, heads: Sequence[Head]):
        super().__init__()
        self.heads = tuple(heads)
        widths = [len(h.at) if h.kind == "categorical" else 1 for h in heads]
        starts = np.r_[0, np.cumsum(widths)].astype(int).tolist()
        self._starts = starts[:-1]
        self.outputs = int(starts[-1])
        self.inputs = sum(len(h.at) for h in heads)
        one = [k for k in ("normal", "lognormal", "bernoulli", "poisson", "negbinomial")
               if any(h.kind == k for h in heads)]  # fmt: skip
        self._kinds = {k: _Kind(heads, self._starts, k) for k in one}
        self.kinds = nn.ModuleDict(self._kinds)
        several = [i for i, h in enumerate(heads) if h.kind == "categorical"]
        self._several = _Levels(
            [heads[i] for i in several], [self._starts[i] for i in several], self.inputs,
            self.outputs,
        )  # fmt: skip
        self._ordinal = [i for i, h in enumerate(heads) if h.kind == "ordinal"]
        self.steps = nn.ParameterList(
            [nn.Parameter(torch.zeros(len(heads[i].at))) for i in self._ordinal]
        )
        groups = [[i for i, h in enumerate(heads) if h.kind == k] for k in one]
        order = [i for group in (*groups, several, self._ordinal) for i in group]
        back = torch.tensor(order, dtype=torch.long).argsort()
        self.register_buffer("_back", back, persistent=False)
        first = torch.tensor([h.at[0] for h in heads], dtype=torch.long)
        self.register_buffer("_first", first, persistent=False)
        low, high = (torch.full((self.inputs,), end) for end in (-torch.inf, torch.inf))
        low, high = low.double(), high.double()
        for h in heads:
            if h.kind not in ("categorical", "ordinal"):
                low[h.at[0]] = (h.low - h.shift) / h.scale
                high[h.at[0]] = (h.high - h.shift) / h.scale
        self.register_buffer("_low", low, persistent=False)
        self.register_buffer("_high", high, persistent=False)

    def log_density(self, x: Tensor, known: Tensor, y: Tensor) -> Tensor:
        """Return the log density (…, n, H) of each head, exactly 0 where it is missing.

        Parameters
        ----------
        x : (n, p), with 0 for missing entries. known : (n, p). y : (…, n, D).
        """
        parts: list[Tensor] = []
        for kind, group in self._kinds.items():
            parts.append(_DENSITIES[kind](group, x, y))
        if self._several.count:
            parts.append(self._categorical(x, y))
        parts += [self._ordinal_density(k, x, y)[..., None] for k in range(len(self._ordinal))]
        found = torch.cat(parts, dim=-1)[..., self.get_buffer("_back")]
        has = known[..., self.get_buffer("_first")]
        return torch.where(has, found, torch.zeros((), dtype=found.dtype, device=found.device))

    def mean(self, y: Tensor) -> Tensor:
        """Return E[x | y] (…, n, p) of y (…, n, D), cut to the dictionary's ranges."""
        out = y.new_zeros((*y.shape[:-1], self.inputs))
        for kind, g in self._kinds.items():
            out[..., g.at] = _MEANS[kind](g, y)
        if self._several.count:
            shares = self._several.logits(y).softmax(dim=-1)[..., 1:]
            _put(out, self._several.at, shares)
        for k, i in enumerate(self._ordinal):
            out[..., list(self.heads[i].at)] = self._shares(k, y)[..., 1:]
        return self._cut(out)

    def sample(self, y: Tensor, seed: int) -> Tensor:
        """Return a draw (…, n, p) of x given y (…, n, D).

        Levels are one-hot, whole numbers whole, and values cut to the dictionary's ranges.
        """
        rng = np.random.default_rng((seed, _TAG))
        with torch.no_grad():
            out = y.new_zeros((*y.shape[:-1], self.inputs))
            for kind, g in self._kinds.items():
                out[..., g.at] = torch.as_tensor(_DRAWS[kind](g, y, rng)).to(y)
            if self._several.count:
                shares = _numpy(self._several.logits(y).softmax(dim=-1))
                hot = torch.from_numpy(_hot(shares, rng)[..., 1:]).to(y)
                _put(out, self._several.at, hot)
            for k, i in enumerate(self._ordinal):
                hot = _hot(_numpy(self._shares(k, y)), rng)[..., 1:]
                out[..., list(self.heads[i].at)] = torch.from_numpy(hot).to(y)
            return self._cut(self.rounded(out))

    def rounded(self, x: Tensor) -> Tensor:
        """Return x (…, n, p) as a table can hold it: whole numbers whole, 0 or 1, the likeliest
        level.
        """
        out = x.clone()
        for head in self.heads:
            at = list(head.at)
            if head.kind in ("categorical", "ordinal"):
                rest = 1.0 - out[..., at].sum(dim=-1, keepdim=True)
                best = torch.cat([rest, out[..., at]], dim=-1).argmax(dim=-1)
                out[..., at] = functional.one_hot(best, len(at) + 1)[..., 1:].to(out)
            elif head.whole or head.kind == "bernoulli":
                values = (head.shift + head.scale * out[..., at]).round()
                out[..., at] = (values - head.shift) / head.scale
        return out

    def _cut(self, x: Tensor) -> Tensor:
        return x.clamp(self.get_buffer("_low").to(x), self.get_buffer("_high").to(x))

    def _categorical(self, x: Tensor, y: Tensor) -> Tensor:
        """Return eq. (4): (…, n, H)."""
        own = self._several
        logits, hot = own.logits(y), own.hot(x)
        said = torch.where(hot != 0, logits[..., 1:] * hot, torch.zeros_like(hot)).sum(dim=-1)
        return said - logits.logsumexp(dim=-1)

    def _steps(self, k: int) -> Tensor:
        """Return τ (K − 1,) of ordinal head k; about 0 at the start."""
        own = self.steps[k]  # a shift of all τ, and d
        gaps = own[1:].clamp(-FAR, FAR).exp()
        return functional.pad(gaps.cumsum(dim=0), (1, 0)) - 0.5 * len(gaps) + own[0]

    def _ordinal_density(self, k: int, x: Tensor, y: Tensor) -> Tensor:
        """Return ln of eq. (5) of ordinal head k: (…, n)."""
        head, tau = self.heads[self._ordinal[k]], self._steps(k)
        z = tau - y[..., self._starts[self._ordinal[k]], None]
        # ln[σ(z_k) − σ(z_{k−1})] = ln σ(z_k) + ln σ(−z_{k−1}) + ln(1 − e^{z_{k−1} − z_k})
        inner = torch.log(-torch.expm1(-(tau[1:] - tau[:-1]).clamp(min=LEAST)))
        logs = functional.logsigmoid(z)
        rest = functional.logsigmoid(-z)
        own = torch.cat(
            [logs[..., :1], logs[..., 1:] + rest[..., :-1] + inner, rest[..., -1:]], dim=-1
        )
        hot = x[..., list(head.at)]
        level = torch.cat([1.0 - hot.sum(dim=-1, keepdim=True), hot], dim=-1)
        return (level * own).sum(dim=-1)

    def _shares(self, k: int, y: Tensor) -> Tensor:
        """Return the probability of each level of ordinal head k: (…, n, K)."""
        below = torch.sigmoid(self._steps(k) - y[..., self._starts[self._ordinal[k]], None])
        return functional.pad(below, (0, 1), value=1.0) - functional.pad(below, (1, 0))


class Inputs(nn.Module):
    """x (…, p) as an encoder sees it: u of eq. (2) for numbers that are log-normal, and for counts.

    Of a count u is that of v + ½. Without it, an encoder's linear layers would see outliers, and
    encoding what was decoded, as `impute` does, could diverge: a mean is an exponential of y.
    """

    at: Tensor
    units: Tensor

    def __init__(self, heads: Sequence[Head]):
        super().__init__()
        logs = [h for h in heads if h.kind in ("lognormal", *_COUNTS)]
        units = [(h.shift, h.scale, *_log_units(h), 0.5 * (h.kind in _COUNTS)) for h in logs]
        self.register_buffer("at", torch.tensor([h.at[0] for h in logs]).long(), persistent=False)
        found = torch.tensor(units, dtype=torch.float64).reshape(-1, 5).T
        self.register_buffer("units", found, persistent=False)

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        """Return x (…, p) so, and 0 where it is not known."""
        if not len(self.at):
            return x
        shift, scale, a, b, more = self.units
        logs = (shift + scale * x[..., self.at] + more).clamp(min=LEAST).log()
        seen = torch.where(known[..., self.at], (logs - a) / b, torch.zeros_like(logs))
        return x.index_copy(-1, self.at, seen)


def sizes_of(heads: Sequence[Head]) -> tuple[int, int]:
    """Return D, and the number of own parameters, of the likelihoods of these heads."""
    outputs = sum(len(h.at) if h.kind == "categorical" else 1 for h in heads)
    return outputs, sum(len(h.at) for h in heads if h.kind in (*_SCALED, "ordinal"))


def _log_units(head: Head) -> tuple[float, float]:
    """Return a and b of eqs. (2), (6) and (7)."""
    m, s = head.shift, head.scale
    if m <= 0 or s == 1.0:
        return 0.0, 1.0
    b2 = math.log1p((s / m) ** 2)
    return math.log(m) - b2 / 2.0, math.sqrt(b2)


def _normal(u: Tensor, y: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * ((2.0 * math.pi * variance).log() + (u - y).square() / variance)


def _normal_density(g: _Kind, x: Tensor, y: Tensor) -> Tensor:
    return _normal(x[..., g.at], y[..., g.y_at], g.variance())


def _lognormal_density(g: _Kind, x: Tensor, y: Tensor) -> Tensor:
    log = g.values(x).clamp(min=LEAST).log()
    change = (g.scale / g.b).log() - log
    return _normal((log - g.a) / g.b, y[..., g.y_at], g.variance()) + change


def _bernoulli_density(g: _Kind, x: Tensor, y: Tensor) -> Tensor:
    logit = y[..., g.y_at]
    return g.values(x) * logit - functional.softplus(logit)


def _poisson_density(g: _Kind, x: Tensor, y: Tensor) -> Tensor:
    v, log = g.values(x).clamp(min=0.0), g.log_mean(y)
    return v * log - log.exp() - torch.lgamma(v + 1.0)


def _negbinomial_density(g: _Kind, x: Tensor, y: Tensor) -> Tensor:
    v, log, size = g.values(x).clamp(min=0.0), g.log_mean(y), g.log_size()
    r = size.exp()
    counts = torch.lgamma(v + r) - torch.lgamma(r) - torch.lgamma(v + 1.0)
    return counts - r * functional.softplus(log - size) - v * functional.softplus(size - log)


def _lognormal_mean(g: _Kind, y: Tensor) -> Tensor:
    log = (g.a + g.b * y[..., g.y_at] + 0.5 * g.b**2 * g.variance()).clamp(-FAR, FAR)
    return (log.exp() - g.shift) / g.scale


def _bernoulli_mean(g: _Kind, y: Tensor) -> Tensor:
    return (torch.sigmoid(y[..., g.y_at]) - g.shift) / g.scale


def _count_mean(g: _Kind, y: Tensor) -> Tensor:
    return (g.log_mean(y).exp() - g.shift) / g.scale


def _normal_draw(g: _Kind, y: Tensor, rng: np.random.Generator) -> Array:
    mean = _numpy(y[..., g.y_at])
    return mean + rng.standard_normal(mean.shape) * np.sqrt(_numpy(g.variance()))


def _lognormal_draw(g: _Kind, y: Tensor, rng: np.random.Generator) -> Array:
    a, b, shift, scale = map(_numpy, (g.a, g.b, g.shift, g.scale))
    return (np.exp(np.clip(a + b * _normal_draw(g, y, rng), -FAR, FAR)) - shift) / scale


def _bernoulli_draw(g: _Kind, y: Tensor, rng: np.random.Generator) -> Array:
    share = _numpy(torch.sigmoid(y[..., g.y_at]))
    values = (rng.random(share.shape) < share).astype(float)
    return (values - _numpy(g.shift)) / _numpy(g.scale)


def _poisson_draw(g: _Kind, y: Tensor, rng: np.random.Generator) -> Array:
    rate = np.exp(_numpy(g.log_mean(y)))
    return (rng.poisson(rate) - _numpy(g.shift)) / _numpy(g.scale)


def _negbinomial_draw(g: _Kind, y: Tensor, rng: np.random.Generator) -> Array:
    mean, r = np.exp(_numpy(g.log_mean(y))), np.exp(_numpy(g.log_size()))
    rate = rng.gamma(np.broadcast_to(r, mean.shape)) * mean / r
    return (rng.poisson(rate) - _numpy(g.shift)) / _numpy(g.scale)


_DENSITIES: dict[str, Callable[[_Kind, Tensor, Tensor], Tensor]] = {
    "normal": _normal_density, "lognormal": _lognormal_density, "bernoulli": _bernoulli_density,
    "poisson": _poisson_density, "negbinomial": _negbinomial_density,
}  # fmt: skip
_MEANS: dict[str, Callable[[_Kind, Tensor], Tensor]] = {
    "normal": lambda g, y: y[..., g.y_at], "lognormal": _lognormal_mean,
    "bernoulli": _bernoulli_mean, "poisson": _count_mean, "negbinomial": _count_mean,
}  # fmt: skip
_DRAWS: dict[str, Callable[[_Kind, Tensor, np.random.Generator], Array]] = {
    "normal": _normal_draw, "lognormal": _lognormal_draw, "bernoulli": _bernoulli_draw,
    "poisson": _poisson_draw, "negbinomial": _negbinomial_draw,
}  # fmt: skip


def _put(out: Tensor, at: Tensor, values: Tensor) -> None:
    """Write values (…, H, K − 1) at the places (H, K − 1) of out (…, p); p stands for none."""
    real = at < out.shape[-1]
    out[..., at[real]] = values[..., real]


def _hot(shares: Array, rng: np.random.Generator) -> Array:
    """Return one-hot draws (…, K) of levels with probabilities `shares` (…, K)."""
    below = np.cumsum(shares, axis=-1)
    u = rng.random((*shares.shape[:-1], 1)) * below[..., -1:]
    level = (u >= below[..., :-1]).sum(axis=-1)
    return (level[..., None] == np.arange(shares.shape[-1])).astype(float)


def _numpy(t: Tensor) -> Array:
    return t.detach().cpu().numpy().astype(np.float64)


def weibull_log_density(
    time: Tensor, event: Tensor, log_scale: Tensor, log_shape: Tensor
) -> Tensor:
    """Return ln f of events and ln S of censored times, eq. (8), of e^m = scale and e^κ = shape.

    Parameters
    ----------
    time, event : (n,), in one unit. log_scale, log_shape : (…, n).
    """
    return weibull_of_logs(time.clamp(min=LEAST).log(), event, log_scale, log_shape)


def weibull_of_logs(log: Tensor, event: Tensor, log_scale: Tensor, log_shape: Tensor) -> Tensor:
    """Return the same of the logarithms of times (…, n)."""
    shape = log_shape.clamp(-FAR / 4, FAR / 4)
    z = ((log - log_scale) * shape.exp()).clamp(-FAR, FAR)
    return torch.addcmul(-z.exp(), event, shape - log + z)


def weibull_survival(times: Tensor, log_scale: Tensor, log_shape: Tensor) -> Tensor:
    """Return S (…, n, m) at times (m,) of parameters (…, n), eq. (8)."""
    shape = log_shape.clamp(-FAR / 4, FAR / 4)[..., None].exp()
    z = (times.clamp(min=LEAST).log() - log_scale[..., None]) * shape
    found = (-z.clamp(-FAR, FAR).exp()).exp()
    return torch.where(times > 0, found, torch.ones_like(found))


def weibull_time(hazard: Tensor, log_scale: Tensor, log_shape: Tensor) -> Tensor:
    """Return the times (n,) at which the cumulative hazard −ln S, eq. (8), is `hazard` (n,)."""
    shape = log_shape.clamp(-FAR / 4, FAR / 4)
    return (log_scale + hazard.log() * (-shape).exp()).clamp(-FAR, FAR).exp()


def piecewise_time(hazard: Tensor, logs: Tensor, edges: Tensor) -> Tensor:
    """Return the times (n,) at which −ln S, eq. (9), is `hazard` (n,), of η (n, J)."""
    rates = logs.clamp(-FAR, FAR).exp()
    starts = functional.pad(edges, (1, 0))
    steps = rates[:, :-1] * (edges - starts[:-1])
    before = functional.pad(steps.cumsum(dim=1), (1, 0))
    part = (hazard[:, None] > before).sum(dim=1).clamp(min=1) - 1
    at = part[:, None]
    return starts[part] + ((hazard[:, None] - before.gather(1, at)) / rates.gather(1, at))[:, 0]


def spent(time: Tensor, edges: Tensor) -> Tensor:
    """Return the time (n, J) spent in parts [0, e_1), [e_1, e_2), …, [e_{J−1}, ∞), for `edges`
    (J − 1,) that ascend.
    """
    starts = functional.pad(edges, (1, 0))
    ends = functional.pad(edges, (0, 1), value=torch.inf)
    return (torch.minimum(time[:, None], ends) - starts).clamp(min=0.0)


def piecewise_log_density(time: Tensor, event: Tensor, logs: Tensor, edges: Tensor) -> Tensor:
    """Return ln f of events and ln S of censored times, eq. (9).

    Parameters
    ----------
    time, event : (n,), in one unit. logs : η (…, n, J). edges : (J − 1,), as in `spent`; an event
        at an edge is in the part before it.
    """
    here = event[..., None] * part_of(time, edges)
    return piecewise_of_parts(spent(time, edges), here, logs)


def piecewise_of_parts(spent: Tensor, died: Tensor, logs: Tensor) -> Tensor:
    """Return the same of the time (…, n, J) spent in each part, with 1 in the part of an event."""
    logs = logs.clamp(-FAR, FAR)
    return (died * logs - logs.exp() * spent).sum(dim=-1)


def part_of(time: Tensor, edges: Tensor) -> Tensor:
    """Return 1 in the part of each time (n,), else 0: (n, J)."""
    hot = functional.one_hot(torch.bucketize(time.contiguous(), edges), len(edges) + 1)
    return hot.to(time)


def piecewise_survival(times: Tensor, logs: Tensor, edges: Tensor) -> Tensor:
    """Return S (…, n, m) at times (m,) of log hazards (…, n, J), eq. (9)."""
    return (-(logs.clamp(-FAR, FAR).exp() @ spent(times, edges).T)).exp()
