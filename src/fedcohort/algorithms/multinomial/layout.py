"""Parameters of both models, of the classes that have records, and what the sites get of them.

A class without a record has the probability 0 where the likelihood is highest: its intercept is
−∞, or its two thresholds are equal. So the coordinator estimates the parameters γ of the other K'
classes, and the sites get those of all K classes,

    c + A γ,   with score Aᵀ U and information Aᵀ I A,                                     (1)

where c has `NEVER` for −∞. Of `multinomial`, γ has (1 + p) numbers for each of K' − 1 classes
against the first one that has records; of `ordinal`, K' − 1 thresholds and p effects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import logit

from fedcohort.algorithms.multinomial.steps import Slopes
from fedcohort.arrays import Array
from fedcohort.numerics.classes import spread_of_classes

#: Log odds of a class without records; e^−600 is no number beside 1.
NEVER = -600.0


@dataclass(frozen=True)
class Layout(ABC):
    """Eq. (1).

    Attributes
    ----------
    classes : K.
    there : numbers of the K' ≥ 2 classes with records, rising.
    share : (K,), of the weight of all records.
    p : number of covariates.
    law : name of the law of the outcome.
    """

    law: ClassVar[str]
    classes: int
    there: Sequence[int]
    share: Array
    p: int

    @property
    @abstractmethod
    def fixed(self) -> Array:
        """Constants c (k,)."""

    @property
    @abstractmethod
    def spread(self) -> Array:
        """A (k, k')."""

    @property
    @abstractmethod
    def start(self) -> Array:
        """γ (k',) of the model without covariates."""

    @property
    @abstractmethod
    def counts(self) -> Array:
        """ω (K,), by which a record of each class counts in the information at the start."""

    @abstractmethod
    def products(self, first: Slopes) -> Array:
        """Return Σ ω z zᵀ (1 + p, 1 + p), z = (1, x), from the sums at the start."""

    @abstractmethod
    def predictors(self, step: Array) -> Array:
        """Return the linear predictors (·, 1 + p) of a step (k',), the intercept first."""

    @abstractmethod
    def penalty(self, size: Array) -> Array:
        """Return the ridge penalty's second derivative (k', k'), of `size` (p,) by covariate."""

    @abstractmethod
    def unscaled(self, centre: Array, scale: Array) -> Array:
        """Return T (k', k'), which gives γ in the covariates' units."""

    @abstractmethod
    def units(self, scale: Array) -> Array:
        """Return the unit of each of all parameters (k,) for covariates divided by `scale`."""

    def allows(self, gamma: Array) -> bool:
        """Return whether γ (k',) is a point of the model."""
        return True


class Baseline(Layout):
    """Layout of `multinomial`."""

    law: ClassVar[str] = "multinomial"

    @property
    def fixed(self) -> Array:
        """Constants c (k,): if class 0 has no records, all others are far above it."""
        rows = np.zeros((self.classes, 1 + self.p))
        absent = np.setdiff1d(np.arange(self.classes), self.there)
        if 0 in self.there:
            rows[absent, 0] = NEVER
        else:
            rows[list(self.there), 0] = -NEVER
        return rows[1:].ravel()

    @property
    def spread(self) -> Array:
        """A (k, k')."""
        place = np.zeros((self.classes, len(self.there) - 1))
        for column, c in enumerate(self.there[1:]):
            place[c, column] = 1.0
        return np.kron(place[1:], np.eye(1 + self.p))

    @property
    def start(self) -> Array:
        """γ (k',), log odds against the first class."""
        share = self.share[list(self.there)]
        rows = np.zeros((len(share) - 1, 1 + self.p))
        rows[:, 0] = np.log(share[1:] / share[0])
        return rows.ravel()

    @property
    def counts(self) -> Array:
        """ω (K,)."""
        return np.ones(self.classes)

    def products(self, first: Slopes) -> Array:
        """Return Σ ω z zᵀ (1 + p, 1 + p); a class of share π tells π (1 − π) times as much."""
        c, k = self.there[-1], 1 + self.p
        own = slice((c - 1) * k, c * k)
        return first.information[own, own] / (self.share[c] * (1 - self.share[c]))

    def predictors(self, step: Array) -> Array:
        """Return the linear predictors (K' − 1, 1 + p) of a step (k',)."""
        return step.reshape(-1, 1 + self.p)

    def penalty(self, size: Array) -> Array:
        """Return the second derivative of ½ Σ_c ‖β_c − mean β‖², over all K' classes.

        That of two classes is of their difference, as in `logistic`.
        """
        return np.kron(spread_of_classes(len(self.there)), np.diag(np.r_[0.0, size]))

    def unscaled(self, centre: Array, scale: Array) -> Array:
        """Return T (k', k')."""
        t = np.diag(np.r_[1.0, 1.0 / scale])
        t[0, 1:] = -centre / scale
        return np.kron(np.eye(len(self.there) - 1), t)

    def units(self, scale: Array) -> Array:
        """Return the unit of each parameter (k,)."""
        return np.tile(np.r_[1.0, scale], self.classes - 1)


class Thresholds(Layout):
    """Layout of `ordinal`."""

    law: ClassVar[str] = "ordinal"

    @property
    def _place(self) -> Array:
        """The number of each of all thresholds (K − 1,) among those estimated; −1 below them."""
        below = np.searchsorted(np.asarray(self.there), np.arange(self.classes - 1), side="right")
        return below - 1

    @property
    def fixed(self) -> Array:
        """Constants c (k,): thresholds before and after all classes with records."""
        place = self._place
        ends = np.where(place < 0, NEVER, np.where(place > len(self.there) - 2, -NEVER, 0.0))
        return np.r_[ends, np.zeros(self.p)]

    @property
    def spread(self) -> Array:
        """A (k, k')."""
        own = (self._place[:, None] == np.arange(len(self.there) - 1)) * 1.0
        k, m = own.shape
        return np.block([[own, np.zeros((k, self.p))], [np.zeros((self.p, m)), np.eye(self.p)]])

    @property
    def start(self) -> Array:
        """γ (k',), log odds of the classes below each threshold."""
        below = np.cumsum(self.share[list(self.there)])[:-1]
        return np.r_[logit(below), np.zeros(self.p)]

    @property
    def counts(self) -> Array:
        """ω (K,), a (1 − a) + b (1 − b)."""
        ends = np.cumsum(np.r_[0.0, self.share])
        each = ends * (1 - ends)
        return each[1:] + each[:-1]

    def products(self, first: Slopes) -> Array:
        """Return Σ ω z zᵀ (1 + p, 1 + p): thresholds together are an intercept."""
        m = self.classes - 1
        ones = np.block([
            [np.ones((m, 1)), np.zeros((m, self.p))], [np.zeros((self.p, 1)), -np.eye(self.p)]
        ])  # fmt: skip
        return ones.T @ first.information @ ones

    def predictors(self, step: Array) -> Array:
        """Return the linear predictors (K' − 1, 1 + p) of a step (k',), of each threshold."""
        m = len(self.there) - 1
        return np.column_stack([step[:m], np.tile(-step[m:], (m, 1))])

    def penalty(self, size: Array) -> Array:
        """Return the second derivative of ½ ‖β‖²."""
        return np.diag(np.r_[np.zeros(len(self.there) - 1), size])

    def unscaled(self, centre: Array, scale: Array) -> Array:
        """Return T (k', k'): a threshold is raised by the predictor at the centre."""
        m = len(self.there) - 1
        t = np.diag(np.r_[np.ones(m), 1.0 / scale])
        t[:m, m:] = centre / scale
        return t

    def units(self, scale: Array) -> Array:
        """Return the unit of each parameter (k,)."""
        return np.r_[np.ones(self.classes - 1), scale]

    def allows(self, gamma: Array) -> bool:
        """Return whether the thresholds rise."""
        return bool((np.diff(gamma[: len(self.there) - 1]) > 0).all())


LAYOUTS = {one.law: one for one in (Baseline, Thresholds)}
