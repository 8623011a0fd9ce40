"""Patients' strings, planted in data and in whatever can fail, are in nothing that leaves the node.

Each case plants strings of its own, lets the node answer an offer and calls, and looks for every
one of them, in any case and encoding, in all bytes that left, and in every file of the node's
state: log, ledger, desk, kept answers.
"""

import contextlib
import itertools
import sqlite3

import numpy as np
import pandas as pd
import pytest

from fedcohort.algorithms.cox import METHOD as COX
from fedcohort.data import describe, prepare
from fedcohort.protocol import FedcohortError, Task
from fedcohort.protocol.arguments import Parcel
from fedcohort.protocol.errors import DataError
from fedcohort.runtime.remote import remote
from fedcohort.study.at_site import counting
from fedcohort.study.file.terms import Terms
from hospital import DICTIONARY, Hospital, patients


class Plants:
    """Makes strings that stand nowhere else, and knows them all."""

    def __init__(self):
        self.all: list[str] = []
        self._numbers = itertools.count(1)

    def one(self) -> str:
        self.all.append(f"Doe{next(self._numbers):04d}Xq")
        return self.all[-1]

    def some(self, n: int) -> list[str]:
        return [self.one() for _ in range(n)]


def everything(made: Hospital) -> bytes:
    """Return all that left the node, and all files that it keeps, in small letters."""
    kept = [p.read_bytes() for p in sorted(made.state.rglob("*")) if p.is_file()]
    names = [str(p.relative_to(made.state)).encode() for p in made.state.rglob("*")]
    return b"\n".join([*made.sent, *kept, *names]).lower()


def check(made: Hospital, plants: Plants) -> None:
    """Check that no planted string is anywhere."""
    made.node.close()
    assert plants.all
    assert made.sent
    found = everything(made)
    for text in plants.all:
        for code in ("utf-8", "utf-16-le", "utf-16-be"):
            assert text.lower().encode(code) not in found, (text, code)


def write(made: Hospital, frame: pd.DataFrame) -> None:
    frame.to_csv(made.table, index=False)


# what fails ---------------------------------------------------------------------------------


def text_among_numbers(made, plants):
    for column in ("age", "marker", "time", "cens"):
        frame = patients().astype({column: object})
        frame.loc[3:8, column] = plants.some(6)
        write(made, frame)
        yield "unfit"


def whole_columns_of_text(made, plants):
    for column in ("age", "marker", "time", "cens"):
        write(made, patients().assign(**{column: plants.some(160)}))
        yield "unfit"


def wrong_levels(made, plants):
    frame = patients()
    frame.loc[3:14, "grade"] = plants.some(12)
    write(made, frame)
    yield "unfit"


def wrong_dates(made, plants):
    frame = patients()
    frame.loc[3:8, "seen"] = [f"31.12.{text}" for text in plants.some(6)]
    write(made, frame)
    yield "unfit"


def columns_called_by_patients(made, plants):
    names = {"age": plants.one(), "marker": plants.one()}
    write(made, patients().rename(columns=names))
    yield "unfit"
    near = {"age": f"age {plants.one()}", "time": f"time_{plants.one()}"}
    write(made, patients().rename(columns=near))
    yield "unfit"


def no_header(made, plants):
    frame = patients()
    frame["pid"], frame["note"] = plants.some(160), plants.some(160)
    frame.to_csv(made.table, index=False, header=False)
    yield "unfit"


def a_name_that_stands_twice(made, plants):
    twice = plants.one()
    frame = patients().assign(a=plants.some(160), b=plants.some(160))
    frame.columns = [*frame.columns[:-2], twice, twice]
    write(made, frame)
    yield None


def rows_that_cannot_be_parsed(made, plants):
    rows = patients().to_csv(index=False).splitlines()
    for line in (
        '"{0},{1},{2}', '{0},"{1}"{2},3', ",".join(["{0}"] * 30) + "{1}{2}", "{0}\0{1}{2}",
        '"{0}{1}{2}',
    ):  # fmt: skip
        texts = plants.some(3)
        made.table.write_text("\n".join([*rows[:5], line.format(*texts), *rows[5:]]))
        yield ("data", "unfit")


def bytes_of_another_encoding(made, plants):
    frame = patients()
    frame["note"] = [f"Ä{t}" for t in plants.some(160)]
    made.table.write_bytes(frame.to_csv(index=False).encode("utf-32"))
    yield ("data", "unfit")


