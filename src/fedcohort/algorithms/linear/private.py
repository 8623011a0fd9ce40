"""Linear methods with differential privacy: one noisy sum, and arithmetic on it.

The cross-products of `training.linear.private_products` are asked for once, with the sensitivity
proved there. Everything else follows from them and costs no more ε: weighted means and the sums of
squares about them,

    S, s, t of Σ w² (x, y)(x, y)ᵀ,  less the means,  times n/Σ w²                          (1)

which replace those of `moments`; they give ridge, and the lasso's whole path. A penalty that is not
given is chosen along the path by the Bayesian information criterion, with a higher price of a
coefficient for the noise that it may fit. τ is the standard deviation of the noise of an entry off
the diagonal, r² the mean squared residual of the best β, and S̄ the mean of the diagonal of S. s −
Sβ then has noise of τ² (1 + ‖β‖²) beside the records' own r² S̄, and the sum of squares falls by
chance in that proportion,

    n log(Σ (y − ŷ)²/n) + log(n) df (1 + τ² (1 + ‖β‖²)/(r² S̄))                            (2)

There are no standard errors: those from the records' spread would leave out the noise, which
dominates at small ε. The number of records and R² are not given either.

Revealed: `Products` once, with noise, as a sum over the sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.linear.settings import PathSettings, RidgeSettings
from fedcohort.protocol import Dp, Federation, Release, SettingError, Task
from fedcohort.training.linear.cross_products import Moments
from fedcohort.training.linear.private_products import (
    NoisyProducts,
    ask,
    demanded,
    products_privately,
)

#: Default of C.
CLIPS = {"record": 1.5}


def releases(config: RidgeSettings | PathSettings, dp: Dp) -> Sequence[Release]:
    """Return the one release of a private fit.

    Raises
    ------
    SettingError : a setting has no private fit, or (ε, δ) cannot be met.
    """
    if dp.unit != "record":
        raise SettingError(
            f"dp.unit is {dp.unit!r}, but a linear model protects only records; choose 'record'."
        )
    if config.solver != "exact":
        raise SettingError(
            f"setting 'solver' is {config.solver!r}, which has no private fit; choose 'exact'."
        )
    if isinstance(config, PathSettings) and config.asked[0] is None and config.rule == "1se":
        raise SettingError(
            "setting 'rule' is '1se', which holds records out, but a private fit asks only once. "
            "Choose 'bic', or give a penalty."
        )
    return _releases(dp)


def held(config: RidgeSettings | PathSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return the arguments that a site checks, by step: all of them, whatever the settings."""
    del config
    assert task.dp is not None
    return demanded(task, task.dp.norm)


def reveals(config: RidgeSettings | PathSettings, dp: Dp) -> str:
    """Return, in plain words, what leaves a site in any private fit."""
    del config, dp
    return "Once, the sum over sites of cross-products of the covariates and the outcome."


@lru_cache(maxsize=64)
def _releases(dp: Dp) -> tuple[Release, ...]:
    from fedcohort.privacy import accounting  # slow to import

    def make(z: float) -> tuple[Release, ...]:
        return (Release(step=products_privately.name, noise=z),)

    return make(accounting.calibrate(make, dp))


def collect(
    fed: Federation, config: RidgeSettings | PathSettings, task: Task, dp: Dp
) -> tuple[Moments, float]:
    """Return eq. (1), and the additional price of a coefficient in eq. (2).

    Raises
    ------
    DataError : as `training.linear.private_products.ask`.
    """
    return read(ask(fed, task, releases(config, dp)[0], dp.norm))


def read(told: NoisyProducts) -> tuple[Moments, float]:
    """Return the results of `collect` from given cross-products."""
    inner, right = told.inner, told.square[:-1, -1]
    weight = float(inner[0, 0])
    f = max(told.rows / weight, 1.0)
    rows, tau = f * weight, f * told.noise
    mean, middle = inner[0, 1:] / weight, float(right[0]) / weight
    xx = f * (inner[1:, 1:] - weight * np.outer(mean, mean))
    xx = (xx + xx.T) / 2
    xy = f * (right[1:] - weight * mean * middle)
    best = np.linalg.lstsq(xx, xy, rcond=None)[0]
    # with noise the residual of the best fit could be negative
    least = max(tau, 1e-12 * rows)
    residual = max(f * (float(told.square[-1, -1]) - weight * middle**2) - float(xy @ best), least)
    dearer = tau**2 / 2 * (1.0 + float(best @ best)) * rows / (residual * float(np.diag(xx).mean()))
    scale = told.scale
    return Moments(
        rows=rows,
        mean=mean,
        middle=told.centre + scale * middle,
        xx=xx,
        xy=scale * xy,
        yy=scale**2 * (float(xy @ best) + residual),
    ), dearer
