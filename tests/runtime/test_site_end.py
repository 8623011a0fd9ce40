"""A site's end: bytes in, bytes out; nothing raises, nothing of a record leaves."""

from __future__ import annotations

import json
import sqlite3
import struct
import threading
import time
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pandas as pd
import pytest

import wired
from fedcohort.data.encode import Encoding
from fedcohort.data.variable import Variable
from fedcohort.protocol import (
    DataError,
    FedcohortError,
    InputError,
    JournalMismatch,
    Keep,
    NothingToLearn,
    Refused,
    Site,
    SiteFailed,
    VerbRefused,
    gathered,
    wire,
)
from fedcohort.protocol.arguments import Parcel
from fedcohort.protocol.host import Host
from fedcohort.protocol.views import mark_of
from fedcohort.protocol.wire import decode, encode
from fedcohort.runtime.calls import Request
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.limits import Limits
from fedcohort.runtime.site.site_end import SESSIONS, Left, SiteEnd
from loopback import LoopbackLine
from toys import Draw
from wired import STEPS, Nodes, meta_of

SECRET = "Jane Doe 4711"


def request(step: str = "walk", call: int = 0, base: int | None = None, **options: Any) -> bytes:
    given = {"by": np.zeros(2)} if step in ("walk", "stride") else {}
    asked: dict[str, Any] = {
        "run": "r", "session": "s", "history": "h", "call": call, "base": base, "step": step,
        "verb": "sum" if step == "stride" else "gather", "view": None, "parcel": Parcel.of(given),
    }  # fmt: skip
    return Request(**{**asked, **options}).to_bytes()


def refused(body: bytes) -> tuple[str, str]:
    arrays, meta = decode(body)
    assert meta["kind"] == "error"
    assert not arrays
    assert set(meta) <= {"kind", "code", "text", "reason"}
    return meta.get("reason", meta["code"]), meta["text"]


@pytest.fixture
def nodes(tmp_path):
    made = Nodes(tmp_path, {"a": np.zeros((2, 2))}, STEPS)
    yield made
    made.close()


# states -------------------------------------------------------------------------------------


def test_a_repeated_request_is_answered_with_the_same_bytes_and_not_applied_twice(nodes):
    first = nodes.ends["a"].handle(request())
    again = nodes.ends["a"].handle(request())
    nodes.start("a")
    later = nodes.ends["a"].handle(request())
    assert first == again == later
    assert nodes.ends["a"].handle(request(call=1, base=0)) == nodes.ends["a"].handle(
        request(call=1, base=0)
    )


def test_a_call_goes_on_from_its_base_and_not_from_what_came_after(nodes):
    end = nodes.ends["a"]
    end.handle(request())
    expected = decode(end.handle(request(call=2, base=0)))[0]["at"]
    end.handle(request("stride", call=1, base=0))
    end.handle(request("stride", call=2, base=1))
    nodes.start("a")
    assert "JournalMismatch" in refused(nodes.ends["a"].handle(request(call=2, base=0)))[0]
    nodes.answers["a"].forget("r")
    nodes.start("a")
    end = nodes.ends["a"]
    end.handle(request())
    end.handle(request("stride", call=1, base=0))
    assert decode(end.handle(request(call=2, base=0)))[0]["at"].tobytes() == expected.tobytes()


def test_looking_keeps_nothing_and_forgets_nothing(nodes):
    end = nodes.ends["a"]
    end.handle(request())
    end.handle(request("look", call=1, base=0))
    end.handle(request("look", call=7))
    assert nodes.answers["a"].calls("r", "s", "h") == {0: Request.read(request()).digest()}


def test_another_history_begins_without_a_state(nodes):
    end = nodes.ends["a"]
    first = decode(end.handle(request()))[0]["at"]
    end.handle(request(call=1, base=0))
    assert decode(end.handle(request(history="g")))[0]["at"].tobytes() == first.tobytes()
    assert refused(end.handle(request(call=1, base=0, history="f")))[0] == "JournalMismatch"


