"""How a text table is written: its encoding, and what stands between its columns.

Encoding    UTF-8, or UTF-16 where a mark or the zero bytes of its letters say so; a file that is no
            UTF-8 after all is read as Windows-1252, which has the letters of Latin-1
Separator   comma, semicolon, tab or bar: the one by which most of the first records, and more than
            half of them, have as many cells as the header; or what a first line "sep=;" says, as
            Excel writes it

Nothing is revealed.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

#: What may stand between columns; the first where several would do.
SEPARATORS = (",", ";", "\t", "|")
#: The encoding of a file that is no UTF-8.
WESTERN = "cp1252"

#: A separator that divides records as it does the header is one if it does so with more of them.
MOST = 0.5

#: Bytes, and records, by which a file is judged.
_HEAD, _RECORDS = 1 << 16, 50
#: Letters of other alphabets aside, every second byte of UTF-16 is zero; so much of them is enough.
_ZEROS = 0.4
_OPENERS: Mapping[str, Any] = {
    ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open,
}  # fmt: skip
#: Suffixes of archives that are not looked into: commas and UTF-8, as they always were.
_CLOSED = (".zip", ".zst", ".tar", ".tgz")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """How a file is written.

    Attributes
    ----------
    separator : between columns.
    encoding : as Python calls it.
    skipped : lines before the header.
    """

    separator: str = ","
    encoding: str = "utf-8"
    skipped: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """What pandas' reader is told."""
        return {"sep": self.separator, "encoding": self.encoding, "skiprows": self.skipped}

    @property
    def western(self) -> Form:
        """The same file, which has turned out to be no UTF-8."""
        return replace(self, encoding=WESTERN)


def form_of(path: Path) -> Form:
    """Return how a file is written, by its first bytes.

    Raises
    ------
    OSError, EOFError : it cannot be read, or is not compressed as its suffix says.
    """
    if path.suffix.lower() in _CLOSED:
        return Form()
    with _OPENERS.get(path.suffix.lower(), Path.open)(path, "rb") as file:
        head = file.read(_HEAD)
    encoding = _encoding(head)
    lines = head.decode(encoding, "replace").splitlines(keepends=True)
    if len(head) == _HEAD:
        del lines[-1]
    first = lines[0].strip() if lines else ""
    if first.lower().startswith("sep=") and len(first) == 5 and first[4] in SEPARATORS[1:]:
        return Form(first[4], encoding, 1)
    return Form(_separator("".join(lines)), encoding)


def first_longer(path: Path, form: Form) -> int:
    """Return the number of the first data row with more cells than the header; 0 if there is none.

    Raises
    ------
    OSError, ValueError : the file cannot be read by Python's own reader.
    """
    opened = _OPENERS.get(path.suffix.lower(), Path.open)(path, "rb")
    with opened, io.TextIOWrapper(opened, form.encoding, newline="") as text:
        rows = csv.reader(text, delimiter=form.separator)
        width = len(next(islice(rows, form.skipped, None), ()))
        return next((i for i, row in enumerate((r for r in rows if r), 1) if len(row) > width), 0)


def _encoding(head: bytes) -> str:
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    if len(head) >= 4:
        for first, name in ((1, "utf-16-le"), (0, "utf-16-be")):
            half = head[first::2]
            if half.count(0) > _ZEROS * len(half) and b"\0" not in head[1 - first :: 2]:
                return name
    return "utf-8"


def _separator(text: str) -> str:
    """Return what stands between the columns of a table's first lines."""
    fits: dict[str, float] = {}
    for mark in SEPARATORS:
        header, *rows = _widths(text, mark) or [0]
        even = sum(width == header for width in rows) / len(rows) if rows else 1.0
        fits[mark] = even if header > 1 and even > MOST else 0.0
    return max(SEPARATORS, key=lambda mark: fits[mark])


def _widths(text: str, mark: str) -> list[int]:
    """Return how many cells each of the first records has, empty lines aside."""
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
        return [len(row) for row in islice((row for row in rows if row), _RECORDS)]
    except csv.Error:
        return []
