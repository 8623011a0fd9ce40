"""Names of the covariates along which a likelihood is flat, in words.

An information matrix is flat along eigenvectors of (nearly) zero eigenvalue, and an endless step
runs along a direction in which the likelihood always rises. Covariates with a part in that
direction are named. A column whose standard deviation is rounding of a constant has no scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array

#: Standard deviation over mean below which a column is constant.
CONSTANT = 1e-12
#: Smallest over largest eigenvalue of an information matrix that can still be inverted.
SINGULAR = 1e-10
#: Parts in a unit eigenvector, and shares of a step's longest part, that are worth naming.
PART, SHARE = 1e-3, 0.3
#: What helps where `l2` is a ridge penalty.
RIDGE = "refit with a ridge penalty (l2 > 0)"


def collinear(
    names: Sequence[str], flat: Array, ratio: float, where: str = "", remedy: str = RIDGE
) -> str:
    """Name constant or collinear covariates, and say what to do.

    Parameters
    ----------
    flat : (p, k) eigenvectors along which the information is flat.
    ratio : of its smallest eigenvalue to its largest.
    where : part of the table, if not the whole.
    remedy : an alternative to dropping a covariate; empty if a method has none.
    """
    weight = np.abs(flat).max(axis=1)
    blame = [n for n, w in zip(names, weight, strict=True) if w > PART]
    if len(blame) == 1:
        what, drop = f"covariate {quoted(blame)} is constant", "Drop it"
    else:
        what, drop = f"covariates {quoted(blame)} are collinear", "Drop one of them"
    also = f", or {remedy}" if remedy else ""
    return f"{what}{where} (eigenvalue ratio {abs(ratio):.0e}). {drop}{also}."


def longest(names: Sequence[str], step: Array) -> str:
    """Name the covariates along which a step (p,) is longest."""
    length = np.abs(step)
    return quoted([n for n, v in zip(names, length, strict=True) if v > SHARE * length.max()])


def quoted(names: Sequence[str]) -> str:
    """Return names in quotes."""
    return ", ".join(map(repr, names))


def scale_of(sd: Array, mean: Array) -> Array:
    """Return the standard deviations (p,) of columns of these means (p,); 1 of constant ones."""
    return np.where(sd > CONSTANT * np.abs(mean), sd, 1.0)
