"""`fedcohort init`: two files that load as they are, and say what a person must check."""

from __future__ import annotations

import sqlite3

import numpy as np
import pandas as pd
import pytest

from fedcohort.apps import init
from fedcohort.data.outcome import Category, Continuous, Survival
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.protocol import DataError, StudyError
from fedcohort.study.file import plan, yamlfile
from fedcohort.study.sites import layout
from in_process import command


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "centre": rng.permutation(np.arange(n) % 3),
            "age_years": rng.normal(60, 8, n).round(),
            "sex": rng.choice(["f", "m"], n),
            "os_days": rng.integers(1, 900, n),
            "os_event": rng.integers(0, 2, n),
            "y": rng.choice(["no", "yes"], n),
        }
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table().to_csv("t.csv", index=False)
    return tmp_path


def loaded(path):
    """Return the plan of a study file, and its table as a run would load it."""
    checked = plan.check(yamlfile.read(path), path.parent)
    return checked, layout.load(checked)


def test_a_survival_study_loads_without_an_edit(here):
    study, dictionary = init.write("survival", "t.csv", here / "new" / "study")
    checked, found = loaded(study)
    assert checked.source == "../../t.csv"
    assert found.outcome == Survival("os_days", "os_event")
    assert (checked.site_column, found.n_sites) == ("centre", 3)
    assert [a.name for a in checked.arms] == ["isolated", "cox", "fedavg", "centralised"]
    assert read_dictionary(dictionary).outcome() == found.outcome
    assert [v.name for v in found.dictionary.features(found.outcome)] == ["age_years", "sex", "y"]
    text = study.read_text("utf-8")
    assert "outcome: {time: os_days, event: os_event}  # check: guessed from names" in text
    assert "sites: {column: centre}  # check: guessed from its name" in text
    lines = dictionary.read_text("utf-8").splitlines()
    assert "  age_years: {type: integer, unit: years, range: [0, 120]}  # check: the unit" in lines


def test_a_classification_study_is_drafted_with_what_the_user_names(here):
    study, dictionary = init.write(
        "classification", "t.csv", here, sites="centre", outcome="y", force=True
    )
    text = study.read_text("utf-8")
    assert "outcome: {y: y}  # check: 'yes' counts as 1, the class to predict" in text
    assert "{method: logistic" in text
    assert "sites: {column: centre}\n" in text
    assert read_dictionary(dictionary)["y"].levels == ("no", "yes")
    assert read_dictionary(dictionary)["centre"].identifier
    study, _ = init.write("classification", "t.csv", here, force=True)
    assert "outcome: {y: y}  # check: guessed from names; 'yes' counts" in study.read_text("utf-8")


def test_a_regression_study_is_drafted_and_loads(here):
    study, dictionary = init.write("regression", "t.csv", here, outcome="os_days")
    checked, found = loaded(study)
    text = study.read_text("utf-8")
    assert found.outcome == Continuous("os_days")
    assert "outcome: {y: os_days}  # check: add type: count if it counts something" in text
    assert (
        "# question: What will os_days be, by what is known of a patient before?  # heads" in text
    )
    assert [a.name for a in checked.arms] == ["isolated", "ridge", "lasso", "centralised"]
    assert "{method: ridge, penalty: 0}  # least squares" in text, "30 rows a coefficient"
    assert checked.metrics[0] == "r2"
    assert read_dictionary(dictionary)["os_days"].unit == "days"
    table(15).rename(columns={"os_days": "target"}).to_csv("t.csv", index=False)
    text = init.write("regression", "t.csv", here, force=True)[0].read_text("utf-8")
    assert "outcome: {y: target}  # check: guessed from names; add type: count" in text
    assert "ridge, penalty: 0.01, scale: standard}  # ridge: fewer than 5 rows per coeff" in text


def test_one_file_a_site_needs_no_column_of_sites(here):
    (here / "exports").mkdir()
    for site, rows in table().groupby("centre"):
        rows.drop(columns="centre").to_csv(here / "exports" / f"h{site}.csv", index=False)
    study, _ = init.write("survival", "exports/{site}.csv", here)
    checked, found = loaded(study)
    assert "sites:" not in study.read_text("utf-8")
    assert (checked.study, found.n_sites) == ("exports", 3)