def other_forms(made, plants):
    """Encodings and separators that are read, and a separator that is not."""
    frame = patients()
    frame["note"] = [f"Ä{t}" for t in plants.some(160)]
    for code in ("latin-1", "utf-16"):
        made.table.write_bytes(frame.to_csv(index=False).encode(code))
        yield None
    for mark, code in ((";", None), ("\t", None), ("|", None), ("~", ("data", "unfit"))):
        frame.to_csv(made.table, index=False, sep=mark)
        yield code


def other_files(made, plants):
    for head in (b"PK\3\4", b"PAR1", b"SQLite format 3\0", b"", b"\x1f\x8b"):
        made.table.write_bytes(head + ",".join(plants.some(4)).encode())
        yield ("data", "unfit")


def broken_parquet(made, plants):
    pytest.importorskip("pyarrow")
    made.data["source"] = "patients.parquet"
    path = made.table.with_suffix(".parquet")
    path.write_bytes(b"PAR1" + " ".join(plants.some(5)).encode() + b"PAR1")
    made.restart()
    yield "data"
    frame = patients().assign(marker=[[t] for t in plants.some(160)])
    frame.to_parquet(path)
    yield ("data", "unfit")


def paths_of_patients(made, plants):
    for name in ("{0}.csv", "{0}/{1}.csv", "{0}.parquet", "sub/{0}.xlsx"):
        texts = plants.some(2)
        made.data["source"] = name.format(*texts)
        made.restart()
        yield "data"
        path = made.table.parent / made.data["source"]
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'"{texts[0]}"{texts[1]}\n\0')
        yield ("data", "unfit")


def own_dictionary_of_patients(made, plants):
    own = made.table.parent / f"{plants.one()}.yaml"
    made.data["dictionary"] = own.name
    made.restart()
    yield "data"
    own.write_text(f"variables: [{plants.one()}, {plants.one()}")
    yield "data"
    levels = ", ".join(plants.some(3))
    own.write_text(DICTIONARY.replace("I, II, III", levels).replace("at surgery", plants.one()))
    yield "dictionary"


def database(made, frame):
    path = made.table.with_suffix(".db")
    with contextlib.closing(sqlite3.connect(path)) as db:
        frame.to_sql("patients", db, index=False, if_exists="replace")
    return path


def errors_of_sqlite(made, plants):
    pytest.importorskip("sqlalchemy")
    frame = patients().assign(note=plants.some(160))
    frame = frame.astype({"marker": object})
    frame.loc[3:5, "marker"] = plants.some(3)
    database(made, frame)
    made.data["source"] = "sqlite:///patients.db"
    for query, code in (
        ("SELECT * FROM patients", "unfit"),
        (f"SELECT {plants.one()} FROM patients", "data"),
        (f"SELECT * FROM {plants.one()}", "data"),
        (f"SELECT * FROM patients WHERE note = '{plants.one()}' AND", "data"),
        (f"SELECT abs('{plants.one()}', 2) FROM patients", "data"),
        (f"SELECT json_extract('{{{plants.one()}', '$.x') FROM patients", "data"),
    ):
        made.data["query"] = query
        made.restart()
        yield code
    made.data["source"] = f"sqlite:///{plants.one()}.db"
    made.restart()
    yield "data"
    made.data["source"] = f"nosuchdialect://{plants.one()}@host/{plants.one()}"
    made.restart()
    yield "data"


def errors_of_duckdb(made, plants):
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("duckdb_engine")
    path = made.table.with_suffix(".duckdb")
    with contextlib.closing(duckdb.connect(str(path))) as db:
        frame = patients().assign(note=plants.some(160))  # noqa: F841 - duckdb finds it by name
        db.execute("CREATE TABLE patients AS SELECT * FROM frame")
    made.data["source"] = "duckdb:///patients.duckdb"
    for query in (
        "SELECT CAST(note AS INTEGER) AS age FROM patients",
        "SELECT CAST(note AS DATE) AS seen FROM patients",
        f"SELECT error('{plants.one()}')",
        f"SELECT {plants.one()} FROM patients",
    ):
        made.data["query"] = query
        made.restart()
        yield "data"


def two_rows_of_one_patient(made, plants):
    frame = patients()
    frame["pid"] = [plants.all[-1] if i == 7 else plants.one() for i in range(160)]
    write(made, frame)
    yield None


