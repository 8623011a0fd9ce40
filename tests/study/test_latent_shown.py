"""Histograms of what is filled in, and where sites and classes lie, against numpy and pandas."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedcohort.data.describe.shown_number import ShownNumber
from fedcohort.data.outcome import Binary
from fedcohort.data.read.simulated_views import dictionary_of, multiview
from fedcohort.data.split import partition
from fedcohort.protocol import Dp, registry
from fedcohort.study.judge import evaluate
from fedcohort.study.judge.shown.latent_filled import EDGES, Cells, counted, filled_rows, joined
from fedcohort.study.judge.shown.latent_rows import map_rows, shown
from fedcohort.study.run.engine import Problem, Run, fit_once

FRAME, VIEWS = multiview(400, (4, 3, 3), 2, 150, noise=(0.3, 0.3), distance=3.0)
TRAIN = FRAME[:200].reset_index(drop=True)
TEST = FRAME[200:].reset_index(drop=True)
TEST.loc[:39, VIEWS["v2"]] = np.nan
TEST.loc[40:49, "v1_01"] = np.nan
MIN_CELL = 5
METHOD = registry.find("multiview_ppca")
GAPS = {"scale": "standard", "impute": "none"}


def problem(outcome: Any = None, split: str = "iid", **more: Any) -> Problem:
    sites = partition(TRAIN, split, 3, 0, views=VIEWS)
    return Problem(sites, dictionary_of(VIEWS), outcome, MIN_CELL, **more).aside_of("latent")


def fitted(q: int) -> Run:
    return fit_once(problem(), METHOD, {"q": q, "draws": 0, "rounds": 2}, GAPS, 1)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [fitted(q) for q in (1, 2)]


# cells ------------------------------------------------------------------------------------


@given(counts=st.lists(st.integers(0, 12), min_size=1, max_size=14), least=st.integers(1, 8))
def test_joined_cells_hold_all_and_none_is_of_few(counts, least):
    given_cells = Cells(np.arange(len(counts) + 1.0), np.array(counts))
    found = joined(given_cells, least)
    assert found.counts.sum() == sum(counts)
    assert set(found.edges) <= set(given_cells.edges)
    assert (found.edges[[0, -1]] == given_cells.edges[[0, -1]]).all()
    want = [sum(counts[int(a) : int(b)]) for a, b in pairwise(found.edges)]
    assert found.counts.tolist() == want
    few = (found.counts > 0) & (found.counts < least)
    assert not few.any() or len(found.counts) == 1


def test_cells_are_those_of_numpy_with_the_ends_open():
    z = np.random.default_rng(0).normal(0, 2, 500)
    want, _ = np.histogram(np.clip(z, -3, 3), EDGES)
    assert counted(z).counts.tolist() == want.tolist()


# what is filled in ------------------------------------------------------------------------


def test_shares_are_those_of_numpy_over_the_pooled_rows(runs):
    run = runs[1]
    judge = evaluate.judge_of(problem(), TEST)
    rows = filled_rows(run, judge)
    assert {r["feature"] for r in rows} == {n for names in VIEWS.values() for n in names}
    x = run.design.matrix(TEST)
    for row in rows:
        there = {v: TEST[names].notna().any(axis=1) for v, names in VIEWS.items()}
        others = sum(there[v].astype(int) for v in VIEWS if v != row["view"])
        asked = ((others > 0) & TEST[row["feature"]].notna()).to_numpy()
        hidden = x[asked].copy()
        hidden[:, [f in VIEWS[row["view"]] for f in run.design.features]] = np.nan
        j = list(run.design.features).index(row["feature"])
        column = run.design.columns[j]
        said = run.model.impute(hidden)[:, j] * column.scale + column.shift
        n = int(asked.sum())
        for edges, values, shares in (
            (row["edges"], TEST[row["feature"]][asked], row["true"]),
            (row["imputed_edges"], said, row["imputed"]),
        ):
            at = row["mean"] + row["sd"] * np.array(edges)
            at[[0, -1]] = -np.inf, np.inf
            counts, _ = np.histogram(values, at)
            assert_allclose(shares, counts / n, atol=0.0101)  # half a step of 0.02
            assert ((counts == 0) | (counts >= MIN_CELL)).all()


def test_true_cells_are_the_same_whatever_the_fit_so_that_none_follows_from_two(runs):
    judge = evaluate.judge_of(problem(), TEST)
    keys = ("feature", "mean", "sd", "edges", "true")
    first, second = (sorted([r[k] for k in keys] for r in filled_rows(run, judge)) for run in runs)
    assert first == second
    for row in filled_rows(runs[0], judge):
        assert set(row["imputed_edges"]) <= set(row["edges"])


def test_a_few_patients_apart_have_no_cell_of_their_own(runs):
    test = TEST.copy()
    test.loc[60:62, "v1_02"] = 8.0  # three rows far above the others
    judge = evaluate.judge_of(problem(), test)
    row = next(r for r in filled_rows(runs[1], judge) if r["feature"] == "v1_02")
    z = (test["v1_02"].dropna() - row["mean"]) / row["sd"]
    assert (np.histogram(z, EDGES)[0] % MIN_CELL != 0).any()
    inside = np.searchsorted(row["edges"][1:-1], z, side="right")
    counts = np.bincount(inside, minlength=len(row["true"]))
    assert not ((counts > 0) & (counts < MIN_CELL)).any()


def test_columns_of_few_rows_or_of_one_value_have_no_histogram(runs):
    test = TEST.copy()
    test.loc[19:, "v1_02"] = np.nan
    test["v1_03"] = 1.0
    judge = evaluate.judge_of(problem(), test)
    found = {r["feature"] for r in filled_rows(runs[1], judge)}
    assert not {"v1_02", "v1_03"} & found
    assert "v1_04" in found


def test_shares_do_not_tell_how_many_rows_lack_a_column(runs):
    judge = evaluate.judge_of(problem(), TEST)
    rows = {r["feature"]: r for r in filled_rows(runs[1], judge)}
    for feature, n in (("v1_02", 200), ("v1_01", 190)):
        for shares in (rows[feature]["true"], rows[feature]["imputed"]):
            for other in range(n - MIN_CELL + 1, n + 1):  # a count gives the share for any of these
                near = np.round(np.array(shares) * other) / other
                assert_allclose(near, shares, atol=0.0101)


def test_one_view_has_nothing_to_be_filled_in_from():
    views = {"all": [n for names in VIEWS.values() for n in names]}
    given_ = replace(problem(), dictionary=dictionary_of(views))
    run = fit_once(given_, METHOD, {"q": 2, "draws": 0, "rounds": 2}, GAPS, 1)
    assert filled_rows(run, evaluate.judge_of(given_, TEST)) == []


# the map ----------------------------------------------------------------------------------


def test_the_map_has_the_first_two_principal_components_of_all_sites_rows(runs):
    given_ = problem(Binary("group"))
    rows = map_rows(runs[1], evaluate.judge_of(given_, TEST))
    assert [(r["by"], r["name"]) for r in rows] == [
        *(("site", f"site-{i}") for i in (1, 2, 3)), ("group", "1"), ("group", "2"),
    ]  # fmt: skip
    frame = pd.concat([given_.frames[s] for s in sorted(given_.frames)], ignore_index=True)
    z = runs[1].model.transform(runs[1].design.matrix(frame))
    u, s, vt = np.linalg.svd(z - z.mean(axis=0), full_matrices=False)
    at = u * s * np.sign(vt[np.arange(2), np.abs(vt).argmax(axis=1)])
    site = np.repeat(sorted(given_.frames), [len(given_.frames[n]) for n in sorted(given_.frames)])
    for row in rows:
        label = site if row["by"] == "site" else frame["group"].to_numpy()
        own = at[label == row["name"]]
        assert row["n"] == len(own)
        shape = [ShownNumber.of(own[:, j], MIN_CELL).mean for j in (0, 1)]
        assert_allclose([row["x"], row["y"]], shape)
        values = np.sqrt(np.linalg.eigvalsh(np.cov(own.T))[::-1])
        assert_allclose([row["sx"], row["sy"]], values, rtol=0.06)
        assert row["explained"] == 1.0


def test_of_groups_the_smallest_is_hidden_with_one_that_is_too_few():
    rng = np.random.default_rng(0)
    at = rng.normal(size=(120, 2))
    of = np.repeat(["a", "b", "c", "d"], [60, 40, 14, 6])
    found = shown(at, of, MIN_CELL)
    assert set(found) == {"a", "b"}
    assert set(shown(at[:114], of[:114], MIN_CELL)) == {"a", "b", "c"}
    assert shown(at[np.isin(of, ["a", "d"])], of[np.isin(of, ["a", "d"])], MIN_CELL) == {}


def test_a_private_study_and_sites_that_hide_their_size_have_no_map_of_training_rows(runs):
    given_ = problem(Binary("group"))
    private = evaluate.judge_of(replace(given_, dp=Dp(epsilon=1.0)), TEST)
    assert map_rows(runs[1], private) == []
    hiding = replace(given_, patients={"site-1": 100, "site-2": 96, "site-3": 4})
    found = map_rows(runs[1], evaluate.judge_of(hiding, TEST))
    assert {r["by"] for r in found} == {"group"}


def test_priors_on_the_map_are_the_moments_of_draws():
    # 20,000 draws: four standard errors of a mean or an sd are below 0.03 of the sd; the map has
    # two digits, which is 0.05 at most.
    given_ = {"q": 3, "prior": "vamp", "components": 2, "rounds": 1, "internal_epochs": 2,
              "record_kl": 0}  # fmt: skip
    run = fit_once(problem(), registry.find("vae"), given_, GAPS, 1)
    rows = map_rows(run, evaluate.judge_of(problem(), TEST))
    found = {r["name"]: r for r in rows if r["by"] == "prior"}
    assert {*found} == {"common prior", *run.model.owners}
    z = run.model.transform(run.design.matrix(TRAIN))
    _, axes = np.linalg.eigh(np.cov(z.T))
    rng = np.random.default_rng(0)
    for name, row in found.items():
        part = run.model.prior
        if name != "common prior":
            part = part[[owner == name for owner in run.model.owners]]
        at = rng.choice(len(part), 20_000, p=part[:, 0] / part[:, 0].sum())
        draws = part[at, 1:4] + np.exp(0.5 * part[at, 4:]) * rng.standard_normal((20_000, 3))
        flat = (draws - z.mean(axis=0)) @ axes[:, [2, 1]]
        spread = np.sqrt(np.linalg.eigvalsh(np.cov(flat.T)))
        assert_allclose([row["sy"], row["sx"]], spread, rtol=0.08)
        assert_allclose(np.abs([row["x"], row["y"]]), np.abs(flat.mean(axis=0)), atol=0.05)
    assert all(r["n"] is None for r in found.values())
