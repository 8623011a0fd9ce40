"""Methods are found by entry point; a broken one is named and breaks no other."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from fedcohort.protocol import NotSupported, SettingError, registry
from toys import NoModel, toy_method


class Predicts(NoModel):
    def predict(self, x):
        return x[:, 0]


GOOD = replace(toy_method(), model=Predicts)


class Entry(SimpleNamespace):
    def load(self) -> object:
        if isinstance(self.target, Exception):
            raise self.target
        return self.target


@pytest.fixture(autouse=True)
def catalogue(monkeypatch):
    entries = [
        Entry(name="toy", value="a:METHOD", dist=None, target=GOOD),
        Entry(name="broken", value="b:METHOD", dist=None, target=ImportError("no module 'zeta'")),
        Entry(name="number", value="c:METHOD", dist=None, target=3),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    registry.forget()
    yield
    registry.forget()


def test_all_names_are_listed_without_loading_any():
    assert registry.names() == ("broken", "number", "toy")


def test_packages_are_looked_at_once_for_all_names(monkeypatch):
    assert registry.names()
    monkeypatch.setattr(registry, "entry_points", lambda group: pytest.fail("looked again"))
    for name in ("toy", "nothing", "neither"):
        with contextlib.suppress(SettingError):
            registry.find(name)


def test_a_method_is_found_by_name():
    assert registry.find("toy") is GOOD


def test_an_unknown_method_names_the_nearest():
    with pytest.raises(SettingError, match="no method 'toyy'; did you mean 'toy'"):
        registry.find("toyy")


def test_an_unknown_method_that_is_like_none_lists_all():
    with pytest.raises(SettingError, match="installed are broken, number, toy"):
        registry.find("kaplan_meier")


def test_a_broken_entry_point_is_named_with_its_cause():
    with pytest.raises(NotSupported, match=r"'broken'.*b:METHOD.*ImportError: no module 'zeta'"):
        registry.find("broken")


def test_an_entry_point_to_something_else_is_named():
    with pytest.raises(NotSupported, match=r"'number'.* is a int, no Method"):
        registry.find("number")


def test_a_broken_entry_point_does_not_hide_the_methods_that_work():
    assert registry.those_which_give("predict") == ("toy",)
    assert registry.those_which_give("predict", "clustering") == ()
    assert "these methods can: toy" in str(registry.not_supported("predict", "other"))
    assert "no installed method can" in str(registry.not_supported("sample", "other"))


def test_an_installed_entry_point_is_of_the_kind_these_tests_stand_in_for():
    assert {"name", "value", "load", "dist"} <= set(dir(EntryPoint("n", "v", "g")))
