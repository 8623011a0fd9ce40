"""A site's side of evaluating clusters: a model's cluster of each of its rows.

As in `judging` the coordinator sends a view, here `Clustered`: a model with its preprocessing, a
half of the rows, and optionally the model of an earlier arm, for comparison. An empty text means
the site's own model (`alone`). The view gives `Placed` to the steps of `metrics.sums.clusters`, and
to those that compare risks, here the clusters'.

An outcome is read here for the first time: no fit had it.

Revealed: nothing; by the steps what they declare.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Survival, classes_of, levels_of
from fedcohort.data.prepare import Design
from fedcohort.protocol import DataError, Fitted, NotSupported
from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.views import view
from fedcohort.study.at_site.judging import Rows, Said
from fedcohort.study.at_site.table import Halves
from fedcohort.study.judge.pooled.clusters import (
    Rebuilt,
    agreement_of,
    complete,
    labels_of,
    rebuilt_of,
)
from fedcohort.study.judge.shown.cluster_features import Levels, Number, columns
from fedcohort.study.judge.shown.cluster_map import latent
from fedcohort.study.run.engine import Run


def clusters_of(model: Fitted) -> int:
    """Return the number of clusters of a model, from the ``cluster`` numbers in its summary.

    Raises
    ------
    DataError : the summary does not list them.
    """
    try:
        rows = model.summary()
    except NotSupported:
        rows = []
    numbers = [row.get("cluster") for row in rows]
    if not numbers or not all(type(n) is int and n >= 0 for n in numbers):
        raise DataError(
            "the model's summary does not list its clusters. Rows cannot be counted by them."
        )
    return 1 + max(n for n in numbers if isinstance(n, int))


@dataclass
class Placed:
    """Rows of one half in the form of `metrics.sums.clusters.Grouped`, computed on demand.

    Attributes
    ----------
    frame : those of the half.
    old : an earlier model, or None.
    ranks : (k,) risk of each cluster; empty for its number.
    """

    data: Rows
    frame: pd.DataFrame
    run: Run
    old: Run | None
    ranks: tuple[float, ...]

    lost = 0

    @cached_property
    def _given(self) -> Array:
        """Preprocessed features (n, p); NaN of a method that takes missing entries."""
        return self.run.design.matrix(self.frame)

    @cached_property
    def x(self) -> Array:
        """Preprocessed features (n, p), without missing entries (`complete`)."""
        return complete(self.run, self._given)

    @cached_property
    def z(self) -> Array:
        """The rows (n, d) in the model's latent space, or x."""
        return latent(self.run, self._given)

    @cached_property
    def clusters(self) -> int:
        """Number of clusters of the model."""
        return clusters_of(self.run.model)

    @cached_property
    def labels(self) -> Array:
        """The cluster (n,) of each row.

        Raises
        ------
        DataError : a row has a cluster that the model does not list.
        """
        return _labels(self.run, self._given, self.clusters)

    @cached_property
    def before(self) -> tuple[Array, int]:
        """The cluster (n,) of each row by the earlier model, and its number of clusters."""
        if self.old is None:
            return np.zeros(len(self.frame), np.int64), 1
        k = clusters_of(self.old.model)
        return _labels(self.old, self.old.design.matrix(self.frame), k), k

    @cached_property
    def again(self) -> tuple[Array, Array] | None:
        """Labels of reconstructed rows, and the error of each (n,); None without any."""
        return None if self._rebuilt is None else self._rebuilt[1:]

    @cached_property
    def agreed(self) -> tuple[Array, Array] | None:
        """How far known entries of two-valued features come back (n, p); None without."""
        return None if self._rebuilt is None else agreement_of(self.run, self.frame, self._rebuilt)

    @cached_property
    def _rebuilt(self) -> Rebuilt | None:
        return rebuilt_of(self.run, self._given)

    @cached_property
    def _columns(self) -> list[Levels | Number]:
        return list(columns(self.run.design, self.frame))

    @property
    def codes(self) -> tuple[tuple[Array, int], ...]:
        """Each column of levels (n,), and its number of levels."""
        return tuple((c.codes, len(c.features)) for c in self._columns if isinstance(c, Levels))

    @property
    def numbers(self) -> Array:
        """Numeric columns (n, q), NaN if missing."""
        found = [c.values for c in self._columns if isinstance(c, Number)]
        return np.column_stack(found) if found else np.zeros((len(self.frame), 0))

    # the outcome ------------------------------------------------------------------------------

    @property
    def _levels(self) -> tuple[str, ...]:
        return levels_of(self.data.outcome, self.data.dictionary)

    @property
    def classes(self) -> int:
        """Number of classes of the outcome; 0 for none."""
        return len(self._levels)

    @cached_property
    def reference(self) -> Array:
        """The class (n,) of each row; 0 without classes."""
        outcome = self.data.outcome if self._levels else None
        return classes_of(self.frame, outcome, self._levels)

    @cached_property
    def _seen(self) -> tuple[Array, Array]:
        if not isinstance(self.data.outcome, Survival):
            return np.zeros(len(self.frame)), np.zeros(len(self.frame), bool)
        time, event = self.data.outcome.arrays(self.frame)
        return time, np.asarray(event, bool)

    @property
    def time(self) -> Array:
        """Time under observation (n,); 0 without survival."""
        return self._seen[0]

    @property
    def event(self) -> Array:
        """Whether the event was seen (n,)."""
        return self._seen[1]

    @property
    def risk(self) -> Array:
        """The risk of each row (n,)."""
        if not self.ranks:
            return self.labels.astype(float)
        return np.array(self.ranks)[self.labels]


