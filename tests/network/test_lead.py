"""What `fedcohort run --runtime flare` does, over real channels, without an engine."""

from __future__ import annotations

import io
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from command_line import without_times
from fedcohort.apps import deploying
from fedcohort.apps import deploying as following
from fedcohort.apps.deploying import Detached
from fedcohort.network import engines, requests
from fedcohort.network.coordinator import lead
from fedcohort.network.coordinator.conductor import Under
from fedcohort.network.coordinator.lead import Away, Office, Status
from fedcohort.network.coordinator.runs import Run
from fedcohort.protocol.errors import FedcohortError, InputError, Refused, StudyError
from fedcohort.protocol.line import Silence
from fedcohort.study.run.runner import Event
from network.hall import Hall, Spoke
from network.test_coordinator import hold, local


@pytest.fixture
def hall(tmp_path, monkeypatch):
    with Hall(tmp_path / "hall") as hall:
        monkeypatch.setattr(engines, "spoke", lambda kit: Spoke(hall))
        monkeypatch.setattr(engines, "preflight", lambda kit: None)
        monkeypatch.setattr(lead, "AGAIN", 0.05)
        monkeypatch.setattr(lead, "PAUSE", 0.05)
        hall.terms()
        yield hall


def run(hall, out, **options):
    options = {"network": hall.network.kit("lead"), "runtime": "flare"} | options
    return deploying.run(hall.folder / "study.yaml", out, **options)


def test_a_run_leaves_the_local_files_and_a_report_and_nothing_else(hall, tmp_path, capsys):
    hall.start()
    results = run(hall, tmp_path / "out")
    assert results is not None
    assert results.failures == []
    assert without_times(tmp_path / "out") == local(hall, tmp_path / "local")
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert not (tmp_path / "out" / ".work").exists()
    said = capsys.readouterr().err
    for word in ("north: approved", "running", "fits done", "calls", "done after"):
        assert word in said, said


def test_a_refusal_reaches_the_lead_and_leaves_no_folder(tmp_path, monkeypatch):
    with Hall(tmp_path / "hall", policy={"west": {"methods": '["logistic"]'}}) as hall:
        monkeypatch.setattr(engines, "spoke", lambda kit: Spoke(hall))
        monkeypatch.setattr(engines, "preflight", lambda kit: None)
        hall.terms()
        hall.start()
        with pytest.raises(Refused, match=r"west.*cox") as found:
            run(hall, tmp_path / "out")
        assert not isinstance(found.value, InputError)  # the exit code is 1
        assert not (tmp_path / "out").exists()


def test_the_lead_survives_a_coordinator_that_is_killed_and_started_again(hall, tmp_path, capsys):
    hall.start()
    held, go = hold(hall, 15)

    def break_down():
        assert held.wait(60)
        hall.kill()
        go.set()
        hall.before = lambda site: None
        time.sleep(0.6)
        hall.open()

    thread = threading.Thread(target=break_down)
    thread.start()
    run(hall, tmp_path / "out")
    thread.join()
    assert without_times(tmp_path / "out") == local(hall, tmp_path / "local")
    said = capsys.readouterr().err
    assert "has not answered for" in said
    assert "is back" in said


def test_ctrl_c_leaves_the_run_going_and_resume_fetches_it(hall, tmp_path, monkeypatch):
    hall.start()
    kept = lead.follow

    def interrupted(office, first, tell, loss=0):
        raise KeyboardInterrupt

    monkeypatch.setattr(lead, "follow", interrupted)
    with pytest.raises(Detached, match=r"goes on at the coordinator.*--resume.*--cancel"):
        run(hall, tmp_path / "out")
    monkeypatch.setattr(lead, "follow", kept)
    with pytest.raises(StudyError, match="--resume"):
        run(hall, tmp_path / "out")
    run(hall, tmp_path / "out", resume=True)
    assert without_times(tmp_path / "out") == local(hall, tmp_path / "local")
    with pytest.raises(StudyError, match="another --out"):
        run(hall, tmp_path / "out")


