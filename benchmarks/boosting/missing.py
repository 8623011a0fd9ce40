"""`missing`: values that are missing at random, in training and test rows alike.

Of the known cells of the covariates 0, 10, 30 or 50 % are taken away: `mcar` each with the same
chance; `mar` each with a chance in proportion to the rank of another column, which stays complete
(heart cp, housing x12, gbsg2 pnodes, diabetes bmi). A quarter of the rows is held out, the others
are at 2 sites; trees from sums are the same bits over any sites. Heart has 14 % of missing cells
before.

    learned     `boosting`: missing values go to the side that gains more
    median, iterative   `boosting` on values filled by the preprocessing over sites
    xgboost     XGBoost with all rows as one table, NaN where missing
    linear, linear_iterative   `logistic`, `cox` or `ridge`, filled by medians (the default), or
                iteratively; where it refuses a column with few values that differ, or
                separated classes, with a min_cell of 1 or an l2 of 0.01
    forest      `forest` with its default, medians

Differences are learned − arm, intervals over draws of rows and gaps, widened for the rows that
draws share (Nadeau and Bengio). Claim: nowhere is `learned` worse than `median`, with an interval
that excludes 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from book import Book, keep
from cases import GIVEN, Case, asked, gap, heart, linear, means, packaged, told, uci, worse

import fedcohort as fc

SHARES = (0, 10, 30, 50)
HOW = ("mcar", "mar")
#: Complete columns on which the chance depends.
DRIVERS = {"heart": "cp", "housing": "x12", "gbsg2": "pnodes", "diabetes": "bmi"}
ARMS = ("learned", "median", "iterative", "xgboost", "linear", "linear_iterative", "forest")


def complete(folder: Path | None) -> Iterator[Case]:
    """Yield the tables."""
    if folder is not None:
        yield heart(folder)
        yield uci(folder, "housing", fc.Continuous("y"), "iid")
    yield from packaged()


def taken(case: Case, how: str, percent: int, seed: int) -> Case:
    """Return a table with cells taken away."""
    frame, rng = case.frame.copy(), np.random.default_rng((seed, percent, HOW.index(how)))
    driver = DRIVERS[case.name]
    rank = frame[driver].rank(method="average").to_numpy(float) / len(frame)
    kept = {*case.outcome.columns, case.site_column, *([driver] if how == "mar" else [])}
    chance = percent / 100 * (2 * rank if how == "mar" else np.ones(len(frame)))
    for name in frame.columns:
        if name not in kept:
            frame[name] = frame[name].mask(rng.random(len(frame)) < chance)
    return Case(case.name, frame, case.outcome, case.rule, case.sites, case.site_column)


def measured(whole: Case, how: str, percent: int, seed: int) -> dict[str, float]:
    """Return the metric of each arm, and the share of missing cells, once cells are taken."""
    case = taken(whole, how, percent, seed)
    train, test = case.drawn(seed)
    fed = fc.simulate(case.over_two(train), outcome=case.outcome, seed=seed)
    learned = fc.fit("boosting", fed, **GIVEN)
    fits = {"learned": learned}
    for impute in ("median", "iterative"):
        fits[impute] = fc.fit("boosting", fed, impute=impute, **GIVEN)
    fits["forest"] = fc.fit("forest", fed)
    fits["linear"], refused = linear(case, fed)
    fits["linear_iterative"], also = linear(case, fed, impute="iterative")
    found = {arm: case.score(test, fit.predict(test)) for arm, fit in fits.items()}
    x, z = (learned.parts.design.matrix(frame) for frame in (train, test))
    found["xgboost"] = case.score(test, case.by_xgboost(x, train, z))
    return found | {"missing": float(np.isnan(x).mean()), "linear_refused": refused + also}


def run(given: argparse.Namespace, book: Book) -> int:
    """Print the metrics by share of missing cells; return the number of broken claims."""
    broken = 0
    print(" " * 22 + " ".join(f"{arm[:10]:>10}" for arm in ARMS))
    for case in complete(given.data):
        if not asked(case, given.only):
            continue
        settings = [(how, p) for how in HOW for p in SHARES if p or how == "mcar"]
        for how, percent in settings:
            of = {"part": "missing", "case": case.name, "how": how, "of": percent}
            rows = book.of_seeds(of, given.seeds, partial(measured, case, how, percent))
            found: dict[str, Any] = {"metric": case.metric, "seeds": len(rows)}
            found |= means(rows, ARMS)
            table = pd.DataFrame(rows)
            found["missing"] = round(float(table["missing"].mean()), 3)
            found["linear_refused"] = int(table["linear_refused"].sum())
            for arm in ARMS[1:]:
                found |= told(f"gap_{arm}", gap(rows, "learned", arm, case.ratio))
            name = f"{case.name}_{how}_{percent}"
            print(f"{name:22}" + " ".join(f"{found[arm]:10.4f}" for arm in ARMS))
            for end in ("", "_low", "_high"):
                shown = [found[f"gap_{arm}{end}"] for arm in ARMS[1:]]
                print(
                    f"{'learned − arm' + end:>33}" + "".join(f"{value:+11.4f}" for value in shown)
                )
            if worse(gap(rows, "learned", "median", case.ratio), case.metric):
                broken += 1
                print(f"{name}: learned is worse than median")
            keep(given.out, {f"missing_{name}": found})
    return broken
