"""Joint design of the prior: what sites tell of their pseudo-inputs, and a round with a prior.

GenoMed4All D6.2, section 6.5.1, eqs. 6.18 to 6.26; the mathematics is that of `models.prior`. A
round at the common model θ:

1. Each site encodes its K pseudo-inputs α_m by θ. That gives a mixture p_m of K Gaussians.
2. The coordinator makes the common prior p of these: a mixture of experts, or a product.
3. Each site maximises its ELBO over θ_m and α_m. Its own part of p is p_m at the θ_m and α_m of
   the step; the other parts are held. θ is the mean of θ_m by rows.

α_m begin as normal noise from the study's seed, never as rows, and stay at their site. Given the
common encoder, the mixture is all that they say of the latent space: sending them would give the
same prior, and reveal points in the units of the columns besides.

D6.2 says of this design (6.5): "we have not found satisfactory performance".

Why the mixture of experts is a gather. A masked sum could carry it, if each site wrote to places of
its own in one long vector. But the coordinator tells which places are whose, so it would read each
site's mixture as well; and the common prior, which each site trains with, holds all components in
any case. Of two sites, each knows the other's. The product needs sums alone.

Not excluded: a component that lies on the posterior of one patient, where K is not much smaller
than the site's rows.

Revealed, each round and at the end: `PriorPart` of each site (experts), or `PriorMoments` only as
a sum over sites (product).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from fedcohort.algorithms.autoencoders.steps import rows_with
from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.models.prior import WIDEST, divided, experts, matched, product, without
from fedcohort.models.vae import VaeNet, with_pseudo
from fedcohort.protocol import Federation, Keep, Refused, Site, gathered, message, summed
from fedcohort.training.networks.collapse import Divergences, divergences
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Update
from fedcohort.training.rows import known_rows

_TAG = 0x70736575

REVEALS_EXPERTS = (
    "with prior: vamp, each round and at the end, the means and variances of every site's "
    "mixture in the latent space, and its rows, which the coordinator sees and all sites get"
)
REVEALS_PRODUCT = (
    "with prior: vamp and combine_priors: product, each round and at the end, the precision of "
    "the sites' mixtures in the latent space, and precision times mean, as sums over sites"
)


@message
class PseudoPoints:
    """α (K, p) of a site, which stay there."""

    points: Array


@message
class PriorPart:
    """n_m, and μ (K, q) and ln v (K, q) of a site's mixture, whose weights are equal."""

    rows: Array
    means: Array
    log_variances: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        held = (self.means, self.log_variances)
        if self.means.ndim != 2 or self.means.shape != self.log_variances.shape:
            return "a mixture whose means and variances have other shapes."
        if len(self.means) != asked["pseudo"] or not all(np.isfinite(a).all() for a in held):
            return "a mixture with another number of components, or that is not finite."
        if (np.abs(self.log_variances) > WIDEST).any():
            return "a variance that no encoder gives."
        return ""


@message
class PriorMoments:
    """n_m, n_m/v_m (q,) and n_m μ_m/v_m (q,) of the mean and variance of a site's mixture."""

    rows: Array
    precision: Array
    pull: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.precision.ndim != 1 or self.precision.shape != self.pull.shape:
            return "a precision and a mean of other shapes."
        if not (np.isfinite(self.precision).all() and np.isfinite(self.pull).all()):
            return "a precision or a mean that is not finite."
        if (self.precision < 0).any() or (self.rows > 0 and not self.precision.all()):
            return "a precision that is not above 0."
        return ""


@gathered
def tell_prior(
    site: Site[Any, PseudoPoints | None], *, theta: Array, plan: str, pseudo: int
) -> PriorPart:
    """Tell the mixture of normal distributions that stands for the site's latent points."""
    rows, means, logs = _mixture(site, theta, Plan.of(plan), pseudo)
    return PriorPart(np.array(rows), means, logs)


@summed
def sum_priors(
    site: Site[Any, PseudoPoints | None], *, theta: Array, plan: str, pseudo: int
) -> PriorMoments:
    """Sum precision, and precision times mean, of the sites' mixtures of latent points."""
    rows, means, logs = _mixture(site, theta, Plan.of(plan), pseudo)
    mean, variance = matched(means, logs)
    return PriorMoments(np.array(rows), rows / variance, rows * mean / variance)


