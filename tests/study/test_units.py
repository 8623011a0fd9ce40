"""A study stops before its first fit where a site has another unit, unless the file accepts it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedcohort as fc
from deployed_cases import results_of, run_local, tables_of
from fedcohort.apps.cli import app
from fedcohort.protocol import DataError, StudyError
from fedcohort.study.file.terms import Terms

STUDY = """\
study: units
data:
  source: "{{site}}.csv"
  dictionary: d.yaml
arms: [{{method: cox}}]
bounds: []
evaluate: {{repeats: 1, draws: 2}}
{units}
"""
DICTIONARY = "{survival: {type: time}, dead: event, x: number, wbc: number}"
WRONG = "column 'survival' at site 'east' looks like months where the others have days: median "


def frames(months: bool = True) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(5)
    found = {}
    for site, scale in zip(("east", "north", "south", "west"), (600, 500, 900, 700), strict=True):
        x = rng.normal(size=120).round(2)
        days = np.ceil(1.4 * scale * rng.exponential(np.exp(-0.3 * x))) + 1
        unit = 30.4375 if site == "east" and months else 1.0
        dead = (rng.random(120) < 0.6) * 1
        wbc = np.exp(rng.normal(1.8, 0.5, 120)).round(1)
        found[site] = pd.DataFrame({"survival": days / unit, "dead": dead, "x": x, "wbc": wbc})
    return found


def lay(folder, units: str = "", months: bool = True):
    for site, frame in frames(months).items():
        frame.to_csv(folder / f"{site}.csv", index=False)
    (folder / "d.yaml").write_text(f"variables: {DICTIONARY}\n")
    (folder / "s.yaml").write_text(STUDY.format(units=units))
    return folder / "s.yaml"


def test_a_local_study_stops_before_anything_is_fitted(tmp_path):
    with pytest.raises(
        DataError, match=f"^east.csv: {WRONG}" + r"\d+ beside \d+ to \d+. Convert it"
    ):
        fc.Study.from_file(lay(tmp_path))
    assert fc.Study.from_file(lay(tmp_path, months=False)).table.units == ()


@pytest.mark.parametrize("units", ["units: accepted", "units: [survival]"])
def test_a_study_that_accepts_units_goes_on_and_its_report_says_so(tmp_path, units):
    study = fc.Study.from_file(lay(tmp_path, units))
    results = study.run(tmp_path / "out")
    (told,) = results.content["data"]["units"]
    assert told.startswith(WRONG)
    results.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "The study file accepts them (units)" in page
    assert "looks like months where the others have days" in page
    assert "Units accepted: column" in (tmp_path / "out/models/cox/card.md").read_text()


@pytest.mark.parametrize(
    ("units", "error", "words"),
    [
        ("units: yes", StudyError, "expected 'accepted'"),
        ("units: [wcb]", DataError, "units: there is no column 'wcb'. Did you mean 'wbc'"),
        ("units: [wbc]", DataError, "looks like months"),
        ("unit: accepted", StudyError, "units"),
    ],
)
def test_units_is_accepted_or_a_list_of_columns(tmp_path, units, error, words):
    with pytest.raises(error, match=words):
        fc.Study.from_file(lay(tmp_path, units))


def test_data_check_calls_it_an_error_and_what_is_accepted_a_warning(tmp_path):
    run = CliRunner().invoke
    found = run(app, ["data", "check", str(lay(tmp_path))])
    assert found.exit_code == 2
    assert "error    column 'survival' at site 'east' looks like months" in found.output
    found = run(app, ["data", "check", str(lay(tmp_path, "units: accepted"))])
    assert found.exit_code == 0
    assert "warning  column 'survival' at site 'east' looks like months" in found.output
    tables = [str(tmp_path / f"{site}.csv") for site in ("east", "north", "south")]
    given = ["--dictionary", str(tmp_path / "d.yaml"), "--json"]
    found = json.loads(run(app, ["data", "check", *tables, *given]).output)
    assert [f["rule"] for f in found["findings"] if f["severity"] == "error"] == ["site units"]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Return what gives the terms, tables and folder of a study over sites that hold their rows."""

    def made(units: str = "", months: bool = True):
        folder = tmp_path_factory.mktemp("net")
        terms = Terms.of(lay(folder, units, months))
        return terms, tables_of(terms, frames(months)), folder / "out"

    return made


def test_a_network_study_stops_by_what_table_1_shows_anyway(network):
    terms, tables, out = network()
    with pytest.raises(DataError, match=WRONG) as stopped:
        run_local(terms, tables, out)
    assert "Nothing was fitted." in str(stopped.value)
    assert "units: [survival]" in str(stopped.value)
    assert not list((out / "models").rglob("*.safetensors"))
    asked = {path.name for path in (out / ".work").rglob("*") if path.is_dir()}
    assert not [name for name in asked if name.startswith(("fit", "judge"))]


def test_a_network_study_that_accepts_units_goes_on_and_says_so(network):
    terms, tables, out = network("units: accepted")
    run_local(terms, tables, out)
    (told,) = results_of(out)["data"]["units"]
    assert told.startswith(WRONG)
    steps = {json.loads(line)["step"] for line in (out / "ledger.jsonl").read_text().splitlines()}
    plain, tables, other = network(months=False)
    run_local(plain, tables, other)
    assert "units" not in results_of(other)["data"]
    same = {json.loads(line)["step"] for line in (other / "ledger.jsonl").read_text().splitlines()}
    assert steps == same, "nothing more is asked of sites"
    assert terms.hash != plain.hash, "sites approve it again"


def test_sites_in_memory_are_warned_of():
    with pytest.warns(UserWarning, match=WRONG):
        fc.simulate(frames(), outcome=fc.Survival("survival", "dead"))
