"""From the finished pieces of a study to its files.

Everything is written in the order of the study file: two runs of one study give the same bytes,
except the keys named `seconds`.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedcohort.arrays import Array
from fedcohort.data import prepare
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Category, Outcome, Survival
from fedcohort.data.read.csvcells import harmless
from fedcohort.protocol import Method, registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.judge.shown import (
    classes,
    clusters,
    imputed_rows,
    latent_rows,
    posterior,
    virtual_rows,
)
from fedcohort.study.results.consent import consent_of, gone_of
from fedcohort.study.results.model_card import card
from fedcohort.study.results.outcomes import (
    Found,
    collect,
    comparisons_of,
    finals_of,
    rows_of,
    summary_of,
    tagged,
    with_agreement,
)
from fedcohort.study.results.scenarios import given_row, scenario_row
from fedcohort.study.results.step_words import step_words
from fedcohort.study.run import arithmetic, private
from fedcohort.study.run.extras import ask_here, asked_of
from fedcohort.study.run.local_fits import LocalFits
from fedcohort.study.run.pieces import Shelf, cells_of, rankings_of, write_text
from fedcohort.study.sites.cohort import cohort, described_rows
from fedcohort.study.sites.counts import Counts, Shown, count
from fedcohort.study.sites.layout import Table, test_rows
from fedcohort.study.sites.site_rule import listed as listed_fates
from fedcohort.version import VERSION

ROLE = {"sites": "arm", "isolated": "lower bound", "centralised": "upper bound"}
PACKAGES = (
    "numpy", "scipy", "pandas", "scikit-learn", "torch", "safetensors", "optuna",
    "vl-convert-python", "sqlalchemy", "umap-learn",
)  # fmt: skip
#: Further results of the first repeat's fits, with the names of arm, scenario, repeat.
LISTED = (
    "coefficients", "parameters", "splits", "others", "proportional_hazards",
    "proportional_odds", "calibration", "decision", "over_time", "risk_groups", "by_centre",
    "heterogeneity", "importance", "roc", "residuals", "pooled", "dropped", "filled", "crowded",
    "drowned", "unknown_at_horizon", "maps", "explained",
)  # fmt: skip

#: The same for single kinds of task.
OF_TASK = {
    "classification": classes.OF_ALL, "clustering": clusters.KEYS, "latent": latent_rows.KEYS,
    "synthesis": virtual_rows.KEYS,
    "imputation": imputed_rows.KEYS,
}  # fmt: skip
#: The same for types of outcome of classification.
OF_TYPE: Mapping[str, tuple[str, ...]] = dict.fromkeys(("category", "ordinal"), classes.KEYS)


@dataclass(frozen=True)
class About:
    """Description of a study's data, for local data or a network.

    Attributes
    ----------
    outcome, data, scenarios, cohort, test_mark : in the form of results.json.
    declared : by arm, replacements in its declaration.
    test : blind rows of the first repeat at natural sites.
    first : the ledger's first lines, of the cohort's description.
    more : further keys of results.json.
    intervals : "draws" of a bootstrap over patients, or "repeats".
    exactness : by metric, how it was computed, if not from pooled rows.
    own : rows of the coordinator, by what they are for; empty without.
    drawn : repeat → count of each of its blind rows in each bootstrap draw, (B, n); None without
        draws.
    """

    outcome: Mapping[str, Any]
    data: Mapping[str, Any]
    scenarios: list[dict[str, Any]]
    cohort: Mapping[str, Any]
    test_mark: int
    test: Shown
    first: list[str]
    declared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    intervals: str = "draws"
    exactness: Mapping[str, str] = field(default_factory=dict[str, str])
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])
    drawn: Callable[[int], Array] | None = None


def write(
    fits: LocalFits,
    table: Table,
    out: Path,
    seconds: float,
    command: str,
    spent: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write all files of a finished study except the report; return the content of results.json.

    Parameters
    ----------
    spent : result of `carbon.measured`; None if not measured.
    """
    plan = fits.plan
    counts = count(plan, table)
    patients, left, agreed = cohort(plan, table, counts)
    more: dict[str, Any] = {"measured": dict(spent)} if spent else {}
    more |= consent_of(fits)
    asked = asked_of(plan)
    seen = described_rows(plan, table) if asked else ({}, None)
    for kind in reversed(asked):
        more[kind], lines = ask_here(kind, plan, table, *seen, counts.described, agreed)
        patients["steps"] |= more[kind].pop("steps")
        left += lines
    about = About(
        outcome=outcome_row(table.outcome, table.dictionary),
        data=_data(plan, table, counts),
        scenarios=[
            scenario_row(s, shown, gone_of(fits, i)) | given_row(plan, table, s, shown)
            for i, (s, shown) in enumerate(zip(plan.scenarios, counts.settings, strict=True))
        ],
        cohort=patients,
        test_mark=_test_mark(plan, table, counts, patients),
        test=counts.test,
        first=left,
        more=more,
        own={} if table.own is None else table.own.told(plan.coordinator_data),
        drawn=lambda repeat: fits.drawn[:, test_rows(plan, table, repeat)],
    )
    if plan.at_home and (plan.local or any(s.rule == "natural" for s in plan.scenarios)):
        about = replace(about, intervals="repeats")  # models that stay at sites have no draws
    return write_all(fits, about, out, seconds, command)


