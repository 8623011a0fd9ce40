"""Cost of many sites: fits of the same rows over 4 to 1,000 sites, and a study of 200 hospitals.

    OMP_NUM_THREADS=1 python benchmarks/scale/sites.py table [--repeats 1] [--out FILE]
    OMP_NUM_THREADS=1 python benchmarks/scale/sites.py study [--out FILE]
    OMP_NUM_THREADS=1 python benchmarks/scale/sites.py memory [--out FILE]

`table`   processor time of a fit (preprocessing and program, ledger and journal on), the numbers of
          sites in turns; the least of the repeats. Accepted: 40 sites at most 1.3, 1,000 sites at
          most 3 times 4 sites.
`study`   `fedcohort run` of three study files over 200 sites x 500 rows, whole time.
`memory`  most memory that a sum of models allocates, exact and masked, by number of sites.
          Accepted for exact sums: 1,000 sites at most 1.2 times 10.

Exits with 1 where a value is not accepted.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))
from book import asks_out, keep

import fedcohort as fc
from fedcohort.protocol import Site, message, registry, summed
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.study.run.engine import Problem, fit_once

SITES = (4, 40, 200, 1000)
MOST = {40: 1.3, 1000: 3.0}
#: By method: its outcome, and settings.
FITS = {
    "cox": ("cox", fc.Survival("time", "event"), {}),
    "cox_exact": ("cox", fc.Survival("time", "event"), {"time_grid": "exact"}),
    "logistic": ("logistic", fc.Binary("y"), {}),
    "ridge": ("ridge", fc.Continuous("v"), {"penalty": 0.1}),
    "kmeans": ("kmeans", None, {"n_clusters": 3}),
    "describe": ("describe", None, {}),
    "boosting": ("boosting", fc.Binary("y"), {"rounds": 10}),
}
OUTCOMES = ("time", "event", "y", "v")


def simulate(rows, p, sites, seed=0):
    """Three groups of rows in p numbers; survival, a class and a value of five of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, p)) + 2.5 * rng.normal(size=(3, p))[rng.integers(0, 3, rows)]
    eta = (x - x.mean(axis=0))[:, :5] @ np.array([0.5, -0.4, 0.3, 0.2, -0.2]) / 3.0
    death = np.maximum(rng.exponential(np.exp(-eta)), 1e-3)
    leave = rng.exponential(1.5, size=rows) + 1e-3
    table = pd.DataFrame(x.round(4), columns=[f"x{j:02d}" for j in range(p)])
    table["time"], table["event"] = np.minimum(death, leave).round(3), (death <= leave).astype(int)
    table["y"] = (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(int)
    table["v"] = (eta + rng.normal(size=rows)).round(4)
    return table.assign(hospital=[f"h{k:04d}" for k in np.arange(rows) % sites])


def fitted(name, table):
    """Return the processor seconds of one fit, with its journal."""
    method, outcome, settings = FITS[name]
    kept = outcome.columns if outcome else ()
    table = table.drop(columns=[c for c in OUTCOMES if c not in kept])
    cohort = fc.simulate(table, sites="hospital", outcome=outcome, seed=0)
    entry, problem = registry.find(method), Problem(cohort.frames, cohort.dictionary, outcome)
    if problem.kind not in entry.tasks:
        problem = problem.aside_of(entry.tasks[0])
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        book = Path(folder) / "journal"
        fit_once(problem, entry, settings, dict(entry.preprocess), 0, journal=book)
        return time.process_time() - began


def by_sites(options):
    """Return the times of all methods, and whether all are accepted."""
    figures, fine = {}, True
    for name in options.methods.split(","):
        took = {}
        fitted(name, simulate(800, options.columns, 4))
        for _ in range(options.repeats):
            for sites in SITES:
                one = fitted(name, simulate(options.rows, options.columns, sites))
                took[sites] = min(one, took.get(sites, one))
        ratio = {s: t / took[4] for s, t in took.items()}
        missed = [s for s, most in MOST.items() if ratio[s] > most]
        fine &= not missed
        print(
            f"{name:<10}" + "".join(f"{s:>7} sites{took[s]:8.2f} s{ratio[s]:7.2f}" for s in took),
            f"  missed at {missed}" if missed else "  met", flush=True,
        )  # fmt: skip
        figures[f"table_{name}"] = {
            "seconds_at_4": round(took[4], 3),
            **{f"at_{s}": round(r, 2) for s, r in ratio.items()},
        }
        keep(options.out, figures)
    return figures, fine


STUDY = """study: {name}
task: {task}
data:
  source: {table}
  {outcome}
  sites: {{column: hospital}}
arms:
{arms}
evaluate: {{test_fraction: 0.25, repeats: 1}}
"""
STUDIES = {
    "survival": ("outcome: {time: time, event: event}",
                 ["{method: cox}", "{method: deepcox, strategy: fedavg, rounds: 10}",
                  "{method: boosting, rounds: 20}"]),
    "classification": ("outcome: {y: y}", ["{method: logistic}", "{method: boosting, rounds: 20}"]),
    "clustering": ("", ["{method: kmeans, n_clusters: 3}"]),
}  # fmt: skip


def studies(options):
    """Return the whole time and memory of each study over 200 sites."""
    figures, fine = {}, True
    with tempfile.TemporaryDirectory() as folder:
        for task, (outcome, arms) in STUDIES.items():
            kept = {"survival": ("time", "event"), "classification": ("y",)}.get(task, ())
            data = simulate(options.sites * options.rows_of_site, options.columns, options.sites)
            data = data.drop(columns=[c for c in OUTCOMES if c not in kept])
            table, study = Path(folder) / f"{task}.csv", Path(folder) / f"{task}.yaml"
            data.to_csv(table, index=False)
            study.write_text(STUDY.format(
                name=task, task=task, table=table, outcome=outcome,
                arms="\n".join(f"  - {arm}" for arm in arms),
            ))  # fmt: skip
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            done = subprocess.run(
                [str(Path(sys.executable).parent / "fedcohort"), "run", str(study),
                 "--out", f"{folder}/{task}", "--workers", "1"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            wall = time.perf_counter() - began
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            fine &= done.returncode == 0
            print(
                f"{task:<16}{wall:8.1f} s{cpu:8.1f} s of the processor, most memory so far "
                f"{after.ru_maxrss / 1024:.0f} MB", done.stderr[-500:] if done.returncode else "",
                flush=True,
            )  # fmt: skip
            figures[f"study_{task}"] = {
                "seconds": round(wall, 1),
                "cpu": round(cpu, 1),
                "megabytes": round(after.ru_maxrss / 1024),
            }
            keep(options.out, figures)
    return figures, fine


@message(parameters=("theta",))
class Model:
    """θ (P,)."""

    theta: np.ndarray


@summed
def trained(site: Site[int, None], *, theta: np.ndarray) -> Model:
    """Return a model."""
    return Model(theta + site.data)


def memory(options):
    """Return the most memory of a sum of models by number of sites, in models."""
    figures, fine, p = {}, True, options.parameters
    for secure, counts in (("auto", (10, 100, 1000)), ("true", (5, 10, 20))):
        found = {}
        for n in counts:
            hosts = [Host(f"h{k:04d}", k, (trained,)) for k in range(n)]
            fed = local(hosts, secure=secure)
            fed.sum(trained, theta=np.zeros(10))
            tracemalloc.start()
            fed.sum(trained, theta=np.zeros(p))
            found[n] = tracemalloc.get_traced_memory()[1] / (8 * p)
            tracemalloc.stop()
        print(secure, {n: round(m, 2) for n, m in found.items()}, "models", flush=True)
        if secure == "auto":
            fine &= found[1000] <= 1.2 * found[10]
        figures[f"memory_{secure}"] = {f"at_{n}": round(m, 2) for n, m in found.items()}
    return figures, fine


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("table", "study", "memory"))
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--methods", default=",".join(FITS))
    parser.add_argument("--sites", type=int, default=200)
    parser.add_argument("--rows-of-site", type=int, default=500)
    parser.add_argument("--parameters", type=int, default=100_000)
    asks_out(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    figures, fine = {"table": by_sites, "study": studies, "memory": memory}[options.part](options)
    keep(options.out, figures)
    raise SystemExit(0 if fine else 1)


if __name__ == "__main__":
    main()