def test_the_same_call_asked_otherwise_is_another_call(nodes):
    end = nodes.ends["a"]
    one = decode(end.handle(request()))[0]["at"]
    other = decode(end.handle(request(parcel=Parcel.of({"by": np.ones(2)}))))[0]["at"]
    np.testing.assert_array_equal(other, one + 1)


def test_a_store_that_fails_gives_a_coded_error_and_leaves_the_state_as_it_was(nodes):
    end, answers = nodes.ends["a"], nodes.answers["a"]
    end.handle(request())
    before = answers.calls("r", "s", "h")
    answers._db.execute("PRAGMA query_only = ON")
    code, text = refused(end.handle(request(call=1, base=0)))
    assert code == "disk"
    assert "could not keep its answer to step 'walk' on its disk (OperationalError)" in text
    assert answers.calls("r", "s", "h") == before
    assert len(nodes.log) == 1
    answers._db.execute("PRAGMA query_only = OFF")
    reply = end.handle(request(call=1, base=0))
    nodes.start("a")
    assert nodes.ends["a"].handle(request(call=1, base=0)) == reply
    answers = nodes.answers["a"]
    answers._db.execute("PRAGMA max_page_count = 1")
    wide = Parcel.of({"by": np.zeros((100_000, 2))})
    assert refused(nodes.ends["a"].handle(request(call=2, base=1, parcel=wide)))[0] == "disk"
    assert 1 in answers.calls("r", "s", "h")


def test_an_error_of_a_file_that_is_no_store_is_not_called_one_of_the_disk(tmp_path):
    answers = Answers(tmp_path / "answers.sqlite")
    for error in (OSError(5, SECRET), sqlite3.OperationalError(f"no such column: {SECRET}")):

        def open_session(run: str, session: str, error: Exception = error) -> Host:
            raise error

        code, text = refused(SiteEnd("a", open_session, answers).handle(request()))
        assert code == "SiteFailed"
        assert SECRET not in text
    answers.close()


@pytest.mark.parametrize("column", ["reply", "state"])
def test_what_is_damaged_on_the_disk_is_as_if_it_were_lost(nodes, column):
    end, answers = nodes.ends["a"], nodes.answers["a"]
    first = end.handle(request())
    answers._db.execute(f"UPDATE answers SET {column} = zeroblob(length({column}))")
    nodes.start("a")
    end = nodes.ends["a"]
    code, text = refused(end.handle(request(call=1, base=0)))
    assert code == "JournalMismatch"
    assert "no sound state of call 0" in text
    assert end.handle(request()) == first
    decode(end.handle(request(call=1, base=0)))


def test_a_reply_that_cannot_be_noted_does_not_leave(tmp_path):
    noted: list[Left] = []

    def note(left: Left) -> None:
        if full:
            raise OSError(28, f"no space for {SECRET}")
        noted.append(left)

    nodes = Nodes(tmp_path, {"a": np.zeros((2, 2))}, STEPS, note=note)
    full = True
    assert refused(nodes.ends["a"].handle(request()))[0] == "disk"
    assert not nodes.answers["a"].calls("r", "s", "h")
    full = False
    for _ in range(2):
        decode(nodes.ends["a"].handle(request(round=3)))
    fields = {"at": {"shape": [2], "dtype": "float64", "bytes": 16}}
    assert noted == [Left("r", "s", 0, "walk", "gather", fields, 3)]
    assert SECRET not in "".join(nodes.log)
    nodes.close()


# sessions -----------------------------------------------------------------------------------


