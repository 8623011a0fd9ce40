"""docs/network-tutorial.md is what happens, in as many terminals as it has."""

from __future__ import annotations

import pytest

from doc_pages import DOCS, agree
from network.terminals import Followed

PAGE = (DOCS / "network-tutorial.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Follow the page in a folder of its own."""
    page = Followed(PAGE, tmp_path_factory.mktemp("tutorial"))
    page.follow()
    return page


def test_every_command_prints_what_the_page_shows(followed):
    assert len(followed.met) > 10
    for command, shown, found in followed.met:
        assert agree(shown, found), f"$ {command}\n{found}"


def test_every_terminal_is_used_and_none_is_left_running(followed):
    assert set(followed.terminals) == {"coordinator", "north", "south", "west", "lead"}
    assert not any(party.survives for party in followed.terminals.values())
