"""`fedcohort predict`: the table is checked first, and each row gets its prediction or is named."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from command_line import COMMAND
from fedcohort.apps.predictions import predict
from fedcohort.data.read import sources
from fedcohort.protocol import DataError, StudyError
from fedcohort.study.results.saved import round_times

SAMPLE = sources.load("sample:gbsg2", Path())


def described(**changes):
    """Return the sample's dictionary with changes to some of its variables."""
    plain = SAMPLE.dictionary.to_dict()
    for name, change in changes.items():
        plain["variables"][name] = {**plain["variables"].get(name, {}), **change}
    return plain


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    frame = SAMPLE.frames.assign(
        hospital=np.arange(686) % 3,
        birth=pd.Timestamp("1930-01-01"),
        start=pd.Timestamp("1985-01-01") + pd.to_timedelta(np.arange(686) % 90 * 100, "D"),
    )
    dictionary = described(
        age={"range": [20, 85]},
        tsize={"missing": ["-9"]},
        birth={"type": "date"},
        start={"type": "date", "since": "birth", "unit": "years"},
    )
    fed = fc.simulate(
        frame, sites="hospital", outcome=fc.Survival("time", "cens"), dictionary=dictionary
    )
    folder = tmp_path_factory.mktemp("model")
    fit = fc.fit("cox", fed, impute="iterative", winsorise=0.01)
    fit.save(folder)
    return folder, fit, frame.drop(columns="hospital")


@pytest.fixture
def table(model, tmp_path):
    """Return a function that writes the first rows, with changes, to t.csv."""

    def write(rows=8, name="t.csv", **changes):
        frame = model[2].head(rows).astype(object)
        for column, cells in changes.items():
            for row, value in cells.items():
                frame.loc[row - 1, column] = value
        frame.to_csv(tmp_path / name, index=False)
        return str(tmp_path / name)

    return write


def test_each_row_gets_its_risk_median_and_survival(model, table):
    folder, fit, frame = model
    found = predict(folder, table(50), times="365,730")
    assert list(found.table) == [
        "row", "risk", "median survival time (days)", "survival at 365 days (1 year)",
        "survival at 730 days (2 years)",
    ]  # fmt: skip
    assert_array_equal(found.table["row"], np.arange(1, 51))
    assert_allclose(found.table["risk"], fit.predict(frame.head(50)), rtol=1e-12)
    expected = fit.predict_survival(frame.head(50), [365, 730])
    assert_allclose(found.table.iloc[:, 3:], expected, rtol=1e-12)
    (said,) = found.warnings
    empty = found.table["median survival time (days)"].isna().sum()
    assert f"the median survival time is empty in {empty} of 50 rows" in said


def test_the_median_is_where_the_curve_first_falls_to_a_half_and_empty_where_it_does_not(
    model, table
):
    folder, fit, frame = model
    found = predict(folder, table(80)).table["median survival time (days)"].to_numpy()
    grid = fit.model.baseline.times
    survival = fit.predict_survival(frame.head(80), grid)
    reached = ~np.isnan(found)
    assert 0 < reached.sum() < 80
    assert_array_equal(reached, survival[:, -1] <= 0.5)
    assert_array_equal(found[reached], grid[(survival > 0.5).sum(axis=1)[reached]])


def test_survival_is_shown_at_round_times_of_the_follow_up_by_default(model, table):
    folder, fit, _ = model
    times = json.loads((folder / "model.json").read_text())["notes"]["times"]
    assert times == [730, 1460, 2190]
    assert times[-1] <= fit.model.baseline.times[-1]
    assert list(predict(folder, table()).table)[3:] == [
        f"survival at {t:g} days ({t / 365:g} years)" for t in times
    ]


@pytest.mark.parametrize(
    ("last", "unit", "expected"),
    [
        (2456.0, "days", [730, 1460, 2190]),
        (80.0, "months", [20, 40, 60]),
        (5.3, "", [1, 2, 3]),
        (0.7, "years", [0.2, 0.4, 0.6]),
        (2.0, "days", [1, 2]),
        (0.0, "days", []),
    ],
)
def test_round_times_lie_inside_the_follow_up(last, unit, expected):
    assert_allclose(round_times(np.linspace(last / 50, last, 50), unit), expected)


@pytest.mark.parametrize("unit", ["days", ""])
@pytest.mark.parametrize("grid", [[1500.0, 1990.0, 2460.0], [800.0, 805.0, 830.0], [771.3]])
def test_default_times_lie_in_different_intervals_after_the_first_fall(grid, unit):
    place = np.searchsorted(grid, round_times(np.array(grid), unit), side="right")
    assert_array_equal(place, np.arange(1, len(grid) + 1))


