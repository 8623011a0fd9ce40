"""The results of a run, read from `results.json` for the report."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcohort.protocol.errors import DataError
from fedcohort.report import words
from fedcohort.report.clock import Clock
from fedcohort.report.kinds import Kind, kind_of
from fedcohort.report.share import Mean, Share, paired, share
from fedcohort.report.words import number

LOWER, UPPER = "lower bound", "upper bound"


@dataclass(frozen=True)
class Arm:
    """An arm of the study, as the report shows it.

    Attributes
    ----------
    look : class of its colour: ``lower``, ``upper``, or ``c0`` … ``c7`` in declared order.
    steps : one line for each step of its program, if the run has them.
    paper : the source of its method.
    every : whether it has a model for each hospital, which stays there.
    """

    name: str
    title: str
    method: str
    role: str
    settings: Mapping[str, Any]
    reveals: str
    look: str
    steps: Mapping[str, str]
    paper: str = ""
    every: bool = False


@dataclass(frozen=True)
class Summary:
    """A metric of an arm under a scenario, over its repeats."""

    mean: float
    sd: float
    low: float
    high: float
    n: int


class Run:
    """The results of a run: arms, scenarios, metrics and their values.

    Parameters
    ----------
    results : the content of `results.json`; absent keys count as empty.
    folder : where the other files of the run are.
    """

    def __init__(self, results: Mapping[str, Any], folder: Path):
        self.results = results
        self.folder = folder

    def rows(self, key: str) -> list[Mapping[str, Any]]:
        """Return a list of the results file."""
        return list(self.results.get(key) or ())

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Return a mapping of the results file."""
        return self.results.get(key) or {}

    @cached_property
    def arms(self) -> list[Arm]:
        """All arms, the lower bound first, the upper bound last."""
        declared = self.rows("declared")
        known = {str(d["arm"]) for d in declared}
        found = dict.fromkeys(str(a["arm"]) for a in self.rows("arms"))
        roles = {"isolated": LOWER, "centralised": UPPER}
        declared += [{"arm": a, "role": roles.get(a, "arm")} for a in found if a not in known]
        order = {LOWER: 0, UPPER: 2}
        declared.sort(key=lambda d: order.get(str(d.get("role")), 1))
        arms: list[Arm] = []
        for d in declared:
            role = str(d.get("role") or "arm")
            n = sum(a.role not in order for a in arms)
            looks = {LOWER: "lower", UPPER: "upper"}
            name = str(d["arm"])
            arms.append(
                Arm(
                    name,
                    words.title(name, d.get("title")),
                    str(d.get("method") or ""),
                    role,
                    d.get("settings") or {},
                    str(d.get("reveals") or ""),
                    looks.get(role, f"c{n % 8}"),
                    d.get("steps") or {},
                    str(d.get("paper") or ""),
                    bool(d.get("every")),
                )
            )
        return arms

    @cached_property
    def lower(self) -> Arm | None:
        """The bound of hospitals that train alone; None without."""
        return next((a for a in self.arms if a.role == LOWER), None)

    @cached_property
    def upper(self) -> Arm | None:
        """The arm fitted to all rows at one place; None if the study has none."""
        return next((a for a in self.arms if a.role == UPPER), None)

    @cached_property
    def together(self) -> list[Arm]:
        """The arms over sites, without the bounds."""
        return [a for a in self.arms if a.role not in (LOWER, UPPER)]

    @cached_property
    def scenarios(self) -> dict[str, str]:
        """Title of each scenario, by name, in declared order."""
        out: dict[str, str] = {}
        for s in (*self.rows("scenarios"), *self.rows("arms")):
            title = None if "arm" in s else s.get("title")
            name = str(s["scenario"])
            out.setdefault(name, words.title(name, title, self.task))
        return out

    @cached_property
    def natural(self) -> frozenset[str]:
        """Scenarios with the hospitals of the data, not with parts of one table."""
        named = {str(s["scenario"]) for s in self.rows("scenarios") if s.get("rule") == "natural"}
        return frozenset({"natural", *named})

    @property
    def deployed(self) -> bool:
        """Whether the run was over a network, and no simulation."""
        return bool(self.mapping("network"))

    def sites(self, scenario: str) -> dict[str, Mapping[str, Any]]:
        """Return rows and events of each site under a scenario, by name."""
        for s in self.rows("scenarios"):
            if s["scenario"] == scenario:
                return {str(x["site"]): x for x in s.get("sites") or ()}
        return {}

    @cached_property
    def metrics(self) -> list[str]:
        """Names of the metrics, the leading one first."""
        asked = [str(m) for m in self.mapping("evaluate").get("metrics") or ()]
        found = [m for s in self.rows("summary") if not (m := str(s["metric"])).endswith("_own")]
        names = list(dict.fromkeys((*asked, *found)))
        # Groups are not made to rank risks, and a p-value leads nothing.
        leads = self.kind.leads
        return sorted(names, key=lambda m: (words.metric(m).is_p, m != leads))

    @property
    def task(self) -> str:
        """The kind of task."""
        return str(self.results.get("task") or "survival")

    @property
    def kind(self) -> Kind:
        """Words and rules of its kind of task."""
        return kind_of(self.task, self.mapping("outcome"))

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that are predicted, in their order; () unless there are more than two."""
        of_task = self.task == "classification"
        return tuple(map(str, self.mapping("outcome").get("levels") or ())) if of_task else ()

    @property
    def unit(self) -> str:
        """The unit of a value that is predicted, where the run knows it."""
        return str(self.mapping("outcome").get("unit") or "")

    @cached_property
    def clock(self) -> Clock:
        """How times of the outcome are shown."""
        known = [v.get("unit") for v in self.mapping("cohort").get("variables") or ()
                 if v.get("type") == "time"]  # fmt: skip
        unit = self.mapping("outcome").get("time_unit") or (known or [""])[0] or ""
        listed = ("over_time", "calibration", "cluster_curves")
        times = [words.number(r.get("time")) for key in listed for r in self.rows(key)]
        times += [
            words.number(t)
            for r in self.rows("risk_groups")
            for g in r.get("groups") or ()
            for t, *_ in (*(g.get("curve") or ()), *(g.get("at_risk") or ()))
        ]
        return Clock.of(str(unit), max((t for t in times if t == t), default=0.0))

    @cached_property
    def _digits(self) -> int:
        """Return the decimals of metrics in the outcome's unit: four digits of the largest."""
        shown = [s for s in self.rows("summary") if words.metric(str(s["metric"])).in_unit]
        sizes = [abs(x) for s in shown if (x := words.number(s.get("mean"))) == x]
        return words.decimals(max(sizes, default=0.0))

    def known(self, metric: str | None = None) -> words.Metric:
        """Return a metric's description, by default the leading one's, in this run's unit."""
        found = words.metric(metric or self.metric, self.task, len(self.classes))
        return replace(found, unit=self.unit, digits=self._digits) if found.in_unit else found

    @property
    def metric(self) -> str:
        """The leading metric."""
        return self.metrics[0] if self.metrics else "c_index"

    @cached_property
    def repeats(self) -> int:
        """Number of repeats, each with its own test rows."""
        return len({row.get("repeat") for row in self.rows("arms")})

    @cached_property
    def _summary(self) -> dict[tuple[str, str, str], Summary]:
        return {
            (str(s["arm"]), str(s["scenario"]), str(s["metric"])): Summary(
                *(words.number(s.get(k)) for k in ("mean", "sd", "low", "high")),
                n=int(s.get("n") or 0),
            )
            for s in self.rows("summary")
        }

    def summary(self, arm: str, scenario: str, metric: str | None = None) -> Summary | None:
        """Return a metric over repeats, or None where no fit gave it."""
        found = self._summary.get((arm, scenario, metric or self.metric))
        return None if found is None or math.isnan(found.mean) else found

    @cached_property
    def _values(self) -> dict[tuple[str, str, str], dict[int, dict[str | None, float]]]:
        out: dict[tuple[str, str, str], dict[int, dict[str | None, float]]]
        out = defaultdict(lambda: defaultdict(dict))
        for row in self.rows("arms"):
            for name, value in (row.get("metrics") or {}).items():
                x = words.number(value)
                if not math.isnan(x):
                    key = (str(row["arm"]), str(row["scenario"]), name)
                    out[key][int(row.get("repeat") or 0)][row.get("site")] = x
        return out

    def values(self, arm: str, scenario: str, metric: str | None = None) -> dict[int, float]:
        """Return a metric by repeat; for an arm with a model of each site, the mean over sites."""
        by_repeat = self._values.get((arm, scenario, metric or self.metric), {})
        return {
            r: sites[None] if None in sites else math.fsum(sites.values()) / len(sites)
            for r, sites in by_repeat.items()
        }

    def by_site(self, arm: str, scenario: str, metric: str) -> dict[str, list[float]]:
        """Return a metric by site, with one value for each repeat."""
        out: dict[str, list[float]] = defaultdict(list)
        for sites in self._values.get((arm, scenario, metric), {}).values():
            for site, value in sites.items():
                if site is not None:
                    out[site].append(value)
        return out

    @property
    def test_fraction(self) -> float:
        """Fraction of the patients held back for testing."""
        return words.number(self.mapping("evaluate").get("test_fraction") or 0.0)

    def share(self, arm: str, scenario: str) -> Share | None:
        """Return the share of the gap that an arm closes, if there are bounds."""
        if self.lower is None or self.upper is None:
            return None
        sign = words.metric(self.metric).sign or 1
        lower, mid, upper = (
            self.values(a, scenario) for a in (self.lower.name, arm, self.upper.name)
        )
        if not lower.keys() & mid.keys() & upper.keys():
            return None
        found = share(lower, mid, upper, self.test_fraction, sign)
        own = self._by_patients.get((scenario, self.metric, arm, self.lower.name))
        if own is None:
            return found
        gain = self.difference(arm, self.lower.name, scenario)
        gap = self.difference(self.upper.name, self.lower.name, scenario)
        if math.isnan(gap.low):
            return found
        ends = own.get("share") or {}
        value = gain.value / gap.value if gap.side > 0 else math.nan
        return Share(value, number(ends.get("low")), number(ends.get("high")), gain, gap)

    @cached_property
    def _by_patients(self) -> dict[tuple[str, str, str, str], Mapping[str, Any]]:
        """Comparisons by draws of the patients, by scenario, metric, arm and other arm."""
        return {
            (str(c["scenario"]), str(c["metric"]), str(c["arm"]), str(c["against"])): c
            for c in self.rows("comparisons")
            if c.get("by") == "patients"
        }

    @property
    def compared_by_patients(self) -> bool:
        """Whether arms are compared by draws of the patients, not by the spread of repeats."""
        return bool(self._by_patients)

    def difference(self, arm: str, against: str, scenario: str, metric: str | None = None) -> Mean:
        """Return an arm's advantage over another, paired by repeat, eq. (2) of `share`.

        With few repeats the interval is of draws of the patients, if the run has it.
        """
        sign = words.metric(metric or self.metric).sign or 1
        for a, b, turn in ((arm, against, sign), (against, arm, -sign)):
            row = self._by_patients.get((scenario, metric or self.metric, a, b))
            if row is not None:
                low, high = sorted(turn * number(row.get(k)) for k in ("low", "high"))
                value, n = turn * number(row.get("difference")), int(row.get("n") or 0)
                return Mean(value, low, high, n)
        ours, theirs = (self.values(a, scenario, metric) for a in (arm, against))
        return paired(ours, theirs, self.test_fraction, sign)

    def final(self, arm: str) -> Mapping[str, Any] | None:
        """Return facts on an arm's final fit, to all rows; None without one."""
        done = (f for f in self.rows("final") if f["arm"] == arm and f.get("status") == "done")
        return next(done, None)

    def model_rows(self, key: str, arm: str) -> list[Mapping[str, Any]]:
        """Return the rows of a list that are about an arm's model.

        The model is the final fit, else that of the first repeat in the first setting with rows.
        """
        if (final := self.final(arm)) is not None:
            return list(final.get(key) or ())
        mine = [r for r in self.rows(key) if r["arm"] == arm]
        order = list(self.scenarios)

        def place(r: Mapping[str, Any]) -> tuple[int, int]:
            name = str(r["scenario"])
            return (order.index(name) if name in order else len(order), int(r.get("repeat") or 0))

        first = min(map(place, mine), default=None)
        return [r for r in mine if place(r) == first]

    def model_title(self, arm: str, key: str) -> str:
        """Return in words the fit of `model_rows`."""
        if self.final(arm) is not None:
            return "final fit, all rows"
        rows = self.model_rows(key, arm)
        scenario = str(rows[0]["scenario"]) if rows else ""
        return f"first repeat, {self.scenarios.get(scenario, scenario)}"

    def failures(self, arm: str, scenario: str | None = None) -> list[str]:
        """Return the reasons, each once, for missing fits of an arm."""
        return sorted(
            {
                str(row.get("status")).removeprefix("failed: ")
                for row in self.rows("arms")
                if row["arm"] == arm
                and scenario in (None, row["scenario"])
                and row.get("status", "done") != "done"
            }
        )


def read(folder: Path) -> Run:
    """Return the run in a folder.

    Raises
    ------
    DataError : there is no `results.json`, or it is not one of ours.
    """
    path = folder / "results.json"
    if not path.is_file():
        raise DataError(
            f"{folder} holds no results.json; give the folder that `fedcohort run STUDY.yaml "
            f"--out DIR` wrote."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}); run the study again.") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != 1:
        raise DataError(f"{path} has schema {schema!r}; this version reads schema 1.")
    return Run(content, folder)


def mean(values: Sequence[float]) -> float:
    """Return the mean, NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan
