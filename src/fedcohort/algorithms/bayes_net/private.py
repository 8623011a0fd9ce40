"""Private `bayes_net`: partitioned variational inference with clipped and noised changes.

Heikkilä, Ashman, Swaroop, Turner, Honkela, "Differentially private partitioned variational
inference", TMLR 2023. Of their ways, noise in the summed change has the least noise over sites that
mask their sums, but their change is that of whole runs over parts of a site's rows. Here a site's
visit is one step, whose change is a sum over records. So each record is clipped, and not a part of
the rows. With slopes s_i = ∂ ln p(y_i | x_i, w)/∂μ (W,) of record i at a draw of the sums of each
layer (`models.bayes`), and C = `clip`, the sites sum

    u_i = (s_i, κ s_i², r C) · c_i,   c_i = min(1, C/‖(s_i, κ s_i², r C)‖)                  (1)

One record more or less changes the sum by its own u_i, of norm ≤ C, for any posterior that a
coordinator can send. Others' draws have the same distribution with it and without (joint convexity,
see `training.private`). T rounds are T Gaussian releases; the noise is shared by the sites. One
more release counts the records, n; it takes one part in `PART` of Σ 1/z².

Noise costs nothing more from here. With the sums G, H/κ and N of (1), N over n is the share of the
likelihood that clipping leaves, w. The prior N(0, 1/λ₀) gets the same share, or it would outweigh
the records. With a = `dp_learning_rate`, η = a/(n C), and running means h and w:

    μ ← (μ + η G)/(1 + η w λ₀)          a step along the slopes, and one to the prior         (2)
    h ← (1 − ρ) h + ρ H/w,   λ ← λ₀ + h     natural gradients of the factors' precisions      (3)

Squares of slopes have the mean of Fisher's information: none is negative, so the factors' precision
h of (3) is at least 0, which the noise alone can break. h is shrunk towards its mean in each layer
by the share of its spread that is noise (James and Stein), and cut at 0. At the end μ and λ are
means of the later half of the rounds. Since all is linear in the sites' factors, only their sum is
needed: no site keeps a factor.

The posterior's spread is that of the records; it does not hold the noise.

Classes are not counted. A value's scale, a count's, and the times follow from the outcome's usual
values in the dictionary; curves of survival end at its largest usual time.

Revealed: `Count` once and `Slopes` T times, with noise, as sums over sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.bayes_net.model import BayesNetModel
from fedcohort.algorithms.bayes_net.program import INTERVALS, Aim, aim_of
from fedcohort.algorithms.bayes_net.records import clipped_sums, layers_of
from fedcohort.algorithms.bayes_net.settings import BayesNetSettings
from fedcohort.algorithms.bayes_net.steps import places_of, posterior_at_start
from fedcohort.arrays import Array
from fedcohort.data.exact import check_covariates
from fedcohort.privacy.guard import LEAST_ROWS
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
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.variational import Natural
from fedcohort.training.private import LaterMean
from fedcohort.training.rows import rows_of

#: κ, r and ρ of eqs. (1) and (3).
SQUARES, MARK, FRESH = 0.1, 0.1, 0.1
#: The count of records takes one part in `PART` of the total Σ 1/z².
PART = 20
#: T over √ε, by default.
STEPS_BY_ROOT = 32
#: Least share of the likelihood that clipping is taken to leave.
LEAST_LEFT = 0.02
#: Default C, for inputs within [−1, 1].
CLIPS = {"record": 1.0}
#: Settings that a private fit does not use, which keep their defaults.
UNUSED: Mapping[str, tuple[Any, str]] = {
    "strategy": ("pvi", "which has no private fit; choose 'pvi'"),
    "damping": (None, "which a private fit does not use; leave it out"),
    "staleness": (0, "but a private fit asks all sites in each round; choose 0"),
    "head": ("weibull", "which has no private fit; choose 'weibull'"),
    "sites_per_round": (0, "but a private fit asks all sites in each round; choose 0"),
    "prior": ("gaussian", "which has no private fit; choose 'gaussian'"),
    "kl_weights": ("uniform", "but a private fit has no mini-batches; choose 'uniform'"),
}


@message
class Slopes:
    """Sums of eq. (1), (2 W + 1,)."""

    sums: Array


@message
class Count:
    """Number of records (1,)."""

    records: Array


# site ---------------------------------------------------------------------------------


@summed
def count_records_privately(site: Site[Any, None]) -> Private[Count]:
    """Count the site's records."""
    return Private(Count(np.array([float(len(site.data.x))])), {"records": 1.0})


