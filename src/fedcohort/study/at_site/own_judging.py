"""Metrics of each site's own blind rows, for clusters and latent variables, and their means.

A step gathers the metrics of one site's rows and whether each may be reported (`Told`). Their means
over reporting sites are given beside those of all rows; the lower bound has only these.

Revealed: what the step gathers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import SiteUnavailable
from fedcohort.protocol.errors import ReplyRejected
from fedcohort.protocol.step import Gathered
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.file.plan import Plan
from fedcohort.study.judge.summed.evaluation import Found, shown


class Told(Protocol):
    """Metrics ``values`` (k,) of one site, and whether each is ``told`` (k,)."""

    values: Array
    told: Array


def alone(
    fed: Coordinator, step: Gathered[..., Any], names: Sequence[str], plan: Plan
) -> tuple[dict[str, float], dict[str, tuple[float, float] | None]]:
    """Return the mean over sites of metrics of each site's own rows, and each site's first metric.

    Parameters
    ----------
    fed : sites with the step's view of a model, sent or their own.
    names : the step's metrics, the leading one first.

    Raises
    ------
    ReplyRejected : a site sends another number of metrics.
    """
    told: dict[str, Told] = fed.gather(step, min_cell=plan.min_cell)
    for site, own in told.items():
        if {np.shape(own.values), np.shape(own.told)} != {(len(names),)}:
            raise ReplyRejected(
                f"site {site!r} answered {step.name} in another form. Check that site and "
                f"coordinator run the same version of fedcohort."
            )
    within: dict[str, float] = {}
    for j, name in enumerate(names):
        values = [float(own.values[j]) for _, own in sorted(told.items()) if own.told[j]]
        if name in plan.metrics and values:
            within[name] = float(np.mean(values))
    return within, {
        site: (float(own.values[0]), math.nan) if own.told[0] else None
        for site, own in told.items()
    }


def judged_alone(
    fed: Coordinator, step: Gathered[..., Any], names: Sequence[str], plan: Plan
) -> Found:
    """Evaluate each site's own model there; the metrics are means over sites. See `alone`."""
    within, own = alone(fed, step, names, plan)
    all_there(fed)
    values = {m: within.get(m, math.nan) for m in plan.metrics}
    return Found(shown(values), shown(within), own, [])


def all_there(fed: Coordinator) -> None:
    """Check that no site left during the evaluation.

    Raises
    ------
    SiteUnavailable : a site left.
    """
    if late := sorted({s for call, s in fed.missing if call}):
        raise SiteUnavailable(
            f"{', '.join(late)} left during the evaluation of the blind rows; all metrics need the "
            f"same sites. Bring them back and --resume, or start again without them."
        )
