"""The scorecard: every row measured by its own command, and the table in docs/security.md.

    python benchmarks/scorecard/run.py [ROW ...]    measure all rows, or those named
    python benchmarks/scorecard/run.py --table      write the table anew, measure nothing

A row is a script beside this one, with ITEM, TARGET and `measure`; it runs as a process of its own.
What it measured goes to results.json, in the order of ROWS; rows that were not asked for keep what
they measured last. The table in the page is made of results.json alone. Exits with 1 where a row
misses its target, does not end in time, or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "security.md"
BEGIN, END = "<!-- scorecard: begin -->", "<!-- scorecard: end -->"

#: All rows, as they stand in the table.
ROWS = (
    "accountant", "noise", "one_run_audit", "secure_sum", "secure_attacks", "decoder_fuzz",
    "bad_updates", "hostile_studies", "large_body", "chaos", "disclosure", "inversion_membership",
    "budget_store", "planted_strings", "load", "fresh_install",
)  # fmt: skip
#: Seconds after which a row counts as failed.
LONGEST = 3600


def measured(row: str) -> dict[str, Any] | None:
    """Run one row; return what it found, None where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "row.json"
        words = [sys.executable, str(HERE / f"{row}.py"), "--json", str(found)]
        try:
            subprocess.run(words, check=False, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            print(f"FAILED: {row}: not done after {LONGEST} s", flush=True)
        if not found.is_file():
            return None
        return {"row": row, **json.loads(found.read_text(encoding="utf-8"))}


def machine() -> str:
    """Return what the rows are measured on, as far as it matters to them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    kind = f"{platform.system()}, {platform.machine()}"
    return f"{kind}, {cores} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as the page shows them."""
    lines = ["| what | target | measured | met | command |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (
            row["item"], row["target"], row["measured"], "yes" if row["met"] else "**no**",
            f"`{row['command']}` ({row['seconds']:.0f} s)",
        )  # fmt: skip
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    on = sorted({(row["on"], row["date"]) for row in rows})
    said = "; ".join(f"{where}, {date}" for where, date in on)
    met = sum(row["met"] for row in rows)
    end = f"{met} of {len(rows)} rows meet their target. Measured on: {said}."
    return "\n".join([*lines, "", end])


def page(text: str, rows: list[dict[str, Any]]) -> str:
    """Return the page with the table of these rows between its two marks.

    Raises
    ------
    ValueError : the page has not both marks.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN} … {END}.")
    return f"{head}{BEGIN}\n{table(rows)}\n{END}{tail}"


def kept() -> list[dict[str, Any]]:
    """Return what was measured last."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []


def main() -> int:
    """Measure, write, return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--table", action="store_true", help="write the table, measure nothing")
    given = parser.parse_args()
    if unknown := sorted(set(given.rows) - set(ROWS)):
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    asked = () if given.table else tuple(given.rows) or ROWS
    new: dict[str, dict[str, Any] | None] = {}
    failed = list[str]()
    for row in asked:
        began = time.perf_counter()
        found = measured(row)
        if found is None:
            failed.append(row)
            print(f"FAILED: {row}, after {time.perf_counter() - began:.0f} s", flush=True)
            new[row] = None  # what it once measured is no result of this version
            continue
        new[row] = {**found, "on": machine(), "date": datetime.now(UTC).strftime("%Y-%m-%d")}
        if not found["met"]:
            failed.append(row)
    known = {row["row"]: row for row in kept()} | new  # others may have measured meanwhile
    rows = [found for row in ROWS if (found := known.get(row))]
    RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print(f"{len(asked) - len(failed)} of {len(asked)} rows meet their target")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
