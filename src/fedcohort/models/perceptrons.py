"""Perceptrons on the processor, in NumPy, with their own gradients: S of one shape at once.

A step on a hospital's table is some 30 operations on a few thousand numbers. Torch spends most of
it on sending each operation off and on the graph of the way back; here there is no graph, and each
operation is one for all S. With h_0 = xᵀ (p, n), so that rows of the table are columns,

    h_l = m_l g(W_l h_{l−1} + b_l),   f = W_L h_{L−1} + b_L                                (1)
    δ_L = s,   δ_l = (W_{l+1}ᵀ δ_{l+1}) m_l g',   ∂W_l = δ_l h_{l−1}ᵀ,   ∂b_l = Σ_j δ_lj    (2)

with the curve g, its slope g' and the masks m of dropout (Rumelhart, Hinton and Williams, Nature
323, 1986). Networks of other kinds, and on another device, keep autograd. A perceptron's numbers
have the same bits with any S: its products are products of its own matrices. Revealed: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from fedcohort.arrays import Array

#: Constants of Klambauer et al., "Self-normalizing neural networks", NeurIPS 2017.
_SCALE, _ALPHA = 1.0507009873554805, 1.6732632423543772


def _tanh(a: Array) -> Array:
    return np.tanh(a, out=a)


def _tanh_slope(h: Array, _: Array) -> Array:
    slope = h * h
    return np.subtract(1.0, slope, out=slope)


def _relu(a: Array) -> Array:
    return np.maximum(a, 0.0, out=a)


def _relu_slope(h: Array, _: Array) -> Array:
    return (h > 0.0).astype(h.dtype)


def _selu(a: Array) -> Array:
    low = np.minimum(a, 0.0)
    np.expm1(low, out=low)
    low *= _ALPHA
    np.maximum(a, 0.0, out=a)
    a += low
    a *= _SCALE
    return a


def _selu_slope(h: Array, _: Array) -> Array:
    slope = np.minimum(h, 0.0)
    slope += _SCALE * _ALPHA
    slope[h > 0.0] = _SCALE
    return slope


def _silu(a: Array) -> Array:
    s = expit(a)
    a *= s
    return s


def _silu_slope(h: Array, s: Array) -> Array:
    slope = h * s
    np.subtract(h, slope, out=slope)
    slope += s
    return slope


#: By name, the curve g in place, which returns what its slope needs besides g; and the slope g'.
CURVES: Mapping[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "tanh": (_tanh, _tanh_slope),
    "relu": (_relu, _relu_slope),
    "selu": (_selu, _selu_slope),
    "silu": (_silu, _silu_slope),
}


class Passed(NamedTuple):
    """What a pass forward leaves for the way back: ``into`` each layer h_{l−1} (S, units, n), and
    by hidden layer g before its mask, what its slope needs besides, and the mask or None; and the
    outputs f (S, K, n).
    """

    into: list[Array]
    curves: list[tuple[Array, Array, Array | None]]
    out: Array


class Perceptron:
    """Eqs. (1) and (2) on flat vectors, which it reads and writes in place.

    Parameters
    ----------
    theta, grad : (S, P), by layer the weights (units, inputs), then the biases.
    sizes : p, the hidden widths, K.
    activation : one of `CURVES`.
    intercept : the output has a bias.
    """

    def __init__(
        self, theta: Array, grad: Array, sizes: Sequence[int], activation: str, intercept: bool
    ):
        self._curve, self._slope = CURVES[activation]
        self._layers = _layers(theta, sizes, intercept)
        self._slopes = _layers(grad, sizes, intercept)

    def forward(self, x: Array, masks: Sequence[Array] = ()) -> Passed:
        """Return the pass for xᵀ (S, p, n), with masks (units, n) of the hidden layers, or none."""
        h = x
        into, curves = [h], []
        for i, (w, b) in enumerate(self._layers):
            h = w @ h
            if b is not None:
                h += b
            if i == len(self._layers) - 1:
                break
            beside = self._curve(h)
            mask = masks[i] if masks else None
            curves.append((h, beside, mask))
            if mask is not None:
                h = h * mask
            into.append(h)
        return Passed(into, curves, h)

    def backward(self, passed: Passed, s: Array) -> None:
        """Write Σ_j s_j ∇f(x_j) into `grad`, for slopes s (S, K, n)."""
        for i, delta in self._deltas(passed, s):
            w, b = self._slopes[i]
            np.matmul(delta, passed.into[i].swapaxes(1, 2), out=w)
            if b is not None:
                np.add.reduce(delta, 2, out=b, keepdims=True)

    def by_row(self, passed: Passed, s: Array) -> Array:
        """Return s_j ∇f(x_j) (n, P) of each row of the first, for slopes s (1, K, n)."""
        parts: list[Array] = []
        for i, delta in self._deltas(passed, s):
            if self._slopes[i][1] is not None:
                parts.append(delta[0].T)
            weights = np.einsum("an,bn->nab", delta[0], passed.into[i][0])
            parts.append(weights.reshape(len(weights), -1))
        return np.concatenate(parts[::-1], axis=1)

    def _deltas(self, passed: Passed, s: Array) -> Iterator[tuple[int, Array]]:
        """Yield δ (S, units, n) of each layer, the last first."""
        delta = s
        for i in range(len(self._layers) - 1, -1, -1):
            yield i, delta
            if i:
                delta = self._layers[i][0].swapaxes(1, 2) @ delta
                h, beside, mask = passed.curves[i - 1]
                if mask is not None:
                    delta *= mask
                delta *= self._slope(h, beside)


def _layers(
    vectors: Array, sizes: Sequence[int], intercept: bool
) -> list[tuple[Array, Array | None]]:
    """Return views (S, units, inputs) of weights and (S, units, 1) of biases in vectors (S, P)."""
    found: list[tuple[Array, Array | None]] = []
    at = 0
    for i, (inputs, units) in enumerate(pairwise(sizes)):
        w = vectors[:, at : at + inputs * units].reshape(len(vectors), units, inputs)
        at += inputs * units
        b = None
        if i < len(sizes) - 2 or intercept:
            b = vectors[:, at : at + units, None]
            at += units
        found.append((w, b))
    return found
