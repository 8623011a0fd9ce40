"""RadialGAN on the IWG-PM cohort: three sites with different columns, against own rows and merging.

    python benchmarks/radialgan/run.py FILE --seeds 5 --rows 150 [--out FILE]

FILE is mds_iwgpm_clean.csv.gz, no part of this project. A seed deals rows to three sites:

    clinical     age, sex, haemoglobin, blasts; platelets, neutrophils, leucocytes, blasts in blood
    cytogenetic  the first four; platelets and eight flags of chromosomes
    genes        the first four; neutrophils and ten genes

Each site trains on `--rows` of its rows and is judged on its others. The outcomes are death within
two years (rows known to have died or to be followed for two years; AUC, average precision) and
overall survival (Harrell's C). The predictor is the same in all arms, linear with penalty 0.01:

    own        each site's own rows and columns
    merged     rows of all sites, the four shared columns
    mixture    `shares: mixture`, by `carry`: none (the paper), outcome, shared
    codes      `shares: codes`, carry: shared

All settings are fixed before. A cell is a seed and a site; differences to `own` are paired over
cells.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import ttest_1samp
from sklearn.metrics import average_precision_score, roc_auc_score

import fedcohort as fc
from fedcohort.metrics.survival.concordance import harrell

sys.path.append(str(Path(__file__).parents[1]))
from book import asks_out, keep

SHARED = ["age", "sex", "hb", "bm_blast_pct"]
FLAGS = ["loss5_plus_other", "loss7_7q", "gain8", "loss20_20q", "lossY", "loss5_isolated_del5q",
         "i17q_or_loss17p", "loss12_12p"]  # fmt: skip
GENES = ["TET2", "ASXL1", "SF3B1", "SRSF2", "DNMT3A", "RUNX1", "TP53", "STAG2", "U2AF1", "EZH2"]
SITES: dict[str, list[str]] = {
    "clinical": [*SHARED, "plt", "anc", "wbc", "pb_blast_pct"],
    "cytogenetic": [*SHARED, "plt", *(f"cyto_{f}" for f in FLAGS)],
    "genes": [*SHARED, "anc", *(f"gene_{g}" for g in GENES)],
}
GAN: dict[str, Any] = {"rounds": 10, "internal_epochs": 40}
ARMS: dict[str, dict[str, Any]] = {
    "mixture, none": {**GAN, "carry": "none"},
    "mixture, outcome": {**GAN, "carry": "outcome"},
    "mixture, shared": {**GAN, "carry": "shared"},
    "codes, shared": {"shares": "codes", "rounds": 300, "carry": "shared"},
}


def cohort(path: Path) -> pd.DataFrame:
    """Return rows with a known time, and the columns of the sites, complete."""
    table = pd.read_csv(path)
    columns = list(dict.fromkeys(c for own in SITES.values() for c in own))
    table = table[table["os_years"] > 0].dropna(subset=["os_event", *columns])
    table["sex"] = (table["sex"] == "M").astype(int)
    for c in ("wbc", "anc", "plt"):
        table[c] = np.log1p(table[c])
    table["dead"] = (table["os_event"] > 0) & (table["os_years"] <= 2)
    table["known"] = table["dead"] | (table["os_years"] > 2)
    table["os_event"] = table["os_event"].astype(int)
    return table[[*columns, "os_years", "os_event", "dead", "known"]].astype({"dead": int})


def dealt(table: pd.DataFrame, seed: int, rows: int) -> dict[str, tuple[pd.DataFrame, ...]]:
    """Return training rows and blind rows of each site."""
    order = np.random.default_rng(seed).permutation(len(table))
    parts = np.array_split(order, len(SITES))
    return {
        site: (table.iloc[part[:rows]], table.iloc[part[rows:]])
        for site, part in zip(SITES, parts, strict=True)
    }


def scores(model: Any, blind: pd.DataFrame, task: str) -> dict[str, float]:
    """Return the metrics of a model on blind rows."""
    found = model.predict(blind)
    if task == "survival":
        years, event = blind["os_years"].to_numpy(), blind["os_event"].to_numpy() > 0
        return {"c_index": float(harrell(found, years, event))}
    y = blind["dead"].to_numpy()
    return {"auc": roc_auc_score(y, found), "ap": average_precision_score(y, found)}


def run(table: pd.DataFrame, task: str, seed: int, rows: int) -> list[dict[str, Any]]:
    """Return a line for each arm and site."""
    own = ["os_years", "os_event"] if task == "survival" else ["dead"]
    outcome = fc.Survival(*own) if task == "survival" else fc.Binary("dead")
    dealing = dealt(table if task == "survival" else table[table["known"]], seed, rows)
    frames = {s: train[[*SITES[s], *own]] for s, (train, _) in dealing.items()}
    lines: list[dict[str, Any]] = []

    def add(arm: str, site: str, model: Any, columns: list[str], began: float) -> None:
        found = scores(model, dealing[site][1][[*columns, *{"os_years", "os_event", "dead"}]], task)
        lines.append({"arm": arm, "task": task, "seed": seed, "site": site, **found,
                      "seconds": round(time.perf_counter() - began, 2)})  # fmt: skip

    began = time.perf_counter()
    for site, frame in frames.items():
        one = fc.simulate({site: frame}, outcome=outcome, seed=seed)
        add("own", site, fc.fit("radialgan", one, virtual=0), SITES[site], began)
    merged = pd.concat([frame[[*SHARED, *own]] for frame in frames.values()])
    one = fc.simulate({"all": merged}, outcome=outcome, seed=seed)
    model = fc.fit("radialgan", one, virtual=0)
    for site in frames:
        add("merged", site, model, SHARED, began)
    views = {c: [c] for c in dict.fromkeys(c for f in SITES.values() for c in f)}
    fed = fc.simulate(frames, outcome=outcome, seed=seed, views=views)
    for arm, settings in ARMS.items():
        began = time.perf_counter()
        fit = fc.fit("radialgan", fed, **settings)
        for site in frames:
            add(arm, site, fit.of(site), SITES[site], began)
    return lines


def summary(lines: list[dict[str, Any]], rows: int) -> dict[str, dict[str, float]]:
    """Return by metric the mean of each arm, and of the mean difference to `own`, with p by a
    t-test.
    """
    frame = pd.DataFrame(lines)
    found: dict[str, dict[str, float]] = {}
    for metric in ("auc", "ap", "c_index"):
        cells = frame.dropna(subset=[metric]).pivot_table(
            index=["seed", "site"], columns="arm", values=metric
        )
        for arm in cells:
            d = (cells[arm] - cells["own"]).to_numpy()
            p = float(ttest_1samp(d, 0.0).pvalue) if d.any() else 1.0
            name = str(arm).replace(", ", "_")
            seeds = int(frame["seed"].nunique())
            found.setdefault(metric, {"rows": rows, "seeds": seeds}).update(
                {name: round(float(cells[arm].mean()), 4),
                 f"{name}_gain": round(float(d.mean()), 4), f"{name}_p": round(p, 4)}
            )  # fmt: skip
    return found


def main() -> None:
    """Run all seeds and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", metavar="FILE", type=Path, help="the IWG-PM cohort")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=150, help="training rows of a site")
    asks_out(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table = cohort(given.path)
    lines: list[dict[str, Any]] = []
    for seed in range(given.seeds):
        for task in ("classification", "survival"):
            lines += run(table, task, seed, given.rows)
        found = summary(lines, given.rows)
        keep(given.out, found)
        if given.out:
            given.out.with_name("cells.json").write_text(json.dumps(lines, indent=1) + "\n")
        print(json.dumps(found), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
