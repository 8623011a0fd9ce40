"""The catalogue lists a method's own settings first, and none that it refuses or does not heed."""

import re

import pytest

from fedcohort.apps import catalogue
from fedcohort.protocol import registry
from fedcohort.training.admm import AdmmSettings

ADMM = tuple(AdmmSettings.__dataclass_fields__)
PREPROCESSING = ("scale", "impute", "winsorise", "pool_levels")


def listed(method):
    return re.findall(r"^  (\w+) \[(.*)\]$", catalogue.one(method), re.MULTILINE)


@pytest.mark.parametrize(
    "method", [m for m in registry.names() if issubclass(registry.find(m).settings, AdmmSettings)]
)
def test_settings_of_admm_come_after_the_methods_own_and_are_marked(method):
    names = [name for name, _ in listed(method) if name not in PREPROCESSING]
    own = [n for n in names if registry.find(method).solver_of(n) == ""]
    assert "solver" in own
    assert names[: len(own)] == own
    assert set(names[len(own) :]) <= {*ADMM}
    assert catalogue.one(method).count("of solver admm: ") == len(names) - len(own)


def test_what_the_exact_solver_of_logistic_heeds_is_not_marked():
    assert registry.find("logistic").solver_of("max_rounds") == ""
    assert registry.find("ridge").solver_of("max_rounds") == "admm"


def test_a_method_without_a_choice_of_solver_has_no_settings_of_one():
    glm = registry.find("glm")
    assert {glm.solver_of(f.name) for f in glm.fields} == {""}


def test_preprocessing_is_listed_only_where_it_is_done():
    assert not {*dict(listed("describe"))} & {*PREPROCESSING}
    assert not {*dict(listed("kaplan_meier"))} & {*PREPROCESSING}
    assert {*PREPROCESSING} <= {*dict(listed("cox"))}


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("cox", "no differentially private fit"),
        ("ridge", "differentially private fits that protect each record"),
        ("describe", "differentially private fits that protect each record"),
        ("deepcox", "differentially private fits that protect each record or each site"),
    ],
)
def test_whether_a_method_has_private_fits_and_of_what_is_told(method, said):
    assert re.search(rf"^dp  +{said}$", catalogue.one(method), re.MULTILINE)


def test_empty_text_is_printed_as_none():
    assert dict(listed("cox"))["offset"] == "none"
    assert not [m for m in registry.names() for _, value in listed(m) if value in ("", "[]", "()")]
