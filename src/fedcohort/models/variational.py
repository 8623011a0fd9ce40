"""What variational autoencoders have in common: posterior, interface, imputation, and draws.

The networks are `models.vae`, `models.mcvae` and `models.savae`; eq. (4) is that of `models.vae`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedcohort.arrays import Array
from fedcohort.models.layers import ACTIVATIONS, SeededDropout
from fedcohort.models.prior import Gaussians, gaussians

_TAG = 0x656C626F
#: Nats that a pass of imputation may lower ln p of a row's known entries and its z by.
FALL = 2.0


class Posterior(NamedTuple):
    """Eq. (1) of some rows: m (n, q) and ln τ² (n, q)."""

    mean: Tensor
    log_variance: Tensor

    def divergence(self) -> Tensor:
        """Return eq. (4) of each row: (n,)."""
        return self.divergences().sum(dim=-1)

    def divergences(self) -> Tensor:
        """Return the terms KL_i of eq. (4) of each row: (n, q)."""
        m, log = self
        return 0.5 * (log.exp() + m**2 - 1.0 - log)

    def points(self, noise: Tensor | None) -> Tensor:
        """Return points (L, n, q) whose mean approximates an expectation over z.

        Parameters
        ----------
        noise : ε (n, q) of one draw m + τε (L = 1); without it, the 2q cubature points m ± √q τ_i
            e_i (Arasaratnam and Haykin, IEEE Trans. Automat. Contr. 54(6), 2009), which are exact
            for squares of z, and so for eq. (3) with a linear decoder.
        """
        spread = (0.5 * self.log_variance).exp()
        if noise is not None:
            return (self.mean + spread * noise)[None]
        q = spread.shape[1]
        steps = math.sqrt(q) * torch.eye(q).to(spread)[:, None, :] * spread
        return torch.cat([self.mean + steps, self.mean - steps])


class LatentNet(nn.Module, ABC):
    """Interface of a variational autoencoder; x (n, p) may hold NaN.

    Attributes
    ----------
    given : the prior, if it is neither N(0, I) nor learnt with the network; not used by `elbo`.
    """

    given: Gaussians | None = None

    def under(self, prior: Array | None, of: Callable[[LatentNet], Tensor], like: Tensor) -> Tensor:
        """Return a function of the network with a prior (C, 1 + 2q); None for its own."""
        self.given = None if prior is None else gaussians(prior, like)
        try:
            return of(self)
        finally:
            self.given = None

    @abstractmethod
    def elbo(self, x: Tensor, beta: float, seed: int | None, free_bits: float = 0.0) -> Tensor:
        """Return eq. (3) of each row: (n,).

        Parameters
        ----------
        seed : of one draw of z for each row; None takes the points of `Posterior.points`.
        free_bits : λ, in nats; for training.
        """

    @abstractmethod
    def divergences(self, x: Tensor) -> Tensor:
        """Return KL_i of each row and latent dimension: (n, q); 0 for a row without entries."""

    @abstractmethod
    def latent(self, x: Tensor) -> Tensor:
        """Return the mean of z given the known entries of each row: (n, q)."""

    @abstractmethod
    def latent_draw(self, x: Tensor, seed: int) -> Tensor:
        """Return a draw of z given the known entries of each row: (n, q)."""

    @abstractmethod
    def decode(self, z: Tensor) -> Tensor:
        """Return E[x|z] (n, p) of z (n, q)."""

    @abstractmethod
    def draw(self, z: Tensor, seed: int) -> Tensor:
        """Return a draw (n, p) from p(x|z) of z (n, q)."""

    @abstractmethod
    def rounded(self, x: Tensor) -> Tensor:
        """Return x (n, p) as a table can hold it (`Likelihoods.rounded`)."""

    @abstractmethod
    def log_joint(self, x: Tensor, z: Tensor) -> Tensor:
        """Return ln p(x_O|z) + ln p(z) of each row and its known entries O, at z (n, q): (n,)."""

    @abstractmethod
    def variance(self) -> Tensor:
        """Return σ² (p,) of eq. (2)."""

    @abstractmethod
    def may_fill(self, known: Tensor) -> Tensor:
        """Return which entries (n, p) `impute` encodes once it has guessed them."""

    def impute(self, x: Tensor, passes: int) -> Tensor:
        """Return x (n, p) with approximate E[x_j | known entries] for missing entries.

        Rows are repeatedly encoded and decoded, each by itself, and the output replaces missing
        entries. For a linear model this converges to its conditional mean: m = Mx̃ with
        M = (I + WᵀΨ⁻¹W)⁻¹WᵀΨ⁻¹, and x̃ = Wm where missing, is
        m = (I + W_OᵀΨ_O⁻¹W_O)⁻¹W_OᵀΨ_O⁻¹x_O. Entries outside `may_fill` are decoded but not
        encoded. With heads, the last output is `rounded`.

        A row does not take a pass in which ln p(x_O, z), at z = m, is more than `FALL` below that
        of its first one. Far from the training rows, encoder and decoder can enlarge each other's
        output without end.
        """
        known = ~x.isnan()
        fixed = known | ~self.may_fill(known)
        z = self.latent(x)
        y, least = self.decode(z), self.log_joint(x, z) - FALL
        for _ in range(0 if bool(fixed.all()) else passes - 1):
            z = self.latent(torch.where(fixed, x, y))
            near = self.log_joint(x, z) >= least
            y = torch.where(near[:, None], self.decode(z), y)
        return torch.where(known, x, self.rounded(y))

    def impute_drawn(self, x: Tensor, passes: int, seed: int) -> Tensor:
        """Return x (n, p) with missing entries drawn given the known ones, approximately.

        Draws of z from q and of x from p(x|z) alternate (Rezende, Mohamed and Wierstra, ICML 2014,
        appendix F). A row does not take a pass in which ln p(x_O, z) is more than q + `FALL` below
        that of its first one, see `impute`.
        """
        known = ~x.isnan()
        fixed = known | ~self.may_fill(known)
        z = self.latent_draw(x, seed)
        y = self.draw(z, seed + 1)
        least = self.log_joint(x, z) - z.shape[1] - FALL
        for i in range(1, 1 if bool(fixed.all()) else passes):
            z = self.latent_draw(torch.where(fixed, x, y), seed + 2 * i)
            near = self.log_joint(x, z) >= least
            y = torch.where(near[:, None], self.draw(z, seed + 2 * i + 1), y)
        return torch.where(known, x, y)


def log_standard(z: Tensor) -> Tensor:
    """Return ln p (n,) of z (n, q) under N(0, I)."""
    return -0.5 * (z.square() + math.log(2.0 * math.pi)).sum(dim=-1)


def lacking(mean: Tensor, free_bits: float) -> Tensor:
    """Return Σ_i max(0, λ − KL_i) () of mean divergences KL_i (q,)."""
    return (free_bits - mean).clamp(min=0.0).sum()


def filled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x (n, p) with 0 for missing entries, and which entries are known (n, p)."""
    known = ~x.isnan()
    return torch.where(known, x, torch.zeros((), dtype=x.dtype, device=x.device)), known


def drawn(seed: int, shape: Sequence[int], like: Tensor) -> Tensor:
    """Return standard normal draws that depend only on the shape and the seed."""
    # Dropout and noise of inputs draw from the same seeds; this stream is another.
    draws = torch.Generator().manual_seed((seed ^ _TAG) & 0xFFFFFFFF)
    return torch.randn(tuple(shape), generator=draws).to(like)


def hidden_layers(sizes: Sequence[int], activation: str, dropout: float = 0.0) -> nn.Sequential:
    """Return hidden layers of these widths, each with activation and dropout; none for one
    width.
    """
    found: list[nn.Module] = []
    for a, b in pairwise(sizes):
        found += [nn.utils.skip_init(nn.Linear, a, b), ACTIVATIONS[activation]()]
        found += [SeededDropout(dropout)] if dropout else []
    return nn.Sequential(*found)