def test_a_model_of_few_times_differs_between_patients_and_says_so(model, table, tmp_path):
    fed = fc.simulate(
        model[2].assign(hospital=np.arange(686) % 3),
        sites="hospital",
        outcome=fc.Survival("time", "cens"),
    )
    fc.fit("cox", fed, time_grid=4).save(tmp_path / "coarse")
    found = predict(tmp_path / "coarse", table(30))
    assert "the model knows survival at 4 times only" in found.warnings[0]
    assert (found.table.iloc[:, 3:].nunique() > 1).all()
    assert (found.table.iloc[:, 3:].T.nunique() == 3).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tgrade": {2: "Jane Doe"}}, "column 'tgrade' has a level outside the 3 that the "
         "dictionary knows, in row 2. Correct them, or add the level to the dictionary and refit."),
        ({"age": {3: "Jane Doe"}}, "column 'age' holds no number in row 3. Correct or empty them."),
        ({"start": {1: "Jane Doe"}}, "column 'start' holds no date in row 1. Write dates as "
         "2015-01-31."),
        ({"birth": {4: "12.03.1944"}}, "column 'birth' holds no date in row 4. Write dates as "
         "2015-01-31."),
        ({"age": {3: "61,5"}}, "column 'age' holds no number in row 3. Write decimals with a "
         "point, and thousands without a mark."),
        ({"age": {3: "61,5", 4: "x"}}, "column 'age' holds no number in row 3. Write decimals with "
         "a point, and thousands without a mark. column 'age' holds no number in row 4. Correct or "
         "empty them."),
        ({"tgrade": {2: "ii "}}, "column 'tgrade' has a level outside the 3 that the dictionary "
         "knows, in row 2. They differ from a known level in capitals, accents or blanks alone; "
         "write them as the dictionary does."),
        ({"age": {3: "x"}, "pnodes": {3: "y", 5: "y"}}, "column 'age' holds no number in row 3. "
         "Correct or empty them. So it is with 'pnodes'."),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_taken_is_named_on_one_line(model, table, changes, said):
    path = table(**changes)
    with pytest.raises(DataError) as error:
        predict(model[0], path)
    assert str(error.value) == f"{path}: {said} Option --skip predicts the other rows."


def test_skip_leaves_such_rows_empty_and_predicts_the_others(model, table):
    whole = predict(model[0], table()).table
    path = table(age={3: "x"}, tgrade={3: "x", 6: "x"})
    found = predict(model[0], path, skip=True)
    assert_array_equal(np.flatnonzero(found.table["risk"].isna()), [2, 5])
    assert_array_equal(found.table["row"], np.arange(1, 9))
    pd.testing.assert_frame_equal(found.table.drop([2, 5]), whole.drop([2, 5]))
    assert found.warnings[2] == f"{path}: no prediction for rows 3, 6."
    assert found.csv.splitlines()[3] == "3,,,,,"
    assert len(found.warnings) == 4
    assert "the median survival time is empty in 2 of 6 rows" in found.warnings[3]


def test_a_value_out_of_range_is_named_and_predicted_all_the_same(model, table):
    path = table(age={2: 19, 5: 200})
    found = predict(model[0], path)
    assert found.warnings[:-1] == (
        f"{path}: column 'age' is outside the dictionary's range in rows 2, 5; predicted all the "
        f"same.",
    )
    assert found.table["risk"].notna().all()


def test_missing_values_and_missing_codes_are_imputed_alike(model, table):
    coded, empty = (
        predict(model[0], table(tsize={2: code}, tgrade={4: None})).table for code in (-9, None)
    )
    pd.testing.assert_frame_equal(coded, empty)
    assert coded["risk"].notna().all()


def test_what_is_filled_in_is_counted_by_column_with_its_rows(model, table):
    path = table(tsize={2: -9, 4: None}, tgrade={4: None}, start={5: None}, age={6: "x", 4: None})
    found = predict(model[0], path, skip=True, details=True)
    assert found.warnings[2:-1] == tuple(
        f"{path}: column {name!r} is filled in as in the fit in {where}."
        for name, where in (("age", "row 4"), ("tsize", "rows 2, 4"), ("start", "row 5"),
                            ("tgrade", "row 4"))
    )  # fmt: skip


def test_many_columns_that_are_filled_in_are_said_on_one_line(model, table):
    gaps = {"tsize": {2: -9, 4: None}, "tgrade": {4: None}, "pnodes": {4: None, 5: None, 6: None}}
    path = table(**gaps, age={1: None, 3: "x"})
    found = predict(model[0], path, skip=True)
    n = len(found.table) - 1
    assert found.warnings[2:-1] == (
        f"{path}: 4 columns have cells that are filled in as in the fit, in 5 of {n} rows: "
        f"'pnodes' in {3 / n:.0%}, 'tsize' in {2 / n:.0%}, 'age' in {1 / n:.0%}, …. --details "
        f"names the rows.",
    )


