"""A study of `{site}` files in one process is the twin of the same study over a network."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from numpy.testing import assert_array_equal

import fedcohort as fc
from deployed_cases import frames_of, results_of, run_local
from fedcohort import report
from fedcohort.data.read import sources
from fedcohort.report.comparison import Comparison
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.run import runner
from fedcohort.study.sites.layout import lay_out

STUDY = """\
study: twin
task: {task}
seed: 3
data: {{source: "data/{{site}}.csv", dictionary: d.yaml, outcome: {outcome}}}
preprocess: {{impute: median, scale: minmax}}
arms: {arms}
bounds: {bounds}
evaluate: {{repeats: {repeats}, draws: 2}}
"""
#: By kind of task: a sample, its outcome, arms of it, and by metric how far sums over sites may be
#: from the pooled rows (docs/deployed-metrics.md); to rounding where no number stands.
CASES: dict[str, tuple[str, str, str, dict[str, float]]] = {
    "survival": (
        "gbsg2",
        "{time: time, event: cens}",
        "[{method: cox, scale: none}, {method: deepcox, strategy: fedavg, rounds: 2}]",
        {"c_index": 0.01, "uno_c": 0.012, "ibs": 0.001, "d_calibration_p": 0.19,
         "calibration_slope": 0.18},
    ),
    "classification": (
        "breast_cancer", "{y: target}",
        "[{method: logistic, l2: 0.1}, {method: classifier, rounds: 2, hidden: [4]}]",
        {"auc": 0.001},
    ),
    "regression": (
        "diabetes", "{y: target}",
        "[{method: ridge, penalty: 0.1}, {method: regressor, rounds: 2, hidden: [4]}]", {},
    ),
}  # fmt: skip


def written(folder: Path, task: str, repeats: int = 1, more: str = "", **keys: str) -> Path:
    """Write a study, its dictionary, and a file for each site."""
    sample, outcome, arms, _ = CASES[task]
    (folder / "data").mkdir()
    known = sources.load(f"sample:{sample}", Path()).dictionary
    assert known is not None
    content = known.to_dict()
    some = [*content["variables"]][:6]
    some += [c for c in ("time", "cens", "target") if c in content["variables"] and c not in some]
    content["variables"] = {c: content["variables"][c] for c in some}
    (folder / "d.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    for site, frame in frames_of(sample).items():
        frame[some].to_csv(folder / "data" / f"{site}.csv", index=False)
    keys = {"arms": arms, "bounds": "[isolated]", **keys}
    text = STUDY.format(task=task, outcome=outcome, repeats=repeats, **keys)
    (folder / "study.yaml").write_text(text + more)
    return folder / "study.yaml"


def at_nodes(study: Path, shuffle: bool = False) -> list[SiteTable]:
    """Return the tables as each site's node reads them, perhaps in another order."""
    terms, rng = Terms.of(study), np.random.default_rng(1)
    found: list[SiteTable] = []
    for path in sorted((study.parent / "data").iterdir()):
        frame = sources.load(path.name, path.parent, dictionary=terms.dictionary).frames
        assert isinstance(frame, pd.DataFrame)
        frame = frame.iloc[rng.permutation(len(frame))] if shuffle else frame
        found.append(SiteTable.of(terms, path.stem, frame))
    return found