@summed
def sum_slopes_privately(
    site: Site[Any, None], *, theta: Array, plan: str, clip: float
) -> Private[Slopes]:
    """Sum clipped slopes of the log likelihood, and their squares, at the posterior that is asked.

    Parameters
    ----------
    theta : means and logarithms of standard deviations (2 W,). clip : C of eq. (1).
    """
    p = Plan.of(plan)
    sums = clipped_sums(
        theta, rows_of(site.data, p, (0, 0)), p, site.rng, clip=clip, squares=SQUARES,
        mark=MARK * clip,
    )  # fmt: skip
    return Private(Slopes(sums), {"sums": clip})


STEPS = (count_records_privately, sum_slopes_privately)

# coordinator --------------------------------------------------------------------------


def releases(config: BayesNetSettings, dp: Dp) -> Sequence[Release]:
    """Return all releases of a private fit.

    Raises
    ------
    SettingError : these settings have no private fit; or (ε, δ) cannot be met.
    """
    if dp.unit != "record":
        raise SettingError(
            f"dp.unit is {dp.unit!r}, but method {config.method!r} protects records; choose "
            f"'record'."
        )
    for name, (able, why) in UNUSED.items():
        if (value := getattr(config, name)) != able:
            raise SettingError(f"setting {name!r} of method {config.method!r} is {value!r}, {why}.")
    return _releases(rounds_of(config, dp), dp)


def rounds_of(config: BayesNetSettings, dp: Dp) -> int:
    """Return T: as set, or by ε. The noise of T steps grows as √T/ε, their progress as T."""
    if config.dp_rounds is not None:
        return config.dp_rounds
    return max(1, round(STEPS_BY_ROOT * math.sqrt(dp.epsilon)))


@lru_cache(maxsize=64)
def _releases(rounds: int, dp: Dp) -> tuple[Release, ...]:
    from fedcohort.privacy import accounting  # slow to import: only where noise is asked for

    def make(z: float) -> tuple[Release, ...]:
        counted = z * math.sqrt((PART - 1) / rounds)
        return (
            Release(step=count_records_privately.name, noise=counted),
            Release(step=sum_slopes_privately.name, noise=z, count=rounds),
        )

    return make(accounting.calibrate(make, dp))


def reveals(config: BayesNetSettings, dp: Dp) -> str:
    """Describe what leaves a site in a private fit."""
    return (
        f"Once the number of records, and {rounds_of(config, dp)} times the sum over sites of "
        f"clipped slopes of the records' log likelihood, and of their squares, with noise."
    )


def noisy_aim(task: Task) -> Aim:
    """Return the outcome's model, with the scale of its usual values.

    Raises
    ------
    DataError : an outcome that is no class has no usual values.
    """
    aim = aim_of(task, "weibull")
    if aim.model in ("logistic", "softmax"):
        return aim
    low, high = task.usual
    if aim.model == "weibull":
        return replace(aim, scale=high / 2.0, times=np.linspace(0.0, high, INTERVALS + 1)[1:])
    if aim.model == "poisson":
        return replace(aim, scale=max((low + high) / 2.0, 1.0))
    return replace(aim, centre=(low + high) / 2.0, scale=(high - low) / 2.0)


