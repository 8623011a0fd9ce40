"""No method singles out a planted record, and the tests see each check that is taken out."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from conformance.cases import KINDS, Case, cases, kinds_of, reference, run
from conformance.planted import PLANTS, SITE, Found, attacked, planted
from conformance.test_waiting import GO_ON
from fedcohort.algorithms.influence import steps as influence_steps
from fedcohort.algorithms.linear import folds
from fedcohort.algorithms.meta_analysis import steps as meta_steps
from fedcohort.algorithms.ndoye import steps as ndoye_steps
from fedcohort.data import exact, isolation
from fedcohort.protocol import FedcohortError, registry
from fedcohort.runtime.absences import Availability
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.training.disclosure import FINE, Hidden
from fedcohort.training.linear import cross_products

#: Every method with its defaults, and by ADMM; one without `data.exact` on one kind of task, as
#: what it tells does not depend on that.
CASES = [
    case
    for kind in KINDS
    for case in cases(kind)
    if case.settings in ((), (("solver", "admm"),))
    and (not case.entry.unguarded or kind == kinds_of(case.entry)[0])
]
GUARDED = [case for case in CASES if not case.entry.unguarded]
#: Methods of which each site looks at its own rows, and is left out for what it finds.
OWN = [case for case in CASES if case.method in ("influence", "ndoye", "meta_analysis")]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
#: Those of several sums that wait for their sites; of ADMM, one.
WAITING = [
    case
    for case in GUARDED
    if case.method not in (*GO_ON, "svm")
    and (case.method == "ridge" or not case.settings)
    and "isolation" in {step.name for step in case.entry.asked(case.config)}
]
every_plant = pytest.mark.parametrize("plant", PLANTS)


def asks(case: Case, step: str) -> bool:
    """Say whether fits of a case can ask for a step."""
    return step in {one.name for one in case.entry.asked(case.config)}


def must_refuse(case: Case, plant: str) -> bool:
    """Say whether fits of a case are to be refused for a plant.

    That others nearly give a column is not looked at by ADMM and where models are told, whose sums
    have no cross-products (docs/disclosure.md).
    """
    return not case.entry.unguarded and (plant != "given" or asks(case, "differences"))


def check(case: Case, plant: str, monkeypatch: Any) -> Found | None:
    """Fit a case over planted records: it is refused before it sums, or tells nothing of them."""
    data = planted(case.kind, plant)
    if data is None:
        return None
    found = attacked(case, data, monkeypatch)
    if must_refuse(case, plant):
        assert found.refused, found
        # before anything is summed over covariates; the one sum of a least-squares fit has the
        # same counts, and is checked before anything is made of it
        first = "isolation" if asks(case, "isolation") else "products"
        assert plant == "given" or found.asked <= {first}, found
    if case in OWN:
        assert SITE in found.silent, found
    # cross-products are checked when the coordinator has them: readers are protected
    assert not found.told or "products" in found.asked, found
    return found


@every_case
@every_plant
def test_a_planted_record_is_not_singled_out(case: Case, plant, monkeypatch):
    check(case, plant, monkeypatch)


@every_case
def test_a_method_calls_the_one_check_of_exact_fits_or_says_which_module_makes_it_need_none(
    case: Case, monkeypatch
):
    made: list[Any] = []
    begin = exact.Exact.__init__
    monkeypatch.setattr(
        exact.Exact, "__init__", lambda self, *a, **k: made.append(self) or begin(self, *a, **k)
    )
    run(case)
    assert bool(made) != bool(case.entry.unguarded)
    if case.entry.unguarded:
        (module,) = re.findall(r"`([a-z_.]+)`", case.entry.unguarded)
        importlib.import_module(f"fedcohort.{module}")


# each check taken out --------------------------------------------------------------------


def fails(case: Case, plants: tuple[str, ...], monkeypatch: Any) -> set[str]:
    """Return by which plants the test above fails."""
    found: set[str] = set()
    for plant in plants:
        try:
            check(case, plant, monkeypatch)
        except AssertionError:
            found.add(plant)
    return found


@pytest.mark.parametrize(
    "case",
    [c for c in GUARDED if asks(c, "products") and not asks(c, "isolation") and not c.settings],
    ids=str,
)
def test_without_the_counts_in_the_one_sum_of_least_squares_its_plants_are_seen(
    case: Case, monkeypatch
):
    for module in (cross_products, folds):
        monkeypatch.setattr(module, "check_cells", lambda *given, **named: None)
    monkeypatch.setattr(exact, "check_differences", lambda *given, **named: None)
    few = ("rare", "far", "class", "copy", "outcome")
    # the choice of a penalty looks at which records are rare once more, in each fold
    assert fails(case, few, monkeypatch) >= {"far", "copy", "outcome"}


@pytest.mark.parametrize("case", [c for c in GUARDED if asks(c, "isolation")], ids=str)
@pytest.mark.parametrize(
    ("rule", "plant"),
    [("rare", "rare"), ("lone", "far"), ("alike", "copy"), ("alike", "outcome"),
     ("check_kinds", "class")],
)  # fmt: skip
def test_without_one_rule_of_these_its_plant_is_seen(case: Case, rule, plant, monkeypatch):
    was = getattr(isolation, rule)
    nothing = (lambda *given: None) if rule == "check_kinds" else lambda *given: was(*given) & False
    monkeypatch.setattr(isolation, rule, nothing)
    if rule == "check_kinds":
        monkeypatch.setattr(isolation, "check_each_class", nothing)
    if plant in ("rare", "class"):  # of three records weights, by level or class, are few, too
        heavy = isolation.heavy
        monkeypatch.setattr(isolation, "heavy", lambda *given: heavy(*given) & False)
    if rule == "alike":  # what others give but for one record is a rule of its own
        monkeypatch.setattr(isolation, "lone", lambda squares, fourth: squares < 0)
    number = case.kind == "regression"
    if rule != "check_kinds" or not number:
        assert fails(case, (plant,), monkeypatch) == {plant}


@pytest.mark.parametrize("case", [c for c in GUARDED if asks(c, "differences")], ids=str)
def test_without_the_differences_of_columns_a_sum_of_two_others_is_seen(case: Case, monkeypatch):
    monkeypatch.setattr(exact, "check_differences", lambda *given, **named: None)
    assert fails(case, ("given",), monkeypatch) == {"given"}


@pytest.mark.parametrize("case", OWN, ids=str)
def test_without_a_sites_look_at_its_own_rows_planted_records_are_seen(case: Case, monkeypatch):
    def fine(x: Any, *given: Any, **named: Any) -> Hidden:
        return Hidden(FINE, x[0] != x[0])

    monkeypatch.setattr(influence_steps, "hidden", fine)
    monkeypatch.setattr(ndoye_steps, "hidden", fine)
    monkeypatch.setattr(meta_steps, "singled_out", lambda *given, **named: None)
    monkeypatch.setattr(meta_steps, "too_little", lambda *given, **named: None)
    assert any(fails(case, (plant,), monkeypatch) for plant in ("given", "copy", "rare"))


@pytest.mark.parametrize("case", WAITING, ids=str)
def test_without_waiting_for_all_sites_a_sum_that_lacks_one_is_seen(case: Case, monkeypatch):
    whole = reference(case)
    if whole.history.count("'round'") == 1:
        return  # all sites are there in the first round of `Availability`
    monkeypatch.setattr(Coordinator, "awaiting", lambda fed, fewest=None: fed)
    monkeypatch.setattr(exact, "check_all_answered", lambda fed: None)
    law = Availability(away=0.5, always=("a",))
    try:
        found = run(case, quorum=0.3, absent=law.of("abc", 0.3, 3))
    except FedcohortError:
        return
    assert found.ledger != whole.ledger


def test_every_registered_method_is_among_these():
    assert {case.method for case in CASES} == set(registry.names())
