"""The method to copy, `examples/method`, works as a package of its own and keeps to the suite."""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from conformance.cases import Case, reference, run
from conformance.planted import PLANTS, attacked, planted
from fedcohort.protocol import registry

ROOT = Path(__file__).parents[1] / "examples" / "method"
CASE = Case("huber", "regression", ())


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory):
    """Make its entry point known as pip does, from its own pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "fedcohort_huber-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    sys.path[:0] = [str(ROOT), str(folder)]
    importlib.invalidate_caches()
    registry.forget()
    yield
    sys.path.remove(str(ROOT))
    sys.path.remove(str(folder))
    importlib.invalidate_caches()
    registry.forget()


def test_its_own_tests_pass():
    sys.modules.pop("test_huber", None)
    tests = importlib.import_module("test_huber")
    tests.test_coefficients_are_those_of_the_pooled_loss()
    tests.test_collinear_covariates_are_named()


@pytest.mark.parametrize("runtime", ["remote", "remote, masked"])
def test_it_gives_the_same_arrays_on_every_runtime(runtime):
    assert run(CASE, runtime).arrays == reference(CASE).arrays


@pytest.mark.parametrize("plant", PLANTS)
def test_it_refuses_planted_records(plant, monkeypatch):
    data = planted(CASE.kind, plant)
    assert data is not None
    found = attacked(CASE, data, monkeypatch)
    assert found.refused, found
    assert not found.told


def test_a_saved_model_predicts_the_same():
    model = reference(CASE).model
    meta = json.loads(json.dumps(model.meta()))
    x = np.random.default_rng(0).normal(size=(5, 3))
    again = CASE.entry.model.restore(model.arrays(), meta)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_its_page_says_what_its_settings_are_and_what_it_asks():
    page = (ROOT / "page.md").read_text("utf-8")
    asked = {json.loads(line)["step"] for line in reference(CASE).ledger}
    named = {*asked, *(f.name for f in CASE.entry.fields)}
    assert not [one for one in named if f"`{one}`" not in page]
