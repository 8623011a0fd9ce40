"""The MDS cohort's mutations over sites, and what clusters of them are judged by."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from phases import federation, task_of
from scipy.stats import skewnorm
from sklearn.metrics import adjusted_mutual_info_score, calinski_harabasz_score

from fedcohort.arrays import Array
from fedcohort.metrics import clusters
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.metrics.survival.kaplan_meier import group_leavers
from fedcohort.metrics.survival.log_rank import log_rank
from fedcohort.protocol import Federation, registry

sys.path.append(str(Path(__file__).parents[1] / "d62_survival"))
import tables

#: Folds of the C-index, and how often they are drawn.
FOLDS, DRAWS = 5, 10


@dataclass(frozen=True)
class Cohort:
    """Mutations x (n, p), 0 or 1, with the survival that no fit sees; time in years."""

    features: tuple[str, ...]
    x: Array
    time: Array
    event: Array

    @classmethod
    def read(cls, path: Path) -> Cohort:
        """Read 42 genes and 13 cytogenetic flags; what was not measured is its column's frequency.

        That mean over all rows is the sum of the sites' totals over that of their counts, so that
        it is the federated one. A flag that every or no patient has is left out.
        """
        table = tables.mds(path)
        flags = table[[c for c in table if c.startswith(("cyto_", "gene_"))]].astype(float)
        flags = flags.fillna(flags.mean())
        kept = [c for c in flags if flags[c].nunique() > 1]
        x = flags[kept].to_numpy()
        return cls(tuple(kept), x, table.time.to_numpy(float), table.event.to_numpy(int))

    @property
    def frame(self) -> pd.DataFrame:
        """Return the mutations as a table."""
        return pd.DataFrame(self.x.round().astype(int), columns=list(self.features))


def equal(n: int, sites: int, seed: int) -> list[Array]:
    """Deal n rows evenly."""
    order = np.random.default_rng((seed, sites)).permutation(n)
    return np.array_split(order, sites)


def skewed(n: int, sites: int, seed: int) -> list[Array]:
    """Deal n rows by a histogram of as many draws of a skewed Gaussian, skewness 4 (thesis 4.2).

    A bin is a site; bins are of equal width. Empty ones are no site, so that there may be fewer.
    """
    rng = np.random.default_rng((seed, sites, 4))
    drawn = skewnorm.rvs(4, size=n, random_state=rng)
    counts, _ = np.histogram(drawn, bins=sites)
    parts = np.split(rng.permutation(n), np.cumsum(counts)[:-1])
    return [part for part in parts if len(part)]


SPLITS = {"uniform": equal, "skewed Gaussian": skewed}


def fitted(
    cohort: Cohort, parts: Sequence[Array], seed: int, method: str, **settings: Any
) -> tuple[Any, Federation]:
    """Return a method's model over the sites, and the federation that it was fitted by."""
    entry = registry.find(method)
    fed = federation(cohort.x, parts, seed, entry)
    return entry.fit(fed, entry.configure(settings), task_of(cohort.x, seed)), fed


def judged(
    cohort: Cohort, labels: Array, reference: Array | None, parts: Sequence[Array]
) -> dict[str, float]:
    """Return what labels (n,) are worth: by themselves, against a reference, and of survival.

    The log-rank test is from counts that sites would sum. A cluster's risk is its hazard in four
    fifths of the patients, its C-index that in the others: the mean over folds, drawn ten times.
    """
    found: dict[str, float] = {
        "clusters": float(len(np.unique(labels))),
        "smallest": float(np.bincount(labels)[np.unique(labels)].min()),
        "silhouette": float(clusters.silhouette(cohort.x, labels, "cosine")),
        "ch": float(calinski_harabasz_score(cohort.x, labels)),
    }
    if reference is not None:
        table = clusters.contingency(labels, reference)
        found["accuracy"] = float(clusters.accuracy(table))
        found["ari"] = float(clusters.adjusted_rand(table))
        found["ami"] = float(adjusted_mutual_info_score(reference, labels))
    k, grid = int(labels.max()) + 1, np.unique(cohort.time)
    at_sites = [
        group_leavers(labels[part], k, cohort.time[part], cohort.event[part], grid)
        for part in parts
    ]
    summed = type(at_sites[0])(sum(c.deaths for c in at_sites), sum(c.censored for c in at_sites))
    test = log_rank(summed)
    return found | {"chi2": test.chi2, "df": test.df, "p": test.p, "c_index": _c(cohort, labels, k)}


def _c(cohort: Cohort, labels: Array, k: int) -> float:
    scores: list[float] = []
    for draw in range(DRAWS):
        fold = np.random.default_rng(draw).permutation(len(labels)) % FOLDS
        for f in range(FOLDS):
            known, own = fold != f, fold == f
            risk = clusters.hazards(labels[known], cohort.time[known], cohort.event[known], k)
            scores.append(harrell(risk[labels[own]], cohort.time[own], cohort.event[own]))
    return float(np.mean(scores))


def judged_model(
    cohort: Cohort, model: Any, reference: Array | None, parts: Sequence[Array]
) -> dict[str, float]:
    """Return `judged` of a deep clustering, with what its network adds."""
    labels, z, y = model.predict(cohort.x), model.transform(cohort.x), model.reconstruct(cohort.x)
    again = model.predict(np.asarray(y, float))
    several = len(np.unique(labels)) > 1
    return judged(cohort, labels, reference, parts) | {
        "reconstruction": float(((y - cohort.x) ** 2).mean()),
        "cycle": float(clusters.cycle_accuracy(labels, again)),
        "silhouette_latent": float(clusters.silhouette(z, labels)) if several else float("nan"),
        "ch_latent": float(calinski_harabasz_score(z, labels)) if several else float("nan"),
    }
