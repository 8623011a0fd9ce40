"""Variational autoencoder for rows with missing entries.

Kingma and Welling, "Auto-encoding variational Bayes", ICLR 2014. With z ~ N(0, I_q), O the known
entries of a row x (p,), and x̃ the row with 0 for the others:

    q(z|x) = N(m(x̃), diag τ²(x̃))                                                           (1)
    p(x|z) = N(y(z), diag σ²),   σ_j² = `FLOOR` + exp(s_j)                                   (2)
    ELBO   = E_{q(z|x)} Σ_{j∈O} ln p(x_j|z) − β KL(q(z|x) ‖ N(0, I))                         (3)
    KL     = ½ Σ_i (τ_i² + m_i² − 1 − ln τ_i²)                                               (4)

Or, with heads, p(x_j|z) is the likelihood of each column of a mixed table given y(z)
(`models.likelihoods`); the encoder sees logarithms of log-normal numbers and counts.

Without hidden layers m, ln τ² and y are linear. Then the best ELBO with β = 1 and (2) is the
likelihood of factor analysis, and of probabilistic PCA if all σ_j are equal (Lucas et al., "Don't
blame the ELBO!", NeurIPS 2019), because some rotation of z has a diagonal posterior.

Columns are standardised, so 0 is the mean of missing entries, and an entry's standard deviation
given z is at least √`FLOOR` of its column's. ln τ² is cut to ± `WIDEST`, with zero slope beyond.
The posterior of a row without a known entry is the prior, and its ELBO is 0.

In training a latent dimension may have λ free bits (in nats; Kingma et al., "Improving variational
inference with inverse autoregressive flow", NeurIPS 2016, eq. 15): KL is Σ_i max(λ, mean of KL_i
over the rows of a step), so that nothing is gained by a smaller KL_i. (3) without it is reported.

p(z) may be another than N(0, I), a Gaussian mixture (`models.prior`): learnt with the network, or
given, with a part made of pseudo-inputs that are trained with the network.

In training known entries can be hidden from the encoder, though not from the likelihood: of each
row a share drawn uniformly from 0 to `hide`, anew in each step (Ma et al., "EDDI", ICML 2019,
section 3.2). (3) is a bound for whatever the encoder sees. So it learns to encode rows with missing
entries from rows without.

One column may be a label (semi-supervised, D6.2, 6.3.3; after Kingma et al., "Semi-supervised
learning with deep generative models", NeurIPS 2014, eq. 9): the encoder does not see it, and its
ln p(x_j|z) in (3) has a weight. So z tells the label of rows in which it is missing, and rows with
and without a label have one objective.

θ holds the encoder's layers, those of m and of ln τ², then s, or the parameters of the likelihoods,
then the decoder's layers, then those of the prior.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedcohort.data.prepare import heads_from
from fedcohort.models.likelihoods import FLOOR, Inputs, Likelihoods, sizes_of
from fedcohort.models.prior import Common, Gaussians, LearntMixture, PseudoInputs, draws_of
from fedcohort.models.variational import (
    LatentNet,
    Posterior,
    drawn,
    filled,
    hidden_layers,
    lacking,
    log_standard,
)

#: The largest |ln τ²|.
WIDEST = 20.0

_HIDDEN = 0x68696465


@dataclass(frozen=True, kw_only=True)
class Vae:
    """A variational autoencoder of p inputs.

    Attributes
    ----------
    inputs : p.
    latent : q.
    hidden : widths of the encoder's hidden layers; the decoder has them in reverse.
    activation : after each hidden layer, a name in `layers.ACTIVATIONS`.
    sees_mask : whether the encoder also gets which entries are known: then it has 2p inputs.
    heads : of all columns, by `data.prepare.plain_heads`; () for eq. (2).
    components : of a prior that is learnt with the network; 0 for N(0, I), or a prior given.
    pseudo : number of pseudo-inputs that are trained with the network.
    label, label_weight : number of the head that is a label, −1 for none; its weight.
    hide : largest share of a row's known entries that the encoder does not see in training.
    """

    kind: ClassVar[str] = "vae"
    dropout: ClassVar[float] = 0.0

    inputs: int
    latent: int
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    sees_mask: bool = False
    heads: Sequence[Sequence[Any]] = ()
    components: int = 0
    pseudo: int = 0
    label: int = -1
    label_weight: float = 1.0
    hide: float = 0.0

    @property
    def spec(self) -> str:
        """JSON text that determines the network; of `UNWRITTEN` only what differs."""
        return spec_of(self)

    @property
    def size(self) -> int:
        """Return P, the length of θ."""
        q, forth = self.latent, (self.inputs * (1 + self.sees_mask), *self.hidden)
        outputs, own = (self.inputs, self.inputs)
        if self.heads:
            outputs, own = sizes_of(heads_from(self.heads))
        back = (q, *self.hidden[::-1], outputs)
        layers = sum((a + 1) * b for way in (forth, back) for a, b in pairwise(way))
        prior = self.components * (1 + 2 * q) + self.pseudo * self.inputs
        return layers + 2 * (forth[-1] + 1) * q + own + prior

    def build(self) -> VaeNet:
        """Return the module with uninitialised parameters."""
        return VaeNet(self)


#: Entries of a network that its text leaves out where they have these values.
UNWRITTEN = {
    "heads": (), "components": 0, "pseudo": 0, "label": -1, "label_weight": 1.0, "hide": 0.0,
}  # fmt: skip


def spec_of(net: Any) -> str:
    """Return the JSON text of a network."""
    held = dataclasses.asdict(net)
    if not net.heads:
        held["heads"] = ()
    entries = {k: v for k, v in held.items() if k not in UNWRITTEN or v != UNWRITTEN[k]}
    return json.dumps({"kind": net.kind, **entries}, sort_keys=True)


def with_pseudo(spec: str, number: int) -> str:
    """Return the text of the network of `spec` with so many pseudo-inputs at the end of θ."""
    return json.dumps(json.loads(spec) | {"pseudo": number}, sort_keys=True)


class Encoder(nn.Module):
    """x̃ (n, p) → eq. (1)."""

    def __init__(self, net: Vae):
        super().__init__()
        self._sees_mask = net.sees_mask
        self._inputs = Inputs(heads_from(net.heads)) if net.heads else None
        sizes = (net.inputs * (1 + net.sees_mask), *net.hidden)
        self._trunk = hidden_layers(sizes, net.activation, net.dropout)
        self._mean = nn.utils.skip_init(nn.Linear, sizes[-1], net.latent)
        self._log_variance = nn.utils.skip_init(nn.Linear, sizes[-1], net.latent)

    def forward(self, held: Tensor, known: Tensor) -> Posterior:
        """Return the posterior of rows x̃ (n, p) with the known entries (n, p)."""
        if self._inputs is not None:
            held = self._inputs(held, known)
        seen = torch.cat([held, known.to(held)], dim=1) if self._sees_mask else held
        h = self._trunk(seen)
        return Posterior(self._mean(h), self._log_variance(h).clamp(-WIDEST, WIDEST))


class Decoder(nn.Module):
    """z (…, q) → outputs y (…, D), and p(x|z)."""

    def __init__(self, net: Vae):
        super().__init__()
        sizes = (net.latent, *net.hidden[::-1])
        self.likelihoods: Likelihoods | None = None
        self._label, self._more = net.label, net.label_weight - 1.0
        outputs = net.inputs
        if net.heads:
            self.likelihoods = Likelihoods(heads_from(net.heads))
            outputs = self.likelihoods.outputs
        else:
            self._s = nn.Parameter(torch.empty(net.inputs))
        self._trunk = hidden_layers(sizes, net.activation, net.dropout)
        self._last = nn.utils.skip_init(nn.Linear, sizes[-1], outputs)

    def outputs(self, z: Tensor) -> Tensor:
        """Return y (…, D) of z."""
        return self._last(self._trunk(z))

    def forward(self, z: Tensor) -> Tensor:
        """Return E[x|z] (…, p)."""
        y = self.outputs(z)
        return y if self.likelihoods is None else self.likelihoods.mean(y)

    def variance(self) -> Tensor:
        """Return σ² (p,) of eq. (2).

        Raises
        ------
        ValueError : with heads, where it depends on z.
        """
        if self.likelihoods is not None:
            raise ValueError("the variance of a column depends on z.")
        return FLOOR + self._s.exp()

    def log_density(self, held: Tensor, known: Tensor, z: Tensor) -> Tensor:
        """Return Σ_{j∈O} ln p(x_j|z), averaged over the L points of z (L, n, q): (n,)."""
        y = self.outputs(z)
        if self.likelihoods is not None:
            each = self.likelihoods.log_density(held, known, y)
            fits = each.sum(dim=-1)
            if self._label >= 0:
                fits = fits + self._more * each[..., self._label]
            return fits.mean(dim=0)
        variance = self.variance()
        squares = (held - y).square().mean(dim=0)
        each = (2.0 * math.pi * variance).log() + squares / variance
        return -0.5 * (known * each).sum(dim=1)

    def draw(self, z: Tensor, seed: int) -> Tensor:
        """Return a draw (n, p) from p(x|z) of z (n, q)."""
        y = self.outputs(z)
        if self.likelihoods is not None:
            return self.likelihoods.sample(y, seed)
        return y + drawn(seed, y.shape, y) * self.variance().sqrt()

    def rounded(self, x: Tensor) -> Tensor:
        """Return x (n, p) as a table can hold it (`Likelihoods.rounded`)."""
        return x if self.likelihoods is None else self.likelihoods.rounded(x)


class VaeNet(LatentNet):
    """Module of eqs. (1) to (3)."""

    def __init__(self, net: Vae):
        super().__init__()
        self.latents, self._hide = net.latent, net.hide
        self.encoder = Encoder(net)
        self.decoder = Decoder(net)
        self.mixture = LearntMixture(net.components, net.latent) if net.components else None
        self.pseudo = PseudoInputs(net.pseudo, net.inputs) if net.pseudo else None
        self.label = tuple(net.heads[net.label][1]) if net.label >= 0 else ()

    def prior(self) -> Gaussians | None:
        """Return the prior; None for N(0, I)."""
        return self.given if self.mixture is None else self.mixture()

    def seen(self, x: Tensor, seed: int | None = None) -> tuple[Tensor, Tensor]:
        """Return `filled` without the label, as the encoder sees it.

        Parameters
        ----------
        seed : of a training step, which hides entries.
        """
        held, known = filled(x)
        shown = torch.ones_like(known)
        if self.label:
            shown[:, [*self.label]] = False
        if self._hide and seed is not None:
            draws = torch.Generator().manual_seed((seed ^ _HIDDEN) & 0xFFFFFFFF)
            share = self._hide * torch.rand((len(x), 1), generator=draws)
            shown &= (torch.rand(x.shape, generator=draws) >= share).to(x.device)
        return held * shown, known & shown

    def elbo(
        self, x: Tensor, beta: float, seed: int | None, free_bits: float = 0.0,
        common: Common | None = None,
    ) -> Tensor:  # fmt: skip
        """Return eq. (3) of each row of x (n, p): (n,).

        Parameters
        ----------
        common : p(z), if it is neither N(0, I) nor learnt with the network.
        """
        posterior = self.encoder(*self.seen(x, seed))
        noise = None if seed is None else drawn(seed, (len(x), self.latents), x)
        z = posterior.points(noise)
        fits = self.decoder.log_density(*filled(x), z)
        there = self.seen(x)[1].any(dim=1)
        prior = None if self.mixture is None else self.mixture()
        if common is not None:
            own = None if self.pseudo is None else self.of_pseudo(self.pseudo.points)
            prior = common.prior(own, x)
        if prior is not None:
            away = prior.divergence(posterior.mean, posterior.log_variance, z)
            return (fits - beta * away) * there
        each = posterior.divergences()
        value = (fits - beta * each.sum(dim=1)) * there
        if free_bits:
            mean = (each * there[:, None]).sum(dim=0) / there.sum().clamp(min=1)
            value = value - beta * lacking(mean, free_bits)
        return value

    def of_pseudo(self, points: Tensor) -> Gaussians:
        """Return eq. (3) of `models.prior` of α (K, p), whose entries are all known."""
        mean, log = self.encoder(points, torch.ones_like(points, dtype=torch.bool))
        return Gaussians(torch.full_like(mean[:, 0], -math.log(len(points))), mean, log)

    def divergences(self, x: Tensor) -> Tensor:
        """Return KL_i of each row of x (n, p) from the prior, or its marginals: (n, q)."""
        held, known = self.seen(x)
        posterior, prior = self.encoder(held, known), self.prior()
        each = posterior.divergences() if prior is None else prior.marginal_divergences(*posterior)
        return each * known.any(dim=1, keepdim=True)

    def latent(self, x: Tensor) -> Tensor:
        """Return m of each row of x (n, p), of a row without entries the prior's mean: (n, q)."""
        held, known = self.seen(x)
        mean, prior = self.encoder(held, known).mean, self.prior()
        rest = torch.zeros_like(mean) if prior is None else prior.mean().expand_as(mean)
        return torch.where(known.any(dim=1, keepdim=True), mean, rest)

    def latent_draw(self, x: Tensor, seed: int) -> Tensor:
        """Return m + τε of each row of x (n, p): (n, q)."""
        held, known = self.seen(x)
        noise, prior = drawn(seed, (len(x), self.latents), x), self.prior()
        points = self.encoder(held, known).points(noise)[0]
        rest = noise if prior is None else draws_of(prior, noise, seed)
        return torch.where(known.any(dim=1, keepdim=True), points, rest)

    def decode(self, z: Tensor) -> Tensor:
        """Return E[x|z] (n, p) of z (n, q)."""
        return self.decoder(z)

    def draw(self, z: Tensor, seed: int) -> Tensor:
        """Return a draw (n, p) from p(x|z) of z (n, q)."""
        return self.decoder.draw(z, seed)

    def rounded(self, x: Tensor) -> Tensor:
        """Return x (n, p) as a table can hold it."""
        return self.decoder.rounded(x)

    def log_joint(self, x: Tensor, z: Tensor) -> Tensor:
        """Return ln p(x_O|z) + ln p(z) of each row of x (n, p), at z (n, q): (n,)."""
        prior = self.prior()
        before = log_standard(z) if prior is None else prior.log_density(z)
        return self.decoder.log_density(*filled(x), z[None]) + before

    def variance(self) -> Tensor:
        """Return σ² (p,)."""
        return self.decoder.variance()

    def may_fill(self, known: Tensor) -> Tensor:
        """Return all entries of rows with a known one."""
        return known.any(dim=1, keepdim=True).expand_as(known)
