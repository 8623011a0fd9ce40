"""Differential privacy as the contract between study, coordinator and site knows it.

A study asks for (ε, δ) of each patient, or of each site. A method answers with the releases that a
fit makes: which step, how often, with how much noise for the sensitivity that the step states. Both
ends work that list out from the approved study alone; a site adds the noise itself, counts what it
released, and lets nothing else leave. So what a coordinator sends has no say in what is spent.

Neighbouring tables differ by one record that is added or taken away (`unit` "record"), or by all
records of one site ("site").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from fedcohort.arrays import Array
from fedcohort.protocol.errors import SettingError

R = TypeVar("R")

#: What may be protected.
UNITS = ("record", "site")
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
    clip : C > 0, the norm that a record's (or a site's) part is cut to where a method cuts.
    """

    epsilon: float
    delta: float = 1e-5
    unit: str = "record"
    clip: float = 1.0

    def __post_init__(self) -> None:
        rules = (
            ("epsilon", _number(self.epsilon) and 0 < self.epsilon <= MOST, f"up to {MOST:g}"),
            ("delta", _number(self.delta) and 0 < self.delta < 1, "below 1"),
            ("clip", _number(self.clip) and 0 < self.clip <= 1e6, "up to 1e6"),
        )
        for name, fine, most in rules:
            if not fine:
                value = getattr(self, name)
                raise SettingError(f"dp.{name} is {value!r}; give a number above 0, {most}.")
        if self.unit not in UNITS:
            raise SettingError(f"dp.unit is {self.unit!r}; give {' or '.join(map(repr, UNITS))}.")

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
        if odd := sorted(set(given) - set(known)):
            raise SettingError(f"dp has no key {odd[0]!r}; it knows {', '.join(known)}.")
        if "epsilon" not in given:
            raise SettingError("dp needs an epsilon, such as {epsilon: 3, delta: 1e-5}.")
        return cls(**given)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class Release:
    """One step's noisy replies in a fit.

    Attributes
    ----------
    step : its name.
    noise : noise multiplier z > 0: standard deviation (or scale, of Laplace) over sensitivity.
    count : how many replies of one site.
    sampling : probability with which each record is in a reply (Poisson sampling); 1 for all.
    mechanism : "gaussian" or "laplace".
    """

    step: str
    noise: float
    count: int = 1
    sampling: float = 1.0
    mechanism: str = "gaussian"


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
class Spent:
    """What one reply cost: for the ledger. ε and δ are those of all releases of the fit so far."""

    mechanism: str
    epsilon: float
    delta: float


def threshold(sites: int) -> int:
    """Return how many of the sites a masked sum has at least: two thirds, rounded up."""
    return -(-2 * sites // 3)


class Guard(Protocol):
    """A site's half of a private fit: adds noise, counts, refuses."""

    def admit(self, call: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a call that is none of the fit's releases, before a row is looked at.

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

    def protect(
        self,
        call: Any,
        reply: dict[str, Array],
        sensitivity: Mapping[str, float] | None,
        share: int,
    ) -> tuple[dict[str, Array], Spent | None]:
        """Return a reply that may leave.

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
