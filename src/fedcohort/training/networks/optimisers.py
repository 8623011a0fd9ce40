"""Optimisers of one flat vector, in place.

Their arithmetic is that of `torch.optim`, to the last bits, with at most two vectors of state. On
the processor, Adam of fewer than `LARGE` parameters computes in NumPy, whose operations on a few
hundred numbers take a third of torch's time; of more, it is torch's fused step, which reads and
writes each number once.
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

#: Fewest parameters with which Adam takes torch's fused step.
LARGE = 2**15

#: A number of steps after which Adam's corrections 1−βᵗ are 1.
_MANY = 1e9


class Optimiser(ABC):
    """One step downhill.

    Attributes
    ----------
    order : s, number of moments.
    moments : (s, P), 0 at first; may be changed in place between steps.
    taken : t, number of steps; may be changed between steps.
    """

    order: ClassVar[int] = 0

    def __init__(self, theta: Tensor):
        self.moments = theta.new_zeros((self.order, len(theta)))
        self.taken = 0.0

    @abstractmethod
    def step(self, theta: Tensor, grad: Tensor, rate: float) -> None:
        """Change θ (P,) in place, given ∇ (P,) and the learning rate."""


class Sgd(Optimiser):
    """θ ← θ − η∇."""

    def step(self, theta: Tensor, grad: Tensor, rate: float) -> None:
        """Change θ (P,) in place."""
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

    def __init__(self, theta: Tensor):
        super().__init__(theta)
        self._m, self._v = self.moments
        self._small = theta.is_cpu and len(theta) < LARGE
        if self._small:
            self._arrays = self.moments.numpy()
            self._room = np.empty_like(self._arrays[0])
        self._fused = self.fuses and theta.is_cpu and len(theta) >= LARGE

    def step(self, theta: Tensor, grad: Tensor, rate: float) -> None:
        """Change θ (P,) in place."""
        self.taken += 1
        scale = math.sqrt(1.0 - self.beta2**self.taken)
        rate = rate / (1.0 - self.beta1**self.taken)
        if self._small:
            m, room, slope, place = self._arrays[0], self._room, grad.numpy(), theta.numpy()
            np.subtract(slope, m, out=room)
            room *= 1.0 - self.beta1
            m += room
            self._square_small(slope)
            np.sqrt(self._arrays[1], out=room)
            room /= scale
            room += self.epsilon
            np.divide(m, room, out=room)
            room *= rate
            place -= room
            return
        if self._fused:
            adam(
                [theta], [grad], [self._m], [self._v], [], [torch.tensor(_MANY)], fused=True,
                amsgrad=False, beta1=self.beta1, beta2=self.beta2, lr=rate * scale,
                weight_decay=0.0, eps=self.epsilon * scale, maximize=False,
            )  # fmt: skip
            return
        self._m.lerp_(grad, 1.0 - self.beta1)
        self._square(self._v, grad)
        theta.addcdiv_(self._m, self._v.sqrt().div_(scale).add_(self.epsilon), value=-rate)

    def _square_small(self, grad: Array) -> None:
        """Change v (P,) in place, in NumPy."""
        v, room = self._arrays[1], self._room
        v *= self.beta2
        np.multiply(grad, grad, out=room)
        room *= 1.0 - self.beta2
        v += room

    def _square(self, v: Tensor, grad: Tensor) -> None:
        """Change v (P,) in place."""
        v.mul_(self.beta2).addcmul_(grad, grad, value=1.0 - self.beta2)


class Momentum(Optimiser):
    """θ ← θ − ηb,  b ← 0.9b + ∇, from b = 0, as `torch.optim.SGD(momentum=0.9)`.

    `moments` are (b,).
    """

    order = 1
    decay = 0.9

    def step(self, theta: Tensor, grad: Tensor, rate: float) -> None:
        """Change θ (P,) in place."""
        self.taken += 1
        b = self.moments[0]
        if theta.is_cpu and len(theta) >= LARGE:  # the same bits, and each number is read once
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

    def step(self, theta: Tensor, grad: Tensor, rate: float) -> None:
        """Change θ (P,) in place."""
        if not self.taken:
            self.moments.fill_(self.start)
        super().step(theta, grad, rate)


#: Optimisers by name in the settings.
OPTIMISERS: Mapping[str, type[Optimiser]] = {
    "adam": Adam,
    "sgd": Sgd,
    "momentum": Momentum,
    "yogi": Yogi,
    "yogi_started": YogiStarted,
}
