"""The start of every fit of `mixed`: counts, means and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedcohort.algorithms.mixed.settings import MixedSettings
from fedcohort.algorithms.mixed.steps import Totals, totals
from fedcohort.arrays import Array
from fedcohort.data.classes import Kind, check_classes
from fedcohort.data.exact import Exact, exact_sums
from fedcohort.numerics.collinearity import SINGULAR, collinear
from fedcohort.numerics.families import USUAL
from fedcohort.numerics.residuals import about_means
from fedcohort.protocol import (
    DataError,
    Federation,
    NothingToLearn,
    SettingError,
    SingularInformation,
    Task,
)

#: With fewer sites, τ² is poorly known.
FEW = 5
#: Link of each family, if it is not the identity.
LINKS = {"binomial": "logit", "poisson": "log"}
#: Kind of outcome by which records of a family are grouped.
KINDS: Mapping[str, Kind] = {"binomial": "class", "poisson": "count"}
#: Fault of a value that the family excludes, and remedy.
RULES = {
    "gaussian": ("is infinite", "Correct or drop them."),
    "binomial": ("is neither 0 nor 1", "Give an outcome of two levels, or another family."),
    "poisson": ("is no whole number from 0", "Give counts, or another family."),
}


@dataclass(frozen=True)
class Ground:
    """Sites, counts and means; fixed before the first round.

    Attributes
    ----------
    answering : the sites that answered the first call.
    family : gaussian, binomial or poisson.
    names : of the covariates, without an offset, (p,).
    offset : x has one as its last column.
    rows, sites : records, and sites with records, without the sites left out.
    small, least : number of sites left out, with fewer than `least` records.
    several : some site has more than one record.
    min_cell : of the task.
    centre : (p,), means of the covariates; middle : mean of the outcome.
    """

    answering: Exact
    family: str
    names: tuple[str, ...]
    offset: bool
    rows: int
    sites: int
    small: int
    least: int
    several: bool
    min_cell: int
    centre: Array
    middle: float

    @property
    def estimable(self) -> bool:
        """Whether τ² can be estimated: two sites and, except for counts, two records at one."""
        return self.sites > 1 and (self.several or self.family == "poisson")

    @property
    def note(self) -> str:
        """Warnings about few sites and sites left out; may be empty."""
        notes: list[str] = []
        if not self.estimable:
            what = "one site" if self.sites < 2 else "sites of one record each"
            notes.append(
                f"with {what}, τ² cannot be estimated and is set to 0: this is the ordinary "
                f"regression without a random intercept."
            )
        elif self.sites < FEW:
            notes.append(
                f"{self.sites} sites say little about how sites differ: τ² and its interval are "
                f"poorly known, and standard errors that depend on it are too small."
            )
        if self.small:
            notes.append(
                f"sites left out, with fewer than {self.least} records (min_cell), whose means "
                f"would tell of so few: {self.small}."
            )
        return " ".join(notes)

    @property
    def fed(self) -> Federation:
        """The sites."""
        return self.answering.fed

    def related(self, products: Array, middle: tuple[float, ...] = ()) -> None:
        """Refuse columns in which few records differ from others (`data.differences`).

        Parameters
        ----------
        products : with an intercept (q + 1, q + 1), of covariates about `centre` and, if its mean
            `middle` is given, of the outcome.
        """
        self.answering.related(about_means(products), np.r_[self.centre, middle])


class Top(NamedTuple):
    """The maximum of the likelihood.

    Attributes
    ----------
    gamma : (p + 2,): intercept at the means, coefficients per standard deviation, and τ.
    covariance : (p + 1, p + 1) of γ without τ.
    scale : (p,).
    sigma2 : σ²; 1 if the family is not gaussian.
    log_tau2_error : standard error of log τ²; nan at τ² = 0.
    log_likelihood, null_log_likelihood : at the maximum, and at the best fit with τ² = 0.
    """

    gamma: Array
    covariance: Array
    scale: Array
    sigma2: float
    log_tau2_error: float
    log_likelihood: float
    null_log_likelihood: float


def survey(fed: Federation, config: MixedSettings, task: Task) -> Ground:
    """Return counts and means of the sites' records.

    Raises
    ------
    DataError : no covariates, or an outcome that the family excludes.
    NothingToLearn : too few records, or too few of a class or counts above 0.
    SettingError : the family does not go with the kind of task.
    """
    names = task.features[:-1] if task.offset else task.features
    family = family_of(config.family, task)
    cell = max(task.min_cell, 1) if len(fed.sites) > 1 else 1
    least = cell if family == "gaussian" else 1
    link = LINKS.get(family, "identity")
    answering = exact_sums(fed, task, KINDS.get(family, "number"), link)
    total = answering.sum(totals, family=family, offset=task.offset, least=least)
    rows = int(total.rows)
    if total.small and not rows:
        raise NothingToLearn(
            f"every site has fewer than {least} records (min_cell), whose means would tell of so "
            f"few. Join sites, or take 'glm', which needs no site's own sums."
        )
    if not rows:
        raise NothingToLearn("no site holds any record; check their selection.")
    check_outcome(family, total, cell)
    if rows <= len(names) + 1:
        raise NothingToLearn(
            f"{rows} records are too few for {len(names)} covariates. Add records, or use fewer "
            f"covariates."
        )
    return Ground(
        answering=answering,
        family=family,
        names=tuple(names),
        offset=task.offset,
        rows=rows,
        sites=int(total.sites),
        small=int(total.small),
        least=least,
        several=bool(total.several),
        min_cell=task.min_cell,
        centre=total.x / rows,
        middle=float(total.y) / rows,
    )


def family_of(wanted: str, task: Task) -> str:
    """Return the family of a fit.

    Raises
    ------
    SettingError : a yes/no outcome with another family than binomial, or the reverse.
    """
    usual = "binomial" if task.kind == "classification" else USUAL.get(task.outcome)
    family = (usual or "gaussian") if wanted == "auto" else wanted
    if (family == "binomial") != (task.kind == "classification"):
        raise SettingError(
            f"family {family!r} of method 'mixed' does not go with {task.kind}; give "
            f"{'binomial' if task.kind == 'classification' else 'gaussian or poisson'}, or auto."
        )
    return family


def check_outcome(family: str, total: Totals, min_cell: int) -> None:
    """Refuse an outcome that the family excludes, or with too few records of a kind.

    Parameters
    ----------
    min_cell : smallest number of records of each class, or of counts above 0.
    """
    if total.wrong:
        what, remedy = RULES[family]
        raise DataError(f"the outcome of some records {what}. {remedy}")
    n, marked = int(total.rows), int(total.marked)
    if family == "binomial":
        check_classes(n, marked, min_cell)
    if family == "poisson" and marked < min_cell:
        raise NothingToLearn(
            f"fewer than {max(min_cell, 1)} records at all sites together have a count above 0 "
            f"(min_cell). Add sites or records, or check how the outcome is coded."
        )


def check_columns(information: Array, names: tuple[str, ...]) -> None:
    """Raise `SingularInformation`, with the covariates' names, for a singular (p + 1, p + 1)."""
    diagonal = np.diag(information)
    unit = np.sqrt(np.where(diagonal > SINGULAR**2 * diagonal[0], diagonal, 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(unit, unit))
    flat = values <= SINGULAR * values[-1]
    if flat.any():
        ratio = float(values[0] / values[-1])
        raise SingularInformation(collinear(names, vectors[1:, flat], ratio, remedy=""))
