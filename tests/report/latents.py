"""A made-up run of a study of latent coordinates, with every key that the report reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from report.synthetic import summarise

#: Name, title, role, and mean errors: given back, and filled in.
ARMS = (
    ("isolated", "Each hospital alone", "lower bound", 0.42, 0.80),
    ("mv", "Multi-view PPCA", "arm", 0.31, 0.55),
    ("vae", "Autoencoder", "arm", 0.35, 0.60),
    ("centralised", "All data in one place", "upper bound", 0.30, 0.54),
)
SCENARIOS = ("iid", "views")
VIEWS = ("mri", "blood")
SITES = ("site-1", "site-2", "site-10")
#: WAIC by q, and the standard errors of differences: 3 is within two of 4, 2 is not.
NUMBERS = (
    (2, 900.0, {}), (3, 520.0, {"2": 30.0}), (4, 500.0, {"2": 35.0, "3": 11.0}),
)  # fmt: skip
TAKEN = 3
#: How errors of repeats are off their mean.
OFF = (-0.004, 0.001, 0.003)


def make(folder: Path, change: Mapping[str, Any] | None = None) -> Path:
    """Write a run's folder; `change` replaces keys of the results."""
    folder.mkdir(parents=True, exist_ok=True)
    arms = [
        {"arm": a, "method": "multiview_ppca", "scenario": c, "repeat": r, "site": None,
         "metrics": {"reconstruction_mae": back + off * (1 + i / 10),
                     "imputation_mae": filled - off},
         "rounds": 5, "seconds": 1.0, "bytes_up": 90, "bytes_down": 90, "epsilon": None,
         "status": "done"}
        for i, (a, _, _, back, filled) in enumerate(ARMS) for c in SCENARIOS
        for r, off in enumerate(OFF)
    ]  # fmt: skip
    models = [{"arm": a, "scenario": c, "repeat": 0} for a in ("mv", "centralised")
              for c in SCENARIOS]  # fmt: skip
    results = {
        "schema": 1, "study": "views", "seed": 1, "task": "latent", "question": "What is missing?",
        "versions": {"fedcohort": "0.1.0"}, "outcome": {"kind": "none", "columns": []},
        "data": {"source": "t.csv", "rows": 300, "features": ["a", "b", "c"]},
        "scenarios": [{"scenario": c, "title": c, "rule": c,
                       "sites": [{"site": s, "rows": 75, "events": None} for s in SITES]}
                      for c in SCENARIOS],
        "declared": [{"arm": a, "title": t, "method": "multiview_ppca", "role": r, "settings": {}}
                     for a, t, r, _, _ in ARMS],
        "arms": arms, "summary": summarise(arms), "comparisons": [],
        "evaluate": {"test_fraction": 0.25, "repeats": 3, "draws": 200,
                     "metrics": ["reconstruction_mae", "imputation_mae"]},
        "privacy": {"secure_aggregation": "auto", "dp": None, "min_cell": 5},
        "latent_views": [
            {**m, "view": v, "columns": 2 - k, "sites": 3 - k, "sigma": 0.4, "explained": 0.84,
             "sd_mu": 0.02, "sd_w": 0.031} for m in models for k, v in enumerate(VIEWS)
        ],
        "latent_numbers": [
            {**m, "q": q, "waic": waic, "fit": -waic / 2 + 9, "cost": 9.0, "errors": errors,
             "taken": q == TAKEN} for m in models for q, waic, errors in NUMBERS
        ],
        "latent_sites": [_site(c, s, w) for c in SCENARIOS for s in SITES
                         for w in ("patients", *VIEWS) if (s, w) != ("site-2", "blood")],
        "latent_errors": [
            {"arm": a, "scenario": c, "repeat": 0, "kind": kind, "view": v, "feature": f,
             "mae": mae, "rmse": 1.3 * mae}
            for a, _, role, *errors in ARMS if role != "lower bound" for c in SCENARIOS
            for kind, error in zip(("reconstruction", "imputation"), errors, strict=True)
            for v, f, mae in (("mri", None, error), ("blood", None, error + 0.1),
                              ("mri", "a", error - 0.05), ("mri", "b", error + 0.05),
                              ("blood", "c", error + 0.1))
        ],
        "latent_filled": [
            {**m, "view": "mri", "feature": f"f{i:02d}", "mean": 2.0, "sd": 0.5,
             "edges": [-3.0, -1.0, 0.0, 3.0], "true": [0.2, 0.3, 0.5],
             "imputed_edges": [-3.0, 0.0, 3.0], "imputed": [0.5 + i / 100, 0.5 - i / 100],
             "distance": i / 100} for m in models for i in range(14)
        ],
        "latent_map": [
            {**m, "by": by, "name": name, "x": float(i), "y": 0.5, "sx": 1.0, "sy": 0.5,
             "angle": 30.0, "n": 75, "explained": 0.61} for m in models
            for by, names in (("site", SITES), ("group", ("ill", "well")))
            for i, name in enumerate(names)
        ],
        "command": "fedcohort run study.yaml", "seconds": 12.0,
        **(change or {}),
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "history.csv").write_text("\n".join(history()) + "\n")
    return folder


def _site(scenario: str, site: str, what: str) -> dict[str, Any]:
    """Return a test: site-2 has other patients, site-10 measures blood in another way."""
    apart = (site, what) in (("site-2", "patients"), ("site-10", "blood"))
    return {"arm": "mv", "scenario": scenario, "repeat": 0, "site": site, "what": what,
            "shift": 1.4 if apart else 0.1, "chi2": 40.0 if apart else 2.0, "df": 3,
            "p": 0.0005 if apart else 0.6, "p_adjusted": 0.004 if apart else 1.0}  # fmt: skip


def history() -> list[str]:
    """Return history.csv of fits that went through five rounds for each q."""
    out = ["arm,scenario,repeat,site,round,name,value"]
    for c in SCENARIOS:
        for repeat in range(3):
            head = f"mv,{c},{repeat},"
            for q, waic, _ in NUMBERS:
                for r in range(5):
                    out.append(f"{head},{r},log_likelihood,{-1000 + 100 * q + r}")
                    for k in (1, 2):
                        out.append(f"{head},{r},sd_mu_{k},{0.1 * q / 10 ** (r / 4)}")
                        out.append(f"{head},{r},sd_w_{k},{0.2 * q / 10 ** (r / 4)}")
                        out.append(f"{head},{r},sigma_{k},{0.5 + 0.01 * r}")
                out += [f"{head},4,q,{q}", f"{head},4,waic,{waic}", f"{head},4,cost,9"]
    return out
