"""`strategies`: `boosting` by its strategies, beside isolated sites, pooled data and linear fits.

Of each table a quarter of the rows is held out, the rest is spread over sites. Arms:

    histogram, top-s, bagging, cyclic   strategies of `boosting`
    full        bagging with η times the number of sites: Flower's default, which adds trees in full
    turns       cyclic with as many rounds as sites times 60
    isolated    each site's own fit; mean over sites that can fit one
    pooled      `boosting` with all rows as one table
    xgboost     XGBoost with all rows as one table, 64 bins by its own sketch
    linear      `logistic`, `cox` or `ridge` over the sites

Of the strategies also: bytes that a site sends in mean, those of them that the coordinator sees
site by site (`seen`), and the number of calls. Claims: on each table `histogram` differs from
`pooled` and from `xgboost` by at most 0.001 of AUC (what was asked), 0.01 of C, and 5 % of the root
mean squared error, in mean over seeds. `central` measures AUC with more seeds, and where a
difference comes from.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from book import Book, keep
from cases import GIVEN, RATE, ROUNDS, Case, asked, cases, means, sent

import fedcohort as fc

#: Largest difference from pooled data, by metric; of rmse as a share.
CLOSE = {"auc": 0.001, "c_index": 0.01, "rmse": 0.05}
STRATEGIES = ("histogram", "top-s", "bagging", "cyclic")
ARMS = (*STRATEGIES, "full", "turns", "isolated", "pooled", "xgboost", "linear")


def measured(case: Case, seed: int) -> dict[str, float]:
    """Return the figures of each arm, of one draw of rows and sites."""
    train, test = case.drawn(seed)
    sites = case.over_sites(train, seed)
    fed = fc.simulate(sites, outcome=case.outcome, seed=seed)
    found: dict[str, float] = {}
    others: dict[str, dict[str, Any]] = {
        "full": {"strategy": "bagging", "learning_rate": min(RATE * len(sites), 1.0)},
        "turns": {"strategy": "cyclic", "rounds": ROUNDS * len(sites)},
    }
    for arm in (*STRATEGIES, *others):
        options: dict[str, Any] = {**GIVEN, **others.get(arm, {"strategy": arm})}
        began = time.process_time()
        fit = fc.fit("boosting", fed, **options)
        found[arm] = case.score(test, fit.predict(test))
        found[f"{arm}_cpu_s"] = time.process_time() - began
        found |= {f"{arm}_{name}": value for name, value in sent(fit, len(sites)).items()}
    pooled = fc.fit("boosting", fed, strategy="centralised", **GIVEN)
    found["pooled"] = case.score(test, pooled.predict(test))
    x, z = case.features(train, test)
    found["xgboost"] = case.score(test, case.by_xgboost(x, train, z))
    found["linear"] = case.score(test, fc.fit(case.linear, fed).predict(test))
    alone: list[float] = []
    for site, own in sites.items():
        single = fc.simulate({site: own}, outcome=case.outcome, seed=seed)
        try:
            alone.append(case.score(test, fc.fit("boosting", single, **GIVEN).predict(test)))
        except fc.FedcohortError as error:
            print(f"{case.group} {site} alone: {error}", flush=True)
    found |= {"isolated": float(np.mean(alone)), "isolated_sites": float(len(alone))}
    return found


def figures(case: Case, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means and standard deviations over seeds."""
    table = pd.DataFrame(rows)
    out: dict[str, Any] = {"metric": case.metric, "seeds": len(rows), **means(rows, ARMS)}
    out |= {str(k): round(float(v.mean()), 1) for k, v in table.items() if k not in ARMS}
    for other in ("pooled", "xgboost", "top-s", "bagging", "cyclic"):
        out[f"gap_{other}"] = round(float((table["histogram"] - table[other]).mean()), 4)
    return out


def run(given: argparse.Namespace, book: Book) -> int:
    """Print a row for each table; return the number of claims that do not hold."""
    broken = 0
    print(" " * 22 + " ".join(f"{arm:>10}" for arm in ARMS))
    for case in cases(given.data):
        if not asked(case, given.only):
            continue
        of = {"part": "strategies", "case": case.group}
        rows = book.of_seeds(of, given.seeds, partial(measured, case))
        found = figures(case, rows)
        print(f"{case.group:22}" + " ".join(f"{found[arm]:10.4f}" for arm in ARMS))
        for name in ("kb", "seen_kb", "calls"):
            shown = [found.get(f"{arm}_{name}", float("nan")) for arm in ARMS]
            print(f"{name:>22}" + " ".join(f"{value:10.1f}" for value in shown))
        limit = CLOSE[case.metric] * (found["pooled"] if case.metric == "rmse" else 1)
        for other in ("pooled", "xgboost"):
            if abs(found[f"gap_{other}"]) > limit:
                broken += 1
                print(f"{case.group}: histogram differs from {other} by {found[f'gap_{other}']}")
        keep(given.out, {case.group: found})
    return broken
