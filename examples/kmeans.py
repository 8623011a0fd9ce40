"""Groups of patients over three hospitals by k-means, their number chosen by the gap statistic.

python examples/kmeans.py
"""

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

import fedcohort as fc


def main() -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 600)  # three kinds of patient, which no hospital knows
    middle = np.array([[8.0, 60.0, 250.0], [11.0, 70.0, 90.0], [13.5, 45.0, 320.0]])
    names = ["haemoglobin", "age", "platelets"]
    table = pd.DataFrame(middle[kind] + rng.normal(size=(600, 3)) * [1.0, 6.0, 35.0], columns=names)
    hospital = rng.choice(["north", "south", "west"], 600, p=[0.6, 0.3, 0.1])
    fed = fc.simulate({h: table[hospital == h].reset_index(drop=True) for h in set(hospital)})

    fit = fc.fit("kmeans", fed, n_clusters="auto")
    print(pd.DataFrame(fit.model.numbers).round(3).to_string(index=False))
    print(f"\n{len(fit.summary)} clusters; centroids in standard deviations")
    print(fit.summary.round(2).to_string(index=False))

    # the same rows as one table, and each hospital alone
    pooled = fc.fit("kmeans", fed, n_clusters="auto", strategy="centralised")
    alone = fc.fit("kmeans", fed, n_clusters=3, strategy="isolated")
    print("\nagreement with the three kinds (adjusted Rand index)")
    for name, one in {"together": fit, "pooled": pooled, **alone.sites}.items():
        print(f"  {name:<9}{adjusted_rand_score(kind, one.predict(table)):.3f}")


if __name__ == "__main__":
    main()
