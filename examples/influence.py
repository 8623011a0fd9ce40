"""What each hospital is worth to a small one: one helps, one sends the same rows again, one harms.

python examples/influence.py
"""

from pathlib import Path

import pandas as pd

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    masses = load("sample:breast_cancer", Path()).frames
    table = masses[["mean texture", "mean smoothness", "mean concavity"]].astype(float)
    table["malignant"] = (masses["target"].astype(int) == 0).astype(int)
    outcome = fc.Binary("malignant")
    hospitals = partition(table, "iid", 4, seed=1, outcome=outcome)
    names = dict(zip(hospitals, ["ours", "north", "south", "east"], strict=True))
    hospitals = {names[h]: frame for h, frame in hospitals.items()}
    hospitals["ours"] = hospitals["ours"].iloc[:80]
    hospitals["copy"] = hospitals["north"].sample(frac=1, random_state=0)
    hospitals["east"] = hospitals["east"].assign(malignant=1 - hospitals["east"]["malignant"])
    fed = fc.simulate(hospitals, outcome=outcome)

    fit = fc.fit("influence", fed, user="ours", use="weight")
    print(pd.DataFrame(fit.model.contributions).round(3).to_string(index=False))
    print("\nwhat each is worth without, and with, each other")
    print(pd.DataFrame(fit.model.redundancy).round(3).to_string(index=False))
    model = fit.model
    print(f"\nlog loss on our rows held back: alone {model.loss_alone:.3f}, ", end="")
    print(f"with all {model.loss_together:.3f}, weighted by value {model.loss:.3f}")


if __name__ == "__main__":
    main()
