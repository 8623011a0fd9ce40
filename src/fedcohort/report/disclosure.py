"""The ledger in plain words: what left each site, read line by line.

A ledger has one line per reply of each site, hundreds of thousands, which differ mostly in call and
round. Those two are cut out as text; equal remainders are counted, and each is parsed once.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcohort.protocol.errors import DataError
from fedcohort.report import words
from fedcohort.report.run import Arm, Run, read

_NUMBERING = re.compile(r'"(?:call|round)"\s*:\s*\d+\s*,\s*')

#: Width of the ledger in plain words.
WIDTH = 100
#: What is counted of replies.
SIZES = ("calls", "numbers", "bytes")


@dataclass(frozen=True)
class Sent:
    """Replies of one step that left one site, over all training runs of an arm.

    Attributes
    ----------
    verb : ``sum`` (used only in a total over sites) or ``gather`` (seen one by one).
    arm : "" for the description of the patients.
    phases : describe, preprocess, fit, tune or evaluate.
    fields : names of the arrays.
    calls, numbers, bytes : totals over `runs`.
    runs : training runs (scenario × repeat) of the arm with this site.
    masked : number of masked calls: nobody saw this site's own part of the sum.
    noise : mechanism of noise added before they left; "" without.
    """

    arm: str
    site: str
    step: str
    verb: str
    phases: tuple[str, ...]
    fields: tuple[str, ...]
    calls: int
    numbers: int
    bytes: int
    runs: int
    masked: int = 0
    noise: str = ""


def sent(folder: Path) -> list[Sent]:
    """Return what left each site, by arm, site and step, in the order of the ledger.

    Raises
    ------
    DataError : a line of the ledger is not JSON; its number is given.
    """
    path = folder / "ledger.jsonl"
    if not path.is_file():
        return []
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            key = _NUMBERING.sub("", line)
            counts[key] += 1
            if counts[key] == 1:
                first[key] = number
    runs: dict[tuple[str, str], set[tuple[Any, Any]]] = defaultdict(set)
    totals: dict[tuple[str, str, str, str], _Total] = defaultdict(_Total)
    for key, times in counts.items():
        if not key.strip():
            continue
        try:
            line = json.loads(key)
            arm, site = str(line.get("arm", "")), str(line["site"])
            total = totals[arm, site, str(line["step"]), str(line["verb"])]
            total.add(line, times)
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}, line {first[key]}: not a line of a ledger.") from None
        runs[arm, site].add((line.get("scenario"), line.get("repeat")))
    return [
        Sent(
            *key,
            tuple(t.phases), tuple(t.fields), t.calls, t.numbers, t.bytes,
            runs=len(runs[key[:2]]), masked=t.masked, noise=t.noise,
        )
        for key, t in totals.items()
    ]  # fmt: skip


class _Total:
    """Sums of ledger lines of one step."""

    def __init__(self) -> None:
        self.phases: dict[str, None] = {}
        self.fields: dict[str, None] = {}
        self.calls = self.numbers = self.bytes = self.masked = 0
        self.noise = ""

    def add(self, line: dict[str, Any], times: int) -> None:
        """Count one kind of line, so many times."""
        self.phases[str(line.get("phase", "fit"))] = None
        self.calls += times
        self.masked += times * (line.get("masked") is True)
        self.noise = str(line.get("mechanism") or self.noise)
        for name, field in line["fields"].items():
            self.fields[name] = None
            self.numbers += times * math.prod(field["shape"])
            self.bytes += times * int(field["bytes"])


def federated(run: Run, lines: Iterable[Sent]) -> list[Sent]:
    """Return the lines of arms that train together, if something leaves a site.

    Arms of hospitals that fit alone count if they are judged over a network.
    """
    bounds = {a.name for a in (run.lower, run.upper) if a and not run.deployed}
    return [s for s in lines if s.arm not in bounds]


def description(run: Run) -> Arm:
    """Return the entry of the patients' description among the arms."""
    steps = run.mapping("cohort").get("steps") or {}
    return Arm("", "Description of the patients", "", "", {}, "", "", steps)


