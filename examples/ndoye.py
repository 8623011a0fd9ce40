"""Whom a small hospital should train with: one of the others has coded its outcome the wrong way.

python examples/ndoye.py
"""

from pathlib import Path

import pandas as pd
from sklearn.metrics import log_loss

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    masses = load("sample:breast_cancer", Path()).frames
    table = masses[["mean texture", "mean smoothness", "mean concavity"]].astype(float)
    table["malignant"] = (masses["target"].astype(int) == 0).astype(int)
    table, later = table.iloc[:450], table.iloc[450:]
    outcome = fc.Binary("malignant")
    hospitals = partition(table, "iid", 5, seed=1, outcome=outcome)
    names = dict(zip(hospitals, ["ours", "north", "south", "west", "east"], strict=True))
    hospitals = {names[h]: frame for h, frame in hospitals.items()}
    hospitals["ours"] = hospitals["ours"].iloc[:40]
    hospitals["east"] = hospitals["east"].assign(malignant=1 - hospitals["east"]["malignant"])
    fed = fc.simulate(hospitals, outcome=outcome)

    # what is known before anything is trained together, and whom each choice of k would include
    ranked = fc.fit("ndoye", fed, user="ours", train=False)
    print(pd.DataFrame(ranked.model.ranking).round(3).to_string(index=False))
    print("\n" + pd.DataFrame(ranked.model.choices).round(3).to_string(index=False))

    print("\nlog loss on patients of later, by the number of hospitals trained with")
    for k, fit in enumerate([ranked, *(fc.fit("ndoye", fed, user="ours", k=k) for k in (3, 4))]):
        print(f"  {(0, 3, 4)[k]}  {log_loss(later['malignant'], fit.predict(later)):.3f}")


if __name__ == "__main__":
    main()
