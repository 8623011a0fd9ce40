"""RadialGAN on the IWG-PM cohort: three sites with different columns, against own rows and merging.

    python benchmarks/radialgan/run.py FILE --lines LINES [--rows 50] [--wide] [--arms own merged …]
                                       [--seeds 5] [--out FILE]

FILE is mds_iwgpm_clean.csv.gz, no part of this project. A seed deals rows to three sites:

    clinical     age, sex, haemoglobin, blasts; platelets, neutrophils, leucocytes, blasts in blood
    cytogenetic  the first four; platelets and eight flags of chromosomes
    genes        the first four; neutrophils and ten genes

With `--wide` all three have platelets and neutrophils, six shared columns. Each site trains on
`--rows` of its rows and is judged on its others. The outcomes are death within two years (rows
known to have died or to be followed for two years; AUC, average precision) and overall survival
(Harrell's C). The predictor is the same in all arms, linear with penalty 0.01:

    own        each site's own rows and columns
    merged     rows of all sites, the shared columns
    mixture    `shares: mixture`, by `carry`: none (the paper), outcome, shared
    long       carry: shared, three times as many rounds
    many       carry: shared, five virtual rows for each own one
    components carry: shared, up to three normals for each class
    codes      `shares: codes`, carry: shared

All settings are fixed before. A cell is a seed and a site; differences to `own` are paired over
cells. LINES holds finished fits, so that a stopped run goes on; groups of the results are
METRIC_ROWS, and METRIC_ROWS_wide.
"""

from __future__ import annotations

import argparse
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
from book import Book, asks_out, keep

SHARED = ["age", "sex", "hb", "bm_blast_pct"]
FLAGS = ["loss5_plus_other", "loss7_7q", "gain8", "loss20_20q", "lossY", "loss5_isolated_del5q",
         "i17q_or_loss17p", "loss12_12p"]  # fmt: skip
GENES = ["TET2", "ASXL1", "SF3B1", "SRSF2", "DNMT3A", "RUNX1", "TP53", "STAG2", "U2AF1", "EZH2"]
SITES: dict[str, list[str]] = {
    "clinical": [*SHARED, "plt", "anc", "wbc", "pb_blast_pct"],
    "cytogenetic": [*SHARED, "plt", *(f"cyto_{f}" for f in FLAGS)],
    "genes": [*SHARED, "anc", *(f"gene_{g}" for g in GENES)],
}
#: Shared by all sites with `--wide`.
WIDE = [*SHARED, "plt", "anc"]
GAN: dict[str, Any] = {"rounds": 10, "internal_epochs": 40}
ARMS: dict[str, dict[str, Any]] = {
    "none": {**GAN, "carry": "none"},
    "outcome": {**GAN, "carry": "outcome"},
    "shared": {**GAN, "carry": "shared"},
    "long": {**GAN, "carry": "shared", "rounds": 30},
    "many": {**GAN, "carry": "shared", "virtual": 5.0},
    "components": {**GAN, "carry": "shared", "components": 3},
    "codes": {"shares": "codes", "rounds": 300, "carry": "shared"},
}
BASES = ("own", "merged")


def columns_of(wide: bool) -> tuple[list[str], dict[str, list[str]]]:
    """Return the shared columns, and those of each site."""
    if not wide:
        return SHARED, SITES
    return WIDE, {s: list(dict.fromkeys([*WIDE, *own])) for s, own in SITES.items()}


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


def run(table: pd.DataFrame, task: str, seed: int, rows: int, wide: bool, arm: str) -> Any:
    """Return the metrics of an arm by site, and its seconds."""
    shared, sites = columns_of(wide)
    own = ["os_years", "os_event"] if task == "survival" else ["dead"]
    outcome = fc.Survival(*own) if task == "survival" else fc.Binary("dead")
    dealing = dealt(table if task == "survival" else table[table["known"]], seed, rows)
    frames = {s: train[[*sites[s], *own]] for s, (train, _) in dealing.items()}
    began = time.perf_counter()
    models: dict[str, Any] = {}
    columns = dict.fromkeys(sites, shared) if arm == "merged" else sites
    if arm == "own":
        for site, frame in frames.items():
            one = fc.simulate({site: frame}, outcome=outcome, seed=seed)
            models[site] = fc.fit("radialgan", one, virtual=0)
    elif arm == "merged":
        merged = pd.concat([frame[[*shared, *own]] for frame in frames.values()])
        one = fc.simulate({"all": merged}, outcome=outcome, seed=seed)
        models = dict.fromkeys(sites, fc.fit("radialgan", one, virtual=0))
    else:
        views = {c: [c] for c in dict.fromkeys(c for f in sites.values() for c in f)}
        fed = fc.simulate(frames, outcome=outcome, seed=seed, views=views)
        fit = fc.fit("radialgan", fed, **ARMS[arm])
        models = {site: fit.of(site) for site in sites}
    seconds = round(time.perf_counter() - began, 2)
    truth = ["os_years", "os_event", "dead"]
    return {
        site: scores(models[site], dealing[site][1][[*columns[site], *truth]], task)
        for site in sites
    } | {"seconds": seconds}


def summary(book: Book, rows: int, wide: bool) -> dict[str, dict[str, float]]:
    """Return by metric the mean of each arm, and of the mean difference to `own`, with p by a
    t-test, over the seeds that both have.
    """
    found: dict[str, dict[str, float]] = {}
    for metric, task in METRICS.items():

        def cells(arm: str, task: str = task, metric: str = metric) -> dict[tuple[int, str], float]:
            of = {"rows": rows, "wide": wide, "arm": arm, "task": task}
            told = [(s, row) for s in range(SEEDS) for row in book.rows(**of, seed=s)]
            return {(s, site): row[site][metric] for s, row in told for site in SITES}

        base = cells("own")
        for arm in (*BASES, *ARMS):
            here = cells(arm)
            both = sorted(base.keys() & here.keys())
            if not both:
                continue
            d = np.array([here[k] - base[k] for k in both])
            p = float(ttest_1samp(d, 0.0).pvalue) if d.any() else 1.0
            group = f"{metric}_{rows}" + "_wide" * wide
            found.setdefault(group, {}).update(
                {arm: round(float(np.mean([here[k] for k in both])), 4),
                 f"{arm}_gain": round(float(d.mean()), 4), f"{arm}_p": round(p, 4),
                 f"{arm}_seeds": len(both) // len(SITES)}
            )  # fmt: skip
    return found


#: Task of each metric; seeds that are looked for.
METRICS = {"auc": "classification", "ap": "classification", "c_index": "survival"}
SEEDS = 20


def main() -> None:
    """Run what is missing and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", metavar="FILE", type=Path, help="the IWG-PM cohort")
    parser.add_argument("--lines", type=Path, required=True, help="finished fits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=150, help="training rows of a site")
    parser.add_argument("--wide", action="store_true", help="six shared columns")
    parser.add_argument("--arms", nargs="*", default=[*BASES, *ARMS], choices=[*BASES, *ARMS])
    asks_out(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table, book = cohort(given.path), Book(given.lines)
    for seed in range(given.seeds):
        for task in ("classification", "survival"):
            for arm in given.arms:
                of = {"rows": given.rows, "wide": given.wide, "arm": arm, "task": task,
                      "seed": seed}  # fmt: skip
                if book.lacks(of):
                    book.write(of, run(table, task, seed, given.rows, given.wide, arm))
        keep(given.out, summary(book, given.rows, given.wide))


if __name__ == "__main__":
    main()
