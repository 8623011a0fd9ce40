"""Form of a text table: its encoding and the separator of its columns.

Encoding    UTF-8; UTF-16 if a byte-order mark or zero bytes indicate it; Windows-1252, which
            covers the letters of Latin-1, if the file turns out not to be UTF-8
Separator   comma, semicolon, tab or bar: the one that divides the most of the first records, and
            more than half, into as many cells as the header; or the one that a first line "sep=;"
            gives, as Excel writes it

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

#: Possible separators; the first is taken if several fit equally.
SEPARATORS = (",", ";", "\t", "|")
#: The encoding of a file that is no UTF-8.
WESTERN = "cp1252"

#: A separator must divide more than this share of records into as many cells as the header.
MOST = 0.5

#: Bytes and records that are looked at to determine the form.
_HEAD, _RECORDS = 1 << 16, 50
#: In UTF-16, every second byte of Latin letters is zero; this share of zeros is enough.
_ZEROS = 0.4
_OPENERS: Mapping[str, Any] = {
    ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open,
}  # fmt: skip
#: Suffixes of archives that are not opened here; commas and UTF-8 are assumed.
_CLOSED = (".zip", ".zst", ".tar", ".tgz")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """Form of a file.

    Attributes
    ----------
    separator : between columns.
    encoding : Python's name of it.
    skipped : lines before the header.
    """

    separator: str = ","
    encoding: str = "utf-8"
    skipped: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """Options for pandas' reader."""
        return {"sep": self.separator, "encoding": self.encoding, "skiprows": self.skipped}

    @property
    def western(self) -> Form:
        """The form with the encoding Windows-1252, for a file that is not UTF-8."""
        return replace(self, encoding=WESTERN)


def form_of(path: Path) -> Form:
    """Return the form of a file, from its first bytes.

    Raises
    ------
    OSError, EOFError : the file cannot be read, or is not compressed as its suffix says.
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
    OSError, ValueError : Python's CSV reader cannot read the file.
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
    fits: dict[str, float] = {}
    for mark in SEPARATORS:
        header, *rows = _widths(text, mark) or [0]
        even = sum(width == header for width in rows) / len(rows) if rows else 1.0
        fits[mark] = even if header > 1 and even > MOST else 0.0
    return max(SEPARATORS, key=lambda mark: fits[mark])


def _widths(text: str, mark: str) -> list[int]:
    """Return the number of cells of each of the first records, without empty lines."""
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
        return [len(row) for row in islice((row for row in rows if row), _RECORDS)]
    except csv.Error:
        return []
