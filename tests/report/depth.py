"""The made-up details of a run: its cohort, curves over time, risk groups, centres, importance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

#: A row of one of the results file's lists.
Rows = list[dict[str, Any]]

#: A run without details, for tests of other things: half of a page is details.
NONE: dict[str, Any] = dict.fromkeys(
    ("cohort", "over_time", "risk_groups", "by_centre", "heterogeneity", "proportional_hazards",
     "importance", "roc", "decision")
)  # fmt: skip

#: Name, type, unit and levels of the columns of the made-up cohort.
VARIABLES: Sequence[tuple[str, str, str, Sequence[str]]] = (
    ("time", "time", "days", ()),
    ("cens", "event", "", ("0", "1")),
    ("age", "integer", "years", ()),
    ("estrogen_receptor", "number", "fmol/l", ()),
    ("horTh", "category", "", ("no", "yes")),
    ("tgrade", "category", "", ("I", "II", "III")),
)


def details(
    rng: np.random.Generator,
    arms: Sequence[str],
    scenarios: Sequence[str],
    sites: Sequence[str],
    features: Sequence[str],
) -> dict[str, Any]:
    """Return what results.json holds besides metrics; the isolated arm has no details."""
    heads: Rows = [
        {"arm": a, "scenario": s, "repeat": 0} for a in arms if a != "isolated" for s in scenarios
    ]
    return {
        "cohort": cohort(sites),
        "over_time": [r for h in heads for r in _over_time(rng, h)],
        "risk_groups": [{**h, **_risk_groups(rng)} for h in heads],
        "by_centre": [r for h in heads[:2] for r in by_centre(rng, h, sites)],
        "heterogeneity": [{**h, **HETEROGENEITY} for h in heads[:2]],
        "proportional_hazards": [
            {**h, "covariate": f, "chi2": c, "df": d, "p": p}
            for h in heads
            if h["arm"] == "cox"
            for f, c, d, p in (
                *((f, 0.5 + i, 1, 0.4 / (1 + 6 * i)) for i, f in enumerate(features)),
                ("global", 21.5, len(features), 0.003),
            )
        ],
        "decision": [
            {**h, "time": 702.0, "threshold": t / 20, "net_benefit": 0.4 - t / 30,
             "low": 0.3 - t / 30, "high": 0.5 - t / 30, "treat_all": 1 - 0.6 / (1 - t / 20)}
            for h in heads
            for t in range(13)
        ],
        "importance": [
            {**h, "feature": f, "drop": 0.03 - 0.005 * i, "low": 0.02 - 0.005 * i,
             "high": 0.04 - 0.005 * i}
            for h in heads
            for i, f in enumerate(features)
        ],
        "roc": [
            {**h, "points": [[x / 10, (x / 10) ** 0.4] for x in range(11)]} for h in heads
        ],
    }  # fmt: skip


HETEROGENEITY = {
    "metric": "c_index", "pooled": 0.68, "low": 0.64, "high": 0.72, "prediction_low": 0.6,
    "prediction_high": 0.75, "tau2": 0.01, "q": 12.5, "df": 7, "p": 0.085, "i2": 0.44,
}  # fmt: skip


def cohort(sites: Sequence[str], variables: Sequence[Any] = VARIABLES) -> dict[str, Any]:
    """Return flow and Table 1; the first site hides levels, missing values and exclusions."""
    places = [None, *sites]
    flow: Rows = []
    for stage, each in (("read", 92), ("excluded: outcome is missing", 6), ("analysed", 86)):
        for site in places:
            n = each * len(sites) if site is None else each
            secret = each != 86 and site in (None, *sites[:1])
            flow.append({"stage": stage, "site": site, "rows": None if secret else n, "note": ""})
    for stage, share in (("training (first repeat)", 0.75), ("test (first repeat)", 0.25)):
        flow.append(
            {"stage": stage, "site": None, "rows": round(86 * share * len(sites)), "note": ""}
        )
    described = [
        _variable(name, kind, unit, levels, site, 86 * (len(sites) if site is None else 1), i < 2)
        for name, kind, unit, levels in variables
        for i, site in enumerate(places)
    ]
    return {
        "flow": flow, "variables": described, "suppressed": 9, "min_cell": 5,
        "note": "All rows that are analysed, at the sites of the data.",
        "steps": {"describe_columns": "Describe the site's rows."},
    }  # fmt: skip


def _variable(
    name: str, kind: str, unit: str, levels: Sequence[str], site: str | None, n: int, hides: bool
) -> dict[str, Any]:
    """Return one variable at one site."""
    holes = 0 if kind in ("time", "event") else n // 10
    counts: dict[str, int | None] = {x: (n - holes) // len(levels) for x in levels}
    if hides and levels:
        counts = dict.fromkeys(levels)
    known = not levels
    return {
        "name": name, "type": kind, "unit": unit, "levels": list(levels), "site": site, "n": n,
        "missing": None if hides and holes else holes,
        "mean": 1120.4 if known else None, "sd": 640.2 if known else None,
        "quartiles": [610.0, 1005.5, 1510.0] if known and not hides else None, "counts": counts,
    }  # fmt: skip


def _over_time(rng: np.random.Generator, head: dict[str, Any]) -> Rows:
    level = rng.normal(0.7, 0.01)
    return [
        {**head, "metric": m, "time": 300.0 + 100 * i, "value": v}
        | {"low": v - 0.05, "high": v + 0.05}
        for m, start, step in (("auc", level, -0.005), ("brier", 0.05, 0.014))
        for i in range(12)
        for v in (start + step * i,)
    ]  # fmt: skip


def _risk_groups(rng: np.random.Generator) -> dict[str, Any]:
    groups: Rows = []
    for i, label in enumerate(("low risk", "middle risk", "high risk")):
        pace = 0.9 * (i + 1) * rng.normal(1, 0.05)
        curve = [
            [t, s, max(0.0, s - 0.1), min(1.0, s + 0.08)]
            for t in range(0, 2500, 400)
            for s in (math.exp(-pace * t / 3000),)
        ]
        at_risk = [
            [t, n] for t, n in zip(range(0, 2501, 500), (57, 47, 31, 18, 6, None), strict=True)
        ]
        groups.append(
            {
                "group": i,
                "label": label,
                "n": 57,
                "events": 16,
                "curve": curve,
                "at_risk": at_risk,
                "about": [[t, 57 - t // 50] for t in range(0, 2001, 500)],
            }
        )
    return {"groups": groups, "log_rank": {"chi2": 19.6, "df": 2, "p": 0.00008}}


def by_centre(rng: np.random.Generator, head: dict[str, Any], sites: Sequence[str]) -> Rows:
    """Return each site's C-index; the last has too few patients for one."""
    out: Rows = []
    for i, site in enumerate(sites):
        value = float(rng.normal(0.68, 0.03))
        few = i == len(sites) - 1
        numbers = {"value": value, "se": 0.04, "low": value - 0.08, "high": value + 0.08}
        out.append(
            {**head, "metric": "c_index", "site": site}
            | (dict.fromkeys(numbers) if few else numbers)
            | {"n": 21 + i, "events": None if few else 9 + i}
            | {"note": "fewer than 5 events" if few else None}
        )
    return out
