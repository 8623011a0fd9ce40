"""Multi-channel variational autoencoder: one encoder and one decoder for each view of a row.

Antelmi et al., "Sparse multi-channel variational autoencoder for the joint analysis of
heterogeneous data", ICML 2019 (PMLR 97), without the sparse prior. All views share z ~ N(0, I_q).
With V the views in which a row has an entry, and O_j its known entries of view j (missing views and
entries have no term):

    ELBO = 1/|V| Σ_{k∈V} { E_{q(z|x_k)} Σ_{j∈V} Σ_{i∈O_j} ln p(x_i|z) − β KL_k }              (1)
    KL_k = KL(q(z|x_k) ‖ N(0, I))

Encoders, decoders and KL are those of `models.vae`; with one view (1) is its eq. (3).

Every encoder is trained to give the posterior of all views from its own view. For prediction,
"mean" takes the mean of the encoders' means over a row's views, that of the mixture of posteriors
in (1). "product" weights them by precision,

    m_i = Σ_k τ_ki⁻² m_ki / Σ_k τ_ki⁻²                                                       (2)

the mean of the product of the posteriors, in which an uninformative view has little weight.

θ holds, view after view, the encoder and the decoder, as in `models.vae`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.models.vae import Decoder, Encoder, LatentNet, Posterior, Vae, drawn, filled

#: Ways to combine the posteriors of several views.
COMBINATIONS = ("mean", "product")


@dataclass(frozen=True, kw_only=True)
class Mcvae:
    """A multi-channel variational autoencoder.

    Attributes
    ----------
    views : number of the view of each of the p inputs (p,): 0 … K−1, without gaps.
    latent, hidden, activation, sees_mask : of each view's encoder and decoder, as in `vae.Vae`.
    combine : one of `COMBINATIONS`; training is the same.

    Raises
    ------
    ValueError : a number from 0 to the largest has no input.
    """

    kind: ClassVar[str] = "mcvae"

    views: tuple[int, ...]
    latent: int
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    sees_mask: bool = False
    combine: str = "mean"

    def __post_init__(self) -> None:
        found = sorted({*self.views})
        if found != list(range(len(found))):
            raise ValueError(f"views are numbered {found}; number them from 0, without gaps.")

    @property
    def spec(self) -> str:
        """JSON text that determines the network."""
        return json.dumps({"kind": self.kind, **dataclasses.asdict(self)}, sort_keys=True)

    @property
    def parts(self) -> list[Vae]:
        """The autoencoder of each view."""
        return [
            Vae(
                inputs=int(inputs),
                latent=self.latent,
                hidden=self.hidden,
                activation=self.activation,
                sees_mask=self.sees_mask,
            )
            for inputs in np.bincount(np.array(self.views, int))
        ]

    @property
    def size(self) -> int:
        """Return P, the length of θ."""
        return sum(part.size for part in self.parts)

    def build(self) -> McvaeNet:
        """Return the module with uninitialised parameters."""
        return McvaeNet(self)


class _View(nn.Module):
    """The encoder and the decoder of one view."""

    def __init__(self, part: Vae):
        super().__init__()
        self.encoder = Encoder(part)
        self.decoder = Decoder(part)


class McvaeNet(LatentNet):
    """Module of eq. (1)."""

    def __init__(self, net: Mcvae):
        super().__init__()
        self.latents, self._product = net.latent, net.combine == "product"
        self._views = [_View(part) for part in net.parts]
        self.views = nn.ModuleList(self._views)
        of = torch.tensor(net.views)
        order = of.argsort(stable=True)
        self._widths = of.bincount().tolist()
        self.register_buffer("_of", of)
        self.register_buffer("_order", order)
        self.register_buffer("_back", order.argsort())

    def elbo(self, x: Tensor, beta: float, seed: int | None) -> Tensor:
        """Return eq. (1) of each row of x (n, p): (n,)."""
        parts = [filled(part) for part in self._split(x)]
        has = _any(known for _, known in parts)
        every = self._encoded(parts)
        posterior = Posterior(every.mean[has], every.log_variance[has])
        noise = None if seed is None else drawn(seed, every.mean.shape, x)[has]
        z, value = posterior.points(noise), -beta * posterior.divergence()
        rows = has.nonzero()[:, 1]  # row of each posterior, view after view
        for view, (held, known) in zip(self._views, parts, strict=True):
            value = value + view.decoder.log_density(held[rows], known[rows], z)
        return x.new_zeros(len(x)).index_add(0, rows, value) / has.sum(dim=0).clamp(min=1)

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        """Return the columns (n, d_k) of each view, from those of all (n, p)."""
        return x.index_select(1, self.get_buffer("_order")).split(self._widths, dim=1)

    def _encoded(self, parts: Sequence[tuple[Tensor, Tensor]]) -> Posterior:
        """Return the posterior of each view's encoder: (K, n, q)."""
        found = [view.encoder(*part) for view, part in zip(self._views, parts, strict=True)]
        means, logs = (torch.stack(each) for each in zip(*found, strict=True))
        return Posterior(means, logs)

    def latent(self, x: Tensor) -> Tensor:
        """Return the mean of z given the views of each row of x (n, p): (n, q)."""
        parts = [filled(part) for part in self._split(x)]
        posterior, has = self._encoded(parts), _any(known for _, known in parts)
        log = -posterior.log_variance if self._product else torch.zeros_like(posterior.mean)
        weights = log.masked_fill(~has[:, :, None], -torch.inf)
        shares = weights.softmax(dim=0).nan_to_num(0.0)  # a row without a view gives 0/0
        return (shares * posterior.mean).sum(dim=0)

    def decode(self, z: Tensor) -> Tensor:
        """Return y (n, p) of z (n, q)."""
        y = torch.cat([view.decoder(z) for view in self._views], dim=1)
        return y.index_select(1, self.get_buffer("_back"))

    def variance(self) -> Tensor:
        """Return σ² (p,)."""
        each = torch.cat([view.decoder.variance() for view in self._views])
        return each[self.get_buffer("_back")]

    def may_fill(self, known: Tensor) -> Tensor:
        """Return the entries of views that a row has."""
        return _any(self._split(known)).t()[:, self.get_buffer("_of")]


def _any(parts: Iterable[Tensor]) -> Tensor:
    """Return which rows have an entry of each view (K, n), from the known entries (n, d_k) of
    each.
    """
    return torch.stack([known.any(dim=1) for known in parts])
