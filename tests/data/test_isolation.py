"""A column that singles out a record is refused before anything is summed over covariates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedcohort as fc
from fedcohort.data.isolation import STEEPEST, isolation, rare
from fedcohort.data.tables import LabelledTable
from fedcohort.privacy.disclosure.records import lone
from fedcohort.protocol import NothingToLearn, registry
from fedcohort.protocol.step import Site
from overheard import listen, recovered

N = 240
#: Every method whose exact sums are over a yes/no outcome, and for no one site's sake.
CLASSIFIERS = [
    name
    for name in registry.names()
    if "classification" in registry.find(name).tasks
    and not registry.find(name).unguarded
    and "user" not in {f.name for f in registry.find(name).fields}
]
#: Their fits, with the settings under which they look at near-copies.
OF_CLASSES = {name: {"l2": 0.01} if name == "logistic" else {} for name in CLASSIFIERS} | {
    "logistic by ADMM": {"solver": "admm", "penalty": 0.01}
}
OUTCOMES = {
    "score": fc.Continuous,
    "visits": fc.Count,
    "ill": fc.Binary,
    "time": lambda name: fc.Survival(name, "died"),
}


def table(seed=0):
    rng = np.random.default_rng(seed)
    age, marker = rng.normal(60, 10, N).round(), rng.lognormal(1.0, 0.7, N)
    score = 0.03 * age + rng.normal(size=N)
    return pd.DataFrame(
        {
            "age": age,
            "marker": marker,
            "score": score,
            "visits": rng.poisson(np.exp(0.3 * (score - score.mean()))),
            "ill": np.where(rng.random(N) < 1 / (1 + np.exp(score.mean() - score)), "yes", "no"),
            "time": np.ceil(rng.exponential(90 * np.exp(score.mean() - score))),
            "died": (rng.random(N) < 0.7) * 1.0,
            "site": np.arange(N) % 3,
        }
    )


def one(value, others):
    column = np.full(N, others, float)
    column[100] = value
    return column


def refused(method, outcome, columns, monkeypatch, **settings):
    """Fit, and return the refusal and the steps that were asked."""
    heard = listen(monkeypatch)
    frame = table().assign(**columns)
    others = ["died"] if outcome == "time" else []
    others += [c for c in columns if c not in (outcome, *others)]
    frame = frame[["site", "age", "marker", outcome, *others]]
    kinds = {name: {"type": "number"} for name in frame.columns[1:] if name != "ill"}
    if outcome == "ill":
        kinds["ill"] = {"type": "category", "levels": ["no", "yes"]}
    if outcome == "time":
        kinds["died"] = {"type": "binary"}
    if outcome == "visits":
        kinds["visits"] = {"type": "integer"}
    fed = fc.simulate(
        frame, sites="site", outcome=OUTCOMES[outcome](outcome), dictionary={"variables": kinds}
    )
    with pytest.raises(NothingToLearn) as caught:
        fc.fit(method, fed, **settings)
    extra = [c for c in columns if c not in (outcome, *settings.values())]
    x = frame[["age", "marker", *extra]].to_numpy(float)
    assert not recovered(heard, x, within=1e-2).any()
    assert {told.step for told in heard}.isdisjoint(
        {"totals", "curvature", "products", "means", "admm_totals"}
    )
    return str(caught.value)


WEIGHTS = [one(1e9, 1), one(1, 1e-9), one(2, 1)]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(
    ("method", "outcome"), [("glm", "score"), ("logistic", "ill"), ("cox", "time")]
)
def test_weights_under_which_one_patient_counts_are_refused(method, outcome, weights, monkeypatch):
    said = refused(method, outcome, {"w": weights}, monkeypatch, weights="w")
    assert "weights" in said


@pytest.mark.parametrize(
    ("method", "outcome", "offset"),
    [
        ("glm", "visits", one(30, 0)),
        ("glm", "score", one(1e9, 0)),
        ("glm", "score", np.where(np.arange(N) == 100, 1e9, np.sin(np.arange(N)))),
        ("logistic", "ill", one(0, 40)),
        ("mixed", "visits", one(30, 0)),
        ("mixed", "score", one(1e9, 0)),
        ("mixed", "ill", one(0, 40)),
        ("cox", "time", one(30, 0)),
        ("cox", "time", one(0, -40)),
        ("cox", "time", one(1e9, 0)),
    ],
)
def test_an_offset_that_singles_out_one_patient_is_refused(method, outcome, offset, monkeypatch):
    said = refused(method, outcome, {"o": offset}, monkeypatch, offset="o")
    assert "offset" in said or "'o'" in said


@pytest.mark.parametrize(
    ("method", "outcome"),
    [("glm", "score"), ("mixed", "score"), ("cox", "time"), *((m, "ill") for m in CLASSIFIERS)],
)
@pytest.mark.parametrize("far", [False, True])
def test_a_number_that_few_have_or_one_has_far_from_all_is_refused(
    method, outcome, far, monkeypatch
):
    number = np.sin(np.arange(N)) if far else np.zeros(N)
    number[100] = 1e9 if far else 3.0
    said = refused(method, outcome, {"number": number}, monkeypatch)
    assert said.startswith("'number' has")
    assert ("so far from the others" in said) == far


@pytest.mark.parametrize("method", ["glm", "mixed"])
@pytest.mark.parametrize("outcome", ["score", "visits"])
def test_an_outcome_that_is_nearly_all_one_patients_is_refused(method, outcome, monkeypatch):
    y = table()[outcome].to_numpy(float).copy()
    y[100] = 1e9
    said = refused(method, outcome, {outcome: y}, monkeypatch)
    assert said.startswith("the outcome has, at all sites together, one record so far")


def test_weights_that_leave_one_patient_of_a_level_are_refused(monkeypatch):
    heavy = np.where(np.isin(np.arange(N), [7, 31, 60, 100, 150, 200]), 1.0, 1e-9)
    level = (np.arange(N) % 10 == 0) * 1.0
    level[[60, 150, 200]] = 0.0
    columns = {"level": level, "w": heavy}
    said = refused("glm", "score", columns, monkeypatch, weights="w")
    assert "count for nearly all that have 'level', or have not" in said


@pytest.mark.parametrize("method", ["logistic", "glm", "multinomial", "ordinal", "cox"])
@pytest.mark.parametrize("kind", [0, 1])
def test_weights_that_leave_one_record_of_a_kind_are_refused(method, kind, monkeypatch):
    """Totals of class 1, and the score without covariates, were that record's covariates."""
    mine = (table()["ill"] == "yes" if method != "cox" else table()["died"] == 1).to_numpy() == kind
    light = np.where(mine & (np.cumsum(mine) > 1), 1e-7, 1.0)
    outcome = "time" if method == "cox" else "ill"
    said = refused(method, outcome, {"w": light}, monkeypatch, weights="w")
    assert "count for nearly all" in said


