"""Every goal of speed in one table: what, measured, goal, met or missed. `make bench` runs it.

    python benchmarks/speed/bench.py [PART ...] [--out FILE]

Parts, all by default: w1, w2, w3 (`run.py`), w4 (`benchmarks/cox_exact`), study (the first study
with its report, the report alone, the help, and a first fit). Exit code 1 if a goal is missed.

A ratio is of two variants that take turns. Seconds are those of the wall, and are judged only where
other programs leave this one its processors: where they took more than `QUIET` of one on average,
the table says "not judged", and ratios are of processor time (`run.py --clock path`).
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "cox_exact")]

from book import ROOT, asks_out, keep  # noqa: E402

#: Processors that other programs may take, on average, while seconds are judged.
QUIET = 0.15
PROGRAM = Path(sys.executable).parent / "fedcohort"

FIRST_FIT = """
import fedcohort as fc, pandas as pd, numpy as np
rng = np.random.default_rng(0)
x = pd.DataFrame(rng.normal(size=(400, 5)), columns=list("abcde"))
x["time"], x["event"] = np.ceil(99 * rng.exponential(size=400)), rng.integers(0, 2, 400)
x["site"] = np.arange(400) % 4
fc.fit("cox", fc.simulate(x, outcome=fc.Survival("time", "event"), sites="site"))
"""


@dataclass(frozen=True)
class Line:
    """One goal.

    Attributes
    ----------
    goal : the most, or with ``least`` the least.
    judged : false for seconds on a busy machine.
    """

    what: str
    measured: float
    goal: float
    unit: str = ""
    least: bool = False
    judged: bool = True

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.measured >= self.goal if self.least else self.measured <= self.goal

    @property
    def verdict(self) -> str:
        """One word, or two."""
        return ("met" if self.met else "MISSED") if self.judged else "not judged"


def busy_seconds() -> float:
    """Return processor seconds of all programs since this machine started; nan if unknown."""
    try:
        user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    except (OSError, ValueError):
        return float("nan")
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return processor seconds of this program and of those that it started and that ended."""
    used = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


class Others:
    """How many processors other programs took, on average, since this was made."""

    def __init__(self) -> None:
        self._at = time.perf_counter(), busy_seconds(), own_seconds()

    @property
    def took(self) -> float:
        """Number of processors; the average load where the system does not count."""
        began, busy, own = self._at
        others = busy_seconds() - busy - (own_seconds() - own)
        taken = others / (time.perf_counter() - began)
        return max(taken, 0.0) if taken == taken else os.getloadavg()[0]


def busy_now() -> float:
    """Return how many processors other programs take in one second."""
    others = Others()
    time.sleep(1.0)
    return others.took


def told(command: Sequence[str], folder: Path) -> float:
    """Run a command; return its seconds on the wall.

    Raises
    ------
    SystemExit : it failed.
    """
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(command)[:80]} failed: {done.stderr[-400:]}")
    return time.perf_counter() - began


def workload(name: str, clock: str) -> tuple[dict[str, float], list[Line]]:
    """Measure w1, w2 or w3."""
    import run

    rounds, repeats, chosen = {
        "w1": (100, 5, "plain,flat,local"),
        "w2": (6, 3, None),
        "w3": (100, 3, "central,local"),
    }[name]
    done = run.measure(name, repeats=repeats, clock=clock, rounds=rounds, chosen=chosen)
    lines = [
        Line(f"{name}: {top} / {bottom}", ratio, goal, "×", least=sign == ">=")
        for top, bottom, sign, goal, ratio, _ in done.goals
    ]
    apart, most = done.apart
    differ = "AUC below central's by" if name == "w3" else "models differ by"
    return done.figures, [*lines, Line(f"{name}: {differ}", apart, most)]