def test_sessions_are_opened_once_held_for_a_while_and_closed(tmp_path):
    opened: list[tuple[str, str]] = []

    def open_session(run: str, session: str) -> Host:
        opened.append((run, session))
        if session == "secret":
            raise Refused("approval", "study r waits for the steward of site 'a'.")
        if session == "broken":
            raise DataError(f"the file of {SECRET} is gone")
        return Host("a", None, STEPS)

    answers, log = Answers(tmp_path / "answers"), list[str]()
    end = SiteEnd("a", open_session, answers, log=log.append)
    for name in ("x", "x", "y"):
        decode(end.handle(request(session=name)))
    assert opened == [("r", "x"), ("r", "y")]
    for i in range(SESSIONS):
        decode(end.handle(request("look", session=str(i))))
    end.handle(request(call=1, base=0, session="x"))
    assert opened.count(("r", "x")) == 2
    end.close("r", "x")
    code, _ = refused(end.handle(request(call=2, base=1, session="x")))
    assert code == "JournalMismatch"
    assert refused(end.handle(request(session="secret"))) == (
        "approval", "study r waits for the steward of site 'a'.",
    )  # fmt: skip
    code, text = refused(end.handle(request(session="broken")))
    assert code == "DataError"
    assert SECRET not in text + "".join(log)
    answers.close()


def test_the_calls_of_a_session_take_turns_and_a_repeated_one_waits_for_its_answer(tmp_path):
    inside: list[int] = []

    @gathered
    def slow(site: Site[Any, wired.Place | None]) -> Keep[wired.Place, wired.Place]:
        inside.append(1)
        assert len(inside) == 1
        time.sleep(0.05)
        inside.pop()
        return Keep(wired.Place(site.rng.random(2)), wired.Place(np.zeros(2)))

    nodes = Nodes(tmp_path, {"a": None}, [slow])
    replies: list[bytes] = []
    ask = lambda: replies.append(nodes.ends["a"].handle(request("slow")))  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(replies)) == 1
    assert decode(replies[0])[1]["kind"] == "reply"
    nodes.close()


# rules --------------------------------------------------------------------------------------


@gathered
def count(site: Site[Any, None], *, min_cell: float, n: int = 1) -> Draw:
    return Draw(np.zeros(n))


def test_an_argument_min_cell_below_the_nodes_is_refused(tmp_path):
    nodes = Nodes(tmp_path, {"a": None}, [count], limits=Limits(min_cell=5))

    def ask(value: Any) -> bytes:
        parcel = Parcel.of({"min_cell": value})
        return nodes.ends["a"].handle(request("count", parcel=parcel))

    for good in (5, 6, 5.0):
        assert decode(ask(good))[1]["kind"] == "reply"
    for bad in (4, 0, -1, float("nan"), True, "9", None, [9], np.array(9)):
        code, text = refused(ask(bad))
        assert code == "min_cell"
        assert "tells of no cell below 5 patients" in text
    nodes.close()


def test_a_reply_of_too_many_numbers_or_bytes_is_refused(tmp_path):
    for limits, code in (
        (Limits(max_numbers=10), "max_parameters"),
        (Limits(reply_bytes=400), "oversized"),
    ):
        nodes = Nodes(tmp_path / code, {"a": None}, [count], limits=limits)
        for n, allowed in ((10, True), (1000, False)):
            parcel = Parcel.of({"min_cell": 1, "n": n})
            body = nodes.ends["a"].handle(request("count", parcel=parcel))
            assert (decode(body)[1]["kind"] == "reply") is allowed
            assert allowed or refused(body)[0] == code
        nodes.close()


def test_a_request_beyond_the_limit_is_refused_before_it_is_read(tmp_path):
    nodes = Nodes(tmp_path, {"a": np.zeros(2)}, STEPS, limits=Limits(request_bytes=1000))
    assert decode(nodes.ends["a"].handle(request()))[1]["kind"] == "reply"
    code, text = refused(nodes.ends["a"].handle(bytes(1001)))
    assert (code, "1001 bytes; the limit is 1000" in text) == ("malformed", True)
    nodes.close()


def test_an_unknown_step_a_wrong_verb_and_an_unknown_view_are_refused_by_rule(nodes):
    for body, code in (
        (request("steal"), "VerbRefused"),
        (request("stride", verb="gather"), "VerbRefused"),
    ):
        assert refused(nodes.ends["a"].handle(body))[0] == code
    assert not nodes.answers["a"]._all("SELECT run FROM answers", ())


