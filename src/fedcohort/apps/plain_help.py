r"""Mends of the help that Typer prints, until it does so itself.

Two things are wrong with Typer 0.20 beside Click 8.5: it escapes brackets for rich even where the
help is plain text, so that "[default: …]" reads "\[default: …]"; and the help of an argument is
lost, because Click's own constructor resets it. Click then has a section of arguments besides
Typer's.
"""

from __future__ import annotations

from typing import Any

from typer import core


def mend() -> None:
    """Let Typer print plain brackets, and once what is said of arguments."""
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
