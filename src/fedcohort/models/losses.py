"""Losses: value and slope with respect to a network's outputs.

A loss is built from a table once. It takes outputs f, (n,) or (n, K), and returns its value and
∂value/∂f, both averaged over rows. Torch applies the chain rule through the network; losses are
plain NumPy, without a graph, in float64 for every type of network.

Cox's partial likelihood with Breslow ties (Faraggi and Simon, Stat. Med. 14(1), 1995), with
S_0(t) = Σ_{j: t_j ≥ t} e^{f_j}, deaths d(t), δ_j = 1 for a death:

    ℓ(f) = Σ_j δ_j f_j − Σ_t d(t) log S_0(t)                                              (1)
    −∂ℓ/∂f_j = A_j e^{f_j} − δ_j,   A_j = Σ_{t ≤ t_j} d(t)/S_0(t)                         (2)

`OutcomeLoss` takes an outcome y (n,) and outputs f (n,):

logistic   log(1 + e^f) − y f,   slope σ(f) − y,   y in {0, 1}                        (3)
linear     ½(f − y)²,            slope f − y                                          (4)
poisson    e^f − y f,            slope e^f − y,    without log y!                     (5)

and `CrossEntropy` a class y in {0, …, K − 1} and outputs f (n, K), with p = softmax(f):

softmax    −log p_y,             slope p_k − 1(k = y)                                 (6)

Of two outputs f and s, −log p(y) up to a constant, of N(f, e^{2s}), and of log t = f + e^s ε with
the extreme value ε of least values, a Weibull time:

spread     ½z² + s,              z = (y − f) e^{−s}                                   (7)
weibull    e^z + δ (s − z),      z = (log t − f) e^{−s}                               (8)
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from scipy.special import expit, log_softmax

from fedcohort.arrays import Array
from fedcohort.models.partial_likelihoods import FAR, PartialLikelihoods, falling
from fedcohort.numerics.survival import dies_on_grid, slots

#: Log standard deviations are cut to ± this, and times to this share of their unit from below.
LONG, SHORTEST = 8.0, 1e-6


class OutcomeLoss(ABC):
    """A loss that is a mean over rows.

    Attributes
    ----------
    y : (n,).
    """

    def __init__(self, y: Array):
        self.y = np.array(y, float)

    @property
    def informative(self) -> bool:
        """Whether there are rows."""
        return len(self.y) > 0

    @property
    def kinds(self) -> tuple[int, ...]:
        """Number of rows; for logistic of each class, for poisson of rows above 0."""
        return (len(self.y),)

    def __call__(self, outputs: Array, /) -> tuple[float, Array]:
        """Return value and slope at the outputs, both (n,), or (n, K)."""
        values, slopes = self.each(np.asarray(outputs, float), self.y)
        n = max(len(self.y), 1)
        return float(values.sum()) / n, slopes / n

    def take(self, rows: Array) -> Self:
        """Return the loss of the rows with these numbers."""
        return type(self)(self.y[rows])

    @abstractmethod
    def each(self, f: Array, y: Array) -> tuple[Array, Array]:
        """Return the loss of each row, and its slope."""


class Logistic(OutcomeLoss):
    """Eq. (3)."""

    @property
    def kinds(self) -> tuple[int, ...]:
        """Numbers of rows with 1 and with 0."""
        ones = int((self.y > 0).sum())
        return ones, len(self.y) - ones

    def each(self, f: Array, y: Array) -> tuple[Array, Array]:
        """Return the loss of each row, and its slope."""
        return np.logaddexp(0.0, f) - y * f, expit(f) - y


class Squares(OutcomeLoss):
    """Eq. (4)."""

    def each(self, f: Array, y: Array) -> tuple[Array, Array]:
        """Return the loss of each row, and its slope."""
        return 0.5 * (f - y) ** 2, f - y


class Poisson(OutcomeLoss):
    """Eq. (5)."""

    @property
    def kinds(self) -> tuple[int, ...]:
        """Number of rows above 0."""
        return (int((self.y > 0).sum()),)

    def each(self, f: Array, y: Array) -> tuple[Array, Array]:
        """Return the loss of each row, and its slope."""
        mean = np.exp(np.minimum(f, FAR))
        return mean - y * f, mean - y


class CrossEntropy(OutcomeLoss):
    """Eq. (6).

    Parameters
    ----------
    y : class numbers (n,).
    classes : K ≥ 2.
    """

    def __init__(self, y: Array, classes: int):
        super().__init__(y)
        self._classes = classes
        self._at = np.arange(len(self.y)), self.y.astype(np.int64)

    @property
    def kinds(self) -> tuple[int, ...]:
        """Number of rows of each class (K,)."""
        return tuple(np.bincount(self._at[1], minlength=self._classes).tolist())

    def take(self, rows: Array) -> Self:
        """Return the loss of the rows with these numbers."""
        return type(self)(self.y[rows], self._classes)

    def each(self, f: Array, y: Array) -> tuple[Array, Array]:
        """Return the loss of each row, and its slope."""
        logs = log_softmax(f, axis=1)
        slopes = np.exp(logs)
        slopes[self._at] -= 1.0
        return -logs[self._at], slopes


class Spread(OutcomeLoss):
    """Eq. (7)."""

    def each(self, f: Array, y: Array) -> tuple[Array, Array]:
        """Return the loss of each row, and its slope."""
        log_sd = np.clip(f[:, 1], -LONG, LONG)
        z = (y - f[:, 0]) * np.exp(-log_sd)
        return 0.5 * z * z + log_sd, np.column_stack([-z * np.exp(-log_sd), 1.0 - z * z])


class Weibull:
    """Eq. (8), with t in units of `unit`.

    Parameters
    ----------
    time, event : (n,). unit : above 0.
    """

    def __init__(self, time: Array, event: Array, unit: float):
        self._log = np.log(np.maximum(np.asarray(time, float), SHORTEST * unit) / unit)
        self._event = np.asarray(event, float)

    @property
    def informative(self) -> bool:
        """Whether there are rows."""
        return len(self._log) > 0

    @property
    def kinds(self) -> tuple[int, ...]:
        """Number of rows with an event."""
        return (int(self._event.sum()),)

    def __call__(self, outputs: Array, /) -> tuple[float, Array]:
        """Return the mean and its slope at the outputs (n, 2)."""
        f, s = np.asarray(outputs, float).T
        s = np.clip(s, -LONG, LONG)
        z = np.clip((self._log - f) * np.exp(-s), -FAR, np.log(FAR) * 4)
        hazard = np.exp(z)
        value = hazard + self._event * (s - z)
        pull = self._event - hazard
        n = max(len(z), 1)
        slope = np.column_stack([pull * np.exp(-s), pull * z + self._event])
        return float(value.sum()) / n, slope / n

    def take(self, rows: Array) -> Self:
        """Return the loss of the rows with these numbers."""
        out = copy(self)
        out._log, out._event = self._log[rows], self._event[rows]
        return out


class Loss(Protocol):
    """Interface of a loss."""

    @property
    def informative(self) -> bool:
        """Whether its rows can teach anything; without a death, a Cox loss is flat."""
        ...

    @property
    def kinds(self) -> tuple[int, ...]:
        """Numbers of rows of each kind that a gradient would reveal if there were few."""
        ...

    def __call__(self, outputs: Array, /) -> tuple[float, Array]:
        """Return value and slope at the outputs, both (n,), or (n, K)."""
        ...

    def take(self, rows: Array) -> Self:
        """Return the loss of the rows with these numbers."""
        ...


class RiskSets:
    """Risk sets of records on a time grid.

    Parameters
    ----------
    time, event : (n,).
    times : grid (T,), strictly increasing.
    together : whether all who leave in an interval are at risk until its end.

    Attributes
    ----------
    deaths : d (T,), number of deaths at each grid time.
    leaving : (T,), number of records that leave.
    dies : δ (n,), 1.0 if the record is a death on the grid.
    bins : (n,), the last grid time at which a record is at risk, from 1; 0: at none.
    """

    def __init__(self, time: Array, event: Array, times: Array, *, together: bool = False):
        self.bins = slots(time, event, times, together=together) + 1
        self._n_bins = len(times) + 1
        self.dies = dies_on_grid(time, event, times).astype(float)
        self.deaths = np.bincount(self.bins, self.dies, self._n_bins)[1:]
        self.leaving = np.bincount(self.bins, minlength=self._n_bins)[1:].astype(float)

    def s0(self, weights: Array) -> Array:
        """Return Σ_{j: t_j ≥ t} weights_j at each grid time (T,)."""
        return np.bincount(self.bins, weights, self._n_bins)[:0:-1].cumsum()[::-1]

    def hazard(self, increments: Array) -> Array:
        """Return A_j (n,), the sum of the increments d/S_0 (T,) up to each record's time."""
        cumulative = np.zeros(self._n_bins)
        np.cumsum(increments, out=cumulative[1:])
        return cumulative[self.bins]


