"""Sums over risk sets of a network's log risk, and the baseline hazard from them.

With f = Σ_m w_m f_m the log risk of each row, on a common grid of times (`data.timegrid`),

    S_0(t) = Σ_{j: t_j ≥ t} e^{f_j − c}                                                      (1)
    H_0(t) = Σ_{t_k ≤ t} d(t_k)/S_0(t_k)                 Breslow's, over all sites' rows     (2)

so that P(T > t | x) = exp(−H_0(t) e^f). In an interval of the protected grid all rows that leave it
are at risk, and (2) is the mean over the possible orders of leaving. A personal model's baseline is
over all sites' rows, at the personal model's log risks.

Revealed: `Deaths` by grid time, and `RiskSums`, only as sums over all sites that answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable, remembered
from fedcohort.data.timegrid import Intervals
from fedcohort.models.loss_stacks import RiskStack
from fedcohort.models.losses import RiskSets, weights_of
from fedcohort.models.network import network
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import Federation, NotConverged, Site, message, summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks.plan import Plan, holds_out
from fedcohort.training.networks.stacks import Stack, Stacks
from fedcohort.training.rows import chosen, rows_of

#: What leaves a site for a baseline hazard.
REVEALS = (
    "For the baseline hazard of a Cox model, histograms of the times of death, and deaths and risk "
    "sets on a time grid, as sums over sites."
)
#: Weights of a single network.
ONE = np.ones(1)
#: Largest mean log risk: beyond it, e^f overflows.
LARGEST = 500.0


@message
class Deaths:
    """Deaths d (T,) and rows ``leaving`` (T,) at each grid time, and the number of rows."""

    some_rows = staticmethod(holds_out)

    d: Array
    leaving: Array
    rows: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if {self.d.shape, self.leaving.shape} != {asked["times"].shape} or self.rows.shape:
            return "arrays of another shape than the time grid."
        if fault := count_fault("d", self.d) or count_fault("leaving", self.leaving):
            return fault
        if (self.d > self.leaving).any():
            return "more deaths than records that leave."
        return "more deaths than rows." * bool(self.leaving.sum() > self.rows)


@message
class RiskSums:
    """S_0 (T,), eq. (1), Σ_j δ_j (f_j − c) and Σ_j (f_j − c)."""

    s0: Array
    dead: Array
    total: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.s0.shape != asked["times"].shape or self.dead.shape or self.total.shape:
            return "arrays of another shape than the time grid."
        grows = (self.s0[1:] - self.s0[:-1] > 1e-9 * self.s0[:1]).any()
        return "risk sets that grow with time, or are below 0." * bool(grows or (self.s0 < 0).any())


# site ---------------------------------------------------------------------------------


@summed
def count_deaths(
    site: Site[SurvivalTable, None], *, times: Array, together: bool, plan: str, held_out: bool
) -> Deaths:
    """Count the deaths at each grid time, among the training rows or the held-out rows."""
    risk = risk_sets(site, times, Plan.of(plan), held_out, together=together)
    return Deaths(risk.deaths, risk.leaving, np.array(float(len(risk.dies))))


def _risks_each(
    sites: Sequence[Site[SurvivalTable, None]],
    *,
    thetas: Array,
    weights: Array,
    shift: float,
    times: Array,
    together: bool,
    plan: str,
    held_out: bool,
    draw: int,
) -> list[RiskSums] | None:
    """Return `sum_risks` of several sites; None: no two of them fit a stack."""
    p = Plan.of(plan)
    on: dict[str, Any] = {"times": times, "plan": p, "held_out": held_out, "together": together}
    tables = [rows_of(s.data, p, s.entropy, held_out) for s in sites]
    stacks = Stacks.of(tables, p)
    if not stacks.gains:
        return None

    def at_once(places: list[int], stack: Stack) -> Iterable[RiskSums]:
        risk = risk_stack(stack, [sites[k] for k in places], **on)
        f = np.zeros_like(risk.dies)
        for theta, weight in zip(thetas, weights, strict=True):
            f += weight * stack.outputs(theta)
        s0 = risk.s0(weights_of(f, shift))
        f -= shift
        dead, total = np.add.reduce(risk.dies * f, axis=1), np.add.reduce(risk.real * f, axis=1)
        return (RiskSums(*map(np.asarray, one)) for one in zip(s0, dead, total, strict=True))

    def by_itself(k: int) -> RiskSums:
        site, x, net = sites[k], tables[k].x, network(p.network, p.dtype, p.device)
        risk = risk_sets(site, **on)
        f = np.zeros(len(x))
        for theta, weight in zip(thetas, weights, strict=True):
            net.load(theta)
            f += weight * (net.outputs(x) if draw < 0 else net.sampled(x, seed_of(site, draw)))
        s0 = risk.s0(weights_of(f, shift))
        f -= shift
        return RiskSums(s0, np.array(risk.dies @ f), np.array(f.sum()))

    return stacks.over(at_once, by_itself)


@summed(many=_risks_each)
def sum_risks(
    site: Site[SurvivalTable, None],
    *,
    thetas: Array,
    weights: Array,
    shift: float,
    times: Array,
    together: bool,
    plan: str,
    held_out: bool,
    draw: int,
) -> RiskSums:
    """Sum the predicted hazards of all rows at risk at each grid time, eq. (1).

    f = Σ_m weights_m f_m, with thetas (M, P). A `draw` ≥ 0 drops the same hidden units as in
    `pull`; below 0 there is no dropout.
    """
    found = _risks_each(
        [site], thetas=thetas, weights=weights, shift=shift, times=times, together=together,
        plan=plan, held_out=held_out, draw=draw,
    )  # fmt: skip
    assert found is not None
    return found[0]


def risk_stack(
    stack: Stack, sites: Sequence[Site[SurvivalTable, Any]], times: Array, plan: Plan,
    held_out: bool, *, together: bool,
) -> RiskStack:  # fmt: skip
    """Return the risk sets of the sites of a stack of training rows, or of held-out rows."""
    key = ("risk", times.tobytes(), together)
    if key not in stack.kept:
        each = [risk_sets(s, times, plan, held_out, together=together) for s in sites]
        stack.kept[key] = RiskStack(each, stack.orders, stack.x.shape[2])
    return stack.kept[key]


def risk_sets(
    site: Site[SurvivalTable, Any], times: Array, plan: Plan, held_out: bool, *, together: bool
) -> RiskSets:
    """Return the risk sets of the training rows, or of the held-out rows, on the grid."""
    key = ("risk", times.tobytes(), together, plan.validation_fraction, held_out, site.entropy[:2])

    def make() -> RiskSets:
        time, event = site.data.time, site.data.event
        rows = chosen(len(time), plan.validation_fraction, site.entropy)[held_out]
        return RiskSets(time[rows], event[rows], times, together=together)

    return remembered(site.data, key, make)


def seed_of(site: Site[SurvivalTable, None], draw: int) -> int:
    """Return a seed that is the same for both sums of one step."""
    return int(np.random.SeedSequence((*site.entropy[:2], draw)).generate_state(1)[0])


# coordinator --------------------------------------------------------------------------


class Pool:
    """Sites of the sums over risk sets, with their deaths; both sums must be over the same sites.

    If a site's reply was refused, the site leaves the pool and the deaths are counted anew.

    Attributes
    ----------
    fed : the sites that are left.
    events : their deaths.
    asked : arguments of both steps.
    """

    def __init__(self, fed: Federation, grid: Intervals, plan: str, *, held_out: bool):
        self._all = fed
        self.asked: dict[str, Any] = {
            "times": grid.times, "together": grid.together, "plan": plan, "held_out": held_out
        }  # fmt: skip
        self.fed, self.events = self._counted(fed.awaiting(len(fed.sites)))

    def _counted(self, fed: Federation) -> tuple[Federation, Deaths]:
        events = fed.sum(count_deaths, **self.asked)
        return fed.only(fed.answered).awaiting(), events

    def settled(self) -> bool:
        """Return whether the latest sum is over all sites of the pool; if not, count again.

        Raises
        ------
        SiteUnavailable : fewer sites than the quorum are left.
        """
        if not self.fed.refused:
            return True
        self._all.enough(self.fed.answered)
        self.fed, self.events = self._counted(self.fed.only(self.fed.answered))
        return False

    def risks(self, thetas: Array, weights: Array) -> tuple[Deaths, RiskSums]:
        """Return the deaths, and the risk sums of thetas (M, P) without dropout."""
        while True:
            risk = self.fed.sum(
                sum_risks, thetas=thetas, weights=weights, shift=0.0, draw=-1, **self.asked
            )
            if self.settled():
                return self.events, risk


def centred(
    pool: Pool, grid: Intervals, thetas: Array, weights: Array, least: int
) -> tuple[float, Baseline]:
    """Return the mean log risk c of all rows, and eq. (2) at f − c, with thetas (M, P).

    Intervals are joined until each holds `least` deaths.

    Raises
    ------
    NotConverged : |c| is beyond `LARGEST`.
    """
    events, risk = pool.risks(thetas, weights)
    centre = float(risk.total / events.rows)
    if not abs(centre) < LARGEST:
        raise NotConverged(
            f"the network's log risks are beyond {LARGEST:g}, and no baseline hazard can be "
            f"computed. Lower the learning rate, or choose an aggregation that withstands "
            f"sites that lie."
        )
    steps = grid.hazard(events.d, events.leaving, risk.s0 * math.exp(-centre))
    return centre, grid.baseline(steps, events.d, least)


def baseline(
    fed: Federation, plan: Plan, grid: Intervals, stages: Mapping[int, Array], least: int
) -> dict[int, Baseline]:
    """Return eq. (2) of each model θ (P,) in `stages`, by its number of rounds.

    Intervals are joined until each holds `least` deaths.

    Raises
    ------
    NotConverged : e^f is too large for a number.
    SiteUnavailable : a site left between two sums.
    """
    pool = Pool(fed, grid, plan.text, held_out=False)
    found: dict[int, Baseline] = {}
    for rounds, theta in stages.items():
        events, risk = pool.risks(plan.sent(theta)[None], ONE)
        if not abs(float(risk.total)) < LARGEST * float(np.maximum(events.rows, 1.0)):
            raise NotConverged(
                f"the mean log risk is beyond {LARGEST:g}, so there is no baseline hazard. Lower "
                f"the learning rate."
            )
        steps = grid.hazard(events.d, events.leaving, risk.s0)
        found[rounds] = grid.baseline(steps, events.d, least)
    return found


STEPS = (count_deaths, sum_risks)
