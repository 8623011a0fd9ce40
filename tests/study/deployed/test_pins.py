"""What a session was asked first stays; what a site says of its own rows alone is rounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deployed_cases import frames_of, tables_of, terms_of
from fedcohort.algorithms.boosting.steps import begin
from fedcohort.algorithms.cox.steps import deaths
from fedcohort.privacy.disclosure.rounding import by_patients
from fedcohort.protocol import Refused
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call
from fedcohort.protocol.step import Site
from fedcohort.study.at_site.bounds import Bounds
from fedcohort.study.at_site.judging import Judged, tell_own
from fedcohort.study.at_site.pins import ATTEMPTS, InMemory, Pins
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
