"""Noisy cross-products of covariates and outcome, the only question of a private least squares fit.

With z = (1, x), and y centred at the middle of its usual values, in half widths, clipped to [−1,
1], a record has the weight w = min(1, C/‖z‖), and adds v vᵀ, v = w (z, y), to

    M = Σ v vᵀ                                                                             (1)

The weight depends on the covariates alone, so there is no bias if the model is right. As ‖w z‖ ≤ C
and, with ‖z‖ ≥ 1, w ≤ min(1, C), adding or removing a record changes M, whose entries off the
diagonal count once, times √2, by a vector of norm

    ‖v vᵀ‖ = ‖v‖² ≤ C² + min(1, C)² = Δ                                                     (2)

whatever its values. If C ≤ 1, all records have ‖w z‖ = C, and Σ ‖w z‖²/C² is their number. If C ≥
√(1 + p), nothing is clipped, as x ∈ [−1, 1]ᵖ by the dictionary, and Σ w² is their number.

With noise the inner product of z may not be positive. `lifted` raises its eigenvalues above the
noise (AdaSSP: Wang, "Revisiting differentially private linear regression", UAI 2018). This uses
only what is already released, and costs nothing more.

Revealed: `Products` once, with noise, as a sum over the sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.exact import check_covariates
from fedcohort.data.tables import LabelledTable
from fedcohort.privacy.statistics import cross_products, shortened
from fedcohort.protocol import Federation, Private, Release, Site, Task, message, summed


@message
class Products:
    """M of eq. (1), ((p + 2)(p + 3)/2,): on and above the diagonal, the latter times √2."""

    upper: Array


@summed
def products_privately(
    site: Site[LabelledTable, None], *, centre: float, scale: float, clip: float
) -> Private[Products]:
    """Sum cross-products of covariates and outcome, eq. (1)."""
    rows = weighted(site.data, centre, scale, clip)
    found = cross_products(rows, math.sqrt(sensitivity(clip)))
    return Private(Products(found.value), {"upper": found.l2})


def weighted(table: LabelledTable, centre: float, scale: float, clip: float) -> Array:
    """Return v of each record (n, p + 2), the intercept first and the outcome last."""
    z = shortened(np.column_stack([np.ones(len(table.y)), table.x]), clip)
    y = np.clip(np.nan_to_num((table.y - centre) / scale, nan=0.0), -1.0, 1.0)
    return np.column_stack([z, z[:, 0] * y])


def sensitivity(clip: float) -> float:
    """Return Δ of eq. (2)."""
    return clip**2 + min(1.0, clip) ** 2


@dataclass(frozen=True)
class NoisyProducts:
    """Noisy cross-products at the coordinator.

    Attributes
    ----------
    square : M (p + 2, p + 2).
    noise : standard deviation of a diagonal entry's noise, √2 times that of the others; at least
        what was added.
    centre, scale : y = centre + scale · (the last column).
    clip : C.
    """

    square: Array
    noise: float
    centre: float
    scale: float
    clip: float

    @property
    def inner(self) -> Array:
        """Σ w² z zᵀ (p + 1, p + 1), with its eigenvalues `lifted`."""
        return lifted(self.square[:-1, :-1], self.noise)

    @property
    def rows(self) -> float:
        """Estimated number of records: a lower bound plus noise; at least 1."""
        inner = self.square[:-1, :-1]
        rows_by_trace = float(np.trace(inner)) / self.clip**2
        return max(rows_by_trace, float(inner[0, 0]) / min(1.0, self.clip) ** 2, 1.0)


def demanded(task: Task, clip: float) -> Mapping[str, Mapping[str, Any]]:
    """Return the step's arguments, which follow from the study; None if the outcome has no range.

    Parameters
    ----------
    clip : C; lowered to √(1 + p), the largest possible norm, at no cost.
    """
    if task.reach is None:
        return {products_privately.name: dict.fromkeys(("centre", "scale", "clip"))}
    low, high = task.reach
    centre, scale = (low + high) / 2.0, (high - low) / 2.0
    clip = min(clip, math.sqrt(1.0 + len(task.features)))
    return {products_privately.name: {"centre": centre, "scale": scale, "clip": clip}}


def ask(fed: Federation, task: Task, release: Release, clip: float) -> NoisyProducts:
    """Return the noisy cross-products, from one question.

    Parameters
    ----------
    release : of this step, by the study.
    clip : C, see `demanded`.

    Raises
    ------
    DataError : no covariates, or the outcome has no usual values.
    """
    check_covariates(task)
    _ = task.usual  # refuses a fit without it
    asked = demanded(task, clip)[products_privately.name]
    centre, scale, clip = asked["centre"], asked["scale"], asked["clip"]
    reply = fed.sum(products_privately, **asked)
    noise = release.noise * sensitivity(clip) * math.sqrt(len(fed.sites))
    return NoisyProducts(unpacked(reply.upper), noise, centre, scale, clip)


def unpacked(upper: Array) -> Array:
    """Return the symmetric matrix (k, k) of a triangle (k(k + 1)/2,), see `Products`."""
    k = round((math.sqrt(8 * len(upper) + 1) - 1) / 2)
    rows, columns = np.triu_indices(k)
    square = np.zeros((k, k))
    square[rows, columns] = upper / np.where(rows == columns, 1.0, math.sqrt(2.0))
    return square + np.triu(square, 1).T


def lifted(inner: Array, noise: float) -> Array:
    """Return a symmetric matrix (k, k) with its eigenvalues raised above the noise.

    Parameters
    ----------
    noise : standard deviation of a diagonal entry's noise, √2 times that of the others.
    """
    reach = math.sqrt(2.0 * len(inner)) * noise  # the norm of a random symmetric matrix (Wigner)
    values, vectors = np.linalg.eigh(inner)
    held = max(0.0, 2.0 * reach - float(values[0]))
    return (vectors * np.maximum(values + held, reach + 1e-9)) @ vectors.T