# what is not a request ------------------------------------------------------------------------

GOOD = {"a call": request(), "one with a base": request("look", 3, 1), "a sum": request("stride")}


def changed(**meta: Any) -> bytes:
    """Return a request whose meta is otherwise; a key of None is left out."""
    arrays, before = decode(request())
    return encode(arrays, {k: v for k, v in {**before, **meta}.items() if v != "leave out"})


VIEW = {"kind": "encoding", "mark": "0" * 32}
ODD = {
    "another kind": changed(kind="offer"),
    "no run": changed(run="leave out"),
    "more": changed(more=1),
    "a run that is no text": changed(run=3),
    "a long session": changed(session="s" * 1001),
    "a call below 0": changed(call=-1),
    "a huge call": changed(call=10**300),
    "a call that is a flag": changed(call=True),
    "a base that is later": changed(base=0),
    "a base that is text": changed(base="0"),
    "a step that is no text": changed(step=["walk"]),
    "a verb that there is not": changed(verb="take"),
    "a view that is text": changed(view="design"),
    "a view without a mark": changed(view={"kind": "design"}),
    "a view with more": changed(view={**VIEW, "code": "1"}),
    "a view whose text has another mark": changed(view={**VIEW, "spec": "{}"}),
    "a tree that is a list": changed(tree=[]),
    "an array that is missing": changed(tree={"by": {"array": 1}}),
    "an array twice": changed(tree={"by": {"array": 0}, "to": {"array": 0}}),
    "an array that is left over": changed(tree={}),
    "a place that is a flag": changed(tree={"by": {"array": False}}),
    "two kinds of node": changed(tree={"by": {"array": 0, "list": []}}),
    "an unknown node": changed(tree={"by": {"array": 0}, "f": {"call": "os.system"}}),
    "a bare list": changed(tree={"by": {"array": 0}, "f": [1]}),
    "arrays that are not numbered": encode({"x": np.zeros(2)}, decode(request())[1]),
    "a reply": encode({}, {"kind": "reply", "history": "h", "call": 0}),
    "nothing": b"",
    "text": b"GET / HTTP/1.1",
}


def deep(n: int) -> Any:
    tree: Any = 1
    for _ in range(n):
        tree = {"list": [tree]}
    return {"by": {"array": 0}, "f": tree}


ODD["too deep"] = changed(tree=deep(33))


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_what_is_not_exactly_a_request_is_refused_as_malformed(nodes, body):
    code, text = refused(nodes.ends["a"].handle(body))
    assert code == "malformed"
    assert "site 'a' was sent" in text
    assert not nodes.answers["a"]._all("SELECT run FROM answers", ())


def test_an_unknown_view_is_asked_for_or_refused(nodes):
    assert refused(nodes.ends["a"].handle(changed(view=VIEW)))[0] == "view"
    kind = "unknown for tests"
    sent = {"kind": kind, "spec": SECRET, "mark": mark_of(kind, SECRET)}
    code, text = refused(nodes.ends["a"].handle(changed(view=sent)))
    assert (code, SECRET in text) == ("view", False)


def resealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


def raw(header: str, payload: bytes = b"") -> bytes:
    text = header.encode()
    return resealed(struct.pack("<Q", len(text)) + text + payload)


BOMBS = {
    "a declared terabyte": raw('{"meta":{},"arrays":[["0","f8",[137438953472]]]}'),
    "an empty array of a huge axis": raw('{"meta":{},"arrays":[["0","f8",[0,9007199254740993]]]}'),
    "many axes": raw(f'{{"meta":{{}},"arrays":[["0","f8",{[1] * 100_000}]]}}'),
    "huge numbers": raw(f'{{"meta":{{}},"arrays":[["0","f8",[{10**4000}]]]}}'),
    "many arrays": raw(
        json.dumps({"meta": {}, "arrays": [[str(i), "f8", [0]] for i in range(70_000)]})
    ),
    "nested lists": raw("[" * 100_000),
    "nested maps": raw('{"a":' * 100_000),
    "a header of a declared terabyte": resealed(struct.pack("<Q", 2**40) + b"{}"),
    "a negative header": resealed(struct.pack("<q", -1) + b"{}"),
}  # fmt: skip


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_what_declares_more_than_it_holds_takes_no_memory_for_it(nodes, body):
    tracemalloc.start()
    began = time.process_time()
    code, _ = refused(nodes.ends["a"].handle(body))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert code == "malformed"
    assert peak < 2**20 + 30 * len(body)
    assert time.process_time() - began < 5.0


