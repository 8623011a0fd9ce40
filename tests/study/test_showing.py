"""Progress of a fit or a study in Python, with a clock of the test."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.runtime.coordinator import Progress
from fedcohort.study.run import showing
from fedcohort.study.run.runner import Event


class Clock:
    """A clock that stands until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Shown(list[str]):
    """A display that keeps its lines."""

    closed = False

    def show(self, text: str, share: float) -> None:
        assert 0 <= share <= 1
        self.append(text)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def shown() -> tuple[Shown, Clock, showing.Line]:
    display, clock = Shown(), Clock()
    return display, clock, showing.Line("cox", "rounds", display, clock)


def test_nothing_is_shown_below_two_seconds_and_then_the_rounds_and_the_time_left(shown):
    display, clock, line = shown
    for clock.now, done in ((0.5, 5), (1.99, 20), (2.0, 20), (2.1, 21), (8.0, 80)):
        line.tell(done, 100)
    # 20 of 100 rounds took 2 s: 80 take 8 s; 80 took 8 s: 20 take 2 s; 2.1 is too soon after 2.0
    assert display == ["cox: 20 of 100 rounds, 8 s left", "cox: 80 of 100 rounds, 2 s left"]


def test_what_a_resumed_study_had_done_before_does_not_shorten_the_time_left(shown):
    display, clock, line = shown
    tell = showing.of_pieces(line)
    tell(Event(91, 100, "a", None))  # 90 were there
    clock.now = 10.0
    tell(Event(95, 100, "b", None))  # five took 10 s, and five are left
    assert display == ["cox: 95 of 100 rounds, 10 s left"]


def test_fits_of_single_sites_count_as_one(shown):
    display, clock, line = shown
    clock.now = 3.0
    showing.of_calls(line, part=1, parts=4)(Progress(9, 4, 10, "step", 1, 1, 0.0))
    assert display == ["cox: 15 of 40 rounds, 5 s left"]


def test_a_number_of_rounds_that_is_unknown_gives_no_time(shown):
    display, clock, line = shown
    clock.now = 3.0
    showing.of_calls(line)(Progress(9, 4, 0, "step", 1, 1, 0.0))
    assert display == ["cox: 5 rounds"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99, "99 s"), (180, "3 min"), (9000, "2.5 h")]
)
def test_times_are_in_the_unit_that_people_say(seconds, words):
    assert showing.lasting(seconds) == words


def test_a_log_has_no_progress_unless_it_is_asked_for():
    assert showing.display(None) is None  # pytest's stderr is a file
    assert showing.display(False) is None
    assert isinstance(showing.display(True), showing.Log)


def test_a_log_has_a_line_at_each_tenth(capsys):
    log = showing.Log()
    for i in range(101):
        log.show(f"{i}", i / 100)
    assert capsys.readouterr().err.split() == [str(i) for i in range(0, 101, 10)]


def test_a_terminal_has_one_line_which_is_gone_at_the_end(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    display = showing.display(None)
    assert isinstance(display, showing.Terminal)
    display.show("[cox]: 20 of 100 rounds, 8 s left", 0.2)
    display.close()
    assert "[cox]: 20 of 100 rounds, 8 s left" in capsys.readouterr().err


def test_a_notebook_has_one_display_that_is_updated_and_emptied(monkeypatch):
    made: list[Any] = []

    class Handle:
        def update(self, data: Any, raw: bool) -> None:
            made.append(data["text/plain"])

    def display(data: Any, raw: bool, display_id: bool) -> Handle:
        made.append(("new", data["text/plain"]))
        return Handle()

    ipython = types.SimpleNamespace(
        get_ipython=lambda: types.SimpleNamespace(kernel=1),
        display=types.SimpleNamespace(display=display),
    )
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    found = showing.display(None)
    assert isinstance(found, showing.Notebook)
    found.show("a", 0.1)
    found.show("b", 0.2)
    found.close()
    assert made == [("new", "a"), "b", ""]
    monkeypatch.setattr(ipython, "get_ipython", lambda: types.SimpleNamespace())  # its shell
    assert showing.display(None) is None


@pytest.mark.parametrize("bound", [{}, {"strategy": "isolated"}, {"strategy": "centralised"}])
def test_a_fit_tells_its_rounds_and_ends_its_line(monkeypatch, bound):
    display, rng = Shown(), np.random.default_rng(0)
    monkeypatch.setattr(showing, "display", lambda asked: display)
    monkeypatch.setattr(showing, "PATIENCE", 0.0)
    monkeypatch.setattr(showing, "APART", 0.0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60)})
    fed = fc.simulate({"a": frame[:30], "b": frame[30:]}, outcome=fc.Continuous("y"))
    fc.fit("ridge", fed, **bound)
    assert display[-1].startswith("ridge: ")
    assert display.closed
