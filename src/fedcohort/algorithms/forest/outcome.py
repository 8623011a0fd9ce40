"""Outcomes as whole numbers, so that sums are the same in any order of rows and sites.

    class    labels 0 … C − 1
    number   round((y − centre)/unit)
    event    round((δ − H(t))/2⁻²⁰), the log-rank score of a row: its death less the pooled
             cumulative hazard (Nelson-Aalen) up to its time

`centre` is near the pooled mean, `unit` 2⁻¹⁶ of a power of two near the standard deviation. Values
beyond 1024 standard deviations count as these.

Leaves of survival have deaths d and leavers l in each interval of the time grid, and from these
Nelson-Aalen's hazard. In an interval it is the mean over all orders in which its rows may leave,
with s rows at risk at its start:

    d/l · Σ_{i<l} 1/(s − i);   d/s where all leave at one time                              (1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.numerics.survival import dies_on_grid, slots

#: Unit of a log-rank score, and bits of a value below its standard deviation.
SCORE, BITS = 2.0**-20, 16
#: Largest value, in units.
FAR = 2.0 ** (BITS + 10)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The form in which sites sum an outcome.

    Attributes
    ----------
    kind : "class", "number" or "event".
    classes : C; 1 otherwise.
    centre, unit : of a number.
    times : (T,) of the time grid; (0,) otherwise.
    hazard : (T,) H at these times; zeros before it is known.
    together : whether all who leave in an interval are at risk until its end.
    """

    kind: str
    classes: int = 1
    centre: float = 0.0
    unit: float = 1.0
    times: Array
    hazard: Array
    together: bool = True

    @property
    def asked(self) -> dict[str, Any]:
        """The same as arguments of a step."""
        return {name: getattr(self, name) for name in Target.__dataclass_fields__}

    @property
    def width(self) -> int:
        """Number of sums of a leaf: by class, one of values, or deaths and leavers by interval."""
        return 2 * len(self.times) if self.kind == "event" else self.classes

    def selected(self, table: Any) -> Array:
        """Return what splits are chosen by (n,), int64: labels, values or scores."""
        if self.kind == "class":
            return np.asarray(table.y, np.int64)
        if self.kind == "number":
            units = (np.asarray(table.y, float) - self.centre) / self.unit
            return np.rint(np.clip(units, -FAR, FAR)).astype(np.int64)
        slot, dies = self.on_grid(table)
        reached = np.r_[self.hazard, 0.0][slot]
        return np.rint((dies - reached) / SCORE).astype(np.int64)

    def on_grid(self, table: SurvivalTable) -> tuple[Array, Array]:
        """Return each row's last interval (n,), -1 for none, and whether it dies there (n,)."""
        time, event = np.asarray(table.time, float), np.asarray(table.event, bool)
        slot = slots(time, event, self.times, together=self.together)
        return slot, dies_on_grid(time, event, self.times)


def unit_of(sd: float) -> float:
    """Return the unit of values with this standard deviation."""
    return 2.0 ** (np.floor(np.log2(sd) + 1e-6) - BITS) if sd > 0 else 1.0


def hazards(deaths: Array, leaving: Array, single: Array | None) -> Array:
    """Return Nelson-Aalen's hazard of each interval of several groups, eq. (1): (L, T).

    Parameters
    ----------
    deaths, leaving : (L, T) rows of each group, in the interval in which they leave.
    single : (T,) whether all who leave in an interval leave at one time; None: in all.
    """
    d, left = np.asarray(deaths, float), np.asarray(leaving, np.int64)
    s = np.cumsum(left[:, ::-1], axis=1)[:, ::-1]
    plain = np.divide(d, s, out=np.zeros(d.shape), where=s > 0)
    if single is None:
        return plain
    harmonic = np.r_[0.0, np.cumsum(1.0 / np.arange(1, int(s.max(initial=0)) + 1))]
    spread = np.divide(d, left, out=np.zeros(d.shape), where=left > 0)
    return np.where(single, plain, spread * (harmonic[s] - harmonic[s - left]))
