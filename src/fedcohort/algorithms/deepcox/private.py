"""DeepCox with differential privacy: the releases of a private fit, and its training.

Training is that of `training.networks.private_fits`. Each random group of records has the partial
likelihood of its own risk sets. A small group is enough: the expected gradient is that of Cox's
model sampled within sites (Langholz and Goldstein, Stat. Sci. 11(1), 1996), which has its maximum
at the same hazard ratios.

With unit "record", one more release gives a baseline hazard that is constant in each of `INTERVALS`
equal parts of the usual times (dictionary). With u_jk the share of part k in which record j was
followed, and w_j = e^{min(f_j, B) − B} ≤ 1,

    d_k = Σ_j δ_j 1(t_j in k),   E_k = Σ_j w_j u_jk,   H_k = e^{−B} Σ_{l ≤ k} d_l / E_l      (1)

The (d, E) of one record has a norm of √(1 + INTERVALS) at most; `training.private` proves the other
sensitivities. Without usual times, or with unit "site", there is no baseline, and the model
predicts only risks. The centre c is 0: the mean risk of the records is not released.

Revealed: the replies of `training.private`, and `Hazards` once, with noise, as a sum over sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort.algorithms.deepcox.model import DeepCoxModel
from fedcohort.algorithms.deepcox.settings import DeepCoxSettings
from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.network import initial, network
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import (
    Dp,
    Federation,
    InputError,
    Private,
    Release,
    Site,
    Task,
    message,
    summed,
)
from fedcohort.training import private
from fedcohort.training.networks import private_fits
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import tensor

#: Parts of the follow-up with a hazard each, steps of the curve in each, and B of eq. (1).
INTERVALS, STEPS_IN, BOUND = 6, 8, 2.0


@message
class Hazards:
    """(d, E) of eq. (1), (2 INTERVALS,)."""

    told: Array


@summed
def hazards_privately(
    site: Site[SurvivalTable, None], *, thetas: Array, weights: Array, plan: str, horizon: float
) -> Private[Hazards]:
    """Count deaths and sum exposures in equal parts of the time up to `horizon`, eq. (1).

    f = Σ_m weights_m f_m, with thetas (M, P).

    Raises
    ------
    InputError : the horizon is not a finite number above 0.
    """
    if not (math.isfinite(horizon) and horizon > 0):
        raise InputError("the horizon of a baseline hazard must be a number above 0.")
    p = Plan.of(plan)
    net, x = network(p.network, p.dtype, p.device), tensor(site.data.x, p)
    f = np.zeros(len(x))
    for theta, weight in zip(thetas, weights, strict=True):
        net.load(theta)
        f += weight * np.asarray(net.outputs(x), float)
    f = np.nan_to_num(f)
    parts = record_hazards(f, site.data.time, site.data.event, horizon)
    return Private(Hazards(parts.sum(axis=0)), {"told": math.sqrt(1.0 + INTERVALS)})


def record_hazards(f: Array, time: Array, event: Array, horizon: float) -> Array:
    """Return each record's part of eq. (1), (n, 2 INTERVALS); 0 if it is not finite."""
    width = horizon / INTERVALS
    starts = width * np.arange(INTERVALS)
    with np.errstate(all="ignore"):
        share = np.clip((time[:, None] - starts) / width, 0.0, 1.0)
        k = np.ceil(time / width) - 1
        weight = np.exp(np.minimum(f, BOUND) - BOUND)
        died = (k[:, None] == np.arange(INTERVALS)) & np.asarray(event, bool)[:, None]
        parts = np.column_stack([died.astype(float), weight[:, None] * share])
    return np.where(np.isfinite(parts).all(axis=1, keepdims=True), parts, 0.0)


STEPS = (hazards_privately, *private.STEPS)


def releases(config: DeepCoxSettings, dp: Dp) -> Sequence[Release]:
    """Return all releases of a private fit.

    Raises
    ------
    SettingError : these settings have no private fit; or (ε, δ) cannot be met.
    """
    return private_fits.releases(config, dp, hazards_privately.name)


def reveals(config: DeepCoxSettings, dp: Dp) -> str:
    """Describe what leaves a site in a private fit."""
    trained = private_fits.reveals(config, dp, hazards_privately.name)
    if dp.unit == "site":
        return trained
    return (
        f"{trained} If the dictionary gives usual times, once a sum over sites of "
        f"deaths and exposures in {INTERVALS} parts of them, with noise."
    )


def held(config: DeepCoxSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that a site requires: all except models and weights."""
    assert task.dp is not None
    own = config.plan(len(task.features))
    plan, _ = private_fits.asked_of(config, task.dp, own)
    return {
        **private_fits.held(config, task.dp, own),
        hazards_privately.name: {
            "plan": plan.text, "horizon": None if task.reach is None else task.reach[1],
        },
    }  # fmt: skip


def fit(fed: Federation, config: DeepCoxSettings, task: Task, dp: Dp) -> DeepCoxModel:
    """Train privately, from the seed's initial network.

    Raises
    ------
    Refused : a site has too few rows, or its budget is spent.
    """
    own = config.plan(len(task.features))
    plan, _ = private_fits.asked_of(config, dp, own)
    found = private_fits.train(fed, config, own, initial(plan.network, task.seed), task, dp)
    thetas, weights = found.thetas, found.weights

    def model(thetas: Array, rounds: int) -> DeepCoxModel:
        return DeepCoxModel(plan.network, thetas, weights, 0.0, None, rounds)

    models = {r: model(stage, r) for r, stage in found.kept.items()}
    baseline = None
    if dp.unit == "record" and task.reach is not None:
        horizon = task.reach[1]
        sums = fed.sum(
            hazards_privately, thetas=thetas, weights=weights, plan=plan.text, horizon=horizon
        ).told
        release = next(r for r in releases(config, dp) if r.step == hazards_privately.name)
        noise = release.noise * math.sqrt((1.0 + INTERVALS) * len(fed.sites))
        baseline = baseline_of(sums, horizon, noise)
    return DeepCoxModel(plan.network, thetas, weights, 0.0, baseline, found.rounds, models)


def baseline_of(sums: Array, horizon: float, noise: float) -> Baseline:
    """Return H of eq. (1) on a fine grid; counts are at least 0, exposures at least `noise`."""
    deaths = np.maximum(sums[:INTERVALS], 0.0)
    exposure = np.maximum(sums[INTERVALS:], max(noise, 1e-9))
    ends = np.linspace(0.0, horizon, INTERVALS + 1)
    times = np.linspace(0.0, horizon, INTERVALS * STEPS_IN + 1)[1:]
    cumulative = np.r_[0.0, np.cumsum(deaths / exposure)] * math.exp(-BOUND)
    return Baseline(times, np.interp(times, ends, cumulative))
