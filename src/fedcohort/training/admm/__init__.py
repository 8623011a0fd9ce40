"""Consensus ADMM over sites for squared, logistic and hinge loss, with ℓ1 and ℓ2 penalties."""

from fedcohort.training.admm.program import Solution, consensus
from fedcohort.training.admm.settings import AdmmSettings, Penalty
from fedcohort.training.admm.steps import STEPS

__all__ = ["STEPS", "AdmmSettings", "Penalty", "Solution", "consensus"]
