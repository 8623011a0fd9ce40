"""Differential privacy in the contract between study, coordinator and site.

A study asks for (ε, δ) for each patient, or for each site. A method answers with the releases of a
fit: which step, how often, with how much noise for the sensitivity that the step states. Both
ends compute that list from the approved study alone. A site adds the noise itself, counts its
releases, and lets nothing else leave. So the coordinator's messages cannot change what is spent.

Neighbouring tables differ by one record that is added or removed (`unit` "record"), or by all
records of one site ("site").
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast

from fedcohort.arrays import Array
from fedcohort.protocol.errors import SettingError

R = TypeVar("R")

#: Units that can be protected.
UNITS = ("record", "site")
EXAMPLE = '{"epsilon": 3, "delta": 1e-5}'
#: Largest ε; above it nobody is protected.
MOST = 1000.0


@dataclass(frozen=True, kw_only=True)
class Dp:
    """Differential privacy that a study asks for.

    Attributes
    ----------
    epsilon : ε > 0 of a whole fit, preprocessing included.
    delta : δ, 0 < δ < 1; a site refuses one above 1/n of its n patients.
    unit : "record" or "site": what is protected.
    clip : C > 0, largest norm of one record's (or a site's) contribution, if the method clips; None
        takes the method's own (`clipped`).
    """

    epsilon: float
    delta: float = 1e-5
    unit: str = "record"
    clip: float | None = None

    def __post_init__(self) -> None:
        rules = (
            ("epsilon", _fits(self.epsilon, MOST), f"up to {MOST:g}"),
            ("delta", _number(self.delta) and 0 < self.delta < 1, "below 1"),
            ("clip", self.clip is None or _fits(self.clip, 1e6), "up to 1e6"),
        )
        for name, fine, most in rules:
            if not fine:
                value = getattr(self, name)
                raise SettingError(f"dp.{name} is {value!r}; give a number above 0, {most}.")
        if self.unit not in UNITS:
            raise SettingError(f"dp.unit is {self.unit!r}; give {' or '.join(map(repr, UNITS))}.")

    def clipped(self, clips: Mapping[str, float]) -> Dp:
        """Return this with a clipping norm: its own, or that of its unit, or 1."""
        return self if self.clip is not None else replace(self, clip=clips.get(self.unit, 1.0))

    @property
    def norm(self) -> float:
        """C, if `clipped` has set it; else 1."""
        return 1.0 if self.clip is None else self.clip

    @classmethod
    def of(cls, given: Mapping[str, Any] | Dp) -> Dp:
        """Return the request from user input.

        Raises
        ------
        SettingError : a key is unknown, ε is missing, or a value is outside its bounds.
        """
        if isinstance(given, Dp):
            return given
        known = ("epsilon", "delta", "unit", "clip")
        if not isinstance(cast("object", given), Mapping):
            raise SettingError(f"dp is {given!r}; give a mapping such as {EXAMPLE}.")
        if odd := sorted(set(map(str, given)) - set(known)):
            raise SettingError(f"dp has no key {odd[0]!r}; it knows {', '.join(known)}.")
        if "epsilon" not in given:
            raise SettingError(f"dp needs an epsilon, such as {EXAMPLE}.")
        return cls(**given)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fits(value: Any, most: float) -> bool:
    return _number(value) and 0 < value <= most


@dataclass(frozen=True, kw_only=True)
class Release:
    """One step's noisy answers in a fit.

    Attributes
    ----------
    step : its name.
    noise : noise multiplier z > 0: standard deviation (or scale, for Laplace) over sensitivity.
    count : number of noisy answers of one site.
    sampling : probability with which each record is in an answer (Poisson sampling); 1 for all.
    mechanism : "gaussian" or "laplace".
    draws : largest number of answers in one reply (`Noised`); 1 for a `Private`.
    """

    step: str
    noise: float
    count: int = 1
    sampling: float = 1.0
    mechanism: str = "gaussian"
    draws: int = 1

    @property
    def replies(self) -> int:
        """Number of replies of one site."""
        return self.count // self.draws

    @property
    def content(self) -> dict[str, Any]:
        """Entry of results.json."""
        return {
            "step": self.step, "mechanism": self.mechanism, "noise": self.noise,
            "count": self.count, "sampling": self.sampling, "draws": self.draws,
        }  # fmt: skip


@dataclass(frozen=True)
class Private(Generic[R]):
    """A reply to which the site must add noise before it leaves.

    Attributes
    ----------
    reply : the exact message.
    sensitivity : by field, the largest change by one unit: in L2 norm for Gaussian noise, in L1
        for Laplace. All fields are named. Of k fields each gets noise of √k times (Gaussian) or k
        times (Laplace) its sensitivity and multiplier, so that together they are one release.
    """

    reply: R
    sensitivity: Mapping[str, float]


@dataclass(frozen=True)
class Noised(Generic[R]):
    """A reply made only of several noisy answers about the rows.

    The step itself reads no row: it defines how a question is answered, and which course asks. The
    site's host runs the course. The course gets the call's arguments and the noisy answers only, so
    its reply is post-processing, which costs no further privacy.

    Attributes
    ----------
    ask : a point (P,) → the answer about the rows there. The site adds all of the noise itself: the
        result is not a sum of noisy answers, so sites cannot share the noise.
    course : a generator function of a module, `course(**arguments)`: it yields points, is sent the
        noisy answer (the message that `ask` gave), and returns the reply.
    """

    ask: Callable[[Any], Private[Any]]
    course: Callable[..., Generator[Any, Any, R]]


@dataclass(frozen=True)
class Spent:
    """Privacy cost of a reply, for the ledger; ε and δ are those of all releases of the fit so
    far.
    """

    mechanism: str
    epsilon: float
    delta: float


def threshold(sites: int) -> int:
    """Return the smallest number of sites in a masked sum: two thirds, rounded up."""
    return -(-2 * sites // 3)


class Drawing(Protocol):
    """Noisy answers of one call, at most as many as were counted when it was admitted."""

    def draw(
        self, answer: dict[str, Array], sensitivity: Mapping[str, float] | None
    ) -> dict[str, Array]:
        """Return one answer with all of the noise in it.

        Raises
        ------
        Refused : "budget" or "dp": the fit's releases are used up, or a field has no sensitivity.
        """
        ...

    def close(self) -> Spent:
        """Return what has been spent, before the reply leaves.

        Raises
        ------
        Refused : "dp": nothing was drawn, so the reply is not made of noisy answers.
        """
        ...


class Guard(Protocol):
    """A site's part of a private fit: it adds noise, counts, and refuses."""

    def admit(self, call: Any, arguments: Mapping[str, Any]) -> None:
        """Count a call of the fit's releases before a row is read, and refuse any other call.

        The release counts as spent even if the step fails afterwards.

        Raises
        ------
        Refused : "dp" or "budget"; the message has the broken rule.
        """
        ...

    def entropy(self, call: Any) -> tuple[int, ...] | None:
        """Return the entropy of a step's own draws; None for the study's seed.

        Draws from a seed that the coordinator knows hide nobody.
        """
        ...

    def drawing(self, call: Any) -> Drawing:
        """Return what adds noise to the answers of a `Noised` reply."""
        ...

    def protect(
        self,
        call: Any,
        reply: dict[str, Array],
        sensitivity: Mapping[str, float] | None,
        share: int,
    ) -> tuple[dict[str, Array], Spent | None]:
        """Return a reply that may leave, and what has been spent with it.

        Parameters
        ----------
        call : the `Call` that is answered.
        sensitivity : of a `Private` reply; None for another reply, which is refused.
        share : 1 if the coordinator sees this reply, or the smallest number of sites in a masked
            sum: then 1/√share of the noise is added here, and the sum has all of it.

        Raises
        ------
        Refused : "budget" or "dp": the fit's releases are used up, or a reply has no noise.
        """
        ...
