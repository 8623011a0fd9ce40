"""Several runs side by side: differences between their studies and between their results.

If two runs judged the same patients in every repeat (equal `test_mark`), arms of the same name are
compared by pairs, eq. (2) of `share`. Otherwise their intervals stand side by side, because the
difference of means of different test sets says little. A network's setting corresponds to the
natural sites of one process, whatever their names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from fedcohort.protocol.errors import DataError
from fedcohort.report import words
from fedcohort.report.run import Run, Summary, read
from fedcohort.report.same_files import FileLine, compared
from fedcohort.report.share import Mean, paired

#: What is said of runs of which some are a network's.
LOWER = (
    "A hospital alone is judged on its own blind patients over a network, and on those of all "
    "hospitals in one process: no difference is given."
)
INTERVALS = "Intervals of a network are over the repeats, those of one process over its patients."
#: Parts of a study file whose differences are not reported.
_IGNORED = ("study", "question")


@dataclass(frozen=True)
class Line:
    """One arm in one setting by one metric.

    Attributes
    ----------
    summaries : one per run; None if the run lacks the arm, setting or metric.
    against : each run's difference to the first, positive if better (for a metric with a better
        side);
        None if not paired.
    """

    scenario: str
    arm: str
    title: str
    metric: str
    summaries: tuple[Summary | None, ...]
    against: tuple[Mean | None, ...]


@dataclass(frozen=True)
class Comparison:
    """Runs by name, in the order in which they were given."""

    names: tuple[str, ...]
    runs: tuple[Run, ...]

    @classmethod
    def of(cls, folders: Sequence[Path]) -> Comparison:
        """Read runs from their folders.

        Raises
        ------
        DataError : fewer than two folders, the same one twice, or one that holds no run.
        """
        places = [f.resolve() for f in folders]
        if len(places) < 2:
            raise DataError("there is nothing to compare with; give the folders of two runs.")
        for i, place in enumerate(places):
            if place in places[:i]:
                raise DataError(f"{folders[i]} is given twice; give the folders of two runs.")
        return cls(_names(places), tuple(read(f) for f in folders))

    @property
    def same_patients(self) -> tuple[bool, ...]:
        """Whether each run judged on the same patients as the first, in every repeat."""
        marks = [r.mapping("evaluate").get("test_mark") for r in self.runs]
        return tuple(m is not None and m == marks[0] for m in marks)

    def differences(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return each key of the study files that differs, with its value in each run."""
        flat = [dict(_flat(_study(run))) for run in self.runs]
        keys = list(dict.fromkeys(k for f in flat for k in f))
        rows = [(k, tuple(words.value(f.get(k)) for f in flat)) for k in keys]
        versions = [str(r.mapping("versions").get("fedcohort")) for r in self.runs]
        rows.append(("fedcohort", tuple(versions)))
        return [(k, v) for k, v in rows if len(set(v)) > 1]

    def lines(self) -> list[Line]:
        """Return every arm, setting and metric that some run has, the leading metric first."""
        wanted = dict.fromkeys(
            (metric, self._common(run, scenario), arm.name)
            for run in self.runs
            for metric in run.metrics
            for scenario in run.scenarios
            for arm in run.arms
        )
        order = list(dict.fromkeys(m for m, _, _ in wanted))
        keys = sorted(wanted, key=lambda k: order.index(k[0]))
        found = (self._line(*key) for key in keys)
        return [line for line in found if any(line.summaries)]

    def known(self, metric: str) -> words.Metric:
        """Return a metric's description, in the unit of the runs if they share it."""
        each = [run.known(metric) for run in self.runs]
        unit = each[0].unit if len({k.unit for k in each}) == 1 else ""
        return replace(each[0], unit=unit, digits=min(k.digits for k in each))

    def scenario_title(self, scenario: str) -> str:
        """Return a setting's title, from the first run that has it."""
        named = ((r, self._own(r, scenario)) for r in self.runs)
        return next(r.scenarios[own] for r, own in named if own in r.scenarios)

    def files(self) -> dict[str, list[FileLine]]:
        """Return, for each other run that judged the same patients, how its files differ from the
        first's.
        """
        others = list(zip(self.names, self.runs, self.same_patients, strict=True))[1:]
        return {name: compared(self.runs[0], run) for name, run, same in others if same}

    def notes(self, metric: str) -> list[str]:
        """Return how a network computed a metric that another run computed from pooled rows."""
        if len({run.deployed for run in self.runs}) == 1:
            return []
        found: list[str] = []
        for name, run in zip(self.names, self.runs, strict=True):
            how = (run.mapping("evaluate").get("exactness") or {}).get(metric)
            if how:
                found.append(f"{name}: {how}.")
        if any(run.lower is not None for run in self.runs):
            found.append(LOWER)
        if len({str(r.mapping("evaluate").get("intervals") or "draws") for r in self.runs}) > 1:
            found.append(INTERVALS)
        return found

    def _natural(self, run: Run) -> str | None:
        """Return a run's only setting with the data's own hospitals."""
        found = [c for c in run.scenarios if c in run.natural]
        return found[0] if len(found) == 1 else None

    def _common(self, run: Run, scenario: str) -> str:
        """Return the common name of a run's setting: that of the first run that has it."""
        if scenario != self._natural(run):
            return scenario
        return next(own for r in self.runs if (own := self._natural(r)) is not None)

    def _own(self, run: Run, scenario: str) -> str:
        """Return a run's own name of a setting."""
        natural = self._natural(run)
        if natural is not None and self._common(run, natural) == scenario:
            return natural
        return scenario

    def _line(self, metric: str, scenario: str, arm: str) -> Line:
        first = self.runs[0]
        title = next(a.title for r in self.runs for a in r.arms if a.name == arm)
        against: list[Mean | None] = [None]
        for run, same in list(zip(self.runs, self.same_patients, strict=True))[1:]:
            sign = words.metric(metric).sign or 1
            ours, theirs = (r.values(arm, self._own(r, scenario), metric) for r in (run, first))
            # over a network a hospital's own model is judged on other patients
            alone = run.deployed != first.deployed and any(
                r.lower is not None and r.lower.name == arm for r in (run, first)
            )
            may = same and not alone and not words.metric(metric).is_p
            d = paired(ours, theirs, run.test_fraction, sign) if may else None
            against.append(d if d is not None and math.isfinite(d.value) else None)
        found = tuple(run.summary(arm, self._own(run, scenario), metric) for run in self.runs)
        return Line(scenario, arm, title, metric, found, tuple(against))


