"""Coordinates and blocks of compressed updates; see `networks.compression`."""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.training.networks.plan import Plan

#: Choices of `compression`; coordinates with one scale in int8.
COMPRESSIONS, BLOCK = ("none", "random_k", "top_k", "int8"), 256

_TAG = 0x636F6D70


def places_of(plan: Plan, size: int) -> int:
    """Return k, the number of coordinates out of `size` that are sent."""
    return min(size, max(1, math.ceil(plan.share * size)))


def coordinates(plan: Plan, size: int, number: int) -> Array:
    """Return the k increasing coordinates of a round, the same at all sites."""
    rng = np.random.default_rng((_TAG, number, size))
    return np.sort(rng.choice(size, places_of(plan, size), replace=False))


def blocks(v: Array) -> Array:
    """Return the largest |v| of each block of `BLOCK` coordinates."""
    wide = np.zeros(-(-len(v) // BLOCK) * BLOCK)
    wide[: len(v)] = np.abs(v)
    return wide.reshape(-1, BLOCK).max(axis=1, initial=0.0)


def shortened(v: Array, plan: Plan, number: int) -> tuple[Array, Array, bool]:
    """Return the first reply of a visit that changed θ by v (P,), what stays, and if more is due.

    Parameters
    ----------
    number : of the round.
    """
    if plan.compression == "random_k":
        at = coordinates(plan, len(v), number)
        rest = v.copy()
        rest[at] = 0.0
        return v[at], rest, False
    return (blocks(v) if plan.compression == "int8" else np.zeros(0)), v, True


def first_size(plan: Plan, size: int) -> int:
    """Return the length of the first reply of a visit."""
    if plan.compression == "random_k":
        return places_of(plan, size)
    return -(-size // BLOCK) if plan.compression == "int8" else 0
