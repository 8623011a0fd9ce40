"""Deep embedded clustering: an autoencoder with k centroids in its latent space.

Xie et al., ICML 2016; thesis 003, section 2.1.1, eqs. 2.18 to 2.20, signs and indices corrected.
With latent points z_i (d,), centroids μ_j (d,) and Student's t with α degrees of freedom:

    q_ij = (1 + ‖z_i − μ_j‖²/α)^(−(α+1)/2) / Σ_j' (1 + ‖z_i − μ_j'‖²/α)^(−(α+1)/2)         (1)
    p_ij = (q_ij²/f_j) / Σ_j' (q_ij'²/f_j'),   f_j = Σ_i q_ij                             (2)

f_j sums over the rows i of all sites, so that a site's rows of P are those of the pooled table.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from fedcohort.arrays import Array
from fedcohort.models.autoencoder import Autoencoder, AutoencoderNet

Rows = TypeVar("Rows", Array, Tensor)


@dataclass(frozen=True, kw_only=True)
class Dec(Autoencoder):
    """An autoencoder with centroids; its θ is that of the autoencoder, then μ (k, d) row by row.

    Attributes
    ----------
    clusters : k.
    alpha : α > 0 of eq. (1).
    """

    kind: ClassVar[str] = "dec"

    clusters: int
    alpha: float = 1.0

    @classmethod
    def of(cls, autoencoder: Autoencoder, clusters: int, alpha: float = 1.0) -> Dec:
        """Return this autoencoder with k centroids."""
        return cls(**dataclasses.asdict(autoencoder), clusters=clusters, alpha=alpha)

    def build(self) -> DecNet:
        """Return the module with uninitialised parameters."""
        return DecNet(self)


class DecNet(AutoencoderNet):
    """The autoencoder's module, with `centroids` as the last of its parameters."""

    def __init__(self, dec: Dec):
        super().__init__(dec)
        self.alpha = dec.alpha
        self._clusters = _Centroids(dec.clusters, dec.widths[-1])

    @property
    def centroids(self) -> Tensor:
        """μ (k, d)."""
        return self._clusters.mu

    def log_assign(self, z: Tensor) -> Tensor:
        """Return ln q (n, k), eq. (1), of z (n, d)."""
        return log_assignment(z, self.centroids, self.alpha)


class _Centroids(nn.Module):
    def __init__(self, k: int, d: int):
        super().__init__()
        self.mu = nn.Parameter(torch.empty(k, d))


def log_assignment(z: Tensor, mu: Tensor, alpha: float) -> Tensor:
    """Return ln q (n, k), eq. (1), of z (n, d) and μ (k, d)."""
    square = (z[:, None, :] - mu).square().sum(dim=2)
    return torch.log_softmax(-0.5 * (alpha + 1.0) * torch.log1p(square / alpha), dim=1)


def target(q: Rows, f: Rows) -> Rows:
    """Return p (n, k), eq. (2), of q (n, k) and f (k,), the sum of q over the rows of all sites.

    A cluster with f_j = 0 has q_ij = 0 in all rows, and p_ij = 0.
    """
    weight: Any = f + (f == 0)
    share: Any = q * (q / weight)
    return share / share.sum(1)[:, None]
