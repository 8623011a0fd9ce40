"""An attack on what a study publishes: every count that is the difference of others.

A study of random natural sites is run, and each number in its files that counts patients becomes a
linear equation of what is not known: rows of each site, half (training, blind) and class; rows left
out for each reason; rows of each level of each column; rows of simulated sites by class. To these
come what any model gives: how many training and blind rows have the event, over all sites. A count
is recovered where the equations have one solution for it.

Rows for training and test at sites that show their rows are no secret: the seed of the study gives
them. Neither are totals of the outcome, which the attacker is given.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

import fedcohort as fc
from fedcohort.data.describe import OTHERS
from fedcohort.study.run import runner
from fedcohort.study.sites.cohort import TEST, TRAINING
from fedcohort.study.sites.layout import lay_out, test_rows

REASONS = ("missing outcome", "time not above 0")
STUDY = """\
study: own
task: {task}
data:
  source: t.csv
  dictionary: d.yaml
  outcome: {outcome}
  sites: {{column: site}}
  exclude: [{exclude}]
{scenarios}
arms: [{{method: {method}, scale: standard}}]
bounds: [isolated, centralised]
evaluate: {{repeats: 1, draws: 5}}
"""
COLUMNS = """\
variables:
  age: {type: integer, unit: years}
  grade: {type: category, levels: [a, b, c, d]}
  smoker: {type: binary}
  TARGET
"""
TARGET = {
    "survival": "time: {type: time, unit: days}\n  event: {type: event}",
    "classification": "ill: {type: category, levels: ['no', 'yes']}",
    "regression": "stay: {type: integer, unit: days}",
}
#: By task: the outcome as a study file has it, and a method with its penalty.
ASKED = {
    "survival": ("{time: time, event: event}", "cox, l2: 0.05"),
    "classification": ("{y: ill}", "logistic, l2: 0.05"),
    "regression": ("{y: stay}", "ridge, penalty: 0.05"),
}


def random_table(seed: int, task: str) -> pd.DataFrame:
    """Return three to five sites of 3 to 40 rows that can be analysed, and some that cannot."""
    rng = np.random.default_rng((seed, 71))
    parts = []
    for s in range(rng.integers(3, 6)):
        n = int(rng.integers(3, 41))
        age = rng.normal(60, 12, n).round()
        part = pd.DataFrame(
            {
                "site": f"h{s}",
                "age": age,
                "grade": rng.choice(list("abcd"), n, p=[0.5, 0.3, 0.15, 0.05]),
                "smoker": np.where(rng.random(n) < 0.1, np.nan, rng.random(n) < 0.2),
            }
        )
        case = rng.random(n) < rng.choice([0.15, 0.5, 0.85])
        case[rng.integers(n)] = True
        if task == "survival":
            part["time"] = np.ceil(rng.exponential(300 * np.exp((60 - age) / 20)) + 1)
            part["event"] = case.astype(float)
        elif task == "classification":
            part["ill"] = np.where(case, "yes", "no")
        else:
            part["stay"] = rng.poisson(np.where(case, 9, 3)).astype(float)
        lost = int(rng.choice([0, 0, 2, 6]))
        early = int(rng.choice([0, 0, 3, 7])) if task == "survival" else 0
        more = part.iloc[rng.integers(0, n, lost + early)].reset_index(drop=True)
        part = pd.concat([part, more], ignore_index=True)
        part.loc[n : n + lost - 1, part.columns[-1]] = None
        if early:
            part.loc[n + lost :, "time"] = 0.0
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def publish(folder: Path, seed: int, task: str) -> fc.Study:
    """Run a study of a random table; its files but the report, drawn from them, are in out."""
    folder.mkdir(parents=True, exist_ok=True)
    random_table(seed, task).to_csv(folder / "t.csv", index=False)
    (folder / "d.yaml").write_text(COLUMNS.replace("TARGET", TARGET[task]))
    outcome, method = ASKED[task]
    text = STUDY.format(
        task=task,
        outcome=outcome,
        exclude=", ".join(REASONS if task == "survival" else REASONS[:1]),
        scenarios="scenarios: [natural, iid]" if seed % 2 else "",
        method=method,
    )
    (folder / "s.yaml").write_text(text)
    study = fc.Study.from_file(folder / "s.yaml")
    out = folder / "out"
    runner.run(
        study.plan, study.table, out, resume=False, workers=1, tell=lambda _: None, command=""
    )
    return study


@dataclass
class Attack:
    """Equations of unknown counts, whose true values are known to the test alone.

    Attributes
    ----------
    truth : by name of the unknown.
    told : sums of unknowns that are published, as lists of names.
    cells : what is counted as recovered, if it is: of a table's cell its name and unknowns.
    """

    truth: dict[tuple, int] = field(default_factory=dict)
    told: list[list[tuple]] = field(default_factory=list)
    cells: dict[tuple, list[tuple]] = field(default_factory=dict)

    def value(self, names: list[tuple]) -> int:
        return sum(self.truth[name] for name in names)

    def tell(self, names: list[tuple], value: int | None) -> None:
        """Learn a published number, which must be true."""
        if value is not None:
            assert self.value(names) == value, (names, value)
            self.told.append(names)

    def cell(self, name: tuple, names: list[tuple], value: int | None) -> None:
        """Learn a table's cell. Hidden, or of 1 to 4, it should not be told."""
        self.tell(names, value)
        if value is None or 0 < value < 5:
            self.cells[name] = names

    def recovered(self) -> list[tuple]:
        """Return the cells that every solution of the equations agrees on."""
        place = {name: i for i, name in enumerate(self.truth)}

        def row(names: list[tuple]) -> np.ndarray:
            return np.bincount([place[n] for n in names], minlength=len(place)).astype(float)

        known = np.array([row(names) for names in self.told]).reshape(-1, len(place))
        _, s, v = np.linalg.svd(known)
        free = v[int((s > 1e-9).sum()) :]
        return [
            name
            for name, names in self.cells.items()
            if np.abs(free @ row(names)).max(initial=0.0) < 1e-9
        ]