def test_numbers_are_written_with_six_digits_that_matter(model, table):
    found = predict(model[0], table(50))
    written = pd.read_csv(io.StringIO(found.csv))
    assert_allclose(written, found.table, rtol=5e-6)
    cells = [cell.lstrip("-") for line in found.csv.splitlines()[1:] for cell in line.split(",")]
    assert max(len(cell.replace(".", "").strip("0")) for cell in cells) == 6
    assert all(cell.isdigit() for cell in found.csv.splitlines()[1].split(",")[2:3] if cell)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_is_repeated_to_join_by_only_where_it_is_asked_for(model, tmp_path, suffix):
    keys = {"key": ["007", "A-1", None], "number": [7, 8, 9]}
    frame = model[2].head(3).assign(**keys)
    path = tmp_path / f"t.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    plain = predict(model[0], str(path)).csv.splitlines()
    for name, shown in (("key", ["007", "A-1", ""]), ("number", ["7", "8", "9"])):
        joined = predict(model[0], str(path), join=name).csv.splitlines()
        for line, before, text in zip(joined, plain, [name, *shown], strict=True):
            row, _, rest = before.partition(",")
            assert line == f"{row},{text},{rest}"


def test_a_column_to_join_by_exists_and_is_none_of_the_predictions(model, table):
    with pytest.raises(DataError, match="no column 'agee' among 12 columns"):
        predict(model[0], table(), join="agee")
    for name in ("row", "risk"):
        path = table(**{name: {1: "x"}})
        with pytest.raises(StudyError, match=f"--id {name}: there is such a column already: row, "):
            predict(model[0], path, join=name)


def test_a_folder_above_the_models_is_told_which_they_are(model, table, tmp_path):
    runs = tmp_path / "run" / "models"
    for name in ("cox", "isolated/b", "isolated/a"):
        shutil.copytree(model[0], runs / name)
    here = runs.as_posix()
    folders = f"a model's own folder: {here}/cox, {here}/isolated/a, {here}/isolated/b."
    for folder, said in (
        (tmp_path / "run", folders),
        (runs, folders),
        (runs / "isolated", f"a model's own folder: {here}/isolated/a, {here}/isolated/b."),
        (runs / "nowhere", "the folder of a saved model, such as runs/STUDY/models/ARM."),
    ):
        with pytest.raises(DataError) as error:
            predict(folder, table())
        assert str(error.value) == f"{folder}: no model.json there. Give {said}"


def test_the_outcome_and_other_columns_are_not_needed(model, tmp_path):
    frame = model[2].head(5).drop(columns=["time", "cens"]).assign(note="x")
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert len(predict(model[0], str(tmp_path / "t.csv")).table) == 5


def test_missing_columns_are_all_named(model, tmp_path):
    model[2].head(5).drop(columns=["age", "birth", "pnodes"]).to_csv(
        tmp_path / "t.csv", index=False
    )
    with pytest.raises(DataError) as error:
        predict(model[0], str(tmp_path / "t.csv"))
    assert "there is no column 'age' among 9 columns." in str(error.value)
    assert str(error.value).endswith("Missing too: 'pnodes', 'birth'.")


def test_a_query_gives_the_same_as_a_file(model, table, tmp_path):
    path = table(20)
    with sqlite3.connect(tmp_path / "t.db") as base:
        pd.read_csv(path).to_sql("visits", base, index=False)
    url = f"sqlite:///{tmp_path / 't.db'}"
    found = predict(model[0], url, query="select * from visits")
    assert found.csv == predict(model[0], path).csv
    with pytest.raises(StudyError, match="--query: it is for a database"):
        predict(model[0], path, query="select 1")


