"""Generalised linear models with differential privacy, for canonical links.

Records z = (1, x) have prior weights w = min(1, C/‖z‖). If the model is correct, they do not move
the maximum. By family:

    gaussian     once, the noisy cross-products of w (1, x, y), eq. (1) of
                 `training.linear.private_products`; least squares on them, with a ridge that keeps
                 the smallest eigenvalue above the noise (AdaSSP: Wang, "Revisiting differentially
                 private linear regression", UAI 2018)
    binomial,    T rounds, each with a noisy sum of clipped scores
    poisson          U(γ) = Σ u · min(1, C/‖u‖),  u = w (y − h(zᵀγ)) z                      (1)
                 for steps of the coordinator by FedAdam's rule; the result is the mean of the
                 later half of its points

One record more or less changes (1) by a vector of norm ≤ C, for any outcome; a Gaussian outcome is
cut to its usual values. There are no standard errors: they would leave out the noise, which is the
larger part at small ε.

Revealed: `Products` once or `Score` T times, with noise, as sums over sites; neither the number of
records nor a likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.glm.settings import LogisticSettings, Scored
from fedcohort.arrays import Array
from fedcohort.data.exact import check_covariates
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.families import CANONICAL, Family
from fedcohort.protocol import (
    Dp,
    Federation,
    Private,
    Release,
    SettingError,
    Site,
    Task,
    message,
    summed,
)
from fedcohort.training.linear.private_products import ask, demanded, lifted, products_privately
from fedcohort.training.networks.server import Server, fedadam

#: Learning rate and constants of FedAdam's rule, on covariates within [−1, 1].
RATE, BETA1, BETA2, TAU = 0.1, 0.5, 0.9, 1e-6
#: Default C.
CLIPS = {"record": 0.5}
#: Families with a private fit by eq. (1).
SCORED = ("binomial", "poisson")


@message
class Score:
    """U(γ) (p + 1,), eq. (1), the intercept first."""

    score: Array


# site ---------------------------------------------------------------------------------


@summed
def score_privately(
    site: Site[LabelledTable, None], *, family: str, gamma: Array, clip: float
) -> Private[Score]:
    """Sum clipped scores, eq. (1)."""
    scores = record_scores(site.data, family, gamma, clip)
    return Private(Score(scores.sum(axis=0)), {"score": clip})


def record_scores(table: LabelledTable, family: str, gamma: Array, clip: float) -> Array:
    """Return each record's clipped part of eq. (1), (n, p + 1)."""
    z = np.column_stack([np.ones(len(table.y)), table.x])
    mean = Family(family, CANONICAL[family]).inverse(z @ gamma)
    return _cut(_cut(z, clip) * (table.y - mean)[:, None], clip)


def _cut(rows: Array, clip: float) -> Array:
    """Return rows (n, k) cut to the norm `clip`; rows that are not finite become 0."""
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    fine = np.isfinite(norm)
    return np.where(fine, rows, 0.0) * (clip / np.maximum(np.where(fine, norm, 1.0), clip))


STEPS = (score_privately, products_privately)

# coordinator --------------------------------------------------------------------------


def releases(config: Scored, dp: Dp) -> Sequence[Release]:
    """Return all releases of a private fit.

    Raises
    ------
    SettingError : these settings have no private fit; or (ε, δ) cannot be met.
    """
    if dp.unit != "record":
        raise SettingError(
            f"dp.unit is {dp.unit!r}, but a generalised linear model protects records; choose "
            f"'record'."
        )
    family = family_of(config)
    if isinstance(config, LogisticSettings):
        if config.solver != "exact":
            raise SettingError(
                f"setting 'solver' of method 'logistic' is {config.solver!r}, which has no private "
                f"fit; choose 'exact'."
            )
    else:
        if family not in ("gaussian", *SCORED):
            raise SettingError(
                f"setting 'family' of method 'glm' is {family!r}; a private fit needs one of "
                f"'gaussian', 'binomial', 'poisson', by name."
            )
        if config.link not in ("auto", CANONICAL[family]):
            raise SettingError(
                f"setting 'link' of method 'glm' is {config.link!r}; a private fit of family "
                f"{family!r} needs {CANONICAL[family]!r}."
            )
    return _releases(family, config.dp_rounds, dp)


def family_of(config: Scored) -> str:
    """Return the family by its name."""
    return "binomial" if isinstance(config, LogisticSettings) else config.family


def held(config: Scored, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that a site requires: all except the coefficients."""
    assert task.dp is not None
    return {
        score_privately.name: {"family": family_of(config), "clip": task.dp.norm},
        **demanded(task, task.dp.norm),
    }


def reveals(config: Scored, dp: Dp) -> str:
    """Describe what leaves a site in a private fit."""
    (release,) = releases(config, dp)
    if release.step == products_privately.name:
        return "Once, the sum over sites of cross-products of the covariates and the outcome."
    return f"{release.count} times, the sum over sites of clipped scores of the records."


@lru_cache(maxsize=64)
def _releases(family: str, rounds: int, dp: Dp) -> tuple[Release, ...]:
    step, count = (score_privately, rounds) if family in SCORED else (products_privately, 1)

    from fedcohort.privacy import accounting  # slow to import: only where noise is asked for

    def make(z: float) -> tuple[Release, ...]:
        return (Release(step=step.name, noise=z, count=count),)

    return make(accounting.calibrate(make, dp))


def coefficients(
    fed: Federation, family: str, config: Scored, task: Task, dp: Dp
) -> tuple[Array, int]:
    """Return (b₀, β) (p + 1,) and the number of rounds.

    Raises
    ------
    DataError : no covariates; or a Gaussian outcome without usual values.
    """
    check_covariates(task)
    if family in SCORED:
        return _scored(fed, family, config, len(task.features), dp), config.dp_rounds
    products = ask(fed, task, releases(config, dp)[0], dp.norm)
    beta = ridged(products.square, products.noise, config.ridge) * products.scale
    beta[0] += products.centre
    return beta, 1


def ridged(products: Array, noise: float, l2: float) -> Array:
    """Return the least squares solution (p + 1,) of noisy cross-products (p + 2, p + 2).

    Parameters
    ----------
    noise : standard deviation of the noise on the diagonal, √2 times that of other entries.
    l2 : penalty on the covariates, per weight of the records, the first entry of `products`.
    """
    inner, right = products[:-1, :-1], products[:-1, -1]
    penalty = np.r_[0.0, np.full(len(inner) - 1, l2 * max(float(inner[0, 0]), 1.0))]
    return np.linalg.solve(lifted(inner, noise) + np.diag(penalty), right)


def _scored(fed: Federation, family: str, config: Scored, p: int, dp: Dp) -> Array:
    """Return (p + 1,), the mean of the later half of the points of the ascent by eq. (1)."""
    state = Server.at(np.zeros(p + 1), rate=RATE, beta1=BETA1, beta2=BETA2, tau=TAU)
    rounds, weight = config.dp_rounds, 0.0
    mean = state.x
    for i in fed.rounds(rounds):
        noisy = fed.sum(score_privately, family=family, gamma=state.x, clip=dp.norm)
        fed.record(learning_rate=RATE)
        weight = max(weight, float(np.abs(noisy.score).max()))
        slope = noisy.score - config.ridge * weight * np.r_[0.0, state.x[1:]]
        state = fedadam(state, state.x + slope)
        half = rounds // 2
        mean = state.x if i <= half else mean + (state.x - mean) / (i - half + 1)
    return mean
