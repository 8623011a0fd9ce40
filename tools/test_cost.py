"""Processor seconds of each test, as a plugin of pytest; and from them lines for `tests/slow.txt`.

    COST=cost.tsv PYTHONPATH=tools .venv/bin/python -m pytest -p test_cost tests/network
    .venv/bin/python tools/test_cost.py cost.tsv 1.0

The plugin adds to a file, for each phase of each test, elapsed and processor seconds, those of
ended child processes included. The command prints what takes longer than so many seconds, one line
a function, with what is left of it: what stays in `make test` is for a person to say. Measure on
a quiet machine.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def _now() -> tuple[float, float]:
    spent = os.times()
    return time.perf_counter(), sum(spent[:4])


def _measured(phase: str) -> Any:
    @pytest.hookimpl(wrapper=True)
    def hook(item: pytest.Item) -> Iterator[None]:
        wall, spent = _now()
        try:
            return (yield)
        finally:
            wall, spent = (b - a for a, b in zip((wall, spent), _now(), strict=True))
            with open(os.environ["COST"], "a") as log:
                log.write(f"{wall:.3f}\t{spent:.3f}\t{phase}\t{item.nodeid}\n")

    return hook


pytest_runtest_setup = _measured("setup")
pytest_runtest_call = _measured("call")
pytest_runtest_teardown = _measured("teardown")


def main(log: Path, above: float) -> int:
    """Print the functions with a test above so many seconds, and the sums of folders."""
    costs: dict[str, float] = defaultdict(float)
    folders: dict[str, float] = defaultdict(float)
    for line in log.read_text().splitlines():
        wall, spent, phase, test = line.split("\t", 3)
        cost = max(float(spent), float(wall) / 2)  # who waits holds a worker as well
        folders[test.split("/")[1]] += cost
        if phase == "call":  # a fixture's seconds go to the next test that asks for it
            costs[test.removeprefix("tests/")] += cost
    functions: dict[str, dict[str, float]] = defaultdict(dict)
    for test, cost in costs.items():
        function, bracket, parameters = test.partition("[")
        functions[function][bracket + parameters] = cost
    for function, cases in sorted(functions.items()):
        slow = {case: cost for case, cost in cases.items() if cost > above}
        if not slow:
            continue
        kept = [case for case in cases if case not in slow]
        if not kept or not all(slow):
            stays = "".join(f" ! {case}" for case in sorted(slow, key=slow.__getitem__)[:1] if case)
            print(f"{function}{stays} | {sum(slow.values()):.1f} | ")
        else:
            for case, cost in slow.items():
                print(f"{function}{case} | {cost:.1f} | {kept[0]}")
    for folder, cost in sorted(folders.items()):
        print(f"# {folder}: {cost:.0f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), float(sys.argv[2])))
