"""What a fit of `dgd` refuses, and which components its model does not have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from fedcohort.algorithms.dgd.settings import DgdSettings
from fedcohort.arrays import Array
from fedcohort.models.dgd import Dgd, DgdNet
from fedcohort.models.network import network
from fedcohort.protocol import SettingError


def check_clusters(rows: int, config: DgdSettings, least: int) -> None:
    """Refuse more clusters than n rows allow.

    Raises
    ------
    SettingError : with the largest number.
    """
    if config.n_clusters * least > rows:
        raise SettingError(
            f"setting 'n_clusters' is {config.n_clusters}, and {rows} rows make at most "
            f"{rows // least} clusters of {least}. Give fewer, or add sites."
        )


def without_small(spec: str, theta: Array, rows: int, least: int) -> tuple[str, Array, int]:
    """Return spec and θ of a network without small components, and the number left out.

    The remaining ones are in the order of their weights π, the largest first. At least one remains.

    Parameters
    ----------
    rows : n. least : smallest n π_k that remains.
    """
    net = network(spec)
    net.load(theta)
    module = cast("DgdNet", net.module)
    with torch.no_grad():
        shares = module.log_weights.exp().numpy()
        order = np.argsort(-shares, kind="stable")
        stays = order[: max(1, int((rows * shares >= least).sum()))]
        means, logs = (t[torch.from_numpy(stays)] for t in module.mixture())
    entries = json.loads(spec)
    del entries["kind"]
    entries["hidden"] = tuple(entries["hidden"])
    smaller = replace(Dgd(**entries), components=len(stays), free=True).spec
    left = network(smaller)
    with torch.no_grad():
        old = dict(module.named_parameters())
        for name, p in left.module.named_parameters():
            if name not in MIXTURE:
                p.copy_(old[name])
    part = torch.from_numpy(shares[stays] / shares[stays].sum())
    cast("DgdNet", left.module).mix(means, (-logs).exp(), part)
    return smaller, left.read(), len(shares) - len(stays)


#: Parameters of a `DgdNet` with a row for each component.
MIXTURE = ("_means", "_precisions", "_weights")
