"""Maximise a concave log-likelihood whose exact information is expensive, by secant steps.

Each round gives ℓ, its score U and a *part* P of its information at γ, in standardised units. The
rest M is estimated from the change of the score along the latest step s (structured secant: Dennis,
Gay & Welsch, ACM TOMS 7(3), 1981; the update of Broyden, Fletcher, Goldfarb and Shanno):

    y = U(γ_old) − U(γ),   H = P(γ) + M,
    M ← M + y yᵀ/(yᵀs) − H s sᵀH/(sᵀH s)      so that (P + M) s = y                       (1)

Steps are halved until the penalised log-likelihood does not fall. When a step is shorter than the
tolerance, the exact information is requested once: for a last Newton step (error of the order of
the tolerance squared) and the standard errors. If P is exact, M stays 0 and all steps are Newton's.

(1) converges slowly if only a ridge penalty determines the coefficients, as with more covariates
than patients. Such a fit also requests the exact information from round `SLOW` on, while the
allowed number of sums permits: it counts as p sums over risk sets, ℓ as one.

With a lasso penalty a step goes to the maximum of the quadratic model less the penalty, by
coordinate descent (proximal Newton: Lee, Sun & Saunders, SIAM J. Optim. 24(3), 2014). There are no
standard errors, and the exact information is never requested.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.collinearity import RIDGE, SINGULAR, collinear, longest, quoted
from fedcohort.numerics.descent import descend
from fedcohort.protocol import Federation, NotConverged, SingularInformation

#: Largest number of halvings of a step.
HALVINGS = 30
#: A last step longer than this means that the likelihood is flat, which P did not show.
LAST_STEP = 0.02
#: A ridge fit requests the exact information in round `SLOW`, then every `LATER` rounds.
SLOW, LATER = 12, 6


class Position(Protocol):
    """A point γ with its log-likelihood."""

    @property
    def gamma(self) -> Array:
        """γ (p,)."""
        ...

    @property
    def log_likelihood(self) -> float:
        """ℓ(γ), without the penalty."""
        ...


Here = TypeVar("Here", bound=Position)


class Likelihood(Protocol[Here]):
    """A log-likelihood over sites; each method makes at most one call to them."""

    #: Whether `slopes` gives the full information.
    exact: bool

    def at(self, gamma: Array) -> Here:
        """Return the log-likelihood at γ (p,); −inf where it overflows."""
        ...

    def slopes(self, here: Here) -> tuple[Array, Array]:
        """Return the score (p,) and P (p, p) ≥ the information, singular only if that is."""
        ...

    def information(self, here: Here) -> Array:
        """Return the exact information (p, p), after `slopes` at the same point."""
        ...


@dataclass(frozen=True)
class Penalty:
    """l1 Σ |γ_j|/s_j + l2/2 Σ (γ_j/s_j)², on the log-likelihood summed over all records.

    Attributes
    ----------
    l1, l2 : ≥ 0, on coefficients in the covariates' units.
    scale : s (p,), the unit of γ.
    """

    l1: float
    l2: float
    scale: Array

    @property
    def ridge(self) -> Array:
        """The second derivative of the smooth part by each γ_j, (p,)."""
        return self.l2 / self.scale**2

    def of(self, gamma: Array) -> float:
        """Return the penalty at γ (p,)."""
        return self.l1 * float(np.abs(gamma / self.scale).sum()) + 0.5 * float(
            self.ridge @ gamma**2
        )

    def target(self, h: Array, score: Array, gamma: Array) -> Array:
        """Return the optimum (p,) of the quadratic model: score (p,), information h (p, p) at γ."""
        unit = self.scale
        found = descend(
            h * np.outer(unit, unit), (score + h @ gamma) * unit,
            np.array([self.l1]), np.array([self.l2]),
        )  # fmt: skip
        return found.coefficients[0] * unit


@dataclass(frozen=True)
class Top:
    """The maximum.

    Attributes
    ----------
    gamma : (p,) standardised coefficients.
    covariance : (p, p) inverse of the penalised information; NaN with a lasso penalty.
    log_likelihood, null : ℓ without the penalty, at the end and at γ = 0.
    last : (p,) the last step, from the last position at which the sites were asked.
    lasso : the penalty has l1 > 0.
    """

    gamma: Array
    covariance: Array
    log_likelihood: float
    null: float
    last: Array
    lasso: bool


class Climb(Generic[Here]):
    """An ascent from γ = 0; with a new penalty it continues from the current position.

    Parameters
    ----------
    names : of the coefficients, for errors.
    rounds : of the fit; each step takes one.
    tol : longest step at the end, in log hazard ratio per standard deviation.
    max_rounds : for each penalty.
    max_sums : largest number of calls of `likelihood.at`.
    silent : add nothing to the run's history.
    remedy : what to do where the likelihood is flat or monotone, for errors.
    """

    def __init__(
        self,
        fed: Federation,
        likelihood: Likelihood[Here],
        names: Sequence[str],
        rounds: Iterator[int],
        *,
        tol: float,
        max_rounds: int,
        max_sums: float = math.inf,
        silent: bool = False,
        remedy: str = RIDGE,
    ):
        self._fed, self._likelihood, self.names, self.rounds = fed, likelihood, names, rounds
        self._tol, self._max_rounds, self._max_sums = tol, max_rounds, max_sums
        self._silent, self._remedy = silent, remedy
        self._missed = np.zeros((len(names), len(names)))
        self._asked = 1
        self.here = likelihood.at(np.zeros(len(names)))
        self.null = self.here.log_likelihood
        self.score, self.part = likelihood.slopes(self.here)

    def to(self, penalty: Penalty, *, tol: float = 0.0) -> Top:
        """Maximise ℓ(γ) less a penalty; record ℓ and the longest step in each round.

        Parameters
        ----------
        tol : tolerance, if coarser than the ascent's own.

        Raises
        ------
        SingularInformation : some covariates are collinear.
        NotConverged : the likelihood is monotone in some coefficient, or `max_rounds` or
            `max_sums` is reached.
        """
        tol = max(tol, self._tol)
        size = math.inf
        value = self.here.log_likelihood - penalty.of(self.here.gamma)
        for taken, round_ in enumerate(islice(self.rounds, self._max_rounds), 1):
            step = self._step(penalty)
            size = float(np.abs(step).max())
            gain = float((self.score - penalty.ridge * self.here.gamma) @ step)
            if not self._silent:
                self._fed.record(log_likelihood=self.here.log_likelihood, step=size)
            if size < tol:
                return self._top(penalty, step)
            if round_ and size > 0.1 and gain < 1e-6 and not penalty.l1:
                raise self._runs_away(step)
            value = self._go(penalty, step, value, round_)
            if taken >= SLOW and (taken - SLOW) % LATER == 0:
                self._learn(penalty)
        raise NotConverged(
            f"the longest step is still {size:.1e} standard deviations after {self._max_rounds} "
            f"rounds (tol {tol:g}). Raise max_rounds, or {self._remedy}."
        )

    def given(self, gamma: Array, covariance: Array) -> Top:
        """Go to γ (p,), of an estimate with a covariance (p, p) that was found by other sums."""
        self.here = self._likelihood.at(gamma)
        reached = self.here.log_likelihood
        return Top(gamma, covariance, reached, self.null, np.zeros_like(gamma), lasso=False)

    def _step(self, penalty: Penalty) -> Array:
        """Return the step (p,) to the maximum of the quadratic model less the penalty."""
        h, gamma = self.part + self._missed, self.here.gamma
        if penalty.l1:
            return penalty.target(h, self.score, gamma) - gamma
        slope = self.score - penalty.ridge * gamma
        return self._inverse(h + np.diag(penalty.ridge)) @ slope

    def _top(self, penalty: Penalty, step: Array) -> Top:
        """Return the maximum, one short step away; request the exact information if needed."""
        information, covariance = self.part + self._missed, np.full(self.part.shape, np.nan)
        if not penalty.l1:
            if not self._likelihood.exact:
                information = self._likelihood.information(self.here)
            covariance = self._inverse(information + np.diag(penalty.ridge))
            step = covariance @ (self.score - penalty.ridge * self.here.gamma)
            if np.abs(step).max() > LAST_STEP:
                raise self._runs_away(step)
        gain = float(self.score @ step - 0.5 * step @ information @ step)
        reached = self.here.log_likelihood + gain
        return Top(self.here.gamma + step, covariance, reached, self.null, step, bool(penalty.l1))

    def _go(self, penalty: Penalty, step: Array, value: float, round_: int) -> float:
        """Halve the step until the penalised value does not fall, take it, return the value."""
        start, size = self.here.gamma, float(np.abs(step).max())
        for _ in range(HALVINGS):
            if self._asked >= self._max_sums:
                raise NotConverged(
                    f"after {self._asked} sums over risk sets the longest step is still "
                    f"{size:.1e} standard deviations, along {longest(self.names, step)}. More sums "
                    f"could be solved for patients. If this coefficient separates those who die "
                    f"from those who do not, drop it; or {self._remedy}, or "
                    f"raise min_cell."
                )
            self._asked += 1
            self.here = self._likelihood.at(start + step)
            reached = self.here.log_likelihood - penalty.of(self.here.gamma)
            if reached >= value - 1e-10 * (1 + abs(value)):
                break
            step = step / 2
        else:
            raise NotConverged(
                f"no step raises the log-likelihood after {round_ + 1} rounds (longest step "
                f"{size:.1e} standard deviations). Check for outliers in {quoted(self.names)}, "
                f"or {self._remedy}."
            )
        before = self.score
        self.score, self.part = self._likelihood.slopes(self.here)
        if not self._likelihood.exact:
            self._missed = _secant(self.part, self._missed, step, before - self.score)
        return reached

    def _learn(self, penalty: Penalty) -> None:
        """Request the exact information here, in a ridge fit with enough sums left for its end."""
        p = len(self.names)
        if self._likelihood.exact or penalty.l1 or not penalty.l2:
            return
        if self._asked + 2 * p + 2 * LATER > self._max_sums:
            return
        self._asked += p
        self._missed = self._likelihood.information(self.here) - self.part

    def _inverse(self, information: Array) -> Array:
        """Return the inverse of a positive matrix (p, p)."""
        values, vectors = np.linalg.eigh(information)
        largest = max(float(values[-1]), float(np.finfo(float).tiny))
        flat = values <= SINGULAR * largest
        if not flat.any():
            return (vectors / values) @ vectors.T
        if self.here.gamma.any():
            raise self._runs_away(vectors[:, 0])
        ratio = float(values[0]) / largest
        where = " in every risk set"
        raise SingularInformation(
            collinear(self.names, vectors[:, flat], ratio, where, self._remedy)
        )

    def _runs_away(self, step: Array) -> NotConverged:
        return NotConverged(
            f"the likelihood rises without limit along {longest(self.names, step)}: these "
            f"coefficients separate those who die from those who do not (monotone likelihood). "
            f"Drop them, join rare levels, or {self._remedy}."
        )


def _secant(part: Array, missed: Array, step: Array, change: Array) -> Array:
    """Return M of eq. (1); restart from M = 0 when P + M is not positive definite."""
    h = part + missed
    if np.linalg.eigvalsh(h)[0] <= SINGULAR * np.trace(h):
        h, missed = part, np.zeros_like(missed)
    along, hs = float(change @ step), h @ step
    if along <= 0 or step @ hs <= 0:
        return missed
    return missed + np.outer(change, change) / along - np.outer(hs, hs) / (step @ hs)
