"""The path of an L1 penalty as `Fit.plot` draws it: coefficients and held-out error against λ.

λ has a log scale, with a dotted line at the fit's own. If records were held out, their criterion
stands beside the coefficients: the mean squared error with its standard error, or van Houwelingen's
log-likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import NotSupported, Row
from fedcohort.report.charts import LOOKS, Series, lines_with_bands
from fedcohort.report.plots import Picture, drawn

#: Criteria of held-out records in rows of a path, and their panels.
HELD_OUT: Mapping[str, str] = {
    "mean_squared_error": "mean squared error held out, ± SE",
    "held_out_log_likelihood": "log-likelihood held out, for each event",
}


class PenaltyPath(Protocol):
    """Coefficients (L, p) at penalties (L,), the fit's own penalty, and a row for each."""

    penalties: Array
    coefficients: Array

    @property
    def chosen(self) -> int:
        """Which penalty is the fit's."""
        ...

    def rows(self) -> list[Row]:
        """Return a row for each penalty, with its values of `HELD_OUT`."""
        ...


def path_picture(path: PenaltyPath, covariates: Sequence[str]) -> Picture:
    """Return a path's coefficients, and what was found on records held out.

    Raises
    ------
    NotSupported : fewer than two penalties above 0.
    """
    shown = path.penalties > 0
    if shown.sum() < 2:
        raise NotSupported(
            "this fit's path has one penalty, so there is nothing to plot; penalty 'auto', or a "
            "share of L1 above 0, has more."
        )
    tried = path.penalties[shown].tolist()
    own = float(path.penalties[path.chosen])
    rows = [row for row, kept in zip(path.rows(), shown.tolist(), strict=True) if kept]
    found = _coefficients(path, shown, covariates)
    for key, panel in HELD_OUT.items():
        if key in rows[0]:
            points = [_judged(x, row, key) for x, row in zip(tried, rows, strict=True)]
            found.append(Series(label="", look="faint", points=points, panel=panel))
    count = int((path.coefficients[path.chosen] != 0).sum())
    chart = lines_with_bands(
        found, f"penalty λ, log scale; dotted: the fit's, {own:.3g}", "",
        own=True, log=True, upright=own if own > 0 else None,
    )  # fmt: skip
    said = (
        f"{len(tried)} penalties; at {own:.3g}, {count} of {len(covariates)} coefficients are not 0"
    )
    return drawn(chart, "Path of penalties", said)


def _judged(x: float, row: Mapping[str, Any], key: str) -> tuple[float, ...]:
    """Return a point, with the standard error on either side if there is one."""
    y, reach = float(row[key]), row.get("standard_error")
    return (x, y) if reach is None else (x, y, y - reach, y + reach)


def _coefficients(path: PenaltyPath, shown: Array, covariates: Sequence[str]) -> list[Series]:
    """Return a line per coefficient; those beyond the distinguishable ones share a grey look.

    The largest at the fit's penalty have names; of equal ones, the largest at the end.
    """
    at, end = np.abs(path.coefficients[path.chosen]), np.abs(path.coefficients[shown][-1])
    order: list[int] = np.lexsort((-end, -at)).tolist()
    named, others = order[: len(LOOKS)], order[len(LOOKS) :]
    looks = dict(zip(sorted(named), LOOKS, strict=False))
    tried = path.penalties[shown].tolist()
    return [
        Series(
            label=covariates[j] if j in looks else f"{len(others)} others",
            look=looks.get(j, "faint"),
            points=list(zip(tried, path.coefficients[shown, j].tolist(), strict=True)),
            panel="coefficient",
        )
        for j in [*others, *sorted(named)]
    ]
