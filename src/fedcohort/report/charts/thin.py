"""The rule that keeps a page small: files to take away go first, the largest before the others."""

from __future__ import annotations

import re

#: Bytes that a page may have.
LIMIT = 3_000_000

_FILE = re.compile(r'<a class="get" download="[^"]*" href="data:[^"]*" title="[^"]*">(SVG|CSV)</a>')


def thinned(page: str, limit: int = LIMIT) -> tuple[str, int]:
    """Return a page of at most so many bytes, and how many of its files were left out for that.

    Pictures go before data, the largest first; what the page shows stays, so that one which is
    too large without any file remains too large.
    """
    excess = len(page.encode("utf-8", "replace")) - limit
    files = sorted(_FILE.finditer(page), key=lambda m: (m[1] != "SVG", -len(m[0])))
    gone: set[int] = set()
    for m in files:
        if excess <= 0:
            break
        gone.add(m.start())
        excess -= len(m[0])
    return _FILE.sub(lambda m: "" if m.start() in gone else m[0], page), len(gone)
