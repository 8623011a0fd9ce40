"""Gaussian copula with differential privacy: noisy histograms, then noisy products of scores.

Li, Xiong, Jiang, "Differentially private synthesization of multi-dimensional data using copula
functions", EDBT 2014: marginals by noisy histograms, correlations with noise. Here both are
Gaussian releases of one account. x is within ±1 by the dictionary (`data.prepare.bounded`).

1. Each column of the table has one part: the cells of a number between −1 and 1, or its levels, and
   one for "missing". A row adds 1 in one cell of each of the K parts: a norm of √K.
2. The histograms, without counts below the noise, give each number's share F below a value, and
   each normal's threshold. A row has the scores v_j = Φ⁻¹(F), and (b − p)/√(p(1 − p)), cut to
   ±`MOST`, 0 if not seen; cut to ‖v‖ ≤ C √d it adds v vᵀ, of norm C² d.

A row is shortened as a whole, and the diagonal has the same weight, so r_ij = M_ij/√(M_ii M_jj). It
is divided by the share of rows that see either value, multiplied by the share of its variance that
is not noise (`shrunk`: James and Stein's rule, 1961), and replaced by the correlation of latent
normals that has it. Shrinking and the nearest correlation matrix cost nothing more.

Revealed: `NoisyCells` and `NoisyScores` once each, with noise, as sums over the sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri

from fedcohort.algorithms.copula.layout import EDGE, Layout
from fedcohort.algorithms.copula.model import CopulaModel
from fedcohort.algorithms.copula.settings import CopulaSettings
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable
from fedcohort.numerics.binormal import biserial, nearest_correlation, shrunk, tetrachoric
from fedcohort.privacy.statistics import cross_products, histogram
from fedcohort.protocol import (
    Dp,
    Federation,
    NothingToLearn,
    Private,
    Release,
    SettingError,
    Site,
    Task,
    message,
    summed,
)
from fedcohort.training.linear.private_products import unpacked

#: Default of C, and the largest score.
CLIPS = {"record": 1.1}
MOST = 2.5
#: A count of cells needs so many standard deviations of its noise.
CLEAR = 8.0
#: Shares of the privacy, 1/z², of the two releases.
PARTS = (0.4, 0.6)


@message
class NoisyCells:
    """Counts of all cells (c,), part by part: missing first."""

    cells: Array


@message
class NoisyScores:
    """Sum of v vᵀ, on and above the diagonal, the latter times √2 (d (d + 1)/2,)."""

    upper: Array


@summed
def count_cells_privately(
    site: Site[FeatureTable, None], *, starts: Array, widths: Array, cells: Array
) -> Private[NoisyCells]:
    """Count rows in the cells of each column.

    starts, widths : (K,), first column of x of each part, and its number of columns of levels; 0
    for a number. cells : (K,), its number of cells.
    """
    parts: list[Array] = []
    for start, width, n in zip(starts.tolist(), widths.tolist(), cells.tolist(), strict=True):
        parts.append(histogram(cell_of(site.data.x, start, width, n) + 1, n + 1).value)
    return Private(NoisyCells(np.concatenate(parts)), {"cells": math.sqrt(len(parts))})


def cell_of(x: Array, start: int, width: int, cells: int) -> Array:
    """Return the cell (n,) of each row in a part, −1 if missing.

    A number's cells divide [−1, 1] evenly; of levels, cell 0 is the reference.
    """
    if not width:
        v = x[:, start]
        at = np.floor((np.clip(np.nan_to_num(v), -1.0, 1.0) + 1.0) / 2.0 * cells)
        return np.where(np.isnan(v), -1, np.clip(at, 0, cells - 1)).astype(np.int64)
    hot = x[:, start : start + width]
    level = np.where((hot > 0.5).any(axis=1), (hot > 0.5).argmax(axis=1) + 1, 0)
    return np.where(np.isnan(hot).any(axis=1), -1, level).astype(np.int64)


@summed
def sum_scores_privately(
    site: Site[FeatureTable, None],
    *,
    place: Array,
    first: Array,
    number: Array,
    below: Array,
    share: Array,
    clip: float,
) -> Private[NoisyScores]:
    """Sum products of scores.

    below : (a, cells + 1), share of rows below the edges of each number's cells. share : (d,), of
    rows with 1. clip : C.
    """
    layout = Layout(place, first, number.astype(bool))
    v = scores_of(site.data.x, layout, below, share)
    found = cross_products(v, clip * math.sqrt(v.shape[1]))
    return Private(NoisyScores(found.value), {"upper": found.l2})


def scores_of(x: Array, layout: Layout, below: Array, share: Array) -> Array:
    """Return v (n, d) of each row, 0 where it is not seen."""
    v = layout.seen(x)
    for row, j in zip(below, np.flatnonzero(layout.number).tolist(), strict=True):
        edges = np.linspace(-1.0, 1.0, len(row))
        f = np.interp(v[:, j], edges, row)
        v[:, j] = np.where(np.isnan(v[:, j]), np.nan, ndtri(np.clip(f, EDGE, 1.0 - EDGE)))
    p = np.clip(share, EDGE, 1.0 - EDGE)
    other = (v - p) / np.sqrt(p * (1.0 - p))
    v = np.where(layout.number, v, other)
    return np.clip(np.nan_to_num(v, nan=0.0), -MOST, MOST)


# coordinator --------------------------------------------------------------------------


def releases(config: CopulaSettings, dp: Dp) -> Sequence[Release]:
    """Return the two releases of a private fit.

    Raises
    ------
    SettingError : the unit is a site, or (ε, δ) cannot be met.
    """
    del config
    if dp.unit != "record":
        raise SettingError(
            f"dp.unit is {dp.unit!r}, but a copula protects only records; choose 'record'."
        )
    return _releases(dp)


@lru_cache(maxsize=64)
def _releases(dp: Dp) -> tuple[Release, ...]:
    from fedcohort.privacy import accounting  # slow to import

    def make(z: float) -> tuple[Release, ...]:
        steps = (count_cells_privately.name, sum_scores_privately.name)
        return tuple(
            Release(step=name, noise=z / math.sqrt(part))
            for name, part in zip(steps, PARTS, strict=True)
        )

    return make(accounting.calibrate(make, dp))


def held(config: CopulaSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return the arguments that a site checks, by step; the marginals follow from the first."""
    assert task.dp is not None
    layout = Layout.of(task.heads, ranks=False)
    return {
        count_cells_privately.name: asked_of(task, config.cells),
        sum_scores_privately.name: {
            "place": layout.place, "first": layout.first, "number": layout.number.astype(np.int64),
            "clip": task.dp.norm,
        },
    }  # fmt: skip


