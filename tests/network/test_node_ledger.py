"""The site's own ledger: every reply is on it before it leaves, whole, whatever ends the node."""

import json
import os
import signal
import subprocess
import sys

import pytest

from fedcohort.network.state import ledger as node_ledger
from fedcohort.network.state.ledger import NodeLedger, as_lines, read
from hospital import Hospital

RUN = "ab" * 32
FIELDS = {"total": {"shape": [3, 2], "dtype": "float64", "bytes": 48}}


def test_lines_are_read_back_by_run(tmp_path):
    made = NodeLedger(tmp_path / "ledger.jsonl")
    made.left(RUN, "count", 0, "totals", "sum", FIELDS)
    made.note("cd" * 32, "refused", "method", "no")
    made.close()
    assert [x["run"] for x in read(tmp_path / "ledger.jsonl")] == [RUN, "cd" * 32]
    (line,) = read(tmp_path / "ledger.jsonl", RUN)
    assert (line["step"], line["fields"]) == ("totals", FIELDS)


def test_a_killed_node_has_noted_all_that_left(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from fedcohort.network.state.ledger import NodeLedger\n"
        "made = NodeLedger(Path(sys.argv[1]))\n"
        "for call in range(10**6):\n"
        "    made.left('ab' * 32, 's', call, 'totals', 'sum', {}); print(call, flush=True)\n"
    )
    path = tmp_path / "ledger.jsonl"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, env=os.environ
    )
    try:
        for _ in range(200):
            assert child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        left = 200 + len(child.stdout.read().split(b"\n")) - 1
    finally:
        child.kill()
        child.wait()
    calls = [x["call"] for x in read(path)]
    assert calls == list(range(len(calls)))
    assert len(calls) >= left


def test_a_line_that_was_cut_off_costs_no_other(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"run": "' + RUN + '", "call": 0}\n{"run": "')
    made = NodeLedger(path)
    made.left(RUN, "s", 1, "totals", "sum", {})
    real = os.write
    monkeypatch.setattr(node_ledger.os, "write", lambda handle, blob: real(handle, blob[:9]))
    with pytest.raises(OSError, match="full"):
        made.left(RUN, "s", 2, "totals", "sum", {})
    monkeypatch.setattr(node_ledger.os, "write", real)
    made.left(RUN, "s", 3, "totals", "sum", {})
    made.close()
    assert [x["call"] for x in read(path)] == [0, 1, 3]


def test_nothing_leaves_where_the_ledger_cannot_be_written(tmp_path, monkeypatch):
    made = Hospital(tmp_path)
    run = made.approved()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node_ledger.os, "write", full)
    told = made.call(run)
    assert (told["kind"], told["code"], told["reason"]) == ("error", "Refused", "disk")
    assert "nothing left" in told["text"]
    monkeypatch.undo()
    assert made.call(run)["kind"] == "reply"
    made.node.close()


def test_words_say_how_often_how_much_and_who_saw_it():
    sent = {"at": "t0", "run": RUN, "session": "s", "step": "totals", "verb": "sum"}
    lines = [{**sent, "call": i, "fields": FIELDS, "masked": True} for i in range(3)]
    lines.append({"at": "t1", "run": RUN, "told": "refused", "code": "method", "text": "not cox"})
    text = "\n".join(as_lines(lines, {RUN: "small"}, {"totals": "Sum covariates."}))
    assert "small, t0 to t1: 3 replies of numbers, 144 bytes." in text
    head = "totals: 3 times, 6 numbers each (total); told as a sum over sites"
    assert f"{head}, masked: Sum covariates" in text
    wide = {**lines[0], "fields": {"total": {"shape": [7]}}}
    assert "4 times, about 6 numbers each" in "\n".join(as_lines([*lines[:3], wide], {}, {}))
    lines[0]["masked"] = False
    assert f"{head}, 1 of them NOT MASKED" in "\n".join(as_lines(lines, {}, {}))
    assert "in words, 1 time: not cox" in text
    assert as_lines([], {}, {}) == ["Nothing has left this site."]


def test_damaged_lines_are_left_out(tmp_path):
    path = tmp_path / "ledger.jsonl"
    good = json.dumps({"run": RUN, "call": 1})
    path.write_bytes(b"\xff\xfe\n[1]\nnull\n" + b"[" * 9000 + b"\n" + good.encode() + b"\n")
    assert [x["call"] for x in read(path)] == [1]
