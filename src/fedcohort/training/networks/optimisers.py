"""Optimisers of one flat vector θ (P,), or of several at once (S, P), in place.

Their arithmetic is that of `torch.optim`, to the last bits, with at most two vectors of state. On
the processor, those of fewer than `LARGE` parameters compute in NumPy, whose operations on a few
hundred numbers take a third of torch's time, and whose bits do not depend on a number's place. Of
more parameters, Adam is torch's fused step, which reads and writes each number once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedcohort.arrays import Array

#: Fewest parameters with which torch computes.
LARGE = 2**15

#: A number of steps after which Adam's corrections 1−βᵗ are 1.
_MANY = 1e9


class Optimiser(ABC):
    """One step downhill.

    Attributes
    ----------
    order : s, number of moments.
    moments : (s, P), or (s, S, P), 0 at first; may be changed in place between steps.
    taken : t, number of steps; may be changed between steps.
    """

    order: ClassVar[int] = 0

    def __init__(self, theta: Tensor):
        self.moments = theta.new_zeros((self.order, *theta.shape))
        self.taken = 0.0
        self._small = theta.is_cpu and theta.shape[-1] < LARGE
        self._arrays = self.moments.numpy() if self._small else np.empty(0)
        self._room = np.empty_like(theta.numpy()) if self._small else np.empty(0)

    def step(self, theta: Tensor, grad: Tensor, rate: float | Array) -> None:
        """Change θ in place, given ∇ of its shape and the learning rate.

        Parameters
        ----------
        rate : η, or of several vectors (S, 1).
        """
        if self._small:
            self.step_arrays(theta.numpy(), grad.numpy(), rate)
        else:
            self._begin()
            self._step_large(theta, grad, float(rate))

    def step_arrays(self, theta: Array, grad: Array, rate: float | Array) -> None:
        """Take the same step on the arrays of θ and ∇, of fewer than `LARGE` parameters."""
        self._begin()
        self._step_small(theta, grad, rate)

    def _begin(self) -> None:
        """Count a step that begins."""
        self.taken += 1

    @abstractmethod
    def _step_small(self, theta: Array, grad: Array, rate: float | Array) -> None:
        """Take the step in NumPy."""

    @abstractmethod
    def _step_large(self, theta: Tensor, grad: Tensor, rate: float) -> None:
        """Take the step in torch."""


class Sgd(Optimiser):
    """θ ← θ − η∇."""

    def _step_small(self, theta: Array, grad: Array, rate: float | Array) -> None:
        theta -= np.multiply(grad, rate, out=self._room)

    def _step_large(self, theta: Tensor, grad: Tensor, rate: float) -> None:
        theta.sub_(grad, alpha=rate)


class Adam(Optimiser):
    """Kingma and Ba (2015), with β₁ = 0.9, β₂ = 0.999, ε = 1e-8.

    m ← β₁m + (1−β₁)∇,  v ← β₂v + (1−β₂)∇²,  θ ← θ − η (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)

    With c = √(1−β₂ᵗ), the fused step moves by ηc/(1−β₁ᵗ) m / (√v + cε), which is the same; torch's
    own t is float32. `moments` are (m, v).
    """

    order = 2
    beta1, beta2, epsilon = 0.9, 0.999, 1e-8
    #: Whether torch has a fused step of this v.
    fuses: ClassVar[bool] = True

    def _step_small(self, theta: Array, grad: Array, rate: float | Array) -> None:
        m, room = self._arrays[0], self._room
        np.subtract(grad, m, out=room)
        room *= 1.0 - self.beta1
        m += room
        self._square_small(grad)
        np.sqrt(self._arrays[1], out=room)
        room /= math.sqrt(1.0 - self.beta2**self.taken)
        room += self.epsilon
        np.divide(m, room, out=room)
        room *= rate / (1.0 - self.beta1**self.taken)
        theta -= room

    def _step_large(self, theta: Tensor, grad: Tensor, rate: float) -> None:
        scale = math.sqrt(1.0 - self.beta2**self.taken)
        rate = rate / (1.0 - self.beta1**self.taken)
        m, v = self.moments
        if self.fuses and theta.is_cpu:
            adam(
                [theta], [grad], [m], [v], [], [torch.tensor(_MANY)], fused=True,
                amsgrad=False, beta1=self.beta1, beta2=self.beta2, lr=rate * scale,
                weight_decay=0.0, eps=self.epsilon * scale, maximize=False,
            )  # fmt: skip
            return
        m.lerp_(grad, 1.0 - self.beta1)
        self._square(v, grad)
        theta.addcdiv_(m, v.sqrt().div_(scale).add_(self.epsilon), value=-rate)

    def _square_small(self, grad: Array) -> None:
        """Change v in place, in NumPy."""
        v, room = self._arrays[1], self._room
        v *= self.beta2
        np.multiply(grad, grad, out=room)
        room *= 1.0 - self.beta2
        v += room

    def _square(self, v: Tensor, grad: Tensor) -> None:
        """Change v in place."""
        v.mul_(self.beta2).addcmul_(grad, grad, value=1.0 - self.beta2)


class Momentum(Optimiser):
    """θ ← θ − ηb,  b ← 0.9b + ∇, from b = 0, as `torch.optim.SGD(momentum=0.9)`.

    `moments` are (b,).
    """

    order = 1
    decay = 0.9

    def _step_small(self, theta: Array, grad: Array, rate: float | Array) -> None:
        b = self._arrays[0]
        b *= self.decay
        b += grad
        theta -= np.multiply(b, rate, out=self._room)

    def _step_large(self, theta: Tensor, grad: Tensor, rate: float) -> None:
        b = self.moments[0]
        if theta.is_cpu:  # the same bits, and each number is read once
            sgd(
                [theta], [grad], [b], fused=True, weight_decay=0.0, momentum=self.decay, lr=rate,
                dampening=0.0, nesterov=False, maximize=False,
            )  # fmt: skip
            return
        b.mul_(self.decay).add_(grad)
        theta.sub_(b, alpha=rate)


class Yogi(Adam):
    """Zaheer et al., "Adaptive methods for nonconvex optimization", NeurIPS 2018.

        m ← β₁m + (1−β₁)∇,  v ← v − (1−β₂) sign(v − ∇²) ∇²,
        θ ← θ − η (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε),  β₁ = 0.9, β₂ = 0.999, ε = 1e-8, v from 0

    Thesis 003, eqs. 2.13 to 2.17, with 2.14 and 2.16 corrected: as printed, v decays as in Adam,
    with the bias of m. Without the division by 1−βᵗ, as in Zaheer et al., the first steps would
    depend on the start of v. ε is the thesis's, outside the root as in Adam. Zaheer et al. advise
    1e-3, which is as large as the gradients of a loss averaged over all entries of a table: an
    autoencoder of the digits then reached an error of 0.0139 instead of 0.0113 (30 epochs, best of
    six rates).
    """

    fuses = False

    def _square_small(self, grad: Array) -> None:
        v, square = self._arrays[1], np.multiply(grad, grad, out=self._room)
        sign = np.sign(v - square)
        square *= 1.0 - self.beta2
        v -= np.multiply(sign, square, out=sign)

    def _square(self, v: Tensor, grad: Tensor) -> None:
        square = grad.square()
        v.addcmul_(torch.sign(v - square), square, value=self.beta2 - 1.0)


class YogiStarted(Yogi):
    """Yogi with m and v from 1e-6, as `torch_optimizer.Yogi` starts by default.

    v starts above the squares of small gradients, so the first steps are small: with v from 0 they
    have the size η. Rates that were chosen with this start, as those of thesis 003, are too large
    without it.
    """

    start = 1e-6

    def _begin(self) -> None:
        if not self.taken:
            self.moments.fill_(self.start)
        super()._begin()


#: Optimisers by name in the settings.
OPTIMISERS: Mapping[str, type[Optimiser]] = {
    "adam": Adam,
    "sgd": Sgd,
    "momentum": Momentum,
    "yogi": Yogi,
    "yogi_started": YogiStarted,
}