def write_all(fits: Shelf, about: About, out: Path, seconds: float, command: str) -> dict[str, Any]:
    """Write the files of a finished study, given the description of its data."""
    plan = fits.plan
    shown = collect(fits)
    if "agreement" in plan.metrics and about.drawn is not None:
        shown = with_agreement(shown, about.drawn)
    by_draws = about.intervals == "draws"
    rows = list(rows_of(shown))
    keys = (*LISTED, *OF_TASK.get(plan.task, ()))
    if plan.task == "classification":
        keys += OF_TYPE.get(str(about.outcome.get("type")), ())
    if any(registry.find(a.method).overrides("uncertainty") for a in plan.arms):
        keys += posterior.KEYS
    listed = {key: list(tagged(shown, key)) for key in keys}
    listed["by_centre"] = [_centre(row, about.test) for row in listed["by_centre"]]
    results: dict[str, Any] = {
        "schema": 1,
        "study": plan.study,
        "question": plan.question,
        "seed": plan.seed,
        "task": plan.task,
        "versions": versions(),
        "outcome": about.outcome,
        "data": about.data,
        "scenarios": about.scenarios,
        "declared": [_declared(plan, a) | dict(about.declared.get(a.name, {})) for a in plan.arms],
        "arms": rows,
        "summary": summary_of(plan, shown, about.intervals),
        "comparisons": comparisons_of(plan, shown),
        "cohort": about.cohort,
        **listed,
        **({"final": finals} if (finals := finals_of(fits)) else {}),
        "missing": list(_of_cells(fits, "missing")),
        "tuning": _tuning(fits),
        "evaluate": {
            "test_fraction": plan.test_fraction,
            "repeats": plan.repeats,
            "draws": plan.draws if by_draws else 0,
            "metrics": list(plan.metrics),
            "test_mark": about.test_mark,
            **({"umap": True} if plan.umap else {}),
            **({"local": True} if plan.local else {}),
            **({"at_home": True} if plan.at_home else {}),
            **({"horizon": plan.horizon.text} if plan.horizon else {}),
            **({} if by_draws else {"intervals": about.intervals}),
            **({"exactness": dict(about.exactness)} if about.exactness else {}),
        },
        "preprocess": dict(plan.content.get("preprocess") or {}),
        **_available(fits),
        **_own_rows(about, shown),
        "privacy": plan.privacy.content,
        **({"governance": dict(plan.governance)} if plan.governance else {}),
        "releases": _released(plan),
        "noise": None if plan.privacy.dp is None else "seed",
        "command": command,
        "seconds": round(seconds, 1),
        **about.more,
    }
    _text(out / "results.json", json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False))
    _metrics(out / "metrics.csv", rows)
    _history(out / "history.csv", shown)
    _ledger(out / "ledger.jsonl", fits, about.first)
    _text(
        out / "study.yaml", yaml.safe_dump(dict(plan.content), sort_keys=False, allow_unicode=True)
    )
    machine = {
        "versions": versions(), "platform": platform.platform(), "cores": os.cpu_count(),
        "arithmetic": arithmetic.seen(out / ".work"),
    }  # fmt: skip
    _text(out / "environment.json", json.dumps(machine, indent=1))
    for arm in plan.arms:
        if (out / "models" / arm.name).is_dir():
            _text(out / "models" / arm.name / "card.md", card(plan, arm, results))
    return results


