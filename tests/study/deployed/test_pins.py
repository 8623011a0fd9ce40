"""What a session was asked first stays; what a site says of its own rows alone is rounded."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import fedcohort as fc
from deployed_cases import frames_of, tables_of, terms_of
from fedcohort.algorithms.boosting.steps import begin
from fedcohort.algorithms.cox.steps import deaths
from fedcohort.algorithms.savae import METHOD as SAVAE
from fedcohort.data.read.drafting import draft
from fedcohort.privacy.disclosure.rounding import by_patients
from fedcohort.protocol import Refused, Task
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call
from fedcohort.protocol.step import Site
from fedcohort.study.at_site.bounds import Bounds
from fedcohort.study.at_site.imputed_sites import cut, patients, tell_own_masked
from fedcohort.study.at_site.judging import Judged, tell_own
from fedcohort.study.at_site.pins import ATTEMPTS, InMemory, Pins
from fedcohort.training.networks.pooled import pull_rows
from fedcohort.training.networks.strategies import train_alone
from fedcohort.training.personal.steps import tell_alone


def call(history: str = "", company: int = 0) -> Call:
    return Call(0, deaths, "sum", None, Arguments({}, ()), history=history, company=company)


def asked(shift: float, n: int = 5) -> dict[str, np.ndarray]:
    times = np.arange(1.0, n + 1) + shift
    return {"times": times, "blocks": np.array([[n, 0]]), "centre": np.zeros(2)}


@pytest.fixture
def bounds(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", "[{method: cox}]", bounds="[]")
    return Bounds(terms, "fit", terms.plan.arms[0])


def test_a_session_keeps_its_grid_and_one_that_begins_anew_may_have_another(bounds):
    """So often as sites may leave and a run be begun again; no restart of a node gives more."""
    disk = InMemory()
    pins = Pins(bounds, disk)
    for history in range(ATTEMPTS):
        pins.check(call(str(history)), asked(history))
        pins.check(call(str(history)), asked(history))
        with pytest.raises(Refused, match="differs from its first value") as error:
            pins.check(call(str(history)), asked(9.0))
        assert "\n" not in str(error.value)
    for again in (pins, Pins(bounds, disk)):
        again.check(call("another"), asked(0.0))
        with pytest.raises(Refused, match="submit the study under another name"):
            again.check(call("one more"), asked(5.0))


def test_a_grid_is_as_long_as_the_sites_of_the_sum_have_rows_for(bounds):
    Pins(bounds, InMemory()).check(call(company=50), asked(0.0, 11))
    with pytest.raises(Refused, match=r"12 times in a grid; the sites .* 11 intervals of 5"):
        Pins(bounds, InMemory()).check(call(company=50), asked(0.0, 12))
    Pins(bounds, InMemory()).check(call(), asked(0.0, 513))
    with pytest.raises(Refused, match="514 times in a grid; its settings give at most 513"):
        Pins(bounds, InMemory()).check(call(), asked(0.0, 514))


def test_a_grid_for_trees_may_be_of_more_covariates_than_a_curve_has_bins(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", "[{method: boosting}]", bounds="[]")
    pins = Pins(Bounds(terms, "fit", terms.plan.arms[0]), InMemory())
    one = Call(0, begin, "sum", None, Arguments({}, ()))
    pins.check(one, {"edges": np.ones((500, 2), np.float32)})
    with pytest.raises(Refused, match="edges of begin differs from its first value"):
        pins.check(one, {"edges": np.zeros((500, 2), np.float32)})


def test_a_session_keeps_the_times_in_its_plans(tmp_path):
    """By sums over two lists of times their difference is of one patient
    (`tests/algorithms/test_generative_hostile.py`).
    """
    arm = "{method: savae, time: piecewise, parts: 3, strategy: exact}"
    terms = terms_of(tmp_path, "gbsg2", f"[{arm}]", bounds="[]")
    bounds = Bounds(terms, "fit", terms.plan.arms[0])
    config, pins = SAVAE.configure(terms.plan.arms[0].configured()), Pins(bounds, InMemory())
    one = Call(0, pull_rows, "sum", None, Arguments({}, ()))

    def plan(*edges, unit=2.0, held_out=0.0):
        made = config.plan(Task(kind="survival", features=("a", "b")), unit, edges)
        return {"plan": replace(made, validation_fraction=held_out).text}

    pins.check(one, plan(1.0, 3.0))
    pins.check(one, plan(1.0, 3.0, held_out=0.2))
    for other in (plan(1.0, 3.001), plan(1.0, 3.0, unit=2.1)):
        with pytest.raises(Refused, match="the times in a plan differs from its first value"):
            pins.check(one, other)


@pytest.mark.parametrize(
    ("arm", "tune", "kept"),
    [
        ("{method: personal, user: oslo, way: local, rounds: 9}", "", ()),
        ("{method: personal, user: oslo, way: local, rounds: 9, keep_rounds: [3, 5]}", "", (3, 5)),
        ("{method: deepcox, strategy: ensemble}", "{by: row-kfold, grid: {rounds: [2, 7]}}", (2,)),
    ],
)
def test_a_site_alone_tells_its_models_after_the_studys_rounds_and_after_no_others(
    tmp_path, arm, tune, kept
):
    """Models after each round of one site's own training differ by its gradients."""
    terms = terms_of(tmp_path, "gbsg2", f"[{arm}]", bounds="[]", **({"tune": tune} if tune else {}))
    pins = Pins(Bounds(terms, "tune" if tune else "fit", terms.plan.arms[0]), InMemory())
    one = Call(0, train_alone if tune else tell_alone, "gather", None, Arguments({}, ()))
    pins.check(one, {"keep": np.array(kept, int)})
    for more in ((1,), range(1, 9), (*kept, 4), (-1,)):
        with pytest.raises(Refused, match="models after other rounds"):
            pins.check(one, {"keep": np.array([*more], int)})


