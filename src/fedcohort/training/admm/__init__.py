"""Consensus ADMM over sites for squared, logistic and hinge loss, with ℓ1 and ℓ2 penalties."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.protocol.step import Step
from fedcohort.training.admm.program import Loss, Solution, consensus
from fedcohort.training.admm.settings import AdmmSettings, Penalty
from fedcohort.training.admm.steps import STEPS, admm_round, admm_spread, admm_totals

__all__ = ["STEPS", "AdmmSettings", "Penalty", "Solution", "asks", "bounds", "consensus"]


def asks() -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit without a smoothed start."""
    return (admm_totals, admm_spread, admm_round)


def bounds(config: AdmmSettings, loss: Loss) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return {
        "loss": (loss,),
        "admm_totals.classes": (loss != "squared",),
        "by_site": (config.weighting == "sites",),
        "fresh": (False, True),
        "keep": range(1, config.acceleration + 2),
    }
