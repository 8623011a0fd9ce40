"""Steps of `radialgan`: columns, mixtures, training, the finished model, and codes.

Each site's networks, its optimiser and its predictor stay in its state. What leaves is declared by
the messages (`messages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedcohort.algorithms.radialgan.messages import (
    Alone,
    Codes,
    Columns,
    Groups,
    Played,
    Radius,
    Slopes,
    check_codes,
    check_shares,
    check_slopes,
    check_virtual,
    unfit,
)
from fedcohort.algorithms.radialgan.records import (
    columns_of,
    drawn,
    groups_of,
    records_of,
    table_of,
)
from fedcohort.algorithms.radialgan.settings import RadialPlan
from fedcohort.algorithms.radialgan.training import (
    Player,
    baseline_of_rows,
    begun,
    play,
    predictor_of,
    virtual_rows,
)
from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import DataError, Keep, Refused, Site, gathered, summed
from fedcohort.protocol.step import mark_of

RadialSite = Site[Any, Radius | None]


@gathered
def tell_columns(site: RadialSite, *, least: int) -> Columns:
    """Tell which columns the site has; a site of few rows refuses.

    Raises
    ------
    DataError : there are fewer than `least` rows.
    """
    if len(site.data.x) < least:
        raise DataError(
            f"site {site.name!r} has fewer than {least} rows (min_cell), too few for codes of its "
            f"own. Leave the site out."
        )
    return Columns(columns_of(site.data.x, least), np.array(1))


def _player(site: RadialSite, plan: RadialPlan, shared: Array, seed: int) -> Player:
    """Return the site's networks, at the common start before the first step."""
    spec = plan.network(shared.astype(bool).tolist())
    if site.state is None:
        return Player(spec, plan, *begun(spec, seed))
    state = site.state
    return Player(spec, plan, state.theta, state.moments, float(state.taken))


def _kept(player: Player, **more: Array) -> Radius:
    return Radius(player.theta, player.moments, np.array(player.taken), **more)


@gathered
def tell_groups(
    site: RadialSite, *, plan: str, shared: Array, unit: float, seed: int, least: int
) -> Groups:
    """Tell number, mean and covariance of the codes of each class of the site's records.

    Parameters
    ----------
    plan : text of `RadialPlan`. shared : (p,), which columns all sites have.
    unit : of times.
    """
    p = RadialPlan.of(plan)
    records = records_of(site.data, p, unit, least)
    player = _player(site, p, shared, seed)
    z = player.codes(records.r)
    return groups_of(z, records.group, p.groups, least, components=p.components, seed=seed)


def others_of(
    site: RadialSite, count: int, d: int, marks: Array, rows: Array, means: Array,
    covariances: Array,
) -> Groups:  # fmt: skip
    """Return the groups of the other sites as one mixture: α_ij is the share of rows.

    Parameters
    ----------
    count : K M, groups of each site. d : places of a code.

    Raises
    ------
    Refused : they are no mixture of other sites' codes.
    DataError : no other site has a class that it may tell of.
    """
    others, s = marks != mark_of(site.name), len(marks)
    shapes = ((s, count), (s, count, d), (s, count, d, d))
    why = "groups of other numbers or shapes than the study's"
    if (rows.shape, means.shape, covariances.shape) == shapes and others.sum() == s - 1:
        found = Groups(
            rows[others].reshape(-1), means[others].reshape(-1, d),
            covariances[others].reshape(-1, d, d),
        )  # fmt: skip
        why = unfit(found.rows, found.means, found.covariances, count * (s - 1), d)
        if not why and found.rows.sum():
            return found
    if why:
        raise Refused(
            "malformed",
            f"the coordinator sent {why}, or none of this site. The site does not train with them.",
        )
    raise DataError(
        "no other site has a class with min_cell rows or more, so there is nothing to "
        "translate. Add a site."
    )


