import json
import xml.etree.ElementTree as ET

import pytest
import yaml
from numpy.testing import assert_allclose

from fedcohort.protocol.errors import DataError
from fedcohort.report import comparing
from fedcohort.report.comparison import Comparison, text_table
from in_process import command
from report import synthetic

STUDY = {
    "study": "s",
    "data": {"source": "sample:gbsg2"},
    "arms": [{"method": "cox", "name": "cox"}, {"method": "deepcox", "title": "Net", "rounds": 30}],
    "evaluate": {"repeats": 3},
}
ARMS = ["isolated", "cox", "centralised"]


def made(folder, *, shift=0.0, study=STUDY, mark=1, arms=ARMS):
    """Write a run whose C-index and Brier score are shifted in every repeat."""
    synthetic.make(folder, scenarios=["iid"], repeats=3, arms=arms)
    path = folder / "results.json"
    content = json.loads(path.read_text())
    for row in content["arms"]:
        row["metrics"] = {k: v + shift for k, v in row["metrics"].items()}
    content["summary"] = synthetic.summarise(content["arms"])
    content["evaluate"]["test_mark"] = mark
    path.write_text(json.dumps(content))
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    other = {
        "arms": [{"method": "deepcox", "title": "Net", "rounds": 60}, STUDY["arms"][0]],
        "study": "t",
    }
    return {
        "first": made(base / "first"),
        "better": made(base / "better", shift=0.02, study={**STUDY, **other}),
        "others": made(base / "others", shift=0.02, mark=2),
        "same": made(base / "deep" / "first"),
        "fewer": made(base / "fewer", arms=["cox", "exact"]),
        "unmarked": made(base / "unmarked", mark=None),
    }


def lines(found, metric):
    return {x.arm: x for x in found.lines() if x.metric == metric}


def test_the_same_patients_give_paired_differences_whose_better_side_is_positive(runs):
    found = Comparison.of([runs["first"], runs["better"]])
    assert found.same_patients == (True, True)
    for metric, expected in (("c_index", 0.02), ("ibs", -0.02)):
        for line in lines(found, metric).values():
            none, d = line.against
            assert none is None
            # the same shift in every repeat: an interval of no width
            assert_allclose((d.value, d.low, d.high), expected, atol=1e-12)


@pytest.mark.parametrize("other", ["others", "unmarked"])
def test_other_patients_give_no_difference(runs, other):
    found = Comparison.of([runs["first"], runs[other]])
    assert found.same_patients == (True, False)
    assert {d for x in found.lines() for d in x.against} == {None}
    page = comparing.render(found)
    assert "no difference is given" in page
    assert "the difference to" not in page


def test_two_runs_that_do_not_say_whom_they_judged_are_not_taken_for_the_same(runs, tmp_path):
    again = made(tmp_path / "again", mark=None)
    assert Comparison.of([runs["unmarked"], again]).same_patients == (False, False)


def test_names_are_the_shortest_that_tell_the_folders_apart(runs):
    assert Comparison.of([runs["first"], runs["better"]]).names == ("first", "better")
    two = Comparison.of([runs["first"], runs["same"]]).names
    assert len(set(two)) == 2
    assert two[1] == "deep/first"


def test_differences_go_down_into_nested_keys_and_arms_go_by_their_names(runs):
    found = Comparison.of([runs["first"], runs["better"]]).differences()
    assert found == [("arms[Net].rounds", ("30", "60"))]


def test_a_key_that_one_study_lacks_is_a_difference(tmp_path, runs):
    lacks = made(tmp_path / "lacks", study={k: v for k, v in STUDY.items() if k != "evaluate"})
    found = Comparison.of([runs["first"], lacks]).differences()
    assert found == [("evaluate.repeats", ("3", "none"))]


def test_arms_and_settings_that_one_run_lacks_leave_a_dash(runs):
    found = Comparison.of([runs["first"], runs["fewer"]])
    rows = {r[0]: r[2:] for r in text_table(found)[1:]}
    assert set(rows) == {"isolated", "cox", "centralised", "exact"}
    assert rows["isolated"][1] == rows["exact"][0] == "–"
    assert ET.fromstring(comparing.render(found).partition("\n")[2]) is not None


def test_the_page_loads_nothing_and_says_every_number_of_the_table(runs, tmp_path):
    found = Comparison.of([runs["first"], runs["better"]])
    page = comparing.write(found, tmp_path / "page.html").read_text("utf-8")
    root = ET.fromstring(page.partition("\n")[2])
    assert not {e.tag for e in root.iter()} & {"script", "link", "img", "iframe"}
    text = "".join(root.itertext())
    for line in found.lines():
        for s in line.summaries:
            assert f"{s.mean:.3f} ({s.low:.3f}–{s.high:.3f})" in text
    assert "below, the difference to first: above 0 is better" in text
    assert "+0.020" in text
    assert "nan" not in text.lower()


