"""RadialGAN at one site: an encoder, a decoder and a discriminator around a latent space.

Yoon, Jordon, van der Schaar, "RadialGAN: leveraging multiple datasets to improve target-specific
predictive models using generative adversarial networks", ICML 2018; GenoMed4All D6.2, section 5.2.
A record of site i is r = (x, y): the columns that the site has, and the outcome. With F its encoder
into the latent space, G its decoder, D = σ(l) its discriminator, and z_j the codes of site j:

    L_adv = E ln D(r) + Σ_{j≠i} α_ij E ln(1 − D(G(z_j)))                                   (1)
    L_cyc = E |r − G(F(r))| + Σ_{j≠i} α_ij E |z_j − F(G(z_j))|                             (2)
    min over F, G, max over D, of L_adv + λ L_cyc                                          (3)

with Euclidean norms, Σ_{j≠i} α_ij = 1. Eq. (3) of D6.2 is its (5.7), summed over sites; what site j
adds to it by its encoder, the slope by z_j, goes back to site j, or not (`algorithms.radialgan`).

Records have p places: all columns of the study, then those of the outcome. A site has some of them
(`own`); the others are 0 in all its records, real or decoded, so one network suits all sites.
Numbers are decoded as they are, a binary column as σ(·), levels by a softmax whose first output, of
the reference level, is 0. Missing entries of an own column are 0, the mean of standard scales.

Nothing in (1) to (3) makes a code mean the same at two sites. Places that are `carried`, such as
the outcome, pass through unchanged: z = (F(r), r_c), and G copies its last places into r_c. Without
any it is the paper.

θ holds F's layers, then G's, then D's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.data.prepare import Head, heads_from
from fedcohort.models.layers import dense


class Losses(NamedTuple):
    """Eqs. (1) and (2) of some records and codes, and D's values: () each."""

    adversarial: Tensor
    cycle: Tensor
    fooled: Tensor


@dataclass(frozen=True, kw_only=True)
class Radial:
    """The three networks of a site.

    Attributes
    ----------
    inputs : p, places of a record.
    latent : q, of F.
    carried : places that pass through the latent space; a code has q + len(carried) places.
    heads : of the places, as of `data.prepare.plain_heads`; numbers of any kind.
    hidden : widths of the hidden layers of F and D; G has them in reverse.
    activation : after each hidden layer, a name in `layers.ACTIVATIONS`.
    """

    kind: ClassVar[str] = "radial"

    inputs: int
    latent: int
    heads: Sequence[Sequence[Any]]
    hidden: tuple[int, ...] = (32,)
    activation: str = "relu"
    carried: tuple[int, ...] = ()

    @property
    def spec(self) -> str:
        """JSON text that determines the networks."""
        return json.dumps({"kind": self.kind, **dataclasses.asdict(self)}, sort_keys=True)

    def build(self) -> RadialNet:
        """Return the module with uninitialised parameters."""
        return RadialNet(self)


class RadialNet(nn.Module):
    """Module of eqs. (1) to (3)."""

    def __init__(self, net: Radial):
        super().__init__()
        self.latent = net.latent
        self.codes = net.latent + len(net.carried)
        carried = torch.tensor(net.carried, dtype=torch.long)
        self.register_buffer("_carried", carried, persistent=False)
        self.decoded = Decoded(heads_from(net.heads), net.inputs)

        def stack(inputs: int, widths: Sequence[int], outputs: int) -> nn.Sequential:
            return nn.Sequential(*dense(inputs, widths, net.activation, 0.0, outputs, bias=True))

        self.encoder = stack(net.inputs, net.hidden, net.latent)
        self.decoder = stack(self.codes, net.hidden[::-1], self.decoded.outputs)
        self.judge = stack(net.inputs, net.hidden, 1)

    def encode(self, r: Tensor) -> Tensor:
        """Return codes (n, q + c) of records (n, p), 0 where missing."""
        return torch.cat([self.encoder(r), r[:, self.get_buffer("_carried")]], dim=1)

    def decode(self, z: Tensor, own: Tensor) -> Tensor:
        """Return records G(z) (n, p) of codes, 0 outside the places `own` (p,), 0 or 1."""
        made = self.decoded(self.decoder(z))
        return made.index_copy(1, self.get_buffer("_carried"), z[:, self.latent :]) * own

    def logit(self, r: Tensor) -> Tensor:
        """Return l (n,) of records (n, p): D = σ(l) is the probability that they are real."""
        return self.judge(r)[:, 0]

    @property
    def size_of_judge(self) -> int:
        """Number of D's parameters, the last of θ."""
        return sum(p.numel() for p in self.judge.parameters())

    @property
    def size_of_encoder(self) -> int:
        """Number of F's parameters, the first of θ."""
        return sum(p.numel() for p in self.encoder.parameters())

    def losses(self, r: Tensor, z: Tensor, weights: Tensor, own: Tensor) -> Losses:
        """Return eqs. (1) and (2).

        Parameters
        ----------
        r : (n, p), the site's records. z : (m, q + c), codes of other sites. own : (p,).
        weights : (m,), α_ij over the number of codes of site j; they add to 1.
        """
        made = self.decode(z, own)
        real, false = self.logit(r), self.logit(made)
        fooled = weights @ functional.logsigmoid(-false)
        back = _norm(r - self.decode(self.encode(r), own)).mean()
        again = weights @ _norm(z - self.encode(made))
        return Losses(functional.logsigmoid(real).mean() + fooled, back + again, fooled)


class Decoded(nn.Module):
    """Outputs (…, D) of a decoder → records (…, p).

    Attributes
    ----------
    outputs : D; K − 1 for a category of K levels, 1 for each other head.
    """

    _at: Tensor
    _pairs: Tensor

    def __init__(self, heads: Sequence[Head], inputs: int):
        super().__init__()
        self.outputs = sum(len(h.at) for h in heads)
        order = torch.tensor([j for h in heads for j in h.at], dtype=torch.long)
        back = torch.empty(inputs, dtype=torch.long)
        back[order] = torch.arange(len(order))
        self.register_buffer("_back", back, persistent=False)
        sizes = [len(h.at) for h in heads]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        binary = [(s, h) for s, h in zip(starts, heads, strict=True) if h.kind == "bernoulli"]
        self._levels = [
            slice(s, s + len(h.at))
            for s, h in zip(starts, heads, strict=True)
            if h.kind in ("categorical", "ordinal")
        ]
        at = torch.tensor([s for s, _ in binary], dtype=torch.long)
        self.register_buffer("_at", at, persistent=False)
        pairs = torch.tensor([[h.shift, h.scale] for _, h in binary], dtype=torch.float64)
        self.register_buffer("_pairs", pairs.reshape(-1, 2), persistent=False)

    def forward(self, y: Tensor) -> Tensor:
        """Return records of outputs, in x's units."""
        parts = y.clone()
        shift, scale = self._pairs.to(y).T
        parts[..., self._at] = (torch.sigmoid(y[..., self._at]) - shift) / scale
        for level in self._levels:
            logits = functional.pad(y[..., level], (1, 0))
            parts[..., level] = logits.softmax(dim=-1)[..., 1:]
        return parts[..., self.get_buffer("_back")]


def _norm(d: Tensor) -> Tensor:
    """Return the Euclidean norm of each row (n,); its slope at 0 is 0."""
    return torch.linalg.vector_norm(d, dim=1)
