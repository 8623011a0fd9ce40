"""A site's side of evaluating latent variables: its blind rows, and a model's values for them.

As in `judging` the coordinator sends a view, here `Coded`: a model with its preprocessing, or an
empty text for the site's own model (`alone`). The view gives `Coding` to the steps of
`metrics.sums.latent`. Its columns are the model's, then the dictionary's other columns, so they are
the same at all sites; a view that a site lacks has only unknown entries. Columns of an outcome are
excluded.

Revealed: nothing; by the steps what they declare.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Variable
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import columns_of
from fedcohort.data.prepare import Design
from fedcohort.metrics.latent import agreement
from fedcohort.protocol.views import view
from fedcohort.study.at_site.judging import Rows, Said
from fedcohort.study.at_site.placing import judged
from fedcohort.study.at_site.table import Halves
from fedcohort.study.judge.pooled.latent import Feature, features_of, filled_in, hidden_from
from fedcohort.study.run.engine import Run


def names_of(design: Design, variables: Sequence[Variable]) -> tuple[tuple[str, str], ...]:
    """Return name and view of each column (p,) of `Coding.x`; fits may see `variables`."""
    known = {c.name for c in design.columns}
    encoding = Encoding(tuple(v for v in variables if v.name not in known))
    strange = [(v.name, v.view) for v in encoding.numeric]
    strange += [(f"{v.name}={level}", v.view) for v in encoding.coded for level in v.levels[1:]]
    return (*zip(design.features, design.views, strict=True), *strange)


def views_there(variables: Sequence[Variable], frame: pd.DataFrame) -> dict[str, Array]:
    """Return, by view, which rows have an entry of it (n,); columns without a view form one."""
    found: dict[str, Array] = {}
    encoding = Encoding(tuple(variables))
    read = encoding(frame)
    known = [~np.isnan(values) for values in read.numbers], [codes >= 0 for codes in read.codes]
    for v, here in zip((*encoding.numeric, *encoding.coded), (*known[0], *known[1]), strict=True):
        found[v.view] = found.get(v.view, np.zeros(len(frame), bool)) | here
    return found


def learnt_columns(data: Rows) -> list[Variable]:
    """Return the columns that fits may see."""
    taken = columns_of(data.outcome)
    return [v for v in data.dictionary.features() if v.name not in taken]


@dataclass
class Coding:
    """Rows of one half in the form of `metrics.sums.latent.Rebuilt`, computed on demand.

    Attributes
    ----------
    frame : those of the half.
    """

    data: Rows
    frame: pd.DataFrame
    run: Run

    @cached_property
    def _strange(self) -> list[Feature]:
        known = {c.name for c in self.run.design.columns}
        unknown = [v for v in learnt_columns(self.data) if v.name not in known]
        return list(features_of(unknown, self.frame))

    @property
    def views(self) -> tuple[str, ...]:
        """The view of each column of x (p,)."""
        return (*self.run.design.views, *(s.view for s in self._strange))

    @cached_property
    def _given(self) -> Array:
        """The preprocessed rows (n, p0)."""
        return self.run.design.matrix(self.frame)

    @cached_property
    def x(self) -> Array:
        """Entries (n, p): the model's columns, then the others."""
        design = self.run.design
        known = self._given if design.impute == "none" else _unfilled(self.run, self.frame)
        return np.column_stack([known, *(s.values for s in self._strange)])

    @cached_property
    def strange(self) -> Array:
        """Whether a column is not in the model (p,)."""
        return np.arange(len(self.views)) >= len(self.run.design.views)

    @cached_property
    def hidden(self) -> Array:
        """Whether each row has the view of each column, and another one (n, p)."""
        there = views_there(learnt_columns(self.data), self.frame)
        return hidden_from(there, list(self.views))

    @cached_property
    def said(self) -> Array:
        """The model's reconstruction (n, p)."""
        return self._wide(self.run.model.reconstruct(self._given))

    @cached_property
    def agreed(self) -> tuple[Array, Array]:
        """The terms of `metrics.latent.agreement` (n, p) each; NaN for columns of other values."""
        wide = np.full((len(self.views), 2), np.nan)
        pairs = np.array(self.run.design.pairs).reshape(-1, 2)
        wide[: len(pairs)] = pairs
        return agreement(self.x, self.said, wide)

    @cached_property
    def filled(self) -> Array:
        """The model's imputation of each view from the others (n, p); NaN for rows without these.

        Raises
        ------
        NotSupported : the model does not impute.
        """
        asked = self.hidden[:, : len(self.run.design.views)]
        return self._wide(filled_in(self.run, self._given, asked))

    def _wide(self, said: Array) -> Array:
        return np.column_stack([said, np.full((len(said), len(self._strange)), np.nan)])


def _unfilled(run: Run, frame: pd.DataFrame) -> Array:
    return replace(run.design, impute="none").matrix(frame)


@view("coded")
@dataclass(frozen=True)
class Coded:
    """The rows of one half and their latent variables.

    Attributes
    ----------
    model : as in `Said`; "" for the site's own.
    half : "blind" or "train".
    """

    model: str
    half: str = "blind"

    @property
    def spec(self) -> str:
        """JSON text that determines the view."""
        return self._text

    @cached_property
    def _text(self) -> str:
        half = {} if self.half == "blind" else {"half": self.half}
        return json.dumps({"model": self.model, **half}, separators=(",", ":"))

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild the view.

        Raises
        ------
        ValueError : there is no such half.
        """
        parts: Mapping[str, Any] = json.loads(text)
        made = cls(str(parts["model"]), str(parts.get("half", "blind")))
        if made.half not in Halves._fields:
            raise ValueError("half")
        return made

    @cached_property
    def said(self) -> Said | None:
        """The evaluated model; None for the site's own."""
        return Said(self.model) if self.model else None

    def __call__(self, data: Rows, /) -> Coding | Rows:
        """Return the model's values for the half's rows; all rows if the site has no model.

        Raises
        ------
        DataError : the text holds no model, or one of another method than the session's.
        """
        run = judged(self.said, data)
        return data if run is None else Coding(data, getattr(data.halves, self.half), run)
