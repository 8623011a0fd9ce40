"""The posterior without some sites, from the factors of the others.

D6.2, section 4.2; Bui et al., arXiv:1811.11206: with q ∝ p Π_k t_k (eq. (1) of `program`), a site
X leaves by its factor:

    q₋X ∝ p Π_{k ≠ X} t_k = q / t_X                                                        (1)

That is one sum over the other sites; X is not asked. Then they refine their factors by some rounds
of eq. (2) of `program`, from (1). Where each factor is exact (a linear model with known noise,
whose columns are orthogonal), (1) is the posterior without X. Else each t_k was fitted while X's
knowledge stood in its cavity, and rounds take away the rest of X: after N rounds damped by ρ
a factor is a share (1 − ρ)^N the old one.

A fit of K sites gives each factor the K-th root of its start's quotient by the prior. X's root goes
with X, and the K − 1 others stay in (1) until rounds replace them. Of a mixture prior, of which
each factor holds the K-th root, (1) lacks X's root; each site adds its (K − 1)-th root in the
rounds.

q₋X may have precisions that are not above 0, because factors other than X's may have negative
ones. Where one is below a tenth of the prior's (of a mixture its wide part's), the weight returns
to the prior (or wide part), and all factors take an equal part of that correction, so that (1)
holds.

Preprocessing and the outcome's scale were made anew before, without X. The factors then are a
first guess in a slightly other unit.

Revealed: the sums before the first round, as of a fit; `Factors` once or twice, only as the product
over the others' factors. **From the old posterior and this product follows t_X.** Then what the
rounds reveal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.algorithms.bayes_net.model import BayesNetModel
from fedcohort.algorithms.bayes_net.program import Run, aim_of, finished, prior_of, surveyed
from fedcohort.algorithms.bayes_net.settings import BayesNetSettings
from fedcohort.algorithms.bayes_net.steps import LEFT, multiply_factors, places_of
from fedcohort.data.exact import check_covariates
from fedcohort.protocol import Federation, NotSupported, Task
from fedcohort.training.networks.variational import Natural, Prior


def forget(
    fed: Federation, config: BayesNetSettings, task: Task, model: BayesNetModel
) -> BayesNetModel:
    """Return the posterior of these sites after `config.rounds` rounds from eq. (1).

    Raises
    ------
    NotSupported : the strategy keeps no factors, or preprocessing without X gives other columns, so
        that the factors are of another network.
    DataError, NothingToLearn, SiteUnavailable : as in a fit.
    """
    if config.strategy not in ("pvi", "sequential"):
        raise NotSupported(f"strategy {config.strategy!r} of bayes_net keeps no factors of sites")
    check_covariates(task)
    aim = surveyed(fed, aim_of(task, config.head), task)
    plan = config.plan(len(task.features), aim.loss, aim.outputs)
    if (task.features, plan.network) != (model.features, model.network):
        raise NotSupported("without this site the network has other covariates or levels")
    prior = prior_of(config)
    start = without(fed, prior, plan.text, len(places_of(plan.network).mean))
    asked: dict[str, Any] = {
        "plan": plan.text, "rate": config.learning_rate, "prior": prior.text,
    }  # fmt: skip
    run = Run(fed, config, task, start, asked)
    q = run.in_turn() if config.strategy == "sequential" else run.at_once()
    refined = replace(
        model,
        thetas=q.into(places_of(plan.network))[None],
        centre=aim.centre,
        scale=aim.scale,
        times=aim.times,
        rounds=config.rounds,
        centres=np.zeros(0),
        caution="",
    )
    return finished(fed, refined, plan, aim, task)


def without(fed: Federation, prior: Prior, plan: str, size: int) -> Natural:
    """Return eq. (1) over the sites of `fed`, with all precisions (W,) above 0."""
    there, nothing = fed.awaiting(), np.zeros(size)
    told = there.sum(multiply_factors, precision=nothing, shift=nothing, plan=plan)
    q = prior.natural(size).plus(Natural(told.precision, told.shift))
    wide = prior.wide**-2.0
    bad = q.precision < LEFT * wide
    if not bad.any():
        return q
    part = Natural(np.where(bad, wide - q.precision, 0.0), np.where(bad, -q.shift, 0.0))
    part = part.times(1.0 / len(fed.sites))
    told = there.sum(multiply_factors, precision=part.precision, shift=part.shift, plan=plan)
    q = prior.natural(size).plus(Natural(told.precision, told.shift))
    return Natural(np.where(bad, wide, q.precision), np.where(bad, 0.0, q.shift))
