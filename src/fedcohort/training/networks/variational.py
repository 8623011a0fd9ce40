"""A site's local free energy, maximised by gradient steps.

Bui, Nguyen, Swaroop, Turner, "Partitioned variational inference: a unified framework encompassing
federated and continual learning", arXiv:1811.11206; GenoMed4All D6.2, section 4.2, with eq. (4.30)
corrected (errata). Of a posterior q over weights, a site's factor t, and the cavity c = q/t, which
holds the prior and the other sites' factors, the local free energy of n rows is

    F(q) = E_q[Σ_j ln p(y_j | x_j, w)] − E_q[ln q − ln c] / T                              (1)

With T = 1 it is Bayes' rule; a larger 1/T is no posterior, and a smaller 1/T, as in VIRTUAL, a cold
one (Wenzel et al., ICML 2020). −F/n is minimised over θ = (μ, log σ) with the noisy slopes of
`models.bayes` for its first term, and for the second, by eq. (3) there, with

    ∂/∂μ = λμ − η,   ∂/∂log σ = λσ² − 1                                                    (2)

Of M mini-batches each has 1/M of the second term ("uniform"), or the i-th of them 2^(M−i)/(2^M − 1)
("blundell": Blundell et al. 2015, section 3.4). With a prior that is a mixture of two Gaussians
with mean 0 (section 3.3 there), its share of the sites, −E_q[ln p(w)], is added by one draw of w
for each step. It is a sum over weights, so weights may share their draws: those of the first piece
of θ serve all pieces, and each weight's slope is as variable as with a draw of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.models.bayes import Places, places
from fedcohort.models.layers import PIECE
from fedcohort.models.network import FlatNet, network
from fedcohort.training.networks.local import steps
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import Rows

#: Ways to divide the divergence among mini-batches.
KL_WEIGHTS = ("uniform", "blundell")


@dataclass(frozen=True, eq=False)
class Natural:
    """Natural parameters of a Gaussian with independent weights.

    Attributes
    ----------
    precision, shift : λ (W,), and λ times the mean (W,).
    """

    precision: Array
    shift: Array

    @classmethod
    def of(cls, theta: Array, at: Places) -> Natural:
        """Return those of the posterior θ."""
        precision, shift = np.empty(len(at.mean)), np.empty(len(at.mean))
        for weights, mean, log_sd in at.pieces(PIECE):
            one = np.multiply(theta[log_sd], -2.0, out=precision[weights])
            np.multiply(np.exp(one, out=one), theta[mean], out=shift[weights])
        return cls(precision, shift)

    def into(self, at: Places) -> Array:
        """Return θ of this posterior; all precisions are above 0."""
        out = np.empty(2 * len(at.mean))
        for weights, mean, log_sd in at.pieces(PIECE):
            precision, found = self.precision[weights], out[log_sd]
            np.divide(self.shift[weights], precision, out=out[mean])
            np.multiply(np.log(precision, out=found), -0.5, out=found)
        return out

    def plus(self, other: Natural, share: float = 1.0) -> Natural:
        """Return the product with another Gaussian to the power `share`."""
        if share != 1.0:
            other = other.times(share)
        return Natural(self.precision + other.precision, self.shift + other.shift)

    def less(self, other: Natural) -> Natural:
        """Return the quotient by another Gaussian."""
        return Natural(self.precision - other.precision, self.shift - other.shift)

    def times(self, share: float) -> Natural:
        """Return this Gaussian to the power `share`."""
        return Natural(share * self.precision, share * self.shift)


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Prior of each weight, N(0, s²) or a mixture, and the weights of the divergence from it.

    Attributes
    ----------
    wide, narrow, share : s₁, s₂ and π of π N(0, s₁²) + (1 − π) N(0, s₂²); s₂ = 0: N(0, s₁²).
    weight : 1/T.
    weights : in `KL_WEIGHTS`.
    """

    wide: float
    narrow: float = 0.0
    share: float = 1.0
    weight: float = 1.0
    weights: str = "uniform"

    @cached_property
    def text(self) -> str:
        """The prior as JSON, for a step's argument."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    @lru_cache(maxsize=16)
    def of(text: str) -> Prior:
        """Return the prior from its JSON text."""
        return Prior(**json.loads(text))

    @property
    def mixed(self) -> bool:
        """Whether it is a mixture."""
        return self.narrow > 0.0

    def natural(self, size: int) -> Natural:
        """Return its natural parameters (W,); 0 of a mixture, which has none."""
        precision = 0.0 if self.mixed else self.wide**-2.0
        return Natural(np.full(size, precision), np.zeros(size))

    def constants(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return ln(π s₂ / ((1 − π) s₁)) and s₂⁻² of a mixture, () each."""
        odds = math.log(self.share / (1.0 - self.share)) + math.log(self.narrow / self.wide)
        return like.new_tensor(odds), like.new_tensor(self.narrow**-2.0)

    def factor(self, w: Tensor, constants: tuple[Tensor, Tensor], out: Tensor) -> Tensor:
        """Return −(∂ ln p/∂w)/w (W,) of a mixture, in `out` (W,), given its constants.

        It is s₂⁻² + (s₁⁻² − s₂⁻²) r, with the share r of the wide part at w.
        """
        a, b = self.wide**-2.0, self.narrow**-2.0
        # At z = 80 the share is 1; e⁻ᶻ of a larger z may be subnormal, which is slow.
        z = torch.addcmul(constants[0], w, w, value=0.5 * (b - a), out=out)
        return torch.add(constants[1], z.clamp_(max=80.0).sigmoid_(), alpha=a - b, out=out)

    def parts(self, batches: int) -> Iterator[float]:
        """Yield, again and again, the share of the divergence of each mini-batch, times M."""
        while True:
            for i in range(1, batches + 1):
                blundell = self.weights == "blundell"
                yield batches * 2.0**-i / (1.0 - 2.0**-batches) if blundell else 1.0


