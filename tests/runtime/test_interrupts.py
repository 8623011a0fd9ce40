"""No interrupt is lost: not one that a callback drops, and none while a worker starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import weakref

import pytest

from command_line import interruptible
from fedcohort.runtime import interrupts


class Thing:
    """Something that can be referred to weakly."""


def interrupt(*_: object) -> int:
    signal.raise_signal(signal.SIGINT)
    return 0


def in_a_weak_references_callback() -> None:
    thing = Thing()
    ref = weakref.ref(thing, interrupt)
    del thing
    assert ref() is None


def in_a_finaliser() -> None:
    class Dies:
        def __del__(self) -> None:
            interrupt()

    Dies()


def in_a_callback_of_ctypes() -> None:
    ctypes.CFUNCTYPE(ctypes.c_int)(interrupt)()


def in_code_that_catches_everything() -> None:
    with contextlib.suppress(BaseException):
        interrupt()


def in_the_end_of_a_generator() -> None:
    def rows():
        try:
            yield 1
        finally:
            interrupt()

    given = rows()
    next(given)
    del given


DROPPED = (
    in_a_weak_references_callback, in_a_finaliser, in_a_callback_of_ctypes,
    in_code_that_catches_everything, in_the_end_of_a_generator,
)  # fmt: skip


@pytest.fixture(autouse=True)
def default():
    """Pytest may have been started with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("where", DROPPED, ids=lambda f: f.__name__)
def test_an_interrupt_that_is_dropped_comes_again_and_says_nothing(where, capfd):
    began, went_on = time.monotonic(), False
    with pytest.raises(KeyboardInterrupt), interrupts.kept():
        where()
        went_on = True
        time.sleep(20)
    assert went_on, "it was not dropped: the case tests nothing"
    assert time.monotonic() - began < 10
    assert capfd.readouterr().err == ""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_was_heard_does_not_come_again():
    for _ in range(3):
        with contextlib.suppress(KeyboardInterrupt), interrupts.kept():
            interrupt()
    time.sleep(3 * interrupts.AGAIN)


def test_what_else_a_callback_drops_is_told_as_ever(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))
    with interrupts.kept():
        ref = weakref.ref(Thing(), lambda _: 1 / 0)
    assert ref() is None
    assert told == [ZeroDivisionError]


def test_a_program_that_was_started_to_ignore_interrupts_ignores_them():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts.kept():
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_process_that_starts_meanwhile_waits_with_interrupts_until_it_ignores_them():
    code = "import time; print(1, flush=True); time.sleep(30)"
    with interrupts.later():
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, preexec_fn=interruptible
        )
    assert child.stdout is not None
    child.stdout.readline()
    os.kill(child.pid, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(timeout=0.2)
    child.kill()
    child.communicate()
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT}
