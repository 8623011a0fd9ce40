"""A database gives the rows of one query; nothing is written there, and no secret is shown."""

from __future__ import annotations

import datetime
import sqlite3
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from fedcohort.data.read import sql
from fedcohort.data.read.sources import load
from fedcohort.protocol import DataError

ROWS = [(1, "007", "Jane", 2**60 + 1), (2, "010", None, None)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Hold the same table, `t`, as a file of SQLite and one of DuckDB, and a CSV file beside."""
    folder = tmp_path_factory.mktemp("databases")
    with sqlite3.connect(folder / "a #1.db") as lite:
        lite.execute("create table t (x integer, g text, name text, id integer)")
        lite.executemany("insert into t values (?, ?, ?, ?)", ROWS)
    lite.close()
    with duckdb.connect(str(folder / "a.duckdb")) as duck:
        duck.execute("create table t (x integer, g text, name text, id bigint)")
        duck.executemany("insert into t values (?, ?, ?, ?)", ROWS)
    (folder / "t.csv").write_text("x\n1\n")
    return folder


URLS = ("sqlite:///a #1.db", "duckdb:///a.duckdb")


@pytest.mark.parametrize("url", URLS)
def test_a_query_gives_its_rows_exactly_and_in_order(folder, url):
    frame = sql.read_sql(url, "select x, g, name, id from t order by x;", folder)
    assert list(frame.columns) == ["x", "g", "name", "id"]
    assert list(frame.itertuples(index=False, name=None)) == ROWS
    assert load(url, folder, query="select g from t").frames.g.tolist() == ["007", "010"]
    empty = sql.read_sql(url, "select x, g from t where x > 9", folder)
    assert empty.shape == (0, 2)


def test_decimals_dates_and_booleans_of_duckdb_arrive(folder):
    query = "select 1.10::decimal(4, 2) a, date '2020-02-29' d, true b"
    row = sql.read_sql(URLS[1], query, folder).iloc[0].tolist()
    assert row == [Decimal("1.10"), datetime.date(2020, 2, 29), True]
    frame = load(URLS[1], folder, query=query).frames
    assert [str(t) for t in frame.dtypes] == ["float64", "datetime64[us]", "float64"]


@pytest.mark.parametrize(
    "query",
    [
        "delete from t", "insert into t values (1, 2, 3, 4)", "drop table t", "", "selec x from t",
        "pragma user_version", "attach 'b.db' as b", "copy t to 'o.csv'", "explain select 1",
        "select 1; drop table t", "/* select */ drop table t", "select ';' ; select 2",
    ],
)  # fmt: skip
def test_only_one_select_is_a_query(folder, query):
    assert "one SELECT" in (sql.problem_of_query(query) or "")
    with pytest.raises(DataError, match="one SELECT"):
        sql.read_sql(URLS[0], query, folder)


@pytest.mark.parametrize(
    "query",
    ["SELECT 1", "with a as (select 1) select * from a;", "-- one;\nselect ';' as x /* ; */",
     'select "a;b" from t', "(select 1)".strip("()")],
)  # fmt: skip
def test_a_semicolon_in_quotes_or_comments_is_none(query):
    assert sql.problem_of_query(query) is None


@pytest.mark.parametrize("query", ["select * from read_csv('t.csv')", "select * from 't.csv'"])
def test_duckdb_reads_no_other_file(folder, query):
    with pytest.raises(DataError, match=r"the query failed \(PermissionException\)"):
        sql.read_sql(URLS[1], query, folder)


def test_a_query_cannot_write_even_where_it_is_a_select(folder):
    """SQLite files are opened read-only: a WITH before DELETE is a statement that it knows."""
    query = "with a as (select 1) delete from t"
    for url in URLS:
        with pytest.raises(DataError, match="the query failed"):
            sql.read_sql(url, query, folder)
        assert len(sql.read_sql(url, "select * from t", folder)) == 2


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select agee from t", "look at 'agee'"),
        ("select * from patients", "look at 'patients'"),
        ("select * from t where", "Try it in the database's own client"),
    ],
)
def test_a_query_that_fails_is_one_line_that_names_what_it_names(folder, url, query, said):
    with pytest.raises(DataError) as caught:
        sql.read_sql(url, query, folder)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{url}: the query failed")
    assert "\n" not in str(caught.value)


def test_no_cell_is_in_an_error(folder):
    with pytest.raises(DataError) as caught:
        sql.read_sql(URLS[1], "select cast(name as integer) from t", folder)
    assert "Jane" not in str(caught.value)
    assert "ConversionException" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///b.db", "there is no file"),
        ("sqlite://", "expected a file, such as sqlite:///cohort.db"),
        ("duckdb:///:memory:", "expected a file"),
        ("nosuch://h/b", "no driver for 'nosuch' is installed."),
        ("postgresql://h:port/b", "the URL of the database cannot be read"),
        ("postgresql://u:${PG_PW}@h/b", "the environment variable PG_PW is not set"),
        ("sqlite:///t.csv", "the query failed (DatabaseError)"),
    ],
)
def test_a_database_that_cannot_be_opened_is_one_line(folder, url, said):
    with pytest.raises(DataError) as caught:
        sql.read_sql(url, "select 1 from t", folder)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@h/b", "postgresql://u:${PW}hunter2@h/b", "mysql://:hunter2@h/b",
        "duckdb:///md:a?motherduck_token=hunter2", "postgresql://h/b?password=hunter2",
        "mssql://h/b?odbc_connect=DSN%3Dx%3BPWD%3Dhunter2",
    ],
)  # fmt: skip
def test_a_password_in_a_url_is_refused_and_never_shown(tmp_path, url):
    assert "the URL holds a password" in (sql.problem_of_url(url) or "")
    with pytest.raises(DataError) as caught:
        load(url, tmp_path, query="select 1")
    assert "hunter2" not in str(caught.value)
    assert "${NAME}" in str(caught.value)


def test_a_variable_stands_for_a_password_and_for_nothing_else(monkeypatch):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    assert sql.problem_of_url("postgresql://u:${PW}@h/b?sslmode=require") is None
    assert "only stand in place of a password" in (sql.problem_of_url("sqlite:///${HOME}/a") or "")
    seen = []
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda url, **_: seen.append(url))
    monkeypatch.setenv("PW", "p@ss:/w?rd")
    sql._engine("postgresql://u:${PW}@h/b", Path())
    assert seen[0].password == "p@ss:/w?rd"
    assert "p@ss" not in str(seen[0])


def test_a_missing_package_is_named_with_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(DataError, match=r'pip install "fedcohort\[sql\]"'):
        sql.read_sql(URLS[0], "select 1", folder)


def test_a_missing_driver_is_named(folder):
    with pytest.raises(DataError, match="the driver 'oracledb' is not installed: pip install"):
        sql.read_sql("oracle+oracledb://h/b", "select 1", folder)


@pytest.mark.parametrize("url", URLS)
def test_only_a_name_that_is_absent_is_asked_for(folder, url):
    with pytest.raises(DataError, match=r"'agee'\. Is there such a table or column\?$"):
        sql.read_sql(url, "select agee from t", folder)


def test_a_name_that_is_there_is_asked_for_its_type():
    cause = ValueError('column "x" is of type text')
    assert sql._said("u", "select x from t", cause).endswith("'x'. Do the types fit?")
