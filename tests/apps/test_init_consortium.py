"""`fedcohort init --drafts`: sites draft by themselves, the lead merges, and nobody shows a row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedcohort.data.outcome import Category
from fedcohort.study.file.terms import Terms
from in_process import command


@pytest.fixture
def drafts(tmp_path, monkeypatch):
    """Let three sites draft a dictionary of their own table each."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    for i, site in enumerate(("east", "north", "west")):
        n = 80
        table = pd.DataFrame({"age": rng.integers(30, 80, n), "sex": rng.choice(["f", "m"], n),
                              "stage": rng.choice(["I", "II", "III"][: 2 + (i > 0)], n),
                              "crp": rng.exponential(9, n).round(1) + 0.1,
                              "os_days": rng.integers(20, 900, n), "dead": rng.integers(0, 2, n),
                              "cr_day": rng.integers(10, 60, n)})  # fmt: skip
        if site == "west":
            table = table.assign(sex=rng.choice([1, 2], n)).rename(columns={"age": "age_years"})
        (tmp_path / site).mkdir()
        table.to_csv(f"{site}/t.csv", index=False)
        assert command("init", "--data", f"{site}/t.csv", "--out", f"drafts/{site}")[0] == 0
    return tmp_path


def test_drafts_are_merged_and_conflicts_are_named_with_their_sites(drafts):
    code, text, error = command("init", "--drafts", "drafts/{site}/dictionary.yaml", "--out", "s")
    assert (code, error) == (0, "")
    assert "Settle this with the sites:\n  column 'sex': it is category at east, north; " in text
    terms = Terms.of("s/study.yaml")
    known = terms.dictionary
    assert known["stage"].levels == ("I", "II", "III")
    assert not known["cr_day"].feature
    assert known.outcome() == terms.outcome
    page = (drafts / "s/dictionary.yaml").read_text()
    assert "'III'" not in page.split("stage:")[1].split("\n")[0].split("#")[-1]
    code, text, _ = command("data", "check", "s/study.yaml")
    assert code == 0
    assert "column 'crp' has no unit" in " ".join(text.split())
    code, text, _ = command("data", "check", "s/study.yaml", "east/t.csv")
    assert "no column 'age_years'" not in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--drafts", "drafts"), "--drafts drafts: {site} stands for the part of the path that"),
        (("--drafts", "drafts/{site}.yaml"), "--drafts drafts/{site}.yaml: no dictionary; two"),
        (("--drafts", "d/{site}.yaml", "--data", "t.csv"), "--data: leave it out beside --drafts"),
        (("--drafts", "drafts/{site}/dictionary.yaml", "--outcome", "os_day,dead"),
         "--outcome os_day,dead: there is no column 'os_day'. Did you mean"),
        (("--drafts", "drafts/{site}/dictionary.yaml", "--task", "regression"),
         "--task regression: name the column to predict by --outcome Y."),
        (("--drafts", "drafts/{site}/dictionary.yaml", "--task", "regresion"),
         "--task regresion: there is no task 'regresion'."),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_said_on_one_line(drafts, options, said):
    code, _, error = command("init", "--out", "new", *options)
    assert code == 2
    assert error.startswith(f"fedcohort: {said}")
    assert not (drafts / "new").exists()


@pytest.mark.parametrize(
    ("task", "outcome"), [("classification", "dead"), ("regression", "crp"), ("clustering", None)]
)
def test_other_tasks_are_drafted_too(drafts, task, outcome):
    told = ("--outcome", outcome) if outcome else ()
    path = "drafts/{site}/dictionary.yaml"
    assert command("init", "--task", task, "--drafts", path, "--out", "s", *told)[2] == ""
    assert Terms.of("s/study.yaml").plan.task == task


def test_an_outcome_of_three_classes_is_drafted_with_a_method_that_learns_them(drafts):
    options = ("--task", "classification", "--outcome", "stage", "--out", "s")
    code, _, error = command("init", "--drafts", "drafts/{site}/dictionary.yaml", *options)
    assert (code, error) == (0, "")
    text = (drafts / "s" / "study.yaml").read_text()
    assert "outcome: {y: stage, type: category}" in text
    assert "method: multinomial" in text
    assert Terms.of(drafts / "s" / "study.yaml").outcome == Category("stage")
