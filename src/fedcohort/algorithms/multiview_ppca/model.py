"""Fitted multi-view PPCA: the common distribution of the sites' parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.algorithms.multiview_ppca.maths import latent
from fedcohort.algorithms.multiview_ppca.maths.model import Prior, Theta, Views
from fedcohort.arrays import Array
from fedcohort.numerics import gaussian
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, kw_only=True, eq=False)
class MultiView(Fitted):
    """Common latent space of several views.

    Rows use the middle of the common distribution. Missing entries, also whole views, are NaN.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    views, of : names of the views, and the view number of each column (p,).
    q, narrow : see `Settings`; ``each``: whether each column has its own noise.
    prior : the common distribution.
    centre, spread : mean (q,) and covariance (q, q) of the sites' latent means.
    rows, empty : rows with an entry, and rows without any at sites that have `min_cell` of these; 0
        for a private fit.
    together : number of sites whose rows have both of two views (K, K).
    sites : number of sites that have each column (p,); 0 for a private fit.
    rounds, settled : of the fit.
    numbers : WAIC by q, a row each.
    deviations : differences of sites, if they were compared.
    """

    features: tuple[str, ...]
    views: tuple[str, ...]
    of: Array
    q: int
    narrow: bool
    each: bool
    prior: Prior
    centre: Array
    spread: Array
    rows: int
    empty: int
    together: Array
    sites: Array
    rounds: int
    settled: bool
    numbers: tuple[Row, ...] = ()
    deviations: tuple[Row, ...] = ()

    @property
    def shape(self) -> Views:
        """The views, as in `algorithms.multiview_ppca.maths`."""
        return Views(self.of, self.q, self.narrow, self.each)

    @property
    def theta(self) -> Theta:
        """Parameters for a patient of any site, with x ~ N(0, I).

        With x ~ N(m̄, I + S) over all sites, W (I + S)^½ becomes W, and μ + W m̄ becomes μ. The
        unknown site's own μ and W are part of the noise.
        """
        middle, shape = self.prior.middle, self.shape
        values, vectors = np.linalg.eigh(np.eye(self.q) + self.spread)
        root = (vectors * np.sqrt(np.maximum(values, 1.0))) @ vectors.T
        view = shape.of[np.unique(shape.noise, True)[1]]
        # mean of σ² over sites; the harmonic mean in the middle is less if sites have few rows
        alpha = self.prior.alpha
        mean = np.where(self._known_from[view] > 1, alpha / np.maximum(alpha - 1.0, 1.0), 1.0)
        variance = middle.variance * mean + self._between[view]
        return Theta(middle.mu + middle.w @ self.centre, middle.w @ root, variance)

    @property
    def _known_from(self) -> Array:
        """Number of sites with each view (K,)."""
        return np.array([self.sites[self.of == k].max() for k in range(len(self.views))])

    @property
    def _between(self) -> Array:
        """Variance of a column from the sites' own μ and W, by view (K,).

        (σ_μ̃² + q σ_W̃²) (C + 1)/(C − 1), as the mean of ‖x‖² is q, and middle and spread are
        estimated from C sites. 0 for views of one site.
        """
        shape = self.shape
        added = self.prior.mu_variance + shape.used * self.prior.w_variance
        c = self._known_from
        fine = (c > 1) & np.isfinite(added)
        return np.where(fine, added * (c + 1) / np.maximum(c - 1, 1), 0.0)

    @property
    def waic(self) -> float:
        """WAIC of the chosen q; NaN if not computed."""
        found = [row["waic"] for row in self.numbers if row["q"] == self.q]
        return float(found[0]) if found else float("nan")

    def transform(self, x: Array) -> Array:
        """Return ⟨x⟩ (n, q) of each row of x (n, p), from its present entries."""
        return latent.posterior(x, self.theta, self.shape).mean

    def posterior(self, x: Array) -> latent.Latent:
        """Return mean (n, q) and covariance (n, q, q) of the latent point of each row of x."""
        return latent.posterior(x, self.theta, self.shape)

    def reconstruct(self, x: Array) -> Array:
        """Return W⟨x⟩ + μ (n, p) of each row of x (n, p), also for missing entries."""
        return latent.reconstruct(x, self.theta, self.shape)

    def impute(self, x: Array) -> Array:
        """Return x (n, p) with missing entries filled by their mean given the others."""
        return latent.complete(x, self.theta, self.shape).mean

    def imputed_sd(self, x: Array) -> Array:
        """Return the standard deviation of each missing entry given the others (n, p), else 0."""
        return latent.complete(x, self.theta, self.shape).sd

    def impute_drawn(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with one draw of its missing entries given the others.

        Parameters are those of the fit: draws do not vary as far as these are unknown.
        """
        theta = self.theta
        covariance = theta.w @ theta.w.T + np.diag(theta.variance[self.shape.noise])
        return gaussian.filled(np.asarray(x, float), theta.mu, covariance, rng)

    def complete(self, x: Array) -> latent.Completed:
        """Return the results of `impute` and `imputed_sd`."""
        return latent.complete(x, self.theta, self.shape)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n rows drawn from the common model (n, p)."""
        return latent.sample(n, self.theta, self.shape, rng)

    def log_densities(self, x: Array) -> Array:
        """Return ln p(t) (n,) of each row of x (n, p), from its present entries."""
        return latent.log_densities(x, self.theta, self.shape)

    def unusual(self, x: Array) -> Array:
        """Return the p-value (n,) of each row of x (n, p), by its distance from the model."""
        return latent.unusual(x, self.theta, self.shape)

    def summary(self) -> list[Row]:
        """Return a row per view: columns, sites, σ, and the share of variance that x explains.

        Also the spread between sites of μ and of W, in the units of x.
        """
        w, prior, shape = self.theta.w, self.prior, self.shape
        explained = shape.total(np.square(w)) / shape.widths
        noise = shape.total(prior.variance[shape.noise]) / shape.widths
        return [
            {
                "view": name or "all", "columns": int(shape.widths[k]),
                "sites": int(self.sites[self.of == k].max()),
                "sigma": float(np.sqrt(noise[k])),
                "explained": float(explained[k] / (explained[k] + noise[k])),
                "sd_mu": float(np.sqrt(prior.mu_variance[k])),
                "sd_w": float(np.sqrt(prior.w_variance[k])),
            }
            for k, name in enumerate(self.views)
        ]  # fmt: skip

    def differences(self) -> list[Row]:
        """Return a row per site and view, and one for a site's patients, with p-values.

        Holm's correction is over all of them. Empty if sites were not compared.
        """
        from scipy.stats import chi2  # slow to import

        found = [row | {"p": float(chi2.sf(row["chi2"], row["df"]))} for row in self.deviations]
        order = sorted(range(len(found)), key=lambda i: found[i]["p"])
        least = 0.0
        for rank, i in enumerate(order):
            least = max(least, min(1.0, found[i]["p"] * (len(order) - rank)))
            found[i]["p_adjusted"] = least
        return found

    def cautions(self) -> tuple[str, ...]:
        """Return cautions: early end of rounds, empty rows, views without common rows, views of one
        site.
        """
        notes: list[str] = []
        if not self.settled:
            notes.append(f"{self.rounds} rounds ended before parameters settled")
        if self.empty:
            notes.append(f"{self.empty} rows without any entry were left out")
        for one, other in self._unlinked():
            notes.append(
                f"no rows have both {one!r} and {other!r}: what one says of the other is a guess"
            )
        single = [v for k, v in enumerate(self.views) if self.sites[self.of == k].max() == 1]
        if single and int(self.sites.max()) > 1:
            notes.append(f"{', '.join(map(repr, single))}: known from one site alone")
        return tuple(notes)

    def _unlinked(self) -> list[tuple[str, str]]:
        """Return the first view, with one view of each group that has no rows in common with it."""
        from scipy.sparse.csgraph import connected_components

        _, group = connected_components(self.together > 0, directed=False)
        return [
            (self.views[0], self.views[int(np.flatnonzero(group == g)[0])])
            for g in np.unique(group[group != group[0]])
        ]

    def arrays(self) -> dict[str, Array]:
        """Return the common distribution, views and sites."""
        p = self.prior
        return {
            "mu": p.mu, "w": p.w, "mu_variance": p.mu_variance, "w_variance": p.w_variance,
            "alpha": p.alpha, "beta": p.beta, "of": self.of, "sites": self.sites,
            "centre": self.centre, "spread": self.spread, "together": self.together,
        }  # fmt: skip

    def meta(self) -> dict[str, Any]:
        """Return names, numbers, and the end of the fit."""
        return {
            "features": list(self.features), "views": list(self.views), "q": self.q,
            "narrow": self.narrow, "each": self.each, "rows": self.rows, "empty": self.empty,
            "rounds": self.rounds, "settled": self.settled, "numbers": list(self.numbers),
            "deviations": list(self.deviations), "centre_variance": self.prior.centre_variance,
        }  # fmt: skip

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        in_prior = dict(arrays)
        rest = {k: in_prior.pop(k) for k in ("of", "sites", "centre", "spread", "together")}
        fields: dict[str, Any] = dict(meta)
        tau2 = float(fields.pop("centre_variance"))
        prior = Prior(
            in_prior["mu"], in_prior["w"], in_prior["mu_variance"], in_prior["w_variance"],
            in_prior["alpha"], in_prior["beta"], tau2,
        )  # fmt: skip
        fields |= {k: tuple(meta[k]) for k in ("features", "views", "numbers", "deviations")}
        return cls(prior=prior, **rest, **fields)