def test_an_own_result_by_a_model_of_yes_and_no_does_not_tell_how_many_are_in_a_cell():
    """AUC = 1/2 + c/(2 n) of a cell of c cases: of 50 cases it told every c, with its error."""
    said = []
    for c in range(3):
        y, f = np.repeat([1.0, 0.0], 50), np.zeros(100)
        f[:c] = 1.0
        none = np.zeros(100)
        d = Judged(f, np.zeros((100, 0)), none, none > 0, y, f, 0, 5, "classification", none)
        own = tell_own.run(Site("a", d, None, (0,)), min_cell=5)
        assert own.told
        said.append((float(own.value), float(own.error)))
    assert said[0][0] == said[1][0] == said[2][0] == 0.5
    assert {error for _, error in said} == {0.05}


@pytest.mark.parametrize("value", [-3.2, -0.07, 0.0, 0.499, 0.73, 1.0, 12.0])
def test_a_metric_is_rounded_to_what_few_patients_change(value):
    assert by_patients(value, 25, 1) == value
    step = 0.1 * (10 if 1 < abs(value) <= 10 else 100 if abs(value) > 10 else 1)
    got = by_patients(value, 25, 5)
    assert abs(got - value) <= step / 2 + 1e-12
    assert got / step == pytest.approx(round(got / step), abs=1e-9)
    assert by_patients(value, 25, 5, up=True) >= value - 1e-9


def test_no_rounded_auc_is_above_1():
    """Of 27 cases and m = 7 the step is 7/54: eight steps are nearest to 1, and are 1.037."""
    assert by_patients(1.0, 27, 7) == pytest.approx(56 / 54)
    assert by_patients(1.0, 27, 7, most=1.0) == 1.0
    y, f = np.repeat([1.0, 0.0], 27), np.repeat([1.0, 0.0], 27)
    none = np.zeros(54)
    d = Judged(f, np.zeros((54, 0)), none, none > 0, y, f, 0, 7, "classification", none)
    assert float(tell_own.run(Site("a", d, None, (0,)), min_cell=7).value) == 1.0


def test_with_noise_all_repeats_share_their_blind_rows(tmp_path):
    """A row that one repeat trains on with noise was judged exactly in another."""
    plain = terms_of(tmp_path / "a", "gbsg2", "[{method: deepcox}]", repeats=3, bounds="[]")
    dp = "{dp: {epsilon: 1.0, delta: 0.0001}}"
    arm = "[{method: deepcox, strategy: exact, hidden: [], rounds: 2}]"
    noisy = terms_of(tmp_path / "b", "gbsg2", arm, repeats=3, bounds="[]", privacy=dp)
    for terms, same in ((plain, False), (noisy, True)):
        (table, *_) = tables_of(terms, frames_of("gbsg2"))
        blind = [table.blind(r) for r in range(3)]
        assert (np.array_equal(blind[0], blind[1]) and np.array_equal(blind[0], blind[2])) == same
        assert replace(table).blind(0).sum() == blind[0].sum()


def test_own_errors_of_imputation_do_not_tell_how_few_rows_a_made_up_model_fills_absurdly():
    """It filled 10⁶ where a condition holds: any error told that one patient is among these."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    fed = fc.simulate({"north": frame, "south": frame})
    design = fc.fit("joint_normal", fed, draws=2).run.design
    data = SimpleNamespace(
        halves=SimpleNamespace(train=frame, blind=frame), least=5, outcome=None,
        dictionary=draft([frame]),
    )  # fmt: skip

    def told(absurd, value=1e6):
        def impute(x):
            filled = np.where(np.isnan(x), 0.0, x)
            filled[:absurd] = np.where(np.isnan(x[:absurd]), value, filled[:absurd])
            return filled

        def impute_drawn(x, rng):
            return np.where(np.isnan(x), rng.normal(size=x.shape), x)

        model = SimpleNamespace(impute=impute, impute_drawn=impute_drawn)
        coding = SimpleNamespace(data=data, run=SimpleNamespace(design=design, model=model))
        return tell_own_masked.run(Site("north", coding, None, (0, 1)), min_cell=5)

    honest = told(0)
    assert honest.told[:2].all() and (honest.values[:2] < 2.0).all()
    for value in (1e6, np.inf):
        assert_array_equal(told(4, value).told, honest.told)
        assert (told(4, value).values[:2] < 4.0).all()


def test_a_metric_is_rounded_by_the_rows_that_its_entries_are_of():
    terms = np.full((9, 4), np.nan)
    terms[:, 0] = 1.0
    assert patients(terms) == 9
    terms[0] = 1.0  # 12 entries, 4 of them of one row
    assert patients(terms) == 3
    assert patients(np.full((9, 4), np.nan)) == 0
    assert_array_equal(cut(np.array([[9.0, np.nan], [1.0, 2.0], [3.0, 1.0]]), 2),
                       [[3.0, np.nan], [1.0, 2.0], [3.0, 1.0]])  # fmt: skip
