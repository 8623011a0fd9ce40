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
given, with pseudo-inputs that follow it at a site.

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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from fedcohort.data.prepare import heads_from
from fedcohort.models.layers import ACTIVATIONS, SeededDropout
from fedcohort.models.likelihoods import FLOOR, Inputs, Likelihoods, sizes_of
from fedcohort.models.prior import Gaussians, LearntMixture, PseudoInputs

#: The largest |ln τ²|.
WIDEST = 20.0

_TAG = 0x656C626F


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
UNWRITTEN = {"heads": (), "components": 0, "pseudo": 0, "label": -1, "label_weight": 1.0}


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


class LatentNet(nn.Module, ABC):
    """Interface of a variational autoencoder; x (n, p) may hold NaN."""

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
        """
        known = ~x.isnan()
        fixed = known | ~self.may_fill(known)
        y = self.decode(self.latent(x))
        for _ in range(0 if bool(fixed.all()) else passes - 1):
            y = self.decode(self.latent(torch.where(fixed, x, y)))
        return torch.where(known, x, self.rounded(y))

    def impute_drawn(self, x: Tensor, passes: int, seed: int) -> Tensor:
        """Return x (n, p) with missing entries drawn given the known ones, approximately.

        Draws of z from q and of x from p(x|z) alternate (Rezende, Mohamed and Wierstra, ICML 2014,
        appendix F).
        """
        known = ~x.isnan()
        fixed = known | ~self.may_fill(known)
        y = self.draw(self.latent_draw(x, seed), seed + 1)
        for i in range(1, 1 if bool(fixed.all()) else passes):
            z = self.latent_draw(torch.where(fixed, x, y), seed + 2 * i)
            y = self.draw(z, seed + 2 * i + 1)
        return torch.where(known, x, y)


class VaeNet(LatentNet):
    """Module of eqs. (1) to (3)."""

    def __init__(self, net: Vae):
        super().__init__()
        self.latents = net.latent
        self.encoder = Encoder(net)
        self.decoder = Decoder(net)
        self.mixture = LearntMixture(net.components, net.latent) if net.components else None
        self.pseudo = PseudoInputs(net.pseudo, net.inputs) if net.pseudo else None
        self.label = tuple(net.heads[net.label][1]) if net.label >= 0 else ()

    def seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `filled` without the label, as the encoder sees it."""
        held, known = filled(x)
        if self.label:
            hidden = torch.ones(x.shape[1], dtype=torch.bool, device=x.device)
            hidden[[*self.label]] = False
            held, known = held * hidden, known & hidden
        return held, known

    def elbo(
        self, x: Tensor, beta: float, seed: int | None, free_bits: float = 0.0,
        prior: Gaussians | None = None,
    ) -> Tensor:  # fmt: skip
        """Return eq. (3) of each row of x (n, p): (n,).

        Parameters
        ----------
        prior : p(z), if it is neither N(0, I) nor learnt with the network. Then pseudo-inputs,
            if there are some, have the slopes of E_q ln p_m(z), which the value does not contain.
        """
        seen, known = self.seen(x)
        posterior = self.encoder(seen, known)
        noise = None if seed is None else drawn(seed, (len(x), self.latents), x)
        z = posterior.points(noise)
        fits = self.decoder.log_density(*filled(x), z)
        there = known.any(dim=1)
        prior = prior if self.mixture is None else self.mixture()
        if prior is not None:
            value = fits - beta * prior.divergence(posterior.mean, posterior.log_variance, z)
            value = value * there
            if self.pseudo is None:
                return value
            own = self._of_pseudo(self.pseudo.points)
            held = [part.detach() for part in (*posterior, z)]
            follows = own.expected(held[0], held[1], held[2]) * there
            return value + follows - follows.detach()
        each = posterior.divergences()
        value = (fits - beta * each.sum(dim=1)) * there
        if free_bits:
            mean = (each * there[:, None]).sum(dim=0) / there.sum().clamp(min=1)
            value = value - beta * lacking(mean, free_bits)
        return value

    def _of_pseudo(self, points: Tensor) -> Gaussians:
        """Return eq. (3) of `models.prior` of α (K, p); the encoder has no slopes."""
        held = {name: value.detach() for name, value in self.encoder.named_parameters()}

        def encode(rows: Tensor, known: Tensor) -> Posterior:
            return torch.func.functional_call(self.encoder, held, (rows, known))

        return pseudo_prior(points, encode)

    def divergences(self, x: Tensor) -> Tensor:
        """Return KL_i of each row of x (n, p): (n, q)."""
        held, known = self.seen(x)
        return self.encoder(held, known).divergences() * known.any(dim=1, keepdim=True)

    def latent(self, x: Tensor) -> Tensor:
        """Return m of each row of x (n, p): (n, q)."""
        held, known = self.seen(x)
        mean = self.encoder(held, known).mean
        if self.mixture is None:
            return mean * known.any(dim=1, keepdim=True)
        prior = self.mixture()
        return torch.where(
            known.any(dim=1, keepdim=True), mean, prior.log_weights.exp() @ prior.means
        )

    def latent_draw(self, x: Tensor, seed: int) -> Tensor:
        """Return m + τε of each row of x (n, p): (n, q)."""
        held, known = self.seen(x)
        noise = drawn(seed, (len(x), self.latents), x)
        points = self.encoder(held, known).points(noise)[0]
        if self.mixture is not None:
            prior = self.mixture()
            uniform = torch.rand(
                len(x), generator=torch.Generator().manual_seed(seed & 0xFFFFFFFF)
            ).to(x)
            ends = prior.log_weights.exp().cumsum(dim=0)
            at = torch.searchsorted(ends, uniform).clamp(max=len(ends) - 1)
            noise = prior.means[at] + (0.5 * prior.log_variances[at]).exp() * noise
        return torch.where(known.any(dim=1, keepdim=True), points, noise)

    def decode(self, z: Tensor) -> Tensor:
        """Return E[x|z] (n, p) of z (n, q)."""
        return self.decoder(z)

    def draw(self, z: Tensor, seed: int) -> Tensor:
        """Return a draw (n, p) from p(x|z) of z (n, q)."""
        return self.decoder.draw(z, seed)

    def rounded(self, x: Tensor) -> Tensor:
        """Return x (n, p) as a table can hold it."""
        return self.decoder.rounded(x)

    def variance(self) -> Tensor:
        """Return σ² (p,)."""
        return self.decoder.variance()

    def may_fill(self, known: Tensor) -> Tensor:
        """Return all entries of rows with a known one."""
        return known.any(dim=1, keepdim=True).expand_as(known)


def pseudo_prior(points: Tensor, encode: Callable[[Tensor, Tensor], Posterior]) -> Gaussians:
    """Return eq. (3) of `models.prior` of pseudo-inputs (K, p), whose entries are all known."""
    mean, log = encode(points, torch.ones_like(points, dtype=torch.bool))
    weight = -math.log(len(points))
    return Gaussians(torch.full_like(mean[:, 0], weight), mean, log)


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
