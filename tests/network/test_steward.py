"""The steward's desk: what is decided counts at once, for one study, and only if it may."""

import json
import os
import subprocess
import sys

import pytest

from fedcohort.network.state import study_store
from fedcohort.network.state.study_store import APPROVED, REFUSED, WAITING, Noted, StudyStore
from fedcohort.protocol.errors import InputError, Refused

ONE, TWO, THREE = ("ab" * 32, "ab" * 4 + "cd" * 28, "12" * 32)


def store(folder, verify=None):
    return StudyStore(folder / "desk", "net", "north", verify)


def put(made, study=ONE, name="small"):
    return made.put(study, b"signed", name, "lead", "Charite")


def test_a_study_waits_until_it_is_decided_and_decisions_follow_each_other(tmp_path):
    made = store(tmp_path)
    assert put(made)
    assert not put(made), "the same study is no new one"
    assert made.entry(ONE).state == WAITING
    made.decide(ONE, APPROVED, "anna")
    assert made.entry(ONE).state == APPROVED
    made.decide(ONE, REFUSED, "anna", "The vote\nof the board  is late.")
    entry = made.entry(ONE)
    assert (entry.state, entry.decision.reason) == (REFUSED, "The vote of the board is late.")
    assert (entry.decision.by, entry.lead, entry.organisation) == ("anna", "lead", "Charite")
    assert made.offer(ONE) == b"signed"


def test_a_desk_in_another_process_sees_a_decision_at_once(tmp_path):
    """A running node has its own view of the files; a decision counts at its very next look."""
    node = store(tmp_path)
    put(node)
    assert node.decision(ONE) is None
    for n, decision in enumerate([APPROVED, REFUSED, APPROVED]):
        code = (
            "import sys; from pathlib import Path;"
            "from fedcohort.network.state.study_store import StudyStore;"
            "StudyStore(Path(sys.argv[1]), 'net', 'north', None)"
            ".decide(sys.argv[2], sys.argv[3], 'x')"
        )
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "desk"), ONE, decision],
            check=True, env=os.environ,
        )  # fmt: skip
        found = node.decision(ONE)
        assert (found.number, found.decision) == (n + 1, decision)


def test_short_hashes_name_a_study_when_they_are_unique(tmp_path):
    made = store(tmp_path)
    for study in (ONE, TWO, THREE):
        put(made, study)
    assert made.find("1212") == THREE
    assert made.find(ONE.upper()) == ONE
    assert made.find("abababababab") == ONE
    with pytest.raises(InputError, match=r"2 studies have hashes that begin with 'abab'"):
        made.find("abab")
    with pytest.raises(InputError, match="no study here"):
        made.find("9999")
    for text in ("121", "", "zzzz", "../..", "12 12"):
        with pytest.raises(InputError, match="is no hash"):
            made.find(text)


def test_only_a_whole_hash_names_a_folder(tmp_path):
    made = store(tmp_path)
    for text in ("../../etc", "ab", ONE + "/..", ""):
        with pytest.raises(Refused):
            put(made, text)
        with pytest.raises(Refused):
            made.offer(text)
    assert not (tmp_path / "desk").exists()


def test_those_that_wait_stand_first_then_the_latest(tmp_path, monkeypatch):
    made = store(tmp_path)
    for i, study in enumerate((ONE, TWO, THREE)):
        monkeypatch.setattr(study_store, "now", lambda i=i: f"2026-01-0{i + 1}T00:00:00Z")
        put(made, study)
    made.decide(THREE, APPROVED, "anna")
    assert [e.study for e in made.entries()] == [TWO, ONE, THREE]


