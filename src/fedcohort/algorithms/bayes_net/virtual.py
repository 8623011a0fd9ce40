"""Weights that all sites share, and weights of each site's own: the strategy `virtual`.

Corinzia, Beuret, Buhmann, "Variational federated multi-task learning" (VIRTUAL), arXiv:1906.06268;
GenoMed4All D6.2, section 4.3.2. The weights of site k are (θ, φ_k), and the posterior is

    q(θ) Π_k c_k(φ_k),   q(θ) ∝ p(θ) Π_k t_k(θ)                                            (1)

with q by partitioned variational inference as in `program`, eqs. (1) and (2), and a posterior c_k
of the site's own weights φ_k. In a visit a site maximises over both at once

    E[ln p(D_k | θ, φ_k)] − KL(q_k(θ) ‖ q/t_k) − KL(c_k(φ_k) ‖ p(φ_k))                     (2)

takes c_k as it is, and sends the damped change of q alone. φ are the biases, the last layer, or
none: D6.2's figures are of none.

A site's own model is its q_k c_k after one more visit from the last q; at a fixed point q_k is q.
The coordinator's model has q(θ), and for φ their prior: the prediction for a new hospital. With a
last layer of the prior it would predict by chance, so it predicts nothing.

Revealed: each round `Change` of the shared weights, as a sum over the round's sites; once, if sites
keep their models, `Finished`, how many sites have rows, and their losses, as sums. c_k stays in the
site's state, as does the finished model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.bayes_net.model import BayesNetModel
from fedcohort.algorithms.bayes_net.steps import (
    Change,
    checked,
    damped,
    places_of,
    posterior_at_start,
    told,
    trained,
)
from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.protocol import Keep, Refused, Site, message, summed
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.variational import Natural, Prior
from fedcohort.training.personal import last_layer
from fedcohort.training.personal.steps import Finished

#: Weights of which each site has its own.
PRIVATE = ("last", "biases", "none")


@message(parameters=["theta", "model"])
class Hospital:
    """What a site keeps of its factor, and of its own weights.

    Attributes
    ----------
    precision, shift : λ and η of t_k (S,), of the shared weights.
    own : which weights are the site's own, bool (W,).
    theta : (P,), parameters of q_k c_k after the site's last visit.
    model : (P,), those of the finished model; empty before.
    """

    precision: Array
    shift: Array
    own: Array
    theta: Array
    model: Array = field(default_factory=lambda: np.zeros(0))


OwnSite = Site[Any, Hospital | None]


@lru_cache(maxsize=16)
def own_weights(spec: str, private: str) -> Array:
    """Return which of a network's weights are each site's own, bool (W,).

    Parameters
    ----------
    private : in `PRIVATE`.
    """
    at, start = places_of(spec), 0
    ranges = list(last_layer(spec)) if private == "last" else []
    for name, p in network(spec).module.named_parameters():
        if private == "biases" and name.endswith("layer.bias"):
            ranges.append((start, start + p.numel()))
        start += p.numel()
    held = np.zeros(start, bool)
    for first, end in ranges:
        held[first:end] = True
    return held[at.mean]


def shared_of(q: Natural, own: Array) -> Natural:
    """Return the part of a posterior (W,) that all sites share (S,); `own` as of `own_weights`."""
    return Natural(q.precision[~own], q.shift[~own])


def joined(shared: Natural, whole: Natural, own: Array) -> Natural:
    """Return `whole` (W,) with its shared part replaced (S,)."""
    precision, shift = whole.precision.copy(), whole.shift.copy()
    precision[~own], shift[~own] = shared.precision, shared.shift
    return Natural(precision, shift)


@summed
def refine_shared(
    site: OwnSite, *, precision: Array, shift: Array, plan: str, rate: float, prior: str,
    seed: int, parts: int, sites: int, damping: float, private: str,
) -> Keep[Change, Hospital]:  # fmt: skip
    """Improve the site's own weights, which stay, and its factor of the shared weights' posterior.

    Returns by how much the posterior of the shared weights (S,) changes. `private`: which weights
    are the site's own. Other arguments as of `refine`.
    """
    q, factor, best, n, loss = _visited(
        site, precision, shift, plan, rate, prior, seed, sites, private
    )
    own, at = own_weights(Plan.of(plan).network, private), places_of(Plan.of(plan).network)
    change = damped(site, shared_of(best, own), q, parts, damping)
    now = factor.plus(change)
    return Keep(told(change, n, loss), Hospital(now.precision, now.shift, own, best.into(at)))


@summed
def keep_own(
    site: OwnSite, *, precision: Array, shift: Array, plan: str, rate: float, prior: str,
    seed: int, sites: int, private: str, ends: Array, samples: int, level: float,
) -> Keep[Finished, Hospital]:  # fmt: skip
    """Finish the site's own model beside the posterior of the shared weights, and keep it.

    Arguments as of `refine_shared`, and what the model predicts with: the ends of intervals of
    survival, the number of samples, the probability of intervals.
    """
    _, factor, best, n, loss = _visited(
        site, precision, shift, plan, rate, prior, seed, sites, private
    )
    spec = Plan.of(plan).network
    theta, own = best.into(places_of(spec)), own_weights(spec, private)
    reply = Finished(*map(np.array, (int(n > 0), float(n), n * loss, 0.0)))
    return Keep(reply, Hospital(factor.precision, factor.shift, own, theta, theta))


def _visited(
    site: OwnSite, precision: Array, shift: Array, plan: str, rate: float, prior: str, seed: int,
    sites: int, private: str,
) -> tuple[Natural, Natural, Natural, int, float]:  # fmt: skip
    """Return q (S,), the site's factor (S,), its q_k c_k (W,) by eq. (2), n, and the mean loss."""
    if private not in PRIVATE:
        raise Refused("posterior", f"site {site.name!r} knows no weights of its own by that name.")
    spec = Plan.of(plan).network
    at, own = places_of(spec), own_weights(spec, private)
    q = checked(site, precision, shift, int(np.sum(~own)))
    base = Prior.of(prior).natural(len(own))
    if site.state is None:
        whole = posterior_at_start(spec, seed)
        factor = shared_of(whole.less(base), own).times(1.0 / sites)
    else:
        factor = Natural(site.state.precision, site.state.shift)
        if not np.array_equal(site.state.own, own):
            raise Refused(
                "posterior", f"site {site.name!r} keeps other weights than those of the question."
            )
        whole = Natural.of(site.state.theta, at)
    cavity = joined(q.less(factor), base, own)
    best, n, loss = trained(site, joined(q, whole, own), cavity, plan, rate, prior, 1.0 / sites)
    return q, factor, best, n, loss


def own_model(
    site: str, design: Any, asked: Mapping[str, Any], left: Mapping[str, Array]
) -> BayesNetModel | None:
    """Return the model that a step has finished at a site (`Method.own_model`)."""
    if not len(left.get("model", ())):
        return None
    plan = Plan.of(asked["plan"])
    model, *numbers = plan.loss.split(" ")
    centre, scale = {1: (0.0, *numbers), 2: numbers}.get(len(numbers), (0.0, 1.0))
    several = model == "softmax"
    return BayesNetModel(
        features=design.features,
        levels=design.classes if model in ("logistic", "softmax") else (),
        model=model,
        network=plan.network,
        thetas=left["model"][None],
        weights=np.ones(1),
        centre=float(centre),
        scale=1.0 if several else float(scale),
        times=asked["ends"],
        rounds=0,
        samples=asked["samples"],
        seed=asked["seed"],
        level=asked["level"],
    )


STEPS = (refine_shared, keep_own)