def test_rows_without_an_outcome_are_excluded_and_made_up_sites_said_to_be(here):
    frame = table().drop(columns="centre").astype({"os_days": float})
    frame.loc[3, "os_days"], frame.loc[7, "os_days"] = None, 0
    frame.to_csv("t.csv", index=False)
    study, _ = init.write("survival", "t.csv", here)
    _, found = loaded(study)
    assert len(found.frame) == 118
    text = study.read_text("utf-8")
    assert (
        "  exclude: [missing outcome, time not above 0]  # check: leaves out fewer than 5 (missing "
        "outcome) and fewer than 5 (time not above 0) of 120 rows. Should it?\n"
    ) in text
    assert "sites: {split: iid, n: 4}  # check: made-up sites" in text


def test_the_draft_says_how_many_rows_it_leaves_out(here):
    frame = table().astype({"os_days": object})
    frame.loc[3:9, "os_days"], frame.loc[10:12, "os_days"], frame.loc[20:40, "os_days"] = "?", 0, -1
    frame.to_csv("t.csv", index=False)
    study, _ = init.write("survival", "t.csv", here, outcome="os_days,os_event")
    assert len(loaded(study)[1].frame) == 120 - 7 - 24
    assert (
        "# check: leaves out 7 (missing outcome) and 24 (time not above 0) of 120 rows. Should it?"
    ) in study.read_text("utf-8")


def test_an_event_in_words_is_drafted_with_what_to_do_about_it(here):
    words = table()["os_event"].map({0: "alive", 1: "dead"})
    table().assign(os_event=words).to_csv("t.csv", index=False)
    _, dictionary = init.write("survival", "t.csv", here, outcome="os_days,os_event")
    said = "# check: it holds text; recode it: 1 where the event was seen, 0 where not"
    assert f"  os_event: {{type: event}}  {said}" in dictionary.read_text("utf-8").splitlines()


@pytest.mark.parametrize("task", ["clustering", "latent"])
@pytest.mark.parametrize("timed", [True, False])
def test_what_predicts_nothing_is_drafted_and_runs_without_an_edit(here, task, timed):
    frame = table().assign(hb=np.linspace(8, 16, 120), os_days=range(120))
    frame.drop(columns=[] if timed else ["os_days", "os_event", "y"]).to_csv("t.csv", index=False)
    assert command("init", "--task", task, "--data", "t.csv")[0] == 0
    text = (here / "study.yaml").read_text("utf-8")
    said = "outcome: {time: os_days, event: os_event}  # check: guessed from names; it only judges"
    assert (said in text, "outcome:" in text) == (timed, timed)
    assert ("exclude: [time not above 0]" in text) == timed
    few = [
        "evaluate.repeats=1",
        *(["arms.1.rounds=2"] if task == "latent" else ["arms.1.rounds=1"]),
    ]
    done = command("run", "study.yaml", "--workers", 1, *(w for s in few for w in ("--set", s)))
    assert done[0] == 0, done[2]


def test_the_only_classes_of_what_predicts_nothing_may_be_many(here):
    table().assign(y=np.arange(120) % 4).to_csv("t.csv", index=False)
    study, _ = init.write("clustering", "t.csv", here, outcome="y")
    assert "outcome: {y: y, type: category}  # it only judges, no fit sees it" in study.read_text(
        "utf-8"
    )
    assert loaded(study)[1].outcome == Category("y")


def test_groups_of_levels_alone_are_drafted_by_k_modes(here):
    levels = {name: ["a", "b"] * 60 for name in ("tp53", "sf3b1")}
    pd.DataFrame({"centre": [0, 1, 2] * 40, **levels}).to_csv("t.csv", index=False)
    study, _ = init.write("clustering", "t.csv", here)
    assert [a.method for a in loaded(study)[0].arms] == ["kmodes"] * 3


@pytest.mark.parametrize("task", init.TASKS)
def test_a_template_needs_no_table_and_its_files_are_well_formed(here, task):
    study, dictionary = init.write(task, None, here)
    d = read_dictionary(dictionary)
    document = yamlfile.read(study)
    assert document.content["data"]["source"] == "data.csv"
    assert set(document.content["data"].get("outcome", {}).values()) <= set(d.variables)
    if task == "survival":
        assert plan.check(document, here).outcome == Survival("time", "event")


