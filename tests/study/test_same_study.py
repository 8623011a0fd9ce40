"""The same records through every door give the same study, byte for byte.

The table has what doors tell apart: numbers of 17 digits, whole numbers beside missing ones,
levels such as 007, text NA, dates, booleans, and missing codes.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import fedcohort as fc
from fedcohort.study.run import runner

DICTIONARY = """\
variables:
  patient: {type: integer, identifier: true}
  hospital: {type: category, levels: ["01", "02"]}
  marker: number
  children: {type: integer, missing: [-9]}
  grade: {type: category, levels: ["007", 8, "None"], missing: [unknown]}
  smoker: binary
  born: {type: date, since: "1920-01-01", unit: years}
  note: text
  time: {type: time, unit: days}
  event: event
"""
STUDY = """\
study: doors
data: {source: %s, dictionary: d.yaml, sites: {column: hospital}}
scenarios: [natural, iid]
arms: [{method: cox}]
bounds: [isolated, centralised]
evaluate: {repeats: 1, draws: 5}
privacy: {min_cell: 1}
"""


def table() -> pd.DataFrame:
    """Return the table in pandas' own types."""
    rng = np.random.default_rng(3)
    n = 160

    def holes(column: pd.Series) -> pd.Series:
        return column.mask(rng.random(n) < 0.1)

    frame = pd.DataFrame({"patient": 2**53 + 1 + np.arange(n)})
    frame["hospital"] = rng.choice(["01", "02"], n)
    frame["marker"] = holes(pd.Series(rng.normal(size=n) / 3))
    children = pd.Series(rng.integers(0, 4, n), dtype="Int64")
    frame["children"] = holes(children.mask(rng.random(n) < 0.1, -9))
    frame["grade"] = holes(pd.Series(rng.choice(["007", "8", "None", "unknown"], n)).astype(object))
    frame["smoker"] = holes(pd.Series(rng.random(n) < 0.4, dtype="boolean"))
    days = rng.integers(0, 20_000, n)
    frame["born"] = holes(pd.Series(pd.Timestamp("1930-01-01") + pd.to_timedelta(days, "D")))
    frame["note"] = holes(pd.Series(rng.choice(["NA", "a, b", ' "x" ', "1.0"], n)).astype(object))
    frame["time"] = rng.integers(1, 2000, n)
    frame["event"] = rng.random(n) < 0.7
    return frame


def as_csv(folder: Path) -> str:
    table().to_csv(folder / "t.csv", index=False)
    return "t.csv"


def as_gzip(folder: Path) -> str:
    table().to_csv(folder / "t.csv.gz", index=False, na_rep="NA")
    return "t.csv.gz"


def as_parquet(folder: Path) -> str:
    table().to_parquet(folder / "t.parquet")
    return "t.parquet"


def as_polars_parquet(folder: Path) -> str:
    pl.from_pandas(table()).write_parquet(folder / "p.parquet")
    return "p.parquet"


def as_sqlite(folder: Path) -> str:
    with sqlite3.connect(folder / "t.db") as lite:
        born = table().born.dt.strftime("%Y-%m-%d")
        table().assign(born=born).to_sql("t", lite, index=False)
    lite.close()
    return "'sqlite:///t.db', query: select * from t order by patient"


def as_duckdb(folder: Path) -> str:
    frame = table()
    frame["born"] = frame.born.dt.date
    with duckdb.connect(str(folder / "t.duckdb")) as duck:
        duck.register("frame", frame)
        duck.execute("create table t as select * replace (born::date as born) from frame")
    return "'duckdb:///t.duckdb', query: select * from t order by patient"


def run(folder: Path, source: str, data: object = None) -> dict[str, bytes]:
    """Return every file of the study's folder, without what names its source or its seconds."""
    (folder / "d.yaml").write_text(DICTIONARY)
    (folder / "s.yaml").write_text(STUDY % source)
    study = fc.Study.from_file(folder / "s.yaml", data=data)
    out = folder / "out"
    runner.run(study.plan, study.table, out, resume=False, workers=1, tell=print, command="-")
    found: dict[str, bytes] = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        body = path.read_bytes()
        for name in (study.plan.source, study.plan.query):
            body = body.replace(name.encode(), b"source") if name else body
        if path.name == "results.json":
            results = json.loads(body)
            for row in (results, *results["arms"], *results["final"]):
                row["seconds"] = 0
            body = json.dumps(results).encode()
        if path.name == "study.yaml":
            body = body.replace(b"  query: source\n", b"")
        found[str(path.relative_to(out))] = body
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, bytes]:
    return run(tmp_path_factory.mktemp("pandas"), "memory", table())


def test_the_study_uses_what_the_doors_tell_apart(expected):
    coefficients = {c["covariate"] for c in json.loads(expected["results.json"])["coefficients"]}
    assert coefficients == {"marker", "children", "grade=8", "grade=None", "smoker", "born"}
    assert json.loads(expected["results.json"])["summary"]
    needed = {"results.json", "metrics.csv", "history.csv", "ledger.jsonl", "study.yaml"}
    assert needed | {f"models/cox/model.{kind}" for kind in ("json", "safetensors")} <= set(
        expected
    )


DOORS = (as_csv, as_gzip, as_parquet, as_polars_parquet, as_sqlite, as_duckdb)


@pytest.mark.parametrize("door", DOORS)
def test_files_and_databases_give_the_study_of_the_frame(tmp_path, expected, door):
    assert run(tmp_path, door(tmp_path)) == expected


@pytest.mark.parametrize("door", DOORS)
def test_the_dictionary_that_is_drafted_is_the_same_at_every_door(tmp_path, door):
    text = STUDY.replace("dictionary: d.yaml", "outcome: {time: time, event: event}")
    (tmp_path / "s.yaml").write_text(text % door(tmp_path))
    found = fc.Study.from_file(tmp_path / "s.yaml").table
    expected = fc.Study.from_file(tmp_path / "s.yaml", data=table()).table
    assert found.dictionary == expected.dictionary
    assert found.mark == expected.mark


@pytest.mark.parametrize("convert", [pl.from_pandas, lambda f: pl.from_pandas(f).to_arrow()])
def test_polars_and_arrow_give_the_study_of_the_frame(tmp_path, expected, convert):
    assert run(tmp_path, "t.csv", convert(table())) == expected


def test_a_file_a_site_gives_the_study_of_a_mapping(tmp_path):
    parts = {site: part.drop(columns="hospital") for site, part in table().groupby("hospital")}
    for site, part in parts.items():
        part.to_csv(tmp_path / f"north_{site}.csv", index=False)
    text = STUDY.replace(", sites: {column: hospital}", "")
    known = DICTIONARY.replace('  hospital: {type: category, levels: ["01", "02"]}\n', "")
    tables = []
    for source, data in (("'north_{site}.csv'", None), ("memory", parts)):
        (tmp_path / "s.yaml").write_text(text % source)
        (tmp_path / "d.yaml").write_text(known)
        tables.append(fc.Study.from_file(tmp_path / "s.yaml", data=data).table)
    assert tables[0].mark == tables[1].mark
    assert list(tables[0].site) == list(tables[1].site)
    assert set(tables[0].site) == {"01", "02"}


def test_a_notebook_gives_the_model_of_the_frame_from_polars(tmp_path):
    (tmp_path / "d.yaml").write_text(DICTIONARY)
    fits = [
        fc.fit("cox", fc.simulate(frame, sites="hospital", dictionary=tmp_path / "d.yaml"))
        for frame in (table(), pl.from_pandas(table()))
    ]
    np.testing.assert_array_equal(fits[0].predict(table()), fits[1].predict(table()))
