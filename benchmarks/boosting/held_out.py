"""`held-out`: fits judged at a hospital that took no part in training.

The rows are spread over sites (heart: its four hospitals; METABRIC, SUPPORT and the MDS cohort: 8
sites, divided by the most predictive feature). Each site is left out in turn, or with `--left N`
the first N: a seed draws 80 % of the rows of each other site to train on, and all rows of the site
that is left out are judged.

    histogram, top-s, bagging   strategies of `boosting` over the training sites
    isolated    `boosting` at each training site alone; mean of their metrics
    forest      `forest` over the training sites
    linear      `logistic` or `cox` over the training sites; where it refuses a column with few
                values that differ, or separated classes, with a min_cell of 1 or an l2 of 0.01
    xgboost     XGBoost with all training rows as one table

Differences are histogram − arm. At one site the interval is over 1,000 draws of its patients, for
the mean over seeds: it is about other patients of this hospital. Over sites it is that of a mean
over hospitals, widened for the training rows that they share (Nadeau and Bengio): it is about
another hospital. Claim: on each table `histogram` is above `isolated` over sites, and the interval
excludes 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from book import Book, keep
from cases import GIVEN, Case, asked, deepsurv, heart, linear, mds, told

import fedcohort as fc
from fedcohort.metrics.intervals import paired, paired_draws
from fedcohort.metrics.resampled import harrell, multiplicities

SHARE, DRAWS = 0.8, 1000
STRATEGIES = ("histogram", "top-s", "bagging")
ARMS = (*STRATEGIES, "isolated", "forest", "linear", "xgboost")


def spread(given: argparse.Namespace) -> Iterator[Case]:
    """Yield the tables."""
    yield heart(given.data)
    yield mds(given.data, "by-feature")
    for name in ("metabric", "support"):
        yield deepsurv(given.data, name, "by-feature")


class Judge:
    """The metric on one site's rows, and in draws of them, the same for all arms."""

    def __init__(self, case: Case, test: pd.DataFrame):
        y = case.outcomes(test)
        # pairs of a case and a control are those of an early death and a late one
        self.time, self.event = (1 - y[0], y[0]) if len(y) == 1 else (y[0], y[1])
        rng = np.random.default_rng(0)
        self.weights = np.vstack([np.ones(len(test)), multiplicities(len(test), DRAWS, rng)])

    def __call__(self, found: Any) -> np.ndarray:
        """Return the metric of predictions (n,): as it is, then in each draw (1 + B,)."""
        return harrell(self.weights, np.asarray(found, float), self.time, self.event)


def measured(case: Case, left: str, seed: int) -> dict[str, Any]:
    """Return the metric of each arm at a site that is left out, and in draws of its rows."""
    sites = case.over_sites(case.frame, 0)
    # types of columns from all rows: the training rows alone may lack a column's other values
    known = fc.simulate(sites, outcome=case.outcome).dictionary
    test, rng = sites.pop(left), np.random.default_rng(seed)
    sites = {
        site: rows.iloc[np.sort(rng.permutation(len(rows))[: round(SHARE * len(rows))])]
        for site, rows in sorted(sites.items())
    }
    fed = fc.simulate(sites, outcome=case.outcome, dictionary=known, seed=seed)
    judge = Judge(case, test)
    found: dict[str, np.ndarray] = {}
    for arm in STRATEGIES:
        found[arm] = judge(fc.fit("boosting", fed, strategy=arm, **GIVEN).predict(test))
    found["forest"] = judge(fc.fit("forest", fed).predict(test))
    fit, refused = linear(case, fed)
    found["linear"] = judge(fit.predict(test))
    train = pd.concat(sites.values(), ignore_index=True)
    x, z = case.features(train, test)
    found["xgboost"] = judge(case.by_xgboost(x, train, z))
    alone: list[np.ndarray] = []
    for site, own in sites.items():
        try:
            single = fc.simulate({site: own}, outcome=case.outcome, dictionary=known, seed=seed)
            alone.append(judge(fc.fit("boosting", single, **GIVEN).predict(test)))
        except fc.FedcohortError as error:
            print(f"{case.name} {site} alone: {error}", flush=True)
    found["isolated"] = np.mean(alone, axis=0)
    out: dict[str, Any] = {arm: float(values[0]) for arm, values in found.items()}
    out |= {"rows": len(test), "isolated_sites": len(alone), "linear_refused": int(refused)}
    return out | {f"{arm}_draws": np.round(v[1:], 5).tolist() for arm, v in found.items()}


def at_site(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means over seeds at one site, and differences over draws of its patients."""
    table = pd.DataFrame(rows)
    out: dict[str, Any] = {"seeds": len(rows), "rows": int(table["rows"].iloc[0])}
    for arm in ARMS:
        out[arm] = round(float(table[arm].mean()), 4)
        out[f"{arm}_sd"] = round(float(table[arm].std(ddof=1)), 4) if len(rows) > 1 else 0.0
    out["linear_refused"] = int(table["linear_refused"].sum())
    draws = {arm: np.array(table[f"{arm}_draws"].tolist()) for arm in ARMS}
    for arm in ARMS[1:]:
        mean = float((table["histogram"] - table[arm]).mean())
        out |= told(f"gap_{arm}", paired_draws(draws["histogram"], draws[arm], mean))
    return out


def run(given: argparse.Namespace, book: Book) -> int:
    """Print the metrics at each site that is left out; return the number of broken claims."""
    broken = 0
    if given.data is None:
        raise SystemExit("held-out: no tables. Give their folder with --data.")
    print(" " * 24 + " ".join(f"{arm:>10}" for arm in ARMS))
    for case in spread(given):
        if not asked(case, given.only):
            continue
        every_site = sorted(case.over_sites(case.frame, 0))
        left = every_site[: given.left]
        found: dict[str, dict[str, Any]] = {}
        for site in left:
            of = {"part": "held-out", "case": case.name, "site": site}
            found[site] = at_site(book.of_seeds(of, given.seeds, partial(measured, case, site)))
            shown(f"{case.name} {site} ({found[site]['rows']})", found[site])
        table = pd.DataFrame(found).T
        every: dict[str, Any] = {"metric": case.metric, "sites": len(left), "seeds": given.seeds}
        every |= {arm: round(float(table[arm].mean()), 4) for arm in ARMS}
        every |= {f"{arm}_sd": round(float(table[arm].std(ddof=1)), 4) for arm in ARMS}
        for arm in ARMS[1:]:
            of = paired(table["histogram"], table[arm], 1 / (len(every_site) - 1))
            every |= told(f"gap_{arm}", of)
        shown(f"{case.name}, {len(left)} sites", every)
        if not every["gap_isolated_low"] > 0:
            broken += 1
            print(f"{case.name}: histogram is not above isolated sites, or not beyond doubt")
        figures = {f"held_out_{case.name}_{site}": of for site, of in found.items()}
        keep(given.out, {**figures, f"held_out_{case.name}": every})
    return broken


def shown(name: str, found: dict[str, Any]) -> None:
    """Print the arms, and differences with their intervals."""
    print(f"{name:24}" + " ".join(f"{found[arm]:10.4f}" for arm in ARMS))
    for end in ("", "_low", "_high"):
        of = [found[f"gap_{arm}{end}"] for arm in ARMS[1:]]
        print(f"{'histogram − arm' + end:>35}" + "".join(f" {value:+10.4f}" for value in of))
