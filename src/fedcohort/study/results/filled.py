"""Intervals of a model's imputed numbers, in the units of the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtri

from fedcohort.arrays import Array
from fedcohort.data.prepare import Design, NumberColumn
from fedcohort.protocol import NotSupported


def intervals(design: Design, x: Array, filled: Array, sd: Array, level: float) -> pd.DataFrame:
    """Return a row for each missing number: row, column, value, low, high.

    Parameters
    ----------
    x, filled, sd : features (n, p), NaN if missing; imputed ones; and their standard deviations.

    Raises
    ------
    NotSupported : a number's scale is not linear, so a standard deviation has no unit.
    """
    z, parts, at = float(ndtri((1.0 + level) / 2.0)), [], 0
    for c in design.columns:
        place, at = at, at + len(c.features)
        if not isinstance(c, NumberColumn) or c.type == "binary":
            continue
        if c.knots:
            raise NotSupported(
                "intervals need a linear scale; this fit has scale: quantile. Fit again with "
                "scale: standard."
            )
        rows = np.flatnonzero(np.isnan(x[:, place]))
        middle, off = filled[rows, place], z * sd[rows, place]
        low, value, high = (c.undone(v[:, None]) for v in (middle - off, middle, middle + off))
        parts.append(pd.DataFrame(
            {"row": rows, "column": c.name, "value": value, "low": low, "high": high}
        ))  # fmt: skip
    empty = pd.DataFrame(columns=["row", "column", "value", "low", "high"])
    return pd.concat(parts, ignore_index=True) if parts else empty
