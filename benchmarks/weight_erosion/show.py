"""Tables and claims of `run.py`'s results.

    python benchmarks/weight_erosion/show.py --out DIR

Prints Markdown: test accuracy after the last round, and after some before; α; and leaves with 1
where a claim does not hold:

1. of every agent as user, Erosion's mean test accuracy is at least that of Global and of Local, at
   the paper's learning rates, less 0.01.
2. of some agent it is better than both.
3. AGE_SOME: of the two agents that share a population, each keeps the other's weight highest.
4. an agent with flipped labels ends with α = 0 in every run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

ROUNDS = (1, 5, 10, 20, 30)
ARMS = ("Global", "Global, rate 3", "Local", "Erosion")


def line(*cells: object) -> None:
    print("| " + " | ".join(f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells) + " |")


def head(*cells: str) -> None:
    print()
    line(*cells)
    line(*["---"] * len(cells))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    text = (parser.parse_args().out / "runs.jsonl").read_text()
    runs = pd.DataFrame([json.loads(one) for one in text.splitlines()])
    runs["last"] = [a[-1] for a in runs.accuracy]
    keys = ["split", "user"]
    print(f"{runs.seed.nunique()} seeds. Test accuracy after the last round (standard error):")
    head("split", "user", *ARMS)
    mean = runs.pivot_table(index=keys, columns="arm", values="last")
    error = runs.pivot_table(index=keys, columns="arm", values="last", aggfunc="sem")
    for at, row in mean.iterrows():
        line(*at, *(f"{row[a]:.3f} ({error.loc[at, a]:.3f})" for a in ARMS))
    print("\nMean of all users, by round:")
    head("split", "arm", *map(str, ROUNDS))
    for (split, arm), part in runs[runs.arm.isin(ARMS)].groupby(["split", "arm"]):
        by = np.mean(part.accuracy.tolist(), axis=0)
        line(split, arm, *(float(by[r - 1]) for r in ROUNDS))
    print("\nα of Erosion by round, mean over seeds:")
    head("split", "user", "agent", *map(str, ROUNDS))
    final: dict[tuple[str, str], dict[str, float]] = {}
    for at, part in runs[runs.arm == "Erosion"].groupby(keys):
        for agent in part.alpha.iloc[0]:
            by = np.mean([a[agent] for a in part.alpha], axis=0)
            line(*at, agent, *(float(by[r - 1]) for r in ROUNDS))
            final.setdefault(at, {})[agent] = float(np.mean(by))
    best = mean[["Global", "Local"]].max(axis=1)
    flipped = runs[runs.arm == "Erosion, flipped"]
    ends = [a[f][-1] for a, f in zip(flipped.alpha, flipped.flipped, strict=True)]
    pairs = {("AGE_SOME", "agent0"): "agent1", ("AGE_SOME", "agent1"): "agent0"}
    claims = {
        "1. at least the better of Global and Local, less 0.01, of every user":
            bool((mean["Erosion"] >= best - 0.01).all()),
        "2. better than both of some user": bool((mean["Erosion"] > best).any()),
        "3. who shares the user's population keeps most (mean α of all rounds)":
            all(max(final[at], key=final[at].__getitem__) == a for at, a in pairs.items()),
        "4. flipped labels end with α = 0 in every run": max(ends) == 0.0,
    }  # fmt: skip
    print()
    for claim, holds in claims.items():
        print(f"{'holds' if holds else 'FAILS'}  {claim}")
    worst = (mean["Erosion"] - best).sort_values()
    print(f"\nleast of Erosion − max(Global, Local): {worst.iloc[0]:+.3f} ({worst.index[0]})")
    fair = mean[["Global, rate 3", "Local"]].max(axis=1)
    print("with Global at rate 3:", dict((mean["Erosion"] - fair).round(3)))
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
