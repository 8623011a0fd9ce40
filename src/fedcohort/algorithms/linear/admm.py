"""Linear methods by consensus ADMM, without cross-products from a site."""

from __future__ import annotations

from fedcohort.algorithms.linear.model import LinearModel
from fedcohort.algorithms.linear.settings import LinearSettings
from fedcohort.data.exact import exact_sums
from fedcohort.protocol import Federation, Task
from fedcohort.training.admm import Penalty, consensus


def by_admm(
    fed: Federation, config: LinearSettings, task: Task, l1: float, l2: float
) -> LinearModel:
    """Fit (1/n) Σ (y − b₀ − xᵀβ)² + l1 ‖β‖₁ + l2/2 ‖β‖².

    Raises
    ------
    NothingToLearn : a column singles out records (`data.exact`).
    FedcohortError : as `training.admm.consensus`.
    """
    sites = exact_sums(fed, task, "number")
    penalty = Penalty(l1=l1, l2=l2, intercept=config.penalise_intercept)
    found = consensus(sites.fed, "squared", penalty, config, task)
    return LinearModel(
        features=task.features,
        intercept=float(found.intercept),
        coefficients=found.coefficients,
        rows=int(found.rows),
        objective=float(found.objective),
        iterations=int(found.rounds),
    )
