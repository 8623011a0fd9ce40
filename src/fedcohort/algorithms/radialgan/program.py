"""RadialGAN over sites: rows of other sites, translated into a site's own columns.

GenoMed4All D6.2, chapter 5, eqs. (5.1) to (5.8); Yoon, Jordon, van der Schaar, ICML 2018. Site i
has an encoder F_i, a decoder G_i and a discriminator D_i (`models.radial`), which stay there, and

    min over F, G, max over D, of Σ_i L_adv^i + λ Σ_i L_cyc^i                               (1)

with α_ij = n_j / Σ_{k≠i} n_k. Then site i trains a predictor on D_i ∪ G_i(F_j(D_j)), j ≠ i, and
keeps it. Sites may have different columns, and share the outcome.

``shares: codes`` (the paper): each optimiser step every site tells codes of a batch of its records;
every other site tells the slopes of its loss by them, which go back to their site alone. The steps
are those of one program that holds all networks and rows.

``shares: mixture``: in each round every site tells, for each class of the outcome, number, mean and
covariance of its codes. Others draw codes from these normals. No slope goes back: F_j learns from
its own site's eq. (2) alone. The last round's mixture makes the virtual rows.

Eq. (1) does not say that a code has the same meaning at two sites: nothing keeps site i from
decoding another site's cases as its own controls. `carry` (`models.radial`) lets the outcome, and
the columns that all sites have, pass through the latent space; ``carry: none`` is the paper.

All sites start from the same θ, drawn from the study's seed.

Revealed: `Columns` of each site, once; `Groups` of each site in each round and once at the end, to
coordinator and sites; `Played` as a sum over sites. With codes: `Codes` of each site in each step,
and of all its records at the end, and `Slopes`. Of survival times `training.outcome_moments`, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedcohort.algorithms.radialgan.messages import Alone, Groups
from fedcohort.algorithms.radialgan.model import RadialModel
from fedcohort.algorithms.radialgan.private import fit_privately
from fedcohort.algorithms.radialgan.settings import RadialPlan, RadialSettings
from fedcohort.algorithms.radialgan.steps import (
    CODES,
    MIXTURE,
    answer_codes,
    encode,
    keep_predictor,
    keep_predictor_of_codes,
    tell_codes,
    tell_columns,
    tell_groups,
    tell_predictor,
    train_networks,
)
from fedcohort.arrays import Array
from fedcohort.data.exact import check_covariates
from fedcohort.protocol import (
    Federation,
    NotConverged,
    Step,
    Task,
    check_all_answered,
    per_site,
)
from fedcohort.protocol.step import mark_of
from fedcohort.training.outcome_moments import sum_times, unit_of_times
from fedcohort.training.settings import ALL


def fit(fed: Federation, config: RadialSettings, task: Task) -> RadialModel:
    """Train the networks and the predictor of each site, which stay there.

    Raises
    ------
    SettingError : fewer than two sites, or no outcome that sites could share.
    DataError : no covariates, a site of fewer than `min_cell` rows, or without two classes.
    NotConverged : the learning rate is too high.
    SiteUnavailable : a site did not answer; each is needed.
    """
    check_covariates(task)
    config.check_sites(len(fed.sites))
    plan = config.plan(task)
    fed = fed.awaiting()
    if task.dp is not None:
        plan, records = fit_privately(fed, config, task)
        return RadialModel.of(task.features, task.levels, plan, ALL, told=records)
    least = task.min_cell if len(fed.sites) > 1 else 1
    unit = 1.0 if plan.classes else unit_of_times(fed)
    given: dict[str, Any] = {
        "plan": plan.text, "unit": unit, "seed": task.seed, "least": least
    }  # fmt: skip
    if not config.every:
        next(iter(fed.rounds(1)))
        (alone,) = fed.gather(tell_predictor, **given).values()
        return RadialModel.of(task.features, task.levels, plan, "", alone=alone)
    told = fed.gather(tell_columns, least=least)
    shared = np.stack([c.own for c in told.values()]).all(axis=0)
    given["shared"] = shared
    if config.shares == "mixture":
        losses = _by_mixtures(fed, config, given)
    else:
        losses = _by_codes(fed, config, given)
    return RadialModel.of(task.features, task.levels, plan, ALL, told=losses[:2])


def _by_mixtures(fed: Federation, config: RadialSettings, given: Mapping[str, Any]) -> Array:
    """Train by rounds of mixtures; each site then keeps its predictor. Return the last losses."""
    losses = np.zeros(3)
    for _ in fed.rounds(config.rounds):
        mixtures = _arguments(fed.gather(tell_groups, **given))
        sums = fed.sum(train_networks, **given, **mixtures, epochs=config.internal_epochs)
        check_all_answered(fed)
        losses = sums.losses / float(sums.sites)
        _record(fed, losses)
    mixtures = _arguments(fed.gather(tell_groups, **given))
    fed.sum(keep_predictor, **given, **mixtures, virtual=config.virtual)
    check_all_answered(fed)
    return losses


def _arguments(told: Mapping[str, Groups]) -> dict[str, Any]:
    """Return the sites' groups as arguments: marks (S,), rows (S, K), means and covariances."""
    marks = np.array([mark_of(site) for site in told], np.int64)
    return {
        "marks": marks,
        **{name: np.stack([getattr(g, name) for g in told.values()]) for name in GROUP_FIELDS},
    }


