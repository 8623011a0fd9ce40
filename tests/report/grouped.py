"""A made-up run of a study of clusters, with every key that the report reads; no study is run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from report.synthetic import summarise

#: Name, title, method and role of the arms, and each one's agreement with pooled data.
ARMS = (
    ("isolated", "Each hospital alone", "deep_clustering", "lower bound", 0.41),
    ("deep", "Federated deep clustering", "deep_clustering", "arm", 0.93),
    ("centralised", "All data in one place", "deep_clustering", "upper bound", None),
)
LEVELS = {"isolated": 0.28, "deep": 0.31, "centralised": 0.32}
CLASSES = ("APL", "NPM1", "TP53")
#: Simulated patients of a cluster on the map.
UMAP = 50
#: Shape of a picture.
SHAPE = (6, 9)


def make(
    folder: Path,
    *,
    k: int = 6,
    n_sites: int = 10,
    features: int = 54,
    outcome: str = "survival",
    images: bool = True,
    umap: bool = False,
    repeats: int = 3,
    p: float = 1e-6,
    site_name: str = "hospital-{}",
    change: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run's folder.

    Parameters
    ----------
    outcome : ``survival``, ``classification`` or ``none``: what judges the clusters.
    k : clusters; of a single one, silhouette, log-rank test and odds ratios have no value.
    p : of the log-rank test, in every repeat.
    change : replaces keys of the results.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    sites = [site_name.format(i + 1) for i in range(n_sites)]
    names = [f"gene{i + 1}" for i in range(features)]
    heads = [{"arm": a, "scenario": "natural", "repeat": 0} for a in ("deep", "centralised")]
    shares = rng.choice([0.03, 0.08, 0.6], (k, features), p=[0.5, 0.4, 0.1])
    counts = rng.integers(20, 60, (k, n_sites))
    metrics = ["silhouette", "cycle_accuracy", "agreement"]
    metrics += {
        "survival": ["c_index", "log_rank_p"], "classification": ["accuracy", "ari"], "none": []
    }[outcome]  # fmt: skip
    known = [m for m in metrics if k > 1 or m not in ("silhouette", "log_rank_p")]
    arms = [
        {"arm": a, "method": m, "scenario": "natural", "repeat": r, "site": None,
         "metrics": _metrics(known, LEVELS[a], same, p, float(rng.normal(0, 0.01))),
         "rounds": 20, "seconds": 1.5, "bytes_up": 9000, "bytes_down": 9000, "epsilon": None,
         "status": "done"}
        for a, _, m, _, same in ARMS for r in range(repeats)
    ]  # fmt: skip
    results = {
        "schema": 1, "study": "aml-groups", "seed": 1, "task": "clustering",
        "question": "Which groups of patients with AML are there?",
        "versions": {"fedcohort": "0.1.0"},
        "outcome": {
            "survival": {"kind": "survival", "columns": ["time", "event"]},
            "classification": {"kind": "classification", "columns": ["class"]},
            "none": {"kind": "none", "columns": []},
        }[outcome],
        "data": {"source": "aml.csv", "rows": int(counts.sum()) * 4 // 3, "features": names},
        "scenarios": [{"scenario": "natural", "title": "natural", "rule": "natural",
                       "sites": [{"site": s, "rows": int(counts[:, i].sum()), "events": None}
                                 for i, s in enumerate(sites)]}],
        "declared": [{"arm": a, "title": t, "method": m, "role": r, "settings": {"n_clusters": k}}
                     for a, t, m, r, _ in ARMS],
        "arms": arms, "summary": _without_intervals(summarise(arms)), "comparisons": [],
        "evaluate": {"test_fraction": 0.25, "repeats": repeats, "draws": 200, "metrics": metrics},
        "privacy": {"secure_aggregation": "auto", "dp": None, "min_cell": 5},
        "clusters": [
            {**h, "cluster": c, "n": int(n), "share": n / counts.sum(), "label": f"cluster {c}"}
            for h in heads for c, n in enumerate(counts.sum(axis=1).tolist())
        ],
        "cluster_sites": [
            {**h, "site": s, "cluster": c, "n": int(counts[c, i])}
            for h in heads for i, s in enumerate(sites) for c in range(k)
        ],
        "cluster_features": [r for h in heads for r in _features(h, names, shares)],
        "cluster_map": [r for h in heads for r in _map(h, rng, k, sites)],
        "cluster_umap": [
            {**h, "cluster": c,
             "x": np.round(rng.normal(6 * math.cos(2.4 * c), 0.8, UMAP), 2).tolist(),
             "y": np.round(rng.normal(5 * math.sin(2.4 * c), 0.8, UMAP), 2).tolist()}
            for h in heads for c in range(k)
        ] if umap else [],
        "cluster_images": [
            {**h, "cluster": c, "patient": i, "features": names, "shape": list(SHAPE),
             "values": (rng.uniform(size=features) < shares[c]).astype(float).tolist()}
            for h in heads for c in range(k) for i in range(12)
        ] if images else [],
        "cluster_curves": _curves(heads, k) if outcome == "survival" else [],
        "cluster_log_rank": [
            {**h, "chi2": 61.2, "df": k - 1, "p": p if k > 1 else None, "n": 400} for h in heads
        ] if outcome == "survival" else [],
        "cluster_confusion": [
            {**h, "cluster": c, "reference": name, "n": 9 + 10 * c + i}
            for h in heads for c in range(k) for i, name in enumerate(CLASSES)
        ] if outcome == "classification" else [],
        "command": "fedcohort run study.yaml", "seconds": 12.0,
        **(change or {}),
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def _metrics(
    names: list[str], level: float, same: float | None, p: float, noise: float
) -> dict[str, float | None]:
    known = {
        "silhouette": level + noise, "cycle_accuracy": 0.9 + noise, "agreement": same,
        "c_index": 0.61 + noise, "log_rank_p": p, "accuracy": 0.85, "ari": 0.7,
    }  # fmt: skip
    return {m: known[m] for m in names if known[m] is not None}


def _without_intervals(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a summary as a study gives it: a p-value has no draws."""
    return [s | {"low": None, "high": None} if s["metric"] == "log_rank_p" else s for s in summary]


