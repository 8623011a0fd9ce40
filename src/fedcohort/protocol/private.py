"""Differential privacy as the contract between study, coordinator and site knows it.

A study asks for (ε, δ) of each patient, or of each site. A method answers with the releases that a
fit makes: which step, how often, with how much noise for the sensitivity that the step states. Both
ends work that list out from the approved study alone; a site adds the noise itself, counts what it
released, and lets nothing else leave. So what a coordinator sends has no say in what is spent.

Neighbouring tables differ by one record that is added or taken away (`unit` "record"), or by all
records of one site ("site").
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast

from fedcohort.arrays import Array
from fedcohort.protocol.errors import SettingError

R = TypeVar("R")

#: What may be protected.
UNITS = ("record", "site")
EXAMPLE = '{"epsilon": 3, "delta": 1e-5}'
#: An ε above this protects nobody.
MOST = 1000.0


@dataclass(frozen=True, kw_only=True)
class Dp:
    """What a study asks for.

    Attributes
    ----------
    epsilon : ε > 0 of a whole fit, preprocessing included.
    delta : δ, 0 < δ < 1; a site refuses one above 1/n of its n patients.
    unit : "record" or "site": what is protected.
    clip : C > 0, the norm that a record's (or a site's) part is cut to where a method cuts; None
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
        """Return this with a norm to cut to: its own, or the one of its unit, or 1."""
        return self if self.clip is not None else replace(self, clip=clips.get(self.unit, 1.0))

    @property
    def norm(self) -> float:
        """C, where `clipped` has set it; 1 where nobody has."""
        return 1.0 if self.clip is None else self.clip

    @classmethod
    def of(cls, given: Mapping[str, Any] | Dp) -> Dp:
        """Return what a user typed.

        Raises
        ------
        SettingError : an unknown key, no ε, or a value outside its bounds.
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
    noise : noise multiplier z > 0: standard deviation (or scale, of Laplace) over sensitivity.
    count : how many noisy answers of one site.
    sampling : probability with which each record is in an answer (Poisson sampling); 1 for all.
    mechanism : "gaussian" or "laplace".
    draws : how many of the answers one reply is made of at most (`Noised`); 1 of a `Private`.
    """

    step: str
    noise: float
    count: int = 1
    sampling: float = 1.0
    mechanism: str = "gaussian"
    draws: int = 1

    @property
    def replies(self) -> int:
        """How many replies of one site."""
        return self.count // self.draws

    @property
    def content(self) -> dict[str, Any]:
        """What results.json says of it."""
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
    sensitivity : by field, the most that one unit changes it: in L2 norm for Gaussian noise, in L1
        for Laplace. All fields are named. Of k fields each gets noise of √k times (Gaussian) or k
        times (Laplace) its sensitivity and multiplier, so that together they are one release.
    """

    reply: R
    sensitivity: Mapping[str, float]


@dataclass(frozen=True)
class Noised(Generic[R]):
    """A reply made of several noisy answers about the rows, and of nothing else of theirs.

    The step itself looks at no row: it says how a question is answered, and which course asks. The
    site's host runs the course. It gets the call's arguments, as they came, and each answer with
    the noise already in it, so that its reply is post-processing, which costs nothing more.

    Attributes
    ----------
    ask : a point (P,) → the answer about the rows there. The site adds all of the noise itself:
        what is made of noisy answers is not their sum, so that noise cannot be shared out.
    course : a generator function of a module, `course(**arguments)`: it yields points, is sent the
        noisy answer (the message that `ask` gave), and returns the reply.
    """

    ask: Callable[[Any], Private[Any]]
    course: Callable[..., Generator[Any, Any, R]]


@dataclass(frozen=True)
class Spent:
    """What one reply cost: for the ledger. ε and δ are those of all releases of the fit so far."""

    mechanism: str
    epsilon: float
    delta: float


def threshold(sites: int) -> int:
    """Return how many of the sites a masked sum has at least: two thirds, rounded up."""
    return -(-2 * sites // 3)


class Drawing(Protocol):
    """The noisy answers of one call, no more than were counted when it was let in."""

    def draw(
        self, answer: dict[str, Array], sensitivity: Mapping[str, float] | None
    ) -> dict[str, Array]:
        """Return one answer with all of the noise in it.

        Raises
        ------
        Refused : "budget" or "dp": one more than the fit's releases, or no sensitivity of a field.
        """
        ...

    def close(self) -> Spent:
        """Return what has been spent, before the reply leaves.

        Raises
        ------
        Refused : "dp": nothing was drawn, so that the reply is not made of noisy answers.
        """
        ...


class Guard(Protocol):
    """A site's half of a private fit: adds noise, counts, refuses."""

    def admit(self, call: Any, arguments: Mapping[str, Any]) -> None:
        """Count a call of the fit's releases, before a row is looked at, and refuse any other.

        Whatever fails afterwards has been spent.

        Raises
        ------
        Refused : "dp" or "budget", and which rule it breaks.
        """
        ...

    def entropy(self, call: Any) -> tuple[int, ...] | None:
        """Return what a step's own draws derive from; None for the study's seed.

        What is drawn from a seed that the coordinator knows hides nobody.
        """
        ...

    def drawing(self, call: Any) -> Drawing:
        """Return what adds noise to the answers that a `Noised` reply is made of."""
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
        sensitivity : of a `Private` reply; None of any other, which is refused.
        share : 1 where the coordinator sees this reply, or the least number of sites in a masked
            sum: then 1/√share of the noise is added here, and the sum has all of it.

        Raises
        ------
        Refused : "budget" or "dp": more than the fit's releases, or a reply without noise.
        """
        ...