@dataclass(frozen=True, eq=False)
class Goal:
    """What besides the rows is in a site's free energy.

    Attributes
    ----------
    cavity : c, with a Gaussian prior.
    prior : of which `share` is added if it is a mixture, which the cavity does not hold.
    """

    cavity: Natural
    prior: Prior
    share: float = 1.0


def maximise(
    theta: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...], goal: Goal
) -> tuple[Array, float]:
    """Maximise eq. (1) by `plan.epochs` epochs.

    Parameters
    ----------
    theta : θ₀ (P,).
    rows : the site's own; without any, θ stays. Rows without information, as those without a death
        for a Cox loss, have the second term alone.
    rate : learning rate. entropy : seed of mini-batches and noise.

    Returns
    -------
    theta : (P,), float64. loss : mean over the first epoch's batches of −ln p(y | x, w), each
        before its step.
    """
    if not len(rows.x):
        return theta.astype(np.float64), 0.0
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    pull = _Divergence(net, goal, len(rows.x))
    optimiser = OPTIMISERS[plan.optimiser](net.theta)
    batches = plan.parts(len(rows.x))
    seen: list[float] = []
    for (part, seed), share in zip(
        steps(net, rows, plan, entropy, every=True), goal.prior.parts(batches), strict=False
    ):
        value = part.pull(net, seed)
        if len(seen) < batches:
            seen.append(value * len(part.x) / len(rows.x))
        pull.add(share, seed)
        optimiser.step(net.theta, net.grad, rate)
    return net.read(), sum(seen)


class _Divergence:
    """The slope of the second term of −F/n, eq. (2).

    It is computed by pieces that fit into the processor's cache, in memory that is used again: to
    fill new memory of the size of θ takes longer than the arithmetic.
    """

    def __init__(self, net: FlatNet, goal: Goal, rows: int):
        self._goal, self._rows = goal, rows
        largest = PIECE if net.theta.is_cpu else len(net.theta)
        cavity, theta, grad = goal.cavity, net.theta, net.grad
        given = theta.new_empty(2, len(cavity.precision))
        for values, out in zip((cavity.precision, cavity.shift), given, strict=True):
            out.copy_(torch.from_numpy(values))
        cut = list(places(net.module).pieces(largest))
        memory = theta.new_empty(4, max(w.stop - w.start for w, _, _ in cut))
        self._noise, self._generator = memory[0], torch.Generator()
        self._constants = goal.prior.constants(theta) if goal.prior.mixed else (theta, theta)
        self._pieces = [
            (*given[:, w], theta[m], theta[s], grad[m], grad[s], *memory[:, : w.stop - w.start])
            for w, m, s in cut
        ]

    def add(self, share: float, seed: int) -> None:
        """Add the slope of a mini-batch with this share of the term to `net.grad`."""
        prior = self._goal.prior
        scale = share * prior.weight / self._rows
        if prior.mixed:
            self._generator.manual_seed(seed + 1)
            self._noise.copy_(torch.randn(len(self._noise), generator=self._generator))
        for piece in self._pieces:
            precision, shift, mean, log_sd, slope_mean, slope_log_sd, noise, sd, square, w = piece
            torch.exp(log_sd, out=sd)
            torch.mul(sd, sd, out=square)
            slope_mean.addcmul_(precision, mean, value=scale).sub_(shift, alpha=scale)
            slope_log_sd.addcmul_(precision, square, value=scale).sub_(scale)
            if prior.mixed:
                moved = sd.mul_(noise)
                torch.add(mean, moved, out=w)
                # The slope by w is its product with a factor, which takes the place of σ².
                factor = prior.factor(w, self._constants, square)
                slope_mean.addcmul_(factor, w, value=scale * self._goal.share)
                slope_log_sd.addcmul_(factor, w.mul_(moved), value=scale * self._goal.share)
