"""`hdp`: with one site the sampler's topics, with several those that sites share."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import tomotopy
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

import fedcohort as fc
from algorithms.cluster_cases import federation, fit, scattered
from fedcohort.algorithms.hdp import METHOD, TopicModel, topics
from fedcohort.protocol import DataError, NotSupported, SettingError
from fedcohort.protocol.step import entropy


def planted(n=400, seed=0):
    """Return rows of three groups that each have ones in five columns of their own, and which."""
    rng = np.random.default_rng(seed)
    often = np.full((3, 15), 0.05)
    for k in range(3):
        often[k, 5 * k : 5 * k + 5] = 0.9
    label = rng.integers(0, 3, n)
    return (rng.random((n, 15)) < often[label]).astype(float), label


def test_with_one_site_the_topics_are_the_samplers():
    x, label = planted()
    ours = fit("hdp", [x], seed=0)
    seed = np.random.SeedSequence(entropy(0, "site-0", 1)).generate_state(1, np.uint64)[0]
    model = tomotopy.HDPModel(alpha=0.1, gamma=0.1, eta=0.5, seed=(int(seed) >> 1) % 2**31)
    for row in x:
        if row.any():
            model.add_doc([str(j) for j in np.flatnonzero(row)])
    model.train(500, workers=1)
    most = [int(np.argmax(doc.get_topic_dist())) for doc in model.docs]
    order = [int(word) for word in model.used_vocabs]
    theirs = np.zeros((model.k, 15))
    for k in range(model.k):
        theirs[k, order] = model.get_topic_word_dist(k)
    for topic in ours.topics:
        assert np.abs(theirs[sorted(set(most))] - topic).sum(axis=1).min() < 1e-6
    agreement = adjusted_rand_score(ours.predict(x[x.any(axis=1)]), most)
    assert agreement > 0.8  # the sampler's last draw, against the shares where eq. (1) rests
    assert adjusted_rand_score(ours.predict(x), label) > 0.75


@pytest.mark.parametrize("sites", [2, 3])
def test_over_sites_the_planted_groups_are_found(sites):
    x, label = planted()
    found = fit("hdp", scattered(x, sites), n_clusters=3)
    assert len(found.topics) == 3
    assert_allclose(found.topics.sum(axis=1), 1.0, rtol=1e-5)
    assert adjusted_rand_score(found.predict(x), label) > 0.75
    assert_array_equal(found.counts, np.bincount(found.predict(x)))
    assert (np.diff(found.counts) <= 0).all()


def test_shares_of_a_row_by_hand():
    # a row with both words, topics that have one each, and π = (3/4, 1/4): with q_k = 1 for both,
    # θ ∝ a π + (1, 1); with a = 1 this is (7/4, 5/4)/3
    theta = topics.shares(np.ones((1, 2)), np.eye(2), np.array([0.75, 0.25]), 1.0)
    assert_allclose(theta, [[7 / 12, 5 / 12]], atol=1e-9)
    blank = topics.shares(np.zeros((1, 2)), np.eye(2), np.array([0.75, 0.25]), 1.0)
    assert_allclose(blank, [[0.75, 0.25]])


def test_no_topic_of_few_rows_leaves_a_site():
    x, _ = planted(60)
    fed = federation(scattered(x, 3), METHOD.steps)
    given = {"iterations": 100, "alpha": 0.1, "gamma": 1.0, "eta": 0.01}
    few = fed.gather(topics.own_topics, **given, least=1)
    told = fed.gather(topics.own_topics, **given, least=5)
    assert min(own.sizes.min() for own in few.values()) < 5
    assert all((own.sizes >= 5).all() for own in told.values())


def test_sites_without_a_one_and_small_sites_are_no_obstacle():
    x, label = planted()
    parts = [*scattered(x, 2), np.zeros((9, 15)), x[:2]]
    found = fit("hdp", parts, n_clusters=3)
    assert found.blank == 9 + int((~x.any(axis=1)).sum()) + int((~x[:2].any(axis=1)).sum())
    assert adjusted_rand_score(found.predict(x), label) > 0.7
    with pytest.raises(DataError, match="no site has a topic of 5 rows"):
        fit("hdp", [np.zeros((20, 3))] * 2)


def test_numbers_and_more_topics_than_sites_have_are_refused():
    x, _ = planted()
    with pytest.raises(DataError, match="column 'x1' has other values than 0 and 1"):
        fit("hdp", scattered(x + np.eye(1, 15, 1) * 0.5, 2))
    with pytest.raises(SettingError, match="'n_clusters' is 99, and the sites found"):
        fit("hdp", scattered(x, 2), n_clusters=99)
    with pytest.raises(SettingError, match="'eta' of method 'hdp' is 0"):
        METHOD.configure({"eta": 0})


def test_without_the_package_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tomotopy", None)
    x, _ = planted(40)
    with pytest.raises(NotSupported, match=r"pip install 'fedcohort\[hdp\]'"):
        fit("hdp", [x])
    table = pd.DataFrame(x).add_prefix("gene").assign(centre=["a", "b"] * 20)
    (tmp_path / "study.yaml").write_text(
        "study: s\ntask: clustering\n"
        "data: {source: t.csv, outcome: null, sites: {column: centre}}\n"
        "arms: [{method: kmodes}, {method: hdp}]\nevaluate: {repeats: 1, draws: 2}\n"
    )
    study = fc.Study.from_file(tmp_path / "study.yaml", data=table)
    said = r"^arm 'hdp': method 'hdp' needs the package tomotopy: pip install 'fedcohort\[hdp\]'.$"
    with pytest.raises(NotSupported, match=said):
        study.run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("k", "dropped"), [(3, 0), (4, 1), ("auto", 0)])
def test_topics_that_were_asked_for_and_have_few_rows_are_counted_in_a_warning(k, dropped):
    x, _ = planted(60)
    parts = {f"h{j}": pd.DataFrame(part) for j, part in enumerate(scattered(x, 2, 1))}
    fed = fc.simulate({s: part.add_prefix("gene") for s, part in parts.items()})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fc.fit("hdp", fed, n_clusters=k, iterations=100).model
    assert len(found.topics) == found.asked - dropped == (3 if k != "auto" else len(found.topics))
    assert found.dropped == dropped
    said = [str(w.message) for w in caught if "dropped" in str(w.message)]
    why = "hdp: 1 of 4 clusters was dropped, as too few rows, or rows that differ, are left for it."
    assert said == [why] * dropped
    assert found.counts.min() >= 5


def test_the_same_seed_gives_the_same_topics_and_a_saved_model_labels_alike():
    x, _ = planted()
    one, other = (fit("hdp", scattered(x, 3), seed=4) for _ in range(2))
    assert_array_equal(one.topics, other.topics)
    back = TopicModel.restore(one.arrays(), json.loads(json.dumps(one.meta())))
    assert_array_equal(back.predict(x), one.predict(x))
    assert back.summary() == one.summary()
