"""What the evidence stands on: wires cut and hold where they say, and no process is left."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from network import parties
from network.parties import Party
from network.wires import DOWN, UP, Wire, until


@pytest.fixture
def echo():
    """Return the address of a server that says everything twice over: `x` → `x`."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                end, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(end,), daemon=True).start()

    def answer(end: socket.socket) -> None:
        with end:
            while blob := end.recv(100):
                end.sendall(blob)

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_held_direction_keeps_what_was_sent_until_it_is_released(echo, direction):
    with Wire(echo) as wire, socket.create_connection(wire.address, timeout=5) as end:
        end.sendall(b"one")
        assert end.recv(10) == b"one"
        wire.hold(direction)
        end.sendall(b"four")
        until(lambda: wire.waiting[direction] == 4, 5, "four bytes wait")
        end.settimeout(0.1)
        with pytest.raises(TimeoutError):
            end.recv(10)
        end.settimeout(5)
        wire.release()
        assert end.recv(10) == b"four"
        assert wire.passed == {UP: 7, DOWN: 7}


def test_a_cut_wire_ends_connections_and_refuses_new_ones_until_it_is_mended(echo):
    with Wire(echo) as wire:
        with socket.create_connection(wire.address, timeout=5) as end:
            end.sendall(b"x")
            assert end.recv(10) == b"x"
            wire.cut()
            assert end.recv(10) == b""
        with socket.create_connection(wire.address, timeout=5) as end:
            assert end.recv(10) == b""
        wire.mend()
        with socket.create_connection(wire.address, timeout=5) as end:
            end.sendall(b"y")
            assert end.recv(10) == b"y"


@pytest.fixture
def talker(tmp_path, monkeypatch):
    """Return a party that writes a line to a file, and says whether it could, all the time."""
    script = tmp_path / "talk.py"
    script.write_text(
        "import time\n"
        "while True:\n"
        "    try:\n"
        "        with open('file', 'a') as f: f.write('x' * 10)\n"
        "        print('wrote', flush=True)\n"
        "    except OSError as error: print('full', flush=True)\n"
        "    time.sleep(0.02)\n"
    )
    monkeypatch.setattr(parties, "PROCESS", script)
    party = Party("talker", [], tmp_path).start()
    yield party
    party.end()


def test_a_party_can_be_left_without_disk_space_and_be_given_it_again(talker):
    talker.says("wrote", 10)
    talker.fill_disk()
    talker.says("full", 10)
    talker.free_disk()
    talker.says("full\n(?s:.*)wrote", 10)


def test_a_stopped_party_does_nothing_until_it_goes_on(talker):
    talker.says("wrote", 10)
    talker.stop()
    time.sleep(0.2)
    said = len(talker.lines)
    time.sleep(0.3)
    assert len(talker.lines) == said
    talker.go_on()
    until(lambda: len(talker.lines) > said, 10, "it talks again")


def test_nothing_of_a_party_survives_its_end(talker):
    talker.says("wrote", 10)
    assert talker.survives
    talker.stop()
    talker.end()
    assert not talker.survives
    assert not Path(f"/proc/{talker.pid}").exists()
