"""A site's replies about its own rows by cluster: sizes, positions and metrics.

Sums hide a site among the others; these steps do not, so a site checks its own counts first.
Someone with all clusters' total sizes and each site's rows must not be able to derive a count of 1
… m − 1, with m the `min_cell`. As in `disclosure.groups` for a fully known table, whole clusters
are hidden. A site names the counts that it hides: two or more that differ, together of m rows or
more (`own_hidden`). A cluster that any site names is asked of no site. The remaining table has two
rows or more with known sums.

Revealed, of each site: the clusters it hides; its rows of those that no site hides; rounded mean,
spread and direction on two axes, of those with 2 m rows or more; and metrics of its own blind rows,
if these are enough (for ranks, events).
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.metrics import clusters
from fedcohort.metrics.sums import clusters as federated_clusters
from fedcohort.privacy.disclosure.counts import can_rank, few, fewest, hidden
from fedcohort.privacy.disclosure.rounding import by_patients
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered
from fedcohort.study.at_site.judging import Rows
from fedcohort.study.at_site.placing import Placed
from fedcohort.study.judge.pooled import clusters as judging
from fedcohort.study.judge.shown.cluster_map import ellipse
from fedcohort.study.kinds import CLUSTERING

#: Metrics of a site's own blind rows, in the order of `OwnGroups`.
OWN = (
    "silhouette", "simplified_silhouette", "calinski_harabasz", "cycle_accuracy", "reconstruction",
    "c_index", "accuracy", "ari", "nmi", *judging.AGREED,
)  # fmt: skip
UNBOUNDED = ("calinski_harabasz", "reconstruction")
#: Values of an ellipse, in the order of `SitePlaces`.
PLACE = ("x", "y", "sx", "sy", "angle", "n")
#: Value of a hidden count.
UNTOLD = -1


@message
class SiteHidden:
    """Whether the site hides a cluster's count, ``hidden`` (k,)."""

    hidden: Array


@message
class SiteSizes:
    """Rows by cluster at the site, ``counts`` (k,)."""

    counts: Array


@message
class SitePlaces:
    """Whether a cluster's position is ``told`` (k,), and these, ``places`` (k, 6)."""

    told: Array
    places: Array


@message
class OwnGroups:
    """Metrics (m,) on the site's own blind rows, and which are ``told`` (m,)."""

    values: Array
    told: Array


@gathered
def tell_hidden(site: Site[Placed, None], *, min_cell: int) -> SiteHidden:
    """Clusters that the site hides, because they have too few of its rows."""
    d = site.data
    return SiteHidden(own_hidden(_counts(d), max(min_cell, d.data.least)))


@gathered
def tell_sizes(site: Site[Placed, None], *, min_cell: int, asked: Array) -> SiteSizes:
    """The site's training rows of each cluster that no site hides."""
    d = site.data
    counts = _counts(d)
    shown = np.asarray(asked, bool) & ~own_hidden(counts, max(min_cell, d.data.least))
    return SiteSizes(np.where(shown, counts, UNTOLD))


@gathered
def tell_places(
    site: Site[Placed, None], *, min_cell: int, asked: Array, centre: Array, axes: Array
) -> SitePlaces:
    """Rounded mean and spread, on two axes, of the site's blind rows of each cluster."""
    d, k = site.data, site.data.clusters
    least = max(min_cell, d.data.least)
    shown = np.asarray(asked, bool) & ~own_hidden(_counts(d), least)
    at = (d.z - centre) @ axes
    told, places = np.zeros(k, bool), np.zeros((k, len(PLACE)))
    for c in np.flatnonzero(shown):
        for found in ellipse(at[d.labels == c], None, int(c), least):
            told[c], places[c] = True, [float(found[key]) for key in PLACE]
    return SitePlaces(told, places)


@gathered
def tell_own_groups(site: Site[Placed | Rows, None], *, min_cell: int) -> OwnGroups:
    """Metrics of the clusters on the site's own blind rows, if these are enough.

    A site without its own clusters counts as one cluster of all patients.
    """
    d = site.data
    found = _chance(d.outcome) if isinstance(d, Rows) else _own(d, min_cell)
    n, least = len(d.halves.blind if isinstance(d, Rows) else d.frame), min_cell
    values = np.array(
        [
            by_patients(found.get(m, np.nan), n, least, most=np.inf if m in UNBOUNDED else 1.0)
            for m in OWN
        ]
    )
    told = np.isfinite(values)
    return OwnGroups(np.where(told, values, 0.0), told)


STEPS = (tell_hidden, tell_sizes, tell_places, tell_own_groups)
#: Steps on training rows; of rows' values they use only times under observation and, if the study
#: names G, the error of all rows together.
OF_TRAINING = (
    federated_clusters.count_clusters, federated_clusters.count_flow,
    federated_clusters.sum_exposure, federated_clusters.sum_rebuild_error, tell_hidden, tell_sizes,
)  # fmt: skip


def own_hidden(counts: Array, min_cell: int) -> Array:
    """Return whether a site hides each of its counts (k,): bool (k,); their sum is never small.

    The smallest first, equal ones together; a 0 is hidden only with all.
    """
    counts = np.asarray(counts)
    found = hidden(counts, min_cell)
    while found.any() and not found.all() and few(counts[found].sum(), min_cell):
        left = counts[~found & (counts > 0)]
        if not len(left):
            return np.ones(len(counts), bool)
        found |= (counts > 0) & (counts <= left.min())
    return found


def _counts(d: Placed) -> Array:
    return np.bincount(d.labels, minlength=d.clusters)


def _chance(outcome: Outcome | None) -> dict[str, float]:
    needed = {m: CLUSTERING.metrics[m].outcome for m in judging.CHANCE}
    return {m: v for m, v in judging.CHANCE.items() if isinstance(outcome, needed[m])}


def _own(d: Placed, min_cell: int) -> dict[str, float]:
    """Return metrics of a site's own blind rows, as far as these are enough."""
    least = max(min_cell, d.data.least)
    if len(d.frame) < fewest(least):
        return {}
    judge = judging.Clusters(
        d.data.halves.train, d.frame, d.data.outcome, d.data.dictionary, least, 0
    )
    survival = isinstance(d.data.outcome, Survival)
    ranks = survival and can_rank(d.event, least, both=False)
    wanted = tuple(m for m in OWN if m != "simplified_silhouette" and (m != "c_index" or ranks))
    said = judge.predicted(d.run, wanted)
    found = {m: v for m, v in judge.metrics(said, wanted).items() if v is not None}
    s = clusters.scatter(d.x, d.labels, d.clusters, np.zeros(d.x.shape[1]))
    if (used := np.flatnonzero(s.rows > 0)).size > 1:
        place = np.searchsorted(used, d.labels)
        means = s.total[used] / s.rows[used][:, None]
        total, rows = clusters.simplified_silhouette(d.x, place, means, said.distance)
        found["simplified_silhouette"] = float(total.sum() / rows.sum())
    return found
