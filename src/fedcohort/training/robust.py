"""Robust aggregation: the coordinator's centre of the sites' models if some sites may lie.

θ_k (P,) is site k's model, trained from the common θ; f of the K models may be anything.
Coordinate-wise median and trimmed mean: Yin et al., "Byzantine-robust distributed learning: towards
optimal statistical rates", ICML 2018, Definitions 1 and 2, with b = ⌈βK⌉:

    median         c_j = med_k θ_kj                                                         (1)
    trimmed mean   c_j = mean of the θ_kj without the b smallest and the b largest          (2)

Krum and Multi-Krum: Blanchard et al., "Machine learning with adversaries", NeurIPS 2017, section 4,
which need K ≥ 2f + 3. With N(k) the K − f − 2 models nearest to θ_k,

    s(k) = Σ_{i ∈ N(k)} ‖θ_k − θ_i‖²                                                        (3)
    Krum           c = θ_k of the least s(k), the first of equals                           (4)
    Multi-Krum     c = mean of the K − f models of the least s(k)                           (5)

Norm bounding: Sun et al., "Can you really backdoor federated learning?", 2019, section 4, with rows
n_k and their sum n; without a given bound M, M = med_k ‖θ_k − θ‖:

    c = θ + Σ_k (n_k/n) (θ_k − θ) / max(1, ‖θ_k − θ‖/M)                                     (6)

In (1) to (5) each site has one vote, because a site can invent its number of rows. A site without
rows has no vote. A site with a rejected reply (`protocol.updates`) has none either, and is one of
the f. (1) withstands fewer than half of the sites, (2) up to b, (3) to (5) up to f. (6) bounds the
effect of a site by (n_k/n) M a round, with n_k as the site states it.

Revealed: each site's model in every round (`training.networks.strategies.visit`), so masked sums
are excluded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import SettingError, SiteUnavailable

#: Names of the aggregations.
AGGREGATIONS = ("mean", "median", "trimmed_mean", "krum", "multi_krum", "norm_bound")


def median(thetas: Array) -> Array:
    """Return eq. (1) (P,) of thetas (K, P)."""
    return np.median(thetas, axis=0)


def trimmed_mean(thetas: Array, b: int) -> Array:
    """Return eq. (2) (P,) of thetas (K, P), with K > 2b."""
    return np.sort(thetas, axis=0)[b : len(thetas) - b].mean(axis=0)


def scores(thetas: Array, f: int) -> Array:
    """Return s(k) (K,), eq. (3), of thetas (K, P) with f liars.

    A distance beyond floating point is infinite.
    """
    with np.errstate(over="ignore"):
        squares = np.array([((thetas - theta) ** 2).sum(axis=1) for theta in thetas])
    np.fill_diagonal(squares, np.inf)
    return np.sort(squares, axis=1)[:, : len(thetas) - f - 2].sum(axis=1)


def krum(thetas: Array, f: int) -> Array:
    """Return the model with the least score, eq. (4), of thetas (K, P)."""
    return thetas[int(np.argmin(scores(thetas, f)))]


def multi_krum(thetas: Array, f: int) -> Array:
    """Return the mean of the K − f models with the least scores, eq. (5), of thetas (K, P)."""
    best = np.argsort(scores(thetas, f), kind="stable")[: len(thetas) - f]
    return thetas[np.sort(best)].mean(axis=0)


def norm_bound(thetas: Array, rows: Array, start: Array, most: float | None) -> Array:
    """Return the mean of updates of length at most M, eq. (6).

    Parameters
    ----------
    thetas, rows, start : (K, P), n_k (K,) and θ (P,).
    most : M > 0, in units of a parameter; None for the median length.
    """
    updates = thetas - start
    lengths = np.linalg.norm(updates, axis=1)
    bound = float(np.median(lengths)) if most is None else most
    shrink = np.minimum(1.0, bound / np.where(lengths > 0, lengths, 1.0))
    return start + (rows / rows.sum() * shrink) @ updates


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """A rule of this module with its constants.

    Attributes
    ----------
    name : one of `AGGREGATIONS`.
    trim : β in [0, 0.5), of eq. (2).
    byzantine : f ≥ 0, of eqs. (3) to (5).
    norm_bound : M > 0, of eq. (6); None for the median length.
    """

    name: str = "mean"
    trim: float = 0.2
    byzantine: int = 1
    norm_bound: float | None = None

    @property
    def plain(self) -> bool:
        """Whether it is the mean by rows, which needs only a sum."""
        return self.name == "mean"

    @property
    def fewest(self) -> int:
        """Fewest sites of the rule."""
        if self.name in ("krum", "multi_krum"):
            return 2 * self.byzantine + 3
        return {"median": 3, "trimmed_mean": 3, "norm_bound": 2}.get(self.name, 1)

    def check(self, sites: int) -> None:
        """Refuse a federation that is too small.

        Raises
        ------
        SettingError : fewer sites than the rule needs.
        """
        if sites < self.fewest:
            f = f" with byzantine: {self.byzantine}" if "krum" in self.name else ""
            raise SettingError(
                f"setting 'aggregation' is {self.name!r}{f}, which needs {self.fewest} sites; this "
                f"federation has {sites}. Choose norm_bound or mean, or let more sites take part."
            )
        if self.name == "trimmed_mean" and 2 * self._cut(sites) >= sites:
            raise SettingError(
                f"setting 'trim' is {self.trim!r}, which leaves none of {sites} sites; it needs "
                f"{self._more(sites)} sites. Give less, or let more sites take part."
            )

    def __call__(self, thetas: Array, rows: Array, start: Array, caught: int = 0) -> Array:
        """Return the centre (P,) of the models of one round.

        Parameters
        ----------
        thetas, rows, start : (K, P), n_k (K,) and θ (P,).
        caught : liars already rejected; f is reduced by them.

        Raises
        ------
        SiteUnavailable : fewer sites answered with rows than the rule needs.
        """
        voters = rows > 0
        left = replace(self, byzantine=max(0, self.byzantine - caught))
        if voters.sum() < left.fewest:
            raise SiteUnavailable(
                f"{voters.sum()} of {len(rows)} sites that answered have rows to learn from; "
                f"aggregation {self.name!r} needs {left.fewest}. Bring the others back and "
                f"--resume."
            )
        return _RULES[self.name](left, thetas[voters], rows[voters], start)

    def _cut(self, sites: int) -> int:
        """Return b of eq. (2)."""
        return math.ceil(self.trim * sites - 1e-9)

    def _more(self, sites: int) -> int:
        """Return the least number above `sites` for which eq. (2) leaves a model.

        With 2m + 1 sites it leaves one if β (2m + 1) ≤ m, so the search starts near 2β/(1 − 2β).
        """
        low = math.floor(2 * self.trim / (1 - 2 * self.trim)) - 1
        return next(n for n in itertools.count(max(sites + 1, low)) if 2 * self._cut(n) < n)

    def _trimmed(self, thetas: Array) -> Array:
        """Return eq. (2) with at least one model left, if some sites have no vote."""
        return trimmed_mean(thetas, min(self._cut(len(thetas)), (len(thetas) - 1) // 2))


_RULES: Mapping[str, Callable[[Aggregation, Array, Array, Array], Array]] = {
    "mean": lambda a, thetas, rows, start: (rows / rows.sum()) @ thetas,
    "median": lambda a, thetas, rows, start: median(thetas),
    "trimmed_mean": lambda a, thetas, rows, start: a._trimmed(thetas),  # pyright: ignore[reportPrivateUsage]
    "krum": lambda a, thetas, rows, start: krum(thetas, a.byzantine),
    "multi_krum": lambda a, thetas, rows, start: multi_krum(thetas, a.byzantine),
    "norm_bound": lambda a, thetas, rows, start: norm_bound(thetas, rows, start, a.norm_bound),
}

#: The mean by rows.
MEAN = Aggregation()