#: Fields of `Groups`.
GROUP_FIELDS = ("rows", "means", "covariances")


def _by_codes(fed: Federation, config: RadialSettings, given: Mapping[str, Any]) -> Array:
    """Train by exchanged codes and slopes; each site then keeps its predictor. Return the last
    losses.
    """
    sites = list(fed.sites)
    marks = np.array([mark_of(site) for site in sites], np.int64)
    groups = fed.gather(tell_groups, **given)
    rows = np.array([max(float(groups[site].rows.sum()), 1.0) for site in sites])
    d = groups[sites[0]].means.shape[1]
    slopes: dict[str, Array] = {site: np.zeros((0, d)) for site in sites}
    losses = np.zeros(3)
    for _ in fed.rounds(config.rounds):
        codes = fed.gather(encode, **given, slopes=per_site(slopes))
        z, counts = _padded([codes[site].z for site in sites], d)
        told = fed.gather(answer_codes, **given, marks=marks, z=z, counts=counts, rows=rows)
        total = np.sum([told[site].slopes for site in sites], axis=0)
        slopes = {site: total[k, : int(counts[k])] for k, site in enumerate(sites)}
        losses = np.mean([told[site].losses for site in sites], axis=0)
        _record(fed, losses)
    fed.gather(encode, **given, slopes=per_site(slopes))
    codes = fed.gather(tell_codes, **given)
    others = {
        site: np.concatenate([codes[other].z for other in sites if other != site]) for site in sites
    }
    fed.gather(keep_predictor_of_codes, **given, z=per_site(others))
    return losses


def _padded(codes: list[Array], d: int) -> tuple[Array, Array]:
    """Return sites' codes (S, B, d), 0 behind those of a small site, and their numbers (S,)."""
    counts = np.array([float(len(z)) for z in codes])
    z = np.zeros((len(codes), int(counts.max()), d))
    for k, some in enumerate(codes):
        z[k, : len(some)] = some
    return z, counts


def _record(fed: Federation, losses: Array) -> None:
    """Add the mean losses (3,) to the history.

    Raises
    ------
    NotConverged : they are not finite.
    """
    if not np.isfinite(losses).all():
        raise NotConverged(
            "a loss of the networks is not finite: the learning rate is too high. Give a smaller "
            "learning_rate."
        )
    adversarial, cycle, _ = losses.tolist()
    fed.record(adversarial=adversarial, cycle=cycle)


def asks(config: RadialSettings) -> Iterable[Step[..., Any]]:
    """Yield the steps of a fit."""
    yield sum_times
    if not config.every:
        yield tell_predictor
        return
    yield tell_columns
    yield from (*MIXTURE, keep_predictor) if config.shares == "mixture" else (tell_groups, *CODES)


def own_model(
    site: str, design: Any, asked: Mapping[str, Any], left: Mapping[str, Array]
) -> RadialModel | None:
    """Return the model that a step has finished at a site (`Method.own_model`)."""
    if not len(left.get("model", ())):
        return None
    plan = RadialPlan.of(asked["plan"])
    found = Alone(*(left[name] for name in ("model", "times", "cumulative", "own")))
    shared = asked.get("shared", np.zeros(plan.inputs)).astype(bool).tolist()
    groups = Groups(*(left[name] for name in GROUP_FIELDS))
    levels = design.classes if plan.classes else ()
    return RadialModel.of(
        design.features, levels, plan, site, alone=found, theta=left["theta"],
        spec=plan.network(shared), binary=plan.binary(shared),
        groups=groups if len(groups.rows) else None, unit=float(asked["unit"]),
    )  # fmt: skip
