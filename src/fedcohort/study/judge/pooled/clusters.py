"""Clusters of patients: internal measures, and agreement with an outcome that no fit has seen.

Without an outcome, `metrics.clusters` gives silhouette, Calinski–Harabasz, cycle accuracy and the
reconstruction error, all in the model's preprocessed x: only models of one preprocessing compare.
If a study names them, both accuracies of `metrics.latent` are of known entries with two values, and
G is the reconstruction error of the training rows over that of the blind rows (D6.2, 7.4.1).
The silhouette uses cosine distance if every feature is 0/1, else Euclidean distance. It compares
all pairs, so with more than `MOST` blind rows it uses a sample of `MOST`.

With survival, a cluster's risk is its hazard, events per person-time of the training rows; patients
of one cluster are tied: half a pair each in the C-index. With classes, clusters are matched to
classes optimally.

`smallest_share` is that of the training rows, hidden if it is of 1 … m − 1 patients, m =
`min_cell`. It has no draws, nor has the p-value of the log-rank test: repeated rows in a bootstrap
make clusters look more separate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fedcohort.arrays import Array, ratio
from fedcohort.data.outcome import Survival, classes_of, levels_of
from fedcohort.metrics import clusters, resampled
from fedcohort.metrics.latent import agreement
from fedcohort.metrics.survival import concordance
from fedcohort.metrics.survival.kaplan_meier import group_leavers
from fedcohort.metrics.survival.log_rank import log_rank
from fedcohort.protocol import DataError, NotSupported, Row
from fedcohort.study.judge.pooled.base import BesideTraining, Metrics, constant
from fedcohort.study.results.rows import UNDRAWN
from fedcohort.study.run.engine import Run

#: Largest number of rows for all pairs.
MOST = 2000
#: Metrics of one cluster of all patients.
CHANCE = {"c_index": 0.5, "ari": 0.0, "nmi": 0.0}


class Rebuilt(NamedTuple):
    """Rows after reconstruction.

    ``said`` (n, p); ``labels`` (n,); ``error`` (n,), mean squared error of a row's known entries.
    """

    said: Array
    labels: Array
    error: Array


@dataclass(frozen=True)
class Grouped:
    """A fit's clusters of the blind rows.

    Attributes
    ----------
    x : (n, p), preprocessed; missing entries, of a method that takes them, are `complete`d.
    labels : (n,) integers in [0, k).
    clusters : k, number of clusters with training or blind rows.
    distance : metric of the silhouette.
    smallest : smallest share of the training rows in a cluster; nan if hidden.
    origin : (p,), mean of the training rows.
    rank : (n,) rank of the hazard of a row's cluster; None without survival.
    rebuilt : of reconstructed rows; None if the model does not reconstruct, or no metric needs it.
    trained : mean squared error of the reconstructed training rows; nan without.
    agreed : by row (3, n), the entries of two-valued features, and sums of both terms of
        `metrics.latent.agreement`; None without.
    """

    x: Array
    labels: Array
    clusters: int
    distance: str
    smallest: float
    origin: Array
    rank: Array | None
    rebuilt: Rebuilt | None
    trained: float
    agreed: Array | None


def labels_of(run: Run, x: Array) -> Array:
    """Return the clusters (n,) of rows x (n, p), integers from 0.

    Raises
    ------
    DataError : the model predicts something else.
    """
    said = np.asarray(run.model.predict(x), float)
    if not (np.isfinite(said).all() and (said >= 0).all() and (said == np.floor(said)).all()):
        raise DataError(
            "the model predicts labels that are not whole numbers from 0. Give a model of clusters."
        )
    return said.astype(np.int64)


@dataclass(frozen=True)
class Clusters(BesideTraining):
    """The blind rows of one repeat, and what their metrics need.

    Attributes
    ----------
    seed : of the silhouette's sample.
    """

    leading: ClassVar[str] = "silhouette"

    @property
    def reference(self) -> Array | None:
        """Classes of the test rows (n,), integers from 0; None without."""
        levels = levels_of(self.outcome, self.dictionary)
        return classes_of(self.test, self.outcome, levels) if levels else None

    @property
    def survival(self) -> tuple[Array, Array] | None:
        """Time and event of the test rows, (n,) each; None without."""
        if not isinstance(self.outcome, Survival):
            return None
        return self.outcome.arrays(self.test)

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Grouped:
        """Return a fit's clusters of the test rows, and facts of the training rows' clusters."""
        x, known = run.design.matrix(self.test), run.design.matrix(self.train)
        labels, own = labels_of(run, x), labels_of(run, known)
        full, learnt = complete(run, x), complete(run, known)
        k = int(max(labels.max(initial=0), own.max(initial=0))) + 1
        sizes = np.bincount(own, minlength=k)
        least = int(sizes[sizes > 0].min(initial=len(own)))
        rank = None
        if isinstance(self.outcome, Survival):
            hazard = clusters.hazards(own, *self.outcome.arrays(self.train), k)
            rank = np.unique(hazard, return_inverse=True)[1][labels].astype(float)
        rebuilt = agreed = None
        if REBUILT & set(wanted):
            rebuilt = rebuilt_of(run, x)
        if rebuilt is not None and AGREED.keys() & set(wanted):
            expected, rounded = agreement_of(run, self.test, rebuilt)
            parts = ~np.isnan(expected), expected, rounded
            agreed = np.stack([np.nansum(part, axis=1) for part in parts])
        trained = rebuilt_of(run, known) if "g_ratio" in wanted else None
        return Grouped(
            full, labels, k,
            "cosine" if np.isin(learnt, (0.0, 1.0)).all() else "euclidean",
            least / len(own) if least >= self.min_cell else np.nan,
            learnt.mean(axis=0), rank, rebuilt,
            np.nan if trained is None else float(trained.error.mean()), agreed,
        )  # fmt: skip

    def metrics(self, said: Grouped, wanted: tuple[str, ...]) -> Metrics:
        """Return the wanted metrics of clusters; None if not defined."""
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
        """See `Judge`."""
        found: dict[str, Array] = {}
        if "silhouette" in wanted:
            rows = self._sampled(len(said.labels))
            found["silhouette"] = clusters.silhouette(
                said.x[rows], said.labels[rows], said.distance, weights[:, rows]
            )
        if "calinski_harabasz" in wanted:
            sums = clusters.scatter(said.x, said.labels, said.clusters, said.origin, weights)
            found["calinski_harabasz"] = clusters.calinski_harabasz(sums)
        if said.rebuilt is not None:
            again, error = said.rebuilt.labels, said.rebuilt.error
            found["cycle_accuracy"] = clusters.cycle_accuracy(said.labels, again, weights)
            found["reconstruction"] = weights @ error / np.maximum(weights.sum(axis=1), 1)
            found["g_ratio"] = ratio(np.full(len(weights), said.trained), found["reconstruction"])
        if said.agreed is not None:
            entries = weights @ said.agreed[0]
            found |= {m: ratio(weights @ said.agreed[i], entries) for m, i in AGREED.items()}
        if "c_index" in wanted and (seen := self.survival) is not None and said.rank is not None:
            found["c_index"] = resampled.harrell(weights, said.rank, *seen)
        if AGAINST.keys() & set(wanted) and (classes := self.reference) is not None:
            table = clusters.contingency(said.labels, classes, weights)
            found |= {name: score(table) for name, score in AGAINST.items() if name in wanted}
        nothing = np.full(len(weights), np.nan)
        return {m: found.get(m, nothing) for m in wanted if m not in UNDRAWN}

    def _sampled(self, n: int) -> Array:
        """Return the numbers of the silhouette's rows: all n, or a sample of `MOST` (m,)."""
        if n <= MOST:
            return np.arange(n)
        rng = np.random.default_rng((self.seed, 0x73696C68))
        return np.sort(rng.choice(n, MOST, replace=False))

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of one cluster of all patients, of the metrics that it has."""
        return {k: v for k, v in constant(CHANCE, weights).items() if k in wanted}

    def groups(self, run: Run) -> list[Row]:
        """See `Judge`; nothing, as clusters predict no observed number."""
        return []

    def decision(self, run: Run) -> list[Row]:
        """See `Judge`; nothing, as there is no risk."""
        return []


#: Metrics of reconstructed rows; of entries with two values, and their places in `Grouped.agreed`.
AGREED = {"reconstruction_accuracy": 1, "rounded_accuracy": 2}
REBUILT = {"cycle_accuracy", "reconstruction", "g_ratio", *AGREED}
#: Metrics of a table of clusters by classes.
AGAINST = {
    "accuracy": clusters.accuracy,
    "ari": clusters.adjusted_rand,
    "nmi": clusters.normalised_mutual_information,
}


def rebuilt_of(run: Run, x: Array) -> Rebuilt | None:
    """Return rows x (n, p) after reconstruction; None if the model has none."""
    try:
        back = np.asarray(run.model.reconstruct(x), float)
    except NotSupported:
        return None
    squares, known = (back - x) ** 2, ~np.isnan(x)
    error = squares.mean(axis=1)
    if not known.all():
        error = np.nansum(squares, axis=1) / np.maximum(known.sum(axis=1), 1)
    return Rebuilt(back, labels_of(run, back), error)


def complete(run: Run, x: Array) -> Array:
    """Return rows x (n, p) with the design's fill, of a number the mean, for missing entries."""
    return np.where(np.isnan(x), run.design.origin, x) if np.isnan(x).any() else x


def agreement_of(run: Run, frame: pd.DataFrame, rebuilt: Rebuilt) -> tuple[Array, Array]:
    """Return the terms of `metrics.latent.agreement` of a table's known entries: (n, p) each."""
    known = replace(run.design, impute="none").matrix(frame)
    return agreement(known, rebuilt.said, np.array(run.design.pairs).reshape(-1, 2))