def attack(folder: Path, study: fc.Study) -> Attack:
    """Read what a study published, and write down all that it says of counts."""
    plan, table, found = study.plan, study.table, _results(folder)
    outcome = list(table.outcome.columns)[-1]
    frame, site = table.frame, table.site.astype(str)
    every = (0,) if plan.task == "regression" else (0, 1)
    case = _cases(frame, outcome, every)
    blind = test_rows(plan, table, 0)
    sites = sorted(set(site))
    a = Attack()
    for s in sites:
        for h in (0, 1):
            for c in every:
                a.truth["x", s, h, c] = int(((site == s) & (blind == h) & (case == c)).sum())
    for stage, s, n, _ in table.flow:
        if s and stage.startswith("excluded"):
            a.truth["out", s, stage] = n

    def rows(where=None, halves=(0, 1), classes=every):
        names = [s for s in sites if where in (None, s)]  # one that is left out has no row here
        return [("x", s, h, c) for s in names for h in halves for c in classes]

    for h in (0, 1):
        a.tell(rows(halves=[h]), int((blind == h).sum()))
        if 1 in every:
            a.tell(rows(halves=[h], classes=[1]), int((case & (blind == h)).sum()))
    _flow(a, found, rows, sites)
    _columns(a, found, rows, frame, site, table.outcome.columns)
    for row in found["by_centre"]:
        s = row["site"]
        a.tell(rows(s, [1]), row["n"])
        if 1 in every:
            a.cell(("by_centre", row["arm"], s), rows(s, [1], [1]), row["events"])
    for i, scenario in enumerate(found["scenarios"]):
        _setting(a, i, scenario, rows, lay_out(plan, table, plan.scenarios[i], 0), outcome, every)
    _models(a, folder / "out", rows, sites)
    if found["data"]["events"] is not None:
        a.tell(rows(classes=[1]), found["data"]["events"])
    return a


def _cases(frame, outcome, every) -> np.ndarray:
    """Return which rows are events, or of class 1 (n,); of a value none is."""
    if 1 not in every:
        return np.zeros(len(frame), bool)
    return frame[outcome].astype(str).isin(["yes", "1", "1.0"]).to_numpy()


def _results(folder: Path) -> dict:
    return json.loads((folder / "out" / "results.json").read_text())