def test_cancel_ends_the_run_that_the_same_command_began(hall, tmp_path, monkeypatch, capsys):
    hall.start()
    held, go = hold(hall, 12)
    ended: list[BaseException] = []

    def begin():
        try:
            run(hall, tmp_path / "out")
        except FedcohortError as error:
            ended.append(error)

    thread = threading.Thread(target=begin)
    thread.start()
    assert held.wait(60)
    assert run(hall, tmp_path / "out", cancel=True) is None
    go.set()
    thread.join(30)
    assert "cancelled" in str(ended[0])
    assert not (tmp_path / "out").exists()


def test_cancel_after_ctrl_c_leaves_no_folder(hall, tmp_path, monkeypatch, capsys):
    hall.begin("north")
    hall.open()

    def interrupted(office, first, tell, loss=0):
        raise KeyboardInterrupt

    monkeypatch.setattr(lead, "follow", interrupted)
    with pytest.raises(Detached):
        run(hall, tmp_path / "out")
    run(hall, tmp_path / "out", cancel=True)
    assert "cancelled" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_resuming_what_was_never_submitted_is_refused(hall, tmp_path):
    hall.start()
    with pytest.raises(Refused, match="no such run"):
        run(hall, tmp_path / "out", resume=True)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_study_is_not_taken(hall, tmp_path):
    hall.start()
    lead.open_folder(tmp_path / "out", "0" * 64, hall.kit("lead"), resume=False)
    with pytest.raises(StudyError, match="changed since this run began"):
        run(hall, tmp_path / "out", resume=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(StudyError, match="not empty"):
        run(hall, tmp_path / "full")
    assert (tmp_path / "full" / "file").read_text() == "mine"


def test_a_kit_that_is_not_a_leads_or_of_another_engine_is_named(hall, tmp_path):
    with pytest.raises(InputError, match="people/lead"):
        run(hall, tmp_path / "out", network=hall.network.kit("north"))
    with pytest.raises(InputError, match="--runtime flare"):
        run(hall, tmp_path / "out", runtime="flower")


def test_a_coordinator_that_is_away_ends_the_command_and_leaves_no_folder(
    hall, tmp_path, monkeypatch
):
    monkeypatch.setattr(deploying, "FIRST", 0.2)
    with pytest.raises(Away, match="is not connected"):
        run(hall, tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Losing(Spoke):
    """Loses the reply of each request's first try."""

    def __init__(self, hall):
        super().__init__(hall)
        self.lost = 0
        self.bodies = 0

    def ask(self, blob, timeout):
        reply = super().ask(blob, timeout)
        self.bodies += 1
        if self.bodies == 2:  # the first is the hello; the submission was heard
            self.lost += 1
            return Silence("the connection was lost")
        return reply


def test_a_submission_whose_answer_was_lost_is_not_a_second_one(hall):
    hall.begin("north")
    hall.open()
    spoke = Losing(hall)
    office = Office(hall.kit("lead"), spoke)
    status = lead.submit(office, hall.offer(), wait=None, timeout=None, resume=False)
    assert spoke.lost == 1
    assert status.state == "waiting"
    assert sum("submitted" in line for line in hall.said) == 1


# a coordinator that cannot be trusted -----------------------------------------------------


class Forged:
    """An office whose coordinator sends what a test wants."""

    def __init__(self, files, piece=b"x", digest=None):
        self.files, self.piece, self.digest = files, piece, digest

    def insist(self, kind, **meta):
        if "name" not in meta:
            return {}, {"files": self.files}
        told = {"size": len(self.piece), "digest": self.digest or requests.digest(self.piece)}
        return requests.packed(self.piece), told


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/../x", ".ssh/x", "a\\b", "a//b", "", "a/" * 9 + "b", "x" * 300, "a\0b"],
)
def test_no_file_is_written_outside_the_folder(tmp_path, name):
    (tmp_path / "out" / ".work").mkdir(parents=True)
    with pytest.raises(Refused, match="a file called"):
        lead.fetch(Forged([[name, 1, requests.digest(b"x")]]), "r", tmp_path / "out")
    assert [p.name for p in tmp_path.rglob("*")] == ["out", ".work"]


@pytest.mark.parametrize(
    "office",
    [
        Forged([["x", 1, "0" * 64]]),
        Forged([["x", 1, requests.digest(b"x")]], digest="0" * 64),
        Forged([["x", 5, requests.digest(b"x")]], piece=b""),
        Forged([["x", 5, requests.digest(b"x")]]),
        Forged([["x", 1 << 40, requests.digest(b"x")]]),
        Forged([["x"]]),
        Forged("files"),
        Forged([["x", -1, ""]]),
    ],
)
def test_bytes_that_are_not_those_announced_are_refused(tmp_path, office):
    (tmp_path / "out" / ".work").mkdir(parents=True)
    with pytest.raises(Refused):
        lead.fetch(office, "r", tmp_path / "out")
    assert not (tmp_path / "out" / "x").exists()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100_001])