def reveals(config: CopulaSettings, dp: Dp) -> str:
    """Return, in plain words, what leaves a site in any private fit."""
    del config, dp
    return (
        "Once each, the sum over sites of counts of levels and of cells of numbers, and of "
        "products of columns' scores."
    )


def asked_of(task: Task, cells: int) -> dict[str, Array]:
    """Return the arguments of the first step: a part for each head."""
    starts = [head.at[0] for head in task.heads]
    widths = [0 if _is_number(head) else len(head.at) for head in task.heads]
    counts = [cells if not w else w + 1 for w in widths]
    return {
        "starts": np.array(starts, np.int64), "widths": np.array(widths, np.int64),
        "cells": np.array(counts, np.int64),
    }  # fmt: skip


def _is_number(head: Any) -> bool:
    return head.kind not in ("bernoulli", "categorical", "ordinal")


def fit(fed: Federation, config: CopulaSettings, task: Task) -> CopulaModel:
    """Return the copula of a private fit.

    Raises
    ------
    NothingToLearn : fewer rows than the noise hides.
    """
    dp = task.dp
    assert dp is not None
    layout = Layout.of(task.heads, ranks=False)
    first_release, second = releases(config, dp)
    asked = asked_of(task, config.cells)
    reply = fed.sum(count_cells_privately, **asked)
    noise = first_release.noise * math.sqrt(len(asked["cells"]) * len(fed.sites))
    parts = np.split(reply.cells, np.cumsum(asked["cells"] + 1)[:-1])
    rows = float(np.mean([part.sum() for part in parts]))
    if rows < CLEAR * noise:
        raise NothingToLearn(
            f"the noise of ε = {dp.epsilon:g} hides the rows: its standard deviation is "
            f"{noise:.0f} for each count. Raise ε, or take fewer columns."
        )
    missing, known = zip(*(_shares(part, rows, noise) for part in parts), strict=True)
    numbers = [k for k, head in enumerate(task.heads) if _is_number(head)]
    below = np.array([np.r_[0.0, np.cumsum(known[k])] for k in numbers])
    below = below.reshape(len(numbers), config.cells + 1)
    share, gone = _of_normals(task, known, np.array(missing))
    reply = fed.sum(
        sum_scores_privately, place=layout.place, first=layout.first,
        number=layout.number.astype(np.int64), below=below, share=share, clip=dp.norm,
    )  # fmt: skip
    spread = second.noise * dp.norm**2 * len(layout.place) * math.sqrt(len(fed.sites) / 2.0)
    seen = _seen(layout, share, gone)
    r = correlations(unpacked(reply.upper), layout, share, seen, spread)
    fed.record(noise_of_a_count=noise, noise_of_a_product=spread)
    a = len(numbers)
    return CopulaModel(
        features=task.features, place=layout.place, first=layout.first,
        number=layout.number.astype(np.int64), correlation=r, share=share, missing=gone,
        edges=np.tile(np.linspace(-1.0, 1.0, config.cells + 1), (a, 1)), below=below, unknown=0,
    )  # fmt: skip


