"""The coordinator's own rows: taken out of a study's table, or read from its file.

They are drawn once, before test rows and sites, from the study's seed: at each natural site, and
there in proportion from events, classes or fifths of the values. So they are test rows in no
repeat, and no site has them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check import Sheet, check_sheets, with_outcome
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, columns_of
from fedcohort.data.read import sources
from fedcohort.data.read.canonical import canonical
from fedcohort.protocol import DataError
from fedcohort.study.file.coordinator_data import CoordinatorData
from fedcohort.study.sites.splits import strata, stratified

T = TypeVar("T")
_TAKEN, _PARTED = 0x6F776E, 0x76616C


@dataclass(frozen=True)
class OwnFrames:
    """The coordinator's rows: for the first model, and for validation; None for none."""

    first: pd.DataFrame | None
    validation: pd.DataFrame | None

    @property
    def parts(self) -> tuple[tuple[str, pd.DataFrame], ...]:
        """The two parts that have rows, with what they are for."""
        both = (("the first model", self.first), ("validation", self.validation))
        return tuple((name, rows) for name, rows in both if rows is not None)

    @property
    def mark(self) -> int:
        """A checksum of the rows, to detect others when a run is resumed."""
        mark = 0
        for _, rows in self.parts:
            hashed = pd.util.hash_pandas_object(rows, index=False).to_numpy()
            mark = zlib.crc32(hashed.tobytes(), mark + 1)
        return mark

    def told(self, asked: CoordinatorData | None) -> dict[str, Any]:
        """Return the numbers of rows as in results.json."""
        rows = {k: 0 if f is None else len(f) for k, f in
                (("first", self.first), ("validation", self.validation))}  # fmt: skip
        return rows if asked is None or not asked.fraction else {"fraction": asked.fraction, **rows}

    def each(self, change: Callable[[pd.DataFrame], T]) -> tuple[T | None, T | None]:
        """Return what `change` makes of the first model's rows, and of those for validation."""
        first, validation = (
            None if rows is None else change(rows) for rows in (self.first, self.validation)
        )
        return first, validation


def taken(
    frame: pd.DataFrame, site: Array | None, outcome: Outcome | None, fraction: float, seed: int
) -> Array:
    """Return whether each row (n,) of a study's table is the coordinator's."""
    mask = np.zeros(len(frame), bool)
    for i, name in enumerate(np.unique(site) if site is not None else [None]):
        at = np.arange(len(frame)) if name is None else np.flatnonzero(site == name)
        rng = np.random.default_rng((seed, _TAKEN, i))
        own = strata(frame.iloc[at].reset_index(drop=True), outcome)
        mask[at] = stratified(own, fraction, rng)
    return mask


def parted(
    rows: pd.DataFrame, asked: CoordinatorData, outcome: Outcome | None, seed: int, least: int
) -> OwnFrames:
    """Divide the coordinator's rows.

    Parameters
    ----------
    least : fewest rows of a part: all sites receive a model of the first ones, without noise.

    Raises
    ------
    DataError : a part has too few rows, or nothing to learn from.
    """
    rows = rows.reset_index(drop=True)
    rng = np.random.default_rng((seed, _PARTED))
    judges = stratified(strata(rows, outcome), asked.validation, rng)
    first = None if asked.validation == 1 else rows[~judges].reset_index(drop=True)
    validation = None if not asked.validation else rows[judges].reset_index(drop=True)
    found = OwnFrames(first, validation)
    for name, part in found.parts:
        if len(part) < least:
            raise DataError(
                f"coordinator_data: there are {len(part)} rows for {name}, and all sites are told "
                f"of no fewer than {least} patients (privacy.min_cell). Give the coordinator more "
                f"rows, or divide them otherwise (validation)."
            )
    return _that_teach(found, outcome)


def _that_teach(found: OwnFrames, outcome: Outcome | None) -> OwnFrames:
    """Return the same rows; raise DataError for a part with nothing to learn from."""
    for name, part in found.parts:
        if not len(part) or (outcome is not None and not outcome.can_teach([part])):
            raise DataError(
                f"coordinator_data: the {len(part)} rows for {name} have too few events, or values "
                f"of the outcome, to learn from. Give the coordinator more rows, or divide them "
                f"otherwise (in a study file by the share 'validation')."
            )
    return found


def read(
    asked: CoordinatorData,
    base: Path,
    dictionary: Dictionary,
    outcome: Outcome | None,
    seed: int,
    least: int,
) -> OwnFrames:
    """Return the coordinator's rows of a file.

    Parameters
    ----------
    base : folder of the file.
    least : as of `parted`.

    Raises
    ------
    DataError : there is no such file, or its rows do not fit the dictionary.
    """
    known = with_outcome(dictionary, outcome)
    frames = sources.load(asked.source, base, dictionary=known).frames
    if not isinstance(frames, pd.DataFrame):
        raise DataError(f"coordinator_data: {asked.source} is not one table.")
    return parted(_checked(frames, asked.source, known, outcome), asked, outcome, seed, least)


def given(
    first: pd.DataFrame | None,
    validation: pd.DataFrame | None,
    dictionary: Dictionary,
    outcome: Outcome | None,
) -> OwnFrames:
    """Return the coordinator's rows from tables in memory.

    Raises
    ------
    DataError : rows do not fit the dictionary, or a part has nothing to learn from.
    """
    known = with_outcome(dictionary, outcome)
    found = [
        None if rows is None else _checked(rows, f"coordinator_data, {name}", known, outcome)
        for name, rows in (("first model", first), ("validation", validation))
    ]
    return _that_teach(OwnFrames(*found), outcome)


def _checked(
    rows: pd.DataFrame, name: str, known: Dictionary, outcome: Outcome | None
) -> pd.DataFrame:
    """Return rows in the dictionary's form and columns; raise DataError if they do not fit it."""
    frame = canonical(rows, known)
    check_sheets([Sheet(frame, name)], outcome, known, natural=False, eventless=True)
    columns = [c for c in frame.columns if c in known.variables or c in columns_of(outcome)]
    return frame[columns]
