"""REFINED: places of features in an image, so that similar features are neighbours.

Bazgir et al., Nature Communications 11, 4391, 2020. The distance of two features is that of their
standardised columns; with correlations r over n rows,

    d_jk² = (1/n) ‖z_j − z_k‖² = v_j + v_k − 2 r_jk,   v = 1, or 0 of a constant column     (1)

so that cross-products give it. Multidimensional scaling puts the features into the plane: the
stress Σ_{j<k} (d_jk − ‖x_j − x_k‖)² falls in each step of SMACOF (de Leeuw, in "Recent Developments
in Statistics", 1977) from the classical solution. An optimal assignment then gives each feature a
pixel of its own, with the least sum of squared distances from the points.

Hill climbing improves the likelihood of Bayesian scaling (Oh and Raftery, JASA 96(455), 2001): d_jk
is normal about the distance δ_jk on the map with standard deviation σ, and is above 0,

    ℓ = −Σ_{j<k} [(d_jk − δ_jk)²/(2σ²) + ln Φ(δ_jk/σ) + ½ ln(2πσ²)]                        (2)

δ is c times the distance of the pixels. c and σ are those of the assignment, by least squares; with
an equal prior for all maps the posterior changes as ℓ does. As in the paper's program a pass visits
the pixels of nine lattices, in steps of three, and swaps each with the one of its eight neighbours
that is best; an empty pixel is a neighbour too. Other than there a swap is made before the next
visit, and only if ℓ rises; the passes end when none does. Nothing is drawn at random.

Revealed: nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.special import log_ndtr

from fedcohort.arrays import Array
from fedcohort.numerics.collinearity import CONSTANT

#: Most steps of SMACOF, and the share of the stress below which a step's fall ends it.
STEPS, FALL = 300, 1e-5
#: Most passes of hill climbing.
PASSES = 100
#: A swap is made if it raises ℓ by more than this share of its terms: less may be rounding.
GAIN = 1e-11
#: Angles among which points are turned, in a quarter turn.
ANGLES = 180
#: σ is at least this share of the root mean square of d.
LEAST_SD = 1e-3


@dataclass(frozen=True)
class Climbed:
    """A map of p features, and ℓ, eq. (2).

    Attributes
    ----------
    pixels : (p,), the pixel of each feature, row by row.
    likelihood : ℓ at the assignment and after each pass.
    """

    pixels: Array
    likelihood: tuple[float, ...]


def correlations(inner: Array, rows: float, mean: Array) -> Array:
    """Return correlations (p, p) from cross-products about the means; 0 of a constant column.

    Parameters
    ----------
    inner : (p, p). rows : n. mean : (p,), the smallest spread that is no rounding follows from it.
    """
    spread = np.diag(inner)
    varies = spread > rows * (CONSTANT * mean) ** 2
    unit = np.where(varies, 1.0 / np.sqrt(np.where(varies, spread, 1.0)), 0.0)
    found = np.clip(inner * np.outer(unit, unit), -1.0, 1.0)
    np.fill_diagonal(found, varies)
    return (found + found.T) / 2.0


def distances(corr: Array) -> Array:
    """Return d (p, p), eq. (1), from correlations (p, p) with v on their diagonal."""
    v = np.diag(corr)
    found = np.sqrt(np.maximum(v[:, None] + v - 2.0 * corr, 0.0))
    np.fill_diagonal(found, 0.0)
    return found


def side_of(features: int) -> int:
    """Return the side of the smallest square image for so many features."""
    return math.isqrt(max(features, 1) - 1) + 1


def refine(d: Array, side: int) -> Climbed:
    """Return the map of features with distances d (p, p), onto side × side pixels."""
    return climb(d, assign(scale(d), side), side)


def scale(d: Array) -> Array:
    """Return points (p, 2) whose distances are near d (p, p), by SMACOF from classical scaling."""
    p = len(d)
    if p < 2:
        return np.zeros((p, 2))
    x, stress = _classical(d), np.inf
    for _ in range(STEPS):
        now = cdist(x, x)
        before, stress = stress, float(((d - now) ** 2).sum())
        if before - stress <= FALL * stress:
            break
        ratio = np.divide(d, now, out=np.zeros_like(d), where=now > 0)
        x = (ratio.sum(axis=1)[:, None] * x - ratio @ x) / p
    return x


def _classical(d: Array) -> Array:
    """Return the two leading coordinates (p, 2) of −½ J d² J; each one's largest is above 0."""
    b = -0.5 * d**2
    b -= b.mean(axis=0)
    b -= b.mean(axis=1)[:, None]
    values, vectors = np.linalg.eigh((b + b.T) / 2.0)
    x = np.zeros((len(d), 2))
    found = vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0.0))
    x[:, : found.shape[1]] = found
    largest = np.abs(x).argmax(axis=0)
    return x * np.where(x[largest, (0, 1)] < 0, -1.0, 1.0)


def assign(points: Array, side: int) -> Array:
    """Return a pixel of its own (p,) for each point (p, 2).

    The points are turned until their bounding rectangle is smallest, and stretched to the image.
    """
    x = _turned(points)
    low, wide = x.min(axis=0), np.ptp(x, axis=0)
    x = np.where(wide > 0, (x - low) / np.where(wide > 0, wide, 1.0), 0.5) * (side - 1)
    rows, columns = np.divmod(np.arange(side**2), side)
    cost = cdist(x, np.column_stack([rows, columns]), "sqeuclidean")
    return linear_sum_assignment(cost)[1]