def test_bytes_survive_a_record(size):
    blob = np.random.default_rng(size).bytes(size)
    body = requests.reply({"kind": "piece", "size": size}, requests.packed(blob))
    arrays, meta = requests.answer(body)
    assert requests.unpacked(arrays, meta["size"]) == blob


# what is shown ----------------------------------------------------------------------------

RUNNING = Status(
    run="ab" * 32, study="gbsg2 [red]", state="running", seconds=75.0,
    sites={
        "north": {"state": "approved", "connected": True, "seconds": 0.0123, "silent": ""},
        "south": {"state": "approved", "connected": False, "seconds": 1.0, "silent": "no reply"},
        "west": {"state": "refused", "reason": "no cox here", "connected": True},
    },
    absent={"west": "refused: no cox here"}, piece="fedavg · 1", done=2, total=5,
    traffic={
        "calls": 120, "up": 1_234_567, "down": 10, "round": 11, "rounds": 30, "step": "local_fit",
        "answered": 1, "asked": 2,
    },
)  # fmt: skip


def shown(draw, width=100):
    out = io.StringIO()
    draw(Console(file=out, width=width, force_terminal=False))
    return out.getvalue()


def test_the_picture_shows_the_round_who_answered_how_fast_and_how_much():
    text = shown(lambda console: console.print(following.picture(RUNNING)))
    for words in (
        "gbsg2 [red]", "running, 1 min 15 s", "answered in 12 ms", "silent: no reply",
        "without it: refused: no cox here", "2 of 5 fits done; fedavg · 1; round 12 of 30",
        "1 of 2 answered local fit", "120 calls, 1.2 MB from the sites, 10 B to them",
    ):  # fmt: skip
        assert words in text, text


def test_the_picture_of_a_study_that_waits_names_the_steward():
    sites = {"south": {"state": "waiting", "reason": "", "connected": True}}
    status = Status(run="ab" * 32, study="s", state="waiting", sites=sites, away=3.0)
    text = shown(lambda console: console.print(following.picture(status)))
    assert "waiting for the steward at south" in text
    assert "has not answered for 3 s" in text


def test_lines_are_printed_once_each():
    def draw(console):
        lines = following.Lines(console)
        for _ in range(50):
            lines(RUNNING)

    text = shown(draw)
    assert len(text.splitlines()) == 5, text


def test_a_site_that_was_silent_to_the_end_is_not_called_approved_then():
    silent = {"state": "approved", "reason": "", "connected": False, "silent": "not connected"}
    gone = replace(RUNNING, sites={"north": silent})
    ended = replace(gone, state="failed", sites={"north": silent | {"silent": ""}})

    def draw(console):
        lines = following.Lines(console)
        lines(gone)
        lines(ended)

    text = shown(draw)
    assert "north: silent: not connected" in text
    assert "approved" not in text


