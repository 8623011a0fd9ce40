"""Latent coordinates of blind rows against numpy, pandas and closed forms; see `judges.latent`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category
from fedcohort.data.read.simulated_views import dictionary_of, multiview
from fedcohort.data.split import partition
from fedcohort.metrics.latent import discriminant
from fedcohort.privacy.disclosure.counts import fewest
from fedcohort.protocol import Dp, Fitted, registry
from fedcohort.study.judge import evaluate
from fedcohort.study.judge.pooled.latent import Latent
from fedcohort.study.judge.shown.latent_rows import latent_rows
from fedcohort.study.kinds import LATENT
from fedcohort.study.run.engine import Problem, Run, fit_once

FRAME, VIEWS = multiview(240, (4, 3, 3), 2, 100, noise=(0.3, 0.3), distance=2.0)
NAMES = [name for names in VIEWS.values() for name in names]
ERRORS = tuple(LATENT.metrics)[:3]
GAPS = {"scale": "standard", "impute": "none"}
METHOD = registry.find("multiview_ppca")


def blind() -> pd.DataFrame:
    """Return rows that no fit has seen, of which some lack an entry or a view."""
    test = FRAME[180:].reset_index(drop=True)
    test.loc[:9, "v1_01"] = np.nan
    test.loc[5:14, VIEWS["v2"]] = np.nan
    test.loc[20, [n for n in NAMES if n not in VIEWS["v3"]]] = np.nan
    return test


TEST = blind()
TRAIN = FRAME[:180].reset_index(drop=True)


def problem(outcome: Any = None, split: str = "iid") -> Problem:
    sites = partition(TRAIN, split, 3, 0, views=VIEWS)
    return Problem(sites, dictionary_of(VIEWS), outcome).aside_of("latent")


def fitted(given: Problem, table: Any = None, **settings: Any) -> Run:
    settings = {"q": 2, "draws": 0, "rounds": 4} | settings
    return fit_once(given, METHOD, settings, table or GAPS, 1)


def judged(judge: Latent, run: Run, wanted: tuple[str, ...] = ERRORS) -> dict[str, float | None]:
    return judge.metrics(judge.predicted(run, wanted), wanted)


@pytest.fixture(scope="module")
def run() -> Run:
    return fitted(problem())


@dataclass(frozen=True)
class Constant(Fitted):
    """A model that says one point of everybody."""

    point: np.ndarray

    def arrays(self):
        return {}

    def meta(self):
        return {}

    @classmethod
    def restore(cls, arrays, meta):
        raise NotImplementedError

    def transform(self, x):
        return np.zeros((len(x), 1))

    def reconstruct(self, x):
        return np.broadcast_to(self.point, x.shape)

    def impute(self, x):
        return np.where(np.isnan(x), self.point, x)


def means(run: Run) -> Run:
    """Return a fit that says the mean of the training rows, in the units of its preprocessing."""
    return replace(run, model=Constant(np.nanmean(run.design.matrix(TRAIN), axis=0)))


def by_hand(hidden: bool) -> tuple[float, float]:
    """Return mean and root mean square of errors of `means`, from the tables themselves."""
    off = ((TEST - TRAIN[NAMES].mean()) / TEST[NAMES].std(ddof=0))[NAMES]
    if hidden:
        there = pd.DataFrame({v: TEST[names].notna().any(axis=1) for v, names in VIEWS.items()})
        for view, names in VIEWS.items():
            off.loc[~(there[view] & (there.sum(axis=1) > 1)), names] = np.nan
    off = off.to_numpy(float).ravel()
    off = off[~np.isnan(off)]
    return float(np.abs(off).mean()), float(np.sqrt((off**2).mean()))


@pytest.mark.parametrize("scale", ["standard", "none"])
@pytest.mark.parametrize("impute", ["none", "median"])
def test_errors_are_in_standard_deviations_of_the_blind_rows_whatever_the_scale(scale, impute):
    table = {"scale": scale, "impute": impute}
    found = judged(evaluate.judge_of(problem(), TEST), means(fitted(problem(), table, rounds=1)))
    mae, _ = by_hand(hidden=False)
    assert_allclose(found["reconstruction_mae"], mae)
    assert_allclose((found["imputation_mae"], found["imputation_rmse"]), by_hand(hidden=True))


def test_a_row_with_one_view_alone_is_not_asked_for_it():
    whole, part = by_hand(hidden=False)[0], by_hand(hidden=True)[0]
    assert whole != part  # row 20 has the third view alone


def test_reconstruction_is_through_the_mean_of_the_latent_point_given_what_a_row_has(run):
    found = judged(evaluate.judge_of(problem(), TEST), run)["reconstruction_mae"]
    x = run.design.matrix(TEST)
    w, mu = run.model.theta.w, run.model.theta.mu
    errors = []
    for row in x:  # the mean of x | t of a normal distribution, row by row
        o = ~np.isnan(row)
        cov = w[o] @ w[o].T + np.diag(run.model.theta.variance[run.model.shape.noise[o]])
        z = w[o].T @ np.linalg.solve(cov, row[o] - mu[o])
        errors.append(np.where(o, np.abs(row - mu - w @ z), np.nan))
    assert_allclose(found, np.nanmean(np.array(errors) / np.nanstd(x, axis=0)))


def test_a_hidden_view_is_imputed_by_the_conditional_mean_of_a_normal_distribution(run):
    found = judged(evaluate.judge_of(problem(), TEST), run)
    x, of = run.design.matrix(TEST), run.model.of
    w, mu = run.model.theta.w, run.model.theta.mu
    cov = w @ w.T + np.diag(run.model.theta.variance[run.model.shape.noise])
    sd = np.nanstd(x, axis=0)
    errors: list[float] = []
    for row in x:
        for k in range(3):
            rest, asked = (of != k) & ~np.isnan(row), (of == k) & ~np.isnan(row)
            if rest.any() and asked.any():
                gain = cov[np.ix_(asked, rest)] @ np.linalg.inv(cov[np.ix_(rest, rest)])
                off = row[asked] - mu[asked] - gain @ (row[rest] - mu[rest])
                errors += (np.abs(off) / sd[asked]).tolist()
    assert_allclose(found["imputation_mae"], np.mean(errors))
    assert_allclose(found["imputation_rmse"], np.sqrt(np.mean(np.square(errors))))


def test_one_view_has_no_imputation():
    known = replace(
        problem().dictionary,
        variables={n: replace(v, view="") for n, v in problem().dictionary.variables.items()},
    )
    given = replace(problem(), dictionary=known)
    found = judged(evaluate.judge_of(given, TEST), means(fitted(given, rounds=1)))
    assert found["imputation_mae"] is None
    assert found["imputation_rmse"] is None
    assert found["reconstruction_mae"] is not None


def test_a_hospital_that_lacks_a_view_counts_as_saying_the_best_constant_of_it():
    given = problem(split="views")
    alone = given.on({"site-2": given.frames["site-2"]})
    lacked = next(v for v, names in VIEWS.items() if names[0] not in alone.frames["site-2"])
    run = fitted(alone, rounds=1)
    judge = evaluate.judge_of(given, TEST).taught(alone)
    said = judge.predicted(run, ERRORS)
    assert {f for f, v in zip(said.features, said.views, strict=True) if v == lacked} == {
        *VIEWS[lacked]
    }
    columns = [said.features.index(n) for n in VIEWS[lacked]]
    of = TEST[VIEWS[lacked]]
    want = ((of - of.mean()).abs() / of.std(ddof=0)).to_numpy()
    assert_allclose(said.off[:, columns], want)
    several = np.sum([TEST[n].notna().any(axis=1) for n in VIEWS.values()], axis=0) > 1
    assert_allclose(said.filled[:, columns], np.where(several[:, None], want, np.nan))


def test_a_hospital_without_a_model_is_one_that_says_the_best_constants():
    judge = evaluate.judge_of(problem(Binary("group")), TEST)
    found = judge.unlearnt(np.ones((1, len(TEST)), np.int64), tuple(LATENT.metrics))
    off = (TEST[NAMES] - TEST[NAMES].mean()) / TEST[NAMES].std(ddof=0)
    assert_allclose(found["reconstruction_mae"], np.nanmean(off.abs()))
    usual = TRAIN["group"].mode()[0]
    assert_allclose(found["latent_accuracy"], (TEST["group"] == usual).mean())
    assert found["latent_auc"] == 0.5


def test_draws_are_the_metrics_of_rows_that_are_repeated(run):
    judge = evaluate.judge_of(problem(Binary("group")), TEST)
    said = judge.predicted(run, tuple(LATENT.metrics))
    n = len(TEST)
    weights = np.random.default_rng(1).multinomial(n, np.full(n, 1 / n), 5)
    drawn = judge.draws(said, weights, tuple(LATENT.metrics))
    y = (TEST["group"] == "2").to_numpy()
    for b, w in enumerate(weights):
        rows = np.repeat(np.arange(n), w)
        assert_allclose(drawn["reconstruction_mae"][b], np.nanmean(said.off[rows]))
        rmse = np.sqrt(np.nanmean(said.filled[rows] ** 2))
        assert_allclose(drawn["imputation_rmse"][b], rmse)
        assert_allclose(drawn["latent_accuracy"][b], said.right[rows].mean())
        assert_allclose(drawn["latent_auc"][b], roc_auc_score(y[rows], said.score[rows]))


def test_a_model_that_says_nothing_finite_has_no_value_and_is_not_flattered(run):
    gone = replace(run, model=Constant(np.full(len(NAMES), np.nan)))
    found = judged(evaluate.judge_of(problem(), TEST), gone)
    assert set(found.values()) == {None}


def test_some_rows_are_judged_in_the_units_of_all(run):
    judge = evaluate.judge_of(problem(), TEST)
    some = np.arange(len(TEST)) < 20
    said, part = judge.predicted(run, ERRORS), judge.on(some).predicted(run, ERRORS)
    assert_allclose(part.off, said.off[:20])
    assert judge.can_rank
    assert not judge.on(np.arange(len(TEST)) < 4).can_rank


# classes ----------------------------------------------------------------------------------


def test_the_discriminant_is_fishers():
    rng = np.random.default_rng(0)
    y = (rng.random(200) < 0.3).astype(int)
    z, asked = rng.normal(size=(200, 3)) + y[:, None], rng.normal(size=(50, 3)) + 0.4
    said, score = discriminant(z, y, asked)
    middle = np.array([z[y == c].mean(axis=0) for c in (0, 1)])
    inside = sum((z[y == c] - middle[c]).T @ (z[y == c] - middle[c]) for c in (0, 1)) / len(z)
    slope = np.linalg.solve(inside, middle[1] - middle[0])
    want = (asked - middle.mean(axis=0)) @ slope + np.log(y.mean() / (1 - y.mean()))
    assert_allclose(score, want, rtol=1e-8, atol=1e-8)
    assert (said == (want > 0)).all()


@pytest.mark.parametrize(
    ("z", "y"),
    [
        (np.arange(6.0)[:, None], np.ones(6, int)),
        (np.ones((6, 2)), np.array([1, 1, 1, 0, 0, 1])),
        (np.arange(2.0)[:, None], np.array([1, 2])),
        (np.zeros((0, 2)), np.zeros(0, int)),
    ],
    ids=["one class", "coordinates that do not vary", "as many rows as classes", "no rows"],
)
def test_where_classes_cannot_be_told_apart_the_most_frequent_is_said(z, y):
    said, score = discriminant(z, y, np.zeros((3, z.shape[1])))
    usual = np.bincount(y).argmax() if len(y) else 0
    assert said.tolist() == [usual] * 3
    assert not score.any()


def test_classes_are_learnt_from_the_training_rows_of_who_is_judged(run):
    given = problem(Binary("group"), split="unbalanced")
    alone = given.on({"site-1": given.frames["site-1"]})
    judge = evaluate.judge_of(given, TEST)
    x, y = run.design.matrix(TEST), (TEST["group"] == "2").to_numpy()
    for one, train in ((judge, given.pooled().frames["pooled"]),
                       (judge.taught(alone), alone.frames["site-1"])):  # fmt: skip
        found = judged(one, run, tuple(LATENT.metrics))
        z = run.model.transform(run.design.matrix(train))
        said, score = discriminant(
            z, (train["group"] == "2").to_numpy().astype(int), run.model.transform(x)
        )
        assert_allclose(found["latent_accuracy"], (said == y).mean())
        assert_allclose(found["latent_auc"], roc_auc_score(y, score))


def test_several_classes_have_an_accuracy_and_no_auc(run):
    kind = np.where(FRAME["v1_01"] > 0, "a", np.where(FRAME["v2_01"] > 0, "b", "c"))
    known = dictionary_of(VIEWS).to_dict()
    known["variables"]["kind"] = {"type": "category", "levels": ["a", "b", "c"]}
    known = Dictionary.from_dict(known)
    train, test = (FRAME.assign(kind=kind)[part].reset_index(drop=True)
                   for part in (slice(180), slice(180, None)))  # fmt: skip
    given = Problem({"a": train}, known, Category("kind")).aside_of("latent")
    found = judged(evaluate.judge_of(given, test), run, tuple(LATENT.metrics))
    assert 0.5 < found["latent_accuracy"] <= 1.0
    assert found["latent_auc"] is None


def test_a_private_study_makes_no_discriminant_of_training_rows(run):
    given = replace(problem(Binary("group")), dp=Dp(epsilon=1.0))
    found = judged(evaluate.judge_of(given, TEST), run, tuple(LATENT.metrics))
    assert found["latent_accuracy"] is None
    assert found["reconstruction_mae"] is not None


# what is listed ---------------------------------------------------------------------------


def test_errors_are_listed_by_column_and_view_but_not_of_few_rows(run):
    test = TEST.copy()
    test.loc[8:, "v1_02"] = np.nan  # 8 of 10 rows
    test["v1_03"] = 0.0
    test.loc[:3, "v1_03"] = 1.0  # another value in 4 rows
    judge = evaluate.judge_of(problem(), test)
    rows = latent_rows(METHOD, run, judge)["latent_errors"]
    shown = {(r["kind"], r["feature"]) for r in rows if r["feature"]}
    names = {*NAMES} - {"v1_02", "v1_03"}
    assert shown == {(k, n) for k in ("reconstruction", "imputation") for n in names}
    said = judge.predicted(run, ERRORS)
    j = [said.features.index(n) for n in ("v1_01", "v1_04")]
    row = next(r for r in rows if (r["kind"], r["view"]) == ("imputation", "v1"))
    assert row["feature"] is None
    assert_allclose(row["mae"], np.nanmean(said.filled[:, j]), atol=5e-4)
    assert row["mae"] == round(row["mae"], 3)
    assert "n" not in row


def test_what_the_model_tells_of_itself_is_listed():
    made = fitted(problem(), draws=10, compare=True, q="auto", q_range=(1, 2))
    rows = latent_rows(METHOD, made, evaluate.judge_of(problem(), TEST))
    assert [r["view"] for r in rows["latent_views"]] == ["v1", "v2", "v3"]
    assert [r["q"] for r in rows["latent_numbers"]] == [1, 2]
    assert [r["taken"] for r in rows["latent_numbers"]] == [q == made.model.q for q in (1, 2)]
    assert rows["latent_numbers"][1]["errors"].keys() == {"1"}
    told = {(r["site"], r["what"]) for r in rows["latent_sites"]}
    assert told == {
        (s, w) for s in ("site-1", "site-2", "site-3") for w in ("patients", "v1", "v2", "v3")
    }


@pytest.mark.parametrize("both", [2, 7, 12])
def test_what_is_filled_in_for_few_rows_has_no_error(both):
    # so many blind rows have the third view and another; 30 of the others have the first alone
    test = TEST.copy()
    rest = test.index[both:]
    test.loc[rest, [n for n in NAMES if n not in VIEWS["v1"]]] = np.nan
    test.loc[rest[30:], VIEWS["v1"]] = np.nan
    test.loc[rest[30:], VIEWS["v3"]] = TEST.loc[rest[30:], VIEWS["v3"]]
    given = problem()
    run, judge = fitted(given), evaluate.judge_of(given, test)
    asked = judged(judge, run)
    assert (asked["imputation_mae"] is not None) == (both >= fewest(5))
    shown = latent_rows(METHOD, run, judge)["latent_errors"]
    kinds = {row["kind"] for row in shown}
    assert kinds == ({"reconstruction", "imputation"} if both >= 10 else {"reconstruction"})
