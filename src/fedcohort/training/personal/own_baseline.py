"""Baseline hazard of each site's own Cox model, from the site's own rows.

Training on a site's own risk sets allows each site its own baseline. So the hazard of a model that
a site keeps is Breslow's over this site's rows at its model, on the time grid of all sites, where
intervals are joined until each has `min_cell` of the site's deaths. The federation's hazard would
need risk sets of every site at every other site's model. A site without deaths has none.

Revealed: the number of sites with a hazard, as a sum. The hazard stays at the site.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.data.timegrid import Intervals
from fedcohort.models.losses import weights_of
from fedcohort.models.network import network
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import Federation, Keep, Refused, Site, message, summed
from fedcohort.training.hazard import LARGEST, risk_sets
from fedcohort.training.networks.plan import Plan
from fedcohort.training.personal.visits import Own
from fedcohort.training.personal.ways import Way
from fedcohort.training.rows import rows_of


@message
class Curves:
    """Number of sites with a baseline hazard ()."""

    sites: Array

    def fault(self, asked: dict[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        fine = not self.sites.shape and self.sites in (0, 1)
        return "" if fine else "a number of sites other than 0 or 1."


@summed
def keep_baseline(
    site: Site[SurvivalTable, Own | None],
    *,
    times: Array,
    single: Array,
    known: float,
    plan: str,
    way: str,
    min_cell: int,
) -> Keep[Curves, Own]:
    """Keep the baseline hazard of the site's finished model beside it.

    `times`, `single` (T,) and `known` are those of `data.timegrid.Intervals`; `single` is empty for
    times of death.

    Raises
    ------
    Refused : the model is for one site alone, or not finished.
    """
    own, p = site.state, Plan.of(plan)
    if own is None or not len(own.model) or not Way.of(way).every:
        raise Refused("way", f"site {site.name!r} has no finished model of its own.")
    grid = Intervals(times, single if len(single) else None, known)
    risk = risk_sets(site, times, p, held_out=False, together=grid.together)
    net = network(p.network, p.dtype, p.device)
    net.load(own.model)
    f = np.asarray(net.outputs(rows_of(site.data, p, site.entropy).x), float)
    centre = float(f.mean()) if len(f) else 0.0
    if not risk.deaths.any() or not abs(centre) < LARGEST:
        return Keep(Curves(np.array(0)), replace(own, centre=np.array([centre])))
    steps = grid.hazard(risk.deaths, risk.leaving, risk.s0(weights_of(f, centre)))
    found = grid.baseline(steps, risk.deaths, min_cell)
    curve = np.stack([found.times, found.cumulative])
    return Keep(Curves(np.array(1)), replace(own, curve=curve, centre=np.array([centre])))


def keep_baselines(fed: Federation, plan: Plan, grid: Intervals, way: Way, min_cell: int) -> None:
    """Let each site keep the baseline hazard of its finished model; wait for all sites."""
    fed.awaiting().sum(
        keep_baseline,
        times=grid.times,
        single=np.zeros(0, bool) if grid.single is None else grid.single,
        known=grid.known,
        plan=plan.text,
        way=way.text,
        min_cell=min_cell,
    )


def baseline_kept(own: Own) -> Baseline | None:
    """Return the baseline hazard in a site's state, at f − centre; None without."""
    return Baseline(*own.curve) if own.curve.size else None


STEPS = (keep_baseline,)