def _features(head: dict[str, Any], names: list[str], shares: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    if len(shares) == 1:
        none = dict.fromkeys(("share", "rest", "odds_ratio", "difference", "low", "high", "p", "q"))
        return [{**head, "cluster": 0, "feature": f, "kind": "share", **none} for f in names]
    for c, own in enumerate(shares):
        rest = np.delete(shares, c, axis=0).mean(axis=0)
        for name, a, b in zip(names, own.tolist(), rest.tolist(), strict=True):
            ratio = a * (1 - b) / (b * (1 - a))
            width = 0.4
            far = abs(math.log(ratio)) / width * 1.96
            p = math.erfc(far / math.sqrt(2))
            rows.append(
                {**head, "cluster": c, "feature": name, "kind": "share", "share": a, "rest": b,
                 "odds_ratio": ratio, "difference": None, "low": ratio * math.exp(-width),
                 "high": ratio * math.exp(width), "p": p, "q": min(1.0, 4 * p)}
            )  # fmt: skip
        rows.append(
            {**head, "cluster": c, "feature": "age", "kind": "mean", "share": 61.6, "rest": 47.6,
             "odds_ratio": None, "difference": 1.89, "low": 1.68, "high": 2.1, "p": 1e-9,
             "q": 1e-8}
        )  # fmt: skip
    return rows


def _map(head: dict[str, Any], rng: Any, k: int, sites: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for c in range(k):
        x, y = 4 * math.cos(2.4 * c), 3 * math.sin(2.4 * c)
        for site in (None, *sites):
            dx, dy = rng.normal(0, 0.15, 2) if site else (0.0, 0.0)
            rows.append(
                {**head, "space": "pca", "site": site, "cluster": c, "x": x + dx, "y": y + dy,
                 "sx": 1.1, "sy": 0.5, "angle": 30.0 * c, "n": 300}
                | ({} if site else {"explained": 0.62})
            )  # fmt: skip
    return rows


def _curves(heads: list[dict[str, Any]], k: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for head in heads:
        for c in range(k):
            for i in range(11):
                s = math.exp(-(c + 1) * i / 30)
                rows.append(
                    {**head, "cluster": c, "time": 300.0 * i, "survival": s,
                     "low": max(0.0, s - 0.06), "high": min(1.0, s + 0.06),
                     "at_risk": 90 - 8 * i if i % 2 == 0 else None}
                )  # fmt: skip
    return rows
