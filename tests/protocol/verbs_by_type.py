"""Programs that a type checker must refuse, on the lines that say so, and nowhere else."""

from __future__ import annotations

from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Keep, Site, gathered, message, per_site, summed


@message
class Reply:
    """A reply."""

    value: Array


@message
class State:
    """A state."""

    seen: Array


@summed
def total(site: Site[Array, None], *, scale: float) -> Reply:
    """Sum."""
    return Reply(scale * site.data.sum(0))


@gathered
def each(site: Site[Array, None]) -> Reply:
    """Reply."""
    return Reply(site.data.mean(0))


@summed
def remember(site: Site[Array, State | None], *, z: Array) -> Keep[Reply, State]:
    """Keep a state."""
    return Keep(Reply(z), State(z))


def allowed(fed: Federation, z: Array) -> tuple[Array, Array, Array]:
    """Ask for no more than the steps allow."""
    a = fed.sum(total, scale=1.0).value
    b = fed.gather(each)["north"].value
    c = fed.weighted({"north": 0.5}).sum(remember, z=per_site({"north": z})).value
    return a, b, c


def refused(fed: Federation, z: Array) -> None:
    """Ask for more, or for something else."""
    fed.gather(total, scale=1.0)  # refuse
    fed.gather(remember, z=z)  # refuse
    fed.sum(each)  # refuse
    fed.sum(total)  # refuse
    fed.sum(total, scale="large")  # refuse
    fed.sum(total, scale=1.0, size=2)  # refuse
    fed.sum(total, 1.0)  # refuse
    print(fed.sum(total, scale=1.0).rows)  # refuse
    print(fed.sum(remember, z=z).seen)  # refuse
    fed.sum(total, scale=1.0).value = z  # refuse
