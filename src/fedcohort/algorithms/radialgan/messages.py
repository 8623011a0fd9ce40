"""Messages of `radialgan`, and what a reply, or a coordinator's mixture, may hold.

A mixture has K groups (classes; events and censored times) of M normals each. A number of rows is 0
or at least `min_cell`; a mean and a standard deviation are at most `WIDEST` in size, and a
covariance has no negative eigenvalue. A site that gets another mixture refuses to train with it. So
it does with slopes or codes of another shape, or above `WIDEST`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from fedcohort.algorithms.radialgan.settings import RadialPlan
from fedcohort.arrays import Array
from fedcohort.protocol import Refused, message

#: Largest size of a code, of a slope by a code, and of a mean and standard deviation of codes.
WIDEST = 1e3
#: Most virtual rows for each own row.
MOST_VIRTUAL = 100.0
#: Part of a covariance's trace by which an eigenvalue may be below 0, from rounding.
ROUNDED = 1e-9


def nothing(*shape: int) -> Any:
    """Return the default of a field that is not there yet."""
    return field(default_factory=lambda: np.zeros(shape))


@message
class Columns:
    """Which columns a site has (p,) bool, and 1 for the site ()."""

    own: Array
    sites: Array


@message
class Played:
    """Sums over sites: 1, and eqs. (1), (2) and the part of D in it, of the last pass (3,)."""

    sites: Array
    losses: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        del asked
        fine = self.losses.shape == (3,) and not self.sites.shape and self.sites == 1
        return "" if fine else "another number of sites than 1, or of losses than 3."


@message
class Codes:
    """Codes F(r) of some or all records of a site (n, d)."""

    z: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        d = RadialPlan.of(asked["plan"]).codes(asked["shared"].astype(bool).tolist())
        fine = self.z.ndim == 2 and self.z.shape[1] == d and len(self.z) and _small(self.z)
        return "" if fine else f"no codes, or not of {d} places, or beyond {WIDEST:g} in size."


@message
class Slopes:
    """Slopes of a site's eq. (3) by the codes of each site (S, B, d), and its losses (3,)."""

    slopes: Array
    losses: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        fine = self.slopes.shape == asked["z"].shape and self.losses.shape == (3,)
        if not (fine and _small(self.slopes)):
            return f"slopes of another shape than the codes, or beyond {WIDEST:g} in size."
        return ""


@message
class Alone:
    """The predictor of a single site (M,), its baseline's times and hazards (T,), columns (P,)."""

    model: Array
    times: Array
    cumulative: Array
    own: Array


@message
class Radius:
    """What a site keeps.

    Attributes
    ----------
    theta, moments, taken : of the networks and their optimiser.
    chosen : numbers of the records of the last codes (B,). slope : of the last eq. (3) by θ.
    model, times, cumulative : the finished predictor and its baseline hazard; empty before.
    own : (P,), places that the site has. rows, means, covariances : others' groups, for `sample`.
    """

    theta: Array
    moments: Array
    taken: Array
    chosen: Array = nothing(0)
    slope: Array = nothing(0)
    model: Array = nothing(0)
    times: Array = nothing(0)
    cumulative: Array = nothing(0)
    own: Array = nothing(0)
    rows: Array = nothing(0)
    means: Array = nothing(0, 0)
    covariances: Array = nothing(0, 0, 0)


@message
class Groups:
    """Codes by group: numbers (K M,), means (K M, d), covariances (K M, d, d); 0 if untold."""

    rows: Array
    means: Array
    covariances: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        plan = RadialPlan.of(asked["plan"])
        d = plan.codes(asked["shared"].astype(bool).tolist())
        why = unfit(self.rows, self.means, self.covariances, plan.normals, d)
        if not why and ((self.rows > 0) & (self.rows < asked["least"])).any():
            why = "a group of fewer rows than min_cell"
        return f"{why}." if why else ""


def unfit(rows: Array, means: Array, covariances: Array, count: int, d: int) -> str:
    """Return why groups are no mixture of `count` normals of d places; "" if they are."""
    if rows.shape != (count,) or means.shape != (count, d) or covariances.shape != (count, d, d):
        return "groups of other numbers or shapes than the study's"
    if not all(np.isfinite(a).all() for a in (rows, means, covariances)) or (rows < 0).any():
        return "groups whose numbers are not finite, or below 0"
    if not (_small(means) and _small(np.sqrt(np.abs(covariances)))):
        return f"groups with a mean or spread beyond {WIDEST:g}"
    if count and not np.allclose(covariances, np.swapaxes(covariances, 1, 2)):
        return "a covariance that is not symmetric"
    least = np.linalg.eigvalsh(covariances).min(axis=1, initial=0.0)
    if (least < -ROUNDED * (1.0 + np.trace(covariances, axis1=1, axis2=2))).any():
        return "a covariance with a negative eigenvalue"
    return ""


def check_slopes(slopes: Array, sent: int, d: int) -> None:
    """Refuse slopes that are not by the codes that the site sent, of which there were `sent`.

    Raises
    ------
    Refused : another shape, not finite, or large.
    """
    if slopes.shape != (sent, d) or not _small(slopes):
        raise Refused(
            "malformed",
            f"the coordinator sent slopes of another shape than the site's codes, or beyond "
            f"{WIDEST:g} in size. The site does not train with them.",
        )


def check_codes(z: Array, d: int) -> None:
    """Refuse codes (…, d) of another size, not finite, or large.

    Raises
    ------
    Refused : they are.
    """
    if not z.size or z.shape[-1] != d or not _small(z):
        raise Refused(
            "malformed",
            f"the coordinator sent no codes, or codes of other than {d} places, or beyond "
            f"{WIDEST:g} in size. The site does not train with them.",
        )


def check_shares(counts: Array, rows: Array, z: Array) -> None:
    """Refuse numbers of codes that z (S, B, d) does not hold, or of rows that are no shares.

    Raises
    ------
    Refused : they are.
    """
    fine = z.ndim == 3 and counts.shape == rows.shape == z.shape[:1]
    if not (fine and ((counts >= 0) & (counts <= z.shape[1])).all() and (rows >= 1).all()):
        raise Refused(
            "malformed",
            "the coordinator sent other numbers of codes than it sent codes, or of rows below 1. "
            "The site does not train with them.",
        )


def check_virtual(virtual: float) -> None:
    """Refuse a number of virtual rows for each own row that no setting allows.

    Raises
    ------
    Refused : it is not within `MOST_VIRTUAL`.
    """
    if not 0 <= virtual <= MOST_VIRTUAL:
        raise Refused(
            "beyond",
            f"the coordinator asks for {virtual:g} virtual rows for each own row; at most "
            f"{MOST_VIRTUAL:g} are made.",
        )


def _small(a: Array) -> bool:
    """Return whether all numbers are finite and at most `WIDEST` in size."""
    return bool(np.isfinite(a).all() and (np.abs(a) <= WIDEST).all())
