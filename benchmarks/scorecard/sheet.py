"""One row of the scorecard: what is measured, against which target, and by which command.

    python benchmarks/scorecard/noise.py [--json FILE]

A row's script ends with `main(__file__, ITEM, TARGET, measure)`. It prints one line, and exits with
1 where the target is not met.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


def main(file: str, item: str, target: str, measure: Callable[[], tuple[str, bool]]) -> None:
    """Measure a row and tell it.

    Parameters
    ----------
    measure : returns the measured value in words, with its numbers, and whether it meets the
        target.
    """
    parser = argparse.ArgumentParser(description=f"{item}: {target}")
    parser.add_argument("--json", type=Path)
    to = parser.parse_args().json
    began = time.perf_counter()
    measured, met = measure()
    row = {
        "item": item,
        "target": target,
        "measured": measured,
        "met": met,
        "command": f"python benchmarks/scorecard/{Path(file).name}",
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(f"{'met' if met else 'NOT MET'}: {item}: {measured} (target: {target})")
    if to is not None:
        to.write_text(json.dumps(row, indent=1) + "\n")
    sys.exit(0 if met else 1)