def plain_ledger(folder: Path) -> list[str]:
    """Return in plain words, arm by arm, what left each site in one training run.

    Equal replies of several sites are listed once, followed by the sites that differ.

    Raises
    ------
    DataError : the folder holds no results, or its ledger is damaged.
    """
    run = read(folder)
    lines = federated(run, sent(folder))
    if not lines:
        return ["Nothing left any site: the ledger holds no call of an arm that trains together."]
    known = {a.name: a for a in (description(run), *run.arms)}
    sites = sorted({s.site for s in lines}, key=natural)
    out = _wrapped(
        f"Counts are per training run. What is listed is all that left {words.listed(sites)}.", 0
    )
    for name in dict.fromkeys(s.arm for s in lines):
        arm = known.get(name)
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for site in sites:
            if here := [s for s in lines if (s.site, s.arm) == (site, name)]:
                alike[_block(here, arm.steps if arm else {})].append(site)
        for block, places in sorted(alike.items(), key=lambda pair: -len(pair[1])):
            head = f"{arm.title if arm else name}, from {_places(places, sites)}: {block[0]}"
            out += ["", *_wrapped(head, 0), *(x for line in block[1:] for x in _wrapped(line, 2))]
    if any(s.verb == "gather" for s in lines):
        out += ["", "SEEN BY THE COORDINATOR = each site's own reply, not only the total."]
    if run.deployed and any(s.verb == "sum" and s.masked < s.calls for s in lines):
        said = (
            "A sum that is not masked reaches the coordinator as every site's own reply, which it "
            "adds up; whoever runs it could read them."
        )
        out += ["", *_wrapped(said, 0)]
    return out


def _block(here: Sequence[Sent], steps: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines on one site's replies for one arm, without their names."""
    n = here[0].runs
    calls, numbers, size = (sum(getattr(s, k) for s in here) / n for k in SIZES)
    often = f"; {words.of(n, 'training run')} in all" if here[0].arm else ""
    total = (
        f"{_mean(calls)}{words.of(calls, 'reply', 'replies')}, {words.of(numbers, 'number')}, "
        f"{words.size(size)}{often}"
    )
    return total, *(_sentence(s, steps) for s in here)


def _sentence(s: Sent, steps: Mapping[str, str]) -> str:
    """Return one step's line: content, number, size, readers, purpose."""
    does = steps.get(s.step, "").rstrip(".")
    who = "only the sum over sites" if s.verb == "sum" else "SEEN BY THE COORDINATOR"
    if s.masked == s.calls:
        who = "masked, so that nobody can see more than the sum over sites"
    elif s.masked:
        who += f", masked {words.count(s.masked / s.runs)} times of these"
    who += f"; with {s.noise} noise" * bool(s.noise)
    times, each = s.calls / s.runs, s.numbers / s.calls
    return (
        f"{words.spaced(s.step)}: {_mean(times)}{words.of(times, 'time')}, "
        f"{_mean(each)}{words.of(each, 'number')} each "
        f"({words.listed([words.spaced(f) for f in s.fields])}); {who}; {phases(s)}"
        + f": {does}"
        * bool(does)
    )


def _mean(n: float) -> str:
    """Return the words before a count that is only an average."""
    return "on average " if "." in words.count(n) else ""


def _places(places: Sequence[str], sites: Sequence[str]) -> str:
    """Name some of the sites: each, each but a few, or one by one."""
    others = [site for site in sites if site not in places]
    if len(sites) == 1 or len(others) >= len(places):
        return words.listed(places)
    return "each site" + (f" but {words.listed(others)}" if others else "")


def _wrapped(line: str, indent: int) -> list[str]:
    """Return a line as lines of at most `WIDTH` characters, but for longer names."""
    first = " " * indent
    return textwrap.wrap(
        line, WIDTH, initial_indent=first, subsequent_indent=first + "    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def phases(s: Sent) -> str:
    """Return the phases of a step in words."""
    plain = {
        "describe": "describing the patients",
        "feedback": "comparing the hospitals' tables",
        "shift": "comparing hospitals pair by pair",
        "preprocess": "preparing the data",
        "rank": "ranking the hospitals",
        "fit": "training",
        "tune": "choosing settings",
        "evaluate": "testing",
    }
    return words.listed([plain.get(p, p) for p in s.phases])


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts site-2 before site-10."""
    return [
        (1, int(part), "") if part.isdecimal() and part.isascii() else (0, 0, part)
        for part in re.split(r"(\d+)", name)
    ]
