"""Noise on a grid, and the one function that adds it to an exact reply.

Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020. Over the
integers, with scale t and standard deviation σ,

    discrete Laplace    P(x) ∝ exp(−|x| / t)                                               (1)
    discrete Gaussian   P(x) ∝ exp(−x² / 2σ²)                                              (2)

Draws of (2) are draws of (1) with t = ⌊σ⌋ + 1, accepted with probability
exp(−(|x| − σ²/t)² / 2σ²); draws of (1) come from a uniform integer and a geometric one. Every
probability is compared with a uniform number of 52 random bits at any size (`Source.uniform`), so
each P(x) is right to a relative 2^-40 far into the tails: their sampler in float64 instead of
rational numbers.

Noise of a continuous scale is the same on a grid of 2^-30 of its scale: floating-point noise has
holes that depend on the value it hides (Mironov, CCS 2012). The value is rounded to that grid
first, which adds to the sensitivity (`perturb`). The concentrated privacy of (2) is that of a
continuous Gaussian of this σ (their theorem 4), and its δ at any ε equals it to a relative 1/σ² (a
sum over the grid against the integral): 2^-20 on the coarsest accepted grid.

A secure sum of n shares, each a discrete Gaussian of σ, is close to a discrete Gaussian of √n σ.
The log ratio of the probabilities of any value is at most (Kairouz, Liu & Steinke, ICML 2021)

    τ = 10 Σ_{k=1}^{n−1} exp(−2π² σ² k / (k + 1))                                          (3)

That is 0 in float64 from σ = 9, and a share has at least `LEAST_STEPS`, so it is not counted.
Shares are made for the smallest number t of sites whose sum is ever opened; more sites add more
noise. If only h of the t sites keep their shares secret, noise z√(h/t) is left.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.noise import Source
from fedcohort.protocol.errors import SettingError

#: A scale is at least 2^GRID_BITS steps of its grid, unless a coarser grid is asked for.
GRID_BITS: Final = 30
#: Smallest scale that `perturb` accepts, in grid units.
LEAST_STEPS: Final = 2.0**10
#: Largest scale of discrete noise, in grid units.
LARGEST_SCALE: Final = 2.0**50
MECHANISMS: Final = ("gaussian", "laplace")


def discrete_laplace(source: Source, scale: float, size: int) -> Array:
    """Return draws (size,), int64, of eq. (1) with scale t in grid units.

    A scale that is no multiple of 2^-50 (or of 2^-50 of itself, if above 1) is rounded up.

    Raises
    ------
    SettingError : the scale is not above 0, or is above 2^50 grid units.
    """
    _check_scale(scale)
    shift = 50 - max(0, math.frexp(scale)[1])
    steps = math.ceil(math.ldexp(scale, shift))
    while shift > 0 and steps % 2 == 0:
        shift, steps = shift - 1, steps // 2
    drawn = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        n = int(1.7 * (size - filled)) + 16
        # x = ⌊(u + steps·v) / 2^shift⌋ of u < steps with weight exp(−u/steps), v ~ geometric(1/e)
        u = source.below(steps, n)
        u = u[source.uniform(n) < np.exp(-u / steps)]
        v = np.floor(-np.log(source.uniform(u.size))).astype(np.int64)
        x = (u + steps * np.minimum(v, 2**62 // steps)) >> shift
        negative = _coins(source, u.size)
        x = np.where(negative, -x, x)[~(negative & (x == 0))][: size - filled]
        drawn[filled : filled + x.size] = x
        filled += x.size
    return drawn


def discrete_gaussian(source: Source, sigma: float, size: int) -> Array:
    """Return draws (size,), int64, of eq. (2) with standard deviation parameter σ in grid units.

    Raises
    ------
    SettingError : σ is not above 0, or is above 2^50 grid units.
    """
    _check_scale(sigma)
    t = math.floor(sigma) + 1
    centre = sigma / t * sigma
    drawn = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        x = discrete_laplace(source, float(t), int(1.5 * (size - filled)) + 16)
        gap = (np.abs(x) - centre) / sigma
        x = x[source.uniform(x.size) < np.exp(-0.5 * gap * gap)][: size - filled]
        drawn[filled : filled + x.size] = x
        filled += x.size
    return drawn


def granularity(scale: float, resolution: float = 0.0) -> float:
    """Return the step of the grid for noise of this scale: a power of two.

    Parameters
    ----------
    resolution : of the fixed-point code in which noisy values are summed, a power of two. No
        step is finer, so that the code changes no value.
    """
    return max(math.ldexp(1.0, math.frexp(scale)[1] - 1 - GRID_BITS), resolution)


def gaussian(source: Source, sigma: float, shape: int | tuple[int, ...]) -> Array:
    """Return Gaussian noise of this shape: eq. (2), in multiples of `granularity(sigma)`."""
    step = granularity(sigma)
    return discrete_gaussian(source, sigma / step, math.prod(_shape(shape))).reshape(shape) * step


def laplace(source: Source, scale: float, shape: int | tuple[int, ...]) -> Array:
    """Return Laplace noise of this shape: eq. (1), in multiples of `granularity(scale)`."""
    step = granularity(scale)
    return discrete_laplace(source, scale / step, math.prod(_shape(shape))).reshape(shape) * step


def perturb(
    source: Source,
    value: Array,
    *,
    sensitivity: float,
    noise: float,
    mechanism: str = "gaussian",
    share: int = 1,
    resolution: float = 0.0,
) -> Array:
    """Return value + noise of one field, float64, on a grid.

    Parameters
    ----------
    value : any shape, finite; the exact statistic.
    sensitivity : Δ > 0, the largest change by one unit: in L2 norm ("gaussian") or L1 ("laplace").
    noise : z > 0; the standard deviation (or scale) is z·(Δ + the rounding to the grid), so that
        the release costs what z says.
    share : smallest number of sites whose replies are summed: each adds a Gaussian of variance
        1/share, and the sum has all of it (eq. 3). Laplace noise is not shared: each site adds all
        of it.
    resolution : see `granularity`.

    Raises
    ------
    SettingError : a mechanism that is none of `MECHANISMS`; Δ or z not above 0; a value that is not
        finite, or more than 2^22 times its noise.
    """
    if mechanism not in MECHANISMS:
        raise SettingError(f"no mechanism {mechanism!r}: take one of {', '.join(MECHANISMS)}")
    if not (0 < sensitivity < math.inf and 0 < noise < math.inf and share >= 1):
        raise SettingError(
            f"sensitivity {sensitivity:g}, noise {noise:g}, share {share}: all must be above 0"
        )
    exact = np.asarray(value, np.float64)
    parts = share if mechanism == "gaussian" else 1
    step = granularity(noise * sensitivity / math.sqrt(parts), resolution)
    # Rounding moves each of two neighbouring values by half a step: a step per number between them.
    reach = math.sqrt(exact.size) if mechanism == "gaussian" else float(exact.size)
    scale = noise * (sensitivity / step + reach) / math.sqrt(parts)
    if scale < LEAST_STEPS:
        raise SettingError(
            f"noise of {scale * step:.1e} is too fine for a code of resolution {resolution:.1e}: "
            "scale the statistic up"
        )
    units = np.rint(exact / step)
    # `all` of a comparison is False for NaN too.
    if not bool(np.all(np.abs(units) < 2.0**52)):
        raise SettingError(
            "a statistic is not finite, or more than 2^22 times its noise: check its bounds"
        )
    draw = discrete_gaussian if mechanism == "gaussian" else discrete_laplace
    added = draw(source, scale, exact.size).reshape(exact.shape)
    return (units.astype(np.int64) + added).astype(np.float64) * step


def _coins(source: Source, n: int) -> Array:
    """Return n fair coins (n,), bool."""
    return np.unpackbits(source.words((n + 63) // 64).view(np.uint8))[:n].astype(bool)


def _shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else shape


def _check_scale(scale: float) -> None:
    if not 0 < scale <= LARGEST_SCALE:
        raise SettingError(f"noise of {scale:g} grid units: it must be above 0 and at most 2^50")
