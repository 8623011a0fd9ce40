"""Iterative imputation: the EM algorithm for a multivariate normal, from sums over sites.

Dempster, Laird, Rubin, JRSS B 39, 1977; equations in `numerics.gaussian`. Each round asks for the
expected sums (3) at the current μ and Σ. Columns are in standard deviations from their pooled mean.
The start is the identity. `RIDGE` is added to the variances, so that collinear columns are allowed.
With enough rounds, the result maximises the observed-data likelihood.

Revealed: `Expected` each round, only as a sum over all sites: p + p² numbers for p columns. These
are expectations given the observed values of each row. At another μ and Σ, they weigh the rows'
patterns of missing values differently, so many rounds reveal more than the final mean and
covariance.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.encode import Encoding
from fedcohort.data.prepare.columns import Column, column_from, parts_of, plain_column
from fedcohort.data.prepare.joint import Joint, raw
from fedcohort.numerics.gaussian import Block, blocks, expected_sums
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed
from fedcohort.protocol.views import view

#: Largest number of rounds, and the change in standard deviations at which they end.
MOST_ROUNDS, TOLERANCE = 100, 1e-6
#: Added to each variance, in units of the observed variance.
RIDGE = 1e-7


class Incomplete(NamedTuple):
    """A table ``x`` (n, d), NaN where missing, with its rows grouped by pattern in ``blocks``."""

    x: Array
    blocks: Sequence[Block]


@view("incomplete")
@dataclass(frozen=True)
class IncompleteView:
    """View of columns in standard deviations from their pooled means.

    Attributes
    ----------
    columns : with limits and pooled levels.
    centre, scale : pooled mean and standard deviation (d,) of the values that are not missing.
    """

    columns: tuple[Column, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def spec(self) -> str:
        """JSON text that determines the view."""
        return self._text

    @cached_property
    def _text(self) -> str:
        plain = [plain_column(c) for c in self.columns], self.centre, self.scale
        return json.dumps({"incomplete": plain}, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild a view from `spec`."""
        columns, centre, scale = json.loads(text)["incomplete"]
        return cls(tuple(column_from(c) for c in columns), tuple(centre), tuple(scale))

    @cached_property
    def _encoding(self) -> Encoding:
        return Encoding(tuple(c.variable for c in self.columns))

    def __call__(self, frame: pd.DataFrame, /) -> Incomplete:
        """Return a table's columns, with rows grouped by their missing values.

        Raises
        ------
        DataError : as `Encoding` does.
        """
        x = np.empty((len(frame), len(self.centre)))
        for part, values in parts_of(self.columns, self._encoding(frame), len(frame)):
            x[part] = (raw(self.columns, values) - self.centre) / self.scale
        return Incomplete(x, blocks(np.isnan(x)))


@message
class Expected:
    """Expected sums at the current μ and Σ: ``total`` s (d,), ``products`` S (d, d)."""

    total: Array
    products: Array


@summed
def expected_moments(site: Site[Incomplete, None], *, mean: Array, precision: Array) -> Expected:
    """Sum the expectations given each row's observed values, eq. (3)."""
    return Expected(*expected_sums(site.data.x, site.data.blocks, mean, precision))


def fit_joint(
    fed: Federation, columns: Sequence[Column], rows: int, centre: Array, scale: Array
) -> Joint:
    """Return the normal distribution of the columns' pooled values.

    Parameters
    ----------
    fed : sites that hold data frames.
    columns : none of them constant.
    rows : of all sites.
    centre, scale : mean and standard deviation (d,) of the values that are not missing.
    """
    view = IncompleteView(tuple(columns), tuple(centre.tolist()), tuple(scale.tolist()))
    inside = fed.through(view)

    def ask(mean: Array, precision: Array) -> Expected:
        return inside.sum(expected_moments, mean=mean, precision=precision)

    *_, end = maximised(ask, rows, len(centre))
    found = end.covariance * np.outer(scale, scale)
    return Joint(
        tuple((centre + scale * end.mean).tolist()),
        tuple(tuple(row) for row in found.tolist()),
        end.rounds,
        end.change,
    )


class Reached(NamedTuple):
    """μ (d,) and Σ (d, d) after so many rounds, and the last round's largest change."""

    mean: Array
    covariance: Array
    rounds: int
    change: float


def maximised(ask: Callable[[Array, Array], Expected], rows: int, d: int) -> Iterator[Reached]:
    """Yield μ and Σ after each round of the EM algorithm, from 0 and the identity.

    Parameters
    ----------
    ask : (μ, Σ⁻¹) → the expected sums over all rows.
    """
    mean, covariance = np.zeros(d), np.eye(d)
    rounds, change = 0, np.inf
    while rounds < MOST_ROUNDS and change > TOLERANCE:
        precision = np.linalg.inv(covariance)
        sums = ask(mean, (precision + precision.T) / 2)
        step = sums.total / rows
        new = sums.products / rows - np.outer(step, step)
        new = (new + new.T) / 2 + RIDGE * np.eye(d)
        change = float(max(np.abs(step).max(), np.abs(new - covariance).max()))
        mean, covariance, rounds = mean + step, new, rounds + 1
        yield Reached(mean, covariance, rounds, change)
