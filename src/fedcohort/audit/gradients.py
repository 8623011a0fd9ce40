"""Records from a sum of gradients: by the first layer's algebra, and by fitting dummy records.

For n records x_j, a sum of a perceptron's gradients has unknown weights s_jk, the slopes of any
loss at the K outputs f_k, so labels need not be known:

    G = Σ_j Σ_k s_jk ∇_θ f_k(x_j)                                                          (1)

Algebra (Phong et al., IEEE TIFS 13(5), 2018; Boenisch et al., EuroS&P 2023). Unit i of the first
layer has ∂/∂W_i = Σ_j a_ij x_j and ∂/∂b_i = Σ_j a_ij. If only one record moves the unit, as behind
a rectifier,

    (∂/∂W_i)/(∂/∂b_i) = x_j                                                                (2)

exactly; if several do, it is their weighted mean. Each unit's quotient is a guess.

Fit (Zhu, Liu and Han, NeurIPS 2019, with second-order steps and free slopes). Find x (n, p) and
s (n, K) that minimise ‖Σ_jk s_jk ∇f_k(x_j) − G‖², by trust-region steps with the exact Jacobian,
inside the public range of the features, repeatedly from the best so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from fedcohort.arrays import Array
from fedcohort.models.network import FlatNet

#: Evaluations in one descent, and the relative misfit that ends a search.
STEPS, ENOUGH = 100, 1e-9


@dataclass(frozen=True)
class Attacked:
    """A network as an attacker knows it: its module and θ (P,).

    Attributes
    ----------
    outputs : K, of the network.
    low, high : (p,), public range of each feature; ±inf where there is none.
    """

    net: FlatNet
    theta: Array
    low: Array
    high: Array
    outputs: int = 1

    @property
    def inputs(self) -> int:
        """Number of features p."""
        return len(self.low)

    def inside(self, x: Array) -> Array:
        """Return x (n, p), cut to the public range."""
        return np.clip(x, self.low, self.high)


def quotients(gradient: Array, attacked: Attacked) -> Array:
    """Return each first-layer unit's guess, eq. (2): (G, p); those outside the range left out."""
    w = attacked.net.first
    units = (w.stop - w.start) // attacked.inputs
    weights = gradient[w].reshape(units, attacked.inputs)
    bias = gradient[w.stop : w.stop + units]
    seen = np.abs(bias) > 1e-12 * max(float(np.abs(bias).max(initial=0.0)), 1e-300)
    guesses = weights[seen] / bias[seen, None]
    slack = 0.02 * np.where(np.isfinite(attacked.high - attacked.low), 1.0, 0.0)
    span = np.where(slack > 0, attacked.high - attacked.low, 0.0)
    low, high = attacked.low - slack * span, attacked.high + slack * span
    return guesses[((guesses >= low) & (guesses <= high)).all(1)]


def per_record(attacked: Attacked, x: Array) -> Array:
    """Return ∇_θ f_k(x_j) of each row of x (n, p) and output: (n K, P), the outputs of a row
    together.
    """
    rows = _held(x).repeat_interleave(attacked.outputs, dim=0)
    units = torch.eye(attacked.outputs, dtype=torch.float64).repeat(len(x), 1)
    slopes = vmap(grad(_output(attacked)), (None, 0, 0))(_parameters(attacked), rows, units)
    return _flat(slopes).numpy()


@dataclass(frozen=True)
class Fit:
    """Dummy records x (n, p) with their slopes s (n K,), and ‖residual‖/‖G‖."""

    x: Array
    slopes: Array
    misfit: float