def weights_of(f: Array, shift: float) -> Array:
    """Return e^{f − shift}, of the shape of f."""
    far = f - shift
    np.maximum(far, -FAR, out=far)  # np.clip takes twice as long on a site's rows
    np.minimum(far, FAR, out=far)
    return np.exp(far, out=far)


class PartialLikelihood:
    """−ℓ(f)/n, eq. (1), on a site's own death times; 0 without a death.

    Parameters
    ----------
    time, event : (n,).

    Attributes
    ----------
    order : (n,), rows by falling time.
    """

    def __init__(self, time: Array, event: Array):
        self._time = np.array(time)
        self._event = np.array(event, bool)
        self.order = falling(self._time)
        self._any = bool(self._event.any())

    @property
    def kinds(self) -> tuple[int, ...]:
        """Number of rows with an event."""
        return (int(self._event.sum()),)

    @property
    def informative(self) -> bool:
        """Whether there is a death."""
        return self._any

    @property
    def falling(self) -> tuple[Array, Array]:
        """Times and events (n,) in the order of `order`."""
        return self._time[self.order], self._event[self.order]

    @cached_property
    def _alone(self) -> PartialLikelihoods:
        time, event = self.falling
        return PartialLikelihoods([time], [event], len(time))

    def __call__(self, outputs: Array, /) -> tuple[float, Array]:
        """Return −ℓ/n and its slope (n,), eq. (2), at the log risks f (n,)."""
        slope = np.zeros(len(outputs))
        if not self._any:
            return 0.0, slope
        f = np.asarray(outputs, float)
        (value,), (found,) = self._alone(f[None, self.order])
        slope[self.order] = found
        return float(value), slope

    def take(self, rows: Array) -> Self:
        """Return the loss of the rows with these numbers."""
        return type(self)(self._time[rows], self._event[rows])