def _turned(points: Array) -> Array:
    """Return points (p, 2) turned so that their bounding rectangle has the smallest area."""
    angles = np.arange(ANGLES) * (np.pi / 2.0 / ANGLES)
    turns = np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]])
    found = np.einsum("ni,ija->anj", points, turns)
    return found[np.ptp(found, axis=1).prod(axis=1).argmin()]


class Likelihood:
    """ℓ, eq. (2), of maps of features onto side × side pixels.

    Parameters
    ----------
    d : (p, p). pixels : (p,), of the map that gives c and σ.

    Attributes
    ----------
    unit, sd : c, and σ.
    """

    def __init__(self, d: Array, pixels: Array, side: int):
        self._d, self._side = d, side
        steps = np.arange(side)
        grid = np.hypot(steps[:, None], steps)
        apart = grid[self._steps(pixels)]
        squares = float((apart**2).sum())
        self.unit = float((d * apart).sum()) / squares if squares else 0.0
        pairs = max(len(d) * (len(d) - 1), 1)
        sd = math.sqrt(float(((d - self.unit * apart) ** 2).sum()) / pairs)
        self.sd = max(sd, LEAST_SD * math.sqrt(float((d**2).sum()) / pairs)) or 1.0
        #: δ/σ² by steps down and across, and the terms of ℓ in which d is not.
        self._near = self.unit * grid / self.sd**2
        self._own = 0.5 * (self.unit * grid / self.sd) ** 2 + log_ndtr(self.unit * grid / self.sd)
        constant = 0.5 * math.log(2.0 * math.pi) + math.log(self.sd)
        self._constant = 0.5 * pairs * constant if len(d) > 1 else 0.0
        self._squares = 0.25 * float((d**2).sum()) / self.sd**2

    def _steps(self, pixels: Array) -> tuple[Array, Array]:
        rows, columns = np.divmod(pixels, self._side)
        return np.abs(rows[:, None] - rows), np.abs(columns[:, None] - columns)

    def value(self, pixels: Array) -> float:
        """Return ℓ of a map (p,)."""
        at, upper = self._steps(pixels), np.triu_indices(len(pixels), 1)
        terms = self._d * self._near[at] - self._own[at]
        return float(terms[upper].sum()) - self._squares - self._constant

    def gains(self, pixels: Array, feature: int, to: Array, there: Array) -> Array:
        """Return the change of ℓ (k,) if a feature changes places with that in another pixel.

        Parameters
        ----------
        pixels : (p,), the map.
        to, there : (k,), other pixels, and the features in them; −1 for an empty one.
        """
        rows, columns = np.divmod(pixels, self._side)
        r, c = np.divmod(np.append(to, pixels[feature]), self._side)
        at = np.abs(r[:, None] - rows), np.abs(c[:, None] - columns)
        near = self._near[at]
        moved = near[:-1] - near[-1]
        found = moved @ self._d[feature]
        full = there >= 0
        other = there[full]
        # two features: terms without d change places too, and the distance of both stays
        own = self._d[other]
        found[full] -= np.einsum("kj,kj->k", own, moved[full])
        found[full] += 2.0 * self._d[feature, other] * near[:-1][full, feature]
        if not full.all():
            free = ~full
            change = self._own[at[0][:-1][free], at[1][:-1][free]] - self._own[at[0][-1], at[1][-1]]
            change[:, feature] = 0.0
            found[free] -= change.sum(axis=1)
        return found


def climb(d: Array, pixels: Array, side: int, passes: int = PASSES) -> Climbed:
    """Return the map that hill climbing reaches from another, see the header.

    Parameters
    ----------
    d : (p, p). pixels : (p,), the first map. passes : most passes.
    """
    pixels = pixels.copy()
    ell = Likelihood(d, pixels, side)
    held = np.full(side**2, -1)
    held[pixels] = np.arange(len(pixels))
    around, order = _neighbours(side), _order(side)
    found = [ell.value(pixels)]
    least = GAIN * max(abs(found[0]), 1.0)
    for _ in range(passes):
        swaps = 0
        for a in order:
            feature = int(held[a])
            if feature < 0:
                continue
            to = around[a]
            there = held[to]
            gains = ell.gains(pixels, feature, to, there)
            best = int(gains.argmax()) if len(gains) else 0
            if not len(gains) or gains[best] <= least:
                continue
            b, other = int(to[best]), int(there[best])
            held[a], held[b], pixels[feature] = other, feature, b
            if other >= 0:
                pixels[other] = a
            swaps += 1
        if not swaps:
            break
        found.append(ell.value(pixels))
    return Climbed(pixels, tuple(found))


def _neighbours(side: int) -> list[Array]:
    """Return the pixels around each pixel, in the order of their rows."""
    steps = [(i, j) for i, j in product((-1, 0, 1), repeat=2) if i or j]
    inside = range(side)
    return [
        np.array(
            [(r + i) * side + c + j for i, j in steps if r + i in inside and c + j in inside], int
        )
        for r, c in product(inside, repeat=2)
    ]


def _order(side: int) -> list[int]:
    """Return the pixels in the order of a pass: by lattice, then by row."""
    return [
        r * side + c
        for i, j in product(range(3), repeat=2)
        for r in range(i, side, 3)
        for c in range(j, side, 3)
    ]


def likeness(corr: Array, pixels: Array, side: int) -> Array:
    """Return the mean correlation (p,) of each feature with those in pixels around; NaN without."""
    held = np.full(side**2, -1)
    held[pixels] = np.arange(len(pixels))
    found = np.full(len(pixels), np.nan)
    for pixel, around in zip(range(side**2), _neighbours(side), strict=True):
        near = held[around][held[around] >= 0]
        if held[pixel] >= 0 and len(near):
            found[held[pixel]] = corr[held[pixel], near].mean()
    return found
