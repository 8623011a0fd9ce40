"""The purpose of a step, in words for readers without the code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fedcohort.protocol.step import Step

#: An equation's number: `, eq. (3)`, `, eqs. (1) and (2)`.
_EQUATION = re.compile(r",? eqs?\. \(\d+\)(?:(?:,| and|, and) \(\d+\))*")
#: A shape, with the symbol before it: ` c (p,)`, ` (1, m)`, ` (n, p + 1)`.
_SIZE = r"\w{1,2}(?: ?[+−*-] ?\w{1,2})?"
_SHAPE = re.compile(rf"(?: [^\W\d_])? \((?:{_SIZE},|{_SIZE}(?:, {_SIZE})+)?\)")
#: Arguments that a line names.
_ARGUMENT = re.compile(r",? (?:about|with \w+) `\w+`")


def step_words(steps: Iterable[Step[Any, Any]]) -> dict[str, str]:
    """Return each step's purpose by name: its docstring's first line without notes on the code.

    Steps of a fit of one site alone are left out: no fit over sites asks them.
    """
    return {
        s.name: plain_words((s.run.__doc__ or "").strip().partition("\n")[0])
        for s in steps
        if not s.alone
    }


def plain_words(line: str) -> str:
    """Return a docstring's line without backticks, arguments, shapes and equations' numbers."""
    return _ARGUMENT.sub("", _SHAPE.sub("", _EQUATION.sub("", line))).replace("`", "")