@summed
def train_networks(
    site: RadialSite, *, plan: str, shared: Array, unit: float, seed: int, least: int,
    marks: Array, rows: Array, means: Array, covariances: Array, epochs: int,
) -> Keep[Played, Radius]:  # fmt: skip
    """Train the site's networks on own rows and on codes drawn from the other sites' mixtures.

    Parameters
    ----------
    marks : of the sites (S,). rows, means, covariances : their `Groups`, (S, …).
    Others as of `tell_groups`.
    """
    p = RadialPlan.of(plan)
    records = records_of(site.data, p, unit, least)
    player = _player(site, p, shared, seed)
    others = others_of(site, p.normals, player.places, marks, rows, means, covariances)
    binary = p.binary(shared.astype(bool).tolist())
    losses = play(player, records, others, binary, epochs, site.rng)
    return Keep(Played(np.array(1), losses), _kept(player))


@summed
def keep_predictor(
    site: RadialSite, *, plan: str, shared: Array, unit: float, seed: int, least: int,
    marks: Array, rows: Array, means: Array, covariances: Array, virtual: float,
) -> Keep[Played, Radius]:  # fmt: skip
    """Train the site's predictor on own rows and virtual ones, and keep it.

    Parameters
    ----------
    virtual : number of virtual rows for each own row.
    Others as of `train_networks`.
    """
    p = RadialPlan.of(plan)
    player = _player(site, p, shared, seed)
    others = others_of(site, p.normals, player.places, marks, rows, means, covariances)
    binary = p.binary(shared.astype(bool).tolist())
    done = finished(site, player, p, unit, seed, least, others, binary, virtual)
    return Keep(Played(np.array(1), np.zeros(3)), done)


def finished(
    site: RadialSite, player: Player, plan: RadialPlan, unit: float, seed: int, least: int,
    others: Groups, binary: Sequence[Sequence[float]], virtual: float,
) -> Radius:  # fmt: skip
    """Return the state with the predictor on own rows, and virtual ones drawn from `others`."""
    check_virtual(virtual)
    z = drawn(others, round(virtual * len(site.data.x)), site.rng, binary)
    return _finished(site, player, plan, unit, seed, least, z, others)


def _finished(
    site: RadialSite, player: Player, plan: RadialPlan, unit: float, seed: int, least: int,
    z: Array, others: Groups,
) -> Radius:  # fmt: skip
    """Return the state with the predictor on own rows and the decoded codes z (m, d)."""
    found = _alone(site, plan, unit, seed, least, player, z)
    return _kept(player, **vars(found), **vars(others))


def _alone(
    site: RadialSite, plan: RadialPlan, unit: float, seed: int, least: int,
    player: Player | None = None, z: Array | None = None,
) -> Alone:  # fmt: skip
    """Return the predictor on own rows, and on the decoded codes z (m, d) if there are any."""
    records = records_of(site.data, plan, unit, least)
    own_rows = table_of(records.r, plan, unit)
    r = records.r
    if player is not None and z is not None and len(z):
        r = np.concatenate([r, virtual_rows(player, records.own, z, site.rng)])
    table = table_of(r, plan, unit)
    outcome = np.asarray(table.event if isinstance(table, SurvivalTable) else table.y)
    if len(np.unique(outcome)) < 2 and (plan.classes or not outcome.any()):
        raise DataError(
            f"site {site.name!r} has no event, or one class alone, in own and virtual rows; no "
            f"predictor can be learnt. Leave the site out."
        )
    model = predictor_of(table, plan, seed)
    if plan.classes:
        return Alone(model, np.zeros(0), np.zeros(0), records.own)
    curve = baseline_of_rows(own_rows, model, plan)
    return Alone(model, curve.times, curve.cumulative, records.own)


@gathered
def tell_predictor(
    site: RadialSite, *, plan: str, unit: float, seed: int, least: int
) -> Alone:  # fmt: skip
    """Train a predictor on the rows of a single site, and tell it."""
    return _alone(site, RadialPlan.of(plan), unit, seed, least)