def both(study: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a study in one process, and over sites; return the results of both."""
    found, out = fc.Study.from_file(study), study.parent / "here"
    here = runner.run(
        found.plan, found.table, out, resume=False, workers=1, tell=str, command="", debug=True
    )
    tables = at_nodes(study)
    run_local(tables[0].terms, tables, study.parent / "there")
    return here, results_of(study.parent / "there")


@pytest.fixture(scope="module", params=sorted(CASES))
def runs(request, tmp_path_factory):
    study = written(tmp_path_factory.mktemp(request.param), request.param)
    return (*both(study), study.parent, CASES[request.param][-1])


def models_of(out: Path) -> dict[str, bytes]:
    """Return the files of all models of a run but their cards, which have metrics."""
    files = (p for p in (out / "models").rglob("*") if p.is_file() and p.name != "card.md")
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in sorted(files)}


def test_models_are_those_of_the_network_byte_for_byte(runs):
    folder = runs[2]
    here, there = models_of(folder / "here"), models_of(folder / "there")
    assert here and [*here] == [*there]
    assert [name for name in here if here[name] != there[name]] == []


def test_metrics_differ_by_no_more_than_sums_over_sites_are_said_to(runs):
    here, there, _, off = runs
    other = {(r["arm"], r["repeat"]): r["metrics"] for r in there["arms"] if r["site"] is None}
    compared = 0
    for row in here["arms"]:
        if row["site"] is not None or row["arm"] == "isolated":
            continue
        for name, value in other[row["arm"], row["repeat"]].items():
            assert row["metrics"][name] == pytest.approx(value, rel=1e-9, abs=off.get(name, 1e-9))
            compared += 1
    assert compared


def test_both_know_that_they_judge_the_same_patients(runs):
    here, there, *_ = runs
    assert here["evaluate"]["test_mark"] == there["evaluate"]["test_mark"]


def test_both_know_so_where_a_site_hides_its_events_and_tell_the_events_of_all(tmp_path):
    """A site of 36 women keeps few back with and without the event: a network hides every site's.

    One process hides fewer, so that what both hide must not count for who is judged. The events of
    all sites stand in Table 1 of both, and so in what is said of the data.
    """
    study = written(tmp_path, "survival", arms="[{method: cox, scale: none}]", bounds="[]")
    small = sorted((tmp_path / "data").iterdir())[-1]
    frame = pd.read_csv(small)
    frame.head(36).to_csv(small, index=False)
    events = sum(int(pd.read_csv(p)["cens"].sum()) for p in (tmp_path / "data").iterdir())
    here, there = both(study)
    hidden = [s["events"] for s in there["scenarios"][0]["sites"]]
    assert hidden == [None] * len(hidden)
    assert here["evaluate"]["test_mark"] == there["evaluate"]["test_mark"]
    assert here["data"]["events"] == there["data"]["events"] == events


@pytest.mark.parametrize("more", ["", "privacy: {min_cell: 1}\n", "privacy: {dp: {epsilon: 9}}\n"])
def test_blind_and_training_rows_are_those_that_each_site_draws(tmp_path, more):
    arms = "[{method: deepcox, rounds: 2, internal_epochs: 1}]"
    study = written(tmp_path, "survival", 3, more, arms=arms)
    nodes = {t.site: t for t in at_nodes(study, shuffle=True)}
    found = fc.Study.from_file(study)
    for repeat in range(3):
        laid = lay_out(found.plan, found.table, found.plan.scenarios[0], repeat)
        for site, table in nodes.items():
            train, blind = table.halves(repeat)
            pd.testing.assert_frame_equal(laid.problem.frames[site], train)
            mine = laid.test[laid.test_site == site].reset_index(drop=True)
            pd.testing.assert_frame_equal(mine, blind)


AWKWARD = """\
variables:
  patient: {type: integer, identifier: true}
  marker: number
  children: {type: integer, missing: [-9]}
  grade: {type: category, levels: ["007", 8, "None"], missing: [unknown]}
  born: {type: date, since: "1920-01-01", unit: years}
  only: {type: number, feature: false}
  note: text
  time: {type: time, unit: days}
  event: event
"""


def awkward(site: int, n: int = 60) -> pd.DataFrame:
    """Return rows with all that a file can hold, and one site without a column."""
    rng = np.random.default_rng(site)
    frame = pd.DataFrame({"note": rng.choice(["NA", "a, b", ' "x" ', ""], n)})
    frame["marker"] = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n) / 3)
    frame["children"] = rng.choice([-9, 0, 1, 2], n)
    frame["extra"] = rng.integers(0, 9, n)
    frame["grade"] = rng.choice(["007", "8", "None", "unknown", ""], n)
    days = pd.to_timedelta(rng.integers(0, 20_000, n), "D")
    frame["born"] = (pd.Timestamp("1930-01-01") + days).strftime("%Y-%m-%d")
    frame["time"] = rng.integers(0, 400, n)
    frame["event"] = np.where(
        rng.random(n) < 0.1, "", (rng.random(n) < 0.6).astype(int).astype(str)
    )
    frame["patient"] = 1000 * site + np.arange(n)
    if site:
        frame["only"] = rng.normal(size=n)
    return frame


def test_rows_are_the_same_whatever_a_table_holds(tmp_path):
    (tmp_path / "data").mkdir()
    for i, site in enumerate(("bern", "genève", "zürich")):
        awkward(i).to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    (tmp_path / "d.yaml").write_text(AWKWARD)
    text = STUDY.format(
        task="survival",
        outcome="{time: time, event: event}",
        arms="[{method: cox}]",
        repeats=2,
        bounds="[]",
    )
    exclude = "exclude: [missing outcome, time not above 0], outcome:"
    (tmp_path / "study.yaml").write_text(text.replace("outcome:", exclude))
    found = fc.Study.from_file(tmp_path / "study.yaml")
    laid = lay_out(found.plan, found.table, found.plan.scenarios[0], 1)
    for table in at_nodes(tmp_path / "study.yaml"):
        train, blind = table.halves(1)
        pd.testing.assert_frame_equal(laid.problem.frames[table.site], train)
        mine = laid.test[laid.test_site == table.site].reset_index(drop=True)
        pd.testing.assert_frame_equal(mine[[*blind.columns]], blind)


def test_one_table_with_a_column_of_sites_has_the_rows_of_a_file_each(tmp_path):
    study = written(tmp_path, "survival")
    apart = fc.Study.from_file(study)
    frames = frames_of("gbsg2")
    whole = pd.concat([f.assign(hospital=s) for s, f in frames.items()])
    whole.sample(frac=1, random_state=0).to_csv(tmp_path / "t.csv", index=False)
    text = study.read_text().replace('"data/{site}.csv"', "t.csv, sites: {column: hospital}")
    (tmp_path / "one.yaml").write_text(text)
    one = fc.Study.from_file(tmp_path / "one.yaml")
    pd.testing.assert_frame_equal(one.table.frame, apart.table.frame)
    assert_array_equal(one.table.site, apart.table.site)
    assert one.table.digests == apart.table.digests


@pytest.mark.parametrize("by", ["centre-kfold", "row-kfold"])
@pytest.mark.parametrize(
    ("task", "arm", "grid"),
    [
        ("survival", "{method: cox}", "{l2: [0.0, 3.0, 300.0]}"),
        ("classification", "{method: logistic, scale: standard}", "{l2: [0.1, 1000.0]}"),
        ("regression", "{method: ridge, scale: standard}", "{penalty: [0.1, 10.0]}"),
    ],
)
def test_settings_are_chosen_by_the_same_scores(tmp_path, task, arm, grid, by):
    more = f"tune: {{by: {by}, grid: {grid}}}\n"
    study = written(tmp_path, task, more=more, arms=f"[{arm}]", bounds="[]")
    here, there = both(study)
    assert here["tuning"][0]["chosen"] == there["tuning"][0]["chosen"]
    tried = [[row["score"] for row in found["tuning"][0]["tried"]] for found in (here, there)]
    assert tried[0] == pytest.approx(tried[1], rel=1e-12) and len({*tried[0]}) > 1
    assert models_of(tmp_path / "here") == models_of(tmp_path / "there") != {}


def test_what_the_network_lacks_is_listed_with_its_reason_in_results_and_report(runs):
    here, there, folder, _ = runs
    apart = {"network", "left_out", "summary"}
    absent = [key for key in here if here[key] and not there.get(key) and key not in apart]
    parts = {row["part"]: row for row in there["left_out"]}
    assert {*absent} <= {*parts} and "draws" in parts
    page = html.unescape(report.write(folder / "there").read_text())
    for row in parts.values():
        assert row["title"] in page and row["reason"] in page
    assert "importance" in absent
    assert "left_out" not in here


def test_compare_pairs_both_and_says_which_files_are_equal_and_why_others_differ(runs):
    _, _, folder, off = runs
    found = Comparison.of([folder / "here", folder / "there"])
    assert found.same_patients == (True, True)
    lines = {(x.arm, x.metric): x for x in found.lines()}
    arms = [run.together[0].name for run in found.runs]
    assert arms[0] == arms[1]
    for metric in found.runs[0].metrics:
        line = lines[arms[0], metric]
        assert None not in line.summaries
        if line.against[1] is not None:
            assert abs(line.against[1].value) <= off.get(metric, 1e-9)
        notes = found.notes(metric)
        assert any(note.startswith("there: ") for note in notes)
        assert lines["isolated", metric].against == (None, None)
    files = {line.name: line for line in found.files()["there"]}
    models = [name for name in files if name.startswith("models/") and not name.endswith(".md")]
    assert models and {files[name].state for name in models} == {"equal"}
    assert files["history.csv"].state == "equal"
    assert (
        files["metrics.csv"].state == "differs"
        and "sums over hospitals" in files["metrics.csv"].why
    )
    assert all(line.why for line in files.values() if line.state != "equal")