def test_nothing_that_a_study_file_says_becomes_markup(tmp_path, runs):
    evil = "<script>alert(1)</script>[bold]"
    other = made(tmp_path / "<i>x</i>", study={**STUDY, evil: {evil: [evil]}})
    page = comparing.render(Comparison.of([runs["first"], other]))
    root = ET.fromstring(page.partition("\n")[2])
    assert not {e.tag for e in root.iter()} & {"script", "i"}
    code, out, _ = command("compare", runs["first"], other, "--out", tmp_path / "p.html")
    assert code == 0
    assert "[bold]" in out.replace("\n", "")


def test_the_command_prints_both_tables_and_writes_the_page(runs, tmp_path):
    code, out, err = command(
        "compare", runs["first"], runs["better"], "--out", tmp_path / "compare.html"
    )
    assert (code, err) == (0, "")
    assert "arms[Net].rounds" in out
    assert "+0.020" in out
    assert (tmp_path / "compare.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_what_cannot_be_compared_is_refused_in_one_line(runs, tmp_path):
    first = runs["first"]
    damaged = made(tmp_path / "damaged")
    (damaged / "study.yaml").write_text("a: [")
    nothing = made(tmp_path / "nothing")
    (nothing / "study.yaml").unlink()
    for arguments, words in (
        ([first], "nothing to compare with"),
        ([first, first / ".." / "first"], "given twice"),
        ([first, tmp_path / "absent"], "holds no results.json"),
        ([first, damaged], "study.yaml is missing or damaged"),
        ([first, nothing], "study.yaml is missing or damaged"),
    ):
        code, _, err = command("compare", *arguments, "--out", tmp_path / "p.html")
        assert code == 2
        assert words in err
        assert err.count("\n") == 1
        assert not (tmp_path / "p.html").exists()
    code, _, err = command("compare", first, runs["better"], "--out", tmp_path / "no" / "p.html")
    assert code != 0
    assert err.count("\n") == 1


def test_a_comparison_of_one_folder_is_an_error_of_the_data(runs):
    with pytest.raises(DataError, match="two runs"):
        Comparison.of([runs["first"]])


def test_only_a_page_of_ours_is_replaced_unasked(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = "compare", runs["first"], runs["better"]
    page = tmp_path / "compare.html"
    page.write_text("mine")
    code, _, err = command(*asked)
    assert (code, page.read_text()) == (2, "mine")
    assert err == (
        "fedcohort: --out compare.html: it exists. Name another file, or replace it by --force.\n"
    )
    assert command(*asked, "--force")[0] == 0
    assert command(*asked)[0] == 0
    code, _, err = command(*asked, "--out", runs["first"] / "results.json", "--force")
    assert code == 2
    assert "it is an input" in err


def test_models_of_the_same_patients_that_differ_have_a_reason(tmp_path):
    folders = [made(tmp_path / "one"), made(tmp_path / "other")]
    for i, folder in enumerate(folders):
        for arm, differs in (("cox", False), ("net", True)):
            place = folder / "models" / arm
            place.mkdir(parents=True)
            (place / "model.json").write_text("{}")
            (place / "model.safetensors").write_bytes(b"1" if not differs else bytes([i]))
    change(folders[1], lambda content: content.update(seed=99))
    (folders[1] / "more.csv").write_text("")
    found = {x.name: x for x in Comparison.of(folders).files()["other"]}
    assert found["models/cox"].state == "equal"
    assert found["models/net"].why == "the study files ask for other models"
    assert (found["results.json"].state, found["more.csv"].state) == ("differs", "in one run")


def change(folder, how):
    path = folder / "results.json"
    content = json.loads(path.read_text())
    how(content)
    path.write_text(json.dumps(content))


def test_runs_that_differ_in_times_alone_are_equal_and_other_patients_are_not_compared(
    runs, tmp_path
):
    again = made(tmp_path / "again")
    change(again, lambda content: content.update(seconds=5.0, command="other"))
    (line,) = (
        x
        for x in Comparison.of([runs["first"], again]).files()["again"]
        if x.name == "results.json"
    )
    assert (line.state, line.why) == ("equal", "but for times and the command")
    assert Comparison.of([runs["first"], runs["others"]]).files() == {}
