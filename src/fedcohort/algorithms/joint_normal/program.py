"""A multivariate normal distribution of columns with missing entries, from sums over sites.

Dempster, Laird, Rubin, JRSS B 39, 1977 (EM; equations in `numerics.gaussian`), and Schafer,
"Analysis of Incomplete Multivariate Data", 1997, section 5.4 (data augmentation). EM gives the
maximum of the likelihood of the known entries. From there M chains draw side by side

    I-step   x_m ~ N(E[x_m | x_o], Cov[x_m | x_o]) at (μ, Σ), of all rows, at the sites
    P-step   Σ ~ W⁻¹(n − 1, n S),   μ ~ N(x̄, Σ/n),  with x̄ and S of the completed rows      (1)

where W⁻¹ is the inverse Wishart distribution. The number of steps follows from EM's: if EM takes R
rounds for a factor of 10⁻⁶, then R/6 steps leave less than 1 % of the start in the variance.

Revealed, only as sums over all sites: `Isolation` once, `Rows` once; `Expected` in each round of
EM, p + p² numbers; `Completed` in each step, M (p + p²). Expectations at other parameters weigh the
patterns of missing entries differently, so many rounds reveal more than the final mean and
covariance: they can tell the row of a patient who alone has a pattern. `mice` guards against it.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.algorithms.joint_normal.model import JointNormalModel
from fedcohort.algorithms.joint_normal.settings import JointNormalSettings
from fedcohort.algorithms.joint_normal.steps import (
    completed_sums,
    count_rows,
    expected_features,
)
from fedcohort.arrays import Array
from fedcohort.data.imputing.disclosure import checked, heads_of
from fedcohort.data.imputing.normal import Normals
from fedcohort.data.prepare import Expected, Reached, maximised
from fedcohort.protocol import Federation, NothingToLearn, Task

#: EM's rounds for each step of a chain, and the fewest steps.
PER_STEP, FEWEST = 6, 5
#: Largest number of rounds and steps together.
MOST = 1_000
#: Added to S, in units of a feature's variance.
RIDGE = 1e-6


def fit(fed: Federation, config: JointNormalSettings, task: Task) -> JointNormalModel:
    """Fit the distribution on all sites that answer the first call.

    Raises
    ------
    NothingToLearn : fewer than `min_cell` rows, or no more rows than features.
    SiteUnavailable : a site left during the fit.
    """
    rounds = fed.rounds(MOST)
    next(rounds)
    there, _ = checked(fed, task)
    told = there.sum(count_rows)
    there, heads = there.only(there.answered).awaiting(), heads_of(task)
    n, p = int(told.records), len(task.features)
    if n < max(task.min_cell, p + 2):
        raise NothingToLearn(
            f"{n} rows at all sites together are too few for a normal distribution of {p} "
            f"features; {max(task.min_cell, p + 2)} would do. Use fewer columns, or 'mice'."
        )

    def ask(mean: Array, precision: Array) -> Expected:
        return there.sum(expected_features, mean=mean, precision=precision)

    end = Reached(np.zeros(p), np.eye(p), 0, math.inf)
    for end in maximised(ask, n, p):
        fed.record(change=end.change)
        next(rounds)
    rng, chains = task.rng, config.draws
    mean = np.tile(end.mean, (chains, 1))
    covariance = np.tile(end.covariance, (chains, 1, 1))
    for _ in range(max(FEWEST, math.ceil(end.rounds / PER_STEP)) if chains else 0):
        sums = there.sum(completed_sums, mean=mean, covariance=covariance)
        for m in range(chains):
            mean[m], covariance[m] = drawn(sums.total[m], sums.products[m], n, rng)
        fed.record(change=float(np.abs(mean.mean(axis=0) - end.mean).max()))
        next(rounds)
    return JointNormalModel(
        features=task.features,
        heads=heads,
        mean=end.mean,
        covariance=end.covariance,
        draws=Normals(heads, mean, covariance),
        rows=n,
        rounds=end.rounds,
    )


def drawn(total: Array, products: Array, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return a draw of μ (p,) and Σ (p, p), eq. (1), from Σ x (p,) and Σ x xᵀ (p, p)."""
    mean = total / n
    scatter = products - n * np.outer(mean, mean)
    scatter = (scatter + scatter.T) / 2 + np.diag(RIDGE * np.maximum(np.diag(scatter), RIDGE))
    p = len(mean)
    # Bartlett: if A Aᵀ ~ W(I, ν) and L Lᵀ = n S, then Σ = (L A⁻ᵀ)(L A⁻ᵀ)ᵀ ~ W⁻¹(n S, ν)
    a = np.tril(rng.standard_normal((p, p)), -1)
    a[np.diag_indices(p)] = np.sqrt(rng.chisquare(n - 1 - np.arange(p)))
    root = np.linalg.solve(a, np.linalg.cholesky(scatter).T).T
    return mean + root @ rng.standard_normal(p) / math.sqrt(n), root @ root.T
