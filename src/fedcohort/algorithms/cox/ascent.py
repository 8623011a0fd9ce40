"""Climb a concave log-likelihood whose exact information is dear, by structured secant steps.

Each round gives ℓ, its score U and a *part* P of its information at γ, in standardised units. What
P misses is learnt from the change of the score along the latest step s (Dennis, Gay & Welsch, ACM
TOMS 7(3), 1981; the update is that of Broyden, Fletcher, Goldfarb and Shanno):

    y = U(γ_old) − U(γ),   H = P(γ) + M,
    M ← M + y yᵀ/(yᵀs) − H s sᵀH/(sᵀH s)      so that (P + M) s = y                       (1)

Steps are halved until the penalised log-likelihood does not fall. When a step is shorter than the
tolerance, the exact information is asked for, once: it gives the last step, which is Newton's own
(its error is of the order of the tolerance squared), and the standard errors. If P is exact, M is
left at 0 and every step is Newton's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.blame import SINGULAR, collinear, longest, quoted
from fedcohort.protocol import Federation, NotConverged, SingularInformation

#: A step is halved at most this often: 2⁻³⁰ of a step changes nothing that can be seen.
HALVINGS = 30
#: The last step is about as long as `tol`, unless P hid that the likelihood is flat.
LAST_STEP = 0.02


class Position(Protocol):
    """A point on the way, and what is known there."""

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
    """A log-likelihood spread over sites; each method is one question to them, or none."""

    #: Whether `slopes` gives the whole information.
    exact: bool

    def at(self, gamma: Array) -> Here:
        """Return the log-likelihood at γ (p,); −inf where it overflows."""
        ...

    def slopes(self, here: Here) -> tuple[Array, Array]:
        """Return the score (p,), and P (p, p) ≥ the information, singular only if that is."""
        ...

    def information(self, here: Here) -> Array:
        """Return the exact information (p, p), after `slopes` at the same point."""
        ...


@dataclass(frozen=True)
class Top:
    """Where the ascent ended.

    Attributes
    ----------
    gamma : (p,) standardised coefficients.
    covariance : (p, p) inverse of the penalised information.
    log_likelihood, null : ℓ without the penalty, at the end and at γ = 0.
    """

    gamma: Array
    covariance: Array
    log_likelihood: float
    null: float


def ascend(
    fed: Federation,
    likelihood: Likelihood[Here],
    penalty: Array,
    names: Sequence[str],
    *,
    tol: float,
    max_rounds: int,
    max_sums: float = math.inf,
) -> tuple[Top, Here]:
    """Maximise ℓ(γ) − ½ Σ penalty γ², with a row of history (ℓ, longest step) for each round.

    Parameters
    ----------
    penalty : (p,) ≥ 0, on the log-likelihood summed over all records.
    names : of the coefficients, for errors.
    tol : longest step at the end, in log hazard ratio per standard deviation.
    max_sums : how often `likelihood.at` may be asked, once at least.

    Returns
    -------
    top : where the ascent ended.
    here : the last position that was asked for, within `tol` of the top.

    Raises
    ------
    SingularInformation : some covariates are collinear.
    NotConverged : the likelihood rises for ever along some coefficient, or `max_rounds` or
        `max_sums` are over.
    """
    here = likelihood.at(np.zeros(len(penalty)))
    null, value = here.log_likelihood, here.log_likelihood
    missed = np.zeros((len(penalty), len(penalty)))
    step = score = np.zeros(len(penalty))
    size, asked = math.inf, 1
    for round_ in fed.rounds(max_rounds):
        before = score
        score, part = likelihood.slopes(here)
        if round_ and not likelihood.exact:
            missed = _secant(part, missed, step, before - score)
        slope = score - penalty * here.gamma
        step = _inverse(part + missed + np.diag(penalty), names, round_) @ slope
        size, gain = float(np.abs(step).max()), float(slope @ step)
        fed.record(log_likelihood=here.log_likelihood, step=size)
        if size < tol:
            whole = part if likelihood.exact else likelihood.information(here)
            covariance = _inverse(whole + np.diag(penalty), names, round_)
            last = covariance @ slope
            if np.abs(last).max() > LAST_STEP:
                raise _runs_away(names, last)
            return Top(here.gamma + last, covariance, here.log_likelihood, null), here
        if round_ and size > 0.1 and gain < 1e-6:
            raise _runs_away(names, step)
        start = here.gamma
        for _ in range(HALVINGS):
            if asked >= max_sums:
                raise NotConverged(
                    f"after {asked} sums over risk sets, any more of which could be solved for "
                    f"patients, the longest step is still {size:.1e} standard deviations, along "
                    f"{longest(names, step)}. If that separates those who die from those who do "
                    f"not, drop it; or refit with a ridge penalty (l2 > 0), or raise min_cell."
                )
            asked += 1
            here = likelihood.at(start + step)
            reached = here.log_likelihood - 0.5 * float(penalty @ here.gamma**2)
            if reached >= value - 1e-10 * (1 + abs(value)):
                value = reached
                break
            step = step / 2
        else:
            raise NotConverged(
                f"no step raises the log-likelihood after {round_ + 1} rounds (longest step "
                f"{size:.1e} standard deviations). Check for outliers in {quoted(names)}, or refit "
                f"with a ridge penalty (l2 > 0)."
            )
    raise NotConverged(
        f"the longest step is still {size:.1e} standard deviations after {max_rounds} rounds "
        f"(tol {tol:g}). Raise max_rounds, or refit with a ridge penalty (l2 > 0)."
    )


def _secant(part: Array, missed: Array, step: Array, change: Array) -> Array:
    """Return M of eq. (1); from M = 0 again where P + M is no longer positive."""
    h = part + missed
    if np.linalg.eigvalsh(h)[0] <= SINGULAR * np.trace(h):
        h, missed = part, np.zeros_like(missed)
    along, hs = float(change @ step), h @ step
    if along <= 0 or step @ hs <= 0:
        return missed
    return missed + np.outer(change, change) / along - np.outer(hs, hs) / (step @ hs)


def _inverse(information: Array, names: Sequence[str], round_: int) -> Array:
    """Return the inverse of a positive matrix (p, p)."""
    values, vectors = np.linalg.eigh(information)
    largest = max(float(values[-1]), float(np.finfo(float).tiny))
    flat = values <= SINGULAR * largest
    if not flat.any():
        return (vectors / values) @ vectors.T
    if round_:
        raise _runs_away(names, vectors[:, 0])
    ratio = float(values[0]) / largest
    raise SingularInformation(collinear(names, vectors[:, flat], ratio, " in every risk set"))


def _runs_away(names: Sequence[str], step: Array) -> NotConverged:
    return NotConverged(
        f"the likelihood rises for ever along {longest(names, step)}: these coefficients "
        f"separate those who die from those who do not (monotone likelihood). Drop them, join rare "
        f"levels, or refit with a ridge penalty (l2 > 0)."
    )
