"""Rounds recorded by fits (history.csv), each with its q.

A fit that tries several numbers q of latent dimensions starts each at round 0 and records q at the
end. All rounds of any other fit belong together, without a q.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fedcohort.data.read.csvcells import as_given
from fedcohort.report.run import Run
from fedcohort.report.words import number

_COLUMNS = ("arm", "scenario", "repeat", "site", "round", "name", "value")
#: The quantity recorded at the end of a q's rounds, and those recorded with it.
_END, _WITH = "q", ("waic", "cost")


class Line(NamedTuple):
    """A finite value of a round, from 0; ``q`` as in the module, or None."""

    arm: str
    scenario: str
    repeat: str
    site: str
    round: int
    name: str
    value: float
    q: float | None = None


def lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a history.csv, without those that record q; none of another file."""
    open_: dict[tuple[str, ...], list[Line]] = defaultdict(list)
    ended: set[tuple[str, ...]] = set()
    for line in _read(path):
        fit = line[:4]
        if line.name == _END:
            yield from (one._replace(q=line.value) for one in open_.pop(fit, ()))
            ended.add(fit)
        elif not (fit in ended and line.name in _WITH):
            ended.discard(fit)
            open_[fit].append(line)
    for rest in open_.values():
        yield from rest


def _read(path: Path) -> Iterator[Line]:
    if not path.is_file():
        return
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        head = {name: i for i, name in enumerate(next(reader, []))}
        if not head.keys() >= set(_COLUMNS):
            return
        where = [head[c] for c in _COLUMNS]
        for cells in reader:
            *names, round_, name, value = (cells[i] for i in where)
            x = float(value or "nan")
            if math.isfinite(x):
                arm, scenario, repeat, site, name = map(as_given, (*names[:4], name))
                yield Line(arm, scenario, repeat, site, int(float(round_)), name, x)


def final_values(run: Run) -> Mapping[tuple[str, str], float]:
    """Return the q chosen by the first repeat's fit, by arm and scenario, if it had a choice."""
    return {
        (str(r["arm"]), str(r["scenario"])): number(r["q"])
        for r in run.rows("latent_numbers")
        if r.get("taken")
    }
