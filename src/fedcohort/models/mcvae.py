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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.models.vae import Decoder, Encoder, Vae, spec_of
from fedcohort.models.variational import LatentNet, Posterior, drawn, filled, lacking, log_standard

#: Ways to combine the posteriors of several views.
COMBINATIONS = ("mean", "product")


@dataclass(frozen=True, kw_only=True)
class Mcvae:
    """A multi-channel variational autoencoder.

    Attributes
    ----------
    views : number of the view of each of the p inputs (p,): 0 … K−1, without gaps.
    latent, hidden, activation, sees_mask : of each view's encoder and decoder, as in `vae.Vae`.
    heads : of all columns, by `data.prepare.plain_heads`, or ().
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
    heads: Sequence[Sequence[Any]] = ()

    def __post_init__(self) -> None:
        found = sorted({*self.views})
        if found != list(range(len(found))):
            raise ValueError(f"views are numbered {found}; number them from 0, without gaps.")

    @property
    def spec(self) -> str:
        """JSON text that determines the network; no heads are not written."""
        return spec_of(self)

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
                heads=self._heads_of(view),
            )
            for view, inputs in enumerate(np.bincount(np.array(self.views, int)))
        ]

    def _heads_of(self, view: int) -> list[list[Any]]:
        """Return the heads of one view, with their places among its inputs."""
        place = {j: k for k, j in enumerate(np.flatnonzero(np.array(self.views) == view).tolist())}
        return [
            [kind, [place[j] for j in at], *rest]
            for kind, at, *rest in self.heads
            if self.views[at[0]] == view
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

    def elbo(self, x: Tensor, beta: float, seed: int | None, free_bits: float = 0.0) -> Tensor:
        """Return eq. (1) of each row of x (n, p): (n,)."""
        parts = [filled(part) for part in self._split(x)]
        has = _any(known for _, known in parts)
        every = self._encoded(parts)
        posterior = Posterior(every.mean[has], every.log_variance[has])
        noise = None if seed is None else drawn(seed, every.mean.shape, x)[has]
        each = posterior.divergences()
        z, value = posterior.points(noise), -beta * each.sum(dim=1)
        rows = has.nonzero()[:, 1]  # row of each posterior, view after view
        for view, (held, known) in zip(self._views, parts, strict=True):
            value = value + view.decoder.log_density(held[rows], known[rows], z)
        views = has.sum(dim=0).clamp(min=1)
        found = x.new_zeros(len(x)).index_add(0, rows, value) / views
        if free_bits:
            mean = (each / views[rows, None]).sum(dim=0) / has.any(dim=0).sum().clamp(min=1)
            found = found - beta * lacking(mean, free_bits)
        return found

    def divergences(self, x: Tensor) -> Tensor:
        """Return the mean over the views of each row of x (n, p) of their KL_i: (n, q)."""
        parts = [filled(part) for part in self._split(x)]
        has = _any(known for _, known in parts)
        each = self._encoded(parts).divergences() * has[:, :, None]
        return each.sum(dim=0) / has.sum(dim=0).clamp(min=1)[:, None]

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
        posterior, shares, _ = self._shared(x)
        return (shares * posterior.mean).sum(dim=0)

    def latent_draw(self, x: Tensor, seed: int) -> Tensor:
        """Return a draw of z given the views of each row of x (n, p): (n, q).

        "mean" draws one of a row's views, and z from its posterior; "product" draws from (2).
        """
        posterior, shares, has = self._shared(x)
        noise = drawn(seed, posterior.mean.shape[1:], x)
        if self._product:
            precision = torch.where(has[:, :, None], (-posterior.log_variance).exp(), 0.0).sum(0)
            points = (shares * posterior.mean).sum(dim=0) + noise / precision.sqrt()
        else:
            order = drawn(seed + 1, has.shape, x).masked_fill(~has, -torch.inf)
            one = order.argmax(dim=0)[None, :, None].expand(1, -1, noise.shape[1])
            mean, log = (part.gather(0, one)[0] for part in posterior)
            points = mean + (0.5 * log).exp() * noise
        return torch.where(has.any(dim=0)[:, None], points, noise)

    def _shared(self, x: Tensor) -> tuple[Posterior, Tensor, Tensor]:
        """Return the posterior of each view (K, n, q), its shares in the mean, and which views a
        row has (K, n).
        """
        parts = [filled(part) for part in self._split(x)]
        posterior, has = self._encoded(parts), _any(known for _, known in parts)
        log = -posterior.log_variance if self._product else torch.zeros_like(posterior.mean)
        weights = log.masked_fill(~has[:, :, None], -torch.inf)
        # A row without a view gives 0/0.
        return posterior, weights.softmax(dim=0).nan_to_num(0.0), has

    def decode(self, z: Tensor) -> Tensor:
        """Return E[x|z] (n, p) of z (n, q)."""
        return self._joined([view.decoder(z) for view in self._views])

    def draw(self, z: Tensor, seed: int) -> Tensor:
        """Return a draw (n, p) from p(x|z) of z (n, q)."""
        return self._joined([v.decoder.draw(z, seed + i) for i, v in enumerate(self._views)])

    def rounded(self, x: Tensor) -> Tensor:
        """Return x (n, p) as a table can hold it."""
        parts = zip(self._views, self._split(x), strict=True)
        return self._joined([view.decoder.rounded(part) for view, part in parts])

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the columns (n, p) of all views from those of each (n, d_k)."""
        return torch.cat([*parts], dim=1).index_select(1, self.get_buffer("_back"))

    def log_joint(self, x: Tensor, z: Tensor) -> Tensor:
        """Return ln p(x_O|z) + ln p(z) of each row of x (n, p), at z (n, q): (n,)."""
        parts = zip(self._views, self._split(x), strict=True)
        each = [view.decoder.log_density(*filled(part), z[None]) for view, part in parts]
        return torch.stack(each).sum(dim=0) + log_standard(z)

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