def exact_cox() -> tuple[dict[str, float], list[Line]]:
    """Measure w4; lifelines and scikit-survival are left to its own script."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("cox_exact", HERE.parent / "cox_exact/run.py")
    assert spec is not None
    assert spec.loader is not None
    cox = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cox)
    cox.VARIANTS = {name: cox.VARIANTS[name] for name in ("newton", "fedcohort")}
    _, seconds, _ = cox.measure(50_000, 20, 5)
    figures: dict[str, float] = {}
    lines: list[Line] = []
    for ties in ("efron", "breslow"):
        pairs = zip(seconds["fedcohort", ties], seconds["newton", ties], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        figures[f"{ties}/newton"] = round(ratio, 3)
        lines.append(Line(f"w4: exact Cox, {ties} / pooled Newton", ratio, 1.5, "×"))
    return figures, lines


def study() -> tuple[dict[str, float], list[Line]]:
    """Time the first study as `make run` runs it, its report alone, the help and a first fit."""
    python, program = sys.executable, str(PROGRAM)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        file = str(ROOT / "studies" / "quickstart.yaml")
        whole = told([program, "run", file, "--out", "run"], folder)
        report = statistics.median(told([program, "report", "run"], folder) for _ in range(3))
        help_ = statistics.median(told([program, "--help"], folder) for _ in range(5))
        first = statistics.median(told([python, "-c", FIRST_FIT], folder) for _ in range(3))
    found = {"study": whole, "report": report, "help": help_, "first fit": first}
    goals = {"study": 15.0, "report": 3.0, "help": 0.3, "first fit": 2.0}
    names = {
        "study": "study: quickstart with report",
        "report": "study: its report alone",
        "help": "fedcohort --help",
        "first fit": 'first fc.fit("cox") of a process',
    }
    lines = [Line(names[k], v, goals[k], " s") for k, v in found.items()]
    return {k.replace(" ", "_"): round(v, 2) for k, v in found.items()}, lines


PARTS: Mapping[str, Callable[[str], tuple[dict[str, float], list[Line]]]] = {
    "w1": lambda clock: workload("w1", clock),
    "w2": lambda clock: workload("w2", clock),
    "w3": lambda clock: workload("w3", clock),
    "w4": lambda clock: exact_cox(),
    "study": lambda clock: study(),
}


def shown(lines: Sequence[Line]) -> str:
    """Return the table."""
    rows = [("what", "measured", "goal", "")]
    for line in lines:
        number = "{:.1e}" if max(line.measured, line.goal) < 0.01 else "{:.2f}"
        sign = "≥" if line.least else "≤"
        goal = f"{sign} {number.format(line.goal)}{line.unit}"
        rows.append((line.what, number.format(line.measured) + line.unit, goal, line.verdict))
    wide = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        f"{a:<{wide[0]}}  {b:>{wide[1]}}  {c:>{wide[2]}}  {d}".rstrip() for a, b, c, d in rows
    )


def judged(lines: Sequence[Line], others: float) -> list[Line]:
    """Return the lines; seconds on a busy machine are not judged."""
    from dataclasses import replace

    return [replace(x, judged=x.unit != " s" or others <= QUIET) for x in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all")
    asks_out(parser)
    options = parser.parse_args()
    if odd := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {sorted(odd)}; known: {', '.join(PARTS)}")
    lines: list[Line] = []
    figures: dict[str, Any] = {}
    load, most = os.getloadavg()[0], 0.0
    for part in options.parts or PARTS:
        before = busy_now()
        clock = "wall" if before <= QUIET else "path"
        others = Others()
        print(f"bench: {part} …", file=sys.stderr, flush=True)
        found, its = PARTS[part](clock)
        # Nobody waits for the process that forks a study's workers, so their seconds are not ours.
        taken = max(before, busy_now()) if part == "study" else others.took
        most = max(most, taken)
        lines += judged(its, taken)
        figures[f"bench_{part}"] = {**found, "others": round(taken, 2)}
        keep(options.out, {f"bench_{part}": figures[f"bench_{part}"]}, load)
    print(shown(lines))
    if most > QUIET:
        print(
            f"Other programs took up to {most:.1f} of {os.cpu_count()} processors (load "
            f"{os.getloadavg()[0]:.1f}): seconds are not judged. Run it again on a quiet machine."
        )
    missed = [line.what for line in lines if line.judged and not line.met]
    print(f"{len(missed)} of {sum(line.judged for line in lines)} goals missed.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
