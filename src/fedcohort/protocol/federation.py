"""The coordinator's interface to sites: two verbs, and views of the sites."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast

from fedcohort.protocol.errors import SitesAway, SiteUnavailable
from fedcohort.protocol.step import Gathered, Summed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class View(Protocol):
    """A pure function of a site's data that can be sent as text.

    A fitted preprocessing is one: the coordinator sends `spec` once, each site applies it to
    its own rows, and nothing leaves.
    """

    @property
    def spec(self) -> str:
        """JSON text that determines the function."""
        ...

    def __call__(self, data: Any, /) -> Any:
        """Return what steps get instead of `data`."""
        ...


class Federation(Protocol):
    """All sites of a run, seen from the coordinator.

    A program is plain Python against this protocol::

        def fit(fed: Federation, config: MeanConfig, task: Task) -> Mean:
            for _ in fed.rounds(config.rounds):
                total = fed.sum(partial_mean, at=mean)      # only the sum is revealed
                mean = total.value / total.rows
                fed.record(mean=mean)
    """

    @property
    def sites(self) -> Sequence[str]:
        """Names of the sites of this view, sorted; replies are combined in this order."""
        ...

    @property
    def answered(self) -> Sequence[str]:
        """Names of the sites whose replies are in the result of the latest call."""
        ...

    @property
    def refused(self) -> Mapping[str, str]:
        """Sites whose reply to the latest call could not be used, with the reason.

        They are not in `answered`; see `protocol.updates`.
        """
        ...

    @property
    def hides(self) -> bool:
        """Whether a sum over the sites of this view hides the reply of each."""
        ...

    @property
    def alone(self) -> bool:
        """Whether this is a fit of one site in this process, where nobody else sees a reply.

        Only then a site answers a step that is declared ``@gathered(alone=True)``.
        """
        ...

    def gather(self, step: Gathered[P, R], /, *args: P.args, **kwargs: P.kwargs) -> dict[str, R]:
        """Run `step` at every site; reveal each site's reply, by site name.

        Raises
        ------
        SiteUnavailable : fewer sites than the quorum answered.
        VerbRefused : the step may only be summed.
        """
        ...

    def sum(self, step: Summed[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `step` at every site; reveal only the sum of the replies, field by field.

        The sum is over the sites in `answered`.

        Raises
        ------
        SiteUnavailable : fewer sites than the quorum answered.
        """
        ...

    def weighted(self, weights: Mapping[str, float]) -> Self:
        """Return the same federation, in which `sum` multiplies each reply by its public weight.

        For masked sums the first weights of a session are final, at most 2^24.

        Raises
        ------
        ValueError : a site of this view has no weight, or a weight has no site.
        """
        ...

    def only(self, sites: Iterable[str]) -> Self:
        """Return the same federation with these sites alone.

        Raises
        ------
        SiteUnavailable : this view has no site of that name.
        """
        ...

    def optional(self) -> Self:
        """Return the same federation, in which a `gather` may return no reply.

        For a program that calls one site at a time, and checks with `enough` how many answered.
        """
        ...

    def awaiting(self, fewest: int | None = None) -> Self:
        """Return the same federation, in which a call waits until its sites are there.

        For sums that must all be of the same sites. If sites stay away the call ends with
        `SitesAway` and reveals nothing: two sums that differ by a site reveal that site's.

        Parameters
        ----------
        fewest : this number of sites is enough, if each one's reply is revealed anyway; None for
            all.
        """
        ...

    def enough(self, came: Collection[str]) -> None:
        """Refuse to go on if these sites of the view are fewer than the quorum.

        Raises
        ------
        SiteUnavailable : they are; the message names the others.
        """
        ...

    def through(self, view: View) -> Self:
        """Return the same federation, in which steps get `view(data)` instead of the data."""
        ...

    def rounds(self, n: int, *, first: int = 0) -> Iterator[int]:
        """Count 0, 1, …, n−1, and report the round to the ledger and the progress display.

        first : the run's number of round 0, if a training continues another.
        """
        ...

    def record(self, **values: float) -> None:
        """Add a row to the run's history: a loss, a residual, a weight, in the current round."""
        ...


def check_all_answered(fed: Federation) -> None:
    """Refuse a sum that lacks a site of the sums before it.

    Raises
    ------
    SiteUnavailable : a site of this view did not answer the latest call; the message names it.
    """
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(str(away(missing)))


def away(sites: Collection[str]) -> SitesAway:
    """Return the error for a sum that needs these sites."""
    return SitesAway(
        f"{', '.join(sites)} left during the fit, and an exact fit needs the same sites in every "
        f"sum. Bring them back and --resume, or start again without them.",
        sites,
    )


class PerSite(dict[str, Any]):
    """One argument with a different value at each site."""


def per_site(values: Mapping[str, T]) -> T:
    """Stand-in for one argument whose value differs by site, e.g. a personalised model.

    In a sum, only arguments that the step names as `apart` may differ.
    """
    return cast(T, PerSite(values))


def at(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the site called `name` receives.

    Raises
    ------
    ValueError : a `per_site` argument has no value for it.
    """
    for k, v in arguments.items():
        if isinstance(v, PerSite) and name not in v:
            raise ValueError(
                f"argument {k!r} has no value for site {name!r}, only for {sorted(v)}. Give one "
                f"for each site asked, or ask fed.only(...)."
            )
    return {k: v[name] if isinstance(v, PerSite) else v for k, v in arguments.items()}
