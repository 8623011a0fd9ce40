"""Results of a run as one page that opens offline, and as plain words for the command line.

Every picture is static SVG inside the page, drawn by altair: no script, no font, no image and no
address outside the file, so that the page can be sent, archived and printed, and a browser
without network shows all of it.
"""

from __future__ import annotations

from pathlib import Path

from fedcohort.report.disclosure import plain_ledger
from fedcohort.report.tables import summary_table

__all__ = ["plain_ledger", "summary_table", "write"]


def write(dir: Path, out: Path | None = None) -> Path:
    """Write the report of a run's folder; the same folder gives the same bytes.

    Parameters
    ----------
    out : the file to write, ``report.html`` in the folder by default.

    Returns
    -------
    path : the file written.

    Raises
    ------
    DataError : the folder holds no results, or its ledger is damaged.
    """
    # Altair is slow to import, and the command line needs this package for its tables too.
    from fedcohort.report.page import render
    from fedcohort.report.run import read

    path = out or Path(dir) / "report.html"
    path.write_bytes(render(read(Path(dir))).encode("utf-8", "replace"))
    return path
