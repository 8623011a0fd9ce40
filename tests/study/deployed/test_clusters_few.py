"""Clusters over a network that differ by few patients: what is asked of them, and what is not."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from cluster_studies import Done, study
from deployed_cases import frames_of, results_of, run_local, tables_of
from fedcohort.metrics.clusters import contingency as table
from fedcohort.numerics.centroids import least_difference
from fedcohort.runtime.local import local
from fedcohort.study.at_site.judging import Said
from fedcohort.study.at_site.placing import run_of
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.judge.summed.clusters import Sums, judge
from fedcohort.study.judge.summed.clusters_shown import shown_rows


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return "", Done(tmp_path_factory.mktemp("few"), "")


@pytest.fixture
def grouped(done):
    """Sums of a model's clusters at the judges of a finished run, after others were judged."""
    _, run = done
    kept = run.saved

    def text(model):
        return Said.by(run_of(model, kept.design), "kmeans").model

    def sums(model, *earlier):
        hosts = [open_session(run.terms, t, "judge-r0000-a01", 5) for t in run.tables]
        return Sums.of(local(hosts), text(model), [text(m) for m in earlier], 5)

    return run, sums


def moved(run, least):
    """Return the model with a centroid moved, so that `least` blind rows or more change cluster.

    Where these are many, unions of clusters differ by many, too.
    """
    model = run.saved.model
    for step, which in itertools.product(np.linspace(0, 3, 3001)[1:], range(3)):
        centroids = model.centroids + step * (np.arange(3) == which)[:, None]
        found = dataclasses.replace(model, centroids=centroids)
        labels = found.predict(run.x)
        n, apart = int((labels != run.labels).sum()), least_difference(table(labels, run.labels))
        if n >= least and (n < 5 or apart >= 5):
            return found, n
    raise AssertionError("no row moves")


@pytest.mark.parametrize(("least", "told"), [(1, False), (40, True)])
def test_clusters_that_differ_from_an_earlier_arms_by_few_rows_are_not_summed(grouped, least, told):
    run, sums = grouped
    other, n = moved(run, least)
    assert n < 5 or told
    after = sums(other, run.saved.model)
    found, _ = judge(after, run.terms.plan, None)
    assert (found.metrics["calinski_harabasz"] is not None) == told
    assert (found.metrics["simplified_silhouette"] is not None) == told
    shown = shown_rows(after, run_of(other, run.saved.design), None, run.terms.dictionary, None, 0)
    assert bool(shown["cluster_features"]) == bool(shown["cluster_map"]) == told
    assert len(shown["clusters"]) == 3


def test_the_same_clusters_as_an_earlier_arms_tell_nothing_new_and_are_summed(grouped):
    run, sums = grouped
    found, _ = judge(sums(run.saved.model, run.saved.model), run.terms.plan, None)
    assert found.metrics["calinski_harabasz"] == run.metric("calinski_harabasz")


def test_later_arms_of_a_run_are_held_against_earlier_ones(tmp_path):
    arms = "[{method: kmeans, restarts: 5}, {method: kmeans, name: again, restarts: 5}]"
    terms = study(tmp_path, arms=arms, bounds="[]")
    run_local(terms, tables_of(terms, frames_of("gbsg2")), tmp_path / "out")
    found = results_of(tmp_path / "out")
    metrics = {a["arm"]: a["metrics"] for a in found["arms"] if a["site"] is None}
    assert metrics["again"] == metrics["kmeans"]
    asked = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").open()]
    assert {r["arm"] for r in asked if r.get("step") == "count_flow"} == {"again"}
