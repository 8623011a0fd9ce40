"""How many A4 pages a report prints on, as it stands and with all that is folded opened.

    python benchmarks/consortium/pages.py FOLDER [--most 18]

FOLDER is that of a finished run. Needs Chromium on the PATH. Leaves with 1 where the report takes
more than `--most` pages, or more than half of those that it takes with everything open.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def pages(page: Path) -> int:
    """Return how many pages Chromium prints a page on."""
    program = next(p for n in ("chromium", "google-chrome") if (p := shutil.which(n)))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.pdf"
        subprocess.run(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", f"--print-to-pdf={out}",
             "--no-pdf-header-footer", page.resolve().as_uri()],
            check=True, capture_output=True, timeout=300,
        )  # fmt: skip
        return len(re.findall(rb"/Type\s*/Page\b", out.read_bytes()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=18)
    asked = parser.parse_args()
    report = asked.folder / "report.html"
    with tempfile.TemporaryDirectory() as folder:
        opened = Path(folder) / "open.html"
        text = report.read_text(encoding="utf-8")
        opened.write_text(text.replace("<details>", "<details open>"), encoding="utf-8")
        found = {"as it stands": pages(report), "all open": pages(opened)}
    for what, n in found.items():
        print(f"{what:14} {n:4} pages")
    kept = found["as it stands"] <= min(asked.most, found["all open"] / 2)
    print("accepted" if kept else f"missed: at most {asked.most}, and half of all open")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
