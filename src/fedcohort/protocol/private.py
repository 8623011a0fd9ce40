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

R = TypeVar("R")


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


class Guard(Protocol):
    """A site's half of a private fit: adds noise, counts, refuses."""

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
