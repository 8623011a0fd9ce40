"""Fitted survival variational autoencoder: one, or a weighted mean of several."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.models.savae import SavaeNet
from fedcohort.protocol import NotSupported
from fedcohort.training.networks.collapse import caution
from fedcohort.training.networks.fits import StagedModel

#: Least survival of which a logarithm is taken; numbers computed at once.
LEAST, AT_ONCE = 1e-300, 4_000_000
#: Domain of the seed of draws.
TAG = 0x73617661


@dataclass(frozen=True, kw_only=True, eq=False)
class SavaeModel(StagedModel):
    """P(T > t | x) = Σ_m w_m E_q S_m(t|z), with z from the posterior q_m(z|x) of each network.

    E_q is the mean over `samples` draws z = μ + τε by `seed`, with the same ε for all rows and in
    each call, and −ε for each ε.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    network : spec of the networks.
    thetas : (M, P) their parameters; M is the number of sites for an ensemble, otherwise 1.
    weights : w (M,), with sum 1.
    unit : of the networks' times, in that of the outcome.
    edges : (J − 1,), of piecewise times, in units of `unit`; (0,) of Weibull times.
    times : (T,), times at which risk is summed, up to the last at which survival is known.
    passes : iterations of `impute`.
    rounds, kept : see `StagedModel`.
    kl : (q,), mean divergence of each latent dimension from the prior, in nats; None if it was not
        recorded.
    """

    features: tuple[str, ...]
    network: str
    thetas: Array
    weights: Array
    unit: float
    edges: Array
    times: Array
    samples: int
    seed: int
    dtype: str
    passes: int
    rounds: int
    kl: Array | None = None
    kept: Mapping[int, Array] = field(default_factory=dict[int, Array])

    # survival -------------------------------------------------------------------------

    def predict(self, x: Array) -> Array:
        """Return the cumulative hazard of each row of x (n, p), summed over `times`: (n,)."""
        return -np.log(np.maximum(self.predict_survival(x, self.times), LEAST)).sum(axis=1)

    def log_hazard(self, x: Array) -> Array:
        """Return the logarithm of `predict` (n,), a log hazard if hazards are proportional."""
        return np.log(np.maximum(self.predict(x), LEAST))

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) for each row of x (n, p) and each of `times` (m,): (n, m)."""
        parts = [w * found.mean(axis=0) for w, found in self._survival(x, times)]
        return np.add.reduce(parts)

    def survival_bands(self, x: Array, times: Array, level: float) -> Array:
        """Return the interval (n, m, 2) that holds P(T > t | z) with probability `level`.

        z is drawn from the posterior of each row of x (n, p); `times` (m,).
        """
        ends = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
        return np.moveaxis(self._quantiles(self._survival(x, times), ends), 0, -1)

    def intervals(self, x: Array, level: float) -> Array:
        """Return the interval (n, 2) that holds the risk score given z with probability `level`."""
        ends = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
        logs = (
            (w, -np.log(np.maximum(found, LEAST)).sum(axis=2))
            for w, found in self._survival(x, self.times)
        )
        return self._quantiles(logs, ends).T

    def log_density(self, x: Array, y: Array, event: Array) -> Array:
        """Return ln p(t | x) of events, and ln P(T > t | x) of others, at times y (n,): (n,)."""
        time, seen = np.asarray(y, float) / self.unit, np.asarray(event, float)
        edges = torch.from_numpy(self.edges)
        total = np.zeros(len(x))
        for theta, w in zip(self.thetas, self.weights, strict=True):

            def part(net: SavaeNet, rows: Tensor) -> Tensor:
                z = net.draws(rows[:, :-2], self._noise(rows))
                time, event = rows[:, -2], rows[:, -1]
                logs = net.time.log_density(z, time, event, edges.to(rows))
                return logs.logsumexp(dim=0) - math.log(len(z))

            both = np.column_stack([np.asarray(x, float), time, seen])
            total += w * np.exp(self._of(theta, both, part, self.samples))
        return np.log(np.maximum(total, LEAST)) - seen * math.log(self.unit)

    def known_until(self, x: Array) -> Array:
        """Return the last time (n,) at which the survival of each row of x (n, p) is known."""
        return np.full(len(x), self.times[-1])

    def _survival(self, x: Array, times: Array) -> Iterator[tuple[float, Array]]:
        """Yield the weight of each network and S (L, n, m) at its draws of z."""
        until = np.minimum(np.asarray(times, float), self.times[-1]) / self.unit
        at, edges = torch.from_numpy(until), torch.from_numpy(self.edges)
        for theta, w in zip(self.thetas, self.weights, strict=True):

            def part(net: SavaeNet, rows: Tensor) -> Tensor:
                z = net.draws(rows, self._noise(rows))
                found = net.time.survival(z, at.to(rows), edges.to(rows))
                return found.transpose(0, 1)

            found = self._of(theta, x, part, self.samples * max(len(until), 1))
            yield float(w), found.swapaxes(0, 1)

    def _quantiles(self, parts: Iterator[tuple[float, Array]], ends: list[float]) -> Array:
        """Return quantiles (2, …) over the draws of all networks."""
        found = list(parts)
        values = np.concatenate([value for _, value in found])
        weights = np.repeat([w for w, _ in found], len(found[0][1]))
        return np.quantile(values, ends, axis=0, weights=weights, method="inverted_cdf")

    def _noise(self, like: Tensor) -> Tensor:
        half = (self.samples + 1) // 2
        q = json.loads(self.network)["latent"]
        draws = np.random.default_rng((self.seed, TAG)).standard_normal((half, q))
        return torch.from_numpy(np.concatenate([draws, -draws])[: self.samples]).to(like)

    # latent variables -----------------------------------------------------------------

    def transform(self, x: Array) -> Array:
        """Return the mean of z (n, q) given the known entries of each row of x (n, p)."""
        return self._of(self._one("latent coordinates"), x, lambda net, rows: net.latent(rows))

    def reconstruct(self, x: Array) -> Array:
        """Return E[x|z] (n, p) at that mean of z, of levels their probability."""
        theta = self._one("a reconstruction")
        return self._of(theta, x, lambda net, rows: net.decode(net.latent(rows)))

    def impute(self, x: Array) -> Array:
        """Return x (n, p) with missing entries filled, by `passes` of `LatentNet.impute`."""
        x, passes = np.asarray(x, float), self.passes
        theta = self._one("filled entries")
        found = self._of(theta, x, lambda net, rows: net.impute(rows, passes))
        return np.where(np.isnan(x), found, x)

    def impute_drawn(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with missing entries drawn given the known ones."""
        x, passes, seed = np.asarray(x, float), self.passes, int(rng.integers(2**31))
        theta = self._one("filled entries")
        found = self._of(theta, x, lambda net, rows: net.impute_drawn(rows, passes, seed))
        return np.where(np.isnan(x), found, x)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n synthetic rows (n, p): z from the prior, and x from p(x|z)."""
        return self.sample_outcome(n, rng)[0]

    def sample_outcome(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return n synthetic rows x (n, p), and their times and events (n, 2).

        The time is the smallest of a time from p(t|z), a time of censoring, and the last one at
        which survival is known.
        """
        z = rng.standard_normal((n, json.loads(self.network)["latent"]))
        of = rng.choice(len(self.thetas), n, p=self.weights)
        u = torch.from_numpy(rng.random((2, n)))
        seed = int(rng.integers(2**31))
        x, drawn = np.empty((n, len(self.features))), np.empty((n, 2))
        edges = torch.from_numpy(self.edges)
        for m, theta in enumerate(self.thetas):
            at = np.flatnonzero(of == m)
            if not len(at):
                continue
            there = u[:, torch.from_numpy(at)]
            x[at] = self._of(theta, z[at], lambda net, points: net.draw(points, seed), None)
            drawn[at] = self._of(
                theta,
                z[at],
                lambda net, points, there=there: net.time.times(points, there, edges.to(points)),
                None,
            )
        died, left = drawn.T * self.unit
        left = np.minimum(left, self.times[-1])
        return x, np.column_stack([np.minimum(died, left), died <= left])

    def _one(self, what: str) -> Array:
        """Return θ (P,) of the only network."""
        if len(self.thetas) > 1:
            raise NotSupported(
                f"an ensemble of 'savae' has no {what}, as each of its models has latent variables "
                f"of its own. Take another strategy, such as fedavg."
            )
        return self.thetas[0]

    def _of(
        self,
        theta: Array,
        x: Array,
        of: Callable[[SavaeNet, Tensor], Tensor],
        width: int | None = 1,
    ) -> Array:
        """Return a function of a network and rows (n, …), computed in blocks.

        Parameters
        ----------
        width : numbers of one row's result that are in memory; None computes all rows at once.
        """
        net = network(self.network, self.dtype)
        net.load(theta)
        rows = torch.from_numpy(np.array(x, float)).to(net.theta)
        size = len(rows) if width is None else AT_ONCE // max(width, 64)
        blocks = rows.split(max(1, min(size, len(rows))))
        found = [
            net.compute(lambda module, part=part: of(cast("SavaeNet", module), part))
            for part in cast("tuple[Tensor, ...]", blocks)
        ]
        return np.concatenate(found).astype(np.float64)

    # saving ---------------------------------------------------------------------------

    def _stage(self, rounds: int) -> Self:
        return replace(self, thetas=self.kept[rounds], rounds=rounds, kept={}, kl=None)

    def cautions(self) -> tuple[str, ...]:
        """Return a caution if dimensions of z hold nothing."""
        return () if self.kl is None else caution(self.kl)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        names = ("thetas", "weights", "edges", "times")
        own: dict[str, Array] = {name: getattr(self, name) for name in names}
        own |= {} if self.kl is None else {"kl": self.kl}
        return own | {f"round{r}": thetas for r, thetas in self.kept.items()}

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        names = ("network", "unit", "samples", "seed", "dtype", "passes", "rounds")
        own = {name: getattr(self, name) for name in names}
        return own | {"features": list(self.features), "kept": sorted(self.kept)}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Build the model from saved arrays and values."""
        kept = {r: arrays[f"round{r}"] for r in meta["kept"]}
        own = {k: v for k, v in arrays.items() if not k.startswith("round")}
        given: dict[str, Any] = {**meta, **own, "kept": kept}
        given["features"] = tuple(meta["features"])
        return cls(**given)