def _labels(run: Run, x: Array, k: int) -> Array:
    labels = labels_of(run, x)
    if labels.max(initial=0) >= k:
        raise DataError("the model assigns rows to clusters that its summary does not list.")
    return labels


@view("clustered")
@dataclass(frozen=True)
class Clustered:
    """The clusters of one half's rows.

    Attributes
    ----------
    model : as in `Said`; "" for the site's own.
    half : "train" or "blind".
    before : the model of an earlier arm, for comparison; "" for none.
    ranks : (k,) risk of each cluster; empty for its number.
    """

    model: str
    half: str = "blind"
    before: str = ""
    ranks: tuple[float, ...] = ()

    @property
    def spec(self) -> str:
        """JSON text that determines the view."""
        return self._text

    @cached_property
    def _text(self) -> str:
        parts = {
            "model": self.model, "half": self.half, "before": self.before, "ranks": self.ranks,
        }  # fmt: skip
        return json.dumps(parts, separators=(",", ":"))

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild the view."""
        parts = json.loads(text)
        made = cls(
            str(parts["model"]), str(parts["half"]), str(parts["before"]),
            tuple(map(float, parts["ranks"])),
        )  # fmt: skip
        if made.half not in Halves._fields or not np.isfinite(made.ranks).all():
            raise ValueError("half")
        return made

    @cached_property
    def said(self) -> Said | None:
        """The evaluated model; None for the site's own."""
        return Said(self.model) if self.model else None

    @cached_property
    def earlier(self) -> Said | None:
        """The model to compare with."""
        return Said(self.before) if self.before else None

    def __call__(self, data: Rows, /) -> Placed | Rows:
        """Return the clusters of the half's rows; the rows if the site has no model.

        Raises
        ------
        DataError : the text holds no model, or one of another method than the session's; or the
            number of ranks is not that of clusters.
        """
        frame: pd.DataFrame = getattr(data.halves, self.half)
        run = judged(self.said, data)
        if run is None:
            return data
        old = None if self.earlier is None else run_of(*self.earlier.restored[1:])
        if self.ranks and len(self.ranks) != clusters_of(run.model):
            raise DataError("the view's number of ranks is not the model's number of clusters.")
        return Placed(data, frame, run, old, self.ranks)


def judged(said: Said | None, data: Rows) -> Run | None:
    """Return the evaluated model: the sent one, or else the site's own; None if it has none.

    Raises
    ------
    DataError : as `Said.model_of`.
    """
    found = data.own() if said is None else said.model_of(data.method)
    return None if found is None else run_of(*found)


def run_of(model: Fitted, design: Design) -> Run:
    """Return a model and its preprocessing as a `Run`."""
    return Run(model, design, [], Ledger(1))
