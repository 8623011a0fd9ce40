"""A site's own comparison of virtual rows with its blind rows.

The coordinator sends a view, `Drawn`: a model with its preprocessing, or an empty text for the
site's own model. The site draws as many rows as it has blind rows, by a seed of its own, and
compares them with these: the mean error of the columns' distributions and that of their
correlations. Both are rounded so that no patient follows from them, and reported if there are
enough blind rows. A site whose patients differ from the others' has larger errors for a common
model.

Revealed, of each site: these two numbers, for each model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import fewest
from fedcohort.privacy.disclosure.rounding import by_patients
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered
from fedcohort.protocol.views import view
from fedcohort.study.at_site.judging import Rows, Said
from fedcohort.study.at_site.placing import judged
from fedcohort.study.judge.pooled.virtual import MOST
from fedcohort.study.run.engine import Run
from fedcohort.study.virtual.comparing import Comparison
from fedcohort.study.virtual.drawing import Drawing

#: Metrics of a site's own blind rows, in the order of `OwnLikeness`.
OWN = ("marginal_error", "association_error")


@dataclass(frozen=True)
class Beside:
    """A site's rows, and the model that draws virtual ones."""

    data: Rows
    run: Run


@view("drawn")
@dataclass(frozen=True)
class Drawn:
    """The blind rows, and a model that draws rows.

    Attributes
    ----------
    model : as in `Said`; "" for the site's own.
    """

    model: str

    @property
    def spec(self) -> str:
        """JSON text that determines the view."""
        return self._text

    @cached_property
    def _text(self) -> str:
        return json.dumps({"drawn": self.model}, separators=(",", ":"))

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild the view."""
        parts: Mapping[str, Any] = json.loads(text)
        return cls(str(parts["drawn"]))

    @cached_property
    def said(self) -> Said | None:
        """The evaluated model; None for the site's own."""
        return Said(self.model) if self.model else None

    def __call__(self, data: Rows, /) -> Beside | Rows:
        """Return the rows and the model; the rows alone if the site has no model.

        Raises
        ------
        DataError : the text holds no model, or one of another method than the session's.
        """
        run = judged(self.said, data)
        return data if run is None else Beside(data, run)


@message
class OwnLikeness:
    """Metrics (2,) of virtual rows by the site's own blind rows, and which are ``told`` (2,)."""

    values: Array
    told: Array


@gathered
def tell_own_likeness(site: Site[Beside | Rows, None], *, min_cell: int) -> OwnLikeness:
    """Errors of virtual rows' columns and correlations on the site's own blind rows."""
    d = site.data
    rows = d if isinstance(d, Rows) else d.data
    n, least = len(rows.halves.blind), max(min_cell, rows.least)
    found = [np.nan, np.nan]
    if not isinstance(d, Rows) and n >= fewest(least):
        found = _own(d, site.seed)
    values = np.array([by_patients(v, n, least) for v in found])
    told = np.isfinite(values)
    return OwnLikeness(np.where(told, values, 0.0), told)


STEPS = (tell_own_likeness,)


def _own(d: Beside, seed: int) -> list[float]:
    """Return the errors of virtual rows by the site's blind rows."""
    rows = d.data
    drawing = Drawing(d.run.model, d.run.design, rows.dictionary, rows.outcome)
    blind = rows.halves.blind
    virtual = drawing.table(min(len(blind), MOST), seed % 2**32)
    said = Comparison.of(virtual, blind, blind, rows.dictionary, drawing.drawn)
    once = np.ones((1, len(blind)))
    return [float(said.marginal_errors().mean()), float(said.association_errors(once)[0])]
