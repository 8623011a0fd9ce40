"""Follow a page whose commands run side by side, each in a terminal of its own.

    ```console            typed in a terminal where commands end; see `doc_pages`
    ```console NAME       typed in terminal NAME, where it keeps running; a later block of NAME
                          without a command shows what is printed there next

A command that looks at what other terminals are at is typed again for a while, until it prints what
the page shows. What a running terminal printed is compared at the end.

`python tests/network/terminals.py docs/PAGE.md` writes what the commands print now.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest

from doc_pages import agree, blocks, said, steps
from network.parties import Party
from network.wires import free_port

#: Seconds until what a page shows must be there.
PATIENCE = 60.0
#: The port that pages use.
PORT = "8102"
_HASH = re.compile(r"\b[0-9a-f]{12}\b")


class Followed:
    """A page that is followed in a folder.

    Attributes
    ----------
    met : (command, what the page shows, what was printed) of commands that ended, then of
        terminals. The page's port and the hash of its study stand in place of this run's: a hash
        is another with each version of the software.
    """

    def __init__(self, page: str, folder: Path):
        self.folder = folder
        self.port = str(free_port())
        self.terminals: dict[str, Party] = {}
        self.shown: dict[str, list[str]] = {}
        self.met: list[tuple[str, str, str]] = []
        self._page = page
        found = _HASH.search(page)
        self._hash = found[0] if found else ""
        self._own = ""

    def follow(self) -> None:
        """Write the page's files, type its commands, end its terminals."""
        try:
            for kind, name, body in blocks(self._page):
                if kind == "console" and name:
                    self._terminal(name, body)
                elif kind == "console":
                    for command, shown in steps(body):
                        self.met.append((command, shown, self._typed(command, shown)))
                elif name:
                    path = self.folder / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(self._mine(body), encoding="utf-8")
            for name, party in self.terminals.items():
                self._await(lambda p=party, n=name: agree(self._wanted(n), self._theirs(p.text)))
                self.met.append(
                    (" ".join(party.words), self._wanted(name), self._theirs(party.text))
                )
        finally:
            for party in self.terminals.values():
                party.end()

    def _terminal(self, name: str, body: str) -> None:
        if body.startswith("$ "):
            ((command, shown),) = steps(body)
            words = shlex.split(self._mine(command))
            assert words[0] == "fedcohort", command
            self.terminals[name] = Party(name, words[1:], self.folder).start(COLUMNS="80")
            self.shown[name] = [shown]
        else:
            self.shown[name].append(body)
        party = self.terminals[name]

        def printed() -> bool:
            if self._hash in self._wanted(name):
                self._learn(party.text)
            return agree(self._wanted(name), self._theirs(party.text))

        self._await(printed)

    def _wanted(self, name: str) -> str:
        """Return what a terminal must have printed so far."""
        return "…".join(self.shown[name]) + "…"

    def _typed(self, command: str, shown: str) -> str:
        found = ""

        def once() -> bool:
            nonlocal found
            with contextlib.chdir(self.folder), pytest.MonkeyPatch.context() as patch:
                patch.delenv("COLUMNS", raising=False)  # no terminal: pages are as wide as they go
                printed = said(self._mine(command))
            if command.startswith("fedcohort node studies"):
                self._learn(printed)
            found = self._theirs(printed)
            return agree(shown, found)

        looks = command.startswith(("fedcohort node studies", "fedcohort coordinator status"))
        self._await(once) if looks else once()
        return found

    def _learn(self, printed: str) -> None:
        """Note the hash of this run's study where it is printed first."""
        own = _HASH.search(printed)
        self._own = self._own or (own[0] if own else "")

    def _await(self, true: object) -> None:
        end = time.monotonic() + PATIENCE
        assert callable(true)
        while not true() and time.monotonic() < end:
            time.sleep(0.3)

    def _mine(self, text: str) -> str:
        """Return a page's text with this run's port and the study's hash."""
        text = text.replace(f":{PORT}", f":{self.port}")
        return text.replace(self._hash, self._own) if self._own else text

    def _theirs(self, text: str) -> str:
        """Return what was printed with the page's port and hash."""
        text = text.replace(f":{self.port}", f":{PORT}")
        return text.replace(self._own, self._hash) if self._own else text
