"""Greedy layer-wise pretraining: an autoencoder as a stack of pairs of layers.

Vincent et al., JMLR 11, 2010; Xie et al., ICML 2016, section 3.2; D6.2, eqs. 7.1 to 7.4. Pair l,
one layer of the encoder and its decoder layer, is a small autoencoder of the preceding layers'
output. Its code has the activation of a hidden layer (none for the last pair). Its output has the
activation of the layer that it reconstructs (the data's for the first pair). The pairs together are

    y = back_1(… back_L(layer_L(… layer_1(x))))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.objectives import Reconstruction
from fedcohort.models.reconstruction import Noise


def pairs(a: Autoencoder) -> tuple[Autoencoder, ...]:
    """Return the pairs of an autoencoder, that of the data first."""
    last = len(a.widths) - 1
    return tuple(
        replace(
            a,
            inputs=n,
            widths=(m,),
            output=a.activation if k else a.output,
            bottleneck=a.activation if k < last else a.bottleneck,
            unit_norm=a.unit_norm and k == last,
        )
        for k, (n, m) in enumerate(pairwise(a.sizes))
    )


def lower(a: Autoencoder, layers: int) -> Autoencoder:
    """Return the first layers, fewer than all, as an autoencoder whose code is a hidden layer."""
    return replace(a, widths=a.widths[:layers], bottleneck=a.activation, unit_norm=False)


def stack(a: Autoencoder, thetas: Sequence[Array]) -> Array:
    """Return θ (P,) of an autoencoder from those of its pairs, that of the data first."""
    ahead = 2
    cut = [
        [theta[list(part)] for part in pair.slices()]
        for pair, theta in zip(pairs(a), thetas, strict=True)
    ]
    forth = [part for parts in cut for part in parts[:ahead]]
    back = [part for parts in reversed(cut) for part in parts[ahead:]]
    return np.concatenate([*forth, *back])


def objectives(a: Autoencoder, first: Reconstruction) -> tuple[Reconstruction, ...]:
    """Return the objective of each pair: the data's for the first, MSE for the others.

    A hidden layer is neither binary nor in [0, 1]. So the noise of its pair is corruption, at the
    rate of the data's noise, unless that is Gaussian (D6.2, eq. 7.1).
    """
    rate = 0.0 if first.noise.kind in ("none", "gaussian") else first.noise.rate
    hidden = Reconstruction(noise=Noise(kind="corruption", rate=rate) if rate else Noise())
    return (first, *[hidden] * (len(a.widths) - 1))