def test_a_sample_keeps_its_own_dictionary(here):
    study, dictionary = init.write("survival", "sample:gbsg2", here)
    assert read_dictionary(dictionary).title == "German Breast Cancer Study Group 2"
    assert loaded(study)[1].outcome == Survival("time", "cens")


def test_the_written_dictionary_holds_names_and_levels_and_no_other_cell(here):
    frame = table().assign(
        note=[f"secret {i}" for i in range(120)], hb=np.linspace(7.37, 16.1, 120)
    )
    frame.to_csv("t.csv", index=False)
    study, dictionary = init.write("survival", "t.csv", here)
    text = study.read_text("utf-8") + dictionary.read_text("utf-8")
    assert "secret" not in text
    assert not any(str(v) in text for v in (7.37, 16.1, frame.os_days.max()))


@pytest.mark.parametrize(
    ("task", "data", "options", "message"),
    [
        ("survivl", None, {}, "--task survivl: there is no task 'survivl'. Did you mean 'surv"),
        ("survival", None, {"sites": "c"}, "--sites needs --data, the table that it is about."),
        ("survival", "nope.csv", {}, "there is no file nope.csv."),
        ("survival", "t.csv", {"sites": "center"}, "t.csv: there is no column 'center' among 6 "
         "columns. Did you mean 'centre'?"),
        ("survival", "t.csv", {"outcome": "y"}, "--outcome y: expected time,event."),
        ("classification", "t.csv", {"outcome": "sex,y"}, "--outcome sex,y: expected y, one "),
        ("classification", "t.csv", {"outcome": "os_days"}, "t.csv: column 'os_days' has "),
        ("survival", "t.csv", {"query": "select 1"}, "--query needs a database as --data, such as "
         "sqlite:///registry.db."),
        ("survival", "{site}.csv", {"sites": "centre"}, "--sites centre: {site}.csv has one file a "
         "site already; leave it out."),
        ("survival", "sample:diabetes", {}, "sample:diabetes: no columns look like time and event "
         "(0 or 1). Name them by --outcome TIME,EVENT."),
        ("classification", "sample:diabetes", {}, "sample:diabetes: no column looks like a class "
         "to predict. Name it by --outcome Y."),
        ("regression", "t.csv", {}, "t.csv: no column looks like a value to predict. Name it by "),
        ("regression", "t.csv", {"outcome": "sex"}, "t.csv: column 'sex' does not hold two numbers "
         "or more; a value to predict is a number."),
    ],
)  # fmt: skip
def test_what_cannot_be_drafted_is_said_on_one_line(here, task, data, options, message):
    with pytest.raises((StudyError, DataError)) as error:
        init.write(task, data, here / "new", **options)
    assert str(error.value).startswith(message)
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["north", "south", "west"], "exports/{site}.csv"),
        (["study_north_v2", "study_south_v2"], "exports/study_{site}_v2.csv"),
        (["h1", "h12", "h2"], "exports/{site}.csv"),
        (["north"], "exports/{site}.csv"),
    ],
)
def test_a_folder_or_the_files_in_it_are_told_how_to_be_named(here, names, pattern):
    (here / "exports").mkdir()
    files = [f"exports/{name}.csv" for name in names]
    for file in files:
        table().to_csv(file, index=False)
    (here / "study.yaml").write_text("another mistake")
    remedy = (
        f"Give '{pattern}' in quotes if each file holds one site: {{site}} stands for the site's "
        f"name. Otherwise give one file."
    )
    code, out, err = command("init", "--data", "exports/")
    assert (code, out, err) == (2, "", f"fedcohort: --data exports/: it is a folder. {remedy}\n")
    if len(files) > 1:
        _, _, err = command("init", "--data", *files)
        assert err == f"fedcohort: --data: {len(files)} files in place of one. {remedy}\n"
    (here / "study.yaml").unlink()
    init.write("survival", pattern, here)


