"""No cell of a CSV file that this package writes is a formula to a spreadsheet."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcohort as fc
import in_process
from fedcohort.apps import describing
from fedcohort.data.read.csvcells import as_given, harmless
from fedcohort.report import history

RUN = ("=", "+", "-", "@", "\t", "\r")


@given(st.text(alphabet=[*"=+-@\t\r\n '0.5eaé"], max_size=6))
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe_and_no_number_does(text):
    cell = harmless(text)
    try:
        float(text)
        number = text == text.strip()
    except ValueError:
        number = False
    if number:
        assert cell == text
    elif text.startswith(RUN):
        assert cell == f"'{text}"
    assert number or not cell.startswith(RUN)
    if not text.startswith("'"):
        assert as_given(cell) == text


@pytest.mark.parametrize("value", [-0.5, -3, None, "-0.5", "+1e-3", "-.5", "a=b", "", "it's"])
def test_what_no_spreadsheet_runs_stays(value):
    assert harmless(value) is value


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Path:
    """Return a folder with a table whose site and column are formulas, and a model of it."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("ran")
    frame = pd.DataFrame({"=age": rng.normal(60, 10, 150), "sex": rng.choice(["f", "m"], 150)})
    frame["time"], frame["died"] = rng.uniform(1, 9, 150).round(2), rng.integers(0, 2, 150)
    frame["site"] = np.array(["a", "b", "@c"])[np.arange(150) % 3]
    frame["id"] = np.array(["=1+1", "-7", "+x", "y", "-0.5"])[np.arange(150) % 5]
    frame.to_csv(folder / "t.csv", index=False)
    fed = fc.simulate(frame.drop(columns="id"), sites="site", outcome=fc.Survival("time", "died"))
    fc.fit("cox", fed).save(folder / "model")
    return folder


def cells(text: str) -> list[str]:
    return [cell for row in csv.reader(text.splitlines(True)) for cell in row]


def test_predict_writes_no_formula_and_numbers_as_they_are(ran):
    code, out, said = in_process.command(
        "predict", ran / "model", ran / "t.csv", "--id", "id", "--times", "2,4"
    )
    assert code == 0, said
    rows = list(csv.DictReader(out.splitlines(True)))
    assert [row["id"] for row in rows[:5]] == ["'=1+1", "-7", "'+x", "y", "-0.5"]
    assert not any(as_given(c) == c and c.startswith(RUN) and not _number(c) for c in cells(out))
    code, out, said = in_process.command("predict", ran / "model", ran / "t.csv", "--id", "=age")
    assert code == 0, said
    assert out.startswith("row,'=age,")


def _number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def test_the_files_of_a_run_hold_no_formula_and_are_read_as_they_were_given(tmp_path):
    from fedcohort.study.results import files as results

    rows = [{"arm": "=a", "scenario": "@s", "repeat": 0, "site": "-cmd", "metrics": {"m": -0.5}}]
    results._metrics(tmp_path / "metrics.csv", rows)
    text = (tmp_path / "metrics.csv").read_text()
    assert text.splitlines()[1] == "'=a,'@s,0,'-cmd,m,-0.5"
    head = ("arm", "scenario", "repeat", "site", "round", "name", "value")
    results._csv(tmp_path / "history.csv", head, [("=a", "@s", 0, "-cmd", 1, "+n", -0.5)])
    (line,) = history.lines(tmp_path / "history.csv")
    assert line[:3] == ("=a", "@s", "0")
    assert (line.site, line.name, line.value) == ("-cmd", "+n", -0.5)


def test_table_1_as_csv_holds_no_formula():
    class Found:
        table = ({"variable": "=age", "level": "-cmd", "site": "@c", "n": -3, "mean": -0.5},)

    text = describing._csv(Found())
    assert text == "variable,level,site,n,mean\n'=age,'-cmd,'@c,-3,-0.5\n"
