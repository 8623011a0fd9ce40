"""What every exact fit calls before it sums anything over covariates: all its checks in one.

An exact fit is one whose sums, at equal models, are those of the pooled table: what a sum is over,
and what the difference of two is over, is then a question of columns and of sites. `exact_sums`
asks the sites for what `data.isolation` counts, and refuses a fit without covariates, and columns
and kinds of outcome that single out few records. The `Exact` that it returns stands for the sites
that answered:

    sum       a sum that lacks none of them: two sums that differ by a site tell its own
    related   refuses columns that others give but for few records (`data.differences`), once
              cross-products are known

A fit whose first sum holds the same counts (`ridge`) makes the `Exact` of that one. A method that
makes none says why it needs none (`Method.unguarded`); `tests/conformance` looks at both.

Revealed: over several sites `Isolation`, once, and `Differences`, if any, as sums over all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.classes import Kind
from fedcohort.data.differences import check_differences, differences
from fedcohort.data.isolation import Columns, check_isolation, isolation
from fedcohort.privacy.disclosure.records import effective
from fedcohort.protocol.errors import DataError
from fedcohort.protocol.federation import Federation, check_all_answered
from fedcohort.protocol.method import Task
from fedcohort.protocol.step import Summed

P = ParamSpec("P")
R = TypeVar("R")

#: What is asked.
STEPS = (isolation, differences)


@dataclass(frozen=True)
class Exact:
    """The sites of an exact fit.

    Attributes
    ----------
    fed : the sites that answered first; a call to them waits until all are there.
    names : of the covariates, (p,).
    offset : whether x has one as its last column.
    least : `min_cell`; 1 where there is one site.
    columns : what is known of covariates and outcome; None where nothing is, and nothing asked.
    caution : what is to be said of the fit; "" for nothing.
    """

    fed: Federation
    names: Sequence[str]
    offset: bool
    least: int
    columns: Columns | None
    caution: str = ""

    @classmethod
    def of(cls, fed: Federation, task: Task, columns: Columns | None, caution: str = "") -> Exact:
        """Return the sites that answered the latest call, of which the columns are known."""
        several = len(fed.sites) > 1
        there = fed.only(fed.answered).awaiting()
        names = task.features[: len(task.features) - task.offset]
        return cls(there, names, task.offset, task.min_cell if several else 1, columns, caution)

    def sum(self, step: Summed[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `step` at every site; reveal only the sum.

        Raises
        ------
        SiteUnavailable : it lacks a site.
        """
        told = self.fed.sum(step, *args, **kwargs)
        check_all_answered(self.fed)
        return told

    def related(self, inner: Array, centre: Array) -> None:
        """Refuse columns in which few records differ from a combination of others.

        Parameters
        ----------
        inner, centre : (q, q) and (q,), cross-products about the means, by any weights, and a point
            near the means; of the covariates, and if q is p + 1 of the outcome.

        Raises
        ------
        NothingToLearn : some column does; it and those that nearly give it are named.
        """
        if self.columns is None:
            return
        known = Columns(*(part[..., : len(inner)] for part in self.columns))
        check_differences(
            self.fed, self.names, inner, centre, known, least=self.least, offset=self.offset
        )


def check_covariates(task: Task) -> None:
    """Refuse a fit without covariates; an offset is none."""
    if len(task.features) <= task.offset:
        raise DataError("there are no covariates; name at least one column besides the outcome.")


def exact_sums(fed: Federation, task: Task, kind: Kind, link: str = "") -> Exact:
    """Make the checks of an exact fit, and return the sites to ask for its sums.


    Nothing is asked of one site alone; no column is refused where `min_cell` is 1.

    Parameters
    ----------
    kind : what the outcome is told apart by: "class", "event", "count"; "number" if by nothing.
    link : by which an offset acts; "" without.

    Raises
    ------
    DataError : there are no covariates.
    NothingToLearn : some column does; it is named.
    """
    check_covariates(task)
    p = len(task.features) - task.offset
    if len(fed.sites) < 2:
        return Exact(fed.awaiting(), task.features[:p], task.offset, 1, None)
    point = np.zeros(p) if task.origin is None else np.asarray(task.origin, float)[:p]
    origin = np.r_[point, np.zeros(1 + task.offset), 1.0]
    kinds = kind != "number"
    told = fed.sum(isolation, origin=origin, link=link, offset=task.offset, kinds=kinds)
    caution = ""
    if task.min_cell > 1:
        caution = check_isolation(told, task.features, p, task.min_cell, kind)
    spread = told.squares[1, : p + 1]
    own = Columns(effective(spread, told.fourth[1, : p + 1]), spread, told.rest)
    return Exact.of(fed, task, own, caution)
