"""`bins`: `boosting` with 16 to 256 bins, beside XGBoost's hist with the same `max_bin`.

Of each table a quarter of the rows is held out; 4 sites (heart: its hospitals; METABRIC 8).
drawn_8000: rows with 50 numbers, judged on 20,000 fresh ones (`central`). By number of bins: the
metric of `boosting` over sites and of XGBoost with all rows as one table; kilobytes that a site
sends in mean; seconds of the processor of both fits, in turns in one process with one thread (a fit
over sites includes preprocessing and ledger, and the work of all sites), and their ratio.

Differences: of the metric from that with 64 bins, and from XGBoost with as many; intervals are over
draws of rows, widened for the rows that they share (Nadeau and Bengio). Claim: nowhere are the
default's 64 bins worse than 128 or 256, with an interval that excludes 0.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from book import Book, keep
from cases import GIVEN, Case, asked, deepsurv, gap, heart, packaged, sent, told, uci, worse
from central import Drawn

import fedcohort as fc

BINS, USUAL = (16, 32, 64, 128, 256), 64


def spread(folder: Path | None) -> Iterator[Case]:
    """Yield the tables."""
    yield from packaged()
    yield Drawn("drawn_8000", pd.DataFrame(), fc.Binary("y"), "iid", 8)
    if folder is not None:
        yield heart(folder)
        yield uci(folder, "banknote_authentication", fc.Binary("y"), "iid")
        yield uci(folder, "housing", fc.Continuous("y"), "iid")
        yield deepsurv(folder, "metabric", "iid")


def measured(case: Case, seed: int) -> dict[str, float]:
    """Return metric, kilobytes and seconds for each number of bins."""
    train, test = case.drawn(seed)
    sites = case.over_sites(train, seed)
    fed = fc.simulate(sites, outcome=case.outcome, seed=seed)
    x, z = case.features(train, test)
    found: dict[str, float] = {}
    for bins in BINS:
        began = time.process_time()
        fit = fc.fit("boosting", fed, max_bins=bins, **GIVEN)
        found[f"ours_{bins}_s"] = time.process_time() - began
        found[f"ours_{bins}"] = case.score(test, fit.predict(test))
        found[f"kb_{bins}"] = sent(fit, len(sites))["kb"]
        began = time.process_time()
        theirs = case.by_xgboost(x, train, z, bins)
        found[f"xgboost_{bins}_s"] = time.process_time() - began
        found[f"xgboost_{bins}"] = case.score(test, theirs)
    return found


def run(given: argparse.Namespace, book: Book) -> int:
    """Print a table for each case; return the number of broken claims."""
    broken = 0
    for case in spread(given.data):
        if not asked(case, given.only):
            continue
        of = {"part": "bins", "case": case.name}
        rows = book.of_seeds(of, given.seeds, partial(measured, case))
        table = pd.DataFrame(rows)
        found: dict[str, Any] = {"metric": case.metric, "seeds": len(rows)}
        print(f"{case.name}, {case.metric}\n bins     ours  xgboost       kB  ratio")
        for bins in BINS:
            ratio = table[f"ours_{bins}_s"] / table[f"xgboost_{bins}_s"]
            found |= {
                f"ours_{bins}": round(float(table[f"ours_{bins}"].mean()), 4),
                f"xgboost_{bins}": round(float(table[f"xgboost_{bins}"].mean()), 4),
                f"kb_{bins}": round(float(table[f"kb_{bins}"].mean()), 0),
                f"seconds_{bins}": round(float(np.median(table[f"ours_{bins}_s"])), 2),
                f"ratio_{bins}": round(float(np.median(ratio)), 1),
                **told(f"gap_{bins}", gap(rows, f"ours_{bins}", f"xgboost_{bins}", case.ratio)),
                **told(f"change_{bins}", gap(rows, f"ours_{bins}", f"ours_{USUAL}", case.ratio)),
            }
            shown = [found[f"{name}_{bins}"] for name in ("ours", "xgboost", "kb", "ratio")]
            print(
                f"{bins:5d} {shown[0]:8.4f} {shown[1]:8.4f} {shown[2]:8.0f} {shown[3]:6.1f}", end=""
            )
            for name in ("gap", "change"):
                mean, low, high = (found[f"{name}_{bins}{end}"] for end in ("", "_low", "_high"))
                print(f"  {name} {mean:+.4f} ({low:+.4f} to {high:+.4f})", end="")
            print()
            usual = gap(rows, f"ours_{USUAL}", f"ours_{bins}", case.ratio)
            if bins > USUAL and worse(usual, case.metric):
                broken += 1
                print(f"{case.name}: {USUAL} bins are worse than {bins}")
        keep(given.out, {f"bins_{case.name}": found})
    return broken
