"""DeepCox with differential privacy: what a private fit releases, and how it is trained.

    unit "record"   strategy "exact": every round, one noisy sum of the clipped gradients of random
                    groups of records, each with the partial likelihood of its own risk sets. Pairs
                    of records of one group are compared, so that a group of a few is enough: the
                    expected gradient is that of Cox's model sampled within sites (Langholz and
                    Goldstein, Stat. Sci. 11(1), 1996), whose maximum is at the same hazard ratios
    unit "site"     fedavg, fedprox, fedadam, fedyogi: every round, the noisy mean of what each
                    site's training changed, clipped

Of records, one more release tells a baseline hazard that is constant in each of `INTERVALS` equal
parts of the times that are usual by the dictionary. With u_jk the share of part k that record j was
followed for, and w_j = e^{min(f_j, B) − B} ≤ 1,

    d_k = Σ_j δ_j 1(t_j in k),   E_k = Σ_j w_j u_jk,   H_k = e^{−B} Σ_{l ≤ k} d_l / E_l      (1)

One record's (d, E) has a norm of √(1 + INTERVALS) at most. Without usual times there is no
baseline, and the model predicts risks alone; so where sites are protected. Risks are about no
centre: the mean over records is not told.

Proof of the other sensitivities: `training.private`. Revealed: what that does, and `Hazards` once,
with noise, as a sum over the sites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

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
    Private,
    Release,
    SettingError,
    Site,
    Task,
    message,
    summed,
)
from fedcohort.training import private
from fedcohort.training.plan import Plan
from fedcohort.training.rows import tensor
from fedcohort.training.server import RULES

#: Parts of the follow-up with a hazard each, steps of the curve in each, and B of eq. (1).
INTERVALS, STEPS_IN, BOUND = 6, 8, 2.0
#: Of the whole Σ 1/z², one part in so many is the baseline's.
PART = 5
#: Strategies with a private fit, by what is protected.
PRIVATE = {"record": ("exact",), "site": ("fedavg", "fedprox", "fedadam", "fedyogi")}


@message
class Hazards:
    """(d, E) of eq. (1), (2 INTERVALS,)."""

    told: Array


@summed
def hazards_privately(
    site: Site[SurvivalTable, None], *, theta: Array, plan: str, horizon: float
) -> Private[Hazards]:
    """Count deaths and sum exposures in equal parts of the time up to `horizon`, eq. (1)."""
    p = Plan.of(plan)
    net = network(p.network, p.dtype, p.device)
    net.load(theta)
    f = np.nan_to_num(np.asarray(net.outputs(tensor(site.data.x, p)), float))
    parts = record_hazards(f, site.data.time, site.data.event, horizon)
    return Private(Hazards(parts.sum(axis=0)), {"told": math.sqrt(1.0 + INTERVALS)})


def record_hazards(f: Array, time: Array, event: Array, horizon: float) -> Array:
    """Return each record's part of eq. (1): (n, 2 INTERVALS)."""
    width = horizon / INTERVALS
    starts = width * np.arange(INTERVALS)
    share = np.clip((time[:, None] - starts) / width, 0.0, 1.0)
    k = np.ceil(time / width) - 1
    died = (k[:, None] == np.arange(INTERVALS)) & np.asarray(event, bool)[:, None]
    weight = np.exp(np.minimum(f, BOUND) - BOUND)
    return np.column_stack([died.astype(float), weight[:, None] * share])


STEPS = (hazards_privately, *private.STEPS)


def releases(config: DeepCoxSettings, dp: Dp) -> Sequence[Release]:
    """Return every release of a private fit.

    Raises
    ------
    SettingError : settings without a private fit; or (ε, δ) cannot be met.
    """
    if config.strategy not in PRIVATE[dp.unit]:
        able = ", ".join(map(repr, PRIVATE[dp.unit]))
        raise SettingError(
            f"setting 'strategy' of method 'deepcox' is {config.strategy!r}, which has no private "
            f"fit that protects a {dp.unit}; choose {able}."
        )
    if config.aggregation != "mean":
        raise SettingError(
            f"setting 'aggregation' of method 'deepcox' is {config.aggregation!r}, which needs "
            f"each site's own model, and a private fit tells sums with noise; choose 'mean'."
        )
    if config.patience is not None:
        raise SettingError(
            "setting 'patience' of method 'deepcox' needs the loss of rows held out, which a "
            "private fit does not tell; leave it out."
        )
    if config.dropout and dp.unit == "record":
        raise SettingError(
            "setting 'dropout' of method 'deepcox' draws anew for every gradient, and a private "
            "fit takes each record's alone; set it to 0."
        )
    return _releases(config.rounds, config.dp_sampling, dp)


@lru_cache(maxsize=64)
def _releases(rounds: int, sampling: float, dp: Dp) -> tuple[Release, ...]:
    step = private.pull_privately if dp.unit == "record" else private.move_privately
    q = sampling if dp.unit == "record" else 1.0

    from fedcohort.privacy import accounting  # slow to import: only where noise is asked for

    def make(z: float) -> tuple[Release, ...]:
        trained = Release(step=step.name, noise=z, count=rounds, sampling=q)
        if dp.unit != "record":
            return (trained,)
        noise = z * math.sqrt((PART - 1) / rounds)
        return trained, Release(step=hazards_privately.name, noise=noise)

    return make(accounting.calibrate(make, dp))


def fit(fed: Federation, config: DeepCoxSettings, task: Task, dp: Dp) -> DeepCoxModel:
    """Train privately, from the seed's initial network.

    Raises
    ------
    Refused : a site does not take part: it has too few rows, or its budget is spent.
    """
    plan, schedule = config.plan(len(task.features)), config.schedule
    theta = initial(plan.network, task.seed)
    if dp.unit == "record":
        course = private.noisy_descent(
            fed, plan, schedule, theta,
            groups=config.dp_groups, clip=dp.clip, sampling=config.dp_sampling,
        )  # fmt: skip
    else:
        rule, server = RULES[config.strategy], config.server(theta)
        course = private.noisy_averaging(fed, plan, schedule, rule, server, clip=dp.clip)
    one = np.ones(1)

    def model(vector: np.ndarray, rounds: int) -> DeepCoxModel:
        return DeepCoxModel(plan.network, vector[None], one, 0.0, None, rounds)

    kept = {r: model(vector, r) for r, vector in course.kept.items()}
    baseline = None
    if dp.unit == "record" and task.reach is not None:
        horizon = task.reach[1]
        told = fed.sum(hazards_privately, theta=course.theta, plan=plan.text, horizon=horizon).told
        release = next(r for r in releases(config, dp) if r.step == hazards_privately.name)
        noise = release.noise * math.sqrt((1.0 + INTERVALS) * len(fed.sites))
        baseline = baseline_of(told, horizon, noise)
    return DeepCoxModel(plan.network, course.theta[None], one, 0.0, baseline, course.rounds, kept)


def baseline_of(told: Array, horizon: float, noise: float) -> Baseline:
    """Return eq. (1)'s H on a fine grid; counts below 0 are 0, exposures at least their noise."""
    deaths = np.maximum(told[:INTERVALS], 0.0)
    exposure = np.maximum(told[INTERVALS:], max(noise, 1e-9))
    ends = np.linspace(0.0, horizon, INTERVALS + 1)
    times = np.linspace(0.0, horizon, INTERVALS * STEPS_IN + 1)[1:]
    whole = np.r_[0.0, np.cumsum(deaths / exposure)] * math.exp(-BOUND)
    return Baseline(times, np.interp(times, ends, whole))
