"""Rules by which a regression of several classes reveals nothing about few records (`program`).

With several sites, a class of 1 to `min_cell` − 1 records is refused (`data.isolation`): the
gradient has a sum over its records. So are fewer records in all, cross-products of covariates and
classes that single out records, and a maximum at which few records have nearly all the weight.
"""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.multinomial.layout import Layout
from fedcohort.algorithms.multinomial.steps import Slopes, Tally
from fedcohort.arrays import Array
from fedcohort.data.classes import check_each_class
from fedcohort.data.exact import Exact
from fedcohort.numerics.residuals import about_means
from fedcohort.protocol import DataError, NothingToLearn


def check_tally(total: Tally, levels: tuple[str, ...], least: int) -> None:
    """Refuse records of one class, or a class with fewer than `least`, but some.

    Raises
    ------
    DataError : the outcome has other values than the classes' numbers.
    NothingToLearn : it is refused.
    """
    if not total.rows:
        raise NothingToLearn("no site holds any record; check their selection.")
    if int(total.ones.sum()) != int(total.rows):
        raise DataError(
            f"the outcome has other classes than {', '.join(map(repr, levels))}. List all in the "
            f"dictionary."
        )
    check_each_class(total.ones.tolist(), levels, least)


def check_products(sites: Exact, layout: Layout, total: Tally, first: Slopes) -> None:
    """Refuse cross-products, of covariates and classes, that single out records (`data.exact`)."""
    sites.related(*with_classes(layout, total, layout.products(first)))


def with_classes(layout: Layout, total: Tally, products: Array) -> tuple[Array, Array]:
    """Return cross-products (q, q) about the means, with weights w ω, and a point (q,) near these.

    Of the p covariates and the 0/1 columns of the classes after the first, q = p + K − 1, from sums
    that the coordinator has been told at the model without covariates.

    Parameters
    ----------
    products : Σ w ω z zᵀ (1 + p, 1 + p) of z = (1, x − centre).
    """
    weight = total.weight
    centre = total.x.sum(axis=0) / weight.sum()
    count = layout.counts * weight
    crossed = layout.counts[:, None] * np.column_stack([weight, total.x - np.outer(weight, centre)])
    inner = np.block([[products, crossed[1:].T], [crossed[1:], np.diag(count[1:])]])
    return about_means(inner), np.r_[centre, weight[1:] / weight.sum()]
