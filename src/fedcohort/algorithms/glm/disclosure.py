"""Rules by which a fit of a generalised linear model reveals nothing about few records (`program`).

With several sites, 1 to `min_cell` − 1 records of a class, counts above 0, or records in all are
refused: U would be a sum over so few. So is a maximum at which so few have nearly all the weight
(`scoring`). `data.exact` checks the first cross-products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.algorithms.glm.scoring import Ground
from fedcohort.algorithms.glm.steps import IMPOSSIBLE, Curvature, Totals, curvature, reach
from fedcohort.arrays import Array
from fedcohort.data.classes import Kind, check_classes
from fedcohort.data.exact import Exact
from fedcohort.numerics.families import Family
from fedcohort.numerics.residuals import about_means
from fedcohort.protocol import DataError, NothingToLearn

#: Kind of outcome by which records of a family are grouped.
KINDS: Mapping[str, Kind] = {"binomial": "class", "poisson": "count"}
#: V(μ) of each family.
VARIANCES: Mapping[str, Callable[[float], float]] = {
    "gaussian": lambda mean: 1.0,
    "binomial": lambda mean: mean * (1.0 - mean),
    "poisson": lambda mean: mean,
    "gamma": lambda mean: mean**2,
}
#: Links for which some linear predictors have no mean.
BOUNDED = ("sqrt", "inverse")


def check_outcome(total: Totals, family: Family, min_cell: int, method: str) -> None:
    """Refuse an outcome without variation, or of fewer than `min_cell` records."""
    n, positive = int(total.rows), int(total.positive)
    if not n:
        raise NothingToLearn("no site holds any record; check their selection.")
    if family.name == "binomial":
        if total.others:
            raise DataError(
                f"the outcome has more than two classes, and method {method!r} needs two. Give an "
                f"outcome of two levels."
            )
        check_classes(n, positive, min_cell)
        return
    if family.name == "poisson" and not positive:
        raise NothingToLearn(
            f"every count of {n} records is 0, and a fit needs events. Add a site with events, or "
            f"check how the outcome is coded."
        )
    few = positive if family.name == "poisson" else n
    if few < min_cell:
        what = "counts above 0" if family.name == "poisson" else "records"
        raise NothingToLearn(
            f"there are fewer than {min_cell} {what} at all sites together (min_cell). Add sites "
            f"or records; or lower min_cell, if all sites agree."
        )


def curvature_at(
    sites: Exact, ground: Ground, gamma: Array, scale: Array, null: Array
) -> Curvature:
    """Return the sums at γ (k,) and at the null model; `IMPOSSIBLE` if a site's mean is."""
    family = ground.family
    at: dict[str, Any] = {
        "family": family.name, "link": family.link, "offset": ground.offset,
        "centre": ground.centre, "scale": scale, "gamma": gamma,
    }  # fmt: skip
    beyond = np.zeros(2)
    if family.link in BOUNDED and len(sites.fed.sites) > 1:
        beyond = sites.sum(reach, **at, null=null).beyond
    if beyond[0]:
        return nowhere(len(gamma), family)
    here = sites.sum(curvature, **at, null=null[: 0 if beyond[1] else None])
    return replace(here, null=np.array([IMPOSSIBLE, 0.0, 0.0])) if beyond[1] else here


def nowhere(k: int, family: Family) -> Curvature:
    """Return the placeholder for sums at γ (k,) if a site has an impossible mean."""
    none, zero = np.zeros((k, k)), np.zeros(())
    observed = np.zeros((0, 0)) if family.canonical else none
    return Curvature(np.array(IMPOSSIBLE), zero, np.zeros(k), none, observed, zero, np.zeros(0))


def check_products(sites: Exact, ground: Ground, first: Curvature) -> None:
    """Refuse cross-products that single out records (`data.exact`)."""
    sites.related(*with_outcome(first, ground))


def with_outcome(first: Curvature, ground: Ground) -> tuple[Array, Array]:
    """Return cross-products (q, q) about a point (q,), with the outcome if the sums contain it.

    They do if all means are equal: in eqs. (1) to (3) of `numerics.families`, h' and V are then
    numbers, and h'²/V is the information on the intercept per unit of weight.
    """
    inner, centre, family = about_means(first.information), ground.centre, ground.family
    each = float(first.information[0, 0]) / ground.weight
    if not each or (ground.offset and family.link != "identity"):
        return inner, centre
    variance = VARIANCES[family.name](ground.mean)
    slope = math.copysign(math.sqrt(each / variance), -1.0 if family.link == "inverse" else 1.0)
    crossed = first.score[1:, None] / slope
    rest = np.array([[float(first.pearson) * variance]])
    middle = ground.start if family.link == "identity" else ground.mean
    return np.block([[inner / each, crossed], [crossed.T, rest]]), np.r_[centre, middle]