def test_an_empty_folder_and_a_table_without_its_option_are_told_so(here):
    (here / "empty").mkdir()
    assert "Give 'empty/{site}.csv' in quotes" in command("init", "--data", "empty")[2]
    assert command("init", "t.csv")[2] == "fedcohort: t.csv: name the table by --data.\n"


def test_files_are_never_replaced_without_force(here):
    (here / "dictionary.yaml").write_text("mine")
    with pytest.raises(StudyError, match=r"dictionary\.yaml exists\. Name another folder by --out"):
        init.write("survival", "t.csv", here)
    assert (here / "dictionary.yaml").read_text() == "mine"
    assert not (here / "study.yaml").exists()
    init.write("survival", "t.csv", here, force=True)
    assert "variables:" in (here / "dictionary.yaml").read_text()


def test_a_folder_that_cannot_be_written_is_named(here):
    with pytest.raises(StudyError, match=r"--out t\.csv: cannot write there \(File exists\)\."):
        init.write("survival", "t.csv", (here / "t.csv").relative_to(here))


def test_a_database_is_named_from_the_folder_of_the_study(here):
    with sqlite3.connect(here / "sqlite") as lite:
        table().to_sql("t", lite, index=False)
    lite.close()
    study, _ = init.write(
        "survival", "sqlite:///sqlite", here / "new" / "study", query="select * from t"
    )
    assert loaded(study)[0].source == "sqlite:///../../sqlite"


def survival_table(n=200, **columns):
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {"centre": np.arange(n) % 4, "age": rng.normal(60, 8, n).round(1),
         "time": rng.integers(1, 900, n), "event": np.arange(n) % 2}
        | {k: v(rng, n) for k, v in columns.items()}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, ""),
        ({f"x{i}": lambda r, n: r.normal(size=n) for i in range(24)}, "fewer than 5 events"),
        (
            {"arm": lambda r, n: np.where((np.arange(n) % 2 == 0) & (np.arange(n) < 40), "a", "b")},
            "a level of 'arm' has no events",
        ),
        (
            {"one": lambda r, n: 1.0 * (np.arange(n) % 5), "two": lambda r, n: np.arange(n) % 7,
             "three": lambda r, n: 2.0 * (np.arange(n) % 7) + np.arange(n) % 5},
            "'one' and 'two' and 'three' say the same",
        ),
    ],
)  # fmt: skip
def test_a_draft_penalises_only_where_it_must_and_says_why(tmp_path, monkeypatch, columns, said):
    monkeypatch.chdir(tmp_path)
    survival_table(**columns).to_csv("t.csv", index=False)
    text = init.write("survival", "t.csv", tmp_path, outcome="time,event")[0].read_text("utf-8")
    (line,) = [x for x in text.splitlines() if "method: cox" in x]
    if not said:
        assert line == "  - {method: cox}"
        return
    assert "{method: cox, l2: 0.01, scale: standard}  # ridge: " + said in line
    assert line.endswith("; effects are shrunken")


