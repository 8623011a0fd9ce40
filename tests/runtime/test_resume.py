"""A run that was stopped anywhere ends as one that was not, bit for bit."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toys
from fedcohort.protocol import Federation, JournalMismatch, SiteUnavailable, per_site
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call
from fedcohort.runtime.journal import Entry, Journal
from fedcohort.runtime.local import LocalTransport, local
from fedcohort.runtime.reply_store import StateStore


def last_record(blob: bytes) -> int:
    """Return where a journal's last record begins."""
    at = after = blob.index(b"\n") + 1
    while after < len(blob):
        at, after = after, after + 8 + int.from_bytes(blob[after : after + 8], "little")
    return at


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


class DyingJournal(Journal):
    """Dies when it is to keep the call `at`: the sites have answered, the coordinator forgot."""

    at = 0

    def append(self, call: int, mark: int, entry: Any) -> None:
        if call == self.at:
            raise Killed
        super().append(call, mark, entry)


class DyingStore(StateStore):
    """Dies at the `at`-th save: some sites have kept the call's state, others have not."""

    at = 0

    def save(self, site: str, call: int, answer: Any) -> None:
        if self.at == 0:
            raise Killed
        self.at -= 1
        super().save(site, call, answer)


def run_numbers(path: Path, seed: int = 0) -> tuple[bytes, list[str], list[Any]]:
    """Run the program without states; return its arrays, ledger and history."""
    journal = Journal(path)
    fed = local(toys.hosts(toys.numbers(), toys.NUMBERS, seed), journal=journal)
    try:
        out = toys.mean_and_spread(fed)
    finally:
        journal.close()
    return b"".join(a.tobytes() for a in out.values()), fed.ledger.lines, fed.history


def run_lasso(
    folder: Path, journal: Journal | None = None, store: StateStore | None = None, **options: Any
) -> tuple[bytes, list[str], list[Any]]:
    """Run the program with states; return its arrays, ledger and history."""
    journal = journal or Journal(folder / "journal")
    store = store or StateStore(folder / "states")
    fed = local(toys.hosts(toys.regressions(), toys.ADMM), journal=journal, store=store, **options)
    try:
        fit = toys.lasso(fed, penalty=10.0, rounds=6)
    finally:
        journal.close()
    return fit.z.tobytes() + fit.residuals.tobytes(), fed.ledger.lines, fed.history


# the journal alone --------------------------------------------------------------------