def test_a_header_beyond_its_limit_is_not_parsed(nodes, monkeypatch):
    monkeypatch.setattr(wire, "HEADER", 300)
    body = raw(json.dumps({"meta": {}, "arrays": [], "x": "x" * 300}))
    assert "header beyond the limit" in refused(nodes.ends["a"].handle(body))[1]


VALUES: list[Any] = [
    None, True, -1, 0, 2**63, 1e400, float("nan"), "", "x" * 2000, "\x00", "\u202e", [], [[]], {},
    {"a": 1}, {"array": 0}, {"array": -1}, {"list": [{"array": 0}]}, {"map": {"a": {"tuple": [1]}}},
]  # fmt: skip


def mutant(rng: np.random.Generator) -> bytes:
    """Return bytes that are nearly a request: noise, changed bytes, or a changed header."""
    body = list(GOOD.values())[int(rng.integers(len(GOOD)))]
    style = rng.integers(4)
    if style == 0:
        return rng.bytes(int(rng.integers(0, 200)))
    if style == 1:
        out = bytearray(body[:-4])
        for _ in range(int(rng.integers(1, 6))):
            at = int(rng.integers(0, len(out)))
            out[at : at + int(rng.integers(0, 4))] = rng.bytes(int(rng.integers(0, 4)))
        return resealed(bytes(out))
    (length,) = struct.unpack("<Q", body[:8])
    header, payload = json.loads(body[8 : 8 + length]), body[8 + length : -4]
    value = VALUES[int(rng.integers(len(VALUES)))]
    if style == 2:
        keys = [*header["meta"], "more"]
        header["meta"][keys[int(rng.integers(len(keys)))]] = value
    else:
        place = int(rng.integers(3))
        header["arrays"] = header["arrays"] or [["0", "f8", [2]]]
        header["arrays"][0][place] = [value] if rng.random() < 0.5 else value
    return raw(json.dumps(header), payload)


@pytest.mark.parametrize("bodies", [1500, 6000])
def test_whatever_comes_the_answer_is_a_reply_or_a_refusal_and_states_stay_sound(nodes, bodies):
    rng = np.random.default_rng(1)
    first = nodes.ends["a"].handle(request())
    kinds: dict[str, int] = {}
    tracemalloc.start()
    for _ in range(bodies):
        body = nodes.ends["a"].handle(mutant(rng))
        meta = decode(body)[1]
        kind = meta.get("reason", meta.get("code", "reply"))
        kinds[kind] = kinds.get(kind, 0) + 1
        assert meta["kind"] in ("reply", "error")
        assert len(body) < 10_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert {"reply", "malformed", "VerbRefused", "JournalMismatch"} <= set(kinds)
    assert peak < 32 * 2**20
    assert nodes.ends["a"].handle(request()) == first
    assert all(line.isprintable() for line in nodes.log)


# nothing of a record leaves ---------------------------------------------------------------------


