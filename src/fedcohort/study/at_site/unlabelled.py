"""Scores of tried settings without an outcome, of clusters and latent variables.

Of the rows that a fold leaves out at one site, a model gives

    silhouette      Σ s_i, eq. (4) of `metrics.clusters`, among these rows: of at most `MOST`  (1)
    reconstruction  Σ_i mean_j (x_ij − x̂_ij)², over known entries                              (2)
    imputation      the same of entries of a hidden view, imputed from the others              (3)
    stability       pairs of these rows in one cluster: by the model before, S₁, by this one,
                    S₂, by both, S₁₂, of N pairs                                               (4)

The scores are sums over sites and folds: the mean silhouette; minus the mean errors; and the Rand
index of (4), adjusted for chance as eq. (2) of `metrics.clusters`, with S = S₁₂, A = S₁, B = S₂ and
N pairs. The model before is that of the previous fold, so (4) asks whether other rows would give
the same groups. No pair is of two sites or folds. All are in the model's preprocessed x.

As in `holding`, a site keeps its sums until all folds are evaluated, and is asked once.

Revealed: `Unlabelled`, once a candidate, only as a sum over sites.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics import clusters
from fedcohort.protocol import NotSupported
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Keep, Site, summed
from fedcohort.study.at_site.coding import Coding
from fedcohort.study.at_site.holding import WHOLE, Noted, kept
from fedcohort.study.at_site.placing import Placed

#: Largest number of rows of a silhouette, which compares all pairs.
MOST = 2000
#: Sums of one model, in the order of `Unlabelled.sums`.
SUMS = (
    "silhouette", "ranked", "error", "rebuilt", "off", "filled", "both", "before", "now", "pairs",
)  # fmt: skip


@message
class Unlabelled:
    """For r models: ``sums`` (r, 10) in the order of `SUMS`, ``lost`` (r,); ``rows`` ()."""

    sums: Array
    lost: Array
    rows: Array


@summed
def hold_unlabelled(
    site: Site[Placed | Coding, Unlabelled | None], *, fold: int, model: int, models: int
) -> Keep[Noted, Unlabelled]:
    """Keep the sums of one model over the rows of a fold."""
    d = site.data
    held = site.state or Unlabelled(np.zeros((models, len(SUMS))), np.zeros(models), np.array(0.0))
    mine = np.ones(len(d.frame), bool) if fold == WHOLE else d.data.fold == fold
    found = sums_of(d, np.flatnonzero(mine))
    at = np.arange(models) == model
    sound = np.where(np.isfinite(found), found, 0.0)
    after = Unlabelled(
        held.sums + np.outer(at, sound),
        held.lost + at * float(not np.isfinite(found).all()),
        held.rows + float(model == 0) * mine.sum(),
    )
    return Keep(Noted(np.array(1)), after)


@summed
def tell_unlabelled(site: Site[Any, Unlabelled | None], *, models: int) -> Unlabelled:
    """Tell the sums that the site has kept over all its folds.

    Raises
    ------
    ReplyRejected : as `holding.tell_held`.
    """
    return kept(site, models)


STEPS = (hold_unlabelled, tell_unlabelled)


def sums_of(d: Placed | Coding, rows: Array) -> Array:
    """Return the sums of eqs. (1) to (4) of some rows (m,): (10,)."""
    return _of_clusters(d, rows) if isinstance(d, Placed) else _of_latent(d, rows)


def score(by: str, sums: Array, lost: float) -> float:
    """Return a score of sums (10,) over sites and folds, the higher the better.

    nan if the rows do not give it; −inf if a model fails on a row.
    """
    if lost:
        return -math.inf
    s = dict(zip(SUMS, sums.tolist(), strict=True))
    if by == "silhouette":
        return s["silhouette"] / s["ranked"] if s["ranked"] else math.nan
    if by == "stability":
        if not s["pairs"]:
            return math.nan
        expected, most = s["before"] * s["now"] / s["pairs"], (s["before"] + s["now"]) / 2.0
        # one cluster, or each row alone, by both models tells nothing
        return (s["both"] - expected) / (most - expected) if most > expected else math.nan
    error, n = ("off", "filled") if by == "imputation" else ("error", "rebuilt")
    return -s[error] / s[n] if s[n] else math.nan


def _of_clusters(d: Placed, rows: Array) -> Array:
    x, labels, found = d.x[rows], d.labels[rows], dict.fromkeys(SUMS, 0.0)
    some = slice(0, MOST)
    two = np.array(d.run.design.pairs)
    distance = "cosine" if np.array_equal(two, np.tile([0.0, 1.0], (len(two), 1))) else "euclidean"
    value = float(clusters.silhouette(x[some], labels[some], distance)) if len(x) else math.nan
    found["ranked"] = float(len(x[some]))
    found["silhouette"] = 0.0 if math.isnan(value) else value * found["ranked"]
    if d.again is not None:
        found["error"], found["rebuilt"] = float(d.again[1][rows].sum()), float(len(rows))
    if d.old is not None:
        table = clusters.contingency(labels, d.before[0][rows])
        parts = table, table.sum(axis=0), table.sum(axis=1), table.sum()
        counts = (float((p * (p - 1.0) / 2.0).sum()) for p in parts)
        found |= dict(zip(("both", "before", "now", "pairs"), counts, strict=True))
    return np.array([found[name] for name in SUMS])


def _of_latent(d: Coding, rows: Array) -> Array:
    found, known = dict.fromkeys(SUMS, 0.0), ~d.strange
    x = d.x[rows][:, known]
    found["error"], found["rebuilt"] = _errors(x, d.said[rows][:, known])
    try:
        hidden = np.where(d.hidden[rows][:, known], x, np.nan)
        found["off"], found["filled"] = _errors(hidden, d.filled[rows][:, known])
    except NotSupported:
        pass
    return np.array([found[name] for name in SUMS])


def _errors(x: Array, said: Array) -> tuple[float, float]:
    """Return Σ over rows of the mean squared error of known entries, and the rows with any."""
    asked = ~np.isnan(x)
    n = asked.sum(axis=1)
    squares = np.where(asked, (np.where(asked, x, 0.0) - np.where(asked, said, 0.0)) ** 2, 0.0)
    return float((squares.sum(axis=1)[n > 0] / n[n > 0]).sum()), float((n > 0).sum())
