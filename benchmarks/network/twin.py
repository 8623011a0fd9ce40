"""The same study over a network's sites and in one process: models, and how far metrics differ.

    OMP_NUM_THREADS=1 python benchmarks/network/twin.py [--repeats 40]

A packaged sample is dealt to four hospitals, a file each, and a study with many repeats is run
twice: with `source: data/{site}.csv`, and over `LocalSites`, whose files those of a network equal.
Accepted: the same models byte for byte; of metrics that both compute, the mean difference at most a
tenth of the standard deviation over repeats, the largest at most `LARGEST` or 1e-9.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import yaml

import fedcohort as fc
from fedcohort.data.read import sources
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.run import runner
from fedcohort.study.run.runner import run_over as run
from fedcohort.study.sites.sites import LocalSites

STUDY = {
    "survival": ("gbsg2", {"time": "time", "event": "cens"},
                 [{"method": "cox", "scale": "none"}, {"method": "deepcox", "rounds": 5}]),
    "classification": ("breast_cancer", {"y": "target"},
                       [{"method": "logistic", "l2": 0.1, "scale": "standard"}]),
    "regression": ("diabetes", {"y": "target"}, [{"method": "ridge", "penalty": 0.1}]),
}  # fmt: skip
LARGEST = {
    "c_index": 0.01, "uno_c": 0.015, "ibs": 0.002, "d_calibration_p": 0.3, "auc": 0.005,
}  # fmt: skip
#: The slope of survival is another one: stratified by hospital.
ANOTHER = {("survival", "calibration_slope")}


def written(folder: Path, task: str, repeats: int) -> Path:
    """Write a study, its dictionary and four files."""
    sample, outcome, arms = STUDY[task]
    found = sources.load(f"sample:{sample}", Path())
    frame, known = found.frames, found.dictionary
    (folder / "data").mkdir()
    where = np.random.default_rng(0).integers(0, 4, len(frame))
    for i, site in enumerate(("east", "north", "south", "west")):
        frame[where == i].to_csv(folder / "data" / f"{site}.csv", index=False)
    (folder / "d.yaml").write_text(yaml.safe_dump(known.to_dict(), sort_keys=False))
    content = {
        "study": "twin", "task": task, "seed": 1,
        "data": {"source": "data/{site}.csv", "dictionary": "d.yaml", "outcome": outcome},
        "arms": arms, "bounds": [],
        "evaluate": {"repeats": repeats, "draws": 2},
    }  # fmt: skip
    (folder / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder / "study.yaml"


def twins(study: Path) -> tuple[dict, dict]:
    """Run both; return results.json of each."""
    found, out = fc.Study.from_file(study), study.parent
    runner.run(found.plan, found.table, out / "here", resume=False, workers=1, tell=str, command="")
    terms = Terms.of(study)
    read = {
        p.stem: sources.load(p.name, p.parent, dictionary=terms.dictionary).frames
        for p in sorted((out / "data").iterdir())
    }
    tables = [SiteTable.of(terms, site, frame) for site, frame in read.items()]
    run(terms, LocalSites(terms, tables), out / "there")
    return tuple(json.loads((out / n / "results.json").read_text()) for n in ("here", "there"))


def models(out: Path) -> dict[str, bytes]:
    """Return the files of a run's models but their cards."""
    found = (p for p in (out / "models").rglob("model.*"))
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in sorted(found)}


def main() -> int:
    """Print what differs; return 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    given, wrong = parser.parse_args(), 0
    for task in STUDY:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            here, there = twins(written(folder, task, given.repeats))
            same = models(folder / "here") == models(folder / "there")
        wrong += not same
        print(f"{task}: models {'equal' if same else 'DIFFER'}")
        for arm in dict.fromkeys(r["arm"] for r in here["arms"]):
            ours, theirs = (
                [r["metrics"] for r in x["arms"] if r["arm"] == arm and r["site"] is None]
                for x in (here, there)
            )
            for metric in theirs[0]:
                a = np.array([r[metric] for r in ours], float)
                b = np.array([r[metric] for r in theirs], float)
                off, spread = b - a, np.nanstd(a)
                large = float(np.nanmax(np.abs(off)))
                claimed = (task, metric) not in ANOTHER
                bad = claimed and (
                    large > LARGEST.get(metric, 1e-9) or abs(np.nanmean(off)) > spread / 10
                )
                wrong += bad
                print(
                    f"  {arm:9s} {metric:21s} {np.nanmean(a):8.4f}  mean {np.nanmean(off):+.1e}  "
                    f"sd {np.nanstd(off):.1e}  largest {large:.1e}{'  MISSED' if bad else ''}"
                )
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
