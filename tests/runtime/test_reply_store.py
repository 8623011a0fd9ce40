"""A node's store: whole or not at all, and no more than what may still be asked for."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.protocol import InputError
from fedcohort.runtime.reply_store import HISTORIES, Answers, Kept

KEY = ("run", "session", "history")


def kept(call: int, size: int = 10) -> Kept:
    return Kept(b"%d" % call, bytes([call % 251]) * size, bytes([call % 241]) * size)


def test_what_is_saved_is_there_for_the_next_process(tmp_path):
    path = tmp_path / "state" / "answers.sqlite"
    first = Answers(path)
    first.save(*KEY, 3, None, kept(3))
    first.close()
    second = Answers(path)
    assert second.calls(*KEY) == {3: b"3"}
    assert second.load(*KEY, 3) == kept(3)
    assert second.load(*KEY, 4) is None
    assert second.load("run", "session", "another", 3) is None
    second.close()


def test_it_is_on_the_disk_when_save_returns(tmp_path):
    answers = Answers(tmp_path / "answers")
    ((level,),) = answers._db.execute("PRAGMA synchronous").fetchall()
    assert level == 2  # FULL: one fsync a commit
    answers.close()


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_the_base_and_what_came_since_stay_and_all_else_is_forgotten(tmp_path_factory, counted):
    answers = Answers(tmp_path_factory.mktemp("a") / "answers")
    base: int | None = None
    for call, counts in enumerate(counted):
        answers.save(*KEY, call, base, kept(call))
        assert set(answers.calls(*KEY)) == {call} | ({base} if base is not None else set())
        base = call if counts else base
    answers.close()


@given(late=st.integers(0, 7), counted=st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_late_save_of_an_old_call_takes_nothing_that_is_needed(tmp_path_factory, late, counted):
    """The old call arrives first now: it was lost, and the coordinator went on without it."""
    answers = Answers(tmp_path_factory.mktemp("a") / "answers")
    base, old = None, None
    for call, counts in enumerate(counted):
        if call == late:
            old = base
            continue
        answers.save(*KEY, call, base, kept(call))
        base = call if counts else base
    answers.save(*KEY, late, old, kept(late))
    if base is not None:
        assert answers.load(*KEY, base) == kept(base)
    answers.close()


def test_the_latest_histories_of_a_session_stay(tmp_path):
    answers = Answers(tmp_path / "answers")
    for i in range(HISTORIES + 3):
        answers.save("run", "session", f"h{i}", 0, None, kept(0))
        answers.save("run", "other", "h", i, i - 1 if i else None, kept(i))
    assert [i for i in range(HISTORIES + 3) if answers.calls("run", "session", f"h{i}")] == [
        *range(3, HISTORIES + 3)
    ]
    assert len(answers.calls("run", "other", "h")) == 2
    answers.close()


def test_a_session_or_a_run_can_be_forgotten(tmp_path):
    answers = Answers(tmp_path / "answers")
    for run in ("one", "two"):
        for session in ("x", "y"):
            answers.save(run, session, "h", 0, None, kept(0))

    def held():
        return [r + s for r in ("one", "two") for s in "xy" if answers.calls(r, s, "h")]

    answers.forget("one", "x")
    assert held() == ["oney", "twox", "twoy"]
    answers.forget("two")
    assert held() == ["oney"]
    answers.close()


@pytest.mark.parametrize("content", [b"not a database, but some text" * 100, b""])
def test_a_file_that_is_no_store_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "answers"
    path.write_bytes(content)
    if not content:
        Answers(path).close()
        return
    with pytest.raises(InputError, match=r"answers cannot be used as the store.*Move it away"):
        Answers(path)
    assert path.read_bytes() == content


def test_threads_may_share_it(tmp_path):
    answers = Answers(tmp_path / "answers")

    def work(session: str) -> None:
        for call in range(20):
            answers.save("run", session, "h", call, call - 1 if call else None, kept(call))

    threads = [threading.Thread(target=work, args=(s,)) for s in "abcd"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(set(answers.calls("run", s, "h")) == {18, 19} for s in "abcd")
    answers.close()


# kills and full disks -------------------------------------------------------------------------

SIZE = 300_000
SAVER = f"""
import sys
from pathlib import Path
from fedcohort.runtime.reply_store import Answers, Kept
answers, call = Answers(Path(sys.argv[1])), int(sys.argv[2])
while True:
    one = Kept(b"%d" % call, bytes([call % 251]) * {SIZE}, bytes([call % 241]) * {SIZE})
    answers.save("run", "session", "history", call, call - 1 if call else None, one)
    print(call, flush=True)
    call += 1
"""


def test_a_process_killed_while_it_saves_leaves_the_old_or_the_new_never_half(tmp_path):
    path, rng, cut = tmp_path / "answers", random.Random(1), 0
    for _ in range(6):
        answers = Answers(path)
        begin = max(answers.calls(*KEY), default=-1) + 1
        answers.close()
        with subprocess.Popen(
            [sys.executable, "-c", SAVER, str(path), str(begin)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            said = [int(process.stdout.readline())]
            time.sleep(rng.uniform(0.0, 0.05))
            process.kill()
            said += [int(line) for line in process.stdout if line.endswith("\n")]
        answers = Answers(path)
        found = answers.calls(*KEY)
        last = max(found)
        assert said[-1] <= last <= said[-1] + 1
        cut += last == said[-1] + 1
        assert set(found) <= {last - 1, last}
        for call in found:
            assert answers.load(*KEY, call) == kept(call, SIZE)
        answers.close()


FULL = """
import resource, sqlite3, sys
from pathlib import Path
from fedcohort.runtime.reply_store import Answers, Kept
answers = Answers(Path(sys.argv[1]))
one = Kept(b"0", b"r" * 1000, b"s" * 1000)
answers.save("run", "session", "history", 0, None, one)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for _ in range(3):
    try:
        answers.save("run", "session", "history", 1, 0, Kept(b"1", b"r" * 10**6, b"s" * 10**6))
    except sqlite3.Error as error:
        print("refused")
    assert answers.calls("run", "session", "history") == {0: b"0"}
    assert answers.load("run", "session", "history", 0) == one
answers.save("run", "session", "history", 1, 0, Kept(b"1", b"r", b"s"))
print(sorted(answers.calls("run", "session", "history")))
"""


def test_a_file_that_may_not_grow_keeps_what_it_had_and_takes_what_fits(tmp_path):
    path = tmp_path / "answers"
    out = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=60
    )
    assert out.stdout.split("\n")[:4] == ["refused", "refused", "refused", "[0, 1]"], out.stderr


def test_a_full_disk_changes_nothing(tmp_path):
    answers = Answers(tmp_path / "answers")
    answers.save(*KEY, 0, None, kept(0))
    answers._db.execute("PRAGMA max_page_count = 20")
    with pytest.raises(sqlite3.Error, match="full"):
        answers.save(*KEY, 1, 0, kept(1, 10**6))
    assert answers.calls(*KEY) == {0: b"0"}
    answers.close()
