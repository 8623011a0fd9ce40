"""Tables as users have them: what cannot be used is refused before anything is written."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.study.run import local_fits, pieces
from fedcohort.study.run.pieces import JUDGED

STUDY = """\
study: own
data: {source: t.csv, outcome: {time: time, event: event}, sites: {column: site}}
arms: [{method: cox}]
bounds: [isolated]
evaluate: {repeats: 1, draws: 5, metrics: [c_index]}
privacy: {min_cell: 1}
"""


def table(n: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": rng.normal(size=n).round(3),
            "g": rng.choice(list("abc"), n),
            "time": rng.integers(1, 500, n),
            "event": np.arange(n) % 2,
            "site": np.where(np.arange(n) % 3, "n", "s"),
        }
    )


def study(folder: Path, frame: pd.DataFrame, text: str = STUDY, **to_csv: object) -> fc.Study:
    (folder / "s.yaml").write_text(text)
    frame.to_csv(folder / "t.csv", index=False, **to_csv)
    return fc.Study.from_file(folder / "s.yaml")


@pytest.mark.parametrize(
    "names", [("../x", "a/b"), ("..", "."), ("/tmp/x", "C:\\x"), ("Köln Süd", "医院"), (1, 2)]
)
def test_whatever_sites_are_called_a_run_leaves_no_model_of_one(tmp_path, names):
    frame = table()
    frame["site"] = frame.site.map({"n": names[0], "s": names[1]})
    study(tmp_path, frame).run(tmp_path / "out")
    cox = tmp_path / "out" / "models" / "cox"
    assert sorted(p.parent for p in tmp_path.rglob("model.json")) == [cox, cox / JUDGED]


def without_features(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["time", "event", "site"]].assign(id=range(len(frame)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.assign(site=f.site.where(f.index > 0)), "no site in column 'site', row 1"),
        (lambda f: f.assign(site=f.site.replace("n", "a\nb")), "printable characters"),
        (lambda f: f.assign(site=f.site.replace("n", "n" * 99)), "1 to 80 printable"),
        (without_features, "no column is left to predict from"),
        (lambda f: f.assign(x=f.x.where(f.index > 0, np.inf)), "column 'x' is infinite in row 1"),
        (lambda f: f.assign(event=(f.index < 2) * 1, site=f.index % 2), "2 events are too few"),
    ],
)
def test_an_unusable_table_is_refused_with_its_name(tmp_path, change, said):
    with pytest.raises(fc.DataError) as caught:
        study(tmp_path, change(table()))
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_site_that_the_test_could_take_whole_is_refused(tmp_path):
    frame = table().assign(site=["z", "z"] + ["s"] * 88, event=1)
    text = STUDY.replace("repeats", "test_fraction: 0.8, repeats")
    with pytest.raises(fc.DataError, match="site 'z' may be left without rows to train on"):
        study(tmp_path, frame, text)


def test_a_site_that_is_a_file_is_named_however_few_its_rows(tmp_path):
    for site, rows in (("z", 2), ("s", 88)):
        table(rows).drop(columns="site").assign(event=1).to_csv(tmp_path / f"at-{site}.csv")
    text = STUDY.replace("t.csv", "'at-{site}.csv'").replace(", sites: {column: site}", "")
    with pytest.raises(fc.DataError, match=r"site 'z' may be left without rows to train on"):
        study(tmp_path, table(), text.replace("repeats", "test_fraction: 0.8, repeats"))


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (["no"] * 90, "t.csv: column 'y' has one level in all 90 rows; an outcome needs "
         "two. Check its coding, or name another 'outcome'."),
        ([1.0] * 80 + [None] * 10, "t.csv: column 'y' has one level in all 80 rows; an outcome "
         "needs two. Check its coding, or name another 'outcome'."),
        (["no"] * 88 + ["yes"] * 2, "t.csv: 2 rows of one level of 'y' are too few to have one "
         "among the training rows and one among the test rows (25%)."),
    ],
)  # fmt: skip
def test_a_class_to_predict_that_all_rows_share_is_refused_before_any_fit(tmp_path, y, said):
    text = STUDY.replace("outcome: {time: time, event: event}", "outcome: {y: y}")
    text = text.replace("cox", "logistic").replace("c_index", "auc")
    text = text.replace("study: own", "study: own\ntask: classification")
    text = text.replace("sites:", "exclude: [missing outcome], sites:")
    with pytest.raises(fc.DataError) as caught:
        study(tmp_path, table()[["x", "g", "site"]].assign(y=y), text)
    assert str(caught.value) == said


def test_a_dictionary_is_held_against_the_table_and_may_name_the_site(tmp_path):
    text = STUDY.replace("outcome:", "dictionary: d.yaml, outcome:")
    known = "x: number\ng: {type: category, levels: [%s]}\nsite: {type: text, identifier: true}\n"
    (tmp_path / "d.yaml").write_text(known % "a, b, c")
    assert study(tmp_path, table(), text).table.dictionary.features(None)
    (tmp_path / "d.yaml").write_text(known % "a, b")
    with pytest.raises(fc.DataError, match="column 'g' has a level outside the 2"):
        study(tmp_path, table(), text)


@pytest.mark.parametrize(
    "scenario", ["{split: by-feature, feature: agee}", "{split: groups, group: agee}"]
)
def test_a_split_by_an_unknown_column_is_named_by_file_line_and_key(tmp_path, scenario):
    text = STUDY.replace("{column: site}", "{split: iid, n: 2}") + f"scenarios: [iid, {scenario}]\n"
    with pytest.raises(
        fc.StudyError, match=r"s\.yaml, line 7, scenarios\.1: there is no column 'agee'"
    ):
        study(tmp_path, table(), text)


def test_a_sample_of_another_task_is_refused(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "study: s\ndata: {source: 'sample:breast_cancer', sites: {split: iid, n: 2}}\n"
        "arms: [{method: cox}]\n"
    )
    with pytest.raises(fc.DataError, match="outcome for classification"):
        fc.Study.from_file(tmp_path / "s.yaml")


def test_a_full_disk_is_one_line_and_the_run_can_go_on(tmp_path, monkeypatch):
    own = study(tmp_path, table())

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(pieces, "write_text", full)
        with pytest.raises(fc.FedcohortError, match="No space left on device; finished"):
            own.run(tmp_path / "out")
    results = own.run(tmp_path / "out", resume=True)
    assert not results.failures
    assert results.report(tmp_path / "elsewhere.html").is_file()
    assert set(results.metrics.metric) == {"c_index", "c_index_own"}
    assert set(results.summary.arm) == {"isolated", "cox"}


def test_what_left_the_sites_before_a_fit_failed_is_in_the_ledger(tmp_path):
    frame = table().assign(y=lambda f: 2 * f.x)
    results = study(tmp_path, frame).run(tmp_path / "out")
    assert any("collinear" in reason for reason in results.failures)
    lines = (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()
    assert any('"arm":"cox"' in s and '"phase":"preprocess"' in s for s in lines)
    assert any('"arm":"cox"' in s and '"phase":"fit"' in s for s in lines)


def test_a_study_goes_to_the_first_free_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = study(tmp_path, table())
    assert [own.run().folder, own.run().folder] == [Path("runs/own"), Path("runs/own-2")]


@pytest.mark.parametrize("place", ["s.yaml", "s.yaml/below", "x" * 300])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path, place):
    own = study(tmp_path, table())
    with pytest.raises(fc.StudyError, match="cannot make this folder"):
        own.run(tmp_path / place)


def test_a_changed_table_cannot_be_resumed(tmp_path, monkeypatch):
    own = study(tmp_path, table())
    with monkeypatch.context() as patch:
        patch.setattr(pieces, "write_text", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            own.run(tmp_path / "out")
    changed = study(tmp_path, table().assign(x=1.5 - table().x))
    with pytest.raises(fc.StudyError, match="changed since this run began"):
        changed.run(tmp_path / "out", resume=True)


def test_a_defect_fails_its_piece_alone_and_says_where_but_no_value(tmp_path, monkeypatch):
    arms = "arms: [{method: cox}, {method: deepcox, rounds: 1}]"
    own = study(tmp_path, table(), STUDY.replace("arms: [{method: cox}]", arms))
    sound = local_fits.details

    def broken(run: Any, *rest: Any) -> Any:
        if "deepcox" in type(run.model).__module__:
            raise IndexError("index 123.25 is out of bounds")
        return sound(run, *rest)

    monkeypatch.setattr(local_fits, "details", broken)
    results = own.run(tmp_path / "out")
    (failure,) = results.failures
    assert "deepcox" in failure
    assert "an unexpected IndexError in study/run/local_fits.py, line " in failure
    assert "123.25" not in failure
    assert set(results.summary.arm) == {"isolated", "cox"}
    with pytest.raises(IndexError):
        own.run(tmp_path / "debug", debug=True)


def test_results_name_the_levels_that_became_one(tmp_path):
    frame = table()
    frame.loc[:2, "g"] = ["rare", "odd", "rare"]
    study(tmp_path, frame, STUDY.replace("cell: 1", "cell: 5")).run(tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    pooled = [p for p in results["pooled"] if p["arm"] == "cox"]
    head = {"arm": "cox", "repeat": 0, "column": "g", "least": 5}
    assert len(pooled) == 1
    assert head.items() <= pooled[0].items()
    assert {"rare", "odd"} <= set(pooled[0]["levels"])
