"""A made-up run's folder, with every file that the report reads; seeded, no study is run."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from report import depth

TITLES = {
    "iid": "Patients at random",
    "unbalanced": "One large hospital",
    "by-outcome": "Hospitals differ in survival",
    "by-feature": "Hospitals differ in patients",
}
#: C-index that each arm tends to, by scenario.
LEVELS: Mapping[str, Mapping[str, float]] = {
    "isolated": {"iid": 0.628, "unbalanced": 0.619, "by-outcome": 0.548, "by-feature": 0.594},
    "fedavg": {"iid": 0.686, "unbalanced": 0.683, "by-outcome": 0.641, "by-feature": 0.668},
    "exact": {"iid": 0.691, "unbalanced": 0.690, "by-outcome": 0.689, "by-feature": 0.690},
    "cox": {"iid": 0.679, "unbalanced": 0.679, "by-outcome": 0.679, "by-feature": 0.679},
    "centralised": dict.fromkeys(TITLES, 0.692),
}
#: Eight arms between the bounds: those of `LEVELS`, and as many more as there are colours.
MANY = ("isolated", "fedavg", "exact", "cox", *(f"arm-{i}" for i in range(5)), "centralised")
DECLARED = [
    ("isolated", "Each hospital alone", "deepcox", "lower bound"),
    ("fedavg", "Model averaging", "deepcox", "arm"),
    ("exact", "Exact gradient", "deepcox", "arm"),
    ("cox", "Cox regression", "cox", "arm"),
    *((a, f"Way of training {a}", "deepcox", "arm") for a in MANY if a not in LEVELS),
    ("centralised", "All data in one place", "deepcox", "upper bound"),
]
FEATURES = ["age", "estrogen_receptor", "horTh=yes", "menostat=Post", "pnodes", "progrec", "tsize"]
#: Keys of results.json that a run may lack.
KEYS = (
    "question", "task", "versions", "outcome", "data", "scenarios", "declared", "arms", "summary",
    "comparisons", "coefficients", "calibration", "tuning", "evaluate", "preprocess", "privacy",
    "command", "cohort", "over_time", "risk_groups", "by_centre", "heterogeneity",
    "proportional_hazards", "importance", "roc", "decision",
)  # fmt: skip
STEPS = [
    ("describe_columns", "gather", {"low": [7], "high": [7]}, "preprocess", 1),
    ("event_histogram", "sum", {"events": [64], "leavers": [64]}, "preprocess", 1),
    ("loss_gradient", "sum", {"gradient": [41], "loss": []}, "fit", 30),
]


def make(
    folder: Path,
    *,
    scenarios: Sequence[str] = tuple(TITLES),
    arms: Sequence[str] = tuple(LEVELS),
    repeats: int = 5,
    n_sites: int = 8,
    seed: int = 0,
    site_name: str = "site-{}",
    change: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run's folder; `change` replaces keys of its results."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    sites = [site_name.format(i + 1) for i in range(n_sites)]
    shifts = rng.normal(0, 0.012, repeats)
    rows: list[dict[str, Any]] = []
    for scenario in scenarios:
        for arm in arms:
            for repeat in range(repeats):
                level = (
                    LEVELS.get(arm, LEVELS["exact"])[scenario]
                    + shifts[repeat]
                    + rng.normal(0, 0.004)
                )
                parts = (
                    {s: level + d for s, d in zip(sites, _centred(rng, n_sites), strict=True)}
                    if arm == "isolated"
                    else {}
                )
                rows += [_row(rng, arm, scenario, repeat, s, v) for s, v in parts.items()]
                rows.append(_row(rng, arm, scenario, repeat, None, level))
    results = {
        "schema": 1,
        "study": "gbsg2-recurrence",
        "question": "Can hospitals predict breast cancer recurrence together, without sharing "
        "their patients’ records?",
        "seed": seed,
        "task": "survival",
        "versions": {"fedcohort": "0.1.0", "python": "3.11.9", "numpy": "2.4.0"},
        "outcome": {"kind": "survival", "columns": ["time", "cens"]},
        "data": {
            "source": "sample:gbsg2",
            "rows": 686,
            "events": 299,
            "features": FEATURES,
            "description": "German Breast Cancer Study Group 2, recurrence-free survival",
            "licence": "MIT",
        },
        "scenarios": [
            {
                "scenario": s,
                "title": TITLES[s],
                "sites": [
                    {"site": x, "rows": 60 + 3 * i, "events": 27 + i} for i, x in enumerate(sites)
                ],
            }
            for s in scenarios
        ],
        "declared": [
            {
                "arm": a,
                "title": t,
                "method": m,
                "role": r,
                "settings": {
                    "rounds": 30, "learning_rate": 0.05, "l2": 0.01, "scale": "standard",
                    "impute": "median",
                },
                "paper": f"Someone, A paper about {m}, 2020",
                "reveals": "Sums over hospitals of the loss and its gradient, every round.",
            }
            for a, t, m, r in DECLARED
            if a in arms
        ],
        "arms": rows,
        "summary": summarise(rows),
        "comparisons": [],
        "coefficients": _coefficients(rng, arms, scenarios, repeats),
        "calibration": _calibration(rng, arms, scenarios, repeats),
        "tuning": [
            {
                "arm": a,
                "scenario": s,
                "chosen": {"learning_rate": 0.05},
                "score": 0.68,
                "tried": [
                    {"settings": {"learning_rate": lr}, "score": 0.68 - abs(lr - 0.05)}
                    for lr in (0.01, 0.05, 0.1)
                ],
            }
            for a in arms
            if a in ("fedavg", "exact")
            for s in scenarios
        ],
        "evaluate": {
            "test_fraction": 0.25, "repeats": repeats, "draws": 200,
            "metrics": ["c_index", "ibs"], "test_mark": 1234567,
        },
        "preprocess": {"impute": "median", "scale": "standard"},
        "privacy": {"secure_aggregation": False, "min_cell": 5},
        "seconds": 184.2,
        "command": "fedcohort run study.yaml --out runs/gbsg2",
        **depth.details(np.random.default_rng(seed + 1), arms, scenarios, sites, FEATURES),
        **(change or {}),
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results))
    together = [a for a in arms if a not in ("isolated", "centralised")]
    _history(folder, rng, [*together, "centralised"], scenarios, repeats)
    _ledger(folder, together, scenarios, repeats, sites)
    return folder


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return mean, standard deviation and a normal interval over repeats."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        if row["site"] is None:
            for name, value in row["metrics"].items():
                groups.setdefault((row["arm"], row["scenario"], name), []).append(value)
    out: list[dict[str, Any]] = []
    for (arm, scenario, metric), found in groups.items():
        values = [v for v in found if v is not None and math.isfinite(v)]
        n = len(values)
        mean = float(np.mean(values)) if n else None
        sd = float(np.std(values, ddof=1)) if n > 1 else None
        half = None if sd is None else 1.96 * sd / math.sqrt(n)
        ends = (None, None) if half is None or mean is None else (mean - half, mean + half)
        out.append(
            {"arm": arm, "scenario": scenario, "metric": metric, "mean": mean, "sd": sd,
             "low": ends[0], "high": ends[1], "n": n}
        )  # fmt: skip
    return out


def _centred(rng: np.random.Generator, n: int) -> list[float]:
    x = rng.normal(0, 0.02, n)
    return list(x - x.mean())


def _row(
    rng: np.random.Generator, arm: str, scenario: str, repeat: int, site: str | None, level: float
) -> dict[str, Any]:
    up = {"isolated": 0, "centralised": 54_880}.get(arm, 81_600)
    return {
        "arm": arm, "method": "cox" if arm == "cox" else "deepcox", "scenario": scenario,
        "repeat": repeat, "site": site,
        "metrics": {"c_index": float(level), "ibs": float(0.36 - 0.25 * level)},
        "rounds": 6 if arm == "cox" else 30,
        "seconds": float(rng.uniform(0.4, 2.0)),
        "bytes_up": up, "bytes_down": 2 * up, "epsilon": None, "status": "done",
    }  # fmt: skip


def _coefficients(
    rng: np.random.Generator, arms: Sequence[str], scenarios: Sequence[str], repeats: int
) -> list[dict[str, Any]]:
    truth = [-0.09, 0.04, -0.35, 0.26, 0.27, -0.45, 0.11]
    out: list[dict[str, Any]] = []
    for scenario in scenarios if "cox" in arms else ():
        for repeat in range(repeats):
            for name, b in zip(FEATURES, truth, strict=True):
                c, se = b + float(rng.normal(0, 0.04)), 0.08
                out.append(
                    {"arm": "cox", "scenario": scenario, "repeat": repeat, "covariate": name,
                     "coefficient": c, "standard_error": se, "hazard_ratio": math.exp(c),
                     "low": c - 1.96 * se, "high": c + 1.96 * se,
                     "p": math.erfc(abs(c / se) / math.sqrt(2))}
                )  # fmt: skip
    return out


def _calibration(
    rng: np.random.Generator, arms: Sequence[str], scenarios: Sequence[str], repeats: int
) -> list[dict[str, Any]]:
    return [
        {"arm": arm, "scenario": scenario, "repeat": repeat, "time": 702.0, "group": g,
         "predicted": 0.42 + 0.12 * g, "observed": seen, "low": seen - 0.1, "high": seen + 0.1,
         "n": 34}
        for arm in arms if arm != "isolated"
        for scenario in scenarios
        for repeat in range(repeats)
        for g in range(5)
        for seen in (0.42 + 0.12 * g + float(rng.normal(0, 0.05)),)
    ]  # fmt: skip


def _history(
    folder: Path,
    rng: np.random.Generator,
    arms: Sequence[str],
    scenarios: Sequence[str],
    repeats: int,
) -> None:
    with (folder / "history.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["arm", "scenario", "repeat", "site", "round", "name", "value"])
        for arm in arms:
            name, rounds = ("log_likelihood", 6) if arm == "cox" else ("loss", 30)
            for scenario in scenarios:
                for repeat in range(repeats):
                    end = rng.normal(4.6, 0.03)
                    for r in range(rounds):
                        value = end + 0.9 * math.exp(-r / 6) + rng.normal(0, 0.004)
                        shown = -300 * value if arm == "cox" else value
                        out.writerow([arm, scenario, repeat, "", r, name, shown])


def _ledger(
    folder: Path, arms: Sequence[str], scenarios: Sequence[str], repeats: int, sites: Sequence[str]
) -> None:
    with (folder / "ledger.jsonl").open("w") as file:
        for arm in arms:
            for scenario in scenarios:
                for repeat in range(repeats):
                    call = 0
                    for step, verb, shapes, phase, times in STEPS:
                        fields = {
                            k: {"shape": s, "dtype": "float64", "bytes": 8 * math.prod(s)}
                            for k, s in shapes.items()
                        }
                        for round_ in range(times):
                            for site in sites:
                                line = {
                                    "arm": arm, "scenario": scenario, "repeat": repeat,
                                    "phase": phase, "call": call, "round": round_, "step": step,
                                    "verb": verb, "site": site, "fields": fields, "min_cell": 5,
                                    "masked": False, "mechanism": None, "epsilon": None,
                                    "delta": None,
                                }  # fmt: skip
                                file.write(json.dumps(line, separators=(",", ":")) + "\n")
                            call += 1