def text_table(comparison: Comparison) -> list[list[str]]:
    """Return the leading metric as a table for the command line: a row an arm and setting."""
    lines = comparison.lines()
    leading = [x for x in lines if x.metric == lines[0].metric] if lines else []
    known = comparison.known(leading[0].metric) if leading else words.Metric("", "")
    rows = [[known.axis, "setting", *comparison.names]]
    for line in leading:
        cells = [
            _cell(s, d, known.digits) for s, d in zip(line.summaries, line.against, strict=True)
        ]
        rows.append([line.arm, line.scenario, *cells])
    return rows


def _cell(found: Summary | None, against: Mean | None, digits: int) -> str:
    """Return ``0.684 (0.671–0.697), +0.012 (0.002–0.022)``."""
    if found is None:
        return words.MISSING
    own = words.estimate(found.mean, found.low, found.high, digits)
    return f"{own}, {difference(against, digits)}" if against is not None else own


def difference(d: Mean, digits: int = 3) -> str:
    """Return a difference with its sign and interval."""
    if d.value == d.low == d.high == 0:
        return "no difference"
    sign = "+" if d.value > 0 else ""
    return sign + words.estimate(d.value, d.low, d.high, digits)


def _names(places: Sequence[Path]) -> tuple[str, ...]:
    """Return the shortest ends of the paths that tell them apart."""
    depth = 1
    while len({p.parts[-depth:] for p in places}) < len(places):
        depth += 1
    return tuple("/".join(p.parts[-depth:]) for p in places)


def _study(run: Run) -> Mapping[str, Any]:
    """Return the study file of a run.

    Raises
    ------
    DataError : it is missing or damaged.
    """
    path = run.folder / "study.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        content = None
    if not isinstance(content, Mapping):
        raise DataError(f"{path} is missing or damaged; run the study again.")
    return content


def _flat(content: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a study file; arms go by name, so their order is no difference."""
    if isinstance(content, Mapping) and content:
        for k, v in content.items():
            if path or k not in _IGNORED:
                yield from _flat(v, f"{path}.{k}" if path else str(k))
    elif isinstance(content, list) and any(isinstance(v, Mapping) for v in content):
        for i, v in enumerate(content):
            named = v.get("name") or v.get("title") if isinstance(v, Mapping) else None
            yield from _flat(v, f"{path}[{named or i + 1}]")
    else:
        yield path, content
