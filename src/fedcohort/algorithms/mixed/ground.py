"""What every fit of `mixed` starts from: the records counted, and sums that no site may miss."""

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
from fedcohort.numerics.blame import SINGULAR, collinear
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

#: Fewer sites than this say little about how sites differ.
FEW = 5
#: By which an offset acts, where it is not added to the outcome's mean.
LINKS = {"binomial": "logit", "poisson": "log"}
#: What records of a family are told apart by.
KINDS: Mapping[str, Kind] = {"binomial": "class", "poisson": "count"}
#: What a value that a family cannot have breaks.
RULES = {
    "gaussian": ("is infinite", "Correct or drop them."),
    "binomial": ("is neither 0 nor 1", "Give an outcome of two levels, or another family."),
    "poisson": ("is no whole number from 0", "Give counts, or another family."),
}


@dataclass(frozen=True)
class Ground:
    """What is fixed before the first round.

    Attributes
    ----------
    whole : the sites that answered the first call.
    family : gaussian, binomial or poisson.
    names : of the covariates, without an offset, (p,).
    offset : whether x has one as its last column.
    rows, sites : records, and sites that have some, without those left out.
    small, least : how many sites are left out, which have fewer than so many records.
    several : whether some site has more than one record.
    min_cell : of the task.
    centre : (p,), means of the covariates; middle : that of the outcome.
    """

    whole: Exact
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
        """Whether there is any telling how sites differ: two sites, and two records at one.

        Counts of one record a site tell it by how much they differ.
        """
        return self.sites > 1 and (self.several or self.family == "poisson")

    @property
    def note(self) -> str:
        """What is to be said of the sites; empty where they are many, and none is left out."""
        said: list[str] = []
        if not self.estimable:
            what = "one site" if self.sites < 2 else "sites of one record each"
            said.append(
                f"with {what}, τ² cannot be told and is taken as 0: this is the ordinary "
                f"regression without a random intercept."
            )
        elif self.sites < FEW:
            said.append(
                f"{self.sites} sites say little about how sites differ: τ² and its interval are "
                f"poorly known, and standard errors that rest on it are too small."
            )
        if self.small:
            said.append(
                f"sites left out, with fewer than {self.least} records (min_cell), whose means "
                f"would tell of so few: {self.small}."
            )
        return " ".join(said)

    @property
    def fed(self) -> Federation:
        """The sites themselves."""
        return self.whole.fed

    def related(self, products: Array, middle: tuple[float, ...] = ()) -> None:
        """Refuse columns in which few records differ from others (`data.differences`).

        Parameters
        ----------
        products : with an intercept (q + 1, q + 1), of covariates about `centre` and, if its mean
            `middle` is given, of the outcome.
        """
        self.whole.related(about_means(products), np.r_[self.centre, middle])


class Top(NamedTuple):
    """Where a climb ended.

    Attributes
    ----------
    gamma : (p + 2,): intercept at the means, coefficients per standard deviation, and τ.
    covariance : (p + 1, p + 1) of γ without τ.
    scale : (p,).
    sigma2 : σ²; 1 of other families than the gaussian.
    log_tau2_error : standard error of log τ²; nan at τ² = 0.
    log_likelihood, null_log_likelihood : at the end, and of the best fit with τ² = 0.
    """

    gamma: Array
    covariance: Array
    scale: Array
    sigma2: float
    log_tau2_error: float
    log_likelihood: float
    null_log_likelihood: float


def survey(fed: Federation, config: MixedSettings, task: Task) -> Ground:
    """Count the records, and take the means as origin.

    Raises
    ------
    DataError : no covariates, an outcome that the family cannot have, or too little of it.
    SettingError : the family does not go with the kind of task.
    """
    names = task.features[:-1] if task.offset else task.features
    family = family_of(config.family, task)
    cell = max(task.min_cell, 1) if len(fed.sites) > 1 else 1
    least = cell if family == "gaussian" else 1
    link = LINKS.get(family, "identity")
    whole = exact_sums(fed, task, KINDS.get(family, "number"), link)
    total = whole.sum(totals, family=family, offset=task.offset, least=least)
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
        whole=whole,
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


def check_outcome(family: str, total: Totals, least: int) -> None:
    """Refuse an outcome that the family cannot have, or that tells nothing.

    Parameters
    ----------
    least : records that each class of a yes/no outcome, or the counts above 0, must have.
    """
    if total.wrong:
        what, remedy = RULES[family]
        raise DataError(f"the outcome of some records {what}. {remedy}")
    n, marked = int(total.rows), int(total.marked)
    if family == "binomial":
        check_classes(n, marked, least)
    if family == "poisson" and marked < least:
        raise NothingToLearn(
            f"fewer than {max(least, 1)} records at all sites together have a count above 0 "
            f"(min_cell). Add sites or records, or check how the outcome is coded."
        )


def check_columns(information: Array, names: tuple[str, ...]) -> None:
    """Refuse an information matrix (p + 1, p + 1), intercept first, that is flat somewhere.

    Raises
    ------
    SingularInformation : the covariates to blame are named.
    """
    diagonal = np.diag(information)
    unit = np.sqrt(np.where(diagonal > SINGULAR**2 * diagonal[0], diagonal, 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(unit, unit))
    flat = values <= SINGULAR * values[-1]
    if flat.any():
        ratio = float(values[0] / values[-1])
        raise SingularInformation(collinear(names, vectors[1:, flat], ratio, remedy=""))
