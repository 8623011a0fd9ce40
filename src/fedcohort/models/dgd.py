"""Deep generative decoder: a decoder, and a Gaussian mixture of representations, without encoder.

Schuster and Krogh, "The deep generative decoder", arXiv:2110.06672; Bioinformatics 39(9), 2023;
GenoMed4All D6.2, chapter 9. Of a row x with known entries O, its representation z (q,), and the
mixture φ = (π, μ, s) of K components with log precisions s_k (q,):

    ln p(x | z) = Σ_{j∈O} ln p(x_j | y(z)),   y the decoder, p of `models.likelihoods`      (1)
    ln p(z | φ) = ln Σ_k π_k N(z; μ_k, diag e^{−s_k})                                        (2)
    ln p(φ) = Σ_k softball(μ_k) + (α − 1) Σ_k ln π_k − Σ_k ‖s_k + 2 ln σ₀‖²/(2τ²)            (3)
    softball(μ) = −ln(1 + exp(a (‖μ‖/r − 1)))                                                (4)

up to constants. Decoder, φ and the z of all rows are estimated together (MAP): a training step goes
down the slope of the mean over rows of

    −ln p(x | z) − ln p(z | φ) − w ln p(φ) + ½λ‖W‖²,   W the decoder's weights               (5)

Scale. The decoder can undo any shift and scale of z, so (5) alone has no minimum of use: z, μ and σ
shrink together while the decoder grows, and each factor c adds q ln c to (2) for each row. So the
mixture is standardised: from free parameters μ', s' and π, with m = Σ π_k μ'_k and, by coordinate,
T = Σ_k π_k ((μ'_k − m)² + e^{−s'_k}),

    μ_k = (μ'_k − m) r/√(qT),   s_k = s'_k + ln(qT/r²)                                      (6)

which has mean 0 and E‖z‖² = r². One component is then N(0, r²/q), with nothing to learn. Slopes
in π leave m and T as they are, so that with α = 1 π_k ends as the mean of p(k | z) over rows. In
the authors' code p(φ) counts once for each row (w = 1). z have no decay of their own: (2) is their
prior, which would count twice.

A new row's z is sought by `models.representations`.

θ holds μ', (s' + 2 ln σ₀) and ln π up to a constant, each divided by `pace`, so that one learning
rate moves the mixture `pace` times as fast as the decoder; then the decoder's layers, and the
parameters of the entries' distributions.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.data.prepare import Head, heads_from
from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.likelihoods import Likelihoods, sizes_of
from fedcohort.models.variational import filled


@dataclass(frozen=True, kw_only=True)
class Dgd:
    """A decoder of p outputs with a mixture of K components.

    Attributes
    ----------
    inputs : p.
    latent : q.
    hidden : widths of the decoder's hidden layers, from z on.
    activation : after each hidden layer, a name in `layers.ACTIVATIONS`.
    components : K.
    radius, sharpness : r and a of eq. (4).
    alpha : α of eq. (3).
    spread, spread_sd : σ₀ and τ of eq. (3).
    pace : of the mixture's parameters; see the header.
    free : whether the mixture is μ', s' and π itself, not eq. (6).
    heads : of all columns, by `data.prepare.plain_heads`; () for normal entries.
    """

    kind: ClassVar[str] = "dgd"

    inputs: int
    latent: int
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    components: int = 20
    radius: float = 1.0
    sharpness: float = 1.0
    alpha: float = 1.0
    spread: float = 0.1
    spread_sd: float = 1.0
    pace: float = 10.0
    free: bool = False
    heads: Sequence[Sequence[Any]] = ()

    @property
    def spec(self) -> str:
        """JSON text that determines the network."""
        return json.dumps({"kind": self.kind, **dataclasses.asdict(self)}, sort_keys=True)

    @property
    def of_columns(self) -> tuple[Head, ...]:
        """The heads of all columns."""
        normal = (Head(name="", kind="normal", at=(j,)) for j in range(self.inputs))
        return heads_from(self.heads) or tuple(normal)

    @property
    def size(self) -> int:
        """Return P, the length of θ."""
        outputs, own = sizes_of(self.of_columns)
        sizes = (self.latent, *self.hidden, outputs)
        decoder = sum((a + 1) * b for a, b in pairwise(sizes)) + own
        return decoder + self.components * (2 * self.latent + 1)

    def build(self) -> DgdNet:
        """Return the module with uninitialised parameters."""
        return DgdNet(self)


class DgdNet(nn.Module):
    """Module of eqs. (1) to (4); rows x (n, p) may hold NaN."""

    def __init__(self, net: Dgd):
        super().__init__()
        self.net = net
        sizes = (net.latent, *net.hidden)
        parts: list[nn.Module] = []
        for a, b in pairwise(sizes):
            parts += [nn.utils.skip_init(nn.Linear, a, b), ACTIVATIONS[net.activation]()]
        entries = Likelihoods(net.of_columns)
        parts.append(nn.utils.skip_init(nn.Linear, sizes[-1], entries.outputs))
        self._decoder = nn.Sequential(*parts)
        self.entries = entries
        shape = (net.components, net.latent)
        self._means = nn.Parameter(torch.empty(shape))
        self._precisions = nn.Parameter(torch.empty(shape))
        self._weights = nn.Parameter(torch.empty(net.components))

    @property
    def means(self) -> Tensor:
        """Return μ (K, q)."""
        return self.mixture()[0]

    @property
    def log_precisions(self) -> Tensor:
        """Return s (K, q)."""
        return self.mixture()[1]

    def mixture(self) -> tuple[Tensor, Tensor]:
        """Return μ and s (K, q), eq. (6)."""
        net = self.net
        means = net.pace * self._means
        logs = net.pace * self._precisions - 2.0 * math.log(net.spread)
        if net.free:
            return means, logs
        shares = self.log_weights.detach().exp()[:, None]
        off = means - (shares * means).sum(dim=0)
        total = (shares * (off.square() + (-logs).exp())).sum(dim=0)
        unit = net.latent * total / net.radius**2
        return off * unit.rsqrt(), logs + unit.log()

    @property
    def log_weights(self) -> Tensor:
        """Return ln π (K,)."""
        return functional.log_softmax(self.net.pace * self._weights, dim=0)

    def begin(self, draws: np.random.Generator) -> None:
        """Draw the means from the ball, of one component 0, and make all alike else."""
        k, q = self._means.shape
        way = draws.standard_normal((k, q))
        far = self.net.radius * draws.random((k, 1)) ** (1.0 / q) * (k > 1)
        at = way / np.linalg.norm(way, axis=1, keepdims=True) * far
        with torch.no_grad():
            self._means.copy_(torch.from_numpy(at / self.net.pace))

    def mix(self, means: Tensor, variances: Tensor, weights: Tensor) -> None:
        """Write the mixture's μ (K, q), its variances (K, q) and π (K,)."""
        scale = -variances.log() + 2.0 * math.log(self.net.spread)
        with torch.no_grad():
            for own, wanted in (
                (self._means, means), (self._precisions, scale), (self._weights, weights.log()),
            ):  # fmt: skip
                own.copy_(wanted / self.net.pace)

    def rescale(self, shift: Tensor, scale: Tensor) -> None:
        """Change the decoder to one that gives of (z − shift)/scale what it gave of z (q,)."""
        first = next(m for m in self._decoder if isinstance(m, nn.Linear))
        with torch.no_grad():
            first.bias.add_(first.weight @ shift)
            first.weight.mul_(scale)

    def decode(self, z: Tensor) -> Tensor:
        """Return the decoder's outputs y (…, n, D) of z (…, n, q)."""
        return self._decoder(z)

    def fits(self, held: Tensor, known: Tensor, z: Tensor) -> Tensor:
        """Return eq. (1) (…, n) of rows with 0 for missing entries, given z (…, n, q)."""
        return self.entries.log_density(held, known, self.decode(z)).sum(dim=-1)

    def log_components(self, z: Tensor) -> Tensor:
        """Return ln π_k N(z; μ_k, diag e^{−s_k}) (…, n, K) of z (…, n, q)."""
        m, s = self.mixture()
        b = s.exp()
        # ‖z − μ‖² by its three products, which needs no array of n K q numbers.
        far = z.square() @ b.T - 2.0 * (z @ (b * m).T) + (b * m.square()).sum(dim=1)
        each = 0.5 * (s.sum(dim=1) - self.net.latent * math.log(2.0 * math.pi) - far)
        return self.log_weights + each

    def log_prior(self, z: Tensor) -> Tensor:
        """Return eq. (2) (…, n) of z (…, n, q)."""
        return torch.logsumexp(self.log_components(z), dim=-1)

    def log_joint(self, x: Tensor, z: Tensor) -> Tensor:
        """Return (1) + (2) (n,) of rows x (n, p) with the representations z (n, q)."""
        return self.fits(*filled(x), z) + self.log_prior(z)

    def log_hyperprior(self) -> Tensor:
        """Return eq. (3) ()."""
        net = self.net
        means, logs = self.mixture()
        far = means.norm(dim=1) / net.radius - 1.0
        ball = -functional.softplus(net.sharpness * far).sum()
        shares = (net.alpha - 1.0) * self.log_weights.sum()
        off = logs + 2.0 * math.log(net.spread)
        scale = off.square().sum() / (2.0 * net.spread_sd**2)
        return ball + shares - scale

    def decay(self) -> Tensor:
        """Return ½‖W‖² () of the decoder's weights."""
        squares = [m.weight.square().sum() for m in self._decoder if isinstance(m, nn.Linear)]
        return 0.5 * torch.stack(squares).sum()
