"""RadialGAN with differential privacy: noisy sums of products of codes, once.

The codes of an encoder that is trained on the rows have no bounded sensitivity: a record more
changes the encoder, and so the codes of all others. So a private fit leaves F at its start, which
the study's seed determines, and trains G and D alone. A record of class k (or with event k) adds

    v vᵀ,  v = min(1, C/‖(1, z)‖) (1, z),  z = F(r)                                         (1)

to the k-th of K sums; by ``carry`` z of survival also has ln(time/unit), and ``shared`` is taken as
``outcome``. A record is in one sum, so adding or removing it changes all together by a matrix of
norm ≤ C². The coordinator makes means and covariances of them, with eigenvalues raised to `LEAST`;
a class whose number is below `SEEN` standard deviations of the noise is left out. What sites do
with these mixtures costs no further privacy, and stays there.

With M `components` there are K M sums. A record's part follows from its code and the start alone:
the angle of the first two places of F(r) − F(0), divided into M (with q = 1 the sign, two parts).
A record is still in one sum.

Columns are within [−1, 1]; missing entries, and columns that a site lacks, are 0. Times are in
units of the highest usual time of the dictionary.

Revealed, with noise: `Products` of each site, once, and the number of records, as a sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.radialgan.messages import Groups, Radius
from fedcohort.algorithms.radialgan.records import records_of
from fedcohort.algorithms.radialgan.settings import RadialPlan, RadialSettings
from fedcohort.algorithms.radialgan.steps import RadialSite, finished, others_of
from fedcohort.algorithms.radialgan.training import Player, begun, play
from fedcohort.arrays import Array
from fedcohort.privacy.statistics import cross_products
from fedcohort.protocol import (
    Dp,
    Federation,
    Keep,
    NothingToLearn,
    Private,
    Release,
    SettingError,
    Task,
    gathered,
    message,
    summed,
)
from fedcohort.protocol.step import mark_of
from fedcohort.training.linear.private_products import unpacked

#: Default of C.
CLIPS = {"record": 1.5}
#: Least variance of a code; smallest credible number, in standard deviations of the noise.
LEAST, SEEN = 1e-3, 3.0
#: The number of records takes one part in `PART` of the total Σ 1/z².
PART = 50


@message
class Products:
    """Upper triangles of eq. (1), K classes of M parts each (K M, (d + 1)(d + 2)/2)."""

    upper: Array


@message
class Records:
    """Number of records (1,)."""

    records: Array


def plan_of(config: RadialSettings, task: Task) -> RadialPlan:
    """Return the plan of a private fit."""
    plan = config.plan(task)
    carry = plan.carry if plan.carry == "none" else "outcome"
    return replace(plan, carry=carry, fixed=True)


def _player(plan: RadialPlan, seed: int) -> Player:
    spec = plan.network([False] * plan.inputs)
    return Player(spec, plan, *begun(spec, seed))


def _own_places(plan: RadialPlan) -> list[int]:
    """Return the places of a code that its class does not determine."""
    carried = plan.carry == "outcome" and not plan.classes
    return [*range(plan.latent), *([plan.latent + 1] if carried else [])]


@gathered
def tell_groups_privately(
    site: RadialSite, *, plan: str, unit: float, seed: int, clip: float
) -> Private[Products]:
    """Sum products of clipped codes of each class, by an encoder that no row has trained.

    Parameters
    ----------
    clip : C. Others as of `tell_groups`.
    """
    p = RadialPlan.of(plan)
    records = records_of(site.data, p, unit, 1)
    player = _player(p, seed)
    codes = player.codes(records.r)
    rows = np.column_stack([np.ones(len(codes)), codes[:, _own_places(p)]])
    middle = player.codes(np.zeros((1, p.records)))
    part = sector((codes - middle)[:, : p.latent], p.components)
    sums = [
        cross_products(rows[(records.group == k) & (part == c)], clip)
        for k in range(p.groups)
        for c in range(p.components)
    ]
    return Private(Products(np.stack([s.value for s in sums])), {"upper": sums[0].l2})


def sector(z: Array, parts: int) -> Array:
    """Return the part (n,) of each code (n, q), from 0, by the angle of its first two places."""
    if z.shape[1] < 2:
        return np.minimum((z[:, 0] > 0).astype(np.int64), parts - 1)
    turn = np.arctan2(z[:, 1], z[:, 0]) / (2.0 * np.pi) + 0.5
    return np.minimum((turn * parts).astype(np.int64), parts - 1)


@summed
def keep_predictor_privately(
    site: RadialSite, *, plan: str, unit: float, seed: int, marks: Array, rows: Array,
    means: Array, covariances: Array, virtual: float, epochs: int,
) -> Keep[Private[Records], Radius]:  # fmt: skip
    """Train decoder, discriminator and predictor with other sites' mixtures, and keep them.

    Parameters as of `keep_predictor`.
    """
    p = RadialPlan.of(plan)
    player = _player(p, seed)
    others = others_of(site, p.normals, player.places, marks, rows, means, covariances)
    binary = p.binary([False] * p.inputs)
    play(player, records_of(site.data, p, unit, 1), others, binary, epochs, site.rng)
    done = finished(site, player, p, unit, seed, 1, others, binary, virtual)
    told = Records(np.array([float(len(site.data.x))]))
    return Keep(Private(told, {"records": 1.0}), done)


def fit_privately(fed: Federation, config: RadialSettings, task: Task) -> tuple[RadialPlan, Array]:
    """Run a private fit, after which each site keeps its model.

    Return its plan, and the noisy number of records (1,).

    Raises
    ------
    NothingToLearn : no class of a site can be told from the noise.
    """
    assert task.dp is not None
    plan = plan_of(config, task)
    unit = 1.0 if plan.classes else task.usual[1]
    given: dict[str, Any] = {"plan": plan.text, "unit": unit, "seed": task.seed}
    next(iter(fed.rounds(1)))
    told = fed.gather(tell_groups_privately, **given, clip=task.dp.norm)
    noise = releases(config, task.dp)[0].noise * task.dp.norm**2
    groups = [read(one.upper, plan, noise) for one in told.values()]
    if min(int((g.rows > 0).sum()) for g in groups) == 0:
        raise NothingToLearn(
            "no class of a site can be told from the noise: too few rows, at this epsilon. Ask for "
            "a larger epsilon, or leave small sites out."
        )
    done = fed.sum(
        keep_predictor_privately, **given, virtual=config.virtual,
        epochs=config.rounds * config.internal_epochs,
        marks=np.array([mark_of(site) for site in told], np.int64),
        rows=np.stack([g.rows for g in groups]), means=np.stack([g.means for g in groups]),
        covariances=np.stack([g.covariances for g in groups]),
    )  # fmt: skip
    return plan, done.records


def read(upper: Array, plan: RadialPlan, noise: float) -> Groups:
    """Return the groups of noisy sums (K M, …) of eq. (1).

    Parameters
    ----------
    noise : the standard deviation of the noise of a diagonal entry.
    """
    own = np.array(_own_places(plan))
    carried = plan.outcomes if plan.carry == "outcome" else 0
    d, k = plan.latent + carried, len(upper)
    rows, means, covariances = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d))
    for c, triangle in enumerate(upper):
        total = unpacked(triangle)
        n = float(total[0, 0])
        if n < max(SEEN * noise, 2.0):
            continue
        mean = total[0, 1:] / n
        values, vectors = np.linalg.eigh(total[1:, 1:] / n - np.outer(mean, mean))
        rows[c] = n
        if carried:
            means[c, plan.latent :] = _of_class(c // plan.components, plan)
        means[c, own] = mean
        covariances[c][np.ix_(own, own)] = (vectors * np.maximum(values, LEAST)) @ vectors.T
    return Groups(rows, means, covariances)


def _of_class(c: int, plan: RadialPlan) -> Array:
    """Return the outcome's places of a record of class c, or with event c."""
    if not plan.classes:
        return np.array([float(c), 0.0])
    return (np.arange(1, plan.classes) == c).astype(float)


