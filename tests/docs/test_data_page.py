"""Every example of docs/data.md works as it stands there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import doc_pages
import fedcohort as fc
from fedcohort.data.read.sources import MEMORY
from fedcohort.study.file import plan, yamlfile

PAGE = (doc_pages.DOCS / "data.md").read_text(encoding="utf-8")
REST = "study: own\narms: [{method: cox}]\nevaluate: {repeats: 1}\n"


def blocks(kind: str) -> list[str]:
    return [b.body for b in doc_pages.blocks(PAGE) if f"{b.kind} {b.name}".strip() == kind]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Hold one cohort as every file that the page names, with its dictionary."""
    folder = tmp_path_factory.mktemp("cohort")
    rng = np.random.default_rng(0)
    n = 90
    days = pd.to_timedelta(rng.integers(0, 20_000, n), "D")
    frame = pd.DataFrame(
        {
            "patient": np.arange(n),
            "hospital": rng.choice(["01", "02", "03"], n),
            "age": rng.integers(20, 90, n),
            "marker": np.where(rng.random(n) < 0.1, -9, rng.normal(size=n)),
            "grade": rng.choice(["I", "II", "III", "unknown"], n),
            "smoker": rng.random(n) < 0.4,
            "born": (pd.Timestamp("1930-01-01") + days).strftime("%Y-%m-%d"),
            "time": rng.integers(1, 2000, n),
            "event": rng.integers(0, 2, n),
        }
    )
    frame.to_csv(folder / "cohort.csv", index=False)
    frame.to_parquet(folder / "cohort.parquet")
    (folder / "exports").mkdir()
    for name, part in frame.groupby("hospital"):
        part.to_csv(folder / "exports" / f"{name}_2024.csv", index=False)
    with sqlite3.connect(folder / "cohort.db") as lite:
        frame.to_sql("patients", lite, index=False)
    lite.close()
    with duckdb.connect(str(folder / "cohort.duckdb")) as duck:
        duck.register("frame", frame)
        duck.execute("create table patients as select * from frame")
    (folder / "dictionary.yaml").write_text(blocks("yaml dictionary")[0])
    return folder


def test_every_source_opens_the_same_cohort(folder):
    tables = []
    for block in blocks("yaml data"):
        (folder / "study.yaml").write_text(REST + block)
        tables.append(fc.Study.from_file(folder / "study.yaml").table)
    assert len(tables) == 6
    expected = tables[0].frame
    for table in tables:
        assert set(table.site) == {"01", "02", "03"}
        pd.testing.assert_frame_equal(table.frame[expected.columns], expected)  # in one order
    assert {stage for stage, *_ in tables[-1].flow} >= {"excluded: missing outcome"}


def test_the_database_that_is_not_here_is_a_study_that_can_be_read(folder):
    (block,) = blocks("yaml checked")
    doc = yamlfile.parse(REST + block, "study.yaml")
    assert plan.check(doc, folder).source.startswith("postgresql+psycopg://reader:${")


def test_the_python_example_runs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "study.yaml").write_text(REST + blocks("yaml data")[0])
    names: dict[str, object] = {}
    (block,) = blocks("python")
    exec(block, names)
    study, fed, fit = names["study"], names["fed"], names["fit"]
    assert isinstance(study, fc.Study)
    assert study.plan.source == MEMORY
    assert fed.sites == ("01", "02", "03")
    assert fed.dictionary["marker"].view == "blood"
    assert set(fit.summary.covariate) == {"age", "marker", "grade=II", "grade=III", "smoker"}
