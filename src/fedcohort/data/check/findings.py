"""Findings of the checks: a broken rule, its rows, and what to do.

A finding names files, sites, columns, rules, row numbers and counts. It never holds a cell's
value, so it can be shown, written and sent to the table's owner.

Row numbers count data rows: the first one below the header is row 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.words import ROWS_NAMED

ERROR, WARNING = "error", "warning"

#: A finding remembers at most this many row numbers; `n_rows` counts them all.
ROWS_KEPT = 100


@dataclass(frozen=True)
class Finding:
    """One rule that one table breaks.

    Attributes
    ----------
    file : name of the table: a file, or a site; empty for a finding about all sites.
    rule : the rule's name, as in `docs/data-check.md`.
    severity : `ERROR` or `WARNING`; a study does not run on tables with errors.
    what : the broken rule in words, without file, rows and remedy.
    remedy : one or two sentences: what to do.
    site, column : if the finding is about one.
    rows : at most `ROWS_KEPT` row numbers; empty if the rule is not about rows.
    n_rows : number of all such rows.
    """

    file: str
    rule: str
    severity: str
    what: str
    remedy: str
    site: str | None = None
    column: str | None = None
    rows: tuple[int, ...] = ()
    n_rows: int = 0

    @property
    def line(self) -> str:
        """The finding on one line, with the table's name first."""
        named = not self.file or self.what.startswith(self.file)
        return self.text() if named else f"{self.file}: {self.text()}"

    def text(self, offset: int | None = None) -> str:
        """Return the finding without its file.

        Parameters
        ----------
        offset : line in the file − data row; None if the file has no lines.
        """
        at = f" in {self._rows(offset)}" if self.rows else ""
        return f"{self.what}{at}. {self.remedy}"

    def to_dict(self, offset: int | None = None) -> dict[str, Any]:
        """Return the finding as JSON-able values; `lines` are null if `offset` is None."""
        return {
            "file": self.file,
            "site": self.site,
            "column": self.column,
            "rule": self.rule,
            "severity": self.severity,
            "rows": list(self.rows),
            "lines": None if offset is None else [row + offset for row in self.rows],
            "n_rows": self.n_rows,
            "message": self.text(),
        }

    def _rows(self, offset: int | None) -> str:
        shown = self.rows[:ROWS_NAMED]
        text = _listed("row", shown)
        if offset is not None:
            text += f" ({_listed('line', [row + offset for row in shown])})"
        return text + (f", … ({self.n_rows:,} rows)" if self.n_rows > len(shown) else "")


def rows_of(broken: Array, number: Callable[[Array], Array]) -> dict[str, Any]:
    """Return `rows` and `n_rows` of a finding, from the rows (n,) that break a rule.

    number : positions in the table → row numbers.
    """
    at = np.flatnonzero(broken)
    return {"rows": tuple(map(int, number(at[:ROWS_KEPT]))), "n_rows": len(at)}


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that stop a study."""
    return [f for f in findings if f.severity == ERROR]


def _listed(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
