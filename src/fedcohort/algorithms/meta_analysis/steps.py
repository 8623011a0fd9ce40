"""The site step of `meta_analysis`: it returns a site's own coefficients."""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.meta_analysis.cells import singled_out
from fedcohort.algorithms.meta_analysis.sitefit import (
    Records,
    SiteFit,
    cox_fit,
    family_fit,
    too_little,
)
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.data.words import rows
from fedcohort.numerics.coxph import Extra
from fedcohort.numerics.families import FAR, Family
from fedcohort.protocol import DataError, Site, gathered, message


@message
class OwnFit:
    """A site's own regression.

    ``reason`` is 0, or the reason for none; ``wrong``: the outcome is impossible; ``blame`` (p,):
    the covariates concerned; ``coefficients`` and ``errors`` (k,); ``covariance`` (k, k), or (0, 0)
    if not asked for.
    """

    reason: Array
    wrong: Array
    blame: Array
    coefficients: Array
    errors: Array
    covariance: Array


@gathered
def own_fit(
    site: Site[LabelledTable | SurvivalTable, None],
    *,
    family: str,
    link: str,
    ties: str,
    origin: Array,
    offset: bool,
    full: bool,
    least: int,
    tol: float,
    max_rounds: int,
) -> OwnFit:
    """Fit the site's own regression, and reveal its coefficients and standard errors.

    Covariates are relative to `origin` (p,). `full` also reveals the covariance of the
    coefficients. A site with too few records for `least` returns only that.

    Raises
    ------
    DataError : with link log, an offset beyond ± `FAR`.
    """
    x = site.data.x[:, :-1] if offset else site.data.x
    shift = site.data.x[:, -1] if offset else np.zeros(len(x))
    if link == "log" and (far := np.abs(shift) > FAR).any():
        raise DataError(
            f"site {site.name!r}: the offset is beyond ±{FAR:g} in {rows(far)}; it is added to a "
            f"logarithm. Give the logarithm of the exposure."
        )
    if isinstance(site.data, SurvivalTable):
        wrong = False
        found = _cox(site.data, x - origin, shift, least, ties, tol, max_rounds)
    else:
        y = np.asarray(site.data.y, float)
        wrong = _impossible(family, y, site.data.weight is not None)
        weight = np.ones(len(y)) if site.data.weight is None else site.data.weight
        table = Records(x - origin, y, shift, weight)
        found = _family(Family(family, link), table, least, tol, max_rounds, wrong)
    return OwnFit(
        np.array(found.reason),
        np.array(wrong),
        found.blame,
        found.coefficients,
        np.sqrt(np.diag(found.covariance)),
        found.covariance if full else np.zeros((0, 0)),
    )


STEPS = (own_fit,)


def _cox(
    table: SurvivalTable,
    x: Array,
    shift: Array,
    least: int,
    ties: str,
    tol: float,
    max_rounds: int,
) -> SiteFit:
    event = np.asarray(table.event, bool)
    few = too_little(x, int(event.sum()), len(x), x.shape[1], least)
    few = few or singled_out(
        x,
        np.zeros((len(x), 0)),
        shift,
        np.ones(len(x)) if table.weight is None else table.weight,
        kind=event,
        link="log",
        coefficients=x.shape[1],
        least=least,
    )
    extra = Extra(table.entry, table.weight, shift if shift.any() else None)
    return few or cox_fit(x, table.time, event, extra, ties, tol, max_rounds)


def _family(
    family: Family, table: Records, least: int, tol: float, max_rounds: int, wrong: bool
) -> SiteFit:
    n = len(table.y)
    marked, others = n, n
    if family.name in ("binomial", "poisson"):
        marked = int((table.y > 0).sum())
        others = n - marked if family.name == "binomial" else n
    few = too_little(table.x, marked, others, table.x.shape[1] + 1, n + 1 if wrong else least)
    few = few or singled_out(
        table.x,
        table.y[:, None],
        table.offset,
        table.weight,
        kind=table.y > 0 if family.name in ("binomial", "poisson") else None,
        link=family.link,
        coefficients=table.x.shape[1] + 1,
        least=least,
    )
    return few or family_fit(family, table, tol, max_rounds)


def _impossible(family: str, y: Array, weighted: bool) -> bool:
    """Return whether the family excludes some value; weighted counts are rates."""
    if family == "binomial":
        return bool(((y != 0) & (y != 1)).any())
    if family == "poisson":
        return bool(((y < 0) | ((y != np.floor(y)) & (not weighted))).any())
    return bool((y <= 0).any()) if family == "gamma" else not np.isfinite(y).all()
