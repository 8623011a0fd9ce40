"""What the conformance suite runs: every installed method, in its variants, on every runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.protocol import Fitted, Method, Task, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.runtime.store import StateStore

#: name → (hosts, **options) → federation; the first is the reference.
RUNTIMES: dict[str, Callable[..., Coordinator]] = {"local": local}

#: Settings whose every choice makes a variant; the others keep their defaults.
VARIED = ("strategy", "ties", "baseline", "solver")

#: Settings that keep the suite fast, where a method has them.
SMALL: dict[str, Any] = {"rounds": 3, "internal_epochs": 2, "keep_rounds": (1,)}

#: Row counts that no model of three covariates has as a dimension.
ROWS = {"a": 61, "b": 47, "c": 53}

Table = SurvivalTable | LabelledTable


@dataclass(frozen=True)
class Case:
    """One method with some of its settings."""

    method: str
    settings: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return " ".join([self.method, *(f"{k}={v}" for k, v in self.settings)])

    @property
    def entry(self) -> Method:
        """The method itself."""
        return registry.find(self.method)

    @property
    def kind(self) -> str:
        """The kind of task that it is run on."""
        return self.entry.tasks[0]


def cases(kind: str) -> list[Case]:
    """Return every installed method for a kind of task, with its defaults and its variants."""
    found: list[Case] = []
    for name in registry.names():
        entry = registry.find(name)
        if kind not in entry.tasks:
            continue
        found.append(Case(name, ()))
        for f in dataclasses.fields(entry.settings):
            if f.name in VARIED:
                others = (c for c in f.metadata.get("choices", ()) if c != f.default)
                found += [Case(name, ((f.name, choice),)) for choice in others]
            if f.name == "time_grid":
                found += [Case(name, ((f.name, choice),)) for choice in ("exact", 6)]
    return found


@cache
def tables(kind: str) -> dict[str, Table]:
    """Return records for a kind of task at three unequal sites."""
    rng = np.random.default_rng(7)
    out: dict[str, Table] = {}
    for name, n in ROWS.items():
        x = rng.uniform(size=(n, 3))
        death = rng.exponential(1 / np.exp(x @ np.array([1.5, -1.0, 0.0])))
        leave = rng.exponential(2.0, n)
        if kind == "survival":
            out[name] = SurvivalTable(x, np.minimum(death, leave) + 0.01, death <= leave)
        else:
            out[name] = LabelledTable(x, (death < 1.0).astype(float))
    return out


def quiet(kind: str) -> Table:
    """Return a small table where nobody died."""
    table = tables(kind)["a"]
    x, nobody = table.x[:6], np.zeros(6)
    if isinstance(table, SurvivalTable):
        return SurvivalTable(x, table.time[:6], nobody.astype(bool))
    return LabelledTable(x, nobody)


@dataclass(frozen=True)
class Run:
    """What a fit left: arrays (name, dtype, shape, bytes), ledger and history; and the model."""

    arrays: tuple[tuple[str, str, tuple[int, ...], bytes], ...]
    ledger: tuple[str, ...]
    history: str
    model: Fitted


def run(
    case: Case,
    runtime: str = "local",
    *,
    order: Iterable[str] = "abc",
    folder: Path | None = None,
    data: Mapping[str, Table] | None = None,
    seed: int = 3,
    **options: Any,
) -> Run:
    """Fit a case; with a folder, with journal and states, resuming what is there."""
    data = data or {name: tables(case.kind)[name] for name in order}
    entry = case.entry
    known = {f.name for f in dataclasses.fields(entry.settings)}
    small = {k: v for k, v in SMALL.items() if k in known}
    config = entry.configure({**small, **dict(case.settings)})
    hosts = [Host(name, table, entry.steps, seed) for name, table in data.items()]
    journal = None
    if folder is not None:
        journal = Journal(folder / "journal")
        options |= {"journal": journal, "store": StateStore(folder / "states")}
    fed = RUNTIMES[runtime](hosts, **options)
    task = Task(kind=case.kind, features=("u", "v", "w"), seed=seed)
    try:
        model = entry.fit(fed, config, task)
    finally:
        if journal is not None:
            journal.close()
    return Run(_frozen(model.arrays()), tuple(fed.ledger.lines), repr(fed.history), model)


def _frozen(arrays: dict[str, Array]) -> Any:
    return tuple((k, a.dtype.str, a.shape, a.tobytes()) for k, a in sorted(arrays.items()))


@cache
def reference(case: Case) -> Run:
    """Return the case's fit on the local runtime."""
    return run(case)