def fitted(
    gradient: Array,
    attacked: Attacked,
    n: int,
    guesses: Array,
    rng: np.random.Generator,
    attempts: int = 60,
) -> Fit:
    """Fit n dummy records to a gradient (P,); return the best fit.

    The first attempts start from `guesses` (G, p) or at random; the others from the best fit so
    far, with a record or two thrown elsewhere, or all shaken.

    Parameters
    ----------
    attempts : descents at most; a misfit below `ENOUGH` ends the search.
    """
    best = Fit(np.zeros((n, attacked.inputs)), np.zeros(n), np.inf)
    for k in range(attempts):
        fresh = k < max(2, attempts // 6)
        start = _start(attacked, n, guesses, rng) if fresh else _shaken(attacked, best.x, rng)
        best = min(best, _descend(gradient, attacked, start), key=lambda f: f.misfit)
        if best.misfit < ENOUGH:
            break
    return best


def _start(attacked: Attacked, n: int, guesses: Array, rng: np.random.Generator) -> Array:
    """Return random records (n, p) of the public range; some of the guesses among half of them."""
    x = _anywhere(attacked, n, rng)
    if len(guesses) and rng.random() < 0.5:
        taken = rng.permutation(len(guesses))[:n]
        x[: len(taken)] = attacked.inside(guesses[taken])
    return x


def _shaken(attacked: Attacked, x: Array, rng: np.random.Generator) -> Array:
    """Return records (n, p) with one or two replaced, and all moved in half of the cases."""
    moved = rng.permutation(len(x))[: int(rng.integers(1, 3))]
    x = x.copy()
    x[moved] = _anywhere(attacked, len(moved), rng)
    if rng.random() < 0.5:
        x = x + 0.1 * rng.normal(size=x.shape)
    return attacked.inside(x)


def _anywhere(attacked: Attacked, n: int, rng: np.random.Generator) -> Array:
    low = np.where(np.isfinite(attacked.low), attacked.low, -2.0)
    high = np.where(np.isfinite(attacked.high), attacked.high, 2.0)
    return rng.uniform(low, high, (n, attacked.inputs))


def _descend(gradient: Array, attacked: Attacked, start: Array) -> Fit:
    """Minimise over x from one start, with the slopes projected out (Kaufman, BIT 15, 1975)."""
    n, p = start.shape
    size = float(np.linalg.norm(gradient)) or 1.0
    held: dict[bytes, tuple[Array, Array, Array]] = {}

    def at(flat: Array) -> tuple[Array, Array, Array]:
        """Return the slopes that fit best at x, a basis of the rows ∇f, and the residual."""
        if (known := held.get(flat.tobytes())) is None:
            rows = per_record(attacked, flat.reshape(n, p))
            slopes = np.linalg.lstsq(rows.T, gradient, rcond=1e-10)[0]
            basis, r = np.linalg.qr(rows.T)
            basis = basis[:, np.abs(np.diag(r)) > 1e-10 * max(np.abs(r).max(), 1e-300)]
            residual = (gradient - basis @ (basis.T @ gradient)) / size
            held.clear()
            known = held[flat.tobytes()] = (slopes, basis, residual)
        return known

    def slope(flat: Array) -> Array:
        slopes, basis, _ = at(flat)
        bends = _bends(attacked, flat.reshape(n, p), slopes.reshape(n, -1))
        jacobian = bends.transpose(1, 0, 2).reshape(-1, n * p)
        return (basis @ (basis.T @ jacobian) - jacobian) / size

    low, high = (np.tile(limit, n) for limit in (attacked.low - 1e-6, attacked.high + 1e-6))
    found = least_squares(
        lambda flat: at(flat)[2], start.ravel(), slope, bounds=(low, high), max_nfev=STEPS,
        xtol=1e-12, ftol=1e-12, gtol=1e-14, x_scale="jac",
    )  # fmt: skip
    slopes, _, residual = at(found.x)
    return Fit(found.x.reshape(n, p), slopes, float(np.linalg.norm(residual)))


def _bends(attacked: Attacked, x: Array, slopes: Array) -> Array:
    """Return the derivative of Σ_k s_jk ∇_θ f_k(x_j) in x_j, with slopes s (n, K): (n, P, p)."""
    names = _parameters(attacked)
    slope = grad(_output(attacked), argnums=1)

    def bend(one: Tensor, weights: Tensor) -> Tensor:
        def at(theta: dict[str, Tensor]) -> Tensor:
            return slope(theta, one, weights)

        back = jacrev(at)(names)
        return torch.cat([back[k].reshape(len(one), -1) for k in names], dim=1).T

    return vmap(bend)(_held(x), _held(slopes)).detach().numpy()


def _output(attacked: Attacked) -> Callable[[dict[str, Tensor], Tensor, Tensor], Tensor]:
    """Return the function Σ_k w_k f_k of parameters, a row (p,) and weights w (K,)."""
    module: nn.Module = attacked.net.module

    def f(theta: dict[str, Tensor], one: Tensor, weights: Tensor) -> Tensor:
        return functional_call(module, theta, (one[None],))[0] @ weights

    return f


def _parameters(attacked: Attacked) -> dict[str, Tensor]:
    attacked.net.load(attacked.theta)
    return {k: p.detach().clone() for k, p in attacked.net.module.named_parameters()}


def _flat(parts: dict[str, Tensor]) -> Tensor:
    """Return named parts (n, …) as one matrix (n, P), in the order of θ."""
    return torch.cat([part.reshape(len(part), -1) for part in parts.values()], dim=1).detach()


def _held(x: Array) -> Tensor:
    return torch.from_numpy(np.require(x, np.float64, ["C", "W"]))