def _shares(part: Array, rows: float, noise: float) -> tuple[float, Array]:
    """Return the share of missing values, and of each cell among the known ones, from noisy counts.

    Counts below the noise's standard deviation are 0; those of missing values below three.
    """
    least = np.r_[3.0 * noise, np.full(len(part) - 1, noise)]
    counts = np.where(part < least, 0.0, part)
    known = counts[1:] if counts[1:].sum() > 0 else np.ones(len(part) - 1)
    return min(max(float(part[0]) / rows, 0.0), 1.0), known / known.sum()


def _of_normals(task: Task, known: Sequence[Array], missing: Array) -> tuple[Array, Array]:
    """Return the share of 1 of each normal (d,), and of missing values (d,)."""
    share: list[float] = []
    gone: list[float] = []
    for head, cells, lost in zip(task.heads, known, missing.tolist(), strict=True):
        if _is_number(head):
            share.append(0.5)
            gone.append(lost)
            continue
        left = 1.0
        for p in cells[1:].tolist():
            share.append(min(max(p / left if left > 0 else 0.0, EDGE), 1.0 - EDGE))
            gone.append(lost)
            left -= p
    return np.array(share), np.array(gone)


def _seen(layout: Layout, share: Array, gone: Array) -> Array:
    """Return the share of rows that see each normal (d,)."""
    found = 1.0 - gone
    for j in np.flatnonzero(layout.place > layout.first).tolist():
        found[j] = found[j - 1] * (1.0 - share[j - 1])
    return np.maximum(found, EDGE)


def correlations(m: Array, layout: Layout, share: Array, seen: Array, noise: float) -> Array:
    """Return R (d, d) of noisy products M (d, d).

    Parameters
    ----------
    seen : share of rows that see each normal (d,).
    noise : standard deviation of an entry off the diagonal.
    """
    diagonal = np.maximum(np.diag(m), 2.0 * noise)
    scale = np.sqrt(np.outer(diagonal, diagonal))
    # a row that sees one alone adds nothing to the product, but adds to the diagonal
    scale = scale * np.sqrt(np.outer(seen, seen))
    r = np.clip(shrunk(m / scale, noise / scale, ~layout.same()), -0.999, 0.999)
    binary = layout.binary
    p = np.clip(share, EDGE, 1.0 - EDGE)
    sd = np.sqrt(p * (1.0 - p))
    both = binary[:, None] & binary[None, :]
    one = binary[:, None] ^ binary[None, :]
    p_one = np.where(binary[:, None], p[:, None], p[None, :])
    sd_one = np.where(binary[:, None], sd[:, None], sd[None, :])
    r = np.where(one, biserial(p_one, r * sd_one), r)
    joint = p[:, None] * p[None, :] + r * np.outer(sd, sd)
    joint = np.clip(joint, 1e-9, np.minimum(p[:, None], p[None, :]) - 1e-9)
    shape = m.shape
    found = tetrachoric(
        np.broadcast_to(p[:, None], shape), np.broadcast_to(p[None, :], shape), joint
    )
    r = np.where(both, found, r)
    r = np.where(layout.same(), 0.0, r)
    np.fill_diagonal(r, 1.0)
    return nearest_correlation(r)