def _flow(a: Attack, found: dict, rows, sites) -> None:
    halves = {"analysed": (0, 1), TRAINING: (0,), TEST: (1,), "read": (0, 1)}
    for f in found["cohort"]["flow"]:
        stage, s, n = f["stage"], f["site"], f["rows"]
        gone = [k for k in a.truth if k[0] == "out" and s in (None, k[1])]
        names = rows(s, halves[stage]) if stage in halves else []
        if stage == "read":
            names = names + gone
        elif stage not in halves:
            names = [k for k in gone if k[2] == stage]
        if stage in (TRAINING, TEST):
            a.tell(names, n)
        else:
            a.cell(("flow", stage, s), names, n)


def _columns(a: Attack, found: dict, rows, frame, site, outcomes) -> None:
    """Learn Table 1."""
    outcome = outcomes[-1]
    for v in found["cohort"]["variables"]:
        name, s, levels = v["name"], v["site"], v["levels"]
        for q in sorted(set(site)) if s is None else ():
            column = frame[name][site == q]
            text = column.map(lambda x: x if isinstance(x, str) else f"{x:g}")
            for k in (None, *levels) if levels else (None, "known"):
                mine = column.isna() if k is None else text == k if levels else column.notna()
                a.truth["v", name, q, k] = int(mine.sum())
    for v in found["cohort"]["variables"]:
        name, s, levels = v["name"], v["site"], v["levels"]
        here = [s] if s else sorted(set(site))
        if s == OTHERS:
            named = {x["site"] for x in found["cohort"]["variables"]}
            here = [q for q in sorted(set(site)) if q not in named]
        kinds = (None, *levels) if levels else (None, "known")
        every = [("v", name, q, k) for q in here for k in kinds]
        own = [x for q in here for x in rows(q)]
        _same(a, every, own)
        if name == outcome:
            for c, k in enumerate(levels):
                for q in here:
                    _same(a, [("v", name, q, k)], rows(q, classes=[c]))
        a.cell(("n", name, s), own, v["n"])
        if s is None and v["n"] is None:
            del a.cells["n", name, s]  # data.rows says it
        if name not in outcomes:  # nobody's is missing who is analysed
            a.cell(("missing", name, s), [("v", name, q, None) for q in here], v["missing"])
        for k in levels:
            names = [("v", name, q, k) for q in here]
            if name == outcome and s is None:
                a.tell(names, v["counts"][k])
            else:
                a.cell(("level", name, s, k), names, v["counts"][k])


def _same(a: Attack, left: list[tuple], right: list[tuple]) -> None:
    """Learn that two sums are the same, by an unknown that makes their difference 0."""
    assert a.value(left) == a.value(right)
    for name in left:
        a.truth["minus", name] = -a.truth[name]
        a.told.append([name, ("minus", name)])
    a.told.append([*right, *(("minus", name) for name in left)])


def _setting(a: Attack, i: int, scenario: dict, rows, laid, outcome, every) -> None:
    """Learn the sites of one setting: training rows of the first repeat."""
    natural = scenario["rule"] == "natural"
    for s, f in laid.problem.frames.items():
        case = _cases(f, outcome, every)
        for c in every:
            a.truth["y", i, s, c] = int((case == c).sum())
            if natural:
                _same(a, [("y", i, s, c)], rows(s, [0], [c]))
    for c in every:
        _same(a, [("y", i, s, c) for s in laid.problem.frames], rows(halves=[0], classes=[c]))
    for one in scenario["sites"]:
        s = one["site"]
        names = [("y", i, s, c) for c in every]
        if 1 in every:
            a.cell(("setting events", i, s), names[1:], one["events"])
        if natural:
            a.tell(names, one["rows"])
        else:
            a.cell(("setting rows", i, s), names, one["rows"])


def _models(a: Attack, out: Path, rows, sites) -> None:
    """Learn the counts of saved models, and of their cards."""
    for path in (out / "models").rglob("model.json"):
        content = json.loads(path.read_text())
        model, halves = content["model"], [0, 1] if content["notes"].get("final") else [0]
        a.tell(rows(halves=halves), model.get("rows"))
        a.tell(rows(halves=halves, classes=[1]), model.get("events", model.get("ones")))
    for path in (out / "models").rglob("card.md"):
        text = path.read_text()
        n, events = re.search(r"(?:of|all) (\d+) rows(?:, (\d+) with the event)?", text).groups()
        a.tell(rows(), int(n))
        a.tell(rows(classes=[1]), None if events is None else int(events))
        for s, n in re.findall(r"^\| (\S+) \|.*\| (\d+) \|$", text, re.MULTILINE):
            if s in sites:
                a.tell(rows(s, [1]), int(n))
