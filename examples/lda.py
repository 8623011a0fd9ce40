"""Linear discriminant analysis of breast masses, malignant or benign, over four hospitals.

python examples/lda.py
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

    fit = fc.fit("lda", fed, scale="standard")
    print(fit.summary.round(4).to_string(index=False))

    # the same as on the pooled table
    pooled = fc.fit("lda", fed, scale="standard", strategy="centralised")
    difference = abs(fit.summary.coefficient - pooled.summary.coefficient).max()
    print(f"\nlargest difference from the pooled fit: {difference:.0e}")

    print("\nprobability of a benign mass, of the first three patients:")
    print(fit.predict(table[:3]).round(3))


if __name__ == "__main__":
    main()
