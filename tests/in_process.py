"""The command line within the tests' own process, which is much faster than one of its own."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Sequence

import pytest
import typer.main

from fedcohort.apps import cli

#: Commands are made from the functions once, as in a process of its own.
_made = functools.cache(typer.main.get_command)


def app(words: Sequence[str], *, standalone_mode: bool) -> object:
    """Run the command line's application, without what `main` says of errors."""
    return _made(cli.app)(list(words), standalone_mode=standalone_mode)


def command(*arguments: object) -> tuple[int, str, str]:
    """Run `fedcohort` with arguments; return its exit code, and what it printed on each stream."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fedcohort", *map(str, arguments)])
        patch.setattr(typer.main, "get_command", _made)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                cli.main()
            except SystemExit as left:
                return int(left.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("the command line did not leave")