def test_min_cell_1_and_one_table_may_have_any_column():
    frame = table().assign(number=one(3, 0))[["site", "age", "number", "score"]]
    for settings in ({"min_cell": 1}, {"strategy": "centralised"}):
        fed = fc.simulate(frame, sites="site", outcome=fc.Continuous("score"))
        assert fc.fit("glm", fed, **settings).model.rows == N


def test_counts_are_those_by_hand_and_powers_stay_finite():
    x = np.array([[0.0, 1e90], [0.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    data = LabelledTable(x, np.array([1.0, 5.0, 5.0, 5.0]), np.array([1.0, 2.0, 2.0, 2.0]))
    told = isolation.run(
        Site("s", data, None, (0,)),
        origin=np.array([0.0, 0.0, 0.0, 1.0]),
        link="log",
        offset=True,
        kinds=False,
        n_classes=0,
    )
    assert told.odd.tolist() == [1, 1, 1, 1]
    assert told.away.tolist() == [1, 4, 4, 3]
    assert all(np.isfinite(part).all() for part in (told.squares, told.fourth, told.hold))
    assert told.hold[0].tolist() == [[7, 2], [13, 4]]
    assert rare(told, 1, 2).tolist() == [True, True, True, True]
    assert told.hold[1, 0, 0] < 7 * np.exp(STEEPEST)


@pytest.mark.parametrize("unit", [1e-12, 1e-14])
def test_a_unit_that_an_exact_sum_cannot_hold_hides_no_record(unit, monkeypatch):
    """Fourth powers of so small numbers are 0 in the sum, as if no record stood alone."""
    number = np.sin(np.arange(N))
    number[100] = 1e9
    said = refused("glm", "score", {"number": number / 1e9 * unit}, monkeypatch)
    assert said.startswith("'number' has numbers so small")


def test_one_record_is_alone_from_nine_tenths_of_the_squares_on():
    for share, alone in ((0.85, False), (0.9, True)):
        rest = np.full(1000, (1 - share) / 1000)
        squares = np.r_[share, rest]
        assert bool(lone(squares.sum(), squares @ squares)) == alone


def test_weights_of_any_size_give_finite_sums():
    data = LabelledTable(np.eye(4), np.arange(4.0), np.array([1.0, 1e200, 1e-200, 1e300]))
    site = Site("s", data, None, (0,))
    told = isolation.run(
        site, origin=np.r_[np.zeros(5), 1.0], link="", offset=False, kinds=False, n_classes=0
    )
    assert np.isfinite(told.hold).all()


@pytest.mark.parametrize("fit", OF_CLASSES)
@pytest.mark.parametrize("others", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_a_covariate_that_is_the_outcome_in_all_but_a_few_records_is_refused(
    fit, others, turned, monkeypatch
):
    copy = (table()["ill"] == "yes").to_numpy() ^ np.isin(np.arange(N), np.arange(others) + 100)
    copy = (~copy if turned else copy) * 1.0
    said = refused(fit.split()[0], "ill", {"copy": copy}, monkeypatch, **OF_CLASSES[fit])
    assert "'copy' and the outcome agree in" in said


@pytest.mark.parametrize("fit", OF_CLASSES)
def test_an_outcome_that_covariates_give_together_in_all_but_one_record_is_refused(
    fit, monkeypatch
):
    ill, part = (table()["ill"] == "yes").to_numpy(float), np.sin(np.arange(N))
    columns = {"part": part, "rest": ill - part + one(2.0, 0.0)}
    said = refused(fit.split()[0], "ill", columns, monkeypatch, **OF_CLASSES[fit])
    assert "follows from other columns" in said


def test_the_sums_of_a_first_round_told_the_one_patient_whose_covariate_is_not_the_outcome():
    """What the refusal above is about: score and information at the model without covariates."""
    frame = table()
    y = (frame["ill"] == "yes").to_numpy(float)
    x = frame[["age", "marker"]].to_numpy(float)
    copy = np.where(np.arange(N) == 100, 1 - y, y)
    z = np.column_stack([np.ones(N), x, copy])
    products, score = z.T @ z, z.T @ y
    apart = products[3] - score
    assert_allclose(apart[1:3] / apart[0], x[100])


@pytest.mark.parametrize(("events", "kept"), [(2, "deaths"), (N - 2, "censored records")])
def test_deaths_or_censored_records_of_few_are_refused(events, kept, monkeypatch):
    columns = {"died": (np.arange(N) < events) * 1.0}
    said = refused("cox", "time", columns, monkeypatch)
    assert f"fewer than 5 {kept} at all sites together" in said


def factor(few, rows, seed=0):
    """Return patients of three levels, `few` of the `rows` at the last of them ill."""
    level = np.repeat(["a", "b", "c"], [120, 120 - rows, rows])
    ill = np.r_[np.arange(240 - rows) % 3 == 0, np.arange(rows) < few]
    order = np.random.default_rng(seed).permutation(N)
    frame = pd.DataFrame({"site": np.arange(N) % 3, "level": level[order]})
    return frame.assign(ill=np.where(ill[order], "yes", "no"), age=table()["age"])


@pytest.mark.parametrize("method", ["logistic", "glm"])
@pytest.mark.parametrize("few", [2, 18])
def test_a_fit_on_a_factor_whose_coefficients_are_counts_of_few_is_refused(method, few):
    fed = fc.simulate(factor(few, 20).drop(columns="age"), sites="site", outcome=fc.Binary("ill"))
    with pytest.raises(NothingToLearn, match="of one class have one value of 'level=c'"):
        fc.fit(method, fed)
    model = fc.fit(method, fed, min_cell=1).model  # what is refused: the two counts, exactly
    total = np.array([1.0, 0.0, 1.0]) @ [model.intercept, *model.coefficients]
    error = np.array([1.0, 0.0, 1.0]) @ model.covariance @ [1.0, 0.0, 1.0]
    share = 1 / (1 + np.exp(-total))
    assert_allclose(1 / (error * share * (1 - share)), 20, rtol=1e-6)
    assert_allclose(20 * share, few, rtol=1e-6)


def test_the_first_level_of_a_factor_is_one_of_its_cells():
    frame = factor(8, 20).replace({"level": {"a": "c", "c": "a"}}).drop(columns="age")
    frame.loc[(frame["level"] == "a") & (frame["ill"] == "yes"), "ill"] = ["yes"] * 3 + ["no"] * 5
    fed = fc.simulate(frame, sites="site", outcome=fc.Binary("ill"))
    with pytest.raises(NothingToLearn, match="one value of 'level=b', 'level=c'"):
        fc.fit("logistic", fed)


def test_beside_a_number_counts_of_few_are_a_warning_and_cells_of_none_or_many_nothing(recwarn):
    for few, warned in ((2, True), (0, False), (8, False)):
        fed = fc.simulate(factor(few, 20), sites="site", outcome=fc.Binary("ill"))
        fc.fit("logistic", fed, l2=0.01)
        said = [str(one.message) for one in recwarn if "level=c" in str(one.message)]
        assert bool(said) == warned
        recwarn.clear()


def test_kinds_of_outcome_switch_off_no_other_check():
    """`cells` and weights by kind wait for them; residuals, counts and powers do not."""
    rng = np.random.default_rng(0)
    data = LabelledTable(rng.normal(size=(40, 2)), (rng.random(40) < 0.5).astype(float))
    asked = {"origin": np.r_[np.zeros(3), 1.0], "link": "", "offset": False, "n_classes": 0}
    with_kinds, without = (
        isolation.run(Site("s", data, None, (0,)), kinds=kinds, **asked) for kinds in (True, False)
    )
    assert with_kinds.cells.any()
    assert not without.cells.any()
    assert_allclose(with_kinds.hold[..., :3], without.hold, rtol=1e-12)  # of another shape
    for name in {*type(without).__dataclass_fields__} - {"cells", "hold"}:
        assert (getattr(with_kinds, name) == getattr(without, name)).all()
