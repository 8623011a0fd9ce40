"""What a site keeps on disk."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcohort.protocol.host import Answer
from fedcohort.protocol.wire import Malformed
from fedcohort.runtime.reply_store import StateStore


def answer(value: float) -> Answer:
    return Answer({"x": np.array([value])}, {"u": np.array([[value]]), "n": np.array(3)})


def test_call_reply_and_state_come_back_together(tmp_path):
    store = StateStore(tmp_path / "states")
    store.save("north/ward 3", 4, answer(1.0))
    store.save("north/ward 3", 9, answer(2.0))
    call, kept = StateStore(tmp_path / "states").load("north/ward 3")
    assert call == 9
    assert_array_equal(kept.reply["x"], [2.0])
    assert_array_equal(kept.state["u"], [[2.0]])
    assert kept.state["n"].shape == ()


def test_sites_are_apart_whatever_their_names(tmp_path):
    store = StateStore(tmp_path)
    names = ["a", "A", "../a", "a.state", "", "ä", "a\x1f"]
    for i, name in enumerate(names):
        store.save(name, i, answer(i))
    assert [store.load(name)[0] for name in names] == list(range(len(names)))
    assert all(p.parent == tmp_path for p in tmp_path.rglob("*"))


def test_a_forgotten_site_has_nothing(tmp_path):
    store = StateStore(tmp_path)
    store.save("a", 1, answer(1.0))
    store.forget("a")
    store.forget("a")
    assert store.load("a") is None


def test_a_write_that_is_cut_leaves_the_answer_before_it(tmp_path, monkeypatch):
    store = StateStore(tmp_path)
    store.save("a", 1, answer(1.0))

    def dies(*paths: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", dies)
    with pytest.raises(KeyboardInterrupt):
        store.save("a", 2, answer(2.0))
    assert StateStore(tmp_path).load("a")[0] == 1


def test_a_damaged_file_is_an_error_and_no_state(tmp_path):
    store = StateStore(tmp_path)
    store.save("a", 1, answer(1.0))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Malformed):
        store.load("a")