def releases(config: RadialSettings, dp: Dp) -> Sequence[Release]:
    """Return the releases of a private fit.

    Raises
    ------
    SettingError : a setting has no private fit, or (ε, δ) cannot be met.
    """
    if dp.unit != "record":
        raise SettingError(
            f"dp.unit is {dp.unit!r}, but the products of codes protect only records; choose "
            f"'record'."
        )
    if config.shares == "codes":
        raise SettingError(
            "setting 'shares' is 'codes', which shows the code of each patient. A private fit "
            "shares a mixture: choose 'mixture'."
        )
    if not config.virtual:
        raise SettingError(
            "setting 'virtual' is 0, own rows alone, which has no private fit. Give a number "
            "above 0."
        )
    return _releases(dp)


@lru_cache(maxsize=64)
def _releases(dp: Dp) -> tuple[Release, ...]:
    from fedcohort.privacy import accounting  # slow to import

    def make(z: float) -> tuple[Release, ...]:
        return (
            Release(step=tell_groups_privately.name, noise=z),
            Release(step=keep_predictor_privately.name, noise=z * math.sqrt(PART)),
        )

    return make(accounting.calibrate(make, dp))


def held(config: RadialSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return the arguments that a site checks, by step.

    Any seed of the encoder will do: codes are clipped.
    """
    assert task.dp is not None
    plan = {"plan": plan_of(config, task).text}
    return {
        tell_groups_privately.name: {**plan, "clip": task.dp.norm},
        keep_predictor_privately.name: plan,
    }


def reveals(config: RadialSettings, dp: Dp) -> str:
    """Return, in plain words, what leaves a site in a private fit."""
    del config, dp
    return (
        "Once, of each site and each class of the outcome, the number of rows and the sums and "
        "products of their latent codes, with noise; and the sum over sites of their rows."
    )


STEPS = (tell_groups_privately, keep_predictor_privately)