class Odd(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError(SECRET)


class OwnDataError(DataError):
    """An error of a third party."""


def raises_from(error: Exception) -> Exception:
    error.__cause__ = DataError(SECRET)
    return error


ERRORS: list[Exception] = [
    ValueError(SECRET), KeyError(SECRET), Odd(), OwnDataError(SECRET), DataError(SECRET),
    NothingToLearn(SECRET), InputError(SECRET), SiteFailed(SECRET), VerbRefused(SECRET),
    JournalMismatch(SECRET), Refused(SECRET, SECRET), FedcohortError(SECRET), OSError(28, SECRET),
    raises_from(ValueError(SECRET)), raises_from(SiteFailed(SECRET)), MemoryError(SECRET),
    ExceptionGroup(SECRET, [ValueError(SECRET)]),
    UnicodeDecodeError("utf8", SECRET.encode(), 0, 1, SECRET),
]  # fmt: skip


@gathered
def fails(site: Site[Any, None], *, which: int) -> Draw:
    raise ERRORS[which]


@gathered
def text(site: Site[Any, None]) -> Draw:
    return Draw(np.array([SECRET]))


@gathered
def things(site: Site[Any, None]) -> Draw:
    return Draw(np.array([SECRET, 1], object))


@gathered
def remembers_text(site: Site[Any, None]) -> Keep[Draw, Draw]:
    return Keep(Draw(np.zeros(1)), Draw(np.array([SECRET])))


@gathered
def reads(site: Site[Any, None]) -> Draw:
    return Draw(np.zeros(1) + len(site.data.numbers))


def test_no_text_of_an_error_leaves_or_is_logged(tmp_path):
    frame = pd.DataFrame({"age": [SECRET, "3"], "sex": [SECRET, "m"], SECRET: [1, 2]})
    nodes = Nodes(tmp_path, {"a": frame}, [fails, text, things, remembers_text, reads])
    fed = remote(nodes.line, "r", "s")
    said: list[str] = []

    def ask(ask_one: Any) -> None:
        with pytest.raises(FedcohortError) as caught:
            ask_one()
        said.append(str(caught.value))

    for which, error in enumerate(ERRORS):
        ask(lambda which=which: fed.gather(fails, which=which))
        assert "'a'" in said[-1]
        assert "SiteFailed" in said[-1] or type(error).__name__ in said[-1]
    for step in (text, things, remembers_text):
        ask(lambda step=step: fed.gather(step))
    for variable in (
        Variable("age"), Variable("sex", "category", ("f", "m")), Variable("age", "binary"),
        Variable("age", "date", since="2000-01-01", unit="days"), Variable("height"),
    ):  # fmt: skip
        ask(lambda v=variable: fed.through(Encoding((v,))).gather(reads))
    assert len(nodes.log) >= len(said)
    everything = b"\n".join(nodes.left).decode("latin1") + "\n".join([*said, *nodes.log])
    for part in (SECRET, "Jane", "4711", json.dumps(SECRET)):
        assert part not in everything


def test_a_refusal_and_the_sites_log_share_a_number_and_the_log_says_where(tmp_path):
    nodes = Nodes(tmp_path, {"a": pd.DataFrame({"sex": ["x"]})}, [fails, reads])
    _, said = refused(nodes.ends["a"].handle(request("fails", parcel=Parcel.of({"which": 0}))))
    number = nodes.log[0].split()[0]
    assert number in said
    assert "ValueError in fails, line" in nodes.log[0]
    assert "test_site_end.py" in nodes.log[0]
    encoding = Encoding((Variable("height"),))
    fed = remote(nodes.line, "r", "s").through(encoding)
    with pytest.raises(DataError):
        fed.gather(reads)
    assert "there is no column 'height'" in nodes.log[-1]
    nodes.close()


def test_a_log_that_fails_stops_no_answer(tmp_path):
    def full(line: str) -> None:
        raise OSError(28, "full")

    answers = Answers(tmp_path / "answers")
    end = SiteEnd("a", lambda run, session: Host("a", None, STEPS), answers, log=full)
    assert refused(end.handle(b""))[0] == "malformed"
    answers.close()


def test_the_line_needs_nothing_but_the_sites_end(tmp_path):
    answers = Answers(tmp_path / "answers")
    end = SiteEnd("a", lambda run, session: Host("a", None, STEPS), answers)
    told = wired.journey(remote(LoopbackLine({"a": end.handle}), "r", "s"))
    assert told == wired.reference({"a": None})[0]
    assert meta_of(request())["kind"] == "call"
    answers.close()