def test_a_near_copy_is_drafted_as_no_feature_and_asks_for_no_penalty(tmp_path, monkeypatch):
    """Of height in two units with gaps the one with fewer values goes; ferritin stays."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    cm = rng.normal(170, 9, 200)
    table = survival_table(
        height_m=lambda r, n: np.where(r.random(n) < 0.1, np.nan, (cm / 100).round(3)),
        height=lambda r, n: cm.round(1),
        weight=lambda r, n: np.where(np.arange(n) == 7, 9999, cm - 100 + r.normal(0, 9, n)),
        ferritin=lambda r, n: np.where(np.arange(n) == 7, 9999, r.normal(300, 90, n)),
    )
    table.to_csv("t.csv", index=False)
    study, dictionary = init.write("survival", "t.csv", tmp_path, outcome="time,event")
    assert "  - {method: cox}\n" in study.read_text("utf-8")
    text = dictionary.read_text("utf-8")
    assert "height_m: {type: number, feature: false}  # check: says the same as 'height'" in text
    checked = read_dictionary(dictionary)
    kept = [v.name for v in checked.features(Survival("time", "event"))]
    assert kept == ["age", "height", "weight", "ferritin"]


def test_a_column_that_only_a_site_too_small_to_take_part_lacks_stays_a_feature(here):
    for i, name in enumerate("abc"):
        part = table(60, i).drop(columns="centre").assign(hb=9.0 + i)
        part = part[:3].drop(columns="hb") if name == "a" else part
        part.to_csv(here / f"s-{name}.csv", index=False)
    dictionary = init.write("survival", "s-{site}.csv", here, outcome="os_days,os_event")[1]
    assert read_dictionary(dictionary)["hb"].feature
    part = table(60).drop(columns="centre")  # now it takes part
    part.to_csv(here / "s-a.csv", index=False)
    dictionary = init.write(
        "survival", "s-{site}.csv", here, outcome="os_days,os_event", force=True
    )[1]
    assert not read_dictionary(dictionary)["hb"].feature


def test_where_single_sites_have_few_events_the_lower_bound_alone_is_penalised(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    more = {f"x{i}": lambda r, n: r.normal(size=n).round(2) for i in range(4)}
    survival_table(**more).to_csv("t.csv", index=False)
    study = init.write("survival", "t.csv", tmp_path, outcome="time,event", sites="centre")[0]
    text = study.read_text("utf-8")
    assert "  - {method: cox}\n" in text
    assert "isolated: {l2: 0.01, scale: standard}, centralised: {}}  # ridge: few events" in text
    checked = loaded(study)[0]
    settings = {arm.name: arm.settings for arm in checked.arms}
    assert settings["isolated"] == {"l2": 0.01}
    assert settings["cox"] == settings["centralised"] == {}
    assert checked.final


def test_three_classes_are_drafted_with_a_regression_of_several(here):
    frame = table(240)
    frame["stage"] = np.random.default_rng(3).choice(["I", "II", "III"], 240)
    frame.drop(columns=["os_days", "os_event", "y"]).to_csv("three.csv", index=False)
    study, _ = init.write("classification", "three.csv", here / "new", outcome="stage")
    checked, found = loaded(study)
    assert found.outcome == Category("stage")
    assert [(a.name, a.configured().get("l2", 0)) for a in checked.arms[1:2]] == [
        ("multinomial", 0)
    ]
    text = study.read_text("utf-8")
    assert "type: ordinal, and method: ordinal, if the classes have an order" in text
    frame["digit"] = np.arange(240) % 10
    frame.drop(columns=["os_days", "os_event", "y", "stage"]).to_csv("ten.csv", index=False)
    study, _ = init.write("classification", "ten.csv", here / "ten", outcome="digit")
    assert loaded(study)[1].outcome == Category("digit")  # whole numbers, and named as classes
    frame["stage"] = np.where(frame.sex == "f", "I", frame.stage)  # no woman of another class
    frame.drop(columns=["os_days", "os_event", "y"]).to_csv("three.csv", index=False)
    study, _ = init.write("classification", "three.csv", here / "other", outcome="stage")
    assert "ridge: a level of 'sex' has no events, or nothing else" in study.read_text("utf-8")


def test_columns_of_pixels_are_drafted_as_an_image_that_loads(here):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (120, 64)) * rng.integers(0, 2, (120, 64))
    x[:, 0], x[:, 2] = 0, x[:, 1]  # one that never changes, and a copy
    frame = pd.DataFrame(x, columns=[f"p{i}_{j}" for i in range(8) for j in range(8)])
    frame.insert(0, "digit", np.arange(120) % 10)
    frame.to_csv("images.csv", index=False)
    study, dictionary = init.write("classification", "images.csv", here / "im", outcome="digit")
    checked, found = loaded(study)
    assert checked.arms[1].configured()["image"] == [8, 8]
    drafted = read_dictionary(dictionary)
    assert {drafted[n].type for n in frame.columns[1:]} == {"integer"}
    assert {drafted[n].range for n in frame.columns[1:]} == {(0.0, 255.0)}
    assert len(found.dictionary.features(found.outcome)) == 64
    aged = frame.assign(age=rng.integers(20, 90, 120))  # no pixel
    broken = frame.assign(p0_1=rng.normal(size=120))  # no whole numbers
    for k, other in enumerate((aged, broken)):
        other.to_csv("other.csv", index=False)
        study, _ = init.write("classification", "other.csv", here / f"no{k}", outcome="digit")
        assert "image" not in study.read_text("utf-8")
