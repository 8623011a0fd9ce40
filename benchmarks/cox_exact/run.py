"""W4: exact Cox regression, 50,000 rows x 20 covariates over 8 sites, against pooled fits.

    OMP_NUM_THREADS=1 python benchmarks/cox_exact/run.py [--rows 50000] [--repeats 5] [--out FILE]

All variants see the same arrays, in turns; the table shows medians and ratios. `fedcohort` runs
with ledger and journal, at exact times of death. `newton` is a pooled NumPy Newton on sorted
records, written for speed. Libraries that are not installed are named and left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from book import asks_out, keep

from fedcohort.algorithms.cox import METHOD
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local

SITES = 8


def simulate(rows, p, seed):
    """Exponential survival with 5 decimals (some ties), half of the records censored."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, p))
    x[:, ::4] = x[:, ::4] > 0.5
    beta = rng.normal(size=p) * 0.3
    death = rng.exponential(np.exp(-(x - x.mean(axis=0)) @ beta))
    leave = rng.exponential(np.median(death) * 1.5, size=rows)
    t = np.maximum(np.round(np.minimum(death, leave), 5), 1e-5)
    return SurvivalTable(x, t, death <= leave)


def newton(table, ties):
    """Pooled Newton-Raphson: each record's expected deaths give the sum of second moments."""
    order = np.argsort(-table.time, kind="stable")
    t, e = table.time[order], table.event[order]
    x = table.x[order] - table.x.mean(axis=0)
    last = np.flatnonzero(np.r_[t[1:] != t[:-1], True])
    group = np.cumsum(np.r_[False, t[1:] != t[:-1]])
    d_all = np.bincount(group, e)
    at = np.flatnonzero(d_all)
    d, rows = d_all[at].astype(int), last[at]
    dead = np.flatnonzero(e)
    k = np.repeat(np.arange(len(at)), d)
    f = (np.arange(len(k)) - np.repeat(np.cumsum(d) - d, d)) / d[k]
    starts = np.cumsum(d) - d
    x_dead, beta = x[dead].sum(axis=0), np.zeros(x.shape[1])
    while True:
        r = np.exp(x @ beta)
        rx = r[:, None] * x
        s0, s1 = np.cumsum(r)[rows], np.cumsum(rx, axis=0)[rows]
        expected = np.zeros(len(d_all))
        if ties == "breslow":
            m, weight = s1 / s0[:, None], d
            expected[at] = d / s0
            log_phi = (d * np.log(s0)).sum()
            share = np.cumsum(expected[::-1])[::-1][group]
        else:
            d0, d1 = np.add.reduceat(r[dead], starts), np.add.reduceat(rx[dead], starts, axis=0)
            phi = s0[k] - f * d0[k]
            m, weight = (s1[k] - f[:, None] * d1[k]) / phi[:, None], np.ones(len(k))
            expected[at] = np.bincount(k, 1 / phi)
            log_phi = np.log(phi).sum()
            share = np.cumsum(expected[::-1])[::-1][group]
            share[dead] -= np.bincount(k, f / phi)[k]
        score = x_dead - weight @ m
        information = (share[:, None] * rx).T @ x - (weight[:, None] * m).T @ m
        step = np.linalg.solve(information, score)
        if np.abs(step).max() < 1e-7:
            errors = np.sqrt(np.diag(np.linalg.inv(information)))
            return beta + step, errors, x_dead @ beta - log_phi
        beta = beta + step


def federated(table, ties):
    """Fit over sites, with ledger and journal."""
    where = np.arange(len(table.x)) % SITES
    hosts = [
        Host(f"site-{k}", SurvivalTable(*(a[where == k] for a in table[:3])), METHOD.steps)
        for k in range(SITES)
    ]
    task = Task(kind="survival", features=tuple(f"x{j}" for j in range(table.x.shape[1])))
    config = METHOD.configure({"ties": ties, "time_grid": "exact"})
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        fed = local(hosts, journal=Journal(Path(folder) / "journal"))
        model = METHOD.fit(fed, config, task)
        seconds = time.perf_counter() - began
    return seconds, (model.coefficients, model.standard_errors, model.log_likelihood)


