"""Rows as points of the space to cluster: columns, levels, or a network's latent variables.

The point of row x is z = x, or z = f(x) with f the encoder of a network at θ. For columns of
levels, z has 1/√2 for the row's level and 0 for the others, so that the squared distance of two
rows is the number of columns in which they differ. A scale may follow:

    standard  (z − shift) / spread        l1  z / Σ_j |z_j|        l2  z / ‖z‖               (1)

where a point at 0 stays. A site computes its points once per space. The θ of a wide network is
long, so sites can receive it once (`place`) and keep the points.

Revealed by `place`: the number of rows, as a sum over all sites.
"""

from __future__ import annotations

import hashlib
import json
import math
import weakref
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import DataError, Federation, Keep, Site, message, summed

#: Names of the scales.
SCALES = ("none", "standard", "l1", "l2")


@dataclass(frozen=True, kw_only=True)
class Space:
    """Space in which rows are points.

    Attributes
    ----------
    network, theta : the spec of an encoder network, and its θ (P,); "" for the columns of x.
    dtype, device : of the network's computation.
    scale : one of `SCALES`, eq. (1).
    frame : (2, d), shift and spread of the standard scale; (0, 0) for others.
    groups : (p,), number of the variable whose level each column of x is; (0,) if columns are
        numbers. A row with no level set has the variable's first level, which has no column.
    kept : whether sites keep the network's points (`placed`), so that steps do not send θ.
    """

    network: str = ""
    theta: Array = field(default_factory=lambda: np.zeros(0))
    dtype: str = "float64"
    device: str = "cpu"
    scale: str = "none"
    frame: Array = field(default_factory=lambda: np.zeros((0, 0)))
    groups: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    kept: bool = False

    @property
    def text(self) -> str:
        """JSON of the space without its arrays, for a step's argument."""
        return json.dumps([self.network, self.dtype, self.device, self.scale, self.kept])

    @property
    def given(self) -> dict[str, Any]:
        """Arguments of a step that define the space."""
        theta = np.zeros(0) if self.kept else self.theta
        arrays = {"theta": theta, "frame": self.frame, "groups": self.groups}
        return {"space": self.text, **arrays}

    @property
    def is_plain(self) -> bool:
        """Whether points are the rows themselves."""
        return not self.network and self.scale == "none" and not len(self.groups)

    @classmethod
    def of(cls, space: str, theta: Array, frame: Array, groups: Array) -> Space:
        """Return the space from a step's arguments."""
        network, dtype, device, scale, kept = json.loads(space)
        return cls(
            network=network, theta=theta, dtype=dtype, device=device, scale=scale, frame=frame,
            groups=groups, kept=kept,
        )  # fmt: skip

    def points(self, x: Array) -> Array:
        """Return the points (n, d), float64, of rows x (n, p)."""
        z = np.asarray(x, np.float64)
        if len(self.groups):
            z = _levels(z, self.groups)
        if self.network:
            z = _encoded(z, self)
        return self.scaled(z)

    def scaled(self, z: Array) -> Array:
        """Return eq. (1) of z (n, d)."""
        if self.scale == "standard":
            return (z - self.frame[0]) / self.frame[1]
        if self.scale == "none":
            return z
        size = np.abs(z).sum(axis=1) if self.scale == "l1" else np.linalg.norm(z, axis=1)
        return z / np.where(size > 0, size, 1.0)[:, None]


#: The columns of x as they are.
PLAIN = Space()


def _levels(x: Array, groups: Array) -> Array:
    """Return 1/√2 for each row's level, 0 for others; first levels are added as columns."""
    hot = [
        part
        for g in np.unique(groups)
        for part in (1.0 - x[:, groups == g].sum(axis=1, keepdims=True), x[:, groups == g])
    ]
    return np.hstack(hot) / math.sqrt(2.0)


def _encoded(x: Array, space: Space) -> Array:
    from fedcohort.models.latent import encoded  # imports torch, only if needed
    from fedcohort.models.network import network

    net = network(space.network, space.dtype, space.device)
    net.load(space.theta)
    return encoded(net, x).astype(np.float64)


@message
class Placed:
    """Number of rows () that a site has placed."""

    rows: Array


@message
class Kept:
    """State of a site: points (n, d) of its rows, unscaled, and their clusters (n,).

    Either may be empty.
    """

    points: Array
    labels: Array


@summed
def place(site: Site[Any, Any], *, theta: Array, space: str) -> Keep[Placed, Kept]:
    """Compute the rows' points in a network's latent space, and keep them at the site."""
    nothing = np.zeros((0, 0)), np.zeros(0, np.int64)
    bare = replace(Space.of(space, theta, *nothing), scale="none", kept=False)
    z = points_of(site.data.x, **bare.given)
    return Keep(Placed(np.array(len(z))), Kept(z.copy(), nothing[1]))


STEPS = (place,)


def placed(fed: Federation, space: Space) -> tuple[Federation, Space]:
    """Let sites place their rows; return the sites that did, and the space without θ."""
    kept = replace(space, kept=True)
    fed.awaiting(len(fed.sites)).sum(place, theta=space.theta, space=kept.text)
    return fed.only(fed.answered).awaiting(), kept


def points_at(
    site: Site[Any, Kept | None], space: str, theta: Array, frame: Array, groups: Array
) -> Array:
    """Return a site's points (n, d), from its state, or as `points_of`.

    Raises
    ------
    DataError : the site has not placed its rows, or a value is not finite.
    """
    here = Space.of(space, theta, frame, groups)
    if not here.kept:
        return points_of(site.data.x, space, theta, frame, groups)
    if site.state is None or len(site.state.points) != len(site.data.x):
        raise DataError("this site has not placed its rows in the latent space. Start again.")
    return here.scaled(site.state.points)


@dataclass
class _Memory:
    x: weakref.ref[Array]
    key: str
    z: Array


_memories: dict[int, _Memory] = {}


def points_of(x: Array, space: str, theta: Array, frame: Array, groups: Array) -> Array:
    """Return the points (n, d) of a site's x (n, p), from memory if they are the latest.

    Raises
    ------
    DataError : a value is not finite; the error has the column's number.
    """
    if len(bad := np.flatnonzero(~np.isfinite(x).all(axis=0))):
        raise DataError(
            f"column {int(bad[0]) + 1} of the features has missing or infinite values. Let the "
            f"preprocessing impute them."
        )
    here = Space.of(space, theta, frame, groups)
    if here.is_plain:
        return x
    mark = hashlib.sha256(space.encode())
    for a in (theta, frame, groups):
        mark.update(a.tobytes())
    key, number = mark.hexdigest(), id(x)
    memory = _memories.get(number)
    if memory is None or memory.x() is not x or memory.key != key:
        gone = weakref.ref(x, lambda _: _memories.pop(number, None))
        memory = _memories[number] = _Memory(gone, key, here.points(x))
    return memory.z