#: Losses by name: functions that build one from a table. See also `built`.
LOSSES: Mapping[str, Callable[[Any], Loss]] = {
    "cox": lambda table: PartialLikelihood(table.time, table.event),
    "logistic": lambda table: Logistic(table.y),
    "linear": lambda table: Squares(table.y),
    "poisson": lambda table: Poisson(table.y),
    "spread": lambda table: Spread(table.y),
}


def several(classes: int) -> str:
    """Return the name of `CrossEntropy` for so many classes."""
    return f"softmax {classes}"


def scaled(model: str, centre: float, scale: float) -> str:
    """Return the name of a loss of the outcome (y − centre)/scale."""
    return model if (centre, scale) == (0.0, 1.0) else f"{model} {centre!r} {scale!r}"


def units_of(name: str) -> tuple[str, float, float]:
    """Return the model, the centre and the scale of a loss's name (`scaled`, `several`)."""
    model, *numbers = name.split(" ")
    centre, scale = map(float, numbers) if len(numbers) == 2 else (0.0, 1.0)
    return model, centre, scale


def times_in(loss: str) -> str:
    """Return the unit and the times in a name of `models.objectives`; "" of other losses.

    A site holds a session to its first ones: by sums over other intervals of time, their
    differences would be of one patient.
    """
    model, *words = loss.split(" ")
    return " ".join({"savae": words[3:], "lifetimes": words}.get(model, ()))


def built(name: str, table: Any) -> Loss:
    """Return the loss of a table.

    Parameters
    ----------
    name : in `LOSSES`, or by `several` or `scaled`.
    """
    model, *numbers = name.split(" ")
    if model == "softmax":
        return CrossEntropy(table.y, int(numbers[0]))
    if not numbers:
        return LOSSES[model](table)
    if model == "weibull":
        return Weibull(table.time, table.event, float(numbers[0]))
    centre, scale = map(float, numbers)
    return LOSSES[model](table._replace(y=(table.y - centre) / scale))


@dataclass(frozen=True)
class Worded(ABC):
    """Rule of `Method.bounds`: a plan's text whose loss has more words, which the data determine.

    Attributes
    ----------
    text : the plan's text. loss : the loss in it, without these words.
    """

    text: str
    loss: str

    def __call__(self, value: object) -> bool:
        """Return whether a value is the text with words that are finite numbers and may be."""
        quoted = json.dumps(self.loss)
        before, _, after = self.text.partition(f'"loss": {quoted}')
        start, end = f'{before}"loss": {quoted[:-1]} ', f'"{after}'
        if not isinstance(value, str) or not (value.startswith(start) and value.endswith(end)):
            return False
        try:
            numbers = [float(word) for word in value[len(start) : len(value) - len(end)].split(" ")]
        except ValueError:
            return False
        return all(map(math.isfinite, numbers)) and self.allows(numbers)

    @abstractmethod
    def allows(self, numbers: Sequence[float]) -> bool:
        """Return whether the words may be these numbers."""


class Rescaled(Worded):
    """Of any centre, and any scale above 0 (`scaled`)."""

    def allows(self, numbers: Sequence[float]) -> bool:
        """Return whether these are a centre and a scale."""
        return len(numbers) == 2 and numbers[1] > 0


class InUnit(Worded):
    """Of any unit above 0 (`Weibull`)."""

    def allows(self, numbers: Sequence[float]) -> bool:
        """Return whether this is a unit."""
        return len(numbers) == 1 and numbers[0] > 0
