"""What sites do in the training of a variational autoencoder.

Revealed, only as sums over all sites: `Entries` once, `Update` every round, and `HeldOut` every
round where there is a patience. With an aggregation that withstands sites which lie, `Visit` of
each site in the place of `Update`.

A row without a known entry teaches nothing, and does not count; of a site without any other, the
model that it replies is the one that it was sent, with weight 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Site, gathered, message, summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks.local import evaluate
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Update, Visit
from fedcohort.training.rows import known_rows


@message
class Entries:
    """Rows with a known entry (), known entries of each column (p,), and, of each column, sites
    with an infinite one (p,).
    """

    rows: Array
    known: Array
    infinite: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return what is wrong with one site's reply; see `protocol.updates`."""
        if self.known.shape != self.infinite.shape or self.known.ndim != 1:
            return "other shapes than a number for each column."
        if why := count_fault("known", self.known) or count_fault("infinite", self.infinite):
            return why
        return "more entries in a column than rows." * bool((self.known > self.rows).any())


@message
class HeldOut:
    """n_k, and n_k times −ELBO, of the rows held out."""

    some_rows = True

    rows: Array
    loss: Array


@summed
def count_entries(site: Site[Any, Any]) -> Entries:
    """Count rows and entries that are known."""
    x: Array = site.data.x
    known = ~np.isnan(x)
    rows = np.array(int(known.any(axis=1).sum()))
    entries, infinite = known.sum(axis=0), np.isinf(x).any(axis=0).astype(np.int64)
    return Entries(rows, np.asarray(entries), np.asarray(infinite))


@summed
def learn(site: Site[Any, Any], *, theta: Array, plan: str, rate: float) -> Update:
    """Train from the common model; reply only what a mean over sites needs."""
    p = Plan.of(plan)
    return Update.trained(theta, known_rows(site.data, p, site.entropy), p, rate, site.entropy)


@gathered
def learn_seen(site: Site[Any, Any], *, theta: Array, plan: str, rate: float) -> Visit:
    """Train as ever; reply the model itself, for an aggregation that sees each site's."""
    p = Plan.of(plan)
    return Visit.trained(theta, known_rows(site.data, p, site.entropy), p, rate, site.entropy)


@summed
def held_out_elbo(site: Site[Any, Any], *, theta: Array, plan: str) -> HeldOut:
    """Sum the loss of the rows held out.

    It is −ELBO by `models.vae.Posterior.points`, which draws nothing.
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy, held_out=True)
    n = len(rows.x)
    return HeldOut(np.array(n), np.array(n * evaluate(theta, rows, p)))


STEPS = (count_entries, learn, learn_seen, held_out_elbo)
