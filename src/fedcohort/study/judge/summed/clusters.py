"""Metrics of clusters on the blind rows of all sites, from sums over sites.

    exact       calinski_harabasz, cycle_accuracy, reconstruction, g_ratio, accuracy, ari, nmi,
                smallest_share; reconstruction_accuracy, rounded_accuracy, of features with 2 m
                known entries; simplified_silhouette, a different metric from the silhouette
    by cells    c_index: pairs of one site exactly, those of two sites by intervals of time with
                `min_cell` deaths; log_rank_p: counts in the same intervals

Clusters are ranked by their hazards in the training rows, whose outcome no fit has seen. Metrics
from sums of values by cluster are None unless `Sums.are_of_many`: no cluster has 1 … m − 1 rows,
and no union of clusters differs by so few rows from a union of clusters of an earlier arm's model
in the same repeat. Differences among three or more models are not checked.

Every site also evaluates the clusters on its own blind rows; the mean over sites is reported. The
lower bound has only these.

Revealed: what `metrics.sums.clusters`, `cluster_sites` and `time_scale` list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.metrics import clusters
from fedcohort.metrics.sums import clusters as federated_clusters
from fedcohort.metrics.sums import predictions as federated
from fedcohort.metrics.sums import within_sites
from fedcohort.metrics.survival.censoring import Leavers
from fedcohort.metrics.survival.log_rank import in_intervals
from fedcohort.numerics.centroids import least_difference
from fedcohort.privacy.disclosure.counts import few
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.at_site.cluster_sites import OWN, tell_own_groups
from fedcohort.study.at_site.own_judging import all_there, alone, judged_alone
from fedcohort.study.at_site.placing import Clustered
from fedcohort.study.file.plan import Plan
from fedcohort.study.judge.pooled.clusters import AGAINST, AGREED
from fedcohort.study.judge.summed.evaluation import Found, across, shown
from fedcohort.study.judge.summed.time_scale import TimeScale, time_scale_of


@dataclass
class Sums:
    """Sums about one model, for its metrics and its published rows.

    Attributes
    ----------
    fed : the sites that answered.
    model : in the form of `Clustered`.
    earlier : models evaluated before, in the same repeat.
    min_cell : m.
    train, blind : (k,) rows of each cluster.
    """

    fed: Coordinator
    model: str
    earlier: Sequence[str]
    min_cell: int
    train: Array
    blind: Array
    _many: dict[str, bool] = field(default_factory=dict[str, bool])

    @classmethod
    def of(cls, fed: Coordinator, model: str, earlier: Sequence[str], least: int) -> Sums:
        """Count the rows of each cluster; sites that do not answer take no part."""
        step = federated_clusters.count_clusters
        blind = fed.through(Clustered(model)).sum(step).counts
        fed = fed.only(fed.answered)
        train = fed.through(Clustered(model, "train")).sum(step).counts
        return cls(fed, model, earlier, least, train, blind)

    def at(self, half: str = "blind", ranks: tuple[float, ...] = ()) -> Coordinator:
        """Return the sites, with rows assigned by the model."""
        return self.fed.through(Clustered(self.model, half, ranks=ranks))

    @property
    def has_many(self) -> bool:
        """Whether a sum over all blind rows is over m or more."""
        return int(self.blind.sum()) >= max(self.min_cell, 1)

    def are_of_many(self, half: str) -> bool:
        """Return whether sums of values by cluster, and their differences, cover m rows."""
        if half not in self._many:
            counts = self.train if half == "train" else self.blind
            self._many[half] = not few(counts, self.min_cell).any() and self._differ(half)
        return self._many[half]

    def numbers_of_many(self) -> Array:
        """Return which numeric columns may be summed by cluster in four powers: bool (q,).

        Sums over clusters, and their differences from an earlier model's, must have no known value
        or at least 2 m: four sums of fewer whole numbers would reveal them.
        """
        step, views = federated_clusters.count_known, ("", *self.earlier)
        asked = (self.fed.through(Clustered(self.model, "blind", before)) for before in views)
        tables = [one.sum(step).counts.astype(float) for one in asked]
        least = 2 * self.min_cell if self.min_cell > 1 else 0
        return np.array(
            [all(least_difference(t[j]) >= least for t in tables) for j in range(len(tables[0]))],
            bool,
        )

    def _differ(self, half: str) -> bool:
        if self.min_cell <= 1:
            return True
        for before in self.earlier:
            asked = self.fed.through(Clustered(self.model, half, before))
            flow = asked.sum(federated_clusters.count_flow).counts
            if least_difference(flow.astype(float)) < self.min_cell:
                return False
        return True


def judge(sums: Sums, plan: Plan, outcome: Outcome | None) -> tuple[Found, TimeScale | None]:
    """Evaluate the clusters of one model on the blind rows of all sites that answer.

    Returns
    -------
    found : as for other tasks.
    times : time scale of the blind rows, if the outcome is survival.

    Raises
    ------
    SiteUnavailable : a site left between two calls; `ReplyRejected`, a site changed its reply's
        form.
    """
    wanted = set(plan.metrics)
    found = _tight(sums, wanted) | _rebuilt(sums, wanted)
    if "smallest_share" in wanted:
        sizes = sums.train[sums.train > 0]
        least = int(sizes.min(initial=sizes.sum()))
        known = len(sizes) and least >= sums.min_cell
        found["smallest_share"] = least / float(sizes.sum()) if known else math.nan
    times = None
    if isinstance(outcome, Survival):
        times = time_scale_of(sums.fed, plan.min_cell)
        found |= _survival(sums, times)
    elif outcome is not None and outcome.has_classes:
        table = sums.at().sum(federated_clusters.count_classes).counts
        found |= {name: float(score(table)) for name, score in AGAINST.items()}
    own_rows = sums.fed.through(Clustered(sums.model))
    within, own = alone(own_rows, tell_own_groups, OWN, plan)
    all_there(sums.fed)
    values = {m: found.get(m, math.nan) for m in plan.metrics}
    return Found(shown(values), shown(within), own, []), times


def judge_alone(fed: Coordinator, plan: Plan) -> Found:
    """Evaluate each site's own clusters there; the metrics are means over sites."""
    return judged_alone(fed.through(Clustered("")), tell_own_groups, OWN, plan)