def test_behind_the_known_follow_up_survival_is_empty_and_said_to_be_so(model, table):
    folder, fit, frame = model
    end = fit.model.baseline.end
    assert end <= frame["time"].max()
    found = predict(folder, table(50), times=f"365,{end + 1},99999")
    assert (found.table.isna().all() == [False] * 4 + [True] * 2).all()
    assert f"survival at {end + 1:g} days" in found.warnings[-1]
    assert "99999 days (273.8 years) is empty: it is known up to" in found.warnings[-1]
    for line in found.warnings:
        assert f"up to {end:g} days" in line
        assert "the last time up to which the sites' sums tell it" in line
    assert "their survival stays above 1/2" in found.warnings[0]
    assert found.table["median survival time (days)"].max() <= end
    with pytest.warns(UserWarning, match="survival is NaN after") as said:
        late = fit.predict_survival(frame.head(3), [end, end + 1, 99999])
    assert len(said) == 1
    assert (np.isnan(late) == [False, True, True]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (fit.predict_survival(frame.head(3), [1, end]) < 1.0).all(axis=0).tolist() == [0, 1]


def test_times_that_are_none_are_refused(model, table):
    for text in ("0", "x", "", "1,nan"):
        with pytest.raises(StudyError, match="--times: expected positive numbers"):
            predict(model[0], table(), times=text)


def test_a_loaded_model_predicts_as_the_fit_did_also_from_a_raw_frame(model):
    folder, fit, frame = model
    raw = frame.head(30).astype({"age": str, "start": str}).assign(tsize=["-9"] * 30)
    again = fc.load(folder)
    assert_array_equal(again.predict(raw), fit.predict(raw))
    expected = fit.predict(frame.head(30).assign(tsize=np.nan))
    assert_allclose(again.predict(raw), expected, rtol=1e-12)
    assert again.parts.dictionary["start"].since == "birth"
    assert again.parts.dictionary["age"].range == (20, 85)


def test_the_command_warns_on_stderr_and_leaves_stdout_to_the_table(model, table):
    path = Path(table(age={2: 19}, tgrade={3: "Jane Doe"}))
    command = [*COMMAND, "predict", str(model[0]), path.name]
    done = subprocess.run(
        [*command, "--skip"], cwd=path.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "row,risk,median survival time (days),survival at 730 days (2 years),"
    )
    assert len(done.stdout.splitlines()) == 9
    said = done.stderr.splitlines()
    assert len(said) == 4
    assert all(line.startswith("fedcohort: t.csv: ") for line in said)
    refused = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert len(refused.stderr.splitlines()) == 1
    assert "Jane" not in done.stdout + done.stderr + refused.stderr


def test_a_table_without_the_offset_is_told_what_the_column_is(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"age": rng.normal(60, 9, 120).round(1), "log_days": rng.normal(0, 0.3, 120)}
    )
    rows["falls"] = rng.poisson(1, 120)
    fed = fc.simulate({"a": rows[:60], "b": rows[60:]}, outcome=fc.Count("falls"))
    fc.fit("glm", fed, offset="log_days").save(tmp_path / "model")
    rows[["age"]].to_csv(tmp_path / "one.csv", index=False)
    with pytest.raises(fc.FedcohortError, match=r"no column 'log_days' .* It is the offset"):
        predict(tmp_path / "model", str(tmp_path / "one.csv"))
    rows[["falls"]].to_csv(tmp_path / "none.csv", index=False)
    with pytest.raises(fc.FedcohortError, match=r"It is the offset, .* Missing too: 'age'\."):
        predict(tmp_path / "model", str(tmp_path / "none.csv"))


def test_a_model_of_times_gives_the_median_of_its_law_as_far_as_it_is_known(tmp_path):
    frame = SAMPLE.frames.assign(hospital=np.arange(686) % 3)
    outcome = fc.Survival("time", "cens")
    fed = fc.simulate(frame, sites="hospital", outcome=outcome, dictionary=described())
    fit = fc.fit(
        "boosting", fed, objective="weibull", sigma=0.7, rounds=60, max_depth=2, learning_rate=0.3
    )
    fit.save(tmp_path / "model")
    SAMPLE.frames.to_csv(tmp_path / "t.csv", index=False)
    found = predict(tmp_path / "model", str(tmp_path / "t.csv"), times="365,99999")
    median = found.table["median survival time (days)"].to_numpy()
    (end,) = np.unique(fit.model.known_until(fit.parts.design.matrix(frame)))
    law = np.exp(-found.table["risk"].to_numpy()) * np.log(2) ** 0.7
    assert_allclose(median, np.where(law <= end, law, np.nan), rtol=1e-6)
    assert np.isfinite(median).any() and np.isnan(median).any()
    assert found.table["survival at 99999 days (273.8 years)"].isna().all()
    assert (
        f"{np.isnan(median).sum()} of 686 rows: their survival stays above 1/2 up to"
        in (found.warnings[0])
    )


def test_without_a_unit_of_time_the_headers_are_numbers_of_the_tables_own_clock(tmp_path):
    frame = SAMPLE.frames[["age", "pnodes", "time", "cens"]].assign(h=np.arange(686) % 3)
    kinds = {"age": "integer", "pnodes": "integer", "time": "time", "cens": "event"}
    dictionary = {"variables": {name: {"type": kind} for name, kind in kinds.items()}}
    fed = fc.simulate(frame, sites="h", dictionary=dictionary)
    fc.fit("cox", fed).save(tmp_path / "model")
    frame.head(3).to_csv(tmp_path / "t.csv", index=False)
    found = predict(tmp_path / "model", str(tmp_path / "t.csv"), times="1000,5000")
    assert list(found.table)[2:] == [
        "median survival time", "survival at time 1000", "survival at time 5000",
    ]  # fmt: skip
    assert "survival at time 5000 is empty" in found.warnings[-1]
