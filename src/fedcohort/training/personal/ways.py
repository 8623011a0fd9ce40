"""How a model is made one site's own: the ways by name, and what a site is told of one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from torch import nn

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.protocol import NothingToLearn

#: Ways of one common model, from which the user's site goes on; see the package's header.
AFTER = ("finetune",)
#: Ways in which parts of θ are each site's own.
PARTED = ("fedper", "fedrep")
#: Ways in which the user has a whole model of its own beside the common one.
BESIDE = ("ditto", "apfl")
#: All ways, the two ends first.
WAYS = ("local", "global", *AFTER, *PARTED, *BESIDE, "cluster")
#: Ways in which the user's site tells a model of its own.
TOLD = ("local", *AFTER, *PARTED, *BESIDE)

#: What the user's own draws are from, beside study seed, site and the number of the visit.
TAG = 0x6F776E


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way, as text that all sites are told.

    Attributes
    ----------
    name : one of `WAYS`.
    user : the site that the model is for; "" where there is one site.
    epochs : passes of finetune; of fedrep those in which a visit trains its own part.
    own : ranges of θ, [start, stop), that are each site's own in fedper and fedrep.
    pull : λ ≥ 0 of ditto.
    alpha : α of apfl in [0, 1], at first where it adapts.
    adapt : whether α of apfl is learnt.
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
        """Return the way that a coordinator sent."""
        given = json.loads(text)
        given["own"] = tuple((int(a), int(b)) for a, b in given["own"])
        return Way(**given)

    def mask(self, size: int) -> Array:
        """Return which of P parameters are each site's own: bool (P,)."""
        held = np.zeros(size, bool)
        for start, stop in self.own:
            held[start:stop] = True
        return held


def last_layer(spec: str) -> tuple[tuple[int, int], ...]:
    """Return where the last layer stands in θ, as ranges; of several decoders, that of each.

    Of a network that is one linear layer, the layer's bias: it would be all of θ otherwise.
    """
    module = network(spec).module
    linear = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    last = [name for name, _ in linear if name.split(".")[-1] == "_last"] or [linear[-1][0]]
    wanted = {f"{name}.{part}" for name in last for part in ("weight", "bias")}
    if len(linear) == 1:
        wanted = {f"{last[0]}.bias"}
    return _ranges(spec, lambda name: name in wanted)


def of_columns(spec: str, columns: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return where the coefficients of some columns of x, and the bias, of one linear layer are."""
    return tuple((j, j + 1) for j in sorted(columns)) + last_layer(spec)


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
    """Return the error of a user whose rows say nothing."""
    return NothingToLearn(
        f"site {user!r} has nothing to learn from: it has fewer than {least} rows, or no events. "
        f"Take another user, or more rows."
    )