def too_few_rows(made, plants):
    write(made, patients(20).assign(note=plants.some(20), pid=plants.some(20)))
    yield ("rows", "unfit")


FAILING = (
    text_among_numbers, whole_columns_of_text, wrong_levels, wrong_dates,
    columns_called_by_patients, no_header, a_name_that_stands_twice, rows_that_cannot_be_parsed,
    bytes_of_another_encoding, other_forms, other_files, broken_parquet, paths_of_patients,
    own_dictionary_of_patients, errors_of_sqlite, errors_of_duckdb, two_rows_of_one_patient,
    too_few_rows,
)  # fmt: skip


@pytest.mark.parametrize("case", FAILING, ids=lambda case: case.__name__)
def test_what_fails_says_nothing_of_a_patient(tmp_path, case):
    made, plants = Hospital(tmp_path), Plants()
    signed = made.signed()
    for code in case(made, plants):
        told = made.offered(signed)
        if code is not None:
            codes = (code,) if isinstance(code, str) else code
            assert (told["state"], told["code"] in codes) == ("refused", True), told
        made.call(signed.hash)
    check(made, plants)


# what works ---------------------------------------------------------------------------------


def planted(plants: Plants, n: int = 160) -> pd.DataFrame:
    """Return a table that fits, with strings in every column that can hold one, and others."""
    frame = patients(n)
    frame["note"], frame["pid"] = plants.some(n), plants.some(n)
    frame["marker"] = np.random.default_rng(5).normal(2, 0.5, n)
    return frame.assign(**{plants.one(): plants.some(n), "hospital": plants.one()})


def numbers(frame: pd.DataFrame) -> list[bytes]:
    """Return patients' own values as they would stand in an array."""
    values = frame["marker"].to_numpy()
    return [np.float64(v).tobytes() for v in values] + [np.float32(v).tobytes() for v in values]


def test_a_whole_study_tells_nothing_of_a_patient(tmp_path):
    """Counts, preprocessing and a fit, each in bytes, and sessions and steps that are refused."""
    made, plants = Hospital(tmp_path), Plants()
    frame = planted(plants)
    write(made, frame)
    signed = made.signed()
    run, terms = made.approved(signed), Terms.from_json(signed.terms)
    remote(made, run, "count").gather(counting.tell_counts, min_cell=5)
    fed = remote(made, run, "fit-r0000-a00")
    design = prepare.fit_design(
        fed, terms.dictionary, terms.outcome, scale="none", impute="median", min_cell=5
    )
    task = Task(kind="survival", features=design.features, outcome="survival", origin=design.origin)
    COX.fit(fed.through(design), COX.configure({}), task)
    for session in ("fit-r0001-a00", "fit-r0000-a00", "steal", "describe", "judge-r0000-a00"):
        for step in ("tell_counts", "deaths", "rows_of_all", describe.STEPS[0].name):
            made.call(run, session=session, step=step, parcel=Parcel.of({}))
    assert len(made.sent) > 20
    left = b"".join(made.sent)
    for value in numbers(frame):
        assert value not in left
    check(made, plants)


class Cell(float):
    """A value whose text is a patient's, wherever it is shown."""

    def __new__(cls, text):
        made = super().__new__(cls, 1.0)
        made.text = text
        return made

    def __repr__(self):
        return self.text

    __str__ = __repr__


@pytest.mark.parametrize("kind", [ValueError, KeyError, DataError, FedcohortError, RecursionError])
def test_a_step_that_fails_says_nothing_of_a_patient(tmp_path, monkeypatch, kind):
    made, plants = Hospital(tmp_path), Plants()
    run = made.approved()

    def fails(*_, **__):
        raise kind(f"could not convert {Cell(plants.one())!r} in row 7")

    monkeypatch.setattr(counting, "classes_of", fails)
    told = made.call(run)
    assert told["kind"] == "error"
    check(made, plants)


def test_more_than_two_hundred_strings_are_planted(tmp_path):
    """The number of strings of all failing cases and of the whole study together."""
    total = 0
    for i, case in enumerate(FAILING[:6]):
        folder = tmp_path / str(i)
        folder.mkdir()
        made, plants = Hospital(folder), Plants()
        for _ in case(made, plants):
            pass
        made.node.close()
        total += len(plants.all)
    assert total >= 200
