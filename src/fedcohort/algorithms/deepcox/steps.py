"""Steps of DeepCox's strategy "exact" at a site: eqs. (2) and (3) of `deepcox.program`.

Tables that fit a stack (`training.networks.stacks`) are computed in one, and several sites' at
once where they are in one process. Both sums of a step then share one pass through the network.

Revealed: `Slope` every round, only as a sum over sites; `Descended` to a site's own process alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.losses import weights_of
from fedcohort.models.network import network
from fedcohort.protocol import Site, gathered, summed
from fedcohort.training.hazard import risk_sets, risk_stack, seed_of
from fedcohort.training.networks.alone import Descended, asking, descended
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.pooled import Descent, Slope
from fedcohort.training.networks.stacks import Stack, Stacks, single
from fedcohort.training.rows import rows_of


def _pull_each(
    sites: Sequence[Site[SurvivalTable, None]],
    *,
    theta: Array,
    increments: Array,
    shift: float,
    times: Array,
    together: bool,
    plan: str,
    draw: int,
) -> list[Slope] | None:
    """Return `pull` of several sites; None: no two of them fit a stack."""
    p = Plan.of(plan)
    on: dict[str, Any] = {"times": times, "plan": p, "held_out": False, "together": together}
    tables = [rows_of(s.data, p, s.entropy) for s in sites]
    stacks = Stacks.of(tables, p)
    if not stacks.gains:
        return None

    def at_once(places: list[int], stack: Stack) -> Iterable[Slope]:
        risk = risk_stack(stack, [sites[k] for k in places], **on)
        weights = weights_of(stack.outputs(theta), shift)
        found = stack.pulled(theta, risk.slopes(weights, increments))
        return (Slope(one, np.asarray(n)) for one, n in zip(found, stack.rows, strict=True))

    def by_itself(k: int) -> Slope:
        risk = risk_sets(sites[k], **on)
        net = network(p.network, p.dtype, p.device)
        net.load(theta)

        def slope(outputs: Array) -> tuple[float, Array]:
            f = np.asarray(outputs, float)
            return 0.0, risk.hazard(increments) * weights_of(f, shift) - risk.dies

        net.pull(tables[k].x, slope, seed_of(sites[k], draw) if draw >= 0 else 0)
        return Slope(net.gradient(), np.array(float(len(risk.dies))))

    return stacks.over(at_once, by_itself)


@summed(many=_pull_each)
def pull(
    site: Site[SurvivalTable, None],
    *,
    theta: Array,
    increments: Array,
    shift: float,
    times: Array,
    together: bool,
    plan: str,
    draw: int,
) -> Slope:
    """Sum the gradient of the pooled likelihood over the rows, eq. (3).

    `increments` are d/S_0 (T,) of all sites.
    """
    found = _pull_each(
        [site], theta=theta, increments=increments, shift=shift, times=times, together=together,
        plan=plan, draw=draw,
    )  # fmt: skip
    assert found is not None
    return found[0]


@gathered(alone=True)
def descend_alone(
    site: Site[SurvivalTable, None],
    *,
    theta: Array,
    times: Array,
    together: bool,
    plan: str,
    rounds: int,
    rate: float,
    lr_rule: str,
    keep: Array,
) -> Descended:
    """Train a model on the rows of this site alone, in all rounds, and return it.

    A round is `sum_risks`, eq. (2), and `pull`, eq. (3), with one pass through the network.
    """
    p = Plan.of(plan)
    rows = rows_of(site.data, p, site.entropy)
    risk = risk_sets(site, times, p, held_out=False, together=together)
    stack, descent, n = single(rows, p), Descent(p, theta), float(len(risk.dies))
    shift, step = 0.0, 0  # of `exact`, in `deepcox.program`

    def at_once(theta: Array) -> tuple[Array, float, Array]:
        assert stack is not None
        of = risk_stack(stack, [site], times, p, held_out=False, together=together)
        f = stack.outputs(theta)
        weights, far = weights_of(f, shift), f - shift
        s0 = of.s0(weights)[0]
        dead, total = np.add.reduce(of.dies * far, axis=1), np.add.reduce(of.real * far, axis=1)
        slopes = of.slopes(weights, ratio(risk.deaths, s0))
        return s0, float(dead[0] + 0.0 * total[0]), stack.pulled(theta, slopes)[0]

    def by_itself(theta: Array) -> tuple[Array, float, Array]:
        s0, dead = np.zeros(1), math.nan

        def slope(outputs: Array) -> tuple[float, Array]:
            nonlocal s0, dead
            f = np.asarray(outputs, float)
            weights = weights_of(f, shift)
            s0, dead = risk.s0(weights), float(risk.dies @ (f - shift)) + 0.0 * float(f.sum())
            return 0.0, risk.hazard(ratio(risk.deaths, s0)) * weights - risk.dies

        descent.net.load(theta)
        descent.net.pull(rows.x, slope, seed_of(site, step) if descent.net.draws else 0)
        return s0, dead, descent.net.gradient()

    def advance(theta: Array, rate: float) -> tuple[Array, float]:
        nonlocal shift, step
        s0, dead, gradient = (by_itself if stack is None else at_once)(theta)
        if not s0[0] > 0.0:
            return theta, math.nan
        shift, step = shift + math.log(float(s0[0] / n)), step + 1
        return descent.step(theta, gradient / n, mean_loss(risk.deaths, n, s0, dead), rate)

    return descended(asking(rounds, rate, lr_rule, keep), theta, advance)


def mean_loss(d: Array, rows: float, s0: Array, dead: float) -> float:
    """Return −ℓ/n, eq. (1), of n rows with deaths d (T,), with Σ_j δ_j (f_j − c)."""
    at = d > 0
    return float((d[at] @ np.log(s0[at]) - dead) / max(rows, 1.0))


def ratio(d: Array, s0: Array) -> Array:
    """Return d/S_0 (T,); 0 without deaths."""
    return np.divide(d, s0, out=np.zeros(len(d)), where=d > 0)
