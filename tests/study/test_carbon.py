"""Energy is measured where the study asks, with the package that does it, and shown as measured."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fedcohort.protocol import NotSupported, StudyError
from fedcohort.report.run import Run
from fedcohort.report.sections import cost
from fedcohort.study.file import plan, yamlfile
from fedcohort.study.run import carbon

TEXT = """
study: s
task: classification
data: {source: t.csv, outcome: {y: y}, sites: {column: site}}
arms: [{method: logistic}]
"""


def planned(tmp_path: Path, more: str) -> plan.Plan:
    (tmp_path / "s.yaml").write_text(TEXT + more)
    return plan.check(yamlfile.read(tmp_path / "s.yaml"), tmp_path)


class Tracker:
    """Stands for codecarbon's: 2 seconds, 0.5 Wh, 0.1 g."""

    def __init__(self, **asked: Any) -> None:
        assert asked["country_iso_code"] == "CHE"
        assert asked["save_to_file"] is False
        self.running = False
        self.final_emissions_data = types.SimpleNamespace(duration=2.0, energy_consumed=0.0005)

    def start(self) -> None:
        self.running = True

    def stop(self) -> float:
        assert self.running
        return 0.0001


@pytest.fixture
def package(monkeypatch):
    made = types.SimpleNamespace(OfflineEmissionsTracker=Tracker, __version__="3.0")
    monkeypatch.setitem(sys.modules, "codecarbon", made)


def test_what_the_package_measures_is_kept_in_kwh_and_grams(package):
    with carbon.measured("CHE") as found:
        assert found == {}
    assert found == {
        "seconds": 2.0, "energy": 0.0005, "carbon": 0.1, "country": "CHE", "by": "codecarbon 3.0",
    }  # fmt: skip


def test_nothing_is_loaded_or_measured_where_the_study_does_not_ask(monkeypatch):
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    with carbon.measured("") as found:
        pass
    assert found == {}


def test_a_study_that_asks_without_the_package_hears_how_to_get_it(monkeypatch):
    monkeypatch.setattr(carbon.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotSupported, match=r"pip install 'fedcohort\[carbon\]'"):
        carbon.check("CHE")


def test_a_country_that_the_package_does_not_know_is_refused(package, monkeypatch):
    mixes = types.SimpleNamespace(get_global_energy_mix_data=lambda: {"CHE": {}})
    source = types.SimpleNamespace(DataSource=lambda: mixes)
    monkeypatch.setitem(sys.modules, "codecarbon.input", source)
    monkeypatch.setattr(carbon.importlib.util, "find_spec", lambda name: object())
    carbon.check("CHE")
    with pytest.raises(NotSupported, match="has no electricity mix of 'XXX'"):
        carbon.check("XXX")


@pytest.mark.parametrize("text", ["carbon: Switzerland", "carbon: che"])
def test_a_country_is_three_letters(tmp_path, text):
    with pytest.raises(StudyError, match="three letters of ISO 3166-1"):
        planned(tmp_path, text)
    assert planned(tmp_path, "carbon: CHE").carbon == "CHE"


def test_over_a_network_it_is_refused_since_no_site_would_be_measured(tmp_path):
    from fedcohort.study.file.terms import Terms

    (tmp_path / "s.yaml").write_text(TEXT + "carbon: CHE\n")
    with pytest.raises(StudyError, match="leave this key out"):
        Terms.of(tmp_path / "s.yaml")


def test_a_resumed_run_says_that_the_rest_was_not_measured():
    results = {
        "schema": 1,
        "declared": [{"arm": "a", "role": "arm"}],
        "arms": [{"arm": "a", "scenario": "iid", "repeat": 0, "site": None, "seconds": 1.0}],
        "measured": {"seconds": 2.0, "energy": 0.1, "carbon": 1.0, "by": "x", "resumed": True},
    }
    assert "only since the run was resumed" in cost.carbon(Run(results, Path())).body


def test_the_report_shows_what_was_measured_beside_the_estimate():
    results = {
        "schema": 1,
        "declared": [{"arm": "a", "role": "arm"}],
        "arms": [{"arm": "a", "scenario": "iid", "repeat": 0, "site": None, "seconds": 1.0}],
    }
    assert "Measured" not in cost.carbon(Run(results, Path())).body
    spent = {"seconds": 2.0, "energy": 0.0005, "carbon": 0.1, "country": "CHE", "by": "x 3.0"}
    shown = cost.carbon(Run({**results, "measured": spent}, Path())).body
    assert "by x 3.0" in shown
    assert "500 mWh, 100 mg of CO₂ with the electricity of CHE" in shown
