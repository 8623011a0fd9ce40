"""Small programs over sites, to test the protocol and the runtimes with.

* `mean_and_spread`: sums alone.
* `means`: what each site gathers.
* `lasso`: consensus ADMM (Boyd et al. 2011, section 8.2), whose sites remember x_k and u_k.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import (
    Federation,
    Fitted,
    Keep,
    Method,
    Settings,
    Site,
    Step,
    gathered,
    message,
    summed,
)
from fedcohort.protocol.host import Host


def hosts(tables: Mapping[str, Any], steps: Iterable[Step[..., Any]], seed: int = 0) -> list[Host]:
    """Return one host a table."""
    known = tuple(steps)
    return [Host(name, data, known, seed) for name, data in tables.items()]


# sums and replies ---------------------------------------------------------------------


@message
class Moments:
    """Σ (x − centre)^k over the rows, and their number."""

    total: Array
    rows: Array


@message
class Flags:
    """Which rows are positive."""

    positive: Array


@message
class Draw:
    """Numbers drawn at a site."""

    values: Array


@summed
def moments(site: Site[Array, None], *, centre: float, power: int) -> Moments:
    """Sum powers."""
    return Moments(((site.data - centre) ** power).sum(0), np.array(len(site.data)))


@gathered
def means(site: Site[Array, None]) -> Moments:
    """Reply the site's own mean."""
    return Moments(site.data.mean(0), np.array(len(site.data)))


@summed
def flags(site: Site[Array, None], *, rows: int) -> Flags:
    """Flag positive rows."""
    return Flags(site.data[:rows, 0] > 0)


@gathered
def draw(site: Site[Any, None]) -> Draw:
    """Draw from the site's generator."""
    return Draw(np.r_[site.rng.random(3), float(site.seed % 2**31)])


@gathered
def echo(site: Site[Any, None], *, value: Array) -> Draw:
    """Reply what was sent."""
    return Draw(value)


NUMBERS = (moments, means, flags, draw, echo)


def mean_and_spread(fed: Federation) -> dict[str, Array]:
    """Return mean and variance from two sums, the sites' means, and noise."""
    first = fed.sum(moments, centre=0.0, power=1)
    mean = float(first.total.sum() / (first.rows * first.total.size))
    fed.record(mean=mean)
    second = fed.sum(moments, centre=mean, power=2)
    own = fed.gather(means)
    noise = fed.gather(draw)
    return {
        "mean": np.array(mean),
        "variance": second.total / first.rows,
        **{f"mean of {s}": m.total for s, m in own.items()},
        **{f"noise of {s}": d.values for s, d in noise.items()},
    }


# a program whose sites remember -------------------------------------------------------


class Regression(NamedTuple):
    """Rows of a regression: x (n, p), y (n,)."""

    x: Array
    y: Array


@message
class Consensus:
    """x_k + u_k (p,), summed."""

    value: Array


@message
class Memory:
    """A site's x_k and u_k (p,)."""

    x: Array
    u: Array


@message
class Residual:
    """‖x_k − z‖²."""

    squared: Array


@summed
def solve(
    site: Site[Regression, Memory | None], *, z: Array, rho: float
) -> Keep[Consensus, Memory]:
    """Update u_k with the last x_k, then minimise ½‖y − Ax‖² + ρ/2 ‖x − z + u‖²."""
    a, b = site.data
    p = len(z)
    held = site.state
    u = np.zeros(p) if held is None else held.u + held.x - z
    x = np.linalg.solve(a.T @ a + rho * np.eye(p), a.T @ b + rho * (z - u))
    return Keep(Consensus(x + u), Memory(x, u))


@summed
def distance(site: Site[Regression, Memory | None], *, z: Array) -> Residual:
    """Reply how far this site is from consensus; reads the state and leaves it."""
    if site.state is None:
        raise LookupError("no state")
    return Residual(((site.state.x - z) ** 2).sum())


ADMM = (solve, distance)


@dataclass(frozen=True)
class Lasso:
    """Coefficients (p,) and the residual after each round."""

    z: Array
    residuals: Array


def lasso(fed: Federation, penalty: float, rho: float = 5.0, rounds: int = 20) -> Lasso:
    """Minimise ½‖y − Xz‖² + penalty ‖z‖₁ over the rows of all sites, with p = 4."""
    z, far = np.zeros(4), []
    for _ in fed.rounds(rounds):
        mean = fed.sum(solve, z=z, rho=rho).value / len(fed.sites)
        z = np.sign(mean) * np.maximum(np.abs(mean) - penalty / (rho * len(fed.sites)), 0)
        far.append(float(fed.sum(distance, z=z).squared))
        fed.record(residual=far[-1])
    return Lasso(z, np.array(far))


# tables -------------------------------------------------------------------------------


def numbers(sizes: Iterable[int] = (5, 8, 3), seed: int = 0) -> dict[str, Array]:
    """Return tables (n, 2) of standard normal numbers at sites a, b, …"""
    rng = np.random.default_rng(seed)
    return {chr(97 + i): rng.normal(size=(n, 2)) for i, n in enumerate(sizes)}


def regressions(sizes: Iterable[int] = (30, 20, 25), seed: int = 0) -> dict[str, Regression]:
    """Return tables with two active covariates out of four, at sites a, b, …"""
    rng = np.random.default_rng(seed)
    out: dict[str, Regression] = {}
    for i, n in enumerate(sizes):
        x = rng.normal(size=(n, 4))
        noise = rng.normal(size=n)
        out[chr(97 + i)] = Regression(x, x @ np.array([2.0, -1.0, 0.0, 0.0]) + noise)
    return out


# a method that gives nothing -----------------------------------------------------------


class NoModel(Fitted):
    """A fit without content."""

    def arrays(self) -> dict[str, Array]:
        """Return nothing."""
        return {}

    def meta(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Return another."""
        return cls()


@dataclass(frozen=True, kw_only=True)
class NoSettings(Settings):
    """No settings."""


def toy_method(settings: type[Settings] = NoSettings) -> Method:
    """Return a method called toy, with these settings."""
    return Method(
        name="toy", title="", tasks=("survival",), paper="", reveals="", settings=settings,
        fit=lambda fed, config, task: NoModel(), model=NoModel, steps=(),
    )  # fmt: skip
