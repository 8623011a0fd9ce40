"""Parameters of multi-view probabilistic PCA, and their prior.

Balelli et al. (2022), section 3.1.2: a row t of K views has one latent x ~ N(0, I_q), and

    t^(k) = W^(k) x + μ^(k) + ε,   ε ~ N(0, σ_k² I)                                        (1)
    μ^(k) ~ N(μ̃, σ_μ̃² I),  W^(k) ~ MN(W̃, I, σ_W̃² I),  σ_k² ~ InvGamma(α̃, β̃)              (4-6)

Sites also differ in their patients: x ~ N(m, I) at a site, m ~ N(0, τ² I). The paper has no m: a
difference between groups of patients goes into each μ^(k), and if sites lack different views, the
μ̃^(k) of these do not match.

All views are side by side: μ is (p,), W is (p, q), and `Views` has the view of each column. With a
σ² for each column instead of each view, this is factor analysis: then the explained variance does
not depend on the units of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedcohort.arrays import Array


@dataclass(frozen=True, eq=False)
class Views:
    """Views of p columns, and the number of latent dimensions.

    Attributes
    ----------
    of : (p,) numbers of views, from 0.
    q : latent dimensions.
    narrow : whether a view of d_k ≤ q columns may use all q of them. Otherwise it uses the first
        d_k − 1, and at least one; the other columns of its W are 0 (section 4.3.1).
    each : whether each column has its own σ².
    """

    of: Array
    q: int
    narrow: bool = False
    each: bool = False

    @cached_property
    def count(self) -> int:
        """Number of views, K."""
        return int(self.of.max()) + 1

    @cached_property
    def noise(self) -> Array:
        """Number of the σ² of each column (p,), from 0."""
        return np.arange(len(self.of)) if self.each else self.of

    @cached_property
    def noises(self) -> int:
        """Number of σ², G."""
        return int(self.noise.max()) + 1

    @cached_property
    def widths(self) -> Array:
        """Columns of each view, d_k (K,)."""
        return np.bincount(self.of, minlength=self.count)

    @cached_property
    def used(self) -> Array:
        """Number of free columns of W^(k) (K,)."""
        d = self.widths
        return np.where((d <= self.q) & (not self.narrow), np.maximum(d - 1, 1), self.q)

    @cached_property
    def free(self) -> Array:
        """Free entries of W (p, q)."""
        return np.arange(self.q) < self.used[self.of][:, None]

    def total(self, values: Array) -> Array:
        """Return the sums by view (K,) of values by column (p,) or (p, q)."""
        each = values if values.ndim == 1 else values.sum(axis=1)
        return np.bincount(self.of, weights=each, minlength=self.count)

    def pooled(self, values: Array) -> Array:
        """Return the sums by noise (G,) of values by column (p,)."""
        return np.bincount(self.noise, weights=values, minlength=self.noises)


@dataclass(frozen=True, eq=False)
class Theta:
    """Parameters of one site: ``mu`` (p,), ``w`` (p, q), ``variance`` σ² (G,), ``centre`` m (q,).

    Without a centre m is 0.
    """

    mu: Array
    w: Array
    variance: Array
    centre: Array | None = None

    @property
    def offset(self) -> Array:
        """μ + W m (p,): the mean of t."""
        return self.mu if self.centre is None else self.mu + self.w @ self.centre

    @property
    def point(self) -> Array:
        """Mean of x, m (q,)."""
        return np.zeros(self.w.shape[1]) if self.centre is None else self.centre


@dataclass(frozen=True, eq=False)
class Prior:
    """Common distribution of the sites' parameters, eq. (4-6).

    Attributes
    ----------
    mu, w : μ̃ (p,) and W̃ (p, q).
    mu_variance, w_variance : σ_μ̃² and σ_W̃² by view (K,); infinite without information.
    alpha, beta : of the inverse gamma of each noise (G,); −1 and 0 without information.
    centre_variance : τ²; 0 fixes m.
    """

    mu: Array
    w: Array
    mu_variance: Array
    w_variance: Array
    alpha: Array
    beta: Array
    centre_variance: float = 0.0

    @classmethod
    def flat(cls, views: Views) -> Prior:
        """Return the flat prior: its MAP is maximum likelihood."""
        p, k, g = len(views.of), views.count, views.noises
        return cls(
            mu=np.zeros(p), w=np.zeros((p, views.q)),
            mu_variance=np.full(k, np.inf), w_variance=np.full(k, np.inf),
            alpha=np.full(g, -1.0), beta=np.zeros(g),
        )  # fmt: skip

    @property
    def variance(self) -> Array:
        """The middle of σ² (G,): β̃/α̃, the harmonic mean over sites."""
        return self.beta / self.alpha

    @property
    def middle(self) -> Theta:
        """Parameters in the middle, for a site without data."""
        return Theta(self.mu, self.w, self.variance)

    def log_density(self, theta: Theta, views: Views) -> float:
        """Return ln p(θ), without the constants of flat parts."""
        value = 0.0
        for off, spread, size in (
            (np.square(theta.mu - self.mu), self.mu_variance, views.widths),
            (np.square(theta.w - self.w), self.w_variance, views.widths * views.used),
        ):
            known = np.isfinite(spread)
            v = spread[known]
            value -= 0.5 * float((views.total(off)[known] / v + size[known] * np.log(v)).sum())
        s = theta.variance
        if self.centre_variance > 0:
            m = theta.point
            value -= 0.5 * float(m @ m) / self.centre_variance
            value -= 0.5 * len(m) * float(np.log(self.centre_variance))
        return value - float(((self.alpha + 1.0) * np.log(s) + self.beta / s).sum())
