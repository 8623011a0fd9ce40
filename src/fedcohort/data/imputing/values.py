"""Imputed features as values of a table: in the columns' units, levels, and whole numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.prepare import Design, Head, LevelColumn


def values_of(design: Design, x: Array) -> pd.DataFrame:
    """Return the columns of a table whose features are x (n, p), as the dictionary allows them.

    Numbers are cut to the dictionary's range, and whole numbers are rounded. A level of the pool of
    rare levels becomes the first of these. Times since a date are left out: they give no date.
    """
    found = design.table(x)
    for c, head in zip(design.columns, _own_heads(design), strict=True):
        if isinstance(c, LevelColumn):
            if c.pooled:
                names = {c.kept[-1]: c.pooled[0]} if c.kept[-1] not in c.levels else {}
                found[c.name] = found[c.name].replace(names)
        elif c.variable.since:
            found = found.drop(columns=c.name)
        else:
            values = found[c.name].to_numpy(float)
            if not c.knots:
                values = np.clip(np.rint(values) if head.whole else values, head.low, head.high)
            found[c.name] = values
    return found


def _own_heads(design: Design) -> list[Head]:
    """Return each column's head, without those of indicators of missing values."""
    names = [c.name for c in design.columns]
    heads, found = iter(design.heads), list[Head]()
    for name in names:
        found.append(next(h for h in heads if h.name == name))
    return found


def completed(frame: pd.DataFrame, filled: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its missing cells and missing columns from `filled`.

    Columns that `filled` lacks stay as they are.
    """
    out = frame.copy()
    for name in filled:
        values = pd.Series(filled[name].to_numpy(), index=frame.index)
        if name not in frame.columns:
            out[name] = values
        elif (gone := frame[name].isna()).any():
            out[name] = frame[name].astype(values.dtype).where(~gone, values)
    return out
