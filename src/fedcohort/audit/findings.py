"""Findings of an audit: lines of a table, a verdict in words, and JSON.

    {"audit", "arm", "question", "lines": [{…}], "verdict", "alarm", "settings": {…}}

`audit.json` beside a run's results keeps the latest of each kind for the report.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedcohort.protocol.errors import DataError

#: Where a run's audits are kept.
FILE = "audit.json"


@dataclass(frozen=True)
class Findings:
    """The findings of one audit of one arm.

    Attributes
    ----------
    audit : inversion, membership, epsilon or linkage.
    question : one sentence.
    lines : rows of a table with the same keys: words and numbers, of nobody in particular.
    verdict : their meaning, in one or two sentences.
    alarm : the run, as protected, revealed something.
    settings : of the audit.
    """

    audit: str
    arm: str
    question: str
    lines: list[dict[str, Any]]
    verdict: str
    alarm: bool
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def content(self) -> dict[str, Any]:
        """The findings as JSON-able values."""
        return asdict(self)

    @property
    def json(self) -> str:
        """The findings as text."""
        return json.dumps(self.content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def keep(folder: Path, found: Findings) -> Path:
    """Write the findings into a run's `audit.json`, in place of earlier ones of the same audit.

    Raises
    ------
    DataError : the file there is damaged, or cannot be written.
    """
    path = folder / FILE
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if not isinstance(content, dict):
            raise DataError(f"{path}: this is no file of audits; move it away.")
        text = json.dumps(
            {"schema": 1, **content, found.audit: found.content},
            indent=1, ensure_ascii=False, allow_nan=False,
        )  # fmt: skip
        path.write_text(text + "\n", encoding="utf-8")
    except json.JSONDecodeError:
        raise DataError(f"{path}: this file is damaged; move it away.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot write there ({error.strerror}).") from None
    return path
