"""A finished run with its rows, the truth that an audit compares with.

A simulated study names its table and seed, so its sites can be made again. The rows of a deployed
study are at the hospitals: nobody else can check an attack on them, and such a run is refused.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import DataError, Method, registry
from fedcohort.protocol.errors import InputError
from fedcohort.study.file import plan as plans
from fedcohort.study.file import yamlfile
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.results import saved
from fedcohort.study.run.pieces import JUDGED
from fedcohort.study.sites.layout import Laid, Table, lay_out, load, seed_of


@dataclass(frozen=True)
class Finished:
    """A finished run, without its rows.

    Attributes
    ----------
    folder : of the run.
    plan : the study.
    dictionary : of the columns that its fits see.
    results : content of results.json.
    """

    folder: Path
    plan: Plan
    dictionary: Dictionary
    results: dict[str, Any]

    @property
    def seed(self) -> int:
        """What all draws of the saved fits derive from."""
        return seed_of(self.plan, 0)

    def arms(self) -> list[Arm]:
        """Return the arms that learn from all sites and left a model."""
        models = self.folder / "models"
        found = [a for a in self.plan.arms if a.scope == "sites" and (models / a.name).is_dir()]
        if not found:
            raise DataError(f"{self.folder}: no arm of this run left a model in models/.")
        return found

    def arm(self, name: str | None, *, methods: tuple[str, ...] = ()) -> Arm:
        """Return an arm by its name; by default the first that serves.

        Raises
        ------
        DataError : no such arm; those that there are, are named.
        """
        able = [a for a in self.arms() if not methods or a.method in methods]
        chosen = [a for a in able if name in (None, a.name)]
        if not chosen:
            which = f" of {' or '.join(methods)}" if methods else ""
            there = ", ".join(a.name for a in able) or "none"
            asked = "" if name is None else f" called {name!r}"
            raise DataError(f"{self.folder}: no arm{which}{asked}; there are: {there}.")
        return chosen[0]

    def saved(self, arm: Arm) -> saved.Saved:
        """Return the first repeat's model of an arm, which has not seen the rows held out."""
        folder = self.folder / "models" / arm.name
        return saved.read(folder / JUDGED if (folder / JUDGED).is_dir() else folder)

    def method(self, arm: Arm) -> Method:
        """Return the method of an arm."""
        return registry.find(arm.method)

    def settings(self, arm: Arm) -> dict[str, Any]:
        """Return an arm's settings, with what tuning chose for the saved fit."""
        for tuned in self.results.get("tuning", []):
            same = tuned.get("arm") == arm.name and not tuned.get("repeat")
            if same and tuned.get("scenario") == self.plan.scenarios[0].name:
                return arm.configured(tuned.get("chosen") or {})
        return arm.configured()


@dataclass(frozen=True)
class Rebuilt(Finished):
    """A run of a local study, and its table.

    Attributes
    ----------
    table : all rows of the study.
    laid : sites and held-out rows of the first repeat of the first scenario: those of `saved`.
    """

    table: Table
    laid: Laid


def rebuild(folder: Path, data: Path | None = None) -> Rebuilt:
    """Open a run, and divide its table over the sites again.

    Parameters
    ----------
    data : the folder of the study's relative paths; by default that of the study file in the run's
        command, else the run's own.

    Raises
    ------
    DataError : no finished run is there, it was deployed, or its table has changed.
    """
    from fedcohort.report.run import read

    results = dict(read(folder).results)
    if "network" in results or results.get("data", {}).get("source") == plans.NETWORK:
        raise DataError(
            f"{folder}: this run was deployed, and its rows are at the sites; an audit needs them. "
            f"Audit a run of the same study on simulated sites."
        )
    path = folder / "study.yaml"
    try:
        doc = yamlfile.read(path)
    except InputError as error:
        raise DataError(f"{folder}: the study that was run cannot be read. {error}") from None
    plan = plans.check(doc, data or _base(folder, results))
    if plan.source.startswith("memory"):
        raise DataError(
            f"{folder}: the study ran on tables in memory, which are gone; audit a run of a study "
            f"file that names its source."
        )
    table = load(plan)
    laid = lay_out(plan, table, plan.scenarios[0], 0)
    if (told := _rows_told(results)) and told != {
        k: len(f) for k, f in laid.problem.frames.items()
    }:
        raise DataError(
            f"{folder}: {plan.source} holds other rows now than when the study ran, by their "
            f"number at the sites; an audit needs the same ones."
        )
    return Rebuilt(folder, plan, table.dictionary, results, table, laid)


def _rows_told(results: dict[str, Any]) -> dict[str, int]:
    """Return how many training rows each site had, as the run wrote it."""
    scenarios = results.get("scenarios") or [{}]
    sites = scenarios[0].get("sites") or []
    return {s["site"]: s["rows"] for s in sites if isinstance(s.get("rows"), int)}


def _base(folder: Path, results: dict[str, Any]) -> Path:
    """Return the folder of the study file, as the command of the run names it; else the run's."""
    words = shlex.split(str(results.get("command", "")))
    named = [Path(w) for w in words if w.endswith((".yaml", ".yml")) and "=" not in w]
    for path in named:
        try:
            same = path.is_file() and bool(yamlfile.read(path).content)
        except InputError:
            same = False
        if same:
            return path.parent
    return folder
