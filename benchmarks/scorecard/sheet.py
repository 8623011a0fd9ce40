"""One row of the scorecard: what is measured, against which target, and by which command.

    python benchmarks/scorecard/noise.py [--json FILE]

A row's script ends with `main(__file__, ITEM, TARGET, measure)`. It prints one line, and exits with
1 where the target is not met. Numbers by which a row can be made shorter or longer are given to
`main` by name, with the value that the scorecard is measured with; each is an option of the script
and an argument of `measure`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path


def main(
    file: str, item: str, target: str, measure: Callable[..., tuple[str, bool]], **sizes: int
) -> None:
    """Measure a row and tell it.

    Parameters
    ----------
    measure : returns the measured value in words, with its numbers, and whether it meets the
        target.
    sizes : arguments of `measure` that can be given on the command line.
    """
    parser = argparse.ArgumentParser(description=f"{item}: {target}".replace("%", "%%"))
    parser.add_argument("--json", type=Path)
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    given = vars(parser.parse_args())
    to: Path | None = given.pop("json")
    other = "".join(f" --{name} {n}" for name, n in given.items() if n != sizes[name])
    began = time.perf_counter()
    measured, met = measure(**given)
    row = {
        "item": item,
        "target": target,
        "measured": measured,
        "met": met,
        "command": f"python benchmarks/scorecard/{Path(file).name}{other}",
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(f"{'met' if met else 'NOT MET'}: {item}: {measured} (target: {target})")
    if to is not None:
        to.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(0 if met else 1)


def megabytes(field: str, pid: int | str = "self") -> float:
    """Return what the kernel says of a process's memory: VmRSS now, VmHWM at its highest."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if found is None:
        raise OSError(f"the kernel tells no {field} of process {pid}.")
    return int(found[1]) / 1024


def forget_peak(pid: int | str = "self") -> None:
    """Let the highest memory of a process (VmHWM) count from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
