"""What is done to a site's rows (`Degradation`), what was done (`Given`), and the draws of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

#: Which entries are missing.
RANDOM, VALUE, COLUMN = "random", "value", "column"
HOW = (RANDOM, VALUE, COLUMN)
#: Kinds of draws; the order is part of every draw.
KINDS = ("sites", "rows", "swap", "flip", "noise", "replace", "missing")
_TAG = 0x64656772


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """What is done to the rows of some sites; see `data.degrade`.

    Attributes
    ----------
    sites : their names, or how many are drawn.
    rows : number of rows that stay, from 2, or their share, below 1; None: all.
    missing : share of known entries that are removed. how : one of `HOW`.
    columns : features that may lose entries; empty: all.
    flip : share of rows. noise : in standard deviations. replace : share of known entries.
    units : factor by column.
    """

    sites: tuple[str, ...] | int
    rows: float | None = None
    missing: float = 0.0
    how: str = RANDOM
    columns: tuple[str, ...] = ()
    flip: float = 0.0
    noise: float = 0.0
    replace: float = 0.0
    units: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass
class Given:
    """What one site was given.

    Attributes
    ----------
    laid, rows : rows before and after. entries : known entries of features in the rows after.
    removed, replaced, noisy : how many of these. how : by which of `HOW` they were removed.
    columns : columns that became empty.
    swapped, flipped : rows whose outcomes were permuted, or changed.
    units : factor by column.
    degraded : whether the site is one of `degrade`.
    known, intact : known entries of features and outcome in the rows before, and how many of them
        are still there with their values.
    """

    laid: int
    rows: int = 0
    known: int = 0
    intact: int = 0
    entries: int = 0
    removed: int = 0
    replaced: int = 0
    noisy: int = 0
    swapped: int = 0
    flipped: int = 0
    noise: float = 0.0
    how: str = RANDOM
    columns: tuple[str, ...] = ()
    units: Mapping[str, float] = field(default_factory=dict[str, float])
    degraded: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON has them."""
        return asdict(self) | {"columns": list(self.columns)}


def generator(seed: int, kind: str, site: str) -> np.random.Generator:
    """Return the generator of one kind of draws at a site, or for all sites if it has no name."""
    name = int.from_bytes(site.encode(), "big")
    return np.random.default_rng((seed, _TAG, KINDS.index(kind), name))


def part(share: float, n: int) -> int:
    """Return r(share·n) of `data.degrade`; 1e-9 makes up for a share's rounding."""
    return math.floor(share * n + 0.5 + 1e-9)
