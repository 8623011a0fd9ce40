"""Groups of patients: how tight they are, and what they tell of an outcome that no fit has seen.

Without an outcome, `metrics.clusters` gives silhouette, Calinski–Harabasz, cycle accuracy and the
error of reconstruction; all in x, as the model's preprocessing has it: models of one preprocessing
compare, others do not. The silhouette takes the cosine where every feature is 0/1, and lengths
otherwise; it compares all pairs, so of more than `MOST` blind rows it is of `MOST` drawn ones.

With an outcome, the clusters are looked at through it. Of survival, a cluster's risk is its hazard,
events per person-time of the training rows, and patients of one cluster are tied: half a pair each
in the C-index. Of classes, clusters are matched with them as well as can be.

`smallest_share` is of the training rows, and hidden where it is of 1 … m − 1 patients, with m the
`min_cell`. It has no draws, nor has the p-value of the log-rank test: rows that a bootstrap repeats
look more apart than they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, Survival, classes_of, levels_of
from fedcohort.metrics import clusters, resampled
from fedcohort.metrics.survival import concordance
from fedcohort.metrics.survival.kaplan_meier import group_leavers
from fedcohort.metrics.survival.log_rank import log_rank
from fedcohort.privacy.disclosure.counts import fewest
from fedcohort.protocol import DataError, NotSupported, Row
from fedcohort.study.judge.pooled.base import Metrics, constant
from fedcohort.study.results.rows import UNDRAWN
from fedcohort.study.run.engine import Problem, Run

#: The most rows of which all pairs are compared.
MOST = 2000
#: Of one group of all patients.
CHANCE = {"c_index": 0.5, "ari": 0.0, "nmi": 0.0}


@dataclass(frozen=True)
class Grouped:
    """What a fit says of the blind rows.

    Attributes
    ----------
    x : (n, p), as the model sees the rows.
    labels : (n,) integers in [0, k).
    clusters : k, of all clusters that training rows or blind ones are in.
    distance : what silhouettes take.
    smallest : the least share of the training rows in a cluster; nan where that is of few.
    origin : (p,), the mean of the training rows.
    rank : (n,) of the hazard of a row's cluster; None without survival.
    again : (n,) labels of the reconstructed rows; ``error`` (n,) their mean squared error. Both
        None where the model does not reconstruct.
    """

    x: Array
    labels: Array
    clusters: int
    distance: str
    smallest: float
    origin: Array
    rank: Array | None
    again: Array | None
    error: Array | None


def labels_of(run: Run, x: Array) -> Array:
    """Return the clusters (n,) of rows x (n, p), integers from 0.

    Raises
    ------
    DataError : the model says something else.
    """
    said = np.asarray(run.model.predict(x), float)
    if not (np.isfinite(said).all() and (said >= 0).all() and (said == np.floor(said)).all()):
        raise DataError("the model's labels are no whole numbers from 0; it is not of clusters.")
    return said.astype(np.int64)


@dataclass(frozen=True)
class Clusters:
    """The blind rows of one repeat, and what clusters are judged by.

    Attributes
    ----------
    train, test : training rows of the models that are judged, and blind rows.
    outcome, dictionary : what the clusters are looked at through; None for nothing.
    min_cell : fewer patients are not shown.
    seed : what the rows of the silhouette are drawn by.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    outcome: Outcome | None
    dictionary: Dictionary
    min_cell: int
    seed: int

    leading: ClassVar[str] = "silhouette"

    @classmethod
    def of(
        cls, problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
    ) -> Self:
        """Return the judge of blind rows; `problem` holds the training rows of all sites."""
        train = problem.pooled().frames["pooled"]
        return cls(train, test, problem.aside, problem.dictionary, problem.min_cell, seed)

    def taught(self, problem: Problem) -> Clusters:
        """Return the judge of models of these training rows alone."""
        return replace(self, train=problem.pooled().frames["pooled"])

    @property
    def can_rank(self) -> bool:
        """Whether there are so many rows that the silhouette is shown."""
        return len(self.test) >= fewest(self.min_cell)

    def on(self, rows: Array) -> Clusters:
        """Return the judge of some of the test rows, by a mask (n,)."""
        return replace(self, test=self.test[rows].reset_index(drop=True))

    @property
    def reference(self) -> Array | None:
        """Classes of the test rows (n,), integers from 0; None where there are none."""
        levels = levels_of(self.outcome, self.dictionary)
        return classes_of(self.test, self.outcome, levels) if levels else None

    @property
    def survival(self) -> tuple[Array, Array] | None:
        """Time and event of the test rows, (n,) each; None without."""
        if not isinstance(self.outcome, Survival):
            return None
        return self.outcome.arrays(self.test)

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Grouped:
        """Return what a fit says of the test rows, and of the training rows' clusters."""
        x, known = run.design.matrix(self.test), run.design.matrix(self.train)
        labels, own = labels_of(run, x), labels_of(run, known)
        k = int(max(labels.max(initial=0), own.max(initial=0))) + 1
        sizes = np.bincount(own, minlength=k)
        least = int(sizes[sizes > 0].min(initial=len(own)))
        rank = None
        if isinstance(self.outcome, Survival):
            hazard = clusters.hazards(own, *self.outcome.arrays(self.train), k)
            rank = np.unique(hazard, return_inverse=True)[1][labels].astype(float)
        again = error = None
        if {"cycle_accuracy", "reconstruction"} & set(wanted):
            again, error = again_of(run, x)
        return Grouped(
            x, labels, k,
            "cosine" if np.isin(known, (0.0, 1.0)).all() else "euclidean",
            least / len(own) if least >= self.min_cell else np.nan,
            known.mean(axis=0), rank, again, error,
        )  # fmt: skip

    def metrics(self, said: Grouped, wanted: tuple[str, ...]) -> Metrics:
        """Return the wanted metrics of clusters; None where one is not defined."""
        found = self.draws(said, np.ones((1, len(said.labels)), np.int64), wanted)
        shown = {k: float(v[0]) for k, v in found.items()}
        if "smallest_share" in wanted:
            shown["smallest_share"] = said.smallest
        if "log_rank_p" in wanted and (seen := self.survival) is not None:
            time, event = seen
            names, group = np.unique(said.labels, return_inverse=True)
            grid = np.unique(time)
            shown["log_rank_p"] = log_rank(group_leavers(group, len(names), time, event, grid)).p
        if "c_index" in wanted and (seen := self.survival) is not None and said.rank is not None:
            shown["c_index"] = concordance.harrell(said.rank, *seen)
        return {m: shown[m] if np.isfinite(shown.get(m, np.nan)) else None for m in wanted}

    def draws(self, said: Grouped, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """Return the wanted metrics at each of B weightings (B, n) of the test rows: (B,) each."""
        found: dict[str, Array] = {}
        if "silhouette" in wanted:
            rows = self._sampled(len(said.labels))
            found["silhouette"] = clusters.silhouette(
                said.x[rows], said.labels[rows], said.distance, weights[:, rows]
            )
        if "calinski_harabasz" in wanted:
            sums = clusters.scatter(said.x, said.labels, said.clusters, said.origin, weights)
            found["calinski_harabasz"] = clusters.calinski_harabasz(sums)
        if "cycle_accuracy" in wanted and said.again is not None:
            found["cycle_accuracy"] = clusters.cycle_accuracy(said.labels, said.again, weights)
        if "reconstruction" in wanted and said.error is not None:
            found["reconstruction"] = weights @ said.error / np.maximum(weights.sum(axis=1), 1)
        if "c_index" in wanted and (seen := self.survival) is not None and said.rank is not None:
            found["c_index"] = resampled.harrell(weights, said.rank, *seen)
        if _AGAINST.keys() & set(wanted) and (classes := self.reference) is not None:
            table = clusters.contingency(said.labels, classes, weights)
            found |= {name: score(table) for name, score in _AGAINST.items() if name in wanted}
        nothing = np.full(len(weights), np.nan)
        return {m: found.get(m, nothing) for m in wanted if m not in UNDRAWN}

    def _sampled(self, n: int) -> Array:
        """Return which of n rows the silhouette is of: all, or `MOST` drawn ones (m,)."""
        if n <= MOST:
            return np.arange(n)
        rng = np.random.default_rng((self.seed, 0x73696C68))
        return np.sort(rng.choice(n, MOST, replace=False))

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of one who sees a single group; tightness has no value for it."""
        return {k: v for k, v in constant(CHANCE, weights).items() if k in wanted}

    def groups(self, run: Run) -> list[Row]:
        """Return nothing: clusters predict no number that could be seen."""
        return []

    def decision(self, run: Run) -> list[Row]:
        """Return nothing: nothing here is a risk."""
        return []


#: Metrics of a table of clusters by classes.
_AGAINST = {
    "accuracy": clusters.accuracy,
    "ari": clusters.adjusted_rand,
    "nmi": clusters.normalised_mutual_information,
}


def again_of(run: Run, x: Array) -> tuple[Array | None, Array | None]:
    """Return labels of reconstructed rows and the error of each (n,); None where there are none."""
    try:
        back = np.asarray(run.model.reconstruct(x), float)
    except NotSupported:
        return None, None
    return labels_of(run, back), ((back - x) ** 2).mean(axis=1)
