"""Site steps of deep clustering.

Revealed, only as sums over all sites: `Columns` once, `HeldOut` every round of phase 1 with a
patience or ``lr_rule: plateau`` (or `training.networks.counts`), `Soft` every round of phase 2, and
`Update` every round of both. With a robust aggregation, `Visit` of each site instead of `Update`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.data.tables import remembered
from fedcohort.models.dec import DecNet, target
from fedcohort.models.network import network
from fedcohort.models.objectives import KlObjective, Reconstruction
from fedcohort.protocol import Keep, Site, gathered, message, summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.clusters.points import Kept
from fedcohort.training.networks.local import evaluate
from fedcohort.training.networks.moments import Moments, parted
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Update, Visit
from fedcohort.training.rows import BLOCK, Rows, rows_of

#: Largest relative difference between the sum of memberships and the rows, in float32.
SLACK = 1e-3

#: Numbers at the end of θ by which it is recognised.
TAIL = 64


@message
class Columns:
    """Rows (), Σ x of finite values (p,); and numbers of sites, by column (p,).

    ``missing``: sites with a value that is not finite; ``outside``: with one below 0 or above 1;
    ``fractions``: with two different values between 0 and 1. A single one comes from imputing zeros
    and ones.
    """

    rows: Array
    totals: Array
    missing: Array
    outside: Array
    fractions: Array


@message
class HeldOut:
    """n_k, and n_k times the loss, of the rows held out."""

    some_rows = True

    rows: Array
    loss: Array


@message
class Soft:
    """Σ q (k,), rows by cluster (k,), rows that changed their cluster (), and rows ()."""

    frequencies: Array
    counts: Array
    changed: Array
    rows: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        f, n = self.frequencies, float(self.rows)
        if f.ndim != 1 or self.counts.shape != f.shape or self.changed.shape:
            return "another shape than one number for each cluster."
        if why := count_fault("counts", self.counts) or count_fault("changed", self.changed):
            return why
        even = self.counts.sum() == n and self.changed <= n
        if not even or (f < 0).any() or abs(f.sum() - n) > SLACK * max(n, 1.0):
            return "memberships, or labels, of another number of rows."
        return ""


@summed
def look_at_columns(site: Site[Any, Any]) -> Columns:
    """Sum each column, and check whether its values are zeros and ones."""
    x: Array = site.data.x
    finite = np.isfinite(x)
    filled = np.where(finite, x, 0.0)
    between = (filled > 0) & (filled < 1)
    low = np.where(between, filled, 1.0).min(axis=0, initial=1.0)
    high = np.where(between, filled, 0.0).max(axis=0, initial=0.0)
    outside = ((filled < 0) | (filled > 1)).any(axis=0)
    missing, outside, several = np.stack([(~finite).any(axis=0), outside, low < high]).astype(int)
    return Columns(np.array(len(x)), filled.sum(axis=0), missing, outside, several)


def _noisy(site: Site[Any, Any], plan: Plan, frequencies: Array) -> Rows:
    """Return the rows of phase 1, with the frequencies of flips."""
    return with_frequencies(rows_of(site.data, plan, site.entropy), frequencies)


def with_frequencies(rows: Rows, frequencies: Array) -> Rows:
    """Return rows of phase 1 whose flips are drawn with these frequencies (p,), or (0,)."""
    if not len(frequencies):
        return rows
    objective = cast("Reconstruction", rows.loss)
    noise = replace(objective.noise, frequencies=tuple(frequencies.tolist()))
    return Rows(rows.x, replace(objective, noise=noise))


@summed
def rebuild(
    site: Site[Any, Any], *, theta: Array, plan: str, rate: float, frequencies: Array
) -> Update:
    """Train the autoencoder from the common one; return the site's part of the mean.

    Parameters
    ----------
    frequencies : of ones in each column (p,), over all sites, for flips; (0,) without.
    """
    p = Plan.of(plan)
    return Update.trained(theta, _noisy(site, p, frequencies), p, rate, site.entropy)


@summed
def rebuild_kept(
    site: Site[Any, Moments | None], *, theta: Array, plan: str, rate: float, frequencies: Array
) -> Keep[Update, Moments]:
    """Train the autoencoder from the common one; keep a state for the next visit at the site."""
    p = Plan.of(plan)
    return Update.kept(site, theta, _noisy(site, p, frequencies), p, rate)


@gathered
def rebuild_seen(
    site: Site[Any, Any], *, theta: Array, plan: str, rate: float, frequencies: Array
) -> Visit:
    """Train the autoencoder; return it, for a robust aggregation."""
    p = Plan.of(plan)
    return Visit.trained(theta, _noisy(site, p, frequencies), p, rate, site.entropy)


@summed
def held_out_loss(site: Site[Any, Any], *, theta: Array, plan: str) -> HeldOut:
    """Sum the loss of the held-out rows, without noise."""
    p = Plan.of(plan)
    rows = rows_of(site.data, p, site.entropy, held_out=True)
    n = len(rows.x)
    return HeldOut(np.array(n), np.array(n * evaluate(theta, rows, p)))


def assigned(site: Site[Any, Any], theta: Array, plan: Plan) -> tuple[Rows, Array]:
    """Return the rows, and their q (n, k), float64; only the latest is kept in memory.

    θ is recognised by its sum, its length and its centroids, which two rounds never share: a
    checksum of a wide network would take longer than the memberships.
    """
    rows = rows_of(site.data, plan, site.entropy)
    key = ("soft", plan.network, plan.dtype, plan.device)
    latest: dict[Any, Array] = remembered(site.data, key, dict)
    mark = float(theta.sum()), float(theta.dot(theta)), theta[-TAIL:].tobytes()
    if mark not in latest:
        net = network(plan.network, plan.dtype, plan.device)
        net.load(theta)
        parts: list[Array] = []
        for start in range(0, max(len(rows.x), 1), BLOCK):
            part = rows.x[start : start + BLOCK]

            def memberships(module: Any, part: torch.Tensor = part) -> torch.Tensor:
                dec = cast("DecNet", module)
                return dec.log_assign(dec.encode(part)).exp()

            parts.append(net.compute(memberships).astype(np.float64))
        latest.clear()
        latest[mark] = np.concatenate(parts)
    return rows, latest[mark]


@summed
def soft_frequencies(site: Site[Any, Kept | None], *, theta: Array, plan: str) -> Keep[Soft, Kept]:
    """Sum the memberships by cluster, and count the rows that changed their cluster."""
    _, q = assigned(site, theta, Plan.of(plan))
    labels = q.argmax(axis=1)
    known = site.state is not None and len(site.state.labels) == len(labels)
    before = site.state.labels if site.state is not None and known else np.full(len(labels), -1)
    counts = np.bincount(labels, minlength=q.shape[1]).astype(np.int64)
    changed = np.array(int((labels != before).sum()))
    soft = Soft(q.sum(axis=0), counts, changed, np.array(len(labels)))
    return Keep(soft, Kept(np.zeros((0, 0)), labels.astype(np.int64)))


def aimed(site: Site[Any, Any], theta: Array, plan: Plan, frequencies: Array, gamma: float) -> Rows:
    """Return the rows of phase 2, with the target P of their memberships at θ (P,)."""
    rows, q = assigned(site, theta, plan)
    f = frequencies if len(frequencies) else q.sum(axis=0)
    aims = torch.from_numpy(target(q, f)).to(rows.x)
    return Rows(rows.x, KlObjective(aims, gamma, cast("Reconstruction", rows.loss)))


@summed
def refine(
    site: Site[Any, Any],
    *,
    theta: Array,
    plan: str,
    rate: float,
    frequencies: Array,
    gamma: float,
) -> Update:
    """Train encoder and centroids towards sharper memberships of the same clusters.

    Parameters
    ----------
    frequencies : f (k,) of all sites' rows; (0,) uses the site's own.
    """
    p = Plan.of(plan)
    rows = aimed(site, parted(theta, p)[0], p, frequencies, gamma)
    return Update.trained(theta, rows, p, rate, site.entropy)


@summed
def refine_kept(
    site: Site[Any, Moments | None],
    *,
    theta: Array,
    plan: str,
    rate: float,
    frequencies: Array,
    gamma: float,
) -> Keep[Update, Moments]:
    """Train encoder and centroids; keep a state for the next visit at the site."""
    p = Plan.of(plan)
    rows = aimed(site, parted(theta, p)[0], p, frequencies, gamma)
    return Update.kept(site, theta, rows, p, rate)


@gathered
def refine_seen(
    site: Site[Any, Any],
    *,
    theta: Array,
    plan: str,
    rate: float,
    frequencies: Array,
    gamma: float,
) -> Visit:
    """Train encoder and centroids; return them, for a robust aggregation."""
    p = Plan.of(plan)
    rows = aimed(site, theta, p, frequencies, gamma)
    return Visit.trained(theta, rows, p, rate, site.entropy)


STEPS = (
    look_at_columns, rebuild, rebuild_kept, rebuild_seen, held_out_loss, soft_frequencies, refine,
    refine_kept, refine_seen,
)  # fmt: skip
