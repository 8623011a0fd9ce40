"""Newton's method for likelihoods over sites: the inverse of an information, and its alarms.

Used by generalised linear models and by regressions of several classes. Nothing is revealed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.collinearity import SINGULAR, longest
from fedcohort.protocol import NotConverged, NothingToLearn

#: The likelihood rises without limit if a step gains at most `FLAT` log-likelihood, moves linear
#: predictors by at least `MOVED`, and is not much shorter than the step before. Steps along nearly
#: collinear covariates do not move them.
FLAT, MOVED = 1e-6, 1e-3
#: Largest number of rounds.
MOST_ROUNDS = 50
#: Why a likelihood rises without limit where an outcome has classes.
SEPARATED = "separation, these covariates tell the classes apart without error"


def inverse(information: Array, flat: Callable[[Array, float], Exception]) -> Array:
    """Return the inverse of a positive definite matrix (k, k), the intercept first.

    Eigenvalues are compared with a unit diagonal, so that a strong penalty, which leaves out the
    intercept, does not look like a singular matrix.

    Parameters
    ----------
    flat : eigenvectors (k, r) of zero eigenvalues, and the ratio of the smallest to the largest →
        the error to raise.
    """
    diagonal = np.diag(information)
    unit = np.sqrt(np.where(diagonal > SINGULAR**2 * diagonal[0], diagonal, 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(unit, unit))
    low = values <= SINGULAR * values[-1]
    if low.any():
        raise flat(vectors[:, low], float(values[0] / values[-1]))
    root = vectors / unit[:, None]
    return (root / values) @ root.T


def unlimited(names: Sequence[str], step: Array, why: str) -> NotConverged:
    """Return the error of a likelihood that rises without limit along a step (p,)."""
    return NotConverged(
        f"the likelihood rises without limit along {longest(names, step)}: {why}. Drop them, join "
        f"rare levels, or refit with a ridge penalty (l2 > 0)."
    )


def unfinished(size: float, rounds: int, tol: float, remedy: str = "") -> NotConverged:
    """Return the error of too many rounds; `remedy` is another than the usual ones."""
    if not remedy:
        remedy = f"Raise max_rounds (up to {MOST_ROUNDS}), or refit with a ridge penalty (l2 > 0)."
        if rounds >= MOST_ROUNDS:
            remedy = (
                "Look for values, offsets and weights far from all others, or refit with a ridge "
                "penalty (l2 > 0)."
            )
    return NotConverged(
        f"the longest step is still {size:.1e} standard deviations after {rounds} rounds (tol "
        f"{tol:g}). {remedy}"
    )


def check_weight(total: Array | float, squares: Array | float, least: int, remedy: str) -> None:
    """Refuse a maximum at which few records have nearly all the weight.

    The condition is (Σ ω)² < `least` · Σ ω² of some sum (…,), eq. (2) of `data.isolation`.

    Raises
    ------
    NothingToLearn : it holds.
    """
    if np.any(np.asarray(total) ** 2 < least * np.asarray(squares)):
        raise NothingToLearn(
            f"at the maximum of the likelihood, fewer than {least} records (min_cell) count for "
            f"nearly all, so the model would reveal them. {remedy}"
        )
