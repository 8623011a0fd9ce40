"""Metrics of several classes equal scikit-learn's, of draws and of sums over sites as well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    confusion_matrix,
    log_loss,
    roc_auc_score,
)

from fedcohort.arrays import Array
from fedcohort.metrics import classes, classification, resampled
from fedcohort.metrics.sums import classes as sums
from fedcohort.metrics.sums import values
from fedcohort.metrics.sums.within_sites import sum_binned_label_pairs, sum_label_pairs
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


def cohort(n, k, seed, digits=3):
    """Return classes y, each there, and probabilities p with ties."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=(n, k))
    p = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
    y = np.array([rng.choice(k, p=row) for row in p])
    y[: 2 * k] = np.arange(2 * k) % k
    p = np.round(p, digits) + 1e-3
    return y, p / p.sum(axis=1, keepdims=True)


def brier(y, p, w):
    return np.average(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1), weights=w)


REFERENCE = {
    "auc": lambda y, p, w: roc_auc_score(y, p, sample_weight=w, multi_class="ovr"),
    "accuracy": lambda y, p, w: accuracy_score(y, p.argmax(axis=1), sample_weight=w),
    "balanced_accuracy": lambda y, p, w: balanced_accuracy_score(
        y, p.argmax(axis=1), sample_weight=w
    ),
    "brier": brier,
    "log_loss": lambda y, p, w: log_loss(y, p, sample_weight=w),
}
every_metric = pytest.mark.parametrize("name", classes.METRICS)


@every_metric
@settings(max_examples=10)
@given(n=st.integers(30, 90), k=st.integers(3, 6), seed=st.integers(0, 2**16))
def test_a_metric_of_classes_equals_scikit_learns(name, n, k, seed):
    y, p = cohort(n, k, seed)
    assert_allclose(classes.METRICS[name](y, p, None), REFERENCE[name](y, p, None), rtol=1e-9)


@every_metric
def test_draws_are_the_metric_of_records_that_are_repeated(name):
    y, p = cohort(60, 3, 4)
    weights = resampled.multiplicities(60, 12, np.random.default_rng(1))
    ours = classes.METRICS[name](y, p, weights)
    theirs = [REFERENCE[name](y, p, w) for w in weights]
    assert_allclose(ours, theirs, rtol=1e-9)


def test_a_class_without_a_record_has_no_auc_and_is_left_out_of_the_balanced_accuracy():
    y, p = cohort(40, 3, 1)
    some = y != 2
    assert np.isnan(classes.auc(y[some], p[some]))
    with pytest.warns(UserWarning, match="classes not in y_true"):
        reference = balanced_accuracy_score(y[some], p[some].argmax(axis=1))
    assert_allclose(classes.balanced_accuracy(y[some], p[some]), reference)
    assert np.isnan(classes.accuracy(y[:0], p[:0]))


@every_metric
def test_of_two_classes_the_metrics_are_those_of_a_yes_no_outcome(name):
    y, p = cohort(80, 2, 3)
    ours = float(classes.METRICS[name](y, p))
    if name == "balanced_accuracy":
        assert ours == pytest.approx(balanced_accuracy_score(y, p[:, 1] > 0.5))
    else:
        binary = float(classification.METRICS[name](y.astype(float), p[:, 1], None))
        assert ours == pytest.approx(binary * (2 if name == "brier" else 1))


def test_probability_one_over_k_has_the_values_of_chance():
    k = 4
    y, p = np.arange(40) % k, np.full((40, k), 1 / k)
    found = {name: float(metric(y, p)) for name, metric in classes.METRICS.items()}
    assert found == pytest.approx(classes.chance(k))


@dataclass
class Rows:
    """What the steps look at."""

    y: Array
    f: Array
    lost: int = 0


def over(y, p, n_sites, seed):
    where = np.random.default_rng(seed).integers(0, n_sites, len(y))
    steps = (*sums.STEPS, *values.STEPS, sum_label_pairs, sum_binned_label_pairs)
    return local(
        [Host(f"s{s}", Rows(y[where == s], p[where == s]), steps) for s in range(n_sites + 1)]
    )


@settings(max_examples=10, deadline=None)
@given(n_sites=st.integers(1, 4), k=st.integers(3, 5), seed=st.integers(0, 2**16))
def test_sums_over_sites_give_the_metrics_and_the_table_of_the_pooled_rows(n_sites, k, seed):
    y, p = cohort(70, k, seed)
    found = over(y, p, n_sites, seed).sum(sums.sum_classes)
    assert_array_equal(found.table, confusion_matrix(y, p.argmax(axis=1), labels=range(k)))
    assert_allclose(found.predicted, p.sum(axis=0))
    got = sums.metrics_of(found)
    assert got == pytest.approx({m: REFERENCE[m](y, p, None) for m in got})


def test_the_auc_of_a_class_over_sites_is_exact_where_no_two_sites_share_a_bin():
    y, p = cohort(60, 3, 9, digits=8)
    for k in range(3):
        edges = np.unique(p[:, k])
        found = values.federated_auc(over((y == k) * 1.0, p[:, k], 3, 0), edges=edges)
        assert found.auc == pytest.approx(float(classes.auc_of_class(y, p, k)))
