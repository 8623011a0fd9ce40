"""Site steps of generalised linear models. All replies are sums over sites.

Covariates are standardised by the pooled centre and scale, so γ (the intercept and p coefficients)
is in units of the linear predictor per standard deviation. An offset is the last column of x.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data import exact
from fedcohort.data.tables import LabelledTable
from fedcohort.data.words import rows
from fedcohort.numerics.families import FAR, Family, irls_terms
from fedcohort.protocol import DataError, Site, message, summed

#: Deviance of an impossible mean, larger than any deviance of records.
IMPOSSIBLE = 1e300


@message
class Totals:
    """Numbers of records: all ``rows`` (), with y > 0, and with y > 1.

    Sums over records: weights w (), w y (), the offset's part of the mean (), and w x (p,).
    """

    rows: Array
    positive: Array
    others: Array
    weight: Array
    outcome: Array
    exposure: Array
    x: Array


@message
class Curvature:
    """The sums of `numerics.families` at γ, the intercept first.

    Deviance and Pearson's χ² (), score (p + 1,), information (p + 1, p + 1), the observed
    information if it differs, Σ ω² of the records' weights in it (), and with an offset deviance,
    score and information (3,) without covariates. If the family excludes some mean, the deviance is
    `IMPOSSIBLE` and the rest 0 (only finite numbers may leave a site); `reach` comes first, so that
    no sum is over the other sites alone.
    """

    deviance: Array
    pearson: Array
    score: Array
    information: Array
    observed: Array
    squares: Array
    null: Array


@message
class Reach:
    """Number of sites with an impossible mean (2,): at γ, and with the intercept alone."""

    beyond: Array


@message
class Saturated:
    """ℓ_s (), the log-likelihood if each mean is the outcome."""

    value: Array


LabelledSite = Site[LabelledTable, None]


@summed(blocks="rows")
def totals(site: LabelledSite, *, family: str, link: str, offset: bool) -> Totals:
    """Count the records and those whose outcome is above 0, and sum outcome and covariates."""
    x, shift, y, w = _columns(site.data, offset)
    _check_outcome(site, family)
    if link == "log" and (far := np.abs(shift) > FAR).any():
        raise DataError(
            f"site {site.name!r}: the offset is beyond ±{FAR:g} in {rows(far)}; it is added to the "
            f"logarithm of the mean. Give the logarithm of the exposure."
        )
    return Totals(
        rows=np.array(len(y)),
        positive=np.array((y > 0).sum()),
        others=np.array((y > 1).sum()),
        weight=np.array(w.sum()),
        outcome=np.array((w * y).sum()),
        exposure=np.array((w * (np.exp(shift) if link == "log" else shift)).sum()),
        x=w @ x,
    )


@summed(blocks="rows")
def reach(
    site: LabelledSite,
    *,
    family: str,
    link: str,
    offset: bool,
    centre: Array,
    scale: Array,
    gamma: Array,
    null: Array,
) -> Reach:
    """Report whether some mean is one that the family excludes; `curvature` comes next."""
    x, shift, y, _ = _columns(site.data, offset)
    law = Family(family, link)
    eta = gamma[0] + (x - centre) / scale @ gamma[1:] + shift
    tried = [eta, *(shift + one for one in null)]
    beyond = [law.parts(y, at) is None for at in tried]
    return Reach(np.array([*beyond, False][:2], float))


@summed(blocks="rows")
def curvature(
    site: LabelledSite,
    *,
    family: str,
    link: str,
    offset: bool,
    centre: Array,
    scale: Array,
    gamma: Array,
    null: Array,
) -> Curvature:
    """Sum the deviance, the score and the information over all records.

    At γ (p + 1,), with `centre` and `scale` (p,), and at `null`, the intercept (1,) of a model
    without covariates, or (0,).
    """
    x, shift, y, w = _columns(site.data, offset)
    law = Family(family, link)
    z = np.empty((len(y), len(gamma)))
    z[:, 0] = 1.0
    np.subtract(x, centre, out=z[:, 1:])
    z[:, 1:] /= scale
    here = irls_terms(law, z, y, shift, w, gamma)
    bare = np.zeros(0)
    if len(null):
        alone = irls_terms(law, z[:, :1], y, shift, w, null)
        worst = min(alone.deviance, IMPOSSIBLE)
        bare = np.array([worst, alone.score[0], alone.information[0, 0]])
    return Curvature(
        np.array(min(here.deviance, IMPOSSIBLE)),
        np.array(here.pearson if here.deviance < IMPOSSIBLE else 0.0),
        here.score,
        here.information,
        here.observed,
        np.array(here.squares),
        bare,
    )


@summed(blocks="rows")
def saturated(site: LabelledSite, *, family: str, link: str, dispersion: float) -> Saturated:
    """Sum the log-likelihood of a perfect fit, once, at the end."""
    y, w = site.data.y, _weight(site.data)
    return Saturated(np.array(Family(family, link).saturated(y, w, dispersion)))


STEPS = (*exact.STEPS, totals, reach, curvature, saturated)


def _columns(table: LabelledTable, offset: bool) -> tuple[Array, Array, Array, Array]:
    """Return x (n, p) without the offset, the offset (n,), y (n,) and weights (n,)."""
    n = len(table.y)
    shift = table.x[:, -1] if offset else np.zeros(n)
    return table.x[:, : table.x.shape[1] - offset], shift, table.y, _weight(table)


def _weight(table: LabelledTable) -> Array:
    return np.ones(len(table.y)) if table.weight is None else table.weight


def _check_outcome(site: LabelledSite, family: str) -> None:
    """Raise `DataError` for outcomes that the family excludes; the rows' numbers are named."""
    y = site.data.y
    if family == "gamma":
        bad, what, remedy = y <= 0, "is not above 0", "Correct or drop them"
    elif family == "poisson":
        bad, what, remedy = y < 0, "is below 0", "Correct or drop them"
        if site.data.weight is None and not bad.any():
            bad, what = y != np.floor(y), "is no whole number"
            remedy = "Give counts; or rates, with the exposure as 'weights'"
    else:
        return
    if bad.any():
        raise DataError(
            f"site {site.name!r}: the outcome {what} in {rows(bad)}, and family {family!r} cannot "
            f"have that. {remedy}, or choose another family."
        )
