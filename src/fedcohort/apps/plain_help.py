r"""Corrections of Typer's help.

Typer 0.20 with Click 8.5 escapes brackets for rich even in plain text ("\[default: …]"), and loses
the help of arguments, because Click's constructor resets it; Click then adds a second section of
arguments.
"""

from __future__ import annotations

from typing import Any

from typer import core


def mend() -> None:
    """Make Typer print plain brackets, and the help of arguments once."""
    core.HAS_RICH = False
    core.TyperArgument.__init__ = _keeping_help(core.TyperArgument.__init__)
    core.TyperCommand.format_arguments = _nothing  # pyright: ignore[reportAttributeAccessIssue]


def _keeping_help(init: Any) -> Any:
    def __init__(self: Any, *, help: str | None = None, **options: Any) -> None:
        init(self, help=help, **options)
        self.help = help

    return __init__


def _nothing(*_: Any) -> None:
    """Write no section of arguments: Typer writes one with the options."""
