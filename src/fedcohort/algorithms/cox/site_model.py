"""Posterior of a Cox model with effects of sites: a mixture over the grid of τ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np

from fedcohort.algorithms.cox.hierarchical import BySite
from fedcohort.algorithms.cox.model import BayesCoxModel, of_cox
from fedcohort.arrays import Array
from fedcohort.numerics.mixture import quantiles
from fedcohort.protocol import Row
from fedcohort.training.site_effects import mixed_row

#: Fields of `BayesCoxBySite` that are arrays.
ARRAYS = ("shares", "means", "scales", "tau")


@dataclass(frozen=True, kw_only=True, eq=False)
class BayesCoxBySite(BayesCoxModel):
    """Log hazard ratios of a new site, with effects of sites integrated over.

    `coefficients` are the posterior means of the common β, `covariance` is its whole covariance.

    Attributes
    ----------
    shares : of G points of τ (G,), which add to 1.
    means, scales : (G, p) and (G, p, p), mean and covariance of β at the points.
    tau : (G, p), standard deviations of sites' coefficients, in units of β.
    taus : rows of the posterior of τ, and of sites' own effects where they were asked for.
    sites : number of sites that take part.
    note : warnings about few sites and sites left out; may be empty.
    """

    shares: Array
    means: Array
    scales: Array
    tau: Array
    taus: tuple[Row, ...]
    sites: int
    note: str

    @classmethod
    def of(cls, common: Mapping[str, Any], found: BySite, scale: Array) -> BayesCoxBySite:
        """Return the model of a posterior of standardised covariates, in their units.

        Parameters
        ----------
        common : fields of `BayesCoxModel` but `log_evidence`.
        scale : standard deviations of the covariates (p,).
        """
        return cls(
            **common,
            log_evidence=found.log_evidence,
            shares=found.shares,
            means=found.mean / scale,
            scales=found.covariance / np.outer(scale, scale),
            tau=found.tau / scale,
            taus=found.rows,
            sites=found.sites,
            note=found.note,
        )

    def intervals(self, x: Array, level: float) -> Array:
        """Return the interval (n, 2) that holds the log risk of rows x (n, p) at a new site."""
        z = self._covariates(x) - self.centre[: len(self.features)]
        f = self.means @ z.T
        offset = self.predict(x) - z @ self.coefficients
        s = np.einsum("ni,gij,nj->gn", z, self.scales, z, optimize=True) + self.tau**2 @ (z**2).T
        s = np.maximum(s, np.finfo(float).tiny)
        ends = (0.5 - level / 2, 0.5 + level / 2)
        each = [quantiles(p, self.shares, f, np.sqrt(s), np.inf) for p in ends]
        return np.column_stack(each) + offset[:, None]

    def summary(self) -> list[Row]:
        """Return the rows of `BayesCoxModel.summary`, of the common coefficients; quantiles and
        probabilities are the mixture's.
        """
        sd = np.sqrt(np.einsum("gii->gi", self.scales))
        return [
            mixed_row(name, (self.shares, self.means[:, j], sd[:, j]), self.level, "hazard_ratio")
            for j, name in enumerate(self.features)
        ]

    def parameters(self, times: Array) -> list[Row]:
        """Return the rows of `CoxModel.parameters`, and what is known of sites."""
        rows = super().parameters(times)
        own = len(rows) - len(self.checks)  # checks come last
        return [*rows[:own], *self.taus, *rows[own:]]

    def cautions(self) -> tuple[str, ...]:
        """Return warnings about few sites, and sites left out."""
        return (*super().cautions(), *([self.note] if self.note else []))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        return super().arrays() | {name: getattr(self, name) for name in ARRAYS}

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        more = {"taus": list(self.taus), "sites": self.sites, "note": self.note}
        return super().meta() | more

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model; without effects of sites a `BayesCoxModel`."""
        plain = BayesCoxModel.restore(arrays, meta)
        if "tau" not in arrays:
            return cast("Any", plain)
        own: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        own |= {"taus": tuple(meta["taus"]), "sites": int(meta["sites"]), "note": str(meta["note"])}
        return cls(**of_cox(plain), **own)
