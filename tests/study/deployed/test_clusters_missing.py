"""Clusters over a network of columns that few patients have: no sum of a number is over few."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from cluster_studies import study
from deployed_cases import frames_of, run_local, tables_of
from fedcohort.metrics.sums import clusters as federated_clusters
from fedcohort.runtime.local import local
from fedcohort.study.at_site.judging import Said
from fedcohort.study.at_site.placing import run_of
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.judge.summed.clusters import Sums, judge
from fedcohort.study.judge.summed.clusters_shown import shown_rows
from fedcohort.study.results import saved


class Overheard:
    """A federation that keeps the answers of some steps."""

    def __init__(self, fed, heard):
        self.fed, self.heard = fed, heard

    def __getattr__(self, name):
        return getattr(self.fed, name)

    def through(self, view):
        return Overheard(self.fed.through(view), self.heard)

    def sum(self, step, **asked):
        told = self.fed.sum(step, **asked)
        self.heard.setdefault(step.name, []).append(told)
        return told


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """What judges are told of two arms' clusters, of gbsg2 with `tsize` of one patient in 25."""
    out = tmp_path_factory.mktemp("missing")
    terms = study(out, bounds="[]")
    frames = {
        site: f.assign(tsize=f["tsize"].where(np.arange(len(f)) % 25 == 0))
        for site, f in frames_of("gbsg2").items()
    }
    tables = tables_of(terms, frames)
    run_local(terms, tables, out / "out")
    kept, heard = saved.read(out / "out" / "models" / "kmeans"), {}
    hosts = [open_session(terms, t, "judge-r0000-a00", 5) for t in tables]
    fed, model = local(hosts), Said.by(run_of(kept.model, kept.design), "kmeans").model
    sums = Sums.of(fed, model, [model], 5)
    sums.fed = Overheard(sums.fed, heard)
    shown = shown_rows(sums, run_of(kept.model, kept.design), None, terms.dictionary, None, 0)
    values = [t.halves(0).blind["tsize"].notna().sum() for t in tables]
    return heard, shown, sum(map(int, values)), sums


def test_powers_of_a_number_are_summed_over_none_or_twice_min_cell_known_values(judged):
    heard, shown, known, _ = judged
    assert 0 < known < 30  # of three clusters: some has few of them
    rows = np.array([told.rows for told in heard["sum_powers"]])
    assert (rows > 0).any()
    assert not ((rows > 0) & (rows < 10)).any()
    found = {r["feature"]: r["share"] for r in shown["cluster_features"] if r["kind"] == "mean"}
    assert found["tsize"] is None
    assert any(share is not None for share in found.values())


def test_of_fewer_than_min_cell_blind_rows_in_all_nothing_but_counts_is_asked(judged, tmp_path):
    *_, sums = judged
    heard = {}
    fed = Overheard(sums.fed.fed, heard)
    few = Sums(fed, sums.model, [], 5, sums.train, np.array([2, 2, 0]))
    arms = "[{method: deep_clustering}]"
    plan = study(tmp_path, arms=arms, bounds="[]").plan
    assert {"cycle_accuracy", "reconstruction"} <= set(plan.metrics)
    run = run_of(*Said(sums.model).restored[1:])
    judge(few, plan, None)
    shown_rows(few, run, None, study(tmp_path).dictionary, None, 0)
    assert {name for name in heard if name.startswith("sum_")} == set()


def test_places_are_summed_of_clusters_of_twice_min_cell_rows_alone():
    z, labels = np.arange(24.0).reshape(12, 2), np.array([0] * 9 + [1] * 3)
    site = SimpleNamespace(data=SimpleNamespace(z=z, labels=labels, clusters=2))
    asked = {"centre": np.zeros(2), "axes": np.eye(2), "asked": np.array([True, False])}
    told = federated_clusters.sum_places.run(site, **asked)
    assert_array_equal(told.rows, [[9, 9], [0, 0]])
    assert_array_equal(told.powers[:, 0], [(z[:9] ** p).sum(axis=0) for p in (1, 2, 3, 4)])
    assert_array_equal(told.cross, [(z[:9, 0] * z[:9, 1]).sum(), 0])
    assert not told.powers[:, 1].any()