def _tight(sums: Sums, wanted: set[str]) -> dict[str, float]:
    """Return the metrics without an outcome."""
    found: dict[str, float] = {}
    asked = sums.at()
    if wanted & {"calinski_harabasz", "simplified_silhouette"} and sums.are_of_many("blind"):
        frame = asked.sum(federated_clusters.sum_frame)
        origin = frame.total / max(1.0, float(frame.rows))
        s = asked.sum(federated_clusters.sum_scatter, origin=origin)
        scatter = clusters.Scatter(s.rows, s.total, s.squares)
        found["calinski_harabasz"] = float(clusters.calinski_harabasz(scatter))
        if "simplified_silhouette" in wanted and (s.rows > 0).sum() > 1:
            near = asked.sum(
                federated_clusters.sum_nearness,
                centroids=origin + s.total / np.maximum(s.rows, 1.0)[:, None],
                used=s.rows > 0,
                cosine=not float(frame.fractions),
            )
            found["simplified_silhouette"] = float(near.total) / float(near.rows)
    if wanted & {"cycle_accuracy", "reconstruction"} and sums.has_many:
        cycle = asked.sum(federated_clusters.sum_cycle)
        if int(cycle.rows):
            found["cycle_accuracy"] = float(cycle.same) / float(cycle.rows)
            found["reconstruction"] = float(cycle.error) / float(cycle.rows)
    return found


def _rebuilt(sums: Sums, wanted: set[str]) -> dict[str, float]:
    """Return the metrics of reconstructed rows that a study names."""
    found: dict[str, float] = {}
    if wanted & AGREED.keys():
        known = sums.at().sum(federated_clusters.count_two_valued).known
        asked = known >= (2 * sums.min_cell if sums.min_cell > 1 else 1)
        if asked.any():
            s = sums.at().sum(federated_clusters.sum_agreement, asked=asked)
            found["reconstruction_accuracy"] = float(s.expected) / float(s.entries)
            found["rounded_accuracy"] = float(s.rounded) / float(s.entries)
    rows = {"train": int(sums.train.sum()), "blind": int(sums.blind.sum())}
    if "g_ratio" in wanted and min(rows.values()) >= max(sums.min_cell, 1):
        step = federated_clusters.sum_rebuild_error
        trained, blind = (float(sums.at(half).sum(step).error) / n for half, n in rows.items())
        found["g_ratio"] = trained / blind if blind else math.nan
    return found


def _survival(sums: Sums, times: TimeScale) -> dict[str, float]:
    """Return the metrics with survival."""
    if not len(times.grid):
        return {}
    found = {"log_rank_p": in_intervals(leavers_of(sums, times))[1]}
    if sums.are_of_many("train"):
        e = sums.at("train").sum(federated_clusters.sum_exposure)
        usual = float(e.events.sum()) / max(float(e.time.sum()), 1e-300)
        hazard = np.divide(e.events, e.time, out=np.full(len(e.time), usual), where=e.time > 0)
        levels, rank = np.unique(hazard, return_inverse=True)
        asked = sums.at(ranks=tuple(map(float, rank)))
        own = asked.sum(
            within_sites.sum_own_pairs, known=times.followed.times, followed=times.followed.values,
            tau=times.tau,
        )  # fmt: skip
        edges = np.arange(1, len(levels)) - 0.5
        found["c_index"] = across(asked, times, own, edges)["c_index"]
    return found


def leavers_of(sums: Sums, times: TimeScale) -> Leavers:
    """Return the number of blind rows of each cluster that leave in each interval: (k, T+1)."""
    edges = np.arange(1, len(sums.blind)) - 0.5
    counts = sums.at().sum(federated.count_risk_by_time, risk_edges=edges, grid=times.grid)
    return Leavers(counts.deaths, counts.censored)