def plan_of(config: BayesNetSettings, task: Task) -> Plan:
    """Return the plan of each site, which follows from the study."""
    aim = noisy_aim(task)
    return config.plan(len(task.features), aim.loss, aim.outputs)


def held(config: BayesNetSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that a site requires: all except posteriors."""
    assert task.dp is not None
    given = {"plan": plan_of(config, task).text, "clip": task.dp.norm}
    return {sum_slopes_privately.name: given}


def fit(fed: Federation, config: BayesNetSettings, task: Task, dp: Dp) -> BayesNetModel:
    """Fit the posterior with noise.

    Raises
    ------
    DataError : there are no covariates; an outcome without usual values.
    Refused : a site has too few rows, or its budget is spent.
    """
    check_covariates(task)
    aim, plan = noisy_aim(task), plan_of(config, task)
    at = places_of(plan.network)
    start = posterior_at_start(plan.network, task.seed)
    _, slopes = releases(config, dp)
    found = climbed(fed, config, plan, start, slopes, dp.norm)
    return BayesNetModel(
        features=task.features,
        levels=task.levels if aim.model in ("logistic", "softmax") else (),
        model=aim.model,
        network=plan.network,
        thetas=found.into(at)[None],
        weights=np.ones(1),
        centre=aim.centre,
        scale=aim.scale,
        times=aim.times,
        rounds=slopes.count,
        samples=config.samples,
        seed=task.seed,
        level=config.level,
    )


def climbed(
    fed: Federation, config: BayesNetSettings, plan: Plan, start: Natural, release: Release,
    clip: float,
) -> Natural:  # fmt: skip
    """Return the posterior by eqs. (2) and (3)."""
    at, layers = places_of(plan.network), layers_of(plan.network)
    size, prior = len(at.mean), config.prior_scale**-2.0
    told = fed.sum(count_records_privately)
    n = max(float(told.records[0]), float(LEAST_ROWS * len(fed.answered)))
    eta = config.dp_learning_rate / (n * clip)
    mu, precision = start.shift / start.precision, start.precision
    h, left, noise = precision - prior, 0.0, 0.0
    mean = LaterMean(release.count)
    later = np.concatenate([mu, precision])
    for number in fed.rounds(release.count):
        theta = Natural(precision, precision * mu).into(at)
        sums = fed.sum(sum_slopes_privately, theta=theta, plan=plan.text, clip=clip).sums
        kept = min(max(float(sums[-1]) / (MARK * clip * n), LEAST_LEFT), 1.0)
        left = kept if number == 0 else left + FRESH * (kept - left)
        share = left * config.temperature
        mu = (mu + eta * sums[:size]) / (1.0 + eta * share * prior)
        h = h + FRESH * (sums[size:-1] / (SQUARES * share) - h)
        # at least what was added: without masks each site adds all of its own
        sd = release.noise * clip * math.sqrt(len(fed.answered)) / (SQUARES * share)
        noise = math.hypot((1.0 - FRESH) * noise, FRESH * sd)
        precision = prior + shrunk(h, noise, layers)
        later = mean.add(np.concatenate([mu, precision]))
        fed.record(likelihood=left, posterior_sd=math.exp(-0.5 * float(np.log(precision).mean())))
    return Natural(later[size:], later[size:] * later[:size])


def shrunk(h: Array, noise: float, layers: Sequence[slice]) -> Array:
    """Return h (W,), at least 0, shrunk towards the mean of each layer.

    Parameters
    ----------
    noise : standard deviation of the noise in each number of h, and at least what was added.
    """
    out = np.empty_like(h)
    for layer in layers:
        part = h[layer]
        mean, spread = max(float(part.mean()), 0.0), float(part.var())
        share = max(0.0, 1.0 - noise**2 / spread) if spread > 0 else 0.0
        out[layer] = np.maximum(mean + share * (part - mean), 0.0)
    return out