@summed
def learn_with_prior(
    site: Site[Any, PseudoPoints | None], *, theta: Array, plan: str, rate: float, prior: Array,
    pseudo: int, per_row: float, share: float = 1.0,
) -> Keep[Update, PseudoPoints]:  # fmt: skip
    """Train from the common model with the common prior; return the site's part of the mean.

    Parameters
    ----------
    prior : (C, 1 + 2q), eq. (4) or (5) of `models.prior` at θ. In (4) the site finds its own
        components by their values; of (5) it takes it that its part is in it.
    per_row : 1/n of eq. (5), or 0 for eq. (4).
    """
    _check(prior)
    p = Plan.of(plan)
    rows = rows_with(site, p, share)
    points = _points(site, rows.x.shape[1], pseudo)
    if not len(rows.x):
        return Keep(Update.trained(theta, rows, p, rate, site.entropy), PseudoPoints(points))
    _, means, logs = _mixture(site, theta, p, pseudo)
    if per_row:
        common = divided(prior, per_row * len(rows.x), means, logs)
    else:
        common = without(prior, means, logs)
    rows = replace(rows, loss=replace(cast("Any", rows.loss), prior=common))
    start = np.concatenate([np.asarray(theta, float), points.ravel()])
    here = replace(p, network=with_pseudo(p.network, pseudo))
    found = Update.trained(start, rows, here, rate, site.entropy)
    size, n = len(theta), float(found.rows)
    points = (found.theta[size:] / n).reshape(points.shape)
    return Keep(replace(found, theta=found.theta[:size].copy()), PseudoPoints(points))


@summed
def joint_divergences(
    site: Site[Any, Any], *, theta: Array, plan: str, prior: Array
) -> Divergences:
    """Sum the divergence of each latent dimension from the common prior over the training rows."""
    _check(prior)
    return divergences(site, theta, plan, prior)


def _check(prior: Array) -> None:
    """Refuse what no encoder gives.

    Raises
    ------
    Refused : "beyond"; an entry is not finite, a weight is not above 0, or |ln v| is too large.
    """
    width = prior.shape[1] // 2 if prior.ndim == 2 else 0
    sound = width and prior.shape[1] % 2 and len(prior) and np.isfinite(prior).all()
    if not sound or prior[:, 0].min() <= 0 or np.abs(prior[:, 1 + width :]).max() > WIDEST:
        raise Refused("beyond", "the coordinator sends a prior that no encoder gives.")


def _points(site: Site[Any, PseudoPoints | None], inputs: int, pseudo: int) -> Array:
    """Return α (K, p): those of the last visit, or noise."""
    if site.state is not None:
        return site.state.points
    return np.random.default_rng((*site.entropy[:2], _TAG)).standard_normal((pseudo, inputs))


def _mixture(
    site: Site[Any, PseudoPoints | None], theta: Array, plan: Plan, pseudo: int
) -> tuple[int, Array, Array]:
    """Return n_m, and μ (K, q) and ln v (K, q) of the site's mixture at θ (P,)."""
    rows = known_rows(site.data, plan, site.entropy)
    points = torch.from_numpy(_points(site, rows.x.shape[1], pseudo)).to(rows.x)
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)

    def encoded(module: torch.nn.Module) -> torch.Tensor:
        _, means, logs = cast("VaeNet", module).of_pseudo(points)
        return torch.cat([means, logs], dim=1)

    means, logs = np.split(net.compute(encoded).astype(float), 2, axis=1)
    return len(rows.x), means, logs


STEPS = (tell_prior, sum_priors, learn_with_prior, joint_divergences)


class Asked(NamedTuple):
    """A common prior: (C, 1 + 2q); the site of each component (C,), or ("",) of a product; rows of
    a product.
    """

    prior: Array
    owners: tuple[str, ...]
    rows: float


@dataclass
class JointPrior:
    """The common prior of a federation, asked for at a model.

    Attributes
    ----------
    pseudo : K of each site.
    combine : one of `COMBINED`.
    """

    fed: Federation
    plan: Plan
    pseudo: int
    combine: str
    _last: tuple[bytes, Asked] | None = field(default=None, init=False, repr=False)

    def ask(self, theta: Array) -> Asked:
        """Return the prior at θ (P,). Of the same θ twice in turn the sites are asked once."""
        sent = self.plan.sent(theta)
        key = np.asarray(sent).tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._asked(sent)
        return self._last[1]

    def given(self, theta: Array) -> Mapping[str, Array]:
        """Return the prior (C, 1 + 2q) at θ (P,), by its name."""
        return {"prior": self.ask(theta).prior}

    def _asked(self, sent: Array) -> Asked:
        if self.combine == "product":
            total = self.fed.sum(sum_priors, theta=sent, plan=self.plan.text, pseudo=self.pseudo)
            n = float(total.rows)
            prior = product(n, total.precision, total.pull)
            return Asked(prior, ("",), n)
        told = self.fed.gather(tell_prior, theta=sent, plan=self.plan.text, pseudo=self.pseudo)
        parts = [*told.values()]
        prior = experts(
            [float(part.rows) for part in parts],
            [part.means for part in parts], [part.log_variances for part in parts],
        )  # fmt: skip
        names = [name for name, part in told.items() if part.rows for _ in range(self.pseudo)]
        return Asked(prior, tuple(names) or ("",), 0.0)

    def arguments(
        self, more: Callable[[Array], Mapping[str, Any]]
    ) -> Callable[[Array], Mapping[str, Any]]:
        """Return further arguments of a training step in each round, with those of `more`."""

        def given(theta: Array) -> Mapping[str, Any]:
            prior, _, rows = self.ask(theta)
            per_row = 1.0 / rows if rows else 0.0
            return {"prior": prior, "pseudo": self.pseudo, "per_row": per_row, **more(theta)}

        return given
