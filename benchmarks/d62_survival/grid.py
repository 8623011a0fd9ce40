"""D6.2's own grid (8.3.1) where federated averaging fell short of the ensemble: METABRIC.

    python benchmarks/d62_survival/grid.py --metabric FILE --out DIR [--penalties 4]

D6.2 searched federated epochs, internal epochs, internal batches and the initial rate, and put L1
and L2 on the first layer; it prints no values. study.yaml searches federated epochs and the rate,
at 5 internal epochs, one batch and no penalty. Here, on study.yaml's sites, splits and folds (one
centre left out):

    fedavg     internal_epochs 1, 2, 5, 10 × internal_batches 1, 4 × rate 0.01, 0.03
               × rounds up to 80, 40, 40, 20 by internal epochs; half as many with four batches
    ensemble   internal_epochs 5 × internal_batches 1, 4 × rate 0.003, 0.01 × rounds up to 20, 10
    both       × (l1, l2) (0, 0), (0.01, 0.01), (0, 0.01), (0.01, 0), the first `--penalties`

An ensemble has no federated epochs: rounds × internal epochs are the passes of each site over its
rows.

The choice of a strategy is the best score over the left-out centres of the first split, once, as in
study.yaml. Then it is fitted and judged on 20 splits, beside the choice of study.yaml's grid. Each
finished part of a search is a line of `DIR/grid.jsonl` and is not searched again; the judged
choices are written to `DIR/grid.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import tables
import yaml

import fedcohort as fc

sys.path.append(str(Path(__file__).parents[1]))
from book import Book, keep

HERE = Path(__file__).parent
SCENARIOS = ("by-outcome", "by-feature")
#: Rounds to choose from by internal epochs, with one batch.
ROUNDS = {1: (5, 10, 20, 40, 80), 2: (5, 10, 20, 40), 5: (3, 5, 10, 20, 40), 10: (3, 5, 10, 20)}
ENSEMBLE = (2, 5, 10, 20)
RATES = {"fedavg": (0.01, 0.03), "ensemble": (0.003, 0.01)}
PENALTIES = ((0.0, 0.0), (0.01, 0.01), (0.0, 0.01), (0.01, 0.0))


def parts(penalties: int) -> list[tuple[dict[str, Any], tuple[int, ...]]]:
    """Return the fixed settings and the rounds of each part of the search."""
    found: list[tuple[dict[str, Any], tuple[int, ...]]] = []
    for (l1, l2), b in itertools.product(PENALTIES[:penalties], (1, 4)):
        for strategy, e, rounds in (
            *(("fedavg", e, r) for e, r in ROUNDS.items()),
            ("ensemble", 5, ENSEMBLE),
        ):
            fixed = {"strategy": strategy, "internal_epochs": e, "internal_batches": b}
            few = tuple(r for r in rounds if b == 1 or 2 * r <= rounds[-1])
            found.append((fixed | {"l1": l1, "l2": l2}, few))
    return found


def study(given: argparse.Namespace, name: str, scenario: str, changed: dict[str, Any]) -> fc.Study:
    """Return study.yaml on METABRIC and one scenario, with other entries."""
    content = yaml.safe_load((HERE / "study.yaml").read_text()) | {"bounds": []} | changed
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


def search(given: argparse.Namespace, book: Book) -> None:
    """Score each part of the grid."""
    for fixed, rounds in parts(given.penalties):
        for scenario in SCENARIOS:
            of = {"scenario": scenario, **fixed}
            if not book.lacks(of):
                continue
            start = time.process_time()
            rates = RATES[fixed["strategy"]]
            changed = {
                "arms": [{"method": "deepcox", **fixed}],
                "evaluate": {"test_fraction": 0.25, "repeats": 1},
                "tune": {
                    "by": "centre-kfold",
                    "grid": {"rounds": [*rounds], "learning_rate": [*rates]},
                },
            }
            name = "-".join(map(str, of.values()))
            (found,) = run(given, name, scenario, changed).content["tuning"]
            tried = [[*x["settings"].values(), x["score"]] for x in found["tried"]]
            book.write(of, {"score": found["score"], "chosen": found["chosen"], "tried": tried}
                       | {"cpu": time.process_time() - start})  # fmt: skip


def chosen(path: Path, scenario: str, strategy: str) -> tuple[dict[str, Any], float]:
    """Return the settings of the best score of a strategy, and that score."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    own = [x for x in lines if (x["of"]["scenario"], x["of"]["strategy"]) == (scenario, strategy)]
    best = max(own, key=lambda x: x["score"])
    fixed = {k: v for k, v in best["of"].items() if k not in ("scenario", "strategy")}
    return fixed | best["chosen"], best["score"]


def judge(given: argparse.Namespace, scenario: str) -> None:
    """Judge the choices of both grids on the same 20 splits; print and keep them."""
    old = yaml.safe_load((HERE / "study.yaml").read_text())["tune"]["arms"]
    arms: list[dict[str, Any]] = []
    for strategy in RATES:
        settings, score = chosen(given.out / "grid.jsonl", scenario, strategy)
        print(f"{scenario}, {strategy}: {settings}, score {score:.4f}", flush=True)
        one = {"method": "deepcox", "strategy": strategy}
        arms += [{"name": f"{strategy}-grid", **one, **settings}]
        arms += [{"name": strategy, **one, "internal_epochs": 5}]
    changed = {
        "arms": arms,
        "evaluate": {"test_fraction": 0.25, "repeats": 20},
        "tune": {"by": "centre-kfold", "arms": {s: old[s] for s in RATES}},
    }
    results = run(given, f"judged-{given.penalties}-{scenario}", scenario, changed)
    rows = results.summary.query("metric == 'c_index'").set_index("arm")
    figures: dict[str, Any] = {}
    for arm in rows.index:
        figures |= {f"{arm}_mean": float(rows["mean"][arm]), f"{arm}_sd": float(rows["sd"][arm])}
    for row in results.content["comparisons"]:
        print(row)
    print(json.dumps(figures, indent=1))
    keep(given.out / "grid.json", {f"metabric-{scenario}": figures})


def main() -> None:
    """Search, then judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--metabric", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--penalties", type=int, default=len(PENALTIES))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    tables.deepsurv(given.metabric).to_csv(given.out / "metabric.csv", index=False)
    search(given, Book(given.out / "grid.jsonl"))
    for scenario in SCENARIOS:
        judge(given, scenario)


if __name__ == "__main__":
    main()
