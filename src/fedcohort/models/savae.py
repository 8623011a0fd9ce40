"""Survival variational autoencoder: latent variables give the covariates and the time.

GenoMed4All D6.2, section 6.4.4 (SAVAE); Apellániz, Parras, Zazo, arXiv 2312.14651. With z ~
N(0, I_q), p(x, t | z) = p(x|z) p(t|z) and q(z|x) of `models.vae`, which does not see the time:

    L = −β KL(q(z|x) ‖ N(0, I)) + E_q Σ_{j∈O} ln p(x_j|z) + w E_q ln p(t|z)                 (1)

with ln f(t|z) of an event, and ln S(t|z) of a censored time (eqs. 6.12–6.14 of D6.2, corrected:
they have ln p(t|z) for every row). By `models.likelihoods`, with outputs of a third network,

    weibull      ln scale(z) and ln shape(z), eq. (8) there                                 (2)
    piecewise    ln hazard(z) in each of J parts of the time, eq. (9) there                 (3)

A row without a known covariate has the posterior N(0, I).

For virtual patients the time of censoring has the same distribution, without covariates, with
parameters of its own. Its log likelihood, ln f of a censored time and ln S of an event, is added
to (1); no other parameter depends on it.

θ holds the encoder and the decoder as in `models.vae`, then the parameters of the censoring, then
the layers of the third network, whose hidden layers are the decoder's. Its last layer begins
at 0: with random weights some time would have a hazard of e^20.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from fedcohort.models.layers import Flat
from fedcohort.models.likelihoods import (
    LEAST,
    part_of,
    piecewise_of_parts,
    piecewise_survival,
    piecewise_time,
    spent,
    weibull_of_logs,
    weibull_survival,
    weibull_time,
)
from fedcohort.models.vae import Vae, VaeNet
from fedcohort.models.variational import Posterior, drawn, filled, hidden_layers, lacking

#: Distributions of the time given z.
TIMES = ("weibull", "piecewise")


@dataclass(frozen=True, kw_only=True)
class Savae(Vae):
    """A survival variational autoencoder.

    Attributes
    ----------
    parts : J of eq. (3); 0 for eq. (2).
    dropout : probability that a hidden unit is dropped in a training step.
    """

    kind: ClassVar[str] = "savae"

    parts: int = 0
    dropout: float = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]  a setting here

    @property
    def size(self) -> int:
        """Return P, the length of θ."""
        sizes = (self.latent, *self.hidden[::-1], self.parts or 2)
        return super().size + sizes[-1] + sum((a + 1) * b for a, b in pairwise(sizes))

    def build(self) -> SavaeNet:
        """Return the module with uninitialised parameters."""
        return SavaeNet(self)


class Lives(NamedTuple):
    """Times of some rows, as the likelihoods need them.

    Attributes
    ----------
    ends : (2, n), 1.0 of an event in the first row, and of a censored time in the second.
    log : (n,), logarithm of the time.
    parts : time in each part (n, J), and 1 in that of the end (n, J); () of Weibull times.
    """

    ends: Tensor
    log: Tensor
    parts: tuple[Tensor, ...]

    @classmethod
    def of(cls, time: Tensor, event: Tensor, edges: Tensor) -> Lives:
        """Return them of times and events (n,), with edges (J − 1,), or (0,) of Weibull times."""
        died = event.to(time)
        ends, log = torch.stack([died, 1.0 - died]), time.clamp(min=LEAST).log()
        return cls(ends, log, (spent(time, edges), part_of(time, edges)) if len(edges) else ())

    def take(self, rows: Tensor) -> Lives:
        """Return those of the rows with these numbers."""
        return Lives(self.ends[:, rows], self.log[rows], tuple(part[rows] for part in self.parts))

    def to(self, like: Tensor) -> Lives:
        """Return them in the type and on the device of a tensor."""
        parts = tuple(part.to(like) for part in self.parts)
        return Lives(self.ends.to(like), self.log.to(like), parts)

    def log_density(self, y: Tensor, event: Tensor) -> Tensor:
        """Return ln f where `event` (…, n) is 1, and ln S where it is 0, of parameters y (…, n, K)
        of the time's distribution: (…, n).
        """
        if self.parts:
            spent, end = self.parts
            return piecewise_of_parts(spent, event[..., None] * end, y)
        return weibull_of_logs(self.log, event, *y.unbind(dim=-1))


class TimeHead(nn.Module):
    """z (…, q) → distribution of the time, in a unit of its own.

    Attributes
    ----------
    parts : J, or 0.
    """

    def __init__(self, net: Savae):
        super().__init__()
        sizes = (net.latent, *net.hidden[::-1])
        self.parts = net.parts
        self._leaving = nn.Parameter(torch.empty(net.parts or 2))
        self._trunk = hidden_layers(sizes, net.activation, net.dropout)
        self._last = nn.utils.skip_init(Flat, sizes[-1], net.parts or 2)

    def log_density(self, z: Tensor, lives: Lives) -> Tensor:
        """Return ln f of events and ln S of censored times (L, n) given z (L, n, q)."""
        return lives.log_density(self._last(self._trunk(z)), lives.ends[0])

    def fits(self, z: Tensor, lives: Lives, weight: float) -> Tensor:
        """Return w times the mean of the same over L, plus that of the time of censoring: (n,).

        Both are computed at once: a step spends its time on the number of operations.
        """
        y = self._last(self._trunk(z))
        points, ends = len(y), lives.ends
        if points > 1:
            ends = torch.cat([ends[:1].expand(points, -1), ends[1:]])
        both = torch.cat([y, self._leaving.expand(1, *y.shape[1:])])
        first, *rest, left = lives.log_density(both, ends).unbind(dim=0)
        return torch.add(left, sum(rest, first), alpha=weight / points)

    def survival(self, z: Tensor, times: Tensor, edges: Tensor) -> Tensor:
        """Return S (…, n, m) at times (m,) given z (…, n, q)."""
        y = self._last(self._trunk(z))
        if self.parts:
            return piecewise_survival(times, y, edges)
        return weibull_survival(times, y[..., 0], y[..., 1])

    def times(self, z: Tensor, u: Tensor, edges: Tensor) -> Tensor:
        """Return times of an event given z (n, q), and of censoring: (n, 2).

        Parameters
        ----------
        u : (2, n), uniform on [0, 1): each is where 1 − S is u.
        """
        hazards = (-torch.log1p(-u)).to(z).clamp(min=LEAST)
        y = self._last(self._trunk(z))
        leaving = self._leaving.expand_as(y)
        if self.parts:
            both = [
                piecewise_time(h, of, edges) for h, of in zip(hazards, (y, leaving), strict=True)
            ]
        else:
            both = [weibull_time(h, *of.T) for h, of in zip(hazards, (y, leaving), strict=True)]
        return torch.stack(both, dim=1)


class SavaeNet(VaeNet):
    """Module of eq. (1)."""

    def __init__(self, net: Savae):
        super().__init__(net)
        self.time = TimeHead(net)

    def survival_elbo(
        self, x: Tensor, lives: Lives, *, weight: float, beta: float, seed: int | None,
        free_bits: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Return eq. (1), with the censoring's log likelihood, of each row of x (n, p): (n,).

        Parameters
        ----------
        weight : w.
        seed, free_bits : as in `models.vae`.
        """
        held, known = filled(x)
        posterior = self.posterior(held, known)
        noise = None if seed is None else drawn(seed, (len(x), self.latents), x)
        z = posterior.points(noise)
        fits = self.decoder.log_density(held, known, z)
        each = posterior.divergences()
        value = fits + self.time.fits(z, lives, weight) - beta * each.sum(dim=1)
        if free_bits and len(x):
            value = value - beta * lacking(each.mean(dim=0), free_bits)
        return value

    def posterior(self, held: Tensor, known: Tensor) -> Posterior:
        """Return q(z|x), N(0, I) for a row without a known entry."""
        found, there = self.encoder(held, known), known.any(dim=1, keepdim=True)
        if bool(there.all()):
            return found
        return Posterior(found.mean * there, found.log_variance * there)

    def draws(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return z = m + τε (L, n, q) of rows x (n, p), with the same ε (L, q) for each row."""
        mean, log = self.posterior(*filled(x))
        return mean + (0.5 * log).exp() * noise[:, None, :]
