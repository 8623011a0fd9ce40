"""Accuracies of reconstructed rows and G (D6.2, 7.4.1), of rows in one place and over sites."""

from __future__ import annotations

import inspect
from dataclasses import replace

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
from fedcohort.metrics.sums import latent as sums
from fedcohort.protocol import Refused, StudyError
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.local import local
from fedcohort.study.at_site import asking
from fedcohort.study.at_site.coding import Coded
from fedcohort.study.at_site.judging import Said
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge import evaluate
from fedcohort.study.kinds import CLUSTERING, KINDS
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


def pooled(tables):
    """Return the training rows and the blind rows of all sites."""
    halves = [t.halves(0) for t in tables]
    return (pd.concat([getattr(h, half) for h in halves], ignore_index=True)
            for half in ("train", "blind"))  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run over a network, its model, and the pooled rows."""
    folder = tmp_path_factory.mktemp("rebuilt")
    terms = study(folder, arms=DEEP, evaluate=ASKED)
    tables = tables_of(terms, with_gaps())
    run_local(terms, tables, folder / "out")
    train, blind = pooled(tables)
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


# latent variables ---------------------------------------------------------------------------

VAE = "[{method: vae, q: 2, rounds: 1, internal_epochs: 3}]"
LATENT = "{repeats: 1, metrics: [reconstruction_mae, " + ", ".join(NAMES) + "], draws: 20}"


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """A run of a latent study over a network, its model, and the pooled rows."""
    folder = tmp_path_factory.mktemp("latent")
    text = (
        "study: net\ntask: latent\ndata: {source: 'sample:gbsg2'}\n"
        f"arms: {VAE}\nbounds: [isolated, centralised]\nevaluate: {LATENT}\n"
    )
    (folder / "s.yaml").write_text(text)
    terms = Terms.of(folder / "s.yaml")
    tables = tables_of(terms, with_gaps())
    run_local(terms, tables, folder / "out")
    train, blind = pooled(tables)
    kept = saved.read(folder / "out" / "models" / "vae")
    return results_of(folder / "out"), kept, train, blind, terms, tables


def of_entries(parts, train, blind, among):
    """Compute the three metrics of latent variables, column by column, over known entries."""
    found = {}
    for name, frame in (("train", train), ("blind", blind)):
        x = replace(parts.design, impute="none").matrix(frame)
        back = parts.model.reconstruct(parts.design.matrix(frame))
        sd = np.nanstd(replace(parts.design, impute="none").matrix(among), axis=0)
        found[name] = np.nanmean(((x - back) / sd) ** 2)
    entries, said = [], []
    for j, name in enumerate(parts.design.features):
        if name not in TWO:
            continue
        column, one = TWO[name]
        known = blind[column].notna().to_numpy()
        low, high = parts.design.pairs[j]
        entries.append((blind[column] == one).to_numpy()[known])
        said.append(np.clip((back[known, j] - low) / (high - low), 0, 1))
    b, p = np.concatenate(entries), np.concatenate(said)
    return {
        "reconstruction_accuracy": np.mean(np.where(b, p, 1 - p)),
        "rounded_accuracy": accuracy_score(b, np.round(p)),
        "g_ratio": found["train"] / found["blind"],
    }


def test_of_latent_variables_too_they_are_those_of_the_columns_over_sites_and_in_one_place(coded):
    results, parts, train, blind, *_ = coded
    want = of_entries(parts, train, blind, blind)
    rows = [r for r in results["arms"] if (r["arm"], r["site"]) == ("vae", None)]
    assert {m: rows[0]["metrics"][m] for m in NAMES} == pytest.approx(want, rel=1e-9)
    alone = next(
        r["metrics"] for r in results["arms"] if (r["arm"], r["site"]) == ("isolated", None)
    )
    assert all(0 < alone[m] < 1 for m in NAMES[:2])
    assert alone["g_ratio"] is None
    problem = Problem({"all": train}, parts.dictionary, None, task="latent")
    judge, run = evaluate.judge_of(problem, blind), Run(parts.model, parts.design, [], Ledger(1))
    said = judge.predicted(run, NAMES)
    assert judge.metrics(said, NAMES) == pytest.approx(want, rel=1e-9)
    drawn = multiplicities(len(blind), 2, np.random.default_rng(0))
    for i, weights in enumerate(drawn):
        some = blind.loc[np.repeat(blind.index, weights)].reset_index(drop=True)
        found = {m: v[i] for m, v in judge.draws(said, drawn, NAMES).items()}
        assert found == pytest.approx(of_entries(parts, train, some, blind), rel=1e-9)


def test_no_value_of_training_rows_but_their_error_is_summed_and_only_where_g_is_named(tmp_path):
    named, plain = (
        Terms.of(written(tmp_path / name, metrics))
        for name, metrics in (("a", "[reconstruction_mae, g_ratio]"), ("b", "[reconstruction_mae]"))
    )
    steps = [{s.name for s in asking.of_study(terms.plan, None)} for terms in (named, plain)]
    assert ["sum_rebuild_squares" in one for one in steps] == [True, False]
    assert "sum_entry_agreement" not in steps[0]
    private = KINDS["latent"].metrics_of(None, {"reconstruct"}, pooled=False, private=True)
    assert "g_ratio" not in private
    with pytest.raises(ValueError, match="half"):
        Coded.from_spec('{"model":"x","half":"all"}')
    assert Coded.from_spec(Coded("x", "train").spec) == Coded("x", "train")


def test_a_site_gives_no_other_sum_over_training_rows(coded):
    _, parts, _, _, terms, tables = coded
    model = Said.by(Run(parts.model, parts.design, [], Ledger(1)), "vae").model
    fed = local([open_session(terms, t, "judge-r0000-a01", 5) for t in tables])
    p = len(parts.design.features)
    asked = {"centre": np.zeros(p), "unit": np.ones(p), "asked": np.ones(p, bool)}
    fed.through(Coded(model, "train")).sum(sums.sum_rebuild_squares, **asked, whole=asked["asked"])
    for step in (sums.sum_entry_tails, sums.count_known_entries, sums.sum_entry_agreement):
        given = {k: v for k, v in asked.items() if k in inspect.signature(step.run).parameters}
        more = {"whole": asked["asked"]} if given else {}
        with pytest.raises(Refused, match="values of training rows"):
            fed.through(Coded(model, "train")).sum(step, **given, **more)


def written(folder, metrics):
    folder.mkdir()
    (folder / "s.yaml").write_text(
        "study: net\ntask: latent\ndata: {source: 'sample:gbsg2'}\nbounds: []\n"
        f"arms: {VAE}\nevaluate: {{repeats: 1, metrics: {metrics}}}\n"
    )
    return folder / "s.yaml"