def lifelines_fit(table, ties):
    """Fit with lifelines, which knows Efron's ties alone."""
    import pandas as pd
    from lifelines import CoxPHFitter

    frame = pd.DataFrame(table.x).assign(time=table.time, event=table.event)
    began = time.perf_counter()
    fit = CoxPHFitter().fit(frame, "time", "event")
    seconds = time.perf_counter() - began
    return seconds, (fit.params_.to_numpy(), fit.standard_errors_.to_numpy(), fit.log_likelihood_)


def sksurv_fit(table, ties):
    """Fit with scikit-survival, which gives coefficients alone."""
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.util import Surv

    y = Surv.from_arrays(table.event, table.time)
    began = time.perf_counter()
    fit = CoxPHSurvivalAnalysis(ties=ties, n_iter=100, tol=1e-12).fit(table.x, y)
    return time.perf_counter() - began, (fit.coef_, None, None)


def newton_fit(table, ties):
    began = time.perf_counter()
    result = newton(table, ties)
    return time.perf_counter() - began, result


VARIANTS = {
    "newton": (newton_fit, ("efron", "breslow")),
    "fedcohort": (federated, ("efron", "breslow")),
    "lifelines": (lifelines_fit, ("efron",)),
    "scikit-survival": (sksurv_fit, ("efron", "breslow")),
}


def measure(rows, covariates, repeats):
    """Run all variants in turns; return the table, seconds and results by (variant, ties)."""
    table = simulate(rows, covariates, seed=4)
    seconds, results = {}, {}
    for _ in range(repeats):
        for name, (run, rules) in VARIANTS.items():
            for ties in rules:
                try:
                    took, result = run(table, ties)
                except ImportError:
                    continue
                seconds.setdefault((name, ties), []).append(took)
                results[name, ties] = result
    return table, seconds, results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--covariates", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    asks_out(parser)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    table, seconds, results = measure(options.rows, options.covariates, options.repeats)
    figures = {}
    absent = sorted(set(VARIANTS) - {name for name, _ in seconds})
    print(
        f"{options.rows:,} rows x {options.covariates}, {int(table.event.sum()):,} deaths at "
        f"{len(np.unique(table.time[table.event])):,} times, {SITES} sites, median of "
        f"{options.repeats}; absent: {', '.join(absent) or 'none'}"
    )
    print(
        f"{'variant':<18}{'ties':<10}{'seconds':>9}{'x newton':>10}{'x lifelines':>13}"
        f"{'max |difference| of coefficients, errors, log-likelihood':>60}"
    )
    for (name, ties), took in seconds.items():
        mid = median(took)
        lifelines = seconds.get(("lifelines", "efron"))
        against = f"{mid / median(lifelines):13.2f}" if lifelines else f"{'-':>13}"
        gaps = [
            np.abs(a - b).max() if a is not None else np.nan
            for a, b in zip(results[name, ties], results["newton", ties], strict=True)
        ]
        if np.nanmax(gaps) > 1e-5:
            raise SystemExit(f"{name} and newton disagree with {ties} ties: {gaps}")
        print(
            f"{name:<18}{ties:<10}{mid:9.3f}{mid / median(seconds['newton', ties]):10.2f}"
            f"{against}{'':>24}" + "".join(f"{g:12.1e}" for g in gaps)
        )
        figures[f"{name}_{ties}"] = {
            "seconds": round(mid, 3),
            "newton": round(mid / median(seconds["newton", ties]), 3),
            **({"lifelines": round(mid / median(lifelines), 3)} if lifelines else {}),
        }
    keep(options.out, figures, load)


if __name__ == "__main__":
    main()
