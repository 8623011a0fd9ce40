"""Logistic regression of breast masses, malignant or benign, over four hospitals.

python examples/logistic.py
"""

from pathlib import Path

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    masses = load("sample:breast_cancer", Path()).frames
    table = masses[["mean texture", "mean area", "mean concave points", "target"]]
    outcome = fc.Binary("target")  # 1 is benign
    hospitals = partition(table, "unbalanced", 4, seed=1, outcome=outcome)
    fed = fc.simulate(hospitals, outcome=outcome)

    fit = fc.fit("logistic", fed, scale="standard")
    columns = ["covariate", "odds_ratio", "or_low", "or_high", "p"]
    print(fit.summary[columns].round(4).to_string(index=False))
    print(f"\ndeviance {fit.model.deviance:.1f}, without covariates {fit.model.null_deviance:.1f}")

    # the same as on the pooled table
    pooled = fc.fit("logistic", fed, scale="standard", strategy="centralised")
    difference = abs(fit.summary.coefficient - pooled.summary.coefficient).max()
    print(f"largest difference from the pooled fit: {difference:.0e}, in {fit.run.rounds} rounds")

    print("\nprobability of a benign mass, of the first three patients:")
    print(fit.predict(table[:3]).round(3))


if __name__ == "__main__":
    main()