def test_a_line_that_was_cut_off_hides_no_decision(tmp_path):
    made = store(tmp_path)
    put(made)
    made.decide(ONE, APPROVED, "anna")
    path = tmp_path / "desk" / ONE / "decisions.jsonl"
    whole = path.read_text()
    path.write_text(whole + whole[: len(whole) // 2])
    assert made.decision(ONE).decision == APPROVED
    made.decide(ONE, REFUSED, "anna", "no")
    assert made.decision(ONE).decision == REFUSED


@pytest.mark.parametrize(
    "line",
    ["", "[]", "{}", '{"number": 9}', "\0\0", '"approved"', "[" * 5000]
    + [
        json.dumps(
            {"number": n, "decision": d, "reason": "", "by": "x", "at": "", "signature": s,
             "certificate": ""}
        )
        for n, d, s in (
            (9, "maybe", ""), ("9", "approved", ""), (True, "approved", ""), (9, "approved", 1)
        )
    ],
)  # fmt: skip
def test_what_is_no_decision_decides_nothing(tmp_path, line):
    made = store(tmp_path)
    put(made)
    (tmp_path / "desk" / ONE / "decisions.jsonl").write_text(line + "\n")
    assert made.decision(ONE) is None


def test_a_signature_is_asked_over_all_that_a_decision_says(tmp_path):
    """Whoever verifies sees network, site, study, number, decision, reason, name and time."""
    seen = []

    def verify(text, signature, certificate, by):
        seen.append(json.loads(text))
        return signature == b"s" and certificate == b"c" and by == "anna"

    made = store(tmp_path, verify)
    put(made)
    with pytest.raises(InputError, match="takes decisions that a steward of its own signs"):
        made.decide(ONE, APPROVED, "anna")
    with pytest.raises(InputError):
        made.decide(ONE, APPROVED, "anna", sign=lambda text: (b"other", b"c"))
    assert made.decision(ONE) is None
    found = made.decide(ONE, REFUSED, "anna", "why", sign=lambda text: (b"s", b"c"))
    assert seen[-1] == [
        "fedcohort decision 2", "net", "north", ONE, 1, "refused", "why", "anna", found.at, "", 0,
    ]  # fmt: skip
    path = tmp_path / "desk" / ONE / "decisions.jsonl"
    path.write_text(path.read_text().replace('"by": "anna"', '"by": "otto"'))
    assert made.decision(ONE) is None


def test_a_reason_is_one_line_of_some_length(tmp_path):
    made = store(tmp_path)
    put(made)
    with pytest.raises(InputError, match="at most 500 characters"):
        made.decide(ONE, REFUSED, "anna", "x" * 501)
    with pytest.raises(InputError, match="one line"):
        made.decide(ONE, REFUSED, "anna", "\x1b[2Jgone")
    with pytest.raises(InputError, match="no study"):
        made.decide(TWO, REFUSED, "anna", "x")


def test_a_run_is_noted_and_a_damaged_note_reads_as_closed(tmp_path):
    made = store(tmp_path)
    put(made)
    assert made.run(ONE) == Noted()
    made.note_run(ONE, Noted(open=True, table="d1", mark="m"))
    assert made.run(ONE) == (True, "d1", "m")
    (tmp_path / "desk" / ONE / "run.json").write_text('{"open": tr')
    assert made.run(ONE) == (False, None, "")


def signing(tmp_path):
    made = store(tmp_path, lambda text, signature, certificate, by: signature == text[-30:])
    return made, lambda text: (text[-30:], b"c")


def test_an_approval_does_not_come_back_when_the_refusal_is_cut_off(tmp_path):
    made, sign = signing(tmp_path)
    put(made)
    made.decide(ONE, APPROVED, "anna", sign=sign)
    made.decide(ONE, REFUSED, "anna", "no", sign=sign)
    path = tmp_path / "desk" / ONE / "decisions.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    for node in (made, signing(tmp_path)[0]):  # and after a restart
        found = node.decision(ONE)
        assert found.decision == REFUSED
        assert found.reason.startswith("decision 2 on this study was seen, and 1 is now the last")
        assert node.entry(ONE).state == REFUSED
    path.unlink()
    assert made.entry(ONE).state == WAITING
    again = made.decide(ONE, APPROVED, "anna", sign=sign)
    assert (again.number, made.decision(ONE)) == (3, again)


def test_a_decision_seen_by_the_node_alone_counts_as_seen(tmp_path):
    """A steward's command may be killed behind the line and before the number is noted."""
    made, sign = signing(tmp_path)
    put(made)
    made.decide(ONE, APPROVED, "anna", sign=sign)
    first = (tmp_path / "desk" / ONE / "decisions.jsonl").read_text()
    made.decide(ONE, REFUSED, "anna", sign=sign)
    (tmp_path / "decided.sqlite").unlink()
    assert signing(tmp_path)[0].decision(ONE).decision == REFUSED
    (tmp_path / "desk" / ONE / "decisions.jsonl").write_text(first)
    assert signing(tmp_path)[0].decision(ONE).decision == REFUSED


def test_a_line_without_a_signature_that_counts_raises_no_number(tmp_path):
    made, sign = signing(tmp_path)
    put(made)
    store(tmp_path).decide(ONE, REFUSED, "otto")
    store(tmp_path).decide(ONE, REFUSED, "otto")
    store(tmp_path).entry(ONE)
    assert made.entry(ONE).state == WAITING
    assert made.decide(ONE, APPROVED, "anna", sign=sign).number == 1
    (tmp_path / "decided.sqlite").write_bytes(b"no data base" * 100)
    with pytest.raises(InputError, match=r"decided.sqlite cannot be used") as error:
        signing(tmp_path)[0].decision(ONE)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("last", [APPROVED, REFUSED])
def test_of_two_decisions_at_the_same_moment_a_refusal_counts(tmp_path, monkeypatch, last):
    """Two people read the same last number, and write their lines one after the other."""
    made, other = store(tmp_path), store(tmp_path)
    put(made)
    made.decide(ONE, APPROVED, "anna")
    first = {APPROVED: REFUSED, REFUSED: APPROVED}[last]
    written = study_store._append

    def both(path, line):
        monkeypatch.setattr(study_store, "_append", written)
        other.decide(ONE, first, "otto")
        written(path, line)

    monkeypatch.setattr(study_store, "_append", both)
    if last == REFUSED:
        assert made.decide(ONE, last, "anna").number == 2
    else:
        with pytest.raises(InputError, match="someone else decided on study abab"):
            made.decide(ONE, last, "anna")
    assert made.decision(ONE).decision == REFUSED
    assert made.decide(ONE, APPROVED, "anna").number == 3
    assert store(tmp_path).decision(ONE).decision == APPROVED
