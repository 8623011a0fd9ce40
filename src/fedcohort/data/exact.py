"""Checks before the sums of an exact fit, in one call.

An exact fit sums over all records at equal models, as on the pooled table. So sums over few
records, and differences of sums over different sites, would reveal records. `exact_sums` asks the
sites for the counts of `data.isolation`. It refuses a fit without covariates, and columns and kinds
of outcome that single out few records. The `Exact` that it returns stands for the sites that
answered:

    sum       a sum over all of these sites: two sums that differ by a site reveal that site's
    related   refuses columns that other columns determine except in few records
              (`data.differences`), once cross-products are known

A fit whose first sum holds the same counts (`ridge`) makes the `Exact` of that sum. A method that
makes none gives the reason (`Method.unguarded`); `tests/conformance` checks both.

Revealed: over several sites `Isolation`, once, and `Differences`, if any, as sums over all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

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

#: Steps of the checks.
STEPS = (isolation, differences)


@dataclass(frozen=True)
class Exact:
    """The sites of an exact fit.

    Attributes
    ----------
    fed : the sites that answered first; a call waits for all of them.
    names : of the covariates, (p,).
    offset : whether the last column of x is an offset.
    least : `min_cell`; 1 if there is one site.
    columns : what is known of covariates and outcome; None if nothing was asked.
    caution : warning about the fit; "" for none.
    classes : of an outcome of more than two classes, which is as many columns less one; ().
    """

    fed: Federation
    names: Sequence[str]
    offset: bool
    least: int
    columns: Columns | None
    caution: str = ""
    classes: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        fed: Federation,
        task: Task,
        columns: Columns | None,
        caution: str = "",
        classes: Sequence[str] = (),
    ) -> Exact:
        """Return the sites that answered the latest call, with what is known of the columns."""
        several = len(fed.sites) > 1
        there = fed.only(fed.answered).awaiting()
        names = task.features[: len(task.features) - task.offset]
        least = task.min_cell if several else 1
        return cls(there, names, task.offset, least, columns, caution, classes)

    def sum(self, step: Summed[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `step` at every site; reveal only the sum.

        Raises
        ------
        SiteUnavailable : a site did not answer.
        """
        total = self.fed.sum(step, *args, **kwargs)
        check_all_answered(self.fed)
        return total

    def related(self, inner: Array, centre: Array) -> None:
        """Refuse columns that differ from a combination of others in few records.

        Parameters
        ----------
        inner, centre : (q, q) and (q,), cross-products about the means, by any weights, and a point
            near the means; of the covariates, and if q is above p of the outcome's columns.

        Raises
        ------
        NothingToLearn : a column is refused; the message names it and the others.
        """
        if self.columns is None:
            return
        known = Columns(*(part[..., : len(inner)] for part in self.columns))
        check_differences(
            self.fed, self.names, inner, centre, known, least=self.least, offset=self.offset,
            classes=self.classes,
        )  # fmt: skip


def check_covariates(task: Task) -> None:
    """Refuse a fit without covariates; an offset is none."""
    if len(task.features) <= task.offset:
        raise DataError("there are no covariates; name at least one column besides the outcome.")


def exact_sums(
    fed: Federation, task: Task, kind: Kind, link: str = "", classes: Sequence[str] = ()
) -> Exact:
    """Make the checks of an exact fit, and return the sites to ask for its sums.

    A single site is not asked. With a `min_cell` of 1 no column is refused.

    Parameters
    ----------
    kind : kinds of the outcome: "class", "event", "count"; "number" without kinds.
    link : of the offset; "" without.
    classes : of an outcome of more than two classes.

    Raises
    ------
    DataError : there are no covariates.
    NothingToLearn : a column singles out few records; the message names it.
    """
    check_covariates(task)
    p = len(task.features) - task.offset
    if len(fed.sites) < 2:
        return Exact(fed.awaiting(), task.features[:p], task.offset, 1, None, "", classes)
    point = np.zeros(p) if task.origin is None else np.asarray(task.origin, float)[:p]
    outcomes = max(1, len(classes) - 1)
    origin = np.r_[point, np.zeros(outcomes + task.offset), 1.0]
    asked: dict[str, Any] = {"link": link, "offset": task.offset, "kinds": kind != "number"}
    told = fed.sum(isolation, origin=origin, n_classes=len(classes), **asked)
    caution = ""
    if task.min_cell > 1:
        caution = check_isolation(told, task.features, p, task.min_cell, kind, classes)
    spread = told.squares[1, : p + outcomes]
    own = Columns(effective(spread, told.fourth[1, : p + outcomes]), spread, told.rest)
    return Exact.of(fed, task, own, caution, classes)
