"""Ways of personalisation by name, and a way as sent to a site."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from torch import nn

from fedcohort.arrays import Array
from fedcohort.models.forest import ForestNet
from fedcohort.models.network import network
from fedcohort.protocol import NothingToLearn
from fedcohort.training.settings import ALL

#: Ways in which the user's site continues from the final common model; see the package's header.
AFTER = ("finetune",)
#: Ways in which parts of θ are each site's own.
PARTED = ("fedper", "fedrep")
#: Ways in which the user trains a full model of its own beside the common one.
BESIDE = ("ditto", "apfl")
#: All ways.
WAYS = ("local", "global", *AFTER, *PARTED, *BESIDE, "cluster")
#: Ways in which the user's site tells a model of its own.
TOLD = ("local", *AFTER, *PARTED, *BESIDE)

#: Part of the entropy of the user's own draws, with study seed, site and visit number.
TAG = 0x6F776E


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way, as sent to all sites.

    Attributes
    ----------
    name : one of `WAYS`.
    user : the site that the model is for; `ALL` for a model of each site; "" with one site.
    epochs : passes of finetune; in fedrep, passes of a visit over its own part.
    own : ranges of θ, [start, stop), that are each site's own in fedper and fedrep.
    pull : λ ≥ 0 of ditto.
    alpha : α of apfl in [0, 1]; the start value if it adapts.
    adapt : whether apfl learns α.
    """

    name: str
    user: str
    epochs: int = 0
    own: tuple[tuple[int, int], ...] = ()
    pull: float = 0.0
    alpha: float = 0.0
    adapt: bool = False

    @cached_property
    def text(self) -> str:
        """The way as JSON, for a step's argument."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(text: str) -> Way:
        """Return the way from its JSON text."""
        given = json.loads(text)
        given["own"] = tuple((int(a), int(b)) for a, b in given["own"])
        return Way(**given)

    @property
    def every(self) -> bool:
        """Whether each site has a model of its own, which it keeps."""
        return self.user == ALL

    def is_of(self, site: str) -> bool:
        """Return whether a site has a model of its own."""
        return self.every or self.user in ("", site)

    def mask(self, size: int) -> Array:
        """Return bool (P,): the parameters that are each site's own."""
        held = np.zeros(size, bool)
        for start, stop in self.own:
            held[start:stop] = True
        return held


def last_layer(spec: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of the last layer in θ; with several decoders, of each last layer.

    A forest's leaves, which stand on the last layer, are with it. If the network is one linear
    layer, only its bias: otherwise it would be all of θ.
    """
    module = network(spec).module
    linear = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    last = [name for name, _ in linear if name.split(".")[-1] == "_last"] or [linear[-1][0]]
    wanted = {f"{name}.{part}" for name in last for part in ("weight", "bias")}
    if len(linear) == 1 and not any(isinstance(m, nn.Conv2d) for m in module.modules()):
        wanted = {f"{last[0]}.bias"}
    leaves = isinstance(module, ForestNet)
    return _ranges(spec, lambda name: name in wanted or (leaves and name.startswith("leaves.")))


def of_columns(spec: str, columns: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of some columns' coefficients, and of the bias, of one linear layer."""
    outputs, p = next(network(spec).module.parameters()).shape
    own = sorted(k * p + j for k in range(outputs) for j in columns)
    return tuple((j, j + 1) for j in own) + last_layer(spec)


def _ranges(spec: str, wanted: Callable[[str], bool]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    start = 0
    for name, p in network(spec).module.named_parameters():
        stop = start + p.numel()
        if wanted(name):
            found.append((start, stop))
        start = stop
    return tuple(found)


def nothing(user: str, least: int) -> NothingToLearn:
    """Return the error for a user without informative rows."""
    return NothingToLearn(
        f"site {user!r} has nothing to learn from: it has fewer than {least} rows, or of "
        f"one of several classes, or no events. "
        f"Take another user, or more rows."
    )
