"""Accuracies of reconstructed rows and G (D6.2, 7.4.1), of rows in one place and over sites."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import accuracy_score

from cluster_studies import study
from deployed_cases import frames_of, results_of, run_local, tables_of
from fedcohort.metrics.latent import agreement
from fedcohort.metrics.resampled import multiplicities
from fedcohort.protocol import StudyError
from fedcohort.protocol.ledger import Ledger
from fedcohort.study.at_site import asking
from fedcohort.study.judge import evaluate
from fedcohort.study.kinds import CLUSTERING
from fedcohort.study.results import saved
from fedcohort.study.run.engine import Problem, Run

NAMES = ("reconstruction_accuracy", "rounded_accuracy", "g_ratio")
ASKED = "{repeats: 1, metrics: [silhouette, " + ", ".join(NAMES) + "], draws: 20}"
DEEP = (
    "[{method: deep_clustering, architecture: [6, 3], n_clusters: 3, rounds: 3, cluster_rounds: 2, "
    "restarts: 2}]"
)
#: Yes-or-no columns of the table: name of the feature → column and value of 1.
TWO = {
    "horTh=yes": ("horTh", "yes"), "menostat=Post": ("menostat", "Post"),
    "tgrade=II": ("tgrade", "II"), "tgrade=III": ("tgrade", "III"),
}  # fmt: skip


def with_gaps():
    """Return the sites' tables, where every seventh row lacks its menopausal status."""
    frames = frames_of("gbsg2")
    for frame in frames.values():
        frame.loc[::7, "menostat"] = np.nan
    return frames


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run over a network, its model, and the pooled rows."""
    folder = tmp_path_factory.mktemp("rebuilt")
    terms = study(folder, arms=DEEP, evaluate=ASKED)
    tables = tables_of(terms, with_gaps())
    run_local(terms, tables, folder / "out")
    halves = [t.halves(0) for t in tables]
    train, blind = (
        pd.concat([getattr(h, half) for h in halves], ignore_index=True)
        for half in ("train", "blind")
    )
    return (
        results_of(folder / "out"),
        saved.read(folder / "out" / "models" / "deep_clustering"),
        train,
        blind,
    )


def wanted(parts, train, blind):
    """Compute the three metrics from the columns themselves."""
    back = parts.model.reconstruct(parts.design.matrix(blind))
    entries, said = [], []
    for j, name in enumerate(parts.design.features):
        if name not in TWO:
            continue
        column, one = TWO[name]
        known = blind[column].notna().to_numpy()
        entries.append((blind[column] == one).to_numpy()[known])
        said.append(np.clip(back[known, j], 0, 1))
    b, p = np.concatenate(entries), np.concatenate(said)
    assert len(said) == len(TWO)
    errors = [
        np.mean((parts.model.reconstruct(x) - x) ** 2)
        for x in (parts.design.matrix(train), parts.design.matrix(blind))
    ]
    return {
        "reconstruction_accuracy": np.mean(np.where(b, p, 1 - p)),
        "rounded_accuracy": accuracy_score(b, np.round(p)),
        "g_ratio": errors[0] / errors[1],
    }


def test_over_sites_they_are_those_of_the_columns_of_the_pooled_rows(done):
    results, parts, train, blind = done
    rows = [r for r in results["arms"] if r["arm"] == "deep_clustering" and r["site"] is None]
    want = wanted(parts, train, blind)
    assert {m: rows[0]["metrics"][m] for m in NAMES} == pytest.approx(want, rel=1e-7)  # float32
    alone = next(
        r["metrics"] for r in results["arms"] if (r["arm"], r["site"]) == ("isolated", None)
    )
    assert all(0 < alone[m] < 1 for m in NAMES[:2])
    assert alone["g_ratio"] is None, "a hospital tells no error of its training rows"


def test_in_one_process_they_are_the_same_and_draws_repeat_rows(done):
    _, parts, train, blind = done
    judge = evaluate.judge_of(
        Problem({"all": train}, parts.dictionary, None, task="clustering"), blind
    )
    run = Run(parts.model, parts.design, [], Ledger(1))
    said = judge.predicted(run, NAMES)
    assert judge.metrics(said, NAMES) == pytest.approx(
        wanted(parts, train, blind), rel=1e-7
    )  # float32
    drawn = multiplicities(len(blind), 3, np.random.default_rng(0))
    for i, weights in enumerate(drawn):
        rows = blind.loc[np.repeat(blind.index, weights)].reset_index(drop=True)
        want = wanted(parts, train, rows)
        found = {m: v[i] for m, v in judge.draws(said, drawn, NAMES).items()}
        assert found == pytest.approx(want, rel=1e-7)  # float32


@given(seed=st.integers(0, 999), low=st.floats(-3, 3), width=st.floats(0.1, 9))
def test_they_do_not_depend_on_the_scale_of_a_column(seed, low, width):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (12, 3)).astype(float)
    said = rng.random((12, 3)).round(2) * 1.4 - 0.2
    said += 0.003  # a half is a tie
    pairs = np.tile([0.0, 1.0], (3, 1))
    want = agreement(x, said, pairs)
    found = agreement(low + width * x, low + width * said, low + width * pairs)
    assert_allclose(found, want, atol=1e-9)


def test_unknown_entries_and_other_columns_do_not_count_and_no_number_is_wrong():
    pairs = np.array([[0.0, 1.0], [np.nan, np.nan]])
    x = np.array([[1.0, 5.0], [np.nan, 5.0], [0.0, 5.0]])
    said = np.array([[0.8, 5.0], [0.8, 5.0], [np.nan, 5.0]])
    expected, rounded = agreement(x, said, pairs)
    assert_allclose(expected, [[0.8, np.nan], [np.nan, np.nan], [0.0, np.nan]])
    assert_allclose(rounded, [[1.0, np.nan], [np.nan, np.nan], [0.0, np.nan]])


def test_a_site_sums_errors_of_training_rows_only_for_a_study_that_names_g(tmp_path):
    named = study(tmp_path / "a", arms=DEEP, evaluate=ASKED)
    plain = study(tmp_path / "b", arms=DEEP)
    assert "sum_rebuild_error" in {s.name for s in asking.of_study(named.plan, None)}
    steps = {s.name for s in asking.of_study(plain.plan, None)}
    assert not {"sum_rebuild_error", "sum_agreement", "count_two_valued"} & steps
    private = CLUSTERING.metrics_of(None, {"reconstruct"}, pooled=False, private=True)
    assert "g_ratio" not in private
    assert "rounded_accuracy" in private


def test_a_study_whose_methods_do_not_reconstruct_cannot_name_them(tmp_path):
    with pytest.raises(StudyError, match="'reconstruction_accuracy' is not possible"):
        study(tmp_path, evaluate=ASKED)
