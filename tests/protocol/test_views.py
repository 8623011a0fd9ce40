"""Views by kind and text: what a site rebuilds is what the coordinator meant, or is refused."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcohort
from fedcohort.data import prepare
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Binary, Survival
from fedcohort.data.prepare.columns import LevelColumn, NumberColumn
from fedcohort.data.prepare.design import Design
from fedcohort.data.prepare.iterative import IncompleteView
from fedcohort.data.variable import Variable
from fedcohort.protocol import Refused, views
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

FRAME = pd.DataFrame(
    {
        "age": [61.5, np.nan, 48.0, 70.0, 55.0, 39.0] * 5,
        "sex": ["f", "m", "m", "f", None, "f"] * 5,
        "stage": ["I", "II", "III", "I", "II", "I"] * 5,
        "born": ["1950-02-01", "1961-07-09", "1949-12-31"] * 10,
        "time": np.linspace(1.0, 30.0, 30),
        "event": [1, 0, 1, 1, 0] * 6,
        "relapse": [1, 0, 0] * 10,
    }
)
DICTIONARY = Dictionary.from_dict(
    {
        "age": {"type": "number", "unit": "years"},
        "sex": {"type": "binary", "levels": ["f", "m"]},
        "stage": {"type": "category", "levels": ["I", "II", "III"]},
        "born": {"type": "date", "since": "1940-01-01", "unit": "years"},
        "time": "time",
        "event": "event",
        "relapse": "binary",
    }
)


def designs() -> list[Design]:
    """Return fitted designs of every kind."""
    out: list[Design] = []
    for about in (Survival("time", "event"), Binary("relapse")):
        for options in (
            {},
            {"scale": "minmax", "impute": "indicator"},
            {"scale": "quantile", "winsorise": 0.05, "pool_levels": 2},
            {"impute": "iterative", "scale": "standard"},
        ):
            fed = local([Host("a", FRAME, prepare.STEPS)])
            out.append(prepare.fit_design(fed, DICTIONARY, about, **options))
    return out


def test_a_fitted_design_is_the_same_at_a_site_that_got_its_text():
    for design in designs():
        back = views.rebuild(views.kind_of(design), design.spec)
        assert back == design
        for one, other in zip(design(FRAME), back(FRAME), strict=True):
            assert (one is other is None) or one.tobytes() == other.tobytes()


def test_the_dictionarys_reading_is_the_same_at_a_site_that_got_its_text():
    variables = tuple(DICTIONARY[name] for name in ("age", "sex", "stage", "born"))
    view = Encoding(variables)
    back = views.rebuild("encoding", view.spec)
    assert back.spec == view.spec
    for one, other in zip(view(FRAME), back(FRAME), strict=True):
        assert [a.tobytes() for a in one] == [a.tobytes() for a in other]


def test_the_reading_of_incomplete_columns_is_the_same_at_a_site_that_got_its_text():
    columns = (
        NumberColumn(name="age", type="number", fill=50.0, low=40.0, knots=(1.0, 2.0)),
        LevelColumn(name="stage", type="category", levels=("I", "II", "III"),
                    kept=("I", "II", "III"), fill="I"),
    )  # fmt: skip
    view = IncompleteView(columns, (50.0, 0.3, 0.2), (9.0, 0.5, 0.4))
    back = views.rebuild("incomplete", view.spec)
    assert back == view
    assert view(FRAME).x.tobytes() == back(FRAME).x.tobytes()


@given(
    names=st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3, unique=True),
    levels=st.lists(st.text(max_size=5), max_size=3, unique=True),
    since=st.sampled_from(["", "entry", "2001-01-01"]),
)
def test_any_names_and_levels_come_back(names, levels, since):
    kind = "date" if since else "category" if levels else "number"
    unit = "days" if since else ""
    made = tuple(Variable(n, kind, tuple(levels), since=since, unit=unit) for n in names)
    assert views.rebuild("encoding", Encoding(made).spec) == Encoding(made)


def test_every_view_of_the_package_has_a_kind():
    """A class with `spec` and `__call__` is a view; a protocol, or an objective, is none."""
    root, found = Path(fedcohort.__file__).parent, []
    for path in root.rglob("*.py"):
        text = path.read_text()
        if "def spec(" not in text or "def __call__(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ClassDef):
                continue
            names = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            bases = {ast.unparse(base).split("[")[0] for base in node.bases}
            if {"spec", "__call__"} <= names and not bases & {"Protocol", "Objective"}:
                found.append(node.name)
                said = [ast.unparse(d) for d in node.decorator_list]
                assert any(d.startswith(("view(", "views.view(")) for d in said), node.name
    assert {"Design", "Encoding", "IncompleteView"} <= set(found)


# what is refused ----------------------------------------------------------------------------

SECRET = "Jane Doe 4711"


@pytest.mark.parametrize(
    "text",
    [
        SECRET, "", "[]", "{}", "null", json.dumps({"encoding": SECRET}), "[" * 10**5,
        json.dumps({"encoding": [[1, 2, 3]]}),
        json.dumps({"columns": [], "outcome": {"type": "os"}}),
        json.dumps({"incomplete": [[{"name": SECRET}], [], []]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["design", "encoding", "incomplete"])
def test_a_text_that_is_no_view_is_refused_and_not_repeated(kind, text):
    with pytest.raises(Refused, match=f"'{kind}'|version") as caught:
        views.rebuild(kind, text)
    assert caught.value.code == "view"
    assert SECRET not in str(caught.value)


def test_a_text_that_reads_as_another_view_is_refused():
    spec = Encoding((Variable("age"),)).spec
    views.rebuild("encoding", spec)
    with pytest.raises(Refused, match="reads as another"):
        views.rebuild("encoding", spec.replace(",", ", "))


def test_an_unknown_kind_is_refused_naming_the_known():
    with pytest.raises(Refused, match=r"'pickle' are unknown here; known are .*design"):
        views.rebuild("pickle", "{}")


def test_a_design_cannot_name_anything_but_an_outcome():
    (design, *_) = designs()
    plain = json.loads(design.spec)
    for name in ("dataclass", "__loader__", "ClassVar"):
        plain["outcome"]["type"] = name
        with pytest.raises(Refused):
            views.rebuild("design", json.dumps(plain, separators=(",", ":")))


def test_two_classes_of_one_kind_and_a_class_without_from_spec_are_refused():
    with pytest.raises(TypeError, match="two views are of kind 'design'"):

        @views.view("design")
        class Other:
            @classmethod
            def from_spec(cls, text: str) -> Self:
                return cls()

    with pytest.raises(TypeError, match="needs a class method from_spec"):

        @views.view("nothing")
        class Nothing:
            pass


def test_a_mark_stands_for_kind_and_text():
    marks = {views.mark_of(k, s) for k in ("a", "b") for s in ("", "x", "y")}
    assert len(marks) == 6
    assert all(len(m) == 32 for m in marks)


def test_a_subclass_is_no_view_of_its_parents_kind():
    @dataclass(frozen=True)
    class Own(Encoding):
        pass

    with pytest.raises(TypeError, match="Own has no kind"):
        views.kind_of(Own(()))
