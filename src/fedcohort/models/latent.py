"""Encoding, decoding and reconstruction by an autoencoder, as functions of arrays without
dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.models.autoencoder import AutoencoderNet
from fedcohort.models.network import FlatNet

#: Rows computed at a time, which limits the memory of the widest layer's activations.
BLOCK = 8192


def encoded(net: FlatNet, x: Tensor | Array) -> Array:
    """Return z (n, d) of x (n, p), in the network's type."""
    return _in_blocks(net, x, lambda module, part: module.encode(part))


def decoded(net: FlatNet, z: Tensor | Array) -> Array:
    """Return y (n, p) of z (n, d), in the network's type."""
    return _in_blocks(net, z, lambda module, part: module.decode(part))


def reconstructed(net: FlatNet, x: Tensor | Array) -> Array:
    """Return y (n, p) of x (n, p), in the network's type."""
    return _in_blocks(net, x, lambda module, part: module(part))


def _in_blocks(
    net: FlatNet, x: Tensor | Array, of: Callable[[AutoencoderNet, Tensor], Tensor]
) -> Array:
    held = x if isinstance(x, Tensor) else torch.from_numpy(np.require(x, None, ["C", "W"]))
    found: list[Array] = []
    for part in held.to(net.theta).split(BLOCK):  # pyright: ignore[reportUnknownVariableType]
        rows: Tensor = part
        found.append(_of(net, rows, of))
    return np.concatenate(found)


def _of(net: FlatNet, x: Tensor, of: Callable[[AutoencoderNet, Tensor], Tensor]) -> Array:
    return net.compute(lambda module: of(cast("AutoencoderNet", module), x))
