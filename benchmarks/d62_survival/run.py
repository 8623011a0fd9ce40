"""D6.2's tables 8.1–8.3 on four public cohorts.

    python benchmarks/d62_survival/run.py --mds FILE --metabric FILE --support FILE --out DIR

Each cohort is two studies, `deepcox` (study.yaml) and `cox` (cox.yaml), each with bounds of its own
method, so that every run has its report. The script prints the C-index of every arm and scenario as
mean ± sd over the repeats, the paper's figures beside the MDS cohort's, and whether the claims
below hold. It leaves with 1 if one does not.

Claims, for each cohort and scenario:
1. `exact` and `cox` lie within 0.005 of the same method on pooled data.
2. every federated arm lies above the same method on isolated sites.
3. D6.2's ordering: on non-IID scenarios fedavg ≥ ensemble.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from pathlib import Path

import pandas as pd
import tables
import yaml

import fedcohort as fc

#: D6.2, tables 8.1–8.3: C-index (sd), EuroMDS, 2,043 patients; centralised 0.75 (0.02).
PAPER = {
    "iid": {"isolated": 0.62, "sequential": 0.75, "fedavg": 0.75, "ensemble": 0.74},
    "unbalanced": {"isolated": 0.62, "sequential": 0.74, "fedavg": 0.75, "ensemble": 0.75},
    "by-outcome": {"isolated": 0.55, "sequential": 0.60, "fedavg": 0.68, "ensemble": 0.59},
    "by-feature": {"isolated": 0.59, "sequential": 0.70, "fedavg": 0.73, "ensemble": 0.70},
}
#: Federated arms by study; the first is the one that shall equal pooled data.
FEDERATED = {"study": ("exact", "sequential", "fedavg", "ensemble"), "cox": ("cox",)}
HERE = Path(__file__).parent


def main() -> int:
    given = _arguments()
    readers = {"mds": tables.mds, "metabric": tables.deepsurv, "support": tables.deepsurv}
    broken: list[str] = []
    for kind, name in itertools.product(FEDERATED, ("gbsg2", *readers)):
        path = getattr(given, name, None)
        if given.only and name not in given.only:
            continue
        if name in readers and path is None:
            print(f"\n## {name}: left out (no path given)")
            continue
        folder = given.out / f"{name}-{kind}"
        if (folder / "results.json").exists():
            results = fc.Results.from_folder(folder)
        else:
            table = readers[name](path) if name in readers else None
            study = _study(given, name, kind, table)
            resume = (folder / ".work").exists()
            results = study.run(folder, resume=resume, workers=given.workers)
        broken += _show(name, kind, results)
    print("\n" + ("\n".join(broken) or "all claims hold"))
    return bool(broken)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="D6.2's survival experiment on public cohorts")
    for name in ("mds", "metabric", "support"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/d62"))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--by", choices=["row-kfold"], help="tune every arm so, not by centres")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    return parser.parse_args()


def _study(given: argparse.Namespace, name: str, kind: str, table: pd.DataFrame | None) -> fc.Study:
    """Return the study of one cohort; its table is written beside the run."""
    content = yaml.safe_load((HERE / f"{kind}.yaml").read_text())
    content["study"] = f"d62-{name}-{kind}"
    content["evaluate"]["repeats"] = given.repeats
    if given.by:
        content["tune"]["by"] = given.by
    if table is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        source = (given.out / f"{name}.csv").resolve()
        table.to_csv(source, index=False)
        content["data"] |= {"source": str(source), "outcome": {"time": "time", "event": "event"}}
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{name}-{kind}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return fc.Study.from_file(path)


def _show(name: str, kind: str, results: fc.Results) -> list[str]:
    """Print one cohort's table; return the claims that do not hold."""
    rows = results.summary.query("metric == 'c_index'").set_index(["scenario", "arm"])
    data = results.content["data"]
    method = results.content["declared"][0]["method"]
    print(f"\n## {name}, {method}: {data['rows']} rows, {data['events']} events, "
          f"{len(data['features'])} features, {rows['n'].max()} repeats\n")  # fmt: skip
    arms = [d["arm"] for d in results.content["declared"]]
    print("| scenario | " + " | ".join(arms) + " |")
    print("|---" * (len(arms) + 1) + "|")
    broken: list[str] = []
    for scenario in (s["scenario"] for s in results.content["scenarios"]):
        mean = {a: rows.loc[(scenario, a), "mean"] for a in arms if (scenario, a) in rows.index}
        sd = {a: rows.loc[(scenario, a), "sd"] for a in mean}
        cells = [f"{mean[a]:.3f} ± {sd[a]:.3f}" if a in mean else "–" for a in arms]
        print(f"| {scenario} | " + " | ".join(cells) + " |")
        if name == "mds" and kind == "study":
            paper = {**PAPER[scenario], "centralised": 0.75}
            shown = [f"{paper[a]:.2f}" if a in paper else "" for a in arms]
            print("| … in D6.2 | " + " | ".join(shown) + " |")
        broken += _claims(name, kind, scenario, mean)
    return broken


def _claims(name: str, kind: str, scenario: str, mean: dict[str, float]) -> list[str]:
    """Return the claims of the module's header that do not hold."""
    out: list[str] = []
    where = f"{name}, {scenario}:"
    arms = FEDERATED[kind]
    if missing := [a for a in (*arms, "isolated", "centralised") if a not in mean]:
        return [f"{where} no result for {', '.join(missing)}"]
    gap = mean[arms[0]] - mean["centralised"]
    if abs(gap) > 0.005:
        out.append(f"{where} {arms[0]} differs from centralised by {gap:+.4f}")
    out += [
        f"{where} {a} ({mean[a]:.3f}) is not above isolated ({mean['isolated']:.3f})"
        for a in arms
        if mean[a] <= mean["isolated"]
    ]
    non_iid = scenario in ("by-outcome", "by-feature")
    if non_iid and "fedavg" in mean and mean["fedavg"] < mean["ensemble"]:
        out.append(
            f"{where} fedavg ({mean['fedavg']:.3f}) is below ensemble ({mean['ensemble']:.3f})"
        )
    return out


if __name__ == "__main__":
    sys.exit(main())
