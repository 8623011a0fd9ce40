"""Columns that look like the pixels of an image, for a draft that a person reads and corrects.

Their names differ in numbers alone, as pixel0 … pixel783 or p0_0 … p27_27; there are side × side of
them, at least 8 × 8; and all values are whole numbers from 0 to 255.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

#: Shortest side of an image.
SHORTEST = 8
#: Values of a pixel of 8 bits.
VALUES = (0.0, 255.0)


def pixels_of(tables: Sequence[pd.DataFrame], outside: Collection[str] = ()) -> tuple[str, ...]:
    """Return the columns that look like the pixels of a square image, in order; () if none do.

    Parameters
    ----------
    tables : in plain form.
    outside : columns that are none, such as the outcome.
    """
    alike: dict[str, list[str]] = {}
    for name in map(str, tables[0].columns):
        if name not in outside and re.search("[0-9]", name):
            alike.setdefault(re.sub("[0-9]+", "#", name), []).append(name)
    names = max(alike.values(), key=len, default=[])
    side = math.isqrt(len(names))
    if side < SHORTEST or side**2 != len(names):
        return ()
    return tuple(names) if all(_are_pixels(t, names) for t in tables) else ()


def _are_pixels(table: pd.DataFrame, names: Sequence[str]) -> bool:
    if not set(names) <= set(table.columns):
        return False
    columns = table[list(names)]
    if any(kind.kind not in "iuf" for kind in columns.dtypes):
        return False
    x = columns.to_numpy(np.float64)
    known = x[~np.isnan(x)]
    return bool(
        len(known)
        and (known == np.floor(known)).all()
        and known.min() >= VALUES[0]
        and VALUES[1] >= known.max() > 1
    )
