"""A saved model applied to a CSV file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fedcohort.data import sources
from fedcohort.protocol import DataError, StudyError, registry
from fedcohort.study.face import load


def csv_of(model: Path, table: Path, times: str | None) -> str:
    """Return predictions as CSV text: the row's number, the prediction, survival at `times`.

    Raises
    ------
    DataError : no such model or table, a missing column, an unknown level.
    StudyError : `times` are no positive numbers.
    """
    fit = load(model)
    source = sources.load(str(table), Path())
    if not isinstance(source.frames, pd.DataFrame):
        raise DataError(f"{table}: expected one table.")
    frame = source.frames
    gives = registry.find(fit.method).gives
    name = "risk" if "predict_survival" in gives else "prediction"
    try:
        out = pd.DataFrame({"row": np.arange(1, len(frame) + 1), name: fit.predict(frame)})
        if times is not None:
            grid = _times(times)
            curves = fit.predict_survival(frame, grid)
            for i, t in enumerate(grid):
                out[f"survival at {t:g}"] = curves[:, i]
    except DataError as error:
        raise DataError(f"{table}: {error}") from None
    return out.to_csv(index=False, lineterminator="\n")


def _times(text: str) -> np.ndarray:
    try:
        grid = np.array([float(part) for part in text.split(",")])
    except ValueError:
        grid = np.array([-1.0])
    if not (np.isfinite(grid).all() and (grid > 0).all()):
        raise StudyError("--times: expected positive numbers separated by commas, such as 365,730.")
    return grid