def test_the_time_left_is_shown_where_a_pace_is_known():
    for left, said in ((None, "time left not known yet"), (190.0, "about 3 min 10 s left")):
        status = replace(RUNNING, left=left)
        assert said in shown(lambda console, s=status: console.print(following.picture(s)))
        assert said in shown(lambda console, s=status: following.Lines(console)(s))
    assert Status.of(META | {"left": 12}).left == 12.0
    assert Status.of(META).left is None


META = {
    "run": "ab", "study": "s", "state": "running", "reason": "", "sites": {}, "absent": {},
    "seconds": 1, "ahead": 0,
}  # fmt: skip


def test_the_pace_is_that_of_the_fits_since_the_run_was_taken_up(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("fedcohort.network.coordinator.conductor.time.monotonic", lambda: now[0])
    under = Under(Run(Path(), "ab", "s", "lead", 1.0, {}))
    assert under.left is None
    under.at(Event(4, 10, "cox", None))  # four were done before
    assert under.left is None
    now[0] = 120.0
    under.at(Event(6, 10, "cox", None))
    assert under.left == pytest.approx(40.0)  # 10 s a fit, and 4 to go
    under.traffic.round, under.traffic.rounds = 5, 10
    assert under.left == pytest.approx(20.0 / 2.5 * 3.5)


def test_a_run_that_is_taken_up_again_counts_from_its_first_start(tmp_path):
    run = Run(tmp_path / "r", "ab", "s", "lead", 1.0, {})
    run.change("running")
    began = run.started = run.started - 100.0
    for state in ("queued", "running", "failed", "queued", "running"):
        run.change(state)
    assert run.started == began


def test_a_coordinator_that_is_gone_is_told_at_once_and_every_ten_seconds_in_lines():
    def draw(console):
        lines = following.Lines(console)
        lines(RUNNING)
        for seconds in (0.1, 4.0, 9.9, 10.1, 19.0, 21.0):
            lines(replace(RUNNING, away=seconds))
        lines(RUNNING)

    text = shown(draw)
    assert text.count("the coordinator has not answered for") == 3, text
    assert "asked again for 9 min 49 s" in text
    assert "its IT has to start it" in text
    assert text.count("the coordinator is back") == 1
    assert text.count("2 of 5 fits done") == 1


def test_a_look_at_a_run_waits_a_few_seconds_before_the_silence_is_told(hall):
    hall.begin("north")
    hall.open()
    asked = []

    class Slow(Spoke):
        def ask(self, blob, timeout):
            asked.append(timeout)
            return super().ask(blob, timeout)

    office = Office(hall.kit("lead"), Slow(hall))
    first = lead.submit(office, hall.offer(), wait=None, timeout=None, resume=False)
    told = []

    def tell(status):
        told.append(status)
        if len(told) == 2:
            raise KeyboardInterrupt

    asked.clear()
    with pytest.raises(KeyboardInterrupt):
        lead.follow(office, first, tell)
    assert asked
    assert max(asked) <= lead.GLANCE


def test_text_of_a_coordinator_cannot_steer_a_terminal():
    meta = {
        "run": "r\x1b[2J", "study": "a\nb\x07", "state": "done", "reason": "\x1b]0;x\x07",
        "sites": {"n\x1b": {"state": "approved\x1b", "reason": ""}}, "absent": {"n": "\x1b"},
        "seconds": 1, "ahead": 0,
    }  # fmt: skip
    found = Status.of(meta)
    assert all(c.isprintable() for c in repr(found).replace("\n", ""))
    assert "\x1b" not in found.study + found.reason + found.run + "".join(found.absent.values())


@pytest.mark.parametrize("meta", [{}, {"sites": 3}, {"sites": {}, "run": 1, "seconds": "x"}])
def test_an_answer_that_is_none_is_refused(meta):
    with pytest.raises(Refused, match="cannot be read"):
        Status.of(meta)