def test_a_journal_cut_at_any_byte_gives_the_same_arrays_ledger_and_history(tmp_path):
    path = tmp_path / "journal"
    whole = run_numbers(path)
    blob = path.read_bytes()
    for stop in range(len(blob) + 1):
        path.write_bytes(blob[:stop])
        assert run_numbers(path) == whole, f"cut at byte {stop} of {len(blob)}"
        assert path.read_bytes() == blob


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the journal write every record in its thread."""
    monkeypatch.setattr("fedcohort.runtime.journal.BESIDE", range(2**27))


def test_records_written_in_a_thread_are_the_same_bytes_and_a_flush_waits_for_them(
    tmp_path, monkeypatch
):
    (tmp_path / "here").mkdir()
    whole = run_lasso(tmp_path / "here")
    blob, path = (tmp_path / "here" / "journal").read_bytes(), tmp_path / "journal"
    monkeypatch.setattr("fedcohort.runtime.journal.BESIDE", range(2**27))
    journal, seen = Journal(path), set[bytes]()
    flush, write = journal.flush, journal._write
    monkeypatch.setattr(journal, "_write", lambda *r: (time.sleep(0.001), write(*r)))
    monkeypatch.setattr(journal, "flush", lambda: (flush(), seen.add(path.read_bytes())))
    assert run_lasso(tmp_path, journal) == whole
    assert path.read_bytes() == blob
    ends, at = {len(blob)}, len(blob)
    while at > blob.index(b"\n") + 1:
        ends.add(at := last_record(blob[:at]))
    assert {len(part) for part in seen} <= ends
    assert len(seen) > 5


@pytest.mark.usefixtures("beside")
def test_a_program_may_change_a_result_while_its_record_is_written(tmp_path, monkeypatch):
    journal, start = Journal(tmp_path / "journal"), threading.Event()
    write = journal._write
    monkeypatch.setattr(journal, "_write", lambda *r: (start.wait(5), write(*r)))
    total = np.arange(5.0)
    journal.append(0, 7, Entry(("a",), ({"x": total, "n": np.array([3], np.int32)},)))
    total[:] = np.nan
    start.set()
    journal.close()
    kept = Journal(tmp_path / "journal").replay(0, 7)
    assert kept is not None
    assert kept.replies[0]["x"].tolist() == [0, 1, 2, 3, 4]
    assert kept.replies[0]["n"].tolist() == [3]


@pytest.mark.usefixtures("beside")
def test_a_record_that_cannot_be_written_fails_the_next_use_of_the_journal(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "journal")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal, "_write", full)
    for use in (journal.flush, journal.close):
        journal.append(0, 1, Entry(("a",), ({"x": np.ones(3)},)))
        with pytest.raises(OSError, match="No space left"):
            use()
    assert journal._file.closed


@given(at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_journal_with_a_changed_byte_gives_the_same_arrays_or_is_refused(
    tmp_path_factory, at, flip
):
    path = tmp_path_factory.mktemp("run") / "journal"
    whole = run_numbers(path)
    blob = bytearray(path.read_bytes())
    blob[at % len(blob)] ^= flip
    path.write_bytes(bytes(blob))
    try:
        assert run_numbers(path) == whole
    except JournalMismatch:
        assert path.read_bytes() == bytes(blob)


def test_a_finished_run_is_replayed_without_asking_a_site(tmp_path):
    whole = run_numbers(tmp_path / "journal")
    journal = Journal(tmp_path / "journal")
    empty = {name: np.full((1, 2), np.nan) for name in toys.numbers()}
    fed = local(toys.hosts(empty, toys.NUMBERS), journal=journal)
    out = toys.mean_and_spread(fed)
    journal.close()
    assert b"".join(a.tobytes() for a in out.values()) == whole[0]


def test_the_layout_of_an_array_is_the_same_live_and_replayed(tmp_path):
    """BLAS may round differently on transposed memory, so that a resumed run would drift."""
    for _ in range(2):
        journal = Journal(tmp_path / "journal")
        fed = local(toys.hosts(toys.numbers(), toys.NUMBERS), journal=journal)
        value = np.arange(6.0).reshape(2, 3).T
        assert all(r.values.flags.c_contiguous for r in fed.gather(toys.echo, value=value).values())
        journal.close()


def ask_echo(fed: Federation, value: Any) -> None:
    fed.gather(toys.echo, value=value)


LONG = np.zeros(3000)
CHANGES: dict[str, tuple[Any, Any]] = {
    "one number of many": (LONG, np.r_[LONG[:1500], 1e-9, LONG[1501:]]),
    "shape": (np.zeros((2, 3)), np.zeros((3, 2))),
    "type": (np.zeros(2), np.zeros(2, np.int64)),
    "whose value": (
        per_site({s: np.full(1, float(i)) for i, s in enumerate("abc")}),
        per_site({s: np.full(1, float(i)) for i, s in enumerate("cba")}),
    ),
}


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_a_journal_is_refused_when_an_argument_changed(tmp_path, before, after):
    for value, refused in ((before, False), (before, False), (after, True)):
        journal = Journal(tmp_path / "journal")
        fed = local(toys.hosts(toys.numbers(), toys.NUMBERS), journal=journal)
        if refused:
            with pytest.raises(JournalMismatch, match=r"its call 0 differs.*without --resume"):
                ask_echo(fed, value)
        else:
            ask_echo(fed, value)
        journal.close()


def test_a_journal_is_refused_when_step_sites_weights_or_view_changed(tmp_path):
    def first_call(ask: Any, sites: str = "abc") -> None:
        journal = Journal(tmp_path / "journal")
        tables = {k: v for k, v in toys.numbers().items() if k in sites}
        try:
            ask(local(toys.hosts(tables, toys.NUMBERS), journal=journal))
        finally:
            journal.close()

    def plain(fed: Any) -> None:
        fed.sum(toys.moments, centre=0.0, power=1)

    first_call(plain)
    first_call(plain)
    heavy = {"a": 2.0, "b": 1.0, "c": 1.0}
    for ask in (
        lambda fed: fed.gather(toys.means),
        lambda fed: plain(fed.only("ab")),
        lambda fed: plain(fed.weighted(heavy)),
        lambda fed: plain(fed.through(View())),
    ):
        with pytest.raises(JournalMismatch):
            first_call(ask)
    with pytest.raises(JournalMismatch):
        first_call(plain, sites="ab")


class View:
    spec = "{}"

    def __call__(self, data: Any) -> Any:
        return data


def test_a_journal_of_another_study_is_refused_and_left_as_it_was(tmp_path):
    path = tmp_path / "journal"
    Journal(path, "study 1, seed 0").close()
    Journal(path, "study 1, seed 0").close()
    before = path.read_bytes()
    with pytest.raises(JournalMismatch, match="another run"):
        Journal(path, "study 1, seed 1")
    assert path.read_bytes() == before


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_was(tmp_path):
    path = tmp_path / "results.json"
    path.write_text('{"schema": 1, "arms": []}')
    with pytest.raises(JournalMismatch, match="no journal"):
        Journal(path)
    assert path.read_text() == '{"schema": 1, "arms": []}'


def test_a_call_that_failed_and_was_survived_fails_again_when_replayed(tmp_path):
    """The program goes the same way, although the site would answer now."""

    def program(**options: Any) -> list[str]:
        journal = Journal(tmp_path / "journal")
        fed = local(toys.hosts(toys.numbers(), toys.NUMBERS), journal=journal, **options)
        seen: list[str] = []
        for _ in range(3):
            try:
                seen += fed.gather(toys.means)
            except SiteUnavailable:
                seen.append("-")
        journal.close()
        return seen

    away = program(absent=lambda call, site: call == 1 and site == "b")
    assert away == [*"abc", "-", *"abc"]
    assert program() == away


def test_a_run_that_ended_below_its_quorum_asks_again_when_resumed(tmp_path):
    whole = run_lasso(tmp_path / "whole")
    with pytest.raises(SiteUnavailable):
        run_lasso(tmp_path / "cut", absent=lambda call, site: call == 6 and site == "b")
    assert run_lasso(tmp_path / "cut") == whole


# journal and states -------------------------------------------------------------------


@pytest.fixture(autouse=True)
def folders(tmp_path):
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()


@pytest.mark.parametrize("at", range(12))
def test_a_run_killed_before_any_record_resumes_to_the_same_end(tmp_path, at):
    whole = run_lasso(tmp_path / "whole")
    journal = DyingJournal(tmp_path / "cut" / "journal")
    journal.at = at
    with pytest.raises(Killed):
        run_lasso(tmp_path / "cut", journal)
    assert run_lasso(tmp_path / "cut") == whole


@pytest.mark.parametrize("at", range(18))
def test_a_run_killed_between_two_sites_resumes_to_the_same_end(tmp_path, at):
    whole = run_lasso(tmp_path / "whole")
    store = DyingStore(tmp_path / "cut" / "states")
    store.at = at
    with pytest.raises(Killed):
        run_lasso(tmp_path / "cut", store=store)
    assert run_lasso(tmp_path / "cut") == whole


def test_a_run_killed_again_and_again_resumes_to_the_same_end(tmp_path):
    whole = run_lasso(tmp_path / "whole")
    for at in range(0, 12, 2):
        journal = DyingJournal(tmp_path / "cut" / "journal")
        journal.at = at
        with pytest.raises(Killed):
            run_lasso(tmp_path / "cut", journal)
    assert run_lasso(tmp_path / "cut") == whole


def test_a_last_record_cut_at_any_byte_is_answered_from_the_sites_stores(tmp_path):
    journal = DyingJournal(tmp_path / "whole" / "journal")
    journal.at = 5
    with pytest.raises(Killed):
        run_lasso(tmp_path / "whole", journal)
    blob = (tmp_path / "whole" / "journal").read_bytes()
    states = {p.name: p.read_bytes() for p in (tmp_path / "whole" / "states").iterdir()}
    whole = run_lasso(tmp_path / "whole")
    for stop in range(last_record(blob), len(blob), 7):
        (tmp_path / "cut" / "journal").write_bytes(blob[:stop])
        (tmp_path / "cut" / "states").mkdir(exist_ok=True)
        for name, state in states.items():
            (tmp_path / "cut" / "states" / name).write_bytes(state)
        assert run_lasso(tmp_path / "cut") == whole, f"cut at byte {stop} of {len(blob)}"


def test_states_that_are_ahead_of_the_journal_are_refused_naming_the_site(tmp_path):
    run_lasso(tmp_path)
    path = tmp_path / "journal"
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(JournalMismatch, match=r"site 'a' holds the state of call 10.*--resume"):
        run_lasso(tmp_path)


def test_a_lost_state_is_refused_naming_the_site(tmp_path):
    journal = DyingJournal(tmp_path / "journal")
    journal.at = 7
    with pytest.raises(Killed):
        run_lasso(tmp_path, journal)
    StateStore(tmp_path / "states").forget("b")
    with pytest.raises(JournalMismatch, match="site 'b' holds no state"):
        run_lasso(tmp_path)


def test_a_new_run_is_not_answered_from_the_states_of_an_old_one(tmp_path):
    whole = run_lasso(tmp_path)
    (tmp_path / "journal").unlink()
    sites = toys.hosts(toys.regressions(seed=1), toys.ADMM)
    fit = toys.lasso(local(sites, store=StateStore(tmp_path / "states")), penalty=10.0, rounds=6)
    assert fit.z.tobytes() != whole[0][:32]
    fresh = toys.lasso(local(toys.hosts(toys.regressions(seed=1), toys.ADMM)), 10.0, rounds=6)
    assert fit.z.tobytes() == fresh.z.tobytes()


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_repeated_call_is_answered_from_the_store_and_not_applied_twice(tmp_path, on_disk):
    sites = toys.hosts(toys.regressions(), toys.ADMM)
    transport = LocalTransport(sites, StateStore(tmp_path / "states") if on_disk else None)
    call = Call(0, toys.solve, "sum", None, Arguments({"z": np.zeros(4), "rho": 5.0}, "abc"))
    first, second = ({s: r["value"].tobytes() for s, r in transport.ask(call, "abc")} for _ in "12")
    assert first == second
    later = Call(1, toys.solve, "sum", None, call.arguments)
    third = {s: r["value"].tobytes() for s, r in transport.ask(later, "abc")}
    assert third != first


# what other machines know a journal by --------------------------------------------------------


def test_a_journals_history_is_its_own_and_stays_with_the_file(tmp_path):
    one, other = Journal(tmp_path / "one"), Journal(tmp_path / "other")
    history = one.history()
    assert history == one.history() != other.history()
    blob = (tmp_path / "one").read_bytes()
    one.close()
    other.close()
    again = Journal(tmp_path / "one")
    assert again.history() == history
    again.close()
    assert (tmp_path / "one").read_bytes() == blob
    (tmp_path / "one").unlink()
    new = Journal(tmp_path / "one")
    assert new.history() != history
    new.close()


def test_a_journal_with_a_history_replays_as_one_without(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.history()
    journal.close()
    whole = run_numbers(tmp_path / "plain")
    assert run_numbers(path) == whole
    assert run_numbers(path) == whole


def test_a_journal_that_other_machines_know_is_forced_to_disk(tmp_path, monkeypatch):
    forced: list[int] = []
    monkeypatch.setattr("os.fsync", forced.append)
    journal = Journal(tmp_path / "journal")
    journal.flush()
    assert not forced
    journal.history()
    journal.flush()
    journal.close()
    assert len(forced) == 2
