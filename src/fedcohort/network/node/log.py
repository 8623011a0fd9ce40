"""A node's log: one line per event with time, level, code and study, and never a value.

    2026-01-31T12:00:00Z info approved 1a2b3c4d5e6f gbsg2-rfs, of lead

Traces, messages' line breaks and the texts of foreign errors are not written: they can show cells
(pandas quotes what it cannot read). The file is rotated before it grows large; old ones are
deleted.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

#: Bytes of one file, and how many old ones are kept.
LARGEST, KEPT = 2_000_000, 5
#: Characters of one line.
LONGEST = 1_000

_numbers = itertools.count()


class _Line(logging.Formatter):
    """A record as one line, without its trace."""

    converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        try:
            text = record.getMessage()
        except Exception:
            text = "unreadable"
        text = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
        at = self.formatTime(record, "%Y-%m-%dT%H:%M:%SZ")
        return f"{at} {record.levelname.lower()} {text[:LONGEST]}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class _File(RotatingFileHandler):
    """The file; where it cannot be written, the node goes on without it."""

    def _open(self) -> Any:
        """Open the file for its owner alone."""
        return open(self.baseFilename, "a", encoding="utf-8", opener=_private)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the line: logging would print it, with its trace."""


def opened(path: Path) -> logging.Logger:
    """Return a log that writes to a file, and nowhere else."""
    log = logging.Logger(f"fedcohort.node.{next(_numbers)}", logging.INFO)
    log.propagate = False
    handler = _File(path, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8", delay=True)
    handler.setFormatter(_Line())
    log.addHandler(handler)
    return log


def closed(log: logging.Logger) -> None:
    """Close a log's file."""
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