@gathered
def encode(
    site: RadialSite, *, plan: str, shared: Array, unit: float, seed: int, least: int,
    slopes: Array,
) -> Keep[Codes, Radius]:  # fmt: skip
    """Take a step by the slopes of the last codes, and tell codes of other records drawn anew.

    Parameters
    ----------
    slopes : of the other sites' losses by this site's last codes (B, d); (0, d) at first.
    """
    p = RadialPlan.of(plan)
    records = records_of(site.data, p, unit, least)
    player = _player(site, p, shared, seed)
    state = site.state
    if state is not None and len(slopes):
        check_slopes(slopes, len(state.chosen), player.places)
        r = records.r[state.chosen.astype(int)]
        back = player.pulled(r, slopes)
        player.descend(state.slope + back)
    n = len(records.r)
    size = min(p.batch, n)
    chosen = site.rng.permutation(n)[:size]
    z = player.codes(records.r[chosen])
    return Keep(Codes(z), _kept(player, chosen=chosen.astype(float)))


@gathered
def answer_codes(
    site: RadialSite, *, plan: str, shared: Array, unit: float, seed: int, least: int,
    marks: Array, z: Array, counts: Array, rows: Array,
) -> Keep[Slopes, Radius]:  # fmt: skip
    """Take a step of the discriminator, and tell the slopes of the losses by the sites' codes.

    Parameters
    ----------
    marks : of the sites (S,). z : their codes (S, B, d), of which `counts` (S,) each.
    rows : n_j (S,), records of each site, which make α_ij.
    """
    p = RadialPlan.of(plan)
    records = records_of(site.data, p, unit, least)
    player = _player(site, p, shared, seed)
    assert site.state is not None
    r = records.r[site.state.chosen.astype(int)]
    check_codes(z, player.places)
    check_shares(counts, rows, z)
    given, weights, places = _given(site, marks, z, counts, rows)
    player.judge(r, torch.from_numpy(given), weights, records.own)
    codes = torch.from_numpy(given).requires_grad_()
    slope, losses = player.slope(r, codes, weights, records.own)
    assert codes.grad is not None
    told = np.zeros(z.shape)
    told[places] = codes.grad.numpy()
    kept = _kept(player, chosen=site.state.chosen, slope=slope)
    return Keep(Slopes(told, np.array([float(v) for v in losses])), kept)


def _given(
    site: RadialSite, marks: Array, z: Array, counts: Array, rows: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Return others' codes (m, d), α_ij over their number (m,), and their places in z."""
    others = marks != mark_of(site.name)
    there = others[:, None] & (np.arange(z.shape[1])[None] < counts[:, None])
    alpha = np.where(others, rows, 0.0)
    each = alpha / alpha.sum() / np.maximum(counts, 1.0)
    places = np.nonzero(there)
    return z[places], each[places[0]], (places[0], places[1])


@gathered
def tell_codes(
    site: RadialSite, *, plan: str, shared: Array, unit: float, seed: int, least: int
) -> Codes:
    """Tell the codes of all of the site's records."""
    p = RadialPlan.of(plan)
    player = _player(site, p, shared, seed)
    return Codes(player.codes(records_of(site.data, p, unit, least).r))


@gathered
def keep_predictor_of_codes(
    site: RadialSite, *, plan: str, shared: Array, unit: float, seed: int, least: int, z: Array
) -> Keep[Columns, Radius]:
    """Train the site's predictor on own rows and on the decoded codes of others, and keep it.

    Parameters
    ----------
    z : codes of all records of the other sites (m, d).
    """
    p = RadialPlan.of(plan)
    player = _player(site, p, shared, seed)
    check_codes(z, player.places)
    others = groups_of(z, np.zeros(len(z)), 1, least)
    done = _finished(site, player, p, unit, seed, least, z, others)
    return Keep(Columns(done.own[: p.inputs] > 0, np.array(1)), done)


MIXTURE = (tell_groups, train_networks)
CODES = (encode, answer_codes, tell_codes, keep_predictor_of_codes)
STEPS = (tell_columns, *MIXTURE, keep_predictor, tell_predictor, *CODES)
