"""D6.2's own grid (8.3.1) where federated averaging fell short of the ensemble: METABRIC.

    python benchmarks/d62_survival/grid.py --metabric FILE --out DIR

D6.2 searched federated epochs, internal epochs, internal batches and the initial rate, and put L1
and L2 on the first layer; it prints no values. study.yaml searches federated epochs and the rate,
at 5 internal epochs, one batch and no penalty. Here, on study.yaml's sites, splits and folds (one
centre left out):

    fedavg     internal_epochs 1, 2, 5, 10 × internal_batches 1, 4 × rate 0.01, 0.03
               × rounds up to 80, 40, 40, 20 by internal epochs; half as many with four batches
    ensemble   internal_epochs 5 × internal_batches 1, 4 × rate 0.003, 0.01 × rounds up to 20, 10
    both       then l1 and l2, each 0 or 0.01, × rate × rounds, at the epochs and batches of the
               best score without them

An ensemble has no federated epochs: rounds × internal epochs are the passes of each site over its
rows.

The choice of a strategy is the best score over the left-out centres of the first split, once, as in
study.yaml. Then it is fitted and judged on 20 splits, beside the choice of study.yaml's grid. Each
finished part of a search is a line of `DIR/grid.jsonl` and is not searched again; the judged
choices are written to `DIR/grid.json`. Differences are over splits; as the splits share rows, their
variance is corrected (Nadeau & Bengio, Mach. Learn. 52, 2003: 1/20 + 1/3 in the place of 1/20).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tables
import yaml
from scipy.stats import t

import fedcohort as fc

sys.path.append(str(Path(__file__).parents[1]))
from book import Book, keep

HERE = Path(__file__).parent
SCENARIOS = ("by-outcome", "by-feature")
#: Rounds to choose from by internal epochs, with one batch.
ROUNDS = {1: (5, 10, 20, 40, 80), 2: (5, 10, 20, 40), 5: (3, 5, 10, 20, 40), 10: (3, 5, 10, 20)}
ENSEMBLE = (2, 5, 10, 20)
RATES = {"fedavg": (0.01, 0.03), "ensemble": (0.003, 0.01)}
#: λ₁ and λ₂ of the first layer.
PENALTIES = ((0.01, 0.01), (0.0, 0.01), (0.01, 0.0))
#: Settings that study.yaml fixes.
FIXED = {"internal_epochs": 5, "internal_batches": 1, "l1": 0.0, "l2": 0.0}
REPEATS, TEST = 20, 0.25


def parts() -> Iterator[tuple[dict[str, Any], tuple[int, ...]]]:
    """Yield the fixed settings and the rounds of each part without penalties."""
    for b in (1, 4):
        for e, rounds in ROUNDS.items():
            yield _part("fedavg", e, b, rounds)
        yield _part("ensemble", 5, b, ENSEMBLE)


def _part(
    strategy: str, epochs: int, batches: int, rounds: tuple[int, ...]
) -> tuple[dict[str, Any], tuple[int, ...]]:
    few = tuple(r for r in rounds if batches == 1 or 2 * r <= rounds[-1])
    fixed = {"strategy": strategy, "internal_epochs": epochs, "internal_batches": batches}
    return fixed | {"l1": 0.0, "l2": 0.0}, few


def study(given: argparse.Namespace, name: str, scenario: str, changed: dict[str, Any]) -> fc.Study:
    """Return study.yaml on METABRIC and one scenario, with other entries."""
    content = yaml.safe_load((HERE / "study.yaml").read_text())
    del content["tune"]
    content |= {"bounds": []} | changed
    source = (given.out / "metabric.csv").resolve()
    content |= {"study": f"d62-grid-{name}", "scenarios": [scenario]}
    content["data"] |= {"source": str(source), "outcome": {"time": "time", "event": "event"}}
    path = given.out / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return fc.Study.from_file(path)


def run(given: argparse.Namespace, name: str, scenario: str, changed: dict[str, Any]) -> fc.Results:
    """Run such a study in one process, or go on with it, or read it."""
    folder = given.out / name
    if (folder / "results.json").exists():
        return fc.Results.from_folder(folder)
    made = study(given, name, scenario, changed)
    return made.run(folder, resume=(folder / ".work").exists(), workers=1)


def search(given: argparse.Namespace) -> None:
    """Score each part of the grid."""
    book = Book(given.out / "grid.jsonl")
    for (fixed, rounds), scenario in itertools.product(parts(), SCENARIOS):
        score(given, book, {"scenario": scenario, **fixed}, rounds)
    for strategy, scenario in itertools.product(RATES, SCENARIOS):
        plain = best(given, scenario, strategy, l1=0.0, l2=0.0)["of"]
        rounds = {json.dumps(f): r for f, r in parts()}
        own = rounds[json.dumps({k: v for k, v in plain.items() if k != "scenario"})]
        for l1, l2 in PENALTIES:
            score(given, book, plain | {"l1": l1, "l2": l2}, own)


def score(
    given: argparse.Namespace, book: Book, of: dict[str, Any], rounds: tuple[int, ...]
) -> None:
    """Score rates and rounds at fixed settings, if that is not done."""
    if not book.lacks(of):
        return
    start = time.process_time()
    fixed = {k: v for k, v in of.items() if k != "scenario"}
    changed = {
        "arms": [{"method": "deepcox", **fixed}],
        "evaluate": {"test_fraction": TEST, "repeats": 1},
        "tune": {
            "by": "centre-kfold",
            "grid": {"rounds": [*rounds], "learning_rate": [*RATES[of["strategy"]]]},
        },
    }
    results = run(given, "-".join(map(str, of.values())), of["scenario"], changed)
    (found,) = results.content["tuning"]
    tried = [[*x["settings"].values(), x["score"]] for x in found["tried"]]
    book.write(of, {"score": found["score"], "chosen": found["chosen"], "tried": tried}
               | {"cpu": time.process_time() - start})  # fmt: skip


def best(given: argparse.Namespace, scenario: str, strategy: str, **fixed: float) -> dict[str, Any]:
    """Return the line of the best score of a strategy, among those with the fixed settings."""
    wanted = {"scenario": scenario, "strategy": strategy, **fixed}
    lines = [json.loads(line) for line in (given.out / "grid.jsonl").read_text().splitlines()]
    own = [x for x in lines if wanted.items() <= x["of"].items()]
    return max(own, key=lambda x: x["score"])


def judge(given: argparse.Namespace, scenario: str) -> None:
    """Judge the choices of both grids on the same splits; print and keep them."""
    arms: dict[str, dict[str, Any]] = {}
    figures: dict[str, Any] = {}
    for strategy in RATES:
        for name, fixed in ((strategy, FIXED), (f"{strategy}_grid", {})):
            line = best(given, scenario, strategy, **fixed)
            settings = {k: v for k, v in line["of"].items() if k != "scenario"} | line["chosen"]
            arms[name] = {"method": "deepcox", **settings}
            figures |= {f"{name}_score": line["score"]}
            print(f"{scenario}, {name}: {arms[name]}, score {line['score']:.4f}", flush=True)
    distinct = {json.dumps(arm): name for name, arm in arms.items()}
    changed = {
        "arms": [{"name": name, **arms[name]} for name in distinct.values()],
        "evaluate": {"test_fraction": TEST, "repeats": REPEATS},
    }
    rows = run(given, f"judged-{scenario}", scenario, changed).content["arms"]
    of: dict[str, Any] = {}
    for name, arm in arms.items():
        own = [r for r in rows if r["arm"] == distinct[json.dumps(arm)]]
        own.sort(key=lambda r: r["repeat"])
        of[name] = np.array([r["metrics"]["c_index"] for r in own])
    for name, c in of.items():
        figures |= {f"{name}_mean": float(c.mean()), f"{name}_sd": float(c.std(ddof=1))}
    for one, other in (("fedavg", "ensemble"), ("fedavg_grid", "ensemble_grid"),
                       ("fedavg_grid", "ensemble"), ("fedavg_grid", "fedavg")):  # fmt: skip
        gap = of[one] - of[other]
        error = gap.std(ddof=1) * math.sqrt(1 / REPEATS + TEST / (1 - TEST))
        reach = float(t.ppf(0.975, REPEATS - 1)) * error
        of_gap = {"mean": gap.mean(), "low": gap.mean() - reach, "high": gap.mean() + reach}
        figures |= {f"{one}-{other}_{k}": float(v) for k, v in of_gap.items()}
    print(json.dumps(figures, indent=1), flush=True)
    keep(given.out / "grid.json", {f"metabric-{scenario}": figures})


def main() -> None:
    """Search, then judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--metabric", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    tables.deepsurv(given.metabric).to_csv(given.out / "metabric.csv", index=False)
    search(given)
    for scenario in SCENARIOS:
        judge(given, scenario)


if __name__ == "__main__":
    main()