@cache
def versions() -> Mapping[str, str]:
    """Return the versions that may affect a result."""
    found = {"fedcohort": VERSION, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


# what was asked -----------------------------------------------------------------------


def outcome_row(outcome: Outcome | None, dictionary: Dictionary) -> dict[str, Any]:
    """Return the outcome in the form of results.json."""
    if outcome is None:
        return {"kind": "none", "columns": []}
    told: dict[str, Any] = {"kind": outcome.kind, "columns": list(outcome.columns)}
    if outcome.is_number:
        unit = dictionary[outcome.label].unit if outcome.label in dictionary else ""
        told |= {"type": outcome.type, "unit": unit}
    if isinstance(outcome, Category):
        told |= {"type": outcome.type, "levels": list(outcome.levels(dictionary))}
    if isinstance(outcome, Survival) and outcome.entry:
        told |= {"entry": outcome.entry}
    return told | ({"time_unit": unit} if (unit := outcome.time_unit(dictionary)) else {})


def _data(plan: Plan, table: Table, counts: Counts) -> dict[str, Any]:
    """Return the description of the data; total events, unless a site hides its own."""
    return {
        "source": plan.source,
        "rows": len(table.frame),
        "events": counts.events if isinstance(table.outcome, Survival) else None,
        "features": [v.name for v in table.dictionary.features(table.outcome)],
        "description": table.description,
        "licence": table.licence,
        **({"sites_left_out": listed_fates(table.fates)} if table.fates else {}),
        **({"units": list(table.units)} if table.units else {}),
    }


def _test_mark(plan: Plan, table: Table, counts: Counts, patients: Mapping[str, Any]) -> int:
    """Return a checksum that differs if the evaluated patients differ.

    It is of published numbers only, so it reveals nothing more.
    """
    outcome = outcome_row(table.outcome, table.dictionary)
    if not counts.natural:
        return mark_of(plan, len(table.frame), counts.events, outcome, ())
    shown = table.outcome is not None and table.outcome.has_events and not counts.test.closed
    events = counts.events if isinstance(table.outcome, Survival) else None
    return mark_of(plan, len(table.frame), events, outcome, patients["variables"], shown=shown)


def mark_of(
    plan: Plan,
    rows: int,
    events: int | None,
    outcome: Mapping[str, Any],
    natural: Iterable[Mapping[str, Any]],
    *,
    shown: bool = True,
) -> int:
    """Return the checksum of published numbers; `natural` are the lines of Table 1.

    Of these it takes those of single sites, so that a network's mark equals that of the same study
    in one process.

    shown : whether no site hides its events or classes; otherwise no events count, since a network
    then hides them at all sites, and one process at fewer.
    """
    numbers = ("name", "site", "n", "missing", "mean", "sd", "quartiles", *["counts"] * shown)
    known = [
        [plan.seed, plan.test_fraction, plan.repeats],
        [rows, events if shown else None, outcome],
        [[v[k] for k in numbers] for v in natural if v["site"] and v["name"] in outcome["columns"]],
    ]
    return zlib.crc32(json.dumps(known).encode())


def _centre(row: Mapping[str, Any], test: Shown) -> dict[str, Any]:
    """Return a metric by centre with publishable rows and events."""
    return {**row, "n": test.rows[row["site"]], "events": test.events[row["site"]]}


def _released(plan: Plan) -> dict[str, Any]:
    """Return the noisy replies of one fit of each arm with differential privacy."""
    dp = plan.privacy.dp
    if dp is None:
        return {}
    found: dict[str, Any] = {}
    for arm in (a for a in plan.arms if a.scope == "sites"):
        method = registry.find(arm.method)
        releases = private.releases(method, method.configure(arm.configured()), dp)
        found[arm.name] = [release.content for release in releases]
    return found


def _declared(plan: Plan, arm: Arm) -> dict[str, Any]:
    method = registry.find(arm.method)
    return {
        "arm": arm.name,
        "title": arm.title,
        "method": arm.method,
        "paper": method.paper,
        "role": ROLE[arm.scope],
        **({"every": True} if arm.every else {}),
        "settings": _settings(plan, arm, method),
        "reveals": {
            "sites": method.revealed(method.configure(arm.configured()), plan.privacy.dp),
            "isolated": "In training nothing leaves a site: each hospital fits its own rows. Its "
            "model is evaluated on held-back rows, and not kept.",
            "centralised": "Everything: all rows in one place. A bound, not a proposal.",
        }[arm.scope],
        "steps": step_words((*prepare.STEPS, *method.steps)) if arm.scope == "sites" else {},
    }


def _settings(plan: Plan, arm: Arm, method: Method) -> dict[str, Any]:
    """Return an arm's settings, its method's own first, without those that its solver ignores."""
    given = {f.name: f.default for f in method.fields} | arm.configured()
    if "solver" not in {*arm.grid, *plan.space(arm)}:
        heeded = ("", str(given.get("solver", "")))
        given = {k: v for k, v in given.items() if method.solver_of(k) in heeded}
    return given | (dict(arm.preprocess) if method.design is None else {})


def _tuning(fits: Shelf) -> list[dict[str, Any]]:
    plan = fits.plan
    return [
        {
            "arm": plan.arms[cell.arm].name,
            "scenario": plan.scenarios[cell.scenario].name,
            "repeat": cell.repeat,
            **{k: found.get(k) for k in ("chosen", "score", "tried", "status")},
        }
        for cell in cells_of(plan)[0]
        if (found := fits.result(cell)) is not None
    ]


def _available(fits: Shelf) -> dict[str, Any]:
    """Return the simulated absences, and the rounds that fits waited for sites."""
    if fits.plan.availability is None:
        return {}
    asked = dict(fits.plan.content["availability"])
    return {"availability": asked, "waited": list(_of_cells(fits, "waited"))}


def _own_rows(about: About, shown: list[Found]) -> dict[str, Any]:
    """Return the coordinator's rows, and metrics of a model of its first rows alone."""
    if not about.own:
        return {}
    rows = [{k: v for k, v in r.items() if k not in ("arm", "scenario")}
            for r in tagged(shown, "first_model")]  # fmt: skip
    return {"coordinator_data": dict(about.own), **({"first_model": rows} if rows else {})}


def _of_cells(fits: Shelf, key: str) -> Iterator[dict[str, Any]]:
    """Yield the notes of cells under a key, by arm, scenario and repeat."""
    plan = fits.plan
    for cell in (c for cells in (rankings_of(plan), *cells_of(plan)) for c in cells):
        names = {"arm": plan.arms[cell.arm].name, "scenario": plan.scenarios[cell.scenario].name}
        for row in (fits.result(cell) or {}).get(key, ()):
            yield {**names, "repeat": "final" if cell.kind == "final" else cell.repeat, **row}


# files --------------------------------------------------------------------------------


def _text(path: Path, text: str) -> None:
    write_text(path, text if text.endswith("\n") else text + "\n")


def _csv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    fresh = path.with_suffix(".csv.new")
    with fresh.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(map(harmless, row) for row in rows)
    os.replace(fresh, path)


def _metrics(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    header = ("arm", "scenario", "repeat", "site", "metric", "value")
    lines = (
        (r["arm"], r["scenario"], r["repeat"], r["site"], name, value)
        for r in rows
        for name, value in r["metrics"].items()
    )
    _csv(path, header, lines)


def _history(path: Path, shown: Iterable[Found]) -> None:
    header = ("arm", "scenario", "repeat", "site", "round", "name", "value")
    lines = (
        (one.arm.name, one.scenario, one.repeat, row["site"], int(row["round"]), name, value)
        for one in shown
        for row in one.found.get("history", ())
        for name, value in row.items()
        if name not in ("site", "round")
    )
    _csv(path, header, lines)


def _ledger(path: Path, fits: Shelf, first: Iterable[str]) -> None:
    """Write the ledger lines of the cohort's description, then those of every cell."""
    fresh = path.with_suffix(".jsonl.new")
    with fresh.open("wb") as file:
        file.writelines(line.encode() for line in first)
        for cell in (c for cells in (rankings_of(fits.plan), *cells_of(fits.plan)) for c in cells):
            part = fits.ledger(cell)
            if part.exists():
                file.write(part.read_bytes())
    os.replace(fresh, path)
