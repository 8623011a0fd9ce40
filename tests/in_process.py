"""The command line within the tests' own process, which is much faster than one of its own."""

from __future__ import annotations

import contextlib
import io
import sys

import pytest

from fedcohort.apps import cli


def command(*arguments: object) -> tuple[int, str, str]:
    """Run `fedcohort` with arguments; return its exit code, and what it printed on each stream."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fedcohort", *map(str, arguments)])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                cli.main()
            except SystemExit as left:
                return int(left.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("the command line did not leave")
